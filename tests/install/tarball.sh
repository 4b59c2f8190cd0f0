#!/bin/sh
# Packs a build into an archive, and installs, uses and removes it.
#
# usage: tarball.sh BUILD        (BUILD: target/install/release)
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$root/tests/install/expect.sh"
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" COMPRESSION=gz

archive=$("$root/packaging/tarball/pack" "$build" out) || fail "the archive cannot be packed"
echo "ok: a build is packed into ${archive##*/}, $(wc -c < "$archive") bytes"
mkdir unpacked
tar -xf "$archive" -C unpacked --strip-components 1
! grep -rlaF -e "$root" -e "$build" -e "$scratch" unpacked || fail "these files have paths of this machine"
prefix="$scratch/its place"
mkdir -p "$prefix/lib"
echo kept > "$prefix/lib/other"
expect "it is installed" "installed Fastpath $("$build/fastpath-abigen" version) in $prefix" unpacked/install "$prefix"
expect "it is installed again" "installed" unpacked/install "$prefix"
"$prefix/bin/mpicc" -o exchange "$root/tests/install/exchange.c"
expect "a program in C runs on 4 ranks" "4 ranks, sum 6" timeout 60 "$prefix/bin/mpiexec" -n 4 ./exchange
if "$prefix/bin/mpifort" -showme:command > /dev/null 2>&1; then
    [ -n "$(find "$prefix/lib/fastpath/fortran" -name mpi_f08.mod)" ] || fail "the modules are not built"
    "$prefix/bin/mpifort" -o ring "$root/tests/install/ring_f08.f90"
    expect "a program in Fortran runs on 4 ranks" "mpi_f08: 4 ranks" timeout 60 "$prefix/bin/mpiexec" -n 4 ./ring
fi
unpacked/install --remove "$prefix"
left=$(find "$prefix" ! -type d)
[ "$left" = "$prefix/lib/other" ] || fail "removed, these files are left: $left"
echo "ok: removed, it leaves only files of others"
echo "test-tarball: passed"
