//! Generates the constants of the standard ABI.

use fastpath_abigen::{Table, consts};
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let table = Table::builtin().unwrap_or_else(|e| {
        eprintln!("error: {e}");
        std::process::exit(1)
    });
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("consts.rs"), consts::emit_constants(&table))
        .unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}
