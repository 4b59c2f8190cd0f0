//! The levels side by side: one row a size, one column a level, what each adds.

use std::collections::BTreeMap;

use crate::record::{Case, Level, Report};

const LEVELS: [(Level, &str); 3] = [
    (Level::Transport, "transport"),
    (Level::Protocol, "protocol"),
    (Level::Mpi, "mpi"),
];

/// The lines of the table: medians, and the difference to the level below; empty with fewer than
/// two levels.
pub fn print_columns(report: &Report) -> Vec<String> {
    let mut tests: Vec<(&str, &str)> = Vec::new();
    for case in &report.cases {
        let key = (case.test.as_str(), case.variant.as_str());
        if !tests.contains(&key) {
            tests.push(key);
        }
    }
    let mut lines = Vec::new();
    for (test, variant) in tests {
        let of_test = |c: &&Case| c.test == test && c.variant == variant && c.ranks == 2;
        let mut rows: BTreeMap<u64, BTreeMap<Level, (f64, &Case)>> = BTreeMap::new();
        for case in report.cases.iter().filter(of_test) {
            if let Some(median) = case.samples.quantile(0.5) {
                rows.entry(case.bytes)
                    .or_default()
                    .insert(case.level, (median, case));
            }
        }
        rows.retain(|_, levels| levels.len() > 1);
        if rows.is_empty() {
            continue;
        }
        lines.push(String::new());
        lines.push(format!(
            "{test}{}{variant} by level; median, ns; what a level adds to the one before it",
            if variant.is_empty() { "" } else { " " }
        ));
        lines.push(format!(
            "{:>9} {:>10} {:>10} {:>8} {:>10} {:>8}  protocol of the size",
            "bytes", "transport", "protocol", "adds", "mpi", "adds"
        ));
        lines.extend(rows.iter().map(|(bytes, levels)| make_row(*bytes, levels)));
    }
    lines
}

fn make_row(bytes: u64, levels: &BTreeMap<Level, (f64, &Case)>) -> String {
    let mut row = format!("{bytes:>9}");
    let mut below: Option<f64> = None;
    for (level, _) in LEVELS {
        let median = levels.get(&level).map(|(m, _)| *m);
        row += &median.map_or_else(|| format!(" {:>10}", "-"), |m| format!(" {m:>10.1}"));
        if level != Level::Transport {
            let adds = median.zip(below).map(|(m, b)| m - b);
            row += &adds.map_or_else(|| format!(" {:>8}", "-"), |a| format!(" {a:>+8.1}"));
        }
        below = median.or(below);
    }
    let way = levels.values().find_map(|(_, c)| c.protocol.as_deref());
    format!("{row}  {}", way.unwrap_or("-"))
}
