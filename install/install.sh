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

install -m 755 "$build/mpiexec" "$build/fastpath" "$root/bin/"
ln -sf mpiexec "$root/bin/mpirun"

sed "s/@VERSION@/$version/" "$here/mpicc" > "$root/bin/mpicc"
chmod 755 "$root/bin/mpicc"
for name in mpicxx mpic++ mpicc_abi mpicxx_abi mpic++_abi; do
    ln -sf mpicc "$root/bin/$name"
done

# Replaced by rename: a running program keeps the library that it has mapped.
install -m 755 "$build/libmpi_abi.so" "$root/lib/.libmpi_abi.so.new"
mv -f "$root/lib/.libmpi_abi.so.new" "$root/lib/libmpi_abi.so.1"
ln -sf libmpi_abi.so.1 "$root/lib/libmpi_abi.so"
ln -sf libmpi_abi.so.1 "$root/lib/libmpi_abi.so.0"

"$build/fastpath-abigen" header > "$root/include/mpi.h"
for name in mpi mpi-c mpi-cxx; do
    sed "s/@NAME@/$name/; s/@VERSION@/$version/" "$here/mpi.pc" > "$root/lib/pkgconfig/$name.pc"
done

echo "installed Fastpath $version in $prefix"
