#!/bin/sh
# What mpi.h has beside the ABI: conversions to Fortran handles, and errors for names that MPI-3.0 removed.
#
# usage: header.sh PREFIX SYMBOLS    (SYMBOLS: a file with all names of the ABI)
set -eu

prefix=$1 symbols=$2
here=$(cd "$(dirname -- "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# `build COMPILER STANDARD SOURCE PROGRAM`: without a warning.
build() {
    case $1 in
    *++) wrapper=mpicxx language=c++ ;;
    *) wrapper=mpicc language=c ;;
    esac
    "$prefix/bin/$wrapper" "-cc=$1" -x "$language" "-std=$2" -Wall -Wextra -Werror -pedantic -o "$4" "$here/$3" ||
        fail "$1 -std=$2 does not compile $3"
}

for compiler in gcc clang g++ clang++; do
    command -v $compiler > /dev/null || fail "$compiler is needed (tests/setup installs it)"
    case $compiler in
    *++) standards='c++11 c++17' ;;
    *) standards='c89 c11' ;;
    esac
    for standard in $standards; do
        build $compiler $standard f2c.c f2c
        printed=$(timeout 60 "$prefix/bin/mpiexec" -n 2 ./f2c 2>&1) || fail "f2c of $compiler: $printed"
        [ "$printed" = "f2c: 107 checks passed" ] || fail "f2c of $compiler -std=$standard: $printed"
        for name in own_names own_macros; do
            build $compiler $standard $name.c $name
            timeout 60 ./$name || fail "$name of $compiler -std=$standard"
        done
    done
    echo "ok: $compiler: conversions to Fortran handles, and a program's own versions"
done

nm -D --undefined-only f2c | sed -n 's/^ *U \(P\{0,1\}MPI_[^@]*\).*/\1/p' > used
[ -s used ] || fail "f2c uses no function of MPI"
strange=$(grep -vxF -f "$symbols" used) && fail "f2c needs names outside the ABI: $strange"
echo "ok: conversions need no symbol outside the ABI"

# What was removed, a line of C that uses it, and what the error must name.
removed() {
    cat <<'END'
MPI_Address(0, 0); | MPI_Get_address
MPI_Errhandler_create(0, 0); | MPI_Comm_create_errhandler
MPI_Errhandler_get(MPI_COMM_WORLD, 0); | MPI_Comm_get_errhandler
MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN); | MPI_Comm_set_errhandler
MPI_Type_extent(MPI_INT, 0); | MPI_Type_get_extent
MPI_Type_hindexed(0, 0, 0, MPI_INT, 0); | MPI_Type_create_hindexed
MPI_Type_hvector(0, 0, 0, MPI_INT, 0); | MPI_Type_create_hvector
MPI_Type_lb(MPI_INT, 0); | MPI_Type_get_extent
MPI_Type_struct(0, 0, 0, 0, 0); | MPI_Type_create_struct
MPI_Type_ub(MPI_INT, 0); | MPI_Type_get_extent
MPI_Handler_function *handler = 0; (void)handler; | MPI_Comm_errhandler_function
(void)MPI_LB; | MPI_Type_create_resized
(void)MPI_UB; | MPI_Type_create_resized
(void)MPI_COMBINER_HINDEXED_INTEGER; | MPI_COMBINER_HINDEXED
(void)MPI_COMBINER_HVECTOR_INTEGER; | MPI_COMBINER_HVECTOR
(void)MPI_COMBINER_STRUCT_INTEGER; | MPI_COMBINER_STRUCT
END
}

for compiler in gcc clang g++ clang++; do
    case $compiler in
    *++) source=removed.cpp ;;
    *) source=removed.c ;;
    esac
    removed | while IFS='|' read -r use instead; do
        printf '#include <mpi.h>\nvoid use(void);\nvoid use(void)\n{\n    %s\n}\n' "$use" > $source
        if "$prefix/bin/mpicc" -cc=$compiler -c -o removed.o $source 2> said; then
            fail "$compiler accepts $use"
        fi
        # g++ says it twice, and none may say more.
        grep 'error:' said > errors
        if ! [ -s errors ] || grep -vq "removed in MPI-3.0: use ${instead# }\$" errors; then
            fail "$compiler on $use should name$instead: $(cat said)"
        fi
    done
    echo "ok: $compiler: an error names what replaced each removed name"
done
