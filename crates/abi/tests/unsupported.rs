//! What the standard has and this library has not: an error through the error handler.
#![allow(non_snake_case)]

mod common;

use common::{cc, make_folder, run, source};
use std::path::PathBuf;
use std::process::Command;

fn build(name: &str) -> PathBuf {
    let folder = make_folder(name);
    let file = source("unsupported.c");
    run(
        &folder,
        &cc(),
        &["-I.", "-o", "unsupported", &file, "-L.", "-lmpi_abi"],
        &[],
    );
    folder
}

#[test]
fn missing_function__returns_its_class_where_errors_are_returned() {
    let folder = build("unsupported-return");
    assert_eq!(
        run(&folder, "./unsupported", &["return"], &[]),
        "unsupported\n"
    );
}

#[test]
fn missing_function__is_named_where_errors_are_fatal() {
    let folder = build("unsupported-fatal");
    let output = Command::new(folder.join("unsupported"))
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    assert!(
        errors.contains("MPI_Register_datarep") && errors.contains("not implemented"),
        "{errors}"
    );
}
