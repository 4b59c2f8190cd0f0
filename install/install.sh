#!/bin/sh
# Installs a build. Called by `make install`, which builds first.
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
link mpiexec "$root/share/bash-completion/completions/mpirun"
link mpiexec.fish "$root/share/fish/vendor_completions.d/mpirun.fish"

echo "installed Fastpath $version in $prefix"
