#!/bin/sh
# Builds the crate fastpath-mpi-sys against an installation, and a program that depends on it, without network.
#
# usage: rust.sh BUILD        (BUILD: target/install/release)
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname -- "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$root/tests/install/expect.sh"
cd "$scratch"
unset MPICC PKG_CONFIG_PATH PKG_CONFIG_LIBDIR RUSTC_WORKSPACE_WRAPPER RUSTFLAGS || true
export CARGO_NET_OFFLINE=true

prefix="$scratch/with space"
MODULES=no "$root/install/install.sh" "$build" "$prefix" > /dev/null
cp -r "$root/crates/mpi-sys" crate
# Another MPI, without the standard ABI.
mkdir other
printf '#!/bin/sh\necho cc -I/other/include -L/other/lib -lmpi\n' > other/mpicc
chmod +x other/mpicc
ln -s mpicc other/mpicc_abi
other="$scratch/other:$PATH"

# `make_ring HOW VARIABLE=VALUE...`: builds the example, which must find the library in this way alone.
make_ring() {
    how=$1
    shift
    rm -rf "target-$how"
    log=$(env "$@" cargo build -q --manifest-path crate/Cargo.toml --target-dir "target-$how" --example ring 2>&1) &&
        [ -z "$log" ] || fail "built by $how: $log"
    expect "built by $how, the example runs on $ranks ranks" "ring and sum of $ranks ranks are correct" \
        timeout 60 "$prefix/bin/mpiexec" -n $ranks "target-$how/debug/examples/ring"
}

ranks=2
make_ring mpicc PATH="$prefix/bin:$PATH"
ranks=4
make_ring MPICC MPICC="$prefix/bin/mpicc" PATH="$other"
make_ring pkg-config PKG_CONFIG_PATH="$prefix/lib/pkgconfig" PATH="$other"
expect "on one rank without a launcher, it runs too" "ring and sum of 1 ranks are correct" \
    target-mpicc/debug/examples/ring

printed=$(PATH="$other" PKG_CONFIG_LIBDIR="$scratch" cargo build --manifest-path crate/Cargo.toml --target-dir none 2>&1) &&
    fail "the crate is built without a library"
for text in "mpicc -show: it prints no -lmpi_abi" "pkg-config --libs mpi: " "put the folder of Fastpath's mpicc on PATH"; do
    case $printed in *"$text"*) ;; *) fail "without a library, expected \`$text\`, got: $printed" ;; esac
done
echo "ok: without a library, the build ends with cause and remedy"

mkdir -p user/src
cat > user/Cargo.toml <<'END'
[package]
name = "user"
version = "0.0.0"
edition = "2024"
[dependencies]
fastpath-mpi-sys = { path = "../crate" }
[workspace]
END
cat > user/build.rs <<'END'
fn main() {
    let folder = std::env::var("DEP_MPI_ABI_LIBDIR").unwrap_or_default();
    println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
}
END
cat > user/src/main.rs <<'END'
use fastpath_mpi_sys::*;
fn main() {
    let (mut major, mut minor) = (0, 0);
    unsafe { MPI_Get_version(&mut major, &mut minor) };
    println!("MPI {major}.{minor}");
}
END
log=$(PATH="$prefix/bin:$PATH" cargo build -q --manifest-path user/Cargo.toml --target-dir target-mpicc 2>&1) || fail "$log"
expect "a program that depends on it finds the library" "MPI 5.0" target-mpicc/debug/user

PATH="$prefix/bin:$PATH"
mkdir abi
"$root/tests/install/rust_abi.py" "$root/crates/mpi-sys/src/abi.rs" "$prefix/bin/mpicc" abi
log=$(cargo test -q --manifest-path crate/Cargo.toml --target-dir target-mpicc --doc 2>&1) || fail "doc tests: $log"
echo "ok: the examples in its documentation compile"
if cargo clippy --version > /dev/null 2>&1; then
    log=$(cargo clippy -q --manifest-path crate/Cargo.toml --target-dir clippy --all-targets -- -D warnings 2>&1) ||
        fail "clippy: $log"
    echo "ok: clippy finds nothing"
fi
log=$(cargo package -q --allow-dirty --manifest-path crate/Cargo.toml --target-dir target-mpicc 2>&1) || fail "cargo package: $log"
expect "cargo packs it for a registry" "fastpath-mpi-sys-" ls target-mpicc/package
echo "test-rust: passed"
