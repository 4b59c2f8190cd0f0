//! Comparisons on a terminal.

use super::comparison::{Comparison, Row};
use super::name_directions;
use super::stored::{CaseChange, Changes, Rule};
use crate::document::{Document, Table};
use crate::format::{behind, format_number};
use crate::lists::group;
use crate::output::head;
use crate::record::interval::{Ratio, Verdict};
use crate::record::{CaseKey, Level};

/// A ratio with its interval.
pub fn format_ratio(ratio: &Ratio) -> String {
    let none = if ratio.interval.is_none() { " [no interval]" } else { "" };
    format!("{ratio:.3}{none}")
}

/// Table with the columns that both kinds of comparison share. `one` and `two` are the headings of the compared values.
fn make_table([one, two]: [&str; 2]) -> Table {
    Table::of(&format!("test<30|ranks>5|bytes>8|{one}>10|{two}>10|<2|ratio<24"))
}

fn make_cells(name: String, key: &CaseKey, values: [f64; 2], ratio: &Ratio) -> Vec<String> {
    let [one, two] = values.map(format_number);
    let (ranks, bytes) = (key.ranks.to_string(), key.bytes.to_string());
    vec![name, ranks, bytes, one, two, key.unit.clone(), format_ratio(ratio)]
}

/// Formats a comparison of several MPIs in one run.
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
        let what = behind(", ", &missing.what);
        text += &format!("{}{what}: not compared: {}\n", missing.mpi, missing.reason);
    }
    text
}

const READING: &str = "ratio: ours/theirs, geometric mean over the rounds with its 95 % interval; \
                       floor: the larger of a cache line one way and one copy of the message;\nfor \
                       a ping-pong from 4 KiB, the bare pipeline plus a line; right of floor, ours \
                       and theirs are multiples of the floor; line: ns of a cache line one way \
                       during ours/theirs, and the number of rounds in which the two lines differ \
                       by more than half";

fn format_peer(comparison: &Comparison, peer: &str) -> String {
    let mut table = make_table(["ours", "theirs"]);
    table.add_columns(["verdict<11", "floor>9", "ours>7", "theirs>7", "    line<8"]);
    let rows = || comparison.rows.iter().filter(|r| r.peer == peer);
    rows().for_each(|row| add_row(row, &mut table));
    let words: Vec<String> = group(rows().map(|row| (&row.says, ())))
        .iter()
        .map(|(says, all)| format!("{} {says}", all.len()))
        .collect();
    format!(
        "\nagainst {peer} ({}): {} of each run, median over up to {} rounds;\n{READING}\n{}{}\n",
        comparison.find_version(peer),
        comparison.rounds,
        comparison.statistic.name(),
        table.to_text(),
        words.join(", ")
    )
}

/// Name of a test with its variant and window.
pub fn name_test(row: &Row) -> String {
    let window = row.key.window.map_or(String::new(), |window| format!(" w{window}"));
    name_variant(&row.key) + &window
}

fn name_variant(key: &CaseKey) -> String {
    format!("{} {}", key.test, key.variant).trim_end().to_owned()
}

fn add_row(row: &Row, table: &mut Table) {
    let mut cells = make_cells(name_test(row), &row.key, [row.ours, row.theirs], &row.ratio);
    cells.push(row.says.clone());
    let (floor, lines) = (row.find_floor(), row.find_lines());
    if floor.is_some() || lines.is_some() {
        cells.extend(match floor {
            Some([floor, ours, theirs]) => {
                [format_number(floor), format!("{ours:.2}"), format!("{theirs:.2}")]
            }
            None => ["-"; 3].map(str::to_owned),
        });
    }
    if let Some([ours, theirs]) = lines {
        let uneven = match row.count_uneven() {
            0 => String::new(),
            count => format!(" ({count} of {})", row.beside.lines.len()),
        };
        cells.push(format!("{:>8}{uneven}", format!("{ours:.0}/{theirs:.0}")));
    }
    table.row(cells);
}

/// Formats a comparison of stored results.
pub fn format_changes(changes: &Changes, rule: Rule) -> String {
    let mut text: String = changes.notes.iter().map(|note| format!("note: {note}\n")).collect();
    text += &describe_rule(rule);
    text.push('\n');
    text += &tabulate_changes(changes).to_text();
    for refused in &changes.refused {
        text += &format!("{}: not compared: {}\n", refused.what, refused.reason);
    }
    if changes.changes.iter().any(|c| c.runs == [1, 1]) {
        text += ONE_RUN;
        text.push('\n');
    }
    text + &count_changes(changes) + "\n"
}

