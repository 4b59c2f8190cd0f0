#!/bin/sh
# Installs a build into a scratch folder and uses it by mpicc, mpifort, pkg-config and CMake.
#
# usage: run.sh BUILD        (BUILD: target/release)
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

. "$root/tests/install/expect.sh"

need() {
    command -v "$1" > /dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get install -y -q "$2" > /dev/null 2>&1 || true
    fi
    command -v "$1" > /dev/null || fail "$1 is needed (Debian: apt-get install $2)"
}

need cmake cmake
need pkg-config pkg-config
need clang++ clang
need gfortran gfortran

# A path with a space, installed under one name and moved to another: no file may contain either path.
prefix="$scratch/moved here"
printed=$("$root/install/install.sh" "$build" "$scratch/first" 2>&1) || fail "install.sh: $printed"
[ "$printed" = "installed Fastpath $("$build/fastpath-abigen" version) in $scratch/first" ] || fail "install.sh reports: $printed"
mv "$scratch/first" "$prefix"
# A repeated installation keeps the times of unchanged files, so that programs built from them count as current.
touch -d 2001-01-01 "$prefix/bin/mpicc" "$prefix/include/mpi.h" "$prefix/lib/libmpi_abi.so.1"
echo changed >> "$prefix/lib/pkgconfig/mpi.pc"
chmod 600 "$prefix/include/mpi.h"
"$root/install/install.sh" "$build" "$prefix" > /dev/null
[ "$(find "$prefix" -type f ! -newermt 2002-01-01 | wc -l)" = 2 ] || fail "installed again, unchanged files have another time"
! grep -q changed "$prefix/lib/pkgconfig/mpi.pc" || fail "installed again, a changed file stays"
[ -n "$(find "$prefix/include/mpi.h" -perm 644)" ] || fail "installed again, a file keeps its permissions"
[ -z "$(find "$prefix" -name '.new*')" ] || fail "the installation leaves a file behind"
echo "ok: installed again, only what has changed is replaced"

