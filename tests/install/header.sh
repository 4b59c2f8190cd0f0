#!/bin/sh
# Tests the parts of mpi.h beyond the ABI: conversions to Fortran handles, and names that MPI-3.0 removed.
#
# usage: header.sh PREFIX SYMBOLS    (SYMBOLS: a file with all names of the ABI)
set -eu

prefix=$1 symbols=$2
here=$(cd "$(dirname -- "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$here/expect.sh"
cd "$scratch"

# `build COMPILER STANDARD SOURCE PROGRAM`: compiles without a warning.
build() {
    case $1 in
    *++) wrapper=mpicxx language=c++ ;;
    *) wrapper=mpicc language=c ;;
    esac
    "$prefix/bin/$wrapper" "-cc=$1" -x "$language" "-std=$2" -Wall -Wextra -Werror -pedantic \
        -Wmissing-declarations -o "$4" "$here/$3" ||
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
        build $compiler $standard ../c/environment/removed_names.c removed_names
        timeout 60 "$prefix/bin/mpiexec" -n 2 ./removed_names || fail "removed_names of $compiler -std=$standard"
        for name in own_names own_macros own_removed; do
            build $compiler $standard $name.c $name
            timeout 60 ./$name || fail "$name of $compiler -std=$standard"
        done
        nm own_removed | grep -q ' T MPI_Type_extent$' || fail "$compiler: a program's function is not there for others"
    done
    echo "ok: $compiler: conversions to Fortran handles, removed names, and a program's own versions"
done

for program in f2c removed_names; do
    nm -D --undefined-only $program | sed -n 's/^ *U \(P\{0,1\}MPI_[^@]*\).*/\1/p' > used
    [ -s used ] || fail "$program uses no function of MPI"
    strange=$(grep -vxF -f "$symbols" used) && fail "$program needs names outside the ABI: $strange"
done
echo "ok: conversions and removed names need no symbol outside the ABI"

# Removed names: a line of C that uses one, and the name in the warning; for type markers, in the error.
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
        compiled=yes
        "$prefix/bin/mpicc" -cc=$compiler -c -o removed.o $source 2> said || compiled=no
        case $use in
        *MPI_LB* | *MPI_UB*) kind=error expected=no ;;
        *) kind=warning expected=yes ;;
        esac
        [ $compiled = $expected ] || fail "$compiler on $use should give the $kind: $(cat said)"
        # g++ warns twice; there must be no further warning.
        grep -E 'error:|warning:' said > messages || true
        if ! [ -s messages ] || grep -vE "removed in MPI-3.0: use ${instead# }('|\"| |\$)" messages; then
            fail "$compiler on $use should name$instead: $(cat said)"
        fi
    done
    echo "ok: $compiler: a warning names what replaced each removed name"
done