/// Formats a comparison of stored results as a Markdown page.
pub fn format_changes_page(changes: &Changes, rule: Rule) -> String {
    let mut page = Document::default();
    page.text("# Results: before and now");
    page.text(describe_rule(rule) + ".");
    changes.notes.iter().for_each(|note| page.text(format!("Note: {note}.")));
    page.table(tabulate_changes(changes));
    if changes.changes.iter().any(|c| c.runs == [1, 1]) {
        page.text(format!("{ONE_RUN}."));
    }
    page.text(count_changes(changes) + ".");
    if !changes.refused.is_empty() {
        page.heading("Not compared");
    }
    for refused in &changes.refused {
        page.pair(&refused.what, &refused.reason);
    }
    page.to_markdown()
}

const ONE_RUN: &str = "one run per side: the interval covers the noise within a run, not between \
    runs; pass several files per side, separated by commas, to cover both";

fn describe_rule(rule: Rule) -> String {
    let percent = (rule.threshold - 1.0) * 100.0;
    let name = rule.statistic.name();
    format!(
        "{name} of each case; ratio now/before with its 95 % interval; a change counts if it \
         exceeds {percent:.1} %"
    )
}

fn tabulate_changes(changes: &Changes) -> Table {
    let mut table = make_table(["before", "now"]);
    table.add_columns(["verdict"]);
    changes.changes.iter().for_each(|change| add_change(change, &mut table));
    table
}

fn count_changes(changes: &Changes) -> String {
    let worse = changes.changes.iter().filter(|c| c.is_worse()).count();
    let (all, refused) = (changes.changes.len(), changes.refused.len());
    format!("{all} compared, {worse} worse, {refused} not compared")
}

/// Verdict of a change as text.
pub fn describe_verdict(change: &CaseChange) -> &'static str {
    let [below, above] = name_directions(change.key.of);
    match change.verdict {
        Verdict::Below => below,
        Verdict::Above => above,
        Verdict::CannotTell => "no significant change",
    }
}

fn add_change(change: &CaseChange, table: &mut Table) {
    let key = &change.key;
    let mut name = name_variant(key);
    if key.level != Level::Mpi {
        name += &format!(" ({})", key.level.name());
    }
    let mut cells = make_cells(name, key, [change.before, change.now], &change.ratio);
    cells.push(describe_verdict(change).to_owned());
    table.row(cells);
}

/// Describes the quantity in the table of a test.
pub fn describe_test(row: &Row) -> String {
    let window = row.key.window.map_or(String::new(), |window| format!(", windows of {window}"));
    format!("{}; {}{window}, {}", row.key.operation, row.key.of.text(), row.key.unit)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::Statistic;
    use super::super::comparison::FloorComparison;
    use super::super::comparison::tests::make_comparison;
    use super::super::stored::compare;
    use super::*;
    use crate::testing::samples::make_report;

    #[test]
    fn comparison__has_a_table_for_each_peer_with_its_version_and_sum() {
        let text = format_comparison(&make_comparison());
        assert!(text.contains("against alpha (Alpha MPI 1.2)"), "{text}");
        assert!(text.contains("against beta"), "{text}");
        assert!(text.contains("1 faster, 1 slower"), "{text}");
        assert!(text.contains("1 cannot tell, 1 faster"), "{text}");
        assert!(text.contains("gamma: not compared: cannot run mpicc"), "{text}");
        assert!(text.contains("of each run, median over"), "{text}");
    }

    #[test]
    fn rows__have_the_floor_and_the_lines_beside_them() {
        let mut comparison = make_comparison();
        let beside = FloorComparison {
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
        let rule = Rule { statistic: Statistic::Median, threshold: 1.05, common_only: false };
        let text = format_changes(&compare(&[make_report()], &[make_report()], rule), rule);
        assert!(text.contains("median of each case"), "{text}");
        assert!(text.contains("exceeds 5.0 %"), "{text}");
        assert!(text.contains("one run per side"), "{text}");
        assert!(text.contains("4 compared, 0 worse, 0 not compared"), "{text}");
    }
}
