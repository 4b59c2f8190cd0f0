#!/bin/sh
# Uses an installation by mpifort, pkg-config and CMake, with each installed Fortran compiler.
#
# usage: fortran.sh BUILD PREFIX FORMER     (PREFIX was installed from BUILD as FORMER, and then moved)
set -eu

build=$(cd "$1" && pwd)
prefix=$(cd "$2" && pwd)
former=$3
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch" "$prefix/lib/fastpath"; rm -rf "$scratch"' EXIT
cd "$scratch"
for variable in FC FASTPATH_FC MPICH_FC MPICH_F90 MPICH_F77 OMPI_FC OMPI_F77 I_MPI_FC I_MPI_F90 I_MPI_F77; do
    unset $variable
done
export XDG_CACHE_HOME="$scratch/cache"

. "$root/tests/install/expect.sh"

# `refuse WHAT CODE TEXT COMMAND...`: the command fails with the exit code and prints the text.
refuse() {
    what=$1 expected=$2 text=$3
    shift 3
    code=0
    printed=$("$@" 2>&1) || code=$?
    [ $code = "$expected" ] || fail "$what: exit code $code instead of $expected: $printed"
    case $printed in
    *"$text"*) echo "ok: $what" ;;
    *) fail "$what: expected \`$text\`, got: $printed" ;;
    esac
}

# `count FOLDER`: number of folders of modules. Fails if an unfinished one is left.
count() {
    [ -z "$(find "$1" -name '.new*')" ] || fail "an unfinished folder is left in $1: $(find "$1")"
    find "$1" -mindepth 2 -maxdepth 2 -name mpi.mod | wc -l
}

for command in gfortran cmake pkg-config setpriv flock; do
    command -v $command > /dev/null || fail "$command is needed (tests/setup installs it)"
done
# Names of the compilers, without second names of one file.
compilers= seen=:
for compiler in gfortran flang $(seq -f gfortran-%g 9 20) $(seq -f flang-%g 19 30) $(seq -f flang-new-%g 19 30); do
    command -v $compiler > /dev/null || continue
    target=$(readlink -f "$(command -v $compiler)")
    case $seen in
    *":$target:"*) ;;
    *) compilers="$compilers $compiler" seen=$seen$target: ;;
    esac
done

fortran=$prefix/lib/fastpath/fortran
mpifort=$prefix/bin/mpifort
for file in bin/mpifort bin/mpif90 bin/mpif77 bin/mpifc bin/mpifort_abi include/mpif.h lib/libmpifort_abi.so \
    lib/libmpifort_abi.so.1 share/man/man1/mpifort.1 share/man/man1/mpif90.1 share/man/man1/mpif77.1 \
    lib/fastpath/fortran/default/mpi.mod lib/fastpath/fortran/default/mpi_f08.mod; do
    [ -s "$prefix/$file" ] || fail "$file is not installed"
done
[ "$(count "$fortran")" = "$(echo $compilers | wc -w)" ] ||
    fail "not one folder for each of$compilers: $(ls "$fortran")"
for file in "$fortran"/default/*; do
    ! { zcat -f "$file" | grep -qF "$former"; } || fail "$file contains the path of the installation"
done
echo "ok: the installation has modules for$compilers"
touch -d 2001-01-01 "$fortran"/*/*.mod "$prefix/include/mpif.h" "$mpifort"
touched=$(find "$prefix" -type f ! -newermt 2002-01-01 | wc -l)
"$root/install/install.sh" "$build" "$prefix" > /dev/null
[ "$(find "$prefix" -type f ! -newermt 2002-01-01 | wc -l)" = "$touched" ] ||
    fail "installed again, unchanged files have another time"
echo "ok: installed again, nothing is built again"

# The manual page has every option of the usage text.
for option in $("$mpifort" -showme:help | grep -oE '^  --?[a-z_:=-]+|, -[a-z_]+' | tr -d ' ,' | sed 's/[:=]$//'); do
    tr -d '\\' < "$prefix/share/man/man1/mpifort.1" | grep -q -- "$option" || fail "the page of mpifort lacks $option"
done

