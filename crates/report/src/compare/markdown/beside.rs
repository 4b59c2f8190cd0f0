//! Lists beside the tables: cases in which another MPI is faster, and tests that only other MPIs have.

use fastpath_base::tell::count;
use std::collections::{BTreeMap, BTreeSet};

use super::super::Statistic;
use super::super::comparison::{Comparison, Row};
use super::super::show::name_test;
use super::{format_size, tabulate, without_size};
use crate::document::Document;
use crate::format::format_number;
use crate::record::{Case, CaseKey, Report};

/// Adds the cases in which another MPI is better.
pub fn list_behind(comparison: &Comparison, page: &mut Document) {
    let names = ["test", "ranks", "bytes", "this MPI", "the other", "", "ratio [95 %]"];
    let mut table = tabulate(names);
    for row in comparison.rows.iter().filter(|r: &&Row| r.is_behind()) {
        table.row([
            name_test(row),
            row.key.ranks.to_string(),
            format_size(row.key.bytes),
            format_number(row.ours),
            format_number(row.theirs),
            row.peer.clone(),
            row.ratio.to_string(),
        ]);
    }
    page.heading("Where another MPI is ahead");
    if table.rows.is_empty() {
        page.text("In no case of this run.");
    }
    page.table(table);
}

/// Adds the tests that this MPI lacks, with the results of the other MPIs.
pub fn list_others_alone(comparison: &Comparison, page: &mut Document) {
    let Some((ours, others)) = comparison.reports.split_first() else {
        return;
    };
    let mut is_headed = false;
    for missing in &ours.missing {
        let cases = others.iter().flat_map(|r| &r.cases).filter(|c| c.test == missing.test);
        let tables: BTreeSet<CaseKey> = cases.map(|c| without_size(&c.key())).collect();
        if tables.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut is_headed, true) {
            page.heading("What only the others have");
        }
        for table in tables {
            add_others(others, &table, comparison.statistic, page);
        }
        let reason = missing.reason.lines().next().unwrap_or_default();
        page.text(format!("This MPI: missing ({reason})."));
    }
}

fn add_others(others: &[Report], key: &CaseKey, statistic: Statistic, page: &mut Document) {
    let cases_of = |report: &Report| -> BTreeMap<u64, String> {
        let alike = report.cases.iter().filter(|c| without_size(&c.key()) == *key);
        let figure = |c: &Case| Some((c.bytes, format_number(statistic.take(&c.samples)?)));
        alike.filter_map(figure).collect()
    };
    let columns = others.iter().map(|r| (r.run.mpi.name.as_str(), cases_of(r)));
    let columns: Vec<_> = columns.filter(|(_, cases)| !cases.is_empty()).collect();
    page.text(format!(
        "{} {}, {} ({}, {}, {} of all rounds together):",
        key.test,
        key.variant,
        count(key.ranks, "rank"),
        key.operation,
        key.unit,
        statistic.name()
    ));
    let mut table = tabulate(["bytes"].into_iter().chain(columns.iter().map(|(name, _)| *name)));
    let sizes: BTreeSet<u64> = columns.iter().flat_map(|(_, c)| c.keys().copied()).collect();
    for size in sizes {
        let cells = columns.iter().map(|(_, cases)| {
            let figure = cases.get(&size).cloned();
            figure.unwrap_or_else(|| "-".to_owned())
        });
        table.row([format_size(size)].into_iter().chain(cells));
    }
    page.table(table);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::super::comparison::tests::make_comparison;
    use super::*;
    use crate::testing::samples::make_case;

    fn section(list: fn(&Comparison, &mut Document), comparison: &Comparison) -> String {
        let mut page = Document::default();
        list(comparison, &mut page);
        page.to_markdown()
    }

    #[test]
    fn cases__in_which_another_is_ahead_stand_together() {
        let mut comparison = make_comparison();
        let text = section(list_behind, &comparison);
        assert!(text.contains("| latency | 2 | 4 Ki | 1005 | 500.0 | alpha | 2.01 ["), "{text}");
        assert_eq!(text.matches("| alpha |").count(), 1, "{text}");
        comparison.rows.retain(|row| !row.is_behind());
        assert!(section(list_behind, &comparison).contains("no case"));
    }

    #[test]
    fn test__that_only_others_have_is_shown_with_our_reason() {
        let mut comparison = make_comparison();
        assert_eq!(section(list_others_alone, &comparison), "");
        comparison.reports[1].cases.push(Case {
            test: "put".into(),
            operation: "MPI_Put/MPI_Win_flush".into(),
            ..make_case(64, &[444.0])
        });
        let text = section(list_others_alone, &comparison);
        assert!(text.contains("| bytes | alpha |"), "{text}");
        assert!(text.contains("| 64 | 444.0 |"), "{text}");
        assert!(text.contains("missing (MPI_Win_create: MPI_ERR_UNSUPPORTED_OPERATION)"), "{text}");
    }
}
