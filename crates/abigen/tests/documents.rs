//! Checks the project's pages against its sources.
#![allow(non_snake_case)]

use fastpath_abigen::Table;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn quoted(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split('`').skip(1).step_by(2).collect()).collect()
}

/// Folders at the root to which pages refer.
const FOLDERS: [&str; 8] =
    ["crates/", "docs/", "tests/", "bench/", "install/", "examples/", "scripts/", ".ci/"];

fn is_path(word: &str) -> bool {
    FOLDERS.iter().any(|folder| word.starts_with(folder)) && !word.contains(['*', '<', ' '])
}

/// ARCHITECTURE.md and docs/map.md write `mpi/src/p2p.rs` for a file of a crate.
fn of_crate(word: &str) -> Option<String> {
    (word.contains("/src/") && !word.starts_with("crates/") && !word.contains(['*', '<', ' ']))
        .then(|| format!("crates/{word}"))
}

#[test]
fn readme__says_what_is_implemented() {
    // The build of `fastpath-abi` fails if a function has no body.
    let total = Table::builtin().unwrap().functions.len();
    let expected = format!("{total} of {total} functions");
    assert!(read("README.md").contains(&expected), "README.md does not say `{expected}`");
}

#[test]
fn readme__stays_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines, 150 are allowed");
}

#[test]
fn pages__name_files_that_exist() {
    let pages = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/map.md",
        "docs/virtual-machine.md",
        "docs/requirements.md",
        "docs/performance.md",
        "docs/settings.md",
        "docs/coverage.md",
        "docs/toolbox.md",
        "docs/adapters.md",
    ];
    for page in pages {
        let text = read(page);
        for word in quoted(&text).into_iter().flatten() {
            let path = if is_path(word) { Some(word.to_string()) } else { of_crate(word) };
            let known = path.is_none_or(|path| root().join(path).exists());
            assert!(known, "{page} names {word}, which does not exist");
        }
    }
}

/// A row of the requirements names a file, and then text to find in it.
#[test]
fn requirements__name_tests_and_items_that_exist() {
    let text = read("docs/requirements.md");
    for words in quoted(&text) {
        let mut file = None;
        for word in words {
            if is_path(word) {
                file = root().join(word).is_file().then(|| read(word));
            } else if word.contains("__") || word.contains("::") {
                let name = word.rsplit("::").next().unwrap_or(word);
                let known = file.as_ref().is_some_and(|file: &String| file.contains(name));
                assert!(known, "docs/requirements.md: {word} is not in the file named before it");
            }
        }
    }
}