cp "$root"/tests/install/ring* "$root/tests/install/exchange.c" .
for compiler in $compilers; do
    for source in ring.f ring.f90 ring_f08.f90; do
        "$mpifort" -fc=$compiler -o ring $source > log 2>&1 || fail "$compiler does not compile $source: $(cat log)"
        expect "$compiler: $source runs on 3 ranks" ": 3 ranks, sum 3" timeout 60 "$prefix/bin/mpiexec" -n 3 ./ring
    done
    "$mpifort" -fc=$compiler -c -o ring.o ring_f08.f90
    "$mpifort" -fc=$compiler -o ring-two-steps ring.o
    expect "$compiler: compiling and linking apart works" "mpi_f08: 1 ranks, sum 0" timeout 60 ./ring-two-steps
done
expect "gfortran's warnings about mpif.h are no errors" "ranks" \
    sh -c '"$1" -o ring ring.f 2> log && ./ring' sh "$mpifort"
printed=$(env FASTPATH_FC=gfortran ./ring 2>&1)
[ "$printed" = "mpif.h: 1 ranks, sum 0" ] || fail "FASTPATH_FC in the environment of a program: $printed"
awk '/^```/ { block++; next } block == 1' "$root/docs/fortran.md" > example.sh
expect "the example of docs/fortran.md runs" "rank 1 of 2" env PATH="$prefix/bin:$PATH" timeout 60 sh -e example.sh
expect "the library is found by RUNPATH, which LD_LIBRARY_PATH overrides" "(RUNPATH)" readelf -d ring
expect "the compiler's own options get through" "GNU Fortran" "$mpifort" --version
expect "a C source needs no option of Fortran" "1 ranks, sum 0" \
    sh -c '"$1" -Werror -o exchange exchange.c && ./exchange' sh "$mpifort"
mkdir elsewhere
ln -s "$mpifort" elsewhere/mpifort
expect "mpifort works through a link" "mpi: 1 ranks" sh -c 'elsewhere/mpifort -o linked ring.f90 && ./linked'

# What it prints.
expect "-show prints the command" "-lmpifort_abi -lmpi_abi" "$mpifort" -show -o a a.f90
expect "-showme:incdirs, the modules" "$prefix/lib/fastpath/fortran/gfortran-" "$mpifort" -showme:incdirs
expect "-showme:incdirs, mpif.h" "$prefix/include" "$mpifort" -showme:incdirs
expect "-showme:libdirs" "$prefix/lib" "$mpifort" -showme:libdirs
expect "-showme:libs" "mpifort_abi mpi_abi" "$mpifort" -showme:libs
expect "-showme:compile" '-I"/' "$mpifort" -showme:compile
expect "-showme:link" "-lmpifort_abi -lmpi_abi" "$mpifort" -showme:link
expect "-showme:version" "Fastpath" "$mpifort" -showme:version
expect "-showme:command" "gfortran" "$mpifort" -showme:command
for form in -link_info -link-info; do
    expect "$form" "-lmpifort_abi" "$mpifort" $form
done
for form in -compile_info -compile-info; do
    expect "$form" "$prefix/include" "$mpifort" $form
done
expect "two parts at once" "$prefix/include" "$mpifort" --showme:compile --showme:link
for form in -show -showme:compile -compile-info; do
    ! "$mpifort" $form ring.f | grep -q -e ' -f' || fail "$form prints an option of gfortran alone"
done
eval "$("$mpifort" -show -o shown ring.f90)"
expect "what -show prints can be run" "mpi: 1 ranks" ./shown

# The choice of the compiler.
for variable in FASTPATH_FC MPICH_FC OMPI_FC I_MPI_FC; do
    expect "$variable chooses the compiler" "myfc -Dx" env $variable="myfc -Dx" "$mpifort" -showme:command
done
expect "FASTPATH_FC comes before the others" "mine" \
    env OMPI_FC=other MPICH_FC=another FASTPATH_FC=mine "$mpifort" -showme:command
