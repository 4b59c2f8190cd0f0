//! The generated header, compiled as C and C++, and the program that checks its contents.
#![allow(non_snake_case)]

mod common;

use common::{cc, cxx, make_folder, run, source};
use fastpath_abigen::asserts;

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-I."];

#[test]
fn header__compiles_without_a_warning_as_c() {
    let folder = make_folder("header-c");
    for standard in ["-std=c99", "-std=c11", "-std=gnu17"] {
        let file = source("include.c");
        let args = [&STRICT[..], &[standard, "-Wstrict-prototypes", "-c", "-o", "a.o", &file]];
        run(&folder, &cc(), &args.concat(), &[]);
    }
}

#[test]
fn header__compiles_without_a_warning_as_cpp() {
    let folder = make_folder("header-cpp");
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        let file = source("include.cpp");
        run(&folder, &cxx(), &[&STRICT[..], &[standard, "-c", "-o", "a.o", &file]].concat(), &[]);
    }
}

/// An optimising compiler knows that MPI_UNWEIGHTED is not the address of an array, and may warn if it is passed for an
/// array parameter. The header therefore declares weights as pointers.
#[test]
fn weights__that_are_no_array_give_no_warning() {
    let folder = make_folder("header-weights");
    let text = "#include <mpi.h>\n\
        void f(MPI_Comm *new) {\n\
        int s = 0, from[4], to[4];\n\
        MPI_Dist_graph_create(MPI_COMM_SELF, 1, &s, &s, &s, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, new);\n\
        MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, 1, &s, MPI_UNWEIGHTED, 1, &s,\n\
            MPI_UNWEIGHTED, MPI_INFO_NULL, 0, new);\n\
        MPI_Dist_graph_neighbors(*new, 4, from, MPI_UNWEIGHTED, 4, to, MPI_UNWEIGHTED);\n}\n";
    std::fs::write(folder.join("weights.c"), text).unwrap();
    let args = ["-O2", "-c", "-o", "weights.o", "weights.c"];
    run(&folder, &cc(), &[&STRICT[..], &args].concat(), &[]);
}

#[test]
fn header_and_library__hold_every_constant_type_and_function() {
    let folder = make_folder("header-asserts");
    std::fs::write(folder.join("asserts.c"), asserts::emit_program(&common::table())).unwrap();
    let args = ["-std=c11", "-DMPI_NO_DEPRECATION_WARNINGS", "-o", "asserts", "asserts.c"];
    run(&folder, &cc(), &[&STRICT[..], &args, &["-L.", "-lmpi_abi"]].concat(), &[]);
    let printed = run(&folder, "./asserts", &[], &[]);
    assert!(printed.ends_with("1328 functions, 0 wrong\n"), "{printed}");
}

#[test]
fn deprecated_function__gets_a_warning_that_can_be_switched_off() {
    let folder = make_folder("header-deprecated");
    let text = "#include <mpi.h>\nint f(int k) { return MPI_Attr_delete(MPI_COMM_WORLD, k); }\n";
    std::fs::write(folder.join("old.c"), text).unwrap();
    let base = ["-I.", "-c", "-o", "old.o", "old.c"];
    let output = std::process::Command::new(cc())
        .args(base)
        .current_dir(&folder)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("deprecated since MPI-2.0"), "{errors}");
    run(&folder, &cc(), &[&base[..], &["-DMPI_NO_DEPRECATION_WARNINGS"]].concat(), &[]);
}
