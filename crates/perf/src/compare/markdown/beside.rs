//! What stands on the page beside the tables of ratios: where another MPI is ahead, what only the others
//! have, and the levels of this library side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Statistic;
use super::super::comparison::{Comparison, Row};
use super::super::show::name_test;
use super::{format_ratio, format_size};
use crate::output::format::format_number;
use crate::record::{Case, Key, Level, Report};

/// Every case in which another MPI is ahead, so that nobody has to look for them.
pub fn list_behind(comparison: &Comparison) -> String {
    let behind: Vec<&Row> = comparison.rows.iter().filter(|r| r.is_behind()).collect();
    let mut text = "\n## Where another MPI is ahead\n\n".to_owned();
    if behind.is_empty() {
        return text + "In no case of this run.\n";
    }
    text += "| test | ranks | bytes | this MPI | the other | | ratio [95 %] |\n|---|---|---|---|---|---|---|\n";
    for row in behind {
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            name_test(row),
            row.key.ranks,
            format_size(row.key.bytes),
            format_number(row.ours),
            format_number(row.theirs),
            row.peer,
            format_ratio(&row.ratio),
        );
    }
    text
}

fn without_size(key: Key) -> Key {
    Key { bytes: 0, ..key }
}

/// Tests that others have and this library has not, with the reason that it gives.
pub fn list_others_alone(comparison: &Comparison) -> String {
    let Some((ours, others)) = comparison.reports.split_first() else {
        return String::new();
    };
    let mut text = String::new();
    for missing in &ours.missing {
        let is_of = |c: &&Case| c.test == missing.test;
        let tables: BTreeSet<Key> = others
            .iter()
            .flat_map(|r| r.cases.iter().filter(is_of))
            .map(|c| without_size(c.key()))
            .collect();
        for table in tables {
            text += &format_others(others, &table, comparison.statistic);
        }
        if others.iter().any(|r| r.cases.iter().any(|c| is_of(&c))) {
            let reason = missing.reason.lines().next().unwrap_or_default();
            text += &format!("\nThis MPI: missing ({reason}).\n");
        }
    }
    match text.as_str() {
        "" => text,
        _ => format!("\n## What only the others have\n{text}"),
    }
}

fn format_others(others: &[Report], table: &Key, statistic: Statistic) -> String {
    let cases_of = |report: &Report| -> BTreeMap<u64, String> {
        let alike = |c: &&Case| without_size(c.key()) == *table;
        let figure = |c: &Case| Some((c.bytes, format_number(statistic.take(&c.samples)?)));
        report
            .cases
            .iter()
            .filter(alike)
            .filter_map(figure)
            .collect()
    };
    let columns: Vec<(&str, BTreeMap<u64, String>)> = others
        .iter()
        .map(|r| (r.run.mpi.name.as_str(), cases_of(r)))
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    let names: String = columns
        .iter()
        .map(|(name, _)| format!(" {name} |"))
        .collect();
    let mut text = format!(
        "\n{} {}, {} ranks ({}, {}, {} of all rounds together):\n\n| bytes |{names}\n|---|{}\n",
        table.test,
        table.variant,
        table.ranks,
        table.operation,
        table.unit,
        statistic.name(),
        "---|".repeat(columns.len())
    );
    let sizes: BTreeSet<u64> = columns
        .iter()
        .flat_map(|(_, c)| c.keys().copied())
        .collect();
    for size in sizes {
        let cell = |cases: &BTreeMap<u64, String>| cases.get(&size).cloned();
        let cells: String = columns
            .iter()
            .map(|(_, cases)| format!(" {} |", cell(cases).unwrap_or_else(|| "-".to_owned())))
            .collect();
        text += &format!("| {} |{cells}\n", format_size(size));
    }
    text
}

type ByLevel<'a> = BTreeMap<Level, &'a Case>;

const LEVELS: [Level; 3] = [Level::Transport, Level::Protocol, Level::Mpi];

