#!/bin/sh
# Packs a build into Debian packages, and installs, uses and removes them. dpkg writes to layers above the folders of
# this machine, in a mount namespace: nothing of it stays. Needs root, for the namespace.
#
# usage: deb.sh BUILD        (BUILD: target/install/release)
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/install/expect.sh"

if [ "${2-}" != inside ]; then
    if ! command -v dpkg > /dev/null || [ "$(id -u)" != 0 ]; then
        echo "not run: the test of the Debian packages needs dpkg and root"
        exit
    fi
    # What follows needs one namespace from begin to end.
    exec unshare --mount --propagation private "$0" "$build" inside
fi

# An own file system for scratch files: a layer cannot be above another overlay of a container.
scratch=$(mktemp -d)
trap 'cd /; umount -l "$scratch"; rmdir "$scratch"' EXIT
mount -t tmpfs none "$scratch"
cd "$scratch"
export COMPRESSION=gzip
"$root/packaging/deb/pack" "$build" first > paths || fail "the packages cannot be packed"
"$root/packaging/deb/pack" "$build" second > /dev/null
for path in $(cat paths); do
    cmp "$path" "second/${path##*/}" || fail "the package of the same build differs"
    ! dpkg-deb --fsys-tarfile "$path" | grep -aqF -e "$root" -e "$build" -e "$scratch" ||
        fail "${path##*/} has paths of this machine"
done
echo "ok: a build is packed into packages, twice the same"
if command -v lintian > /dev/null; then
    # The packages of a test have no maintainer.
    expect "lintian finds no error" "" lintian --allow-root --fail-on error \
        --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact $(cat paths)
fi

for folder in usr etc var/lib; do
    mkdir -p "layers/$folder/above" "layers/$folder/work"
    layer=$PWD/layers/$folder
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$layer/above,workdir=$layer/work" "/$folder" || fail "the system allows no overlay of /$folder"
done
export DEBIAN_FRONTEND=noninteractive XDG_CACHE_HOME="$scratch/cache"
unset CC FASTPATH_CC FASTPATH_CXX FASTPATH_FC MPICH_CC MPICH_FC OMPI_CC OMPI_FC I_MPI_FC || true
triplet=$(basename "$(dirname "$(dpkg-deb -c first/fastpath-mpi_*.deb | grep -o '/usr/lib/[^/]*/fastpath/$')")")
# Another MPI with the groups of Debian's Open MPI, and a higher priority.
mkdir -p other/DEBIAN other/usr/bin other/usr/lib/other/include
printf '%s\n' 'Package: other-mpi' 'Version: 1' 'Architecture: all' 'Maintainer: Nemo <nemo@localhost>' \
    'Description: stands for another MPI' > other/DEBIAN/control
cat > other/DEBIAN/postinst <<END
#!/bin/sh
set -e
update-alternatives --install /usr/bin/mpirun mpirun /usr/bin/mpirun.other 50 \
    --slave /usr/bin/mpiexec mpiexec /usr/bin/mpiexec.other
update-alternatives --install /usr/bin/mpicc mpi /usr/bin/mpicc.other 50 \
    --slave /usr/bin/mpicxx mpicxx /usr/bin/mpicxx.other --slave /usr/bin/mpif90 mpif90 /usr/bin/mpif90.other
update-alternatives --install /usr/include/$triplet/mpi mpi-$triplet /usr/lib/other/include 50 \
    --slave /usr/lib/$triplet/libmpi.so libmpi.so-$triplet /usr/lib/other/libmpi.so
END
for name in mpirun mpiexec mpicc mpicxx mpif90; do
    printf '#!/bin/sh\necho other\n' > "other/usr/bin/$name.other"
done
chmod 755 other/DEBIAN/postinst other/usr/bin/*
dpkg-deb --build other other.deb > /dev/null

printed=$(dpkg -i $(cat paths) 2>&1) || fail "dpkg -i: $printed"
echo "ok: dpkg installs the packages"
[ "$(dpkg --audit)" = "" ] || fail "dpkg --audit: $(dpkg --audit)"
for group in mpi mpirun "mpi-$triplet"; do
    update-alternatives --query "$group" | grep -q fastpath || fail "the group $group lacks Fastpath"
done
printed=$(dpkg -i other.deb 2>&1) || fail "another MPI cannot be installed beside it: $printed"
for group in mpi mpirun "mpi-$triplet"; do
    choice=$(update-alternatives --query "$group" | sed -n 's/^Alternative: \(.*fastpath.*\)/\1/p')
    best=$(update-alternatives --query "$group" | sed -n 's/^Best: //p')
    [ "$best" != "$choice" ] || fail "of $group, it is the best"
    update-alternatives --set "$group" "$choice"
done > /dev/null
expect "update-alternatives chooses between it and another MPI" "Fastpath" /usr/bin/mpicc -showme:version

mpicc -o exchange "$root/tests/install/exchange.c"
expect "a program in C runs on 4 ranks" "4 ranks, sum 6" timeout 60 mpiexec -n 4 ./exchange
expect "mpirun starts it" "3 ranks, sum 3" timeout 60 mpirun -n 3 ./exchange
mpicxx -o hello-cpp "$root/tests/install/hello.cpp"
expect "a program in C++ runs" "hello from C++: Fastpath" ./hello-cpp
expect "the headers are where Debian's MPIs have theirs" "mpi.h" ls "/usr/include/$triplet/mpi/"
if mpif90 -showme:command > /dev/null 2>&1; then
    mpif90 -o ring "$root/tests/install/ring_f08.f90"
    expect "a program in Fortran runs on 4 ranks" "mpi_f08: 4 ranks" timeout 60 mpiexec -n 4 ./ring
fi
for package in mpi mpi-fort; do
    expect "pkg-config finds $package" "/fastpath/lib" pkg-config --cflags --libs $package
done
expect "the tools run" "fastpath" fastpath --version

update-alternatives --auto mpi > /dev/null 2>&1
expect "without a choice, the other MPI is used" "other" mpicc
update-alternatives --set mpi /usr/bin/mpicc.fastpath > /dev/null
printed=$(dpkg --purge fastpath-mpi fastpath-mpi-dev 2>&1) || fail "dpkg --purge: $printed"
for group in mpi mpirun "mpi-$triplet"; do
    ! update-alternatives --query "$group" | grep -q fastpath || fail "the group $group still has Fastpath"
done
left=$(find /usr /etc /var/lib -path '*fastpath*' ! -path "$root*" -newer first 2> /dev/null || true)
[ -z "$left" ] || fail "removed, these files are left: $left"
expect "removed, the other MPI is used, and no file is left" "other" mpicc
echo "test-deb: passed"
