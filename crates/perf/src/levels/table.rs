//! The levels side by side: one row a size, one column a level, what each adds.

use std::collections::BTreeMap;

use crate::record::{Case, Level, Report};

/// From the lowest up.
const LEVELS: [(Level, &str); 4] = [
    (Level::Verbs, "verbs"),
    (Level::Transport, "transport"),
    (Level::Protocol, "protocol"),
    (Level::Mpi, "mpi"),
];

/// The levels of which there are figures; the three of the library in any case.
fn list_columns(report: &Report) -> Vec<(Level, &'static str)> {
    let has_verbs = report.cases.iter().any(|c| c.level == Level::Verbs);
    let own = |(level, _): &(Level, &str)| has_verbs || *level != Level::Verbs;
    LEVELS.into_iter().filter(own).collect()
}

/// The lines of the table: medians, and the difference to the level below; empty with fewer than
/// two levels.
pub fn print_columns(report: &Report) -> Vec<String> {
    let columns = list_columns(report);
    let mut tests: Vec<(&str, &str, Option<u32>)> = Vec::new();
    for case in &report.cases {
        let key = (case.test.as_str(), case.variant.as_str(), case.window);
        if !tests.contains(&key) {
            tests.push(key);
        }
    }
    let mut lines = Vec::new();
    for (test, variant, window) in tests {
        let of_test = |c: &&Case| {
            (c.test.as_str(), c.variant.as_str(), c.window) == (test, variant, window)
                && c.ranks == 2
        };
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
        lines.push(format_head(&columns));
        let format = |(bytes, levels): (&u64, &_)| format_row(*bytes, levels, &columns);
        lines.extend(rows.iter().map(format));
    }
    lines
}

fn format_head(columns: &[(Level, &str)]) -> String {
    let mut head = format!("{:>9}", "bytes");
    for (index, (_, name)) in columns.iter().enumerate() {
        head += &format!(" {name:>10}");
        if index > 0 {
            head += &format!(" {:>8}", "adds");
        }
    }
    head + "  protocol of the size"
}

fn format_row(
    bytes: u64,
    levels: &BTreeMap<Level, (f64, &Case)>,
    columns: &[(Level, &str)],
) -> String {
    let mut row = format!("{bytes:>9}");
    let mut below: Option<f64> = None;
    for (index, (level, _)) in columns.iter().enumerate() {
        let median = levels.get(level).map(|(m, _)| *m);
        row += &median.map_or_else(|| format!(" {:>10}", "-"), |m| format!(" {m:>10.1}"));
        if index > 0 {
            let adds = median.zip(below).map(|(m, b)| m - b);
            row += &adds.map_or_else(|| format!(" {:>8}", "-"), |a| format!(" {a:>+8.1}"));
        }
        below = median.or(below);
    }
    // The bare loops have no protocol.
    let mut above = levels.values().filter(|(_, c)| c.level != Level::Verbs);
    let way = above.find_map(|(_, c)| c.protocol.as_deref());
    format!("{row}  {}", way.unwrap_or("-"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::Run;
    use crate::record::samples::make_case;

    fn columns(levels: &[(Level, f64)]) -> Vec<String> {
        let mut report = Report::new(Run::default());
        for &(level, ns) in levels {
            let case = make_case(8, &[ns]);
            report.cases.push(Case { level, ..case });
        }
        print_columns(&report)
    }

    #[test]
    fn columns__say_what_a_level_adds() {
        let lines = columns(&[(Level::Transport, 100.0), (Level::Mpi, 130.0)]);
        assert!(!lines[2].contains("verbs"), "{lines:?}");
        assert!(lines[3].contains("+30.0"), "{lines:?}");
        let lines = columns(&[(Level::Verbs, 90.0), (Level::Transport, 100.0)]);
        assert!(lines[2].contains("verbs  transport     adds"), "{lines:?}");
        assert!(lines[3].contains("+10.0"), "{lines:?}");
    }

    #[test]
    fn columns__of_one_level_are_not_there() {
        assert!(columns(&[(Level::Verbs, 90.0)]).is_empty());
    }
}
