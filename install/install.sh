#!/bin/sh
# Installs what a build has made. Called by `make install`, which builds first.
#
# usage: install.sh BUILD PREFIX     (BUILD: target/release; DESTDIR in the environment is put before PREFIX)
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

# Of this process alone: two may install at once.
new=$root/lib/.new.$$
trap 'rm -f "$new"' EXIT
trap 'exit 1' INT TERM

# `rights FILE`: mode and owners.
rights() {
    ls -ln "$1" | awk '{ print substr($1, 1, 10), $3, $4 }'
}

# `place MODE FILE`: FILE becomes what $new is, or stays if it is that already, so that what was built with it is not
# built again. Replaced by rename: a running program keeps the library that it has mapped.
place() {
    chmod "$1" "$new"
    if ! cmp -s "$new" "$2" || [ "$(rights "$new")" != "$(rights "$2")" ]; then
        mv -f "$new" "$2"
    fi
}

# `link TARGET LINK`: LINK is a symbolic link to TARGET, and stays if it is that already.
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

cp "$build/libmpi_abi.so" "$new"
place 755 "$root/lib/libmpi_abi.so.1"
link libmpi_abi.so.1 "$root/lib/libmpi_abi.so"
link libmpi_abi.so.1 "$root/lib/libmpi_abi.so.0"

"$build/fastpath-abigen" header > "$new"
place 644 "$root/include/mpi.h"
for name in mpi mpi-c mpi-cxx; do
    sed "s/@NAME@/$name/; s/@VERSION@/$version/" "$here/mpi.pc" > "$new"
    place 644 "$root/lib/pkgconfig/$name.pc"
done

echo "installed Fastpath $version in $prefix"
