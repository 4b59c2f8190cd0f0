//! README.md against the sources: its table of implemented functions.
#![allow(non_snake_case)]

use fastpath_abigen::{Table, coverage, scan::Bodies};
use std::path::Path;

#[test]
fn readme__says_what_is_implemented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = Table::builtin().unwrap();
    let bodies = Bodies::read_folder(&root.join("crates/abi/src/entry"), &table).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let right = coverage::replace_coverage(&readme, &coverage::emit_coverage(&table, &bodies)).unwrap();
    assert!(
        readme == right,
        "README.md is out of date: run `cargo run -p fastpath-abigen coverage README.md`"
    );
}
