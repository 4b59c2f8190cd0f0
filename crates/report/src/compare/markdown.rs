//! A comparison as a Markdown page, and the table of one test in a file such as README.md.

mod beside;

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::comparison::{Comparison, Row};
use super::show::{describe_test, name_test};
use crate::document::{Column, Document, Table, wrap_prose};
use crate::format::{behind, format_number, format_optional};
use crate::record::{CaseKey, Run};
use crate::statistics::find_median;

/// Start of the line before the table in a file such as README.md, and the line after the table.
const BEGIN: &str = "<!-- comparison:";
const END: &str = "<!-- end of comparison -->";

const README_TEST: &str = "latency";

const SOURCE: &str = "`make results` writes this page; do not edit it by hand. `measuring.md` \
explains how to read it and how the results are measured.";

const READING: &str = "In each round both MPIs ran, in alternating order. The ratio of this MPI \
to the other MPI follows the time: the geometric mean over the rounds with its 95 % interval. The \
ratio is **bold** where the other MPI is ahead, `~` where the interval contains 1, and plain \
where this MPI is ahead. `hardware` is the time that the machine itself needs: a cache line one \
way between the two processors, or one copy of the message, whichever is larger. It is measured \
in turn with this MPI. For a ping-pong of 4 KiB or more, `hardware` is the bare pipeline of the \
two processors plus a cache line, measured before and after each run. A virtual machine on a \
shared host is noisy: trust the ratios more than the times.";

/// Formats the page. `levels` is a section after the tables.
pub fn format_page(comparison: &Comparison, levels: Option<&str>) -> String {
    let mut page = Document::default();
    page.text("# Results: this MPI beside others");
    page.text(SOURCE);
    if let Some(ours) = comparison.reports.first() {
        page.text(describe_machine(&ours.run));
    }
    page.table(list_mpis(comparison));
    page.text(format!(
        "The figure of a run is the {}; the table shows its median over {} rounds. {READING}",
        comparison.statistic.name(),
        comparison.rounds
    ));
    page.table(count_verdicts(comparison));
    beside::list_behind(comparison, &mut page);
    for key in list_tables(comparison) {
        add_table(comparison, &key, &mut page);
    }
    levels.iter().for_each(|section| page.text(section.trim()));
    beside::list_others_alone(comparison, &mut page);
    if !comparison.missing.is_empty() {
        page.heading("Not compared");
    }
    for missing in &comparison.missing {
        let reason = missing.reason.lines().next().unwrap_or_default();
        let what = behind(", ", &missing.what);
        page.pair(format!("{}{what}", missing.mpi), reason);
    }
    page.to_markdown()
}

fn describe_machine(run: &Run) -> String {
    let machine = &run.machine;
    let virtual_of = |by: &String| format!(", a virtual machine ({by})");
    format!(
        "{}, {}; {}, {} processors{}, Linux {}; clock {}, steps of {} ns.",
        run.tool,
        format_date(run.started_unix_s),
        machine.processor,
        machine.processors,
        machine.hypervisor.as_ref().map_or(String::new(), virtual_of),
        machine.kernel,
        run.clock.source,
        format_number(run.clock.resolution_ns),
    )
}

/// Formats a date (Gregorian, UTC) from seconds since 1970.
pub fn format_date(unix_s: u64) -> String {
    let mut days = unix_s / 86_400;
    let mut year = 1970;
    let is_leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// Creates a table with these headings; Markdown needs no alignment.
pub(super) fn tabulate<'a>(names: impl IntoIterator<Item = &'a str>) -> Table {
    Table::new(names.into_iter().map(|name| Column::text(name, 0)))
}

fn list_mpis(comparison: &Comparison) -> Table {
    let mut table = tabulate(["name", "version that it reports"]);
    for mpi in comparison.reports.iter().map(|r| &r.run.mpi) {
        table.row([&mpi.name, &mpi.version]);
    }
    table
}

fn count_verdicts(comparison: &Comparison) -> Table {
    let mut table = tabulate(["against", "ahead", "cannot tell", "behind"]);
    for peer in comparison.list_peers() {
        let rows: Vec<&Row> = comparison.rows.iter().filter(|r| r.peer == peer).collect();
        let behind = rows.iter().filter(|r| r.is_behind()).count();
        let open = rows.iter().filter(|r| r.says == "cannot tell").count();
        let ahead = rows.len() - behind - open;
        let counts = [ahead, open, behind].map(|n| n.to_string());
        table.row([peer.to_owned()].into_iter().chain(counts));
    }
    table
}

