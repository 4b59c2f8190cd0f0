//! `fastpath-abigen header`: prints `mpi.h`, or another part of what the table makes.

use fastpath_abigen::{Table, asserts, coverage, exports, header, scan::Bodies};
use std::io::Write;
use std::process::ExitCode;

/// Where the bodies of the functions are, seen from the root of the repository.
const ENTRY: &str = "crates/abi/src/entry";

const USAGE: &str = "\
usage: fastpath-abigen header            the C header
       fastpath-abigen asserts           a C program that holds the header against the table
       fastpath-abigen symbols           all exported names
       fastpath-abigen missing [FOLDER]  functions without a body in FOLDER (crates/abi/src/entry)
       fastpath-abigen coverage FILE     updates the table of implemented functions in FILE
       fastpath-abigen version";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fastpath-abigen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let table = Table::builtin().map_err(|e| e.to_string())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let read = |folder: &str| {
        Bodies::read_folder(folder.as_ref(), &table).map_err(|e| format!("{folder}: {e}"))
    };
    match words[..] {
        ["header"] => print(&header::emit_header(&table))?,
        ["asserts"] => print(&asserts::emit_program(&table))?,
        ["symbols"] => print(&(table.symbols().join("\n") + "\n"))?,
        ["missing"] => print(&describe_missing(&table, &read(ENTRY)?))?,
        ["missing", folder] => print(&describe_missing(&table, &read(folder)?))?,
        ["coverage", file] => write_coverage(&table, &read(ENTRY)?, file)?,
        ["version"] => print(concat!(env!("CARGO_PKG_VERSION"), "\n"))?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| format!("standard output: {e}"))
}

/// Replaces the table of implemented functions in a document.
fn write_coverage(table: &Table, bodies: &Bodies, file: &str) -> Result<(), String> {
    let document = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let new = coverage::replace_coverage(&document, &coverage::emit_coverage(table, bodies))
        .ok_or_else(|| format!("{file} has no line `{}`", coverage::BEGIN))?;
    std::fs::write(file, new).map_err(|e| format!("{file}: {e}"))
}

/// For each section of the table, how many functions have a body, and the names of those that have none.
fn describe_missing(table: &Table, bodies: &Bodies) -> String {
    let mut text = String::new();
    let mut sections: Vec<&str> = table.functions.iter().map(|f| f.section.as_str()).collect();
    sections.dedup();
    let mut total = 0;
    for section in sections {
        let all = table.functions.iter().filter(|f| f.section == section);
        let (have, missing): (Vec<_>, Vec<_>) =
            all.partition(|f| exports::find_body(bodies, f).is_some());
        total += have.len();
        text += &format!("{section}: {} of {}\n", have.len(), have.len() + missing.len());
        for function in missing.iter().filter(|f| f.large_of.is_none()) {
            text += &format!("    {}\n", function.name);
        }
    }
    text + &format!("{total} of {} functions have a body\n", table.functions.len())
}
