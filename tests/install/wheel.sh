#!/bin/sh
# Packs a build into the wheel, installs it into a new environment, and uses it there, also after the environment has
# moved.
#
# usage: wheel.sh BUILD [--mpi4py]      (BUILD: target/install/release; --mpi4py: also auditwheel, and mpi4py from source and wheel)
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$root/tests/install/expect.sh"
cd "$scratch"
tests_cache=${XDG_CACHE_HOME-}
export XDG_CACHE_HOME="$scratch/cache" PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
for variable in CC FASTPATH_CC FASTPATH_CXX FASTPATH_FC MPICH_CC MPICH_FC OMPI_CC OMPI_FC I_MPI_FC; do
    unset $variable
done

wheel=$("$root/packaging/wheel/pack" "$build" first) || fail "the wheel cannot be packed"
"$root/packaging/wheel/pack" "$build" second > /dev/null
cmp "$wheel" "second/${wheel##*/}" || fail "the wheel of the same build differs"
echo "ok: a build is packed into ${wheel##*/}, $(wc -c < "$wheel") bytes, twice the same"

# What the files need, read by another program than the packer's.
mkdir unpacked
python3 -m zipfile -e "$wheel" unpacked
find unpacked -type f -size +1k -exec objdump -T {} + > dynamic 2> /dev/null || true
glibc=$(grep -oE 'GLIBC_[0-9.]+' dynamic | sort -uV | tail -n 1 | sed 's/GLIBC_//' | tr . _)
expect "the tag is for the version of glibc that the files need" "-manylinux_${glibc}_" echo "$wheel"
[ -z "$(find unpacked -type l -o -name '*.mod')" ] || fail "the wheel has a link or a compiled module"
! grep -rlaF -e "$root" -e "$build" -e "$scratch" unpacked || fail "these files have paths of this machine"

python3 -m venv environment
environment/bin/python -m pip --version > /dev/null
find environment ! -type d | sort > before
expect "pip installs it without network" "Successfully installed fastpath-mpi-$("$build/fastpath-abigen" version)" \
    environment/bin/python -m pip install --no-index "$wheel"
expect "pip finds each file and its checksum" "fastpath_mpi-" \
    environment/bin/python -c '
import base64, hashlib, importlib.metadata as metadata
for file in metadata.files("fastpath-mpi"):
    data = file.locate().read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    own = file.suffix == ".pyc" or file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    assert own or digest == file.hash.value, file
print(file)'

# `use FOLDER`: compiles and runs programs with the environment in FOLDER.
use() {
    bin=$scratch/$1/bin where="in $1"
    for name in mpicc mpicxx mpic++ mpiCC mpifort mpif90 mpif77 mpiexec mpirun fastpath; do
        [ -x "$bin/$name" ] || fail "$where, $name is not installed"
    done
    rm -f exchange hello-cpp hello-pc ring
    "$bin/mpicc" -o exchange "$root/tests/install/exchange.c"
    expect "$where, a program in C runs on 4 ranks" "4 ranks, sum 6" timeout 60 "$bin/mpiexec" -n 4 ./exchange
    expect "$where, mpirun starts it through a link" "3 ranks, sum 3" \
        sh -c 'ln -sf "$1" linked && timeout 60 ./linked -n 3 ./exchange' sh "$bin/mpirun"
    "$bin/mpicxx" -o hello-cpp "$root/tests/install/hello.cpp"
    expect "$where, a program in C++ runs" "hello from C++: Fastpath" ./hello-cpp
    expect "$where, pkg-config's options build a program" "hello from C: Fastpath" \
        env PKG_CONFIG_PATH="$scratch/$1/lib/pkgconfig" sh -c \
        'eval cc -o hello-pc "$1/hello.c" $(pkg-config --cflags --libs mpi) && ./hello-pc' sh "$root/tests/install"
    if "$bin/mpifort" -showme:command > /dev/null 2>&1; then
        "$bin/mpifort" -o ring "$root/tests/install/ring_f08.f90"
        expect "$where, a program in Fortran runs on 4 ranks" "mpi_f08: 4 ranks" \
            timeout 60 "$bin/mpiexec" -n 4 ./ring
        [ -d "$XDG_CACHE_HOME/fastpath/fortran" ] || fail "modules are not in the user's cache"
    fi
    expect "$where, the tools run" "fastpath" "$bin/fastpath" --version
    expect "$where, the library has its second name" "5 0" "$scratch/$1/bin/python" -c '
import ctypes, sys
major, minor = ctypes.c_int(), ctypes.c_int()
ctypes.CDLL(sys.prefix + "/lib/libmpi_abi.so.0").MPI_Get_version(ctypes.byref(major), ctypes.byref(minor))
print(major.value, minor.value)'
}

# `use_mpi4py FOLDER`: builds mpi4py from its sources with the environment's mpicc. Its sources and its build tools are
# in the cache of the tests.
use_mpi4py() {
    packages=$root/tests/harness/packages.py
    tools=$(XDG_CACHE_HOME=$tests_cache "$packages" python "setuptools wheel cython") || fail "no build tools"
    sources=$(XDG_CACHE_HOME=$tests_cache "$packages" source mpi4py==4.1.2) || fail "no sources of mpi4py"
    log=$(MPICC="$scratch/$1/bin/mpicc" CFLAGS="-O0 -g0" "$tools/bin/python" -m pip wheel -q --no-cache-dir --no-deps \
        --no-index --no-build-isolation -w mpi4py "$sources"/mpi4py-*.tar.gz 2>&1) || fail "mpi4py cannot be built: $log"
    "$scratch/$1/bin/python" -m pip install -q --no-index mpi4py/*.whl
    expect "mpi4py from its sources runs on 4 ranks" "Hello, World! I am process 3 of 4" \
        timeout 120 "$scratch/$1/bin/mpiexec" -n 4 "$scratch/$1/bin/python" -m mpi4py.bench helloworld
    "$scratch/$1/bin/python" -m pip uninstall -q -y mpi4py
}

# `use_mpi4py_wheel FOLDER`: runs mpi4py's own wheel for the standard ABI, as soon as PyPI has one. Its users need no
# compiler.
use_mpi4py_wheel() {
    python=$scratch/$1/bin/python
    if ! "$python" -m pip install -q --no-cache-dir --only-binary :all: 'mpi4py>=4.2' > installed 2>&1; then
        grep -q 'No matching distribution' installed || fail "mpi4py's wheel cannot be installed: $(cat installed)"
        echo "NOT RUN: mpi4py's own wheel for the standard ABI: pip finds no version 4.2 or later"
        return
    fi
    expect "mpi4py's own wheel runs on 4 ranks" "Hello, World! I am process 3 of 4" \
        timeout 120 "$scratch/$1/bin/mpiexec" -n 4 "$python" -m mpi4py.bench helloworld
    "$python" -m pip uninstall -q -y mpi4py
}

# `audit`: what auditwheel says of the tag.
audit() {
    tools=$(XDG_CACHE_HOME=$tests_cache "$root/tests/harness/packages.py" python auditwheel) || fail "no auditwheel"
    expect "auditwheel finds the tag right" "\"manylinux_${glibc}_" "$tools/bin/auditwheel" show "$wheel"
}

use environment
[ "${2-}" != --mpi4py ] || { audit; use_mpi4py environment; use_mpi4py_wheel environment; }
mv environment "moved here"
use "moved here"
mv "moved here" environment
environment/bin/python -m pip uninstall -q -y fastpath-mpi
find environment ! -type d | sort > after
diff before after || fail "pip uninstall leaves or removes other files"
echo "ok: pip uninstall leaves no file"
echo "test-wheel: passed"
