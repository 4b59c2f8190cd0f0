#!/bin/sh
# Installs a build. Called by `make install`, which builds first.
#
# usage: install.sh BUILD PREFIX     (BUILD: target/release; DESTDIR in the environment is put before PREFIX)
#
# MODULES=no in the environment: builds no Fortran modules; mpifort builds them when they are needed
set -eu

build=$1
case $2 in
/*) prefix=$2 ;;
*) prefix=$PWD/$2 ;;
esac
root=${DESTDIR:-}$prefix
here=$(dirname -- "$0")
version=$("$build/fastpath-abigen" version)

mkdir -p "$root/bin" "$root/include" "$root/lib/pkgconfig"

# Private to this process: concurrent installations are possible.
new=$root/lib/.new.$$
share=$root/lib/.share.$$
trap 'rm -rf "$new" "$share"' EXIT
trap 'exit 1' INT TERM

# `rights FILE`: mode and owners.
rights() {
    ls -ln "$1" | awk '{ print substr($1, 1, 10), $3, $4 }'
}

# `place MODE FILE`: replaces FILE by $new unless they are equal, so that software built with it is not rebuilt.
# Replaced by rename: a running program keeps its mapping of the library.
place() {
    chmod "$1" "$new"
    if ! cmp -s "$new" "$2" || [ "$(rights "$new")" != "$(rights "$2")" ]; then
        mv -f "$new" "$2"
    fi
}

# `link TARGET LINK`: makes LINK a symbolic link to TARGET, unless it is one already.
link() {
    [ "$(readlink "$2")" = "$1" ] || ln -sf "$1" "$2"
}

for name in mpiexec fastpath; do
    cp "$build/$name" "$new"
    place 755 "$root/bin/$name"
done
link mpiexec "$root/bin/mpirun"

sed "s/@VERSION@/$version/" "$here/mpicc" > "$new"
place 755 "$root/bin/mpicc"
for name in mpicxx mpic++ mpiCC mpicc_abi mpicxx_abi mpic++_abi; do
    link mpicc "$root/bin/$name"
done

# mpiexec preloads the profiling library into the ranks (FASTPATH_PROFILE).
cp "$build/libfastpath_profile.so" "$new"
place 755 "$root/lib/libfastpath_profile.so"

cp "$build/libmpi_abi.so" "$new"
place 755 "$root/lib/libmpi_abi.so.1"
link libmpi_abi.so.1 "$root/lib/libmpi_abi.so"
link libmpi_abi.so.1 "$root/lib/libmpi_abi.so.0"

# Debuggers load this library from the folder of libmpi_abi.so, to list message queues.
cp "$build/libfastpath_dbg.so" "$new"
place 755 "$root/lib/libfastpath_dbg.so"

"$build/fastpath-abigen" header > "$new"
place 644 "$root/include/mpi.h"
"$build/fastpath-abigen" extensions > "$new"
place 644 "$root/include/mpi-ext.h"
for name in mpi mpi-c mpi-cxx; do
    sed "s/@NAME@/$name/; s/@VERSION@/$version/" "$here/mpi.pc" > "$new"
    place 644 "$root/lib/pkgconfig/$name.pc"
done

# Fortran. Modules are built by mpifort, because they differ between compilers.
cp "$build/libmpifort_abi.so" "$new"
place 755 "$root/lib/libmpifort_abi.so.1"
link libmpifort_abi.so.1 "$root/lib/libmpifort_abi.so"
"$build/fastpath-abigen" mpif.h > "$new"
place 644 "$root/include/mpif.h"
"$build/fastpath-abigen" mpif-ext.h > "$new"
place 644 "$root/include/mpif-ext.h"
modules=$root/share/fastpath/fortran
mkdir -p "$modules" "$root/lib/fastpath/fortran"
for name in mpifp_types mpi mpi_f08 mpi_ext mpi_f08_ext; do
    "$build/fastpath-abigen" $name.f90 > "$new"
    place 644 "$modules/$name.f90"
done
# For compilers without assumed rank, or with array descriptors that the library does not know.
for name in mpi mpi_f08; do
    "$build/fastpath-abigen" $name.f90 --addresses > "$new"
    place 644 "$modules/addresses-$name.f90"
done
cp "$here/probe.f90" "$new"
place 644 "$modules/probe.f90"
sources=$(cat "$modules"/*.f90 | cksum)
sed "s/@VERSION@/$version/; s/@SOURCES@/${sources%% *}/" "$here/mpifort" > "$new"
place 755 "$root/bin/mpifort"
for name in mpif90 mpif77 mpifc mpifort_abi; do
    link mpifort "$root/bin/$name"
done
sed "s/@VERSION@/$version/" "$here/mpi-fort.pc" > "$new"
place 644 "$root/lib/pkgconfig/mpi-fort.pc"
# The modules of pkg-config. Until there are some, the folder of mpif.h, because compilers warn of missing folders.
[ -d "$root/lib/fastpath/fortran/default" ] || ln -sfn ../../../include "$root/lib/fastpath/fortran/default"

# Converter of traces to OTF2. Not executable: the user runs it by a Python that has the module otf2.
cp "$here/trace_otf2.py" "$new"
place 644 "$root/share/fastpath/trace_otf2.py"

# Manual pages and shell completions.
"$build/mpiexec" --generate "$share"
"$build/fastpath" generate "$share"
(cd "$share" && find . -type f) | while IFS= read -r file; do
    mkdir -p "$root/share/$(dirname "$file")"
    mv "$share/$file" "$new"
    place 644 "$root/share/$file"
done
link mpiexec.1 "$root/share/man/man1/mpirun.1"
sed "s/@VERSION@/$version/" "$here/mpicc.1" > "$new"
place 644 "$root/share/man/man1/mpicc.1"
for name in mpicxx mpic++; do
    link mpicc.1 "$root/share/man/man1/$name.1"
done
sed "s/@VERSION@/$version/" "$here/mpifort.1" > "$new"
place 644 "$root/share/man/man1/mpifort.1"
for name in mpif90 mpif77; do
    link mpifort.1 "$root/share/man/man1/$name.1"
done
link mpiexec "$root/share/bash-completion/completions/mpirun"
link mpiexec.fish "$root/share/fish/vendor_completions.d/mpirun.fish"

# `build_modules [COMPILER]`: builds modules in the installation. A failure does not end the installation.
build_modules() {
    if ! "$root/bin/mpifort" --build-modules "$@" > /dev/null 2>&1; then
        echo "install.sh: modules of ${1:-Fortran} were not built; \`mpifort --build-modules $*\` gives the reason" >&2
    fi
}

# Modules of the Fortran compilers on the path, the default one first. A package is for other machines: its builder
# calls `mpifort --build-modules COMPILER`.
if [ -z "${DESTDIR:-}" ] && [ "${MODULES:-}" != no ] && "$root/bin/mpifort" -showme:command > /dev/null 2>&1; then
    build_modules
    built=:
    IFS=:
    for folder in $PATH; do
        for compiler in "$folder"/gfortran "$folder"/gfortran-[1-9]* "$folder"/flang "$folder"/flang-[1-9]* \
            "$folder"/flang-new "$folder"/flang-new-[1-9]*; do
            [ -x "$compiler" ] || continue
            # Several names of one compiler are common.
            target=$(readlink -f "$compiler")
            case $built in
            *":$target:"*) ;;
            *) build_modules "$compiler" ;;
            esac
            built=$built:$target:
        done
    done
    unset IFS
fi

echo "installed Fastpath $version in $prefix"
