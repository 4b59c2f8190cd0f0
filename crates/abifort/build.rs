//! Generates the Fortran entry points from the tables of the standard, and a stand-in for `libmpi_abi.so.1` to link
//! with: the library needs that file's name, not its contents.

use fastpath_abigen::exports::AliasMethod;
use fastpath_abigen::{Table, fortran};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn generate() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let table = Table::with_extensions()?;
    let has_lld = std::env::var("TARGET")? == "x86_64-unknown-linux-gnu";
    let names = if has_lld { AliasMethod::WeakAlias } else { AliasMethod::Jump };
    std::fs::write(out.join("ffi.rs"), fortran::emit_ffi(&table)?)?;
    std::fs::write(out.join("shims.rs"), fortran::emit_shims(&table, names)?)?;

    link_stand_in(&out)?;
    for argument in [
        "-Wl,-soname,libmpifort_abi.so.1",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--enable-new-dtags",
        "-Wl,--no-as-needed",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    // Unit tests call no function of the C library, and link without it. A shared library may have undefined symbols
    // anyway, so this changes nothing in the shipped one.
    println!("cargo:rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
    println!("cargo:rustc-cdylib-link-arg={}", out.join("libmpi_abi.so").display());
    if names == AliasMethod::WeakAlias {
        let script = out.join("exports.map");
        std::fs::write(&script, fortran::VERSION_SCRIPT)?;
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    }
    Ok(())
}

/// Links an empty library with the name of the C library.
fn link_stand_in(out: &Path) -> Result<(), Box<dyn Error>> {
    let empty = out.join("empty.c");
    std::fs::write(&empty, "")?;
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&linker)
        .args(["-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libmpi_abi.so.1", "-o"])
        .arg(out.join("libmpi_abi.so"))
        .arg(&empty)
        .status()
        .map_err(|cause| format!("{linker}: {cause}: install a C compiler"))?;
    if !status.success() {
        return Err(format!("{linker} cannot link a library: {status}").into());
    }
    Ok(())
}