cd "$scratch"
cp "$root"/tests/install/*.c "$root"/tests/install/*.cpp .

for name in mpicc mpicxx mpic++ mpiCC mpicc_abi mpicxx_abi mpic++_abi mpiexec mpirun fastpath; do
    [ -x "$prefix/bin/$name" ] || fail "$name is not installed"
done
for name in libmpi_abi.so libmpi_abi.so.0 libmpi_abi.so.1; do
    [ -e "$prefix/lib/$name" ] || fail "$name is not installed"
done

# Manual pages and shell completions.
share=$prefix/share
pages=$share/man/man1
completions=$share/bash-completion/completions
for file in man/man1/mpiexec.1 man/man1/mpirun.1 man/man1/mpicc.1 man/man1/mpicxx.1 man/man1/mpic++.1 man/man1/fastpath.1 man/man1/fastpath-bench.1 \
    bash-completion/completions/mpiexec bash-completion/completions/mpirun bash-completion/completions/fastpath \
    zsh/site-functions/_mpiexec zsh/site-functions/_fastpath \
    fish/vendor_completions.d/mpiexec.fish fish/vendor_completions.d/mpirun.fish \
    fish/vendor_completions.d/fastpath.fish; do
    [ -s "$share/$file" ] || fail "share/$file is not installed"
done
grep -q -- '--bind-to' "$completions/mpiexec" || fail "the completion of mpiexec lacks an option"
# The page of the compiler has every option of its usage text.
for option in $("$prefix/bin/mpicc" -showme:help | grep -oE '^  -[a-z_:=-]+|, -[a-z_]+' | tr -d ' ,' | sed 's/[:=]$//'); do
    tr -d '\\' < "$pages/mpicc.1" | grep -q -- "$option" || fail "the page of mpicc lacks $option"
done
# groff, which checks the pages, is optional.
if command -v groff > /dev/null; then
    for page in "$pages"/*.1; do
        errors=$(groff -man -ww -z "$page" 2>&1) && [ -z "$errors" ] || fail "$page: $errors"
    done
    echo "ok: groff accepts the manual pages"
fi
for shell in bash zsh fish; do
    command -v $shell > /dev/null || continue
    case $shell in
    bash) set -- "$completions"/* ;;
    zsh) set -- "$share"/zsh/site-functions/* ;;
    fish) set -- "$share"/fish/vendor_completions.d/* ;;
    esac
    for file in "$@"; do
        $shell -n "$file" || fail "$shell does not accept $file"
    done
    echo "ok: $shell accepts the completions"
done
if command -v bash > /dev/null; then
    # `complete_line LINE`: what bash proposes at the end of the line.
    complete_line() {
        bash -c '. "$1"; compopt() { :; }; COMP_LINE=$2 COMP_POINT=${#2}; _mpiexec; echo "${COMPREPLY[*]}"' \
            bash "$completions/mpiexec" "$1"
    }
    expect "bash completes an option of mpiexec" "--bind-to --bind-to-core" complete_line "mpiexec -n 2 --bind-t"
    expect "bash completes its value" "core" complete_line "mpiexec --bind-to co"
    expect "bash completes its value after =" "none" complete_line "mpiexec --host a:2,b:2 --bind-to=no"
    expect "bash completes options of the second program" "-wdir" complete_line "mpiexec -n 1 ./a -x : -n 2 -wdi"
    [ -z "$(complete_line "mpiexec -n 1 ./a --bind-t")" ] || fail "bash completes options of the program as those of mpiexec"
fi

need nm binutils
nm -C "$prefix/lib/libmpi_abi.so" > symbols-of-all
grep -q fastpath_transport symbols-of-all || fail "the library's symbols are not there to be looked at"
! grep -E 'fastpath_pcie|SimEndpoint' symbols-of-all || fail "the simulated network is in the library"

"$prefix/bin/mpicc" -o hello-c hello.c
expect "mpicc builds a program that runs" "hello from C: Fastpath" ./hello-c
"$prefix/bin/mpicxx_abi" -o hello-cpp hello.cpp
expect "mpicxx_abi does" "hello from C++: Fastpath" ./hello-cpp
"$prefix/bin/mpicc" -c -o hello.o hello.c
"$prefix/bin/mpicc" -o hello-two-steps hello.o
expect "compiling and linking apart works" "hello from C: Fastpath" ./hello-two-steps
expect "the library is found by RUNPATH, which LD_LIBRARY_PATH overrides" "(RUNPATH)" \
    readelf -d hello-c
expect "the compiler's own options get through" "cc" "$prefix/bin/mpicc" -cc=cc --version
mkdir elsewhere
ln -s "$prefix/bin/mpicc" elsewhere/mpicc
expect "mpicc works through a link" "hello from C: Fastpath" \
    sh -c 'elsewhere/mpicc -o linked hello.c && ./linked'

expect "-show prints the command" "-lmpi_abi" "$prefix/bin/mpicc" -show -o a a.c
expect "-showme:incdirs" "moved here/include" "$prefix/bin/mpicc" -showme:incdirs
expect "-showme:libdirs" "moved here/lib" "$prefix/bin/mpicc" -showme:libdirs
expect "-showme:libs" "mpi_abi" "$prefix/bin/mpicc" -showme:libs
expect "-showme:compile" '-I"/' "$prefix/bin/mpicc" -showme:compile
expect "-showme:link" "-lmpi_abi" "$prefix/bin/mpicc" -showme:link
expect "-showme:version" "Fastpath" "$prefix/bin/mpicc" -showme:version
escape=$(printf '\033')
for command in mpicc mpifort; do
    for argument in "" "-showme:x$escape[2J"; do
        code=0
        printed=$("$prefix/bin/$command" ${argument:+"$argument"} 2>&1) || code=$?
        [ $code = 2 ] || fail "$command with a usage error: exit code $code instead of 2"
        case $printed in *"$escape"*) fail "$command prints a control character of its argument" ;; esac
        ! printf '%s\n' "$printed" | grep -E '^.{81}' || fail "$command prints a line of more than 80 columns"
    done
done
echo "ok: usage errors have exit code 2, fit 80 columns, and print no control character"
expect "-link_info" "-lmpi_abi" "$prefix/bin/mpicc" -link_info
expect "-compile_info" "-I" "$prefix/bin/mpicc" -compile_info
expect "FASTPATH_CC chooses the compiler" "mycc -Dx" \
    env "FASTPATH_CC=mycc -Dx" "$prefix/bin/mpicc" -show
expect "FASTPATH_CXX chooses the compiler" "mycxx" \
    env FASTPATH_CXX=mycxx "$prefix/bin/mpicxx" -showme:command
expect "two parts at once, as waf asks" "-lmpi_abi" "$prefix/bin/mpicc" --showme:compile --showme:link
expect "the first of them" "moved here/include" "$prefix/bin/mpicc" --showme:compile --showme:link
expect "other MPIs' variables choose the compiler" "mycxx" \
    env OMPI_CXX=mycxx "$prefix/bin/mpicxx" -showme:command
expect "mpiCC is for C++, as older makefiles call it" "c++" "$prefix/bin/mpiCC" -showme:command
expect "and yield to ours" "mycc" \
    env OMPI_CC=other MPICH_CC=another FASTPATH_CC=mycc "$prefix/bin/mpicc" -showme:command
expect "a preprocessor needs no library" "hello from C" "$prefix/bin/mpicc" -E hello.c
eval "$("$prefix/bin/mpicc" -show -o hello-shown hello.c)"
expect "what -show prints can be run" "hello from C: Fastpath" ./hello-shown

"$build/fastpath-abigen" symbols > symbols
"$root/tests/install/header.sh" "$prefix" "$PWD/symbols"

"$prefix/bin/mpicc" -o exchange exchange.c
expect "a program runs without a launcher" "1 ranks, sum 0" timeout 60 ./exchange
for ranks in 1 2 5; do
    sum=$((ranks * (ranks - 1) / 2))
    expect "mpiexec runs it on $ranks" "$ranks ranks, sum $sum" \
        timeout 60 "$prefix/bin/mpiexec" -n $ranks ./exchange
done
expect "mpirun does" "3 ranks, sum 3" timeout 60 "$prefix/bin/mpirun" -np 3 ./exchange

for name in mpi mpi-c mpi-cxx; do
    expect "pkg-config finds $name" "-lmpi_abi" \
        env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs "$name"
done
expect "pkg-config's flags build a program" "hello from C: Fastpath" \
    env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" sh -c \
    'eval cc -o hello-pc hello.c $(pkg-config --cflags --libs mpi) && ./hello-pc'

# CMake finds compilers on the path, or at a given location.
cp -r "$root/tests/install/cmake" .
for how in path home; do
    case $how in
    path) set -- env PATH="$prefix/bin:$PATH" cmake ;;
    home) set -- cmake "-DMPI_HOME=$prefix" ;;
    esac
    log=$("$@" -S cmake -B "build-$how" 2>&1) || fail "cmake ($how): $log"
    expect "CMake finds this installation by $how" "$prefix/bin/mpiexec" \
        grep MPIEXEC_EXECUTABLE: "build-$how/CMakeCache.txt"
    log=$(cmake --build "build-$how" 2>&1) || fail "cmake --build ($how): $log"
    expect "its C program runs" "hello from C: Fastpath" "build-$how/hello-c"
    expect "its C++ program runs" "hello from C++: Fastpath" "build-$how/hello-cpp"
    expect "ctest runs its test on 4 ranks" "100% tests passed" \
        sh -c 'cd "$1" && ctest --timeout 60' sh "build-$how"
done

"$root/tests/install/fortran.sh" "$build" "$prefix" "$scratch/first"
echo "test-install: passed"
