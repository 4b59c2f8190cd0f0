//! `fastpath-abigen header`: prints `mpi.h`.

use fastpath_abigen::{Table, asserts, header};
use std::process::ExitCode;

fn main() -> ExitCode {
    let table = match Table::builtin() {
        Ok(table) => table,
        Err(error) => {
            eprintln!("fastpath-abigen: {error}");
            return ExitCode::FAILURE;
        }
    };
    match std::env::args().nth(1).as_deref() {
        Some("header") => print!("{}", header::emit_header(&table)),
        Some("asserts") => print!("{}", asserts::emit_program(&table)),
        Some("symbols") => println!("{}", table.symbols().join("\n")),
        _ => {
            eprintln!("usage: fastpath-abigen header | asserts | symbols");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