/// What each level of this library adds, of a result that has several.
pub fn list_levels(report: &Report) -> String {
    let mut tables: BTreeMap<(&str, &str), BTreeMap<u64, ByLevel<'_>>> = BTreeMap::new();
    for case in report.cases.iter().filter(|c| c.unit == "ns") {
        let sizes = tables.entry((&case.test, &case.variant)).or_default();
        let levels = sizes.entry(case.bytes).or_default();
        levels.insert(case.level, case);
    }
    let mut text = String::new();
    for ((test, variant), mut sizes) in tables {
        sizes.retain(|_, levels| levels.len() > 1);
        if sizes.is_empty() {
            continue;
        }
        text += &format!(
            "\n## {} by level\n\nThis library alone ({}): median in ns with its 95 % interval within the run, and what a level adds to the one before it. `-`: the level has no such way.\n\n\
             | bytes | transport | protocol | adds | MPI | adds | way | hardware |\n|---|---|---|---|---|---|---|---|\n",
            [test, variant].join(" ").trim_end(),
            report.run.tool,
        );
        for (bytes, levels) in sizes {
            text += &format_levels(bytes, &levels);
        }
    }
    text
}

fn format_levels(bytes: u64, levels: &ByLevel<'_>) -> String {
    let mut row = format!("| {} |", format_size(bytes));
    let mut below: Option<f64> = None;
    for level in LEVELS {
        let case = levels.get(&level);
        let median = case.and_then(|c| Statistic::Median.take(&c.samples));
        let interval = case.and_then(|c| Statistic::Median.find_interval(&c.samples));
        row += &match (median, interval) {
            (Some(m), Some([low, high])) => format!(
                " {} [{}, {}] |",
                format_number(m),
                format_number(low),
                format_number(high)
            ),
            (Some(m), None) => format!(" {} |", format_number(m)),
            (None, _) => " - |".to_owned(),
        };
        if level != Level::Transport {
            let adds = median.zip(below).map(|(m, b)| format!(" {:+.0} |", m - b));
            row += &adds.unwrap_or_else(|| " - |".to_owned());
        }
        below = median.or(below);
    }
    let way = levels.values().find_map(|c| c.protocol.as_deref());
    let mpi = levels.get(&Level::Mpi);
    let floor = mpi.and_then(|c| c.floor.as_ref()?.quantile(0.5));
    let floor = floor.map_or_else(|| "-".to_owned(), format_number);
    row + &format!(" {} | {floor} |\n", way.unwrap_or("-"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::super::comparison::tests::make_comparison;
    use super::*;
    use crate::record::samples::{make_case, make_report};

    #[test]
    fn cases__in_which_another_is_ahead_stand_together() {
        let mut comparison = make_comparison();
        let text = list_behind(&comparison);
        assert!(
            text.contains("| latency | 2 | 4 Ki | 1005 | 500.0 | alpha | 2.01 ["),
            "{text}"
        );
        assert_eq!(text.matches("| alpha |").count(), 1, "{text}");
        comparison.rows.retain(|row| !row.is_behind());
        assert!(list_behind(&comparison).contains("no case"));
    }

    #[test]
    fn test__that_only_others_have_is_shown_with_our_reason() {
        let mut comparison = make_comparison();
        assert_eq!(list_others_alone(&comparison), "");
        comparison.reports[1].cases.push(Case {
            test: "put".into(),
            operation: "MPI_Put/MPI_Win_flush".into(),
            ..make_case(64, &[444.0])
        });
        let text = list_others_alone(&comparison);
        assert!(text.contains("| bytes | alpha |"), "{text}");
        assert!(text.contains("| 64 | 444.0 |"), "{text}");
        assert!(
            text.contains("missing (MPI_Win_create: MPI_ERR_UNSUPPORTED_OPERATION)"),
            "{text}"
        );
    }

    #[test]
    fn levels__stand_side_by_side_with_what_each_adds() {
        let mut report = make_report();
        report.cases.push(Case {
            level: Level::Protocol,
            ..make_case(64, &[132.0; 3])
        });
        let text = list_levels(&report);
        assert!(
            text.contains("| 64 | - | 132.0 | - | 152.0 | +20 | eager short | 58.01 |"),
            "{text}"
        );
        assert!(!text.contains("rate"), "one level is no comparison: {text}");
    }
}
