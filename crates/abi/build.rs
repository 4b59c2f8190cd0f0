//! Generates the exported functions from the table of the standard. `wiring.txt` names their bodies.

use fastpath_abigen::exports::{self, AliasMethod};
use fastpath_abigen::{Table, scan::Bodies, wiring::Wiring};
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn generate() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let entry = root.join("src/entry");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=wiring.txt");
    println!("cargo:rerun-if-changed={}", entry.display());

    let table = Table::with_extensions()?;
    let text = std::fs::read_to_string(root.join("wiring.txt"))?;
    let wiring = Wiring::parse("crates/abi/wiring.txt", &text, &table)?;
    let bodies = Bodies::read_folder(&entry)?;
    let names = choose_names()?;
    let exports = exports::emit_exports(&table, &wiring, &bodies, names)?;
    std::fs::write(out.join("exports.rs"), exports)?;

    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    if names == AliasMethod::WeakAlias {
        let script = write_version_script(&out)?;
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    }
    Ok(())
}

/// Chooses weak aliases if the compiler's default linker is lld. `BUILD_MPI_NAMES=alias|jump` overrides the choice.
fn choose_names() -> Result<AliasMethod, Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=BUILD_MPI_NAMES");
    match std::env::var("BUILD_MPI_NAMES").as_deref() {
        Ok("alias") => return Ok(AliasMethod::WeakAlias),
        Ok("jump") => return Ok(AliasMethod::Jump),
        Ok(other) => return Err(format!("BUILD_MPI_NAMES={other}: alias or jump").into()),
        Err(_) => {}
    }
    let has_lld = std::env::var("TARGET")? == "x86_64-unknown-linux-gnu";
    Ok(if has_lld { AliasMethod::WeakAlias } else { AliasMethod::Jump })
}

fn write_version_script(out: &Path) -> Result<PathBuf, std::io::Error> {
    let script = out.join("exports.map");
    std::fs::write(&script, exports::VERSION_SCRIPT)?;
    Ok(script)
}
