//! The counts as a table for people.

use crate::levels::{RECEIVES, SENDS};
use crate::output::print_line;
use crate::record::{Breakdown, Report};

use super::{CALLS, SIDE_MESSAGES};

/// Levels from the program down.
const LEVELS: [&str; 6] = ["abi", "mpi", "protocol", "transport", "base", "other"];

/// Totals by level, then the functions of each operation, then what was not counted.
pub fn print(report: &Report, functions: usize) {
    print_line(&format!(
        "instructions per call, mean of {CALLS} calls (callgrind, from the first instruction of the call to its return)"
    ));
    print_totals(&report.breakdowns);
    for line in compare_sides(&report.breakdowns) {
        print_line(&line);
    }
    for b in &report.breakdowns {
        if functions > 0 && !b.parts.is_empty() {
            print_functions(b, functions);
        }
    }
    if !report.missing.is_empty() {
        print_line("");
    }
    for missing in &report.missing {
        let (what, level) = (&missing.test, missing.level.phrase());
        print_line(&format!("{what}{level} is missing: {}", missing.reason));
    }
}

fn print_totals(all: &[Breakdown]) {
    let mut group = None;
    for b in all {
        let parted = !b.parts.is_empty();
        if group != Some((&b.mpi, b.level)) {
            group = Some((&b.mpi, b.level));
            let levels = match parted {
                true => LEVELS.map(|l| format!(" {l:>9}")).concat(),
                false => String::new(),
            };
            let who = format!("{}{}", b.mpi, b.level.phrase());
            print_line(&format!("\n{who:<40} {:>5} {:>9}{levels}", "B", "total"));
        }
        let sum = |level: &str| -> f64 {
            let of_level = b.parts.iter().filter(|p| p.level == level);
            of_level.fold(0.0, |all, p| all + p.instructions)
        };
        let levels = match parted {
            true => LEVELS.map(|l| format!(" {:>9.1}", sum(l))).concat(),
            false => String::new(),
        };
        print_line(&format!(
            "{:<40} {:>5} {:>9.2}{levels}",
            b.operation, b.bytes, b.total
        ));
    }
}

/// What a packet costs its receiver beside its sender, where both were counted.
fn compare_sides(all: &[Breakdown]) -> Vec<String> {
    let mut lines = Vec::new();
    for send in all.iter().filter(|b| b.operation == SENDS) {
        let of_receiver = |b: &&Breakdown| {
            b.operation == RECEIVES && (b.level, b.bytes) == (send.level, send.bytes)
        };
        if let Some(receive) = all.iter().find(of_receiver) {
            lines.push(format!(
                "a packet of {} B{}: {:.1} instructions at its sender, {:.1} at its receiver, {:.2} times as many (mean of {SIDE_MESSAGES} packets)",
                send.bytes,
                send.level.phrase(),
                send.total,
                receive.total,
                receive.total / send.total
            ));
        }
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn print_functions(b: &Breakdown, functions: usize) {
    print_line(&format!(
        "\n{}, {} B{}, by function:",
        b.operation,
        b.bytes,
        b.level.phrase()
    ));
    for part in b.parts.iter().take(functions) {
        let (count, level, name) = (part.instructions, &part.level, &part.function);
        print_line(&format!("  {count:>9.2}  {level:<9} {name}"));
    }
    let rest: f64 = b.parts.iter().skip(functions).map(|p| p.instructions).sum();
    if rest > 0.0 {
        print_line(&format!("  {rest:>9.2}  others"));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::Level;

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
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].contains("8 B at the level of the transport: 400.0"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("600.0 at its receiver, 1.50 times"),
            "{lines:?}"
        );
        assert!(
            lines[2].contains("250.0 at its receiver, 0.50 times"),
            "{lines:?}"
        );
        assert!(compare_sides(&all[..3]).is_empty());
    }
}