expect "MPICH_F90 is for mpif90" "mine" env MPICH_FC=other MPICH_F90=mine "$prefix/bin/mpif90" -showme:command
expect "OMPI_F77 is for mpif77" "mine" env MPICH_FC=other OMPI_F77=mine "$prefix/bin/mpif77" -showme:command
expect "MPICH_F77 is not for mpifort" "other" env MPICH_FC=other MPICH_F77=mine "$mpifort" -showme:command
expect "FC is not read" "gfortran" env FC="$mpifort" "$mpifort" -showme:command
refuse "mpifort is not its own compiler" 1 "set FASTPATH_FC" env MPICH_FC=elsewhere/mpifort "$mpifort" -c ring.f90
refuse "a compiler that is not installed" 127 "no-such-fc is not installed" "$mpifort" -fc=no-such-fc -c ring.f90
for options in -i8 -fdefault-integer-8 -qintsize=8 '-integer-size 64' '-s integer64'; do
    refuse "$options" 1 "declare INTEGER(8)" "$mpifort" $options -c ring.f90
done
refuse "-i8 in a variable" 1 "declare INTEGER(8)" env FASTPATH_FC="gfortran -fdefault-integer-8" "$mpifort" -c ring.f90

# A program that counts its starts, and starts gfortran.
cat > counted.c <<'END'
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    FILE *log = fopen("starts", "a");
    fputs(argc == 2 && strcmp(argv[1], "--version") == 0 ? "version\n" : "compile\n", log);
    fclose(log);
    argv[0] = "gfortran";
    execvp(argv[0], argv);
    return 1;
}
END
cc -o counted counted.c
starts() {
    grep -c "$1" starts || true
}
for call in first second; do
    "$mpifort" -fc=./counted -c ring.f90
done
[ "$(starts version) $(starts compile)" = "1 2" ] ||
    fail "the second call starts the compiler for its version: $(cat starts)"
touch -d 2001-01-01 counted
"$mpifort" -fc=./counted -c ring.f90
[ "$(starts version)" = 2 ] || fail "the version of a changed compiler is not read"
echo "ok: a compiler's version is read once, and again if the compiler has changed"

# `script NAME TEXT`: makes a compiler that is a script; $@ are its arguments.
script() {
    printf '#!/bin/sh\n%s\nexec gfortran "$@"\n' "$2" > "$1"
    chmod +x "$1"
}
script scripted 'case $1 in --version) echo "scripted $(cat version).0"; exit ;; esac'
echo 1 > version
expect "a script's version names the folder" "scripted-1.0-" "$mpifort" -fc=./scripted -showme:compile
echo 2 > version
expect "a script may start another compiler later" "scripted-2.0-" "$mpifort" -fc=./scripted -showme:compile
"$mpifort" -fc="env gfortran -g" -o ring ring.f90
expect "a compiler may be several words" "mpi: 1 ranks" ./ring
[ -z "$(find "$fortran/compilers" -name '*%env' -o -name '*%scripted')" ] ||
    fail "the ID of what starts compilers is stored"
mkdir tools
ln -s "$(command -v readlink)" tools
refuse "without a compiler" 127 "install gfortran or flang" env PATH="$scratch/tools" /bin/sh "$mpifort" -c ring.f90

# Compilers that cannot compile a module.
script no-f08 'case "$*" in *mpi_f08.f90*) echo "no assumed rank here"; exit 1 ;;
--version) echo no-f08 1.0; exit ;; esac'
"$mpifort" -fc="./no-f08 -g" -showme:compile 2> log > /dev/null
[ ! -s log ] || fail "what build systems ask comes with a message: $(cat log)"
expect "without mpi_f08, the module mpi works" "cannot compile the module mpi_f08" \
    "$mpifort" -fc=./no-f08 -o ring ring.f90
expect "that is reported once" "" "$mpifort" -fc=./no-f08 -o ring ring.f90
[ -z "$printed" ] || fail "it is reported again: $printed"
refuse "what fails for that reason is explained" 1 "/mpi_f08.failed has its messages" \
    "$mpifort" -fc=./no-f08 -c ring_f08.f90
expect "the compiler's messages are stored" "no assumed rank here" \
    sh -c 'cat "$1"/no-f08-*/mpi_f08.failed' sh "$fortran"
script no-f08 'case $1 in --version) echo no-f08 1.0; exit ;; esac'
expect "--build-modules tries again" "/no-f08 are in" "$mpifort" --build-modules ./no-f08
"$mpifort" -fc=./no-f08 -c ring_f08.f90 || fail "the compiler is improved, but the module is not there"
# Compilers without assumed rank, with unknown descriptors, and one whose programs do not run here.
cat > subarrays.f90 <<'END'
program subarrays
  use mpi_f08
  implicit none
  integer :: a(6) = [1, 2, 3, 4, 5, 6], b(6) = 0
  call MPI_Init()
  call MPI_Sendrecv(a(1:5:2), 3, MPI_INTEGER, 0, 1, b(6:2:-2), 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE)
  print '(l1,6i2)', MPI_SUBARRAYS_SUPPORTED, b
  call MPI_Finalize()
