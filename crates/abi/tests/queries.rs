//! C programs with calls that are allowed before initialisation.
#![allow(non_snake_case)]

mod common;

use common::{cc, make_folder, run, source};

#[test]
fn abi_queries__answer_before_initialisation() {
    let folder = make_folder("queries-abi");
    let file = source("abi.c");
    let args = ["-Wall", "-Wextra", "-I.", "-o", "abi", &file, "-L.", "-lmpi_abi"];
    run(&folder, &cc(), &args, &[]);
    assert_eq!(run(&folder, "./abi", &[], &[]), "");
}