/// Returns the key of the table to which a case belongs. A table has all sizes, so the size in its key is 0.
pub(super) fn without_size(key: &CaseKey) -> CaseKey {
    CaseKey { bytes: 0, ..key.clone() }
}

fn list_tables(comparison: &Comparison) -> Vec<CaseKey> {
    let mut seen = BTreeSet::new();
    let keys = comparison.rows.iter().map(|row| without_size(&row.key));
    keys.filter(|key| seen.insert(key.clone())).collect()
}

fn add_table(comparison: &Comparison, key: &CaseKey, page: &mut Document) {
    let is_of = |r: &&Row| without_size(&r.key) == *key;
    let rows: Vec<&Row> = comparison.rows.iter().filter(is_of).collect();
    let Some(first) = rows.first() else {
        return;
    };
    let peers = comparison.list_peers();
    let floor = |bytes: u64| {
        let key = CaseKey { bytes, ..key.clone() };
        find_floor(comparison, &key)
    };
    let sizes = list_sizes(&rows);
    let hardware = sizes.iter().any(|&size| floor(size).is_some()).then_some("hardware");
    let names = ["bytes"].into_iter().chain(hardware).chain(["this MPI"]);
    let mut table = tabulate(names.chain(peers.iter().copied()));
    for size in sizes {
        let of_size: Vec<&Row> = rows.iter().copied().filter(|r| r.key.bytes == size).collect();
        let least = hardware.map(|_| format_optional(floor(size)));
        let theirs = find_peers(&of_size, &peers).map(|row| {
            let cell = |r: &Row| format!("{} ({})", format_number(r.theirs), mark_ratio(r));
            row.map_or("-".to_owned(), cell)
        });
        let first = [format_size(size)].into_iter().chain(least);
        table.row(first.chain([format_own(&of_size)]).chain(theirs));
    }
    page.heading(format!("{}, {} ranks", name_test(first), key.ranks));
    page.text(describe_test(first));
    page.table(table);
}

fn find_peers<'a>(
    rows: &'a [&'a Row], peers: &'a [&'a str],
) -> impl Iterator<Item = Option<&'a Row>> {
    peers.iter().map(|peer| rows.iter().copied().find(|r| r.peer == *peer))
}

fn list_sizes(rows: &[&Row]) -> BTreeSet<u64> {
    rows.iter().map(|r| r.key.bytes).collect()
}

fn format_own(rows: &[&Row]) -> String {
    format_optional(find_median(rows.iter().map(|r| r.ours)))
}

fn find_floor(comparison: &Comparison, key: &CaseKey) -> Option<f64> {
    let ours = comparison.reports.first()?;
    let case = ours.cases.iter().find(|c| c.key() == *key)?;
    comparison.statistic.take(case.floor.as_ref()?)
}

fn mark_ratio(row: &Row) -> String {
    let ratio = row.ratio;
    match row.says.as_str() {
        _ if row.is_behind() => format!("**{ratio}**"),
        "cannot tell" => format!("~{ratio}"),
        _ => ratio.to_string(),
    }
}

pub(super) fn format_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} Mi", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} Ki", b >> 10),
        b => b.to_string(),
    }
}

/// Formats the table of a ping-pong of two ranks.
pub fn format_summary(comparison: &Comparison) -> String {
    let is_of =
        |r: &&Row| r.key.test == README_TEST && r.key.ranks == 2 && r.key.variant.is_empty();
    let rows: Vec<&Row> = comparison.rows.iter().filter(is_of).collect();
    let peers = comparison.list_peers();
    let names = ["bytes", "Fastpath"].into_iter().chain(peers.iter().copied());
    let mut table = tabulate(names.chain(["Fastpath / best other MPI"]));
    for size in list_sizes(&rows) {
        let of_size: Vec<&Row> = rows.iter().copied().filter(|r| r.key.bytes == size).collect();
        let theirs = find_peers(&of_size, &peers)
            .map(|row| row.map_or("-".to_owned(), |r| format_number(r.theirs)));
        // The peer with the worst ratio by pairs, which need not have the shortest time.
        let worst = of_size.iter().max_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio));
        let worst = worst.map_or("-".to_owned(), |row| mark_ratio(row));
        let first = [format_size(size), format_own(&of_size)];
        table.row(first.into_iter().chain(theirs).chain([worst]));
    }
    table.to_markdown()
}

