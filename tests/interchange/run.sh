#!/bin/sh
# One binary, two libraries: a program built with one library's mpicc_abi runs on the other's library and launcher, both
# ways. Random datatypes have the same layout on both. The other library is MPICH, from its wheel in the cache
# (tests/harness/cache.py) unless a path is given. A Fortran program runs on both with our libmpifort_abi, which is the
# same for each C library.
#
# usage: run.sh BUILD [MPICH]        (BUILD: target/release; MPICH: an installation with mpicc_abi)
set -eu

build=$1
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

other=${2:-}
if [ -z "$other" ]; then
    other=$("$root/tests/harness/packages.py" mpich) || fail "the wheel of MPICH is not available"
fi
ours=$scratch/fastpath
MODULES=no "$root/install/install.sh" "$build" "$ours" > /dev/null
cd "$scratch"

# `run WHAT LIBRARY LAUNCHER PROGRAM`: two ranks must compute the right sum on the named library.
run() {
    what=$1 prefix=$2 launcher=$3 program=$4
    printed=$(LD_LIBRARY_PATH=$prefix/lib timeout 60 "$launcher" -n 2 "$program" 2>&1) ||
        fail "$what: $printed"
    case $printed in
    *"2 ranks, sum 1"*) echo "ok: $what" ;;
    *) fail "$what: $printed" ;;
    esac
}

# `name_library PREFIX PROGRAM`: prints the library on which the program runs.
name_library() {
    LD_LIBRARY_PATH=$1/lib "$2"
}

for program in exchange hello; do
    "$other/bin/mpicc_abi" -o "$program-theirs" "$root/tests/install/$program.c"
    "$ours/bin/mpicc_abi" -o "$program-ours" "$root/tests/install/$program.c"
done
for built in theirs ours; do
    name_library "$ours" "./hello-$built" | grep -q Fastpath || fail "hello-$built is not on Fastpath"
    name_library "$other" "./hello-$built" | grep -q MPICH || fail "hello-$built is not on MPICH"
    run "built with $built mpicc_abi, run by our mpiexec on our library" \
        "$ours" "$ours/bin/mpiexec" "./exchange-$built"
    run "built with $built mpicc_abi, run by MPICH's mpiexec on its library" \
        "$other" "$other/bin/mpiexec" "./exchange-$built"
done

# Conversions to Fortran handles are inline functions of our header: they run on any library with the ABI.
"$ours/bin/mpicc_abi" -o f2c "$root/tests/install/f2c.c"
for prefix in "$ours" "$other"; do
    printed=$(LD_LIBRARY_PATH=$prefix/lib timeout 60 "$prefix/bin/mpiexec" -n 2 ./f2c 2>&1) ||
        fail "conversions to Fortran handles on ${prefix##*/}: $printed"
    case $printed in
    *"f2c: 107 checks passed"*) echo "ok: conversions to Fortran handles run on ${prefix##*/}'s library" ;;
    *) fail "conversions to Fortran handles on ${prefix##*/}: $printed" ;;
    esac
done

run "our library under MPICH's mpiexec" "$ours" "$other/bin/mpiexec" ./exchange-ours
printed=$(LD_LIBRARY_PATH=$ours/lib timeout 60 "$ours/bin/mpiexec" -n 1 "$other/bin/mpiexec" -n 2 ./exchange-ours 2>&1) ||
    fail "our library under MPICH's mpiexec inside of ours: $printed"
[ "$printed" = "2 ranks, sum 1" ] || fail "our library under MPICH's mpiexec inside of ours: $printed"
echo "ok: our library under MPICH's mpiexec inside of ours"
printed=$("$other/bin/mpiexec" -n 1 "$ours/bin/mpiexec" -n 2 ./exchange-ours 2>&1) || fail "$printed"
[ "$printed" = "2 ranks, sum 1" ] || fail "our mpiexec inside of MPICH's: $printed"
echo "ok: our mpiexec inside of MPICH's"
# A Fortran program runs on both libraries, by each method, with our libmpifort_abi.
# `run_fortran WHAT PREFIX [SETTING]...`
run_fortran() {
    what=$1 prefix=$2
    shift 2
    printed=$(env "LD_LIBRARY_PATH=$prefix/lib" "$@" timeout 60 "$prefix/bin/mpiexec" -n 2 ./fortran 2>&1) ||
        fail "$what: $printed"
    [ "$printed" = "fortran: all checks passed" ] || fail "$what: $printed"
    echo "ok: $what"
}
command -v gfortran > /dev/null || fail "gfortran is needed (tests/setup installs it)"
compilers=gfortran
for compiler in flang $(seq -f flang-%g 30 -1 19); do
    command -v "$compiler" > /dev/null && compilers="gfortran $compiler" && break
done
mkdir foreign
echo 'int foreign_;' > foreign.c
cc -shared -fPIC -Wl,-soname,libmpifort_abi.so.1 -o foreign/libmpifort_abi.so.1 foreign.c
for compiler in $compilers; do
    for method in MPIF MPI F08; do
        "$ours/bin/mpifort" -fc=$compiler -cpp -w -DMETHOD_$method "-I$root/tests/fortran" -o fortran \
            "$root/tests/interchange/fortran.f90" > fortran.log 2>&1 ||
            fail "$compiler does not compile fortran.f90 with METHOD_$method: $(cat fortran.log)"
        run_fortran "$compiler, METHOD_$method: fortran.f90 runs on our library" "$ours"
        run_fortran "$compiler, METHOD_$method: fortran.f90 runs on MPICH's library" "$other"
    done
    # A folder of the other MPI may have a libmpifort_abi of its own, with other symbols.
    foreign=LD_LIBRARY_PATH=$scratch/foreign:$other/lib
    ! env "$foreign" ./fortran > /dev/null 2>&1 || fail "the library in LD_LIBRARY_PATH is not used"
    run_fortran "$compiler: our libmpifort_abi is preloaded before another one" "$other" "$foreign" \
        "LD_PRELOAD=$ours/lib/libmpifort_abi.so.1"
done
# Size, bounds and packed bytes of random datatypes.
types=50000
"$other/bin/mpicc_abi" -o layouts "$root/tests/interchange/layouts.c"
LD_LIBRARY_PATH=$ours/lib timeout 60 ./layouts 1 "$types" > layouts.ours || fail "layouts on our library"
LD_LIBRARY_PATH=$other/lib timeout 60 ./layouts 1 "$types" > layouts.theirs || fail "layouts on MPICH's library"
[ "$(wc -l < layouts.ours)" -eq "$types" ] || fail "layouts did not print $types types"
diff layouts.ours layouts.theirs > layouts.diff || fail "datatypes differ, ours (<) and MPICH's (>):
$(grep '^[<>]' layouts.diff | head -8)"
echo "ok: $types datatypes have the same size, bounds and packed bytes on both"
echo "test-interchange: passed"
