//! The counts as a table for people.

use crate::output::print_line;
use crate::record::{Breakdown, Level, Report};

use super::CALLS;

/// Levels from the program down.
const LEVELS: [&str; 6] = ["abi", "mpi", "protocol", "transport", "base", "other"];

/// Totals by level, then the functions of each operation, then what was not counted.
pub fn print(report: &Report, functions: usize) {
    print_line(&format!(
        "instructions per call, mean of {CALLS} calls (callgrind, from the first instruction of the call to its return)"
    ));
    print_totals(&report.breakdowns);
    for b in &report.breakdowns {
        if functions > 0 && !b.parts.is_empty() {
            print_functions(b, functions);
        }
    }
    if !report.missing.is_empty() {
        print_line("");
    }
    for missing in &report.missing {
        let (what, level) = (&missing.test, describe_level(missing.level));
        print_line(&format!("{what}{level} is missing: {}", missing.reason));
    }
}

fn describe_level(level: Level) -> &'static str {
    match level {
        Level::Mpi => "",
        Level::Protocol => " at the level of the protocol",
        Level::Transport => " at the level of the transport",
        Level::Verbs => " at the level of verbs",
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
            let who = format!("{}{}", b.mpi, describe_level(b.level));
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

fn print_functions(b: &Breakdown, functions: usize) {
    print_line(&format!(
        "\n{}, {} B{}, by function:",
        b.operation,
        b.bytes,
        describe_level(b.level)
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
