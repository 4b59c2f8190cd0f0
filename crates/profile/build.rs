//! Generates the measured functions and the constants from the table of the standard.

use fastpath_abigen::{Table, consts, profile};
use std::error::Error;
use std::path::PathBuf;

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn generate() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let table = Table::builtin()?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("functions.rs"), profile::emit_functions(&table)?)?;
    std::fs::write(out.join("consts.rs"), consts::emit_constants(&table))?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfastpath_profile.so");
    Ok(())
}
