//! What stands on the page beside the tables of ratios: where another MPI is ahead, and what only the others
//! have.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Statistic;
use super::super::comparison::{Comparison, Row};
use super::super::show::name_test;
use super::{format_ratio, format_size};
use crate::output::format::format_number;
use crate::record::{Case, Key, Report};

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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::super::comparison::tests::make_comparison;
    use super::*;
    use crate::record::samples::make_case;

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
}