/// Returns the text of a file with the table between its marks replaced.
///
/// # Errors
/// The marks are missing, or out of order.
pub fn replace_table(file: &str, comparison: &Comparison) -> Result<String> {
    let missing =
        || format!("the file lacks the lines `{BEGIN} ... -->` and `{END}`; add these lines");
    let begin = file.find(BEGIN).with_context(missing)?;
    let table = begin + file[begin..].find('\n').with_context(missing)? + 1;
    let end = table + file[table..].find(END).with_context(missing)?;
    let mut head = String::new();
    if let Some(ours) = comparison.reports.first() {
        let text = format!(
            "Ping-pong, half a round trip in ns: {} of each run, then median over {} alternating \
             rounds. Ratio with its 95 % interval: **bold** where another MPI is ahead, `~` \
             where the interval holds 1 ({}, {}, {}, {} processors{}).",
            comparison.statistic.name(),
            comparison.rounds,
            ours.run.tool,
            format_date(ours.run.started_unix_s),
            ours.run.machine.processor,
            ours.run.machine.processors,
            if ours.run.machine.hypervisor.is_some() { ", a virtual machine" } else { "" },
        );
        head = wrap_prose(&text) + "\n";
    }
    let summary = format_summary(comparison);
    Ok(format!("{}{head}{summary}{}", &file[..table], &file[end..]))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::comparison::tests::make_comparison;
    use super::*;
    use crate::testing::samples::make_case;

    #[test]
    fn page__marks_who_is_ahead_and_names_what_is_missing() {
        let mut comparison = make_comparison();
        let page = format_page(&comparison, None);
        assert!(page.contains("## latency, 2 ranks"), "{page}");
        assert!(page.contains("| 8 | 57.75 | 100.0 (0.50 ["), "{page}");
        comparison.reports[0].cases.push(make_case(8, &[1.0]));
        let page = format_page(&comparison, None);
        assert!(page.contains("| 8 | 58.01 | 57.75 | 100.0 (0.50 ["), "{page}");
        assert!(page.contains("65.00 (~1.00 ["), "{page}");
        assert!(page.contains("500.0 (**2.01 ["), "{page}");
        assert!(page.contains("| alpha | 1 | 0 | 1 |"), "{page}");
        assert!(page.contains("- gamma: cannot run mpicc"), "{page}");
        assert!(page.contains("2023-11-14"), "{page}");
        let prose = page.lines().filter(|line| !line.starts_with('|'));
        assert_eq!(prose.filter(|line| line.len() > 120).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn section_of_levels__stands_behind_the_tables() {
        let mut comparison = make_comparison();
        comparison.reports[0].cases.clear();
        let page = format_page(&comparison, Some("## Levels\n\na table\n\n"));
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at("## latency, 2 ranks") < at("\n\n## Levels\n\na table\n"));
        assert!(at("a table\n\n## Not compared") > 0);
    }

    #[test]
    fn summary__gives_the_ratio_to_the_best_of_the_others() {
        let text = format_summary(&make_comparison());
        assert!(text.contains("| 8 | 57.75 | 100.0 | 65.00 | ~1.00 ["), "{text}");
        assert!(text.contains("| 4 Ki | 1002 | 500.0 | 2000 | **2.01 ["), "{text}");
    }

    #[test]
    fn table_of_a_file__is_renewed_between_its_marks() {
        let file = "before\n<!-- comparison: make results -->\nearlier\n<!-- end of comparison \
            -->\nafter\n";
        let new = replace_table(file, &make_comparison()).unwrap();
        assert!(new.starts_with("before\n<!-- comparison: make results -->\nPing-pong"));
        assert!(new.ends_with("|\n<!-- end of comparison -->\nafter\n"), "{new}");
        assert!(!new.contains("earlier"));
        assert!(replace_table("nothing", &make_comparison()).is_err());
    }

    #[test]
    fn dates__are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_700_000_000, "2023-11-14"),
            (1_735_689_599, "2024-12-31"),
        ] {
            assert_eq!(format_date(seconds), date);
        }
    }
}
