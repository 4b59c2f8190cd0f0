//! Instruction counts as tables.

use fastpath_report::document::{Document, Table};
use fastpath_report::record::{Breakdown, Report};

use crate::levels::{CALLS, RECEIVES, SENDS, SIDE_MESSAGES};

/// Levels from the program down.
const LEVELS: [&str; 6] = ["abi", "mpi", "protocol", "transport", "base", "other"];

/// Describes totals by level, then the functions of each operation, then missing operations. Totals are narrowed to
/// `columns`.
pub fn describe(report: &Report, functions: usize, columns: Option<usize>) -> Document {
    let mut said = Document::default();
    said.text(format!(
        "instructions per call, mean of {CALLS} calls (callgrind, from the first instruction of \
         the call to its return)"
    ));
    let alike = |a: &Breakdown, b: &Breakdown| (&a.mpi, a.level) == (&b.mpi, b.level);
    for group in report.breakdowns.chunk_by(alike) {
        said.heading(format!("{}{}", group[0].mpi, group[0].level.phrase()));
        said.table(list_totals(group, columns));
    }
    let sides = compare_sides(&report.breakdowns);
    if !sides.is_empty() {
        said.heading("sender and receiver of a packet");
    }
    sides.into_iter().for_each(|line| said.text(line));
    for b in report.breakdowns.iter().filter(|b| functions > 0 && !b.parts.is_empty()) {
        let level = b.level.phrase();
        said.heading(format!("{}, {} B{level}, by function:", b.operation, b.bytes));
        said.table(list_functions(b, functions));
    }
    if !report.missing.is_empty() {
        said.heading("missing");
    }
    for missing in &report.missing {
        let (what, level) = (&missing.test, missing.level.phrase());
        said.text(format!("{what}{level} is missing: {}", missing.reason));
    }
    said
}

/// Lists the totals of operations. If the table exceeds `columns`, cells have no padding, and then the last levels are
/// left out.
fn list_totals(group: &[Breakdown], columns: Option<usize>) -> Table {
    let levels: &[&str] = match group.iter().any(|b| !b.parts.is_empty()) {
        true => &LEVELS,
        false => &[],
    };
    let mut table = Table::of("<38|B>5|total>9");
    table.add_columns(levels.iter().map(|level| format!("{level}>9")));
    for b in group {
        let sum = |level: &&str| {
            let of_level = b.parts.iter().filter(|p| p.level == *level);
            // An empty sum is -0.
            format!("{:.1}", of_level.map(|p| p.instructions).sum::<f64>() + 0.0)
        };
        let first = [b.operation.clone(), b.bytes.to_string(), format!("{:.2}", b.total)];
        table.row(first.into_iter().chain(levels.iter().map(sum)));
    }
    if let Some(columns) = columns.filter(|&columns| table.width() > columns) {
        table.columns.iter_mut().for_each(|column| column.width = 0);
        table.narrow(columns, &[&[8], &[7], &[3]]);
    }
    table
}

/// Compares the costs of a packet for receiver and sender, if both were counted.
fn compare_sides(all: &[Breakdown]) -> Vec<String> {
    let compare = |send: &Breakdown| {
        let of_receiver = |b: &&Breakdown| {
            b.operation == RECEIVES && (b.level, b.bytes) == (send.level, send.bytes)
        };
        let (there, here) = (all.iter().find(of_receiver)?.total, send.total);
        Some(format!(
            "a packet of {} B{}: {here:.1} instructions at the sender, {there:.1} at the receiver, \
             ratio {:.2} (mean of {SIDE_MESSAGES} packets)",
            send.bytes,
            send.level.phrase(),
            there / here
        ))
    };
    all.iter().filter(|b| b.operation == SENDS).filter_map(compare).collect()
}

fn list_functions(b: &Breakdown, functions: usize) -> Table {
    let mut table = Table::of(">9|<9|");
    for part in b.parts.iter().take(functions) {
        let count = format!("{:.2}", part.instructions);
        table.row([count, part.level.clone(), part.function.clone()]);
    }
    let rest: f64 = b.parts.iter().skip(functions).map(|p| p.instructions).sum();
    if rest > 0.0 {
        table.row([format!("{rest:.2}"), "others".to_owned()]);
    }
    table
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::record::{FunctionShare, Level};

    fn count(operation: &str, level: Level, bytes: u64, total: f64) -> Breakdown {
        Breakdown {
            mpi: "fastpath".to_owned(),
            operation: operation.to_owned(),
            level,
            bytes,
            calls: SIDE_MESSAGES,
            total,
            parts: Vec::new(),
        }
    }

    #[test]
    fn sides__stand_beside_each_other_by_level_and_size() {
        let all = [
            count("send", Level::Transport, 8, 100.0),
            count(SENDS, Level::Transport, 8, 400.0),
            count(SENDS, Level::Transport, 1024, 500.0),
            count(RECEIVES, Level::Verbs, 8, 7.0),
            count(RECEIVES, Level::Transport, 1024, 250.0),
            count(RECEIVES, Level::Transport, 8, 600.0),
        ];
        let lines = compare_sides(&all);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("8 B at the level of the transport: 400.0"), "{lines:?}");
        assert!(lines[0].contains("600.0 at the receiver, ratio 1.50"), "{lines:?}");
        assert!(lines[1].contains("250.0 at the receiver, ratio 0.50"), "{lines:?}");
        assert!(compare_sides(&all[..3]).is_empty());
    }

    #[test]
    fn totals__fit_80_columns_by_less_padding_and_fewer_levels() {
        let part = |level: &str| FunctionShare {
            level: level.into(),
            function: "f".into(),
            instructions: 1234.5,
        };
        let counted = |operation: &str| Breakdown {
            parts: LEVELS.map(part).to_vec(),
            ..count(operation, Level::Mpi, 1024, 12_345.67)
        };
        let heads = |operation: &str| {
            let table = list_totals(&[counted(operation)], Some(80));
            assert!(table.width() <= 80, "{}", table.to_text());
            table.head().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let all = ["B", "total", "abi", "mpi", "protocol", "transport", "base", "other"];
        assert_eq!(heads("MPI_Send"), all);
        assert_eq!(heads("MPI_Irecv_Wait_among_posted"), all[..6]);
        assert_eq!(list_totals(&[counted("MPI_Send")], None).width(), 114);
    }
}
