//! Comparisons as tables for people.

use super::comparison::{Comparison, Row};
use super::interval::Ratio;
use super::stored::{Change, Changes, Rule};
use super::{interval::Verdict, name_directions};
use crate::output::format::format_number;
use crate::output::head;
use crate::record::Level;

/// A ratio with its interval.
pub fn format_ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some([low, high]) => format!("{:.3} [{low:.3}, {high:.3}]", ratio.ratio),
        None => format!("{:.3} [no interval]", ratio.ratio),
    }
}

/// A whole comparison: a table for each peer, then what was not compared, then the count.
pub fn format_comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    if let Some(ours) = comparison.reports.first() {
        text += &head::describe_run(&ours.run);
    }
    for peer in comparison.list_peers() {
        text += &format_peer(comparison, peer);
    }
    if !comparison.missing.is_empty() {
        text += "\n";
    }
    for missing in &comparison.missing {
        let what = match missing.what.as_str() {
            "" => String::new(),
            what => format!(", {what}"),
        };
        text += &format!("{}{what}: not compared: {}\n", missing.mpi, missing.reason);
    }
    text
}

fn format_peer(comparison: &Comparison, peer: &str) -> String {
    let mut text = format!(
        "\nagainst {peer} ({}): up to {} rounds in turn; the {} of each run, its median over the rounds;\n\
         ratio ours/theirs: geometric mean over the rounds and its 95 % interval; line: ns of a cache line one way beside ours/theirs, and in how\n\
         many rounds the two differed by more than half; floor: {}\n\
         {:<30}{:>6}{:>9}{:>11}{:>11}    {:<24} {:<11} {:>9} {:>7} {:>7} {:>8}\n",
        comparison.find_version(peer),
        comparison.rounds,
        comparison.statistic.name(),
        FLOOR,
        "test",
        "ranks",
        "bytes",
        "ours",
        "theirs",
        "ratio",
        "says",
        "floor",
        "ours",
        "theirs",
        "line",
    );
    let rows = || comparison.rows.iter().filter(|r| r.peer == peer);
    for row in rows() {
        text += &format_row(row);
    }
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in rows() {
        match counts.iter_mut().find(|(says, _)| *says == row.says) {
            Some((_, count)) => *count += 1,
            None => counts.push((&row.says, 1)),
        }
    }
    let words: Vec<String> = counts
        .iter()
        .map(|(says, count)| format!("{count} {says}"))
        .collect();
    text + &format!("{}\n", words.join(", "))
}

/// What the floor of a row is.
const FLOOR: &str = "a line, or one copy of the message, the larger; of a ping-pong from 4 KiB the bare pipeline and a line; \
                     then ours and theirs as multiples of that beside each";

/// Name of a test with what distinguishes its cases.
pub fn name_test(row: &Row) -> String {
    let mut name = row.key.test.clone();
    if !row.key.variant.is_empty() {
        name += &format!(" {}", row.key.variant);
    }
    if let Some(window) = row.key.window {
        name += &format!(" w{window}");
    }
    name
}

fn format_row(row: &Row) -> String {
    let beside = match (row.find_floor(), row.find_lines()) {
        (None, None) => String::new(),
        (floor, lines) => format!(" {}{}", format_floor(floor), format_lines(row, lines)),
    };
    let text = format!(
        "{:<30}{:>6}{:>9}{:>11}{:>11} {:<2} {:<24} {:<11}{beside}",
        name_test(row),
        row.key.ranks,
        row.key.bytes,
        format_number(row.ours),
        format_number(row.theirs),
        row.key.unit,
        format_ratio(&row.ratio),
        row.says,
    );
    text.trim_end().to_owned() + "\n"
}

fn format_floor(floor: Option<[f64; 3]>) -> String {
    match floor {
        Some([floor, ours, theirs]) => {
            format!("{:>9} {ours:>7.2} {theirs:>7.2}", format_number(floor))
        }
        None => format!("{:>9} {:>7} {:>7}", "-", "-", "-"),
    }
}

fn format_lines(row: &Row, lines: Option<[f64; 2]>) -> String {
    let Some([ours, theirs]) = lines else {
        return String::new();
    };
    let uneven = match row.count_uneven() {
        0 => String::new(),
        count => format!(" ({count} of {})", row.lines.len()),
    };
    format!(" {:>8}{uneven}", format!("{ours:.0}/{theirs:.0}"))
}

