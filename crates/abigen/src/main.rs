//! `fastpath-abigen header`: prints `mpi.h`, or another part of what the table makes.

use fastpath_abigen::{Table, asserts, exports, header, scan::Bodies};
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
        Some("missing") => {
            let folder = std::env::args()
                .nth(2)
                .unwrap_or_else(|| "crates/abi/src/entry".into());
            match Bodies::read_folder(folder.as_ref(), &table) {
                Ok(bodies) => print_missing(&table, &bodies),
                Err(error) => {
                    eprintln!("fastpath-abigen: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        Some("version") => println!("{}", env!("CARGO_PKG_VERSION")),
        _ => {
            eprintln!(
                "usage: fastpath-abigen header | asserts | symbols | missing [FOLDER] | version"
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints, for each section of the table, how many functions have a body and which have none.
fn print_missing(table: &Table, bodies: &Bodies) {
    let mut sections: Vec<&str> = table.functions.iter().map(|f| f.section.as_str()).collect();
    sections.dedup();
    let mut total = 0;
    for section in sections {
        let all = table.functions.iter().filter(|f| f.section == section);
        let (have, missing): (Vec<_>, Vec<_>) =
            all.partition(|f| exports::find_body(bodies, f).is_some());
        total += have.len();
        println!(
            "{section}: {} of {}",
            have.len(),
            have.len() + missing.len()
        );
        for function in missing.iter().filter(|f| f.large_of.is_none()) {
            println!("    {}", function.name);
        }
    }
    println!("{total} of {} functions have a body", table.functions.len());
}
