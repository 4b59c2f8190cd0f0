//! The profiling interface. A library that defines `MPI_X` and calls `PMPI_X`, preloaded or linked, gets each call
//! once.
#![allow(non_snake_case)]

mod common;

use common::{cc, make_folder, run, source};
use std::path::PathBuf;

const EXPECTED: &str = "MPI_Init 1, MPI_Send 4, MPI_Irecv 5, MPI_Wait 5, MPI_Get_version 1\n";

fn build_profiler(name: &str) -> PathBuf {
    let folder = make_folder(name);
    let library = ["-I.", "-shared", "-fPIC", "-o", "libprofile.so"];
    let file = source("profile.c");
    run(&folder, &cc(), &[&library[..], &[&file, "-L.", "-lmpi_abi"]].concat(), &[]);
    folder
}

#[test]
fn preloaded_profiler__sees_each_call_once() {
    let folder = build_profiler("profile-preload");
    let file = source("profiled.c");
    run(&folder, &cc(), &["-I.", "-o", "profiled", &file, "-L.", "-lmpi_abi"], &[]);
    assert_eq!(run(&folder, "./profiled", &[], &[]), "");
    let printed = run(&folder, "./profiled", &[], &[("LD_PRELOAD", "./libprofile.so")]);
    assert_eq!(printed, EXPECTED);
}

#[test]
fn linked_profiler__sees_each_call_once() {
    let folder = build_profiler("profile-link");
    let file = source("profiled.c");
    let args = ["-I.", "-o", "profiled", &file, "-L.", "-lprofile", "-lmpi_abi"];
    run(&folder, &cc(), &args, &[]);
    assert_eq!(run(&folder, "./profiled", &[], &[]), EXPECTED);
}

#[test]
fn profiler_in_the_program__sees_each_call_once() {
    let folder = make_folder("profile-static");
    let (profile, profiled) = (source("profile.c"), source("profiled.c"));
    let args = ["-I.", "-o", "profiled", &profiled, &profile, "-L.", "-lmpi_abi"];
    run(&folder, &cc(), &args, &[]);
    assert_eq!(run(&folder, "./profiled", &[], &[]), EXPECTED);
}