/// Two stored results: a line a case, what was refused, and the sum.
pub fn format_changes(changes: &Changes, rule: Rule) -> String {
    let mut text = String::new();
    for note in &changes.notes {
        text += &format!("note: {note}\n");
    }
    text += &format!(
        "{} of each case; ratio now/before with its 95 % interval; a change counts beyond {:.1} %\n\
         {:<30}{:>6}{:>9}{:>11}{:>11}    {:<24} says\n",
        rule.statistic.name(),
        (rule.threshold - 1.0) * 100.0,
        "test",
        "ranks",
        "bytes",
        "before",
        "now",
        "ratio",
    );
    for change in &changes.changes {
        text += &format_change(change);
    }
    for refused in &changes.refused {
        text += &format!("{}: not compared: {}\n", refused.what, refused.reason);
    }
    if changes.changes.iter().any(|c| c.runs == [1, 1]) {
        text += "one run a side: the interval holds the noise within a run, not that between runs; several files a side, \
                 separated by commas, hold both\n";
    }
    let worse = changes.changes.iter().filter(|c| c.is_worse()).count();
    text + &format!(
        "{} compared, {worse} worse, {} not compared\n",
        changes.changes.len(),
        changes.refused.len()
    )
}

fn format_change(change: &Change) -> String {
    let key = &change.key;
    let mut name = key.test.clone();
    if !key.variant.is_empty() {
        name += &format!(" {}", key.variant);
    }
    if key.level != Level::Mpi {
        name += &format!(" ({})", key.level.name());
    }
    let [below, above] = name_directions(key.of);
    let says = match change.verdict {
        Verdict::Below => below,
        Verdict::Above => above,
        Verdict::CannotTell => "no change that counts",
    };
    format!(
        "{name:<30}{:>6}{:>9}{:>11}{:>11} {:<2} {:<24} {says}\n",
        key.ranks,
        key.bytes,
        format_number(change.before),
        format_number(change.now),
        key.unit,
        format_ratio(&change.ratio),
    )
}

/// What the figures of a test are, for the head of its table.
pub fn describe_test(row: &Row) -> String {
    let window = match row.key.window {
        Some(window) => format!(", windows of {window}"),
        None => String::new(),
    };
    format!(
        "{}; {}{window}, {}",
        row.key.operation,
        row.key.of.text(),
        row.key.unit
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::Statistic;
    use super::super::comparison::Beside;
    use super::super::comparison::tests::make_comparison;
    use super::super::stored::compare;
    use super::*;
    use crate::record::samples::make_report;

    #[test]
    fn comparison__has_a_table_for_each_peer_with_its_version_and_sum() {
        let text = format_comparison(&make_comparison());
        assert!(text.contains("against alpha (Alpha MPI 1.2)"), "{text}");
        assert!(text.contains("against beta"), "{text}");
        assert!(text.contains("1 faster, 1 slower"), "{text}");
        assert!(text.contains("1 cannot tell, 1 faster"), "{text}");
        assert!(
            text.contains("gamma: not compared: cannot run mpicc"),
            "{text}"
        );
        assert!(text.contains("the median of each run"), "{text}");
    }

    #[test]
    fn rows__have_the_floor_and_the_lines_beside_them() {
        let mut comparison = make_comparison();
        let beside = Beside {
            floors: vec![(24.0, 26.0), (26.0, 20.0)],
            floor_of: Some("memory copy".into()),
            lines: vec![[60.0, 62.0], [60.0, 250.0]],
        };
        comparison.rows = vec![comparison.rows[0].clone().with(&beside)];
        let text = format_comparison(&comparison);
        let row = text.lines().find(|l| l.starts_with("latency")).unwrap();
        assert!(row.contains("25.00    2.02    4.42"), "{row}");
        assert!(row.ends_with("60/156 (1 of 2)"), "{row}");
    }

    #[test]
    fn changes__name_statistic_threshold_and_that_one_run_is_few() {
        let rule = Rule {
            statistic: Statistic::Median,
            threshold: 1.05,
            common_only: false,
        };
        let text = format_changes(&compare(&[make_report()], &[make_report()], rule), rule);
        assert!(text.contains("median of each case"), "{text}");
        assert!(text.contains("beyond 5.0 %"), "{text}");
        assert!(text.contains("one run a side"), "{text}");
        assert!(
            text.contains("4 compared, 0 worse, 0 not compared"),
            "{text}"
        );
    }
}