end program
END
script no-rank 'case $1 in --version) echo "no-rank 1.0"; exit ;; esac
case "$*" in *mpi*.f90*) ! grep "dimension(\.\." "$2" || exit 1 ;; esac'
script unread 'case $1 in --version) echo "unread 1.0"; exit ;; esac
case "$*" in *probe.f90*) sed -i s/-16/16/ probe.f90 ;; esac'
for compiler in no-rank unread; do
    expect "$compiler: mpi_f08 passes addresses" "mpi_f08 passes addresses" \
        "$mpifort" -fc=./$compiler -o subarrays subarrays.f90
    expect "$compiler: sections work in blocking calls" "F 0 5 0 3 0 1" timeout 60 ./subarrays
    expect "$compiler: that is reported once" "" "$mpifort" -fc=./$compiler -o ring ring.f90
    [ -z "$printed" ] || fail "it is reported again: $printed"
done
expect "the messages about assumed rank are stored" "dimension(..)" \
    sh -c 'cat "$1"/no-rank-*/mpi_f08.addresses' sh "$fortran"
expect "so is the answer about descriptors" "cannot read" sh -c 'cat "$1"/unread-*/mpi_f08.addresses' sh "$fortran"
script unread 'case $1 in --version) echo "unread 1.0"; exit ;; esac'
"$mpifort" --build-modules ./unread > log 2>&1 || fail "modules of unread: $(cat log)"
! grep -q addresses log || fail "--build-modules does not probe again: $(cat log)"
script foreign 'case $1 in --version) echo "foreign 1.0"; exit ;; esac
case "$*" in *probe.o*) echo other > probe; chmod +x probe; exit ;; esac'
"$mpifort" -fc=./foreign -o subarrays subarrays.f90 > log 2>&1 || fail "modules of foreign: $(cat log)"
expect "where the probe cannot run, descriptors are passed" "T 0 5 0 3 0 1" timeout 60 ./subarrays
for compiler in $compilers; do
    "$mpifort" -fc=$compiler -o subarrays subarrays.f90 || fail "$compiler does not compile subarrays.f90"
    expect "$compiler: descriptors are known" "T 0 5 0 3 0 1" timeout 60 ./subarrays
done
script full 'case "$*" in *mpi_f08.f90*) echo "No space left on device"; exit 1 ;;
--version) echo full 1.0; exit ;; esac'
refuse "lack of disk space is an error" 1 "No space left" "$mpifort" -fc=./full -c ring.f90
[ -z "$(find "$fortran" -name 'full-*')" ] || fail "lack of disk space is recorded as a property of the compiler"
script broken 'case "$*" in *mpi.f90*) echo "what is a module?"; exit 1 ;; --version) echo broken 1.0; exit ;; esac'
refuse "a compiler without the module mpi" 1 "cannot compile the module mpi " "$mpifort" -fc=./broken -c ring.f90
[ "$(count "$fortran")" -gt 0 ]

# An installation that the user cannot write to.
mkdir home
count_home() {
    count home/.cache/fastpath/fortran
}
if [ "$(id -u)" = 0 ]; then
    chmod a+x "$scratch" "$prefix/.."
    chown 65534 home
    as_user() {
        setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_CACHE_HOME HOME="$scratch/home" "$@"
    }
else
    chmod -R a-w "$fortran"
    as_user() {
        env -u XDG_CACHE_HOME HOME="$scratch/home" "$@"
    }
fi
script own 'case $1 in --version) echo "own 1.0"; exit ;; esac'
as_user test ! -w "$fortran" || fail "the installation is writable"
expect "modules of the installation are used" "$fortran/gfortran-" as_user "$mpifort" -showme:incdirs
expect "other modules are built in ~/.cache" "home/.cache/fastpath/fortran/own-1.0-" \
    as_user "$mpifort" -fc=./own -showme:compile
