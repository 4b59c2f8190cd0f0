//! Which functions of the standard have a body, as a table for readers.

use crate::exports;
use crate::model::{Function, Table};
use crate::scan::Bodies;
use std::fmt::Write;

/// Line before the table in a document.
pub const BEGIN: &str = "<!-- coverage: cargo run -p fastpath-abigen coverage docs/coverage.md -->";
/// Line after it.
pub const END: &str = "<!-- end of coverage -->";

/// Missing functions that a row names; more are counted.
const NAMED: usize = 4;

/// The rows: key, what a reader looks for, and the chapter of MPI 5.0.
const ROWS: [(&str, &str, &str); 26] = [
    ("init", "initialisation and finalisation", "11.2, 11.4"),
    ("env", "environment and time", "9.1, 9.6"),
    ("abi", "the ABI's own queries", "20"),
    ("handle", "handles as integers", "20"),
    ("errh", "error handlers, classes, codes", "9.3 to 9.5"),
    ("info", "info objects", "10"),
    ("group", "groups", "7.3"),
    ("comm", "communicators", "7.4 to 7.6"),
    ("attr", "attributes", "7.7"),
    ("topo", "topologies", "8"),
    ("p2p", "point-to-point", "3"),
    ("request", "requests: wait, test, cancel", "3.7"),
    ("status", "status", "3.2"),
    ("datatype", "datatypes", "5.1"),
    ("pack", "pack and unpack", "5.2, 5.3"),
    ("op", "operations", "6.9"),
    ("blocking", "blocking collectives", "6"),
    ("nonblocking", "nonblocking collectives", "6.12"),
    ("persistent", "persistent collectives", "6.13"),
    ("neighbour", "neighbourhood collectives", "8.6 to 8.8"),
    ("partitioned", "partitioned communication", "4"),
    ("grequest", "generalized requests", "13.2"),
    ("rma", "one-sided communication", "12"),
    ("dynamic", "sessions and dynamic processes", "11.3, 11.8"),
    ("io", "files", "14"),
    ("tool", "tools and profiling", "15"),
];

/// Key of the row that counts a function.
fn row_of(function: &Function) -> &str {
    let name = function.name.as_str();
    match function.section.as_str() {
        "coll" if name.contains("eighbor_") => "neighbour",
        "coll" if name.contains("_init") => "persistent",
        "coll" if name.starts_with("MPI_I") => "nonblocking",
        "coll" => "blocking",
        "session" => "dynamic",
        // All of them are old names in the chapter of attributes.
        "deprecated" => "attr",
        section => section,
    }
}

/// The table in Markdown, one row for each subject, and the sum.
pub fn emit_coverage(table: &Table, bodies: &Bodies) -> String {
    let mut text = String::from("| subject | MPI 5.0 | functions | missing |\n|---|---|---|---|\n");
    let mut total = 0;
    for (key, subject, chapter) in ROWS {
        let all = table.functions.iter().filter(|f| row_of(f) == key);
        let (have, missing): (Vec<_>, Vec<_>) =
            all.partition(|f| exports::find_body(bodies, f).is_some());
        let count = have.len() + missing.len();
        total += have.len();
        _ = writeln!(
            text,
            "| {subject} | {chapter} | {} of {count} | {} |",
            have.len(),
            describe_missing(&missing, count)
        );
    }
    _ = writeln!(text, "| **together** | | **{total} of {}** | |", table.functions.len());
    text
}

fn describe_missing(missing: &[&Function], count: usize) -> String {
    // A large-count form shares the body of its other form.
    let names: Vec<&str> =
        missing.iter().filter(|f| f.large_of.is_none()).map(|f| f.name.as_str()).collect();
    match missing.len() {
        0 => String::new(),
        all if all == count => "all".into(),
        _ if names.len() <= NAMED => names.join(", "),
        _ => format!("{}, and {} more", names[..NAMED - 1].join(", "), names.len() + 1 - NAMED),
    }
}

/// `document` with the table between its two marks replaced; `None` where it has no marks.
pub fn replace_coverage(document: &str, coverage: &str) -> Option<String> {
    let start = document.find(BEGIN)? + BEGIN.len();
    let end = start + document[start..].find(END)?;
    Some(format!("{}\n{coverage}{}", &document[..start], &document[end..]))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn coverage__counts_every_function_once() {
        let table = Table::builtin().unwrap();
        for function in &table.functions {
            let row = row_of(function);
            assert!(ROWS.iter().any(|(key, ..)| *key == row), "{} has no row", function.name);
        }
    }

    #[test]
    fn coverage__names_what_is_missing() {
        let text = emit_coverage(&Table::builtin().unwrap(), &Bodies::default());
        assert!(text.contains("| groups | 7.3 | 0 of 12 | all |"), "{text}");
        assert!(text.ends_with("| **together** | | **0 of 664** | |\n"), "{text}");
    }

    #[test]
    fn replace_coverage__keeps_what_is_around() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace_coverage(&document, "| x |\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n| x |\n{END}\nb\n"));
        assert_eq!(replace_coverage("a\n", "x"), None);
    }
}
