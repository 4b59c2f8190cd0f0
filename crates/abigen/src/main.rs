//! `fastpath-abigen header`: prints `mpi.h`, or another part of what the table makes.

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
        Some("version") => println!("{}", env!("CARGO_PKG_VERSION")),
        _ => {
            eprintln!("usage: fastpath-abigen header | asserts | symbols | version");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