as_user "$mpifort" -fc=./own -c -o home/ring.o ring_f08.f90 || fail "the modules in ~/.cache do not work"
[ "$(count_home)" = 1 ] || fail "not one folder of modules: $(find home)"
ln -s "$(command -v gfortran)" second-name
as_user "$mpifort" -fc=./second-name -c -o home/ring.o ring.f90
expect "a version is stored in ~/.cache" "gfortran-" sh -c 'cat home/.cache/fastpath/fortran/compilers/*second-name'
refuse "--build-modules needs a writable installation" 1 "is not writable; call it as the owner" \
    as_user "$mpifort" --build-modules ./own
touch file
rm -rf home/.cache
refuse "without a folder to write to" 1 "set XDG_CACHE_HOME" \
    as_user env XDG_CACHE_HOME="$scratch/file" "$mpifort" -fc=./own -c -o home/ring.o ring.f90

# First uses at one time, with and without locks of files.
mkdir no-flock
printf '#!/bin/sh\nexit 1\n' > no-flock/flock
chmod +x no-flock/flock
script own 'case $1 in --version) echo "own 1.0"; exit ;; esac
case "$*" in *mpi_f08.f90) echo built >> ../built ;; esac'
for path in "$PATH" "$scratch/no-flock:$PATH"; do
    rm -rf home/.cache
    for number in 1 2 3 4; do
        as_user env PATH="$path" "$mpifort" -fc=./own -c -o home/ring-$number.o ring_f08.f90 2> home/log-$number &
        eval "process_$number=$!"
    done
    for number in 1 2 3 4; do
        eval "wait \$process_$number" || fail "one of several first uses: $(cat home/log-$number)"
    done
    [ "$(count_home)" = 1 ] || fail "not one folder of modules: $(find home)"
    [ "$path" != "$PATH" ] || [ "$(cat home/.cache/fastpath/fortran/built)" = built ] ||
        fail "modules were built several times"
done
echo "ok: first uses at one time build one folder"
[ "$(id -u)" = 0 ] || chmod -R u+w "$fortran"

# A package.
DESTDIR="$scratch/package" "$root/install/install.sh" "$build" /opt/mpi > /dev/null
packaged=$scratch/package/opt/mpi
[ "$(count "$packaged/lib/fastpath/fortran")" = 0 ] || fail "an installation with DESTDIR builds modules"
expect "before modules are built, pkg-config names an existing folder" "mpif.h" \
    ls "$packaged/lib/fastpath/fortran/default/"
expect "--build-modules builds them" "gfortran-" "$packaged/bin/mpifort" --build-modules
[ -s "$packaged/lib/fastpath/fortran/default/mpi_f08.mod" ] || fail "pkg-config does not get the modules"
[ ! -e "$packaged/lib/fastpath/fortran/compilers" ] || fail "--build-modules stores properties of this machine"

expect "pkg-config's flags build a program" "mpi_f08: 1 ranks" \
    env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" sh -c \
    'eval gfortran -o ring-pc ring_f08.f90 $(pkg-config --cflags --libs mpi-fort) && ./ring-pc'

# CMake passes its compiler to mpif90 in MPICH_FC and other variables.
cp -r "$root/tests/install/cmake-fortran" .
for compiler in $compilers; do
    case $compiler in
    gfortran | flang*) ;;
    *) continue ;;
    esac
    log=$(cmake "-DMPI_HOME=$prefix" -DCMAKE_Fortran_COMPILER=$compiler -S cmake-fortran -B build-$compiler 2>&1) ||
        fail "cmake with $compiler: $log"
    for line in 'F77_HEADER: TRUE' 'F90_MODULE: TRUE' 'F08_MODULE: TRUE, subarrays TRUE, asynchronous TRUE'; do
        case $log in
        *"$line"*) ;;
        *) fail "cmake with $compiler does not print \`$line\`: $log" ;;
        esac
    done
    log=$(cmake --build build-$compiler 2>&1) || fail "cmake --build with $compiler: $log"
    for source in ring.f ring.f90 ring_f08.f90; do
        expect "CMake with $compiler: $source" ": 2 ranks, sum 1" \
            timeout 60 "$prefix/bin/mpiexec" -n 2 build-$compiler/from-$source
    done
    expect "CMake with $compiler: C" "1 ranks, sum 0" timeout 60 build-$compiler/exchange
done
echo "fortran: passed"
