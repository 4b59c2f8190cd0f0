//! Generates the exports from the table of the standard and the bodies found in `src/entry`.

use fastpath_abigen::exports::{self, Names};
use fastpath_abigen::{Table, scan::Bodies};
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
    println!("cargo:rerun-if-changed={}", entry.display());

    let table = Table::builtin()?;
    let bodies = Bodies::read_folder(&entry, &table)?;
    let names = choose_names()?;
    std::fs::write(out.join("exports.rs"), exports::emit_exports(&table, &bodies, names)?)?;
    std::fs::write(out.join("modules.rs"), exports::emit_modules(&bodies))?;

    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    if names == Names::WeakAlias {
        let script = write_version_script(&out)?;
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    }
    Ok(())
}

/// Aliases where the compiler's own linker is lld; `BUILD_MPI_NAMES=alias|jump` overrides.
fn choose_names() -> Result<Names, Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=BUILD_MPI_NAMES");
    match std::env::var("BUILD_MPI_NAMES").as_deref() {
        Ok("alias") => return Ok(Names::WeakAlias),
        Ok("jump") => return Ok(Names::Jump),
        Ok(other) => return Err(format!("BUILD_MPI_NAMES={other}: alias or jump").into()),
        Err(_) => {}
    }
    let has_lld = std::env::var("TARGET")? == "x86_64-unknown-linux-gnu";
    Ok(if has_lld { Names::WeakAlias } else { Names::Jump })
}

fn write_version_script(out: &Path) -> Result<PathBuf, std::io::Error> {
    let script = out.join("exports.map");
    std::fs::write(&script, exports::VERSION_SCRIPT)?;
    Ok(script)
}
