//! Comparisons on a terminal.

use fastpath_base::tell::count;

use super::comparison::{Comparison, Row};
use super::name_directions;
use super::stored::{CaseChange, Changes, Rule};
use crate::document::{Document, Table};
use crate::format::{behind, format_number, size};
use crate::lists::{group, unique};
use crate::output::chart::{Charset, Curve};
use crate::output::table::TableView;
use crate::output::{head, plot};
use crate::record::interval::{Ratio, Verdict};
use crate::record::{CaseKey, Level};

/// A ratio with its interval.
pub fn format_ratio(ratio: &Ratio) -> String {
    let none = if ratio.interval.is_none() { " [no interval]" } else { "" };
    format!("{ratio:.3}{none}")
}

/// Table with the columns that both kinds of comparison share. `one` and `two` are the headings of the compared values.
fn make_table([one, two]: [&str; 2]) -> Table {
    Table::of(&format!("test|ranks>|bytes>8|{one}>8|{two}>8||ratio"))
}

/// Places of the columns of [`make_table`] and of a comparison of MPIs.
const RANKS: usize = 1;
const FLOOR: [usize; 3] = [8, 9, 10];
const LINE: usize = 11;

/// Drops columns until the table fits: first the times of a line, then floors, then a number of ranks that all rows
/// share.
fn narrow(table: &mut Table, view: TableView) {
    if view.is_wide {
        return;
    }
    let ranks = unique(table.rows.iter().filter_map(|row| Some(&row.get(RANKS)?.text)));
    let order: [&[usize]; 3] = [&[LINE], &FLOOR, &[RANKS]];
    let dropped = if ranks.len() == 1 { &order[..] } else { &order[..2] };
    table.narrow(view.columns, dropped);
}

fn make_cells(name: String, key: &CaseKey, values: [f64; 2], ratio: &Ratio) -> Vec<String> {
    let [one, two] = values.map(format_number);
    let (ranks, bytes) = (key.ranks.to_string(), key.bytes.to_string());
    vec![name, ranks, bytes, one, two, key.unit.clone(), format_ratio(ratio)]
}

/// Formats a comparison of several MPIs in one run: the result with each, their tables, and the conditions.
pub fn format_comparison(comparison: &Comparison, view: TableView) -> String {
    let peers = comparison.list_peers();
    let mut said = Document::default();
    peers.iter().for_each(|peer| said.text(describe_result(comparison, peer)));
    for missing in &comparison.missing {
        let what = behind(", ", &missing.what);
        said.text(format!("{}{what}: not compared: {}", missing.mpi, missing.reason));
    }
    let mut text = said.to_text_within(view.wraps_at);
    for peer in &peers {
        text += &format_peer(comparison, peer, view);
    }
    let mut said = Document::default();
    said.text("");
    if view.explains {
        READING.lines().for_each(|line| said.text(line));
    }
    let facts = comparison.reports.first().map(|ours| head::describe_run(&ours.run));
    facts.iter().flat_map(|text| text.lines()).for_each(|line| said.text(line));
    view.describe_options(OPTIONS).iter().for_each(|options| said.text(options));
    text + &said.to_text_within(view.wraps_at)
}

/// Options that print more. See [`TableView::describe_options`].
const OPTIONS: [&str; 3] =
    ["--wide: all columns", "--explain: meaning of the columns", "--plot: charts"];

const READING: &str = "\
ratio: ours/theirs, geometric mean over the rounds with its 95 % interval
floor: the larger of a cache line one way and one copy of the message; for a ping-pong from 4 KiB, \
the bare pipeline plus a line; right of floor, ours and theirs are multiples of the floor
line: ns of a cache line one way during ours/theirs, and the number of rounds in which the two \
lines differ by more than half";

/// Describes the verdicts about a peer, and the case in which it is ahead most.
pub fn describe_result(comparison: &Comparison, peer: &str) -> String {
    let rows = || comparison.rows.iter().filter(|r| r.peer == peer);
    let words: Vec<String> = group(rows().map(|row| (&row.says, ())))
        .iter()
        .map(|(says, all)| format!("{} {says}", all.len()))
        .collect();
    let worse = rows().filter(|row| row.is_behind());
    let worst =
        describe_worst(worse.map(|row| (name_test(row), &row.key, row.ratio.ratio)), "theirs");
    format!("against {peer}: {}{worst}", words.join(", "))
}

/// Names the case whose ratio to the `other` value is farthest from 1, by test, size and ranks; empty without cases.
fn describe_worst<'a>(
    worse: impl Iterator<Item = (String, &'a CaseKey, f64)>, other: &str,
) -> String {
    let worst = worse.max_by(|(.., a), (.., b)| a.ln().abs().total_cmp(&b.ln().abs()));
    worst.map_or(String::new(), |(test, key, ratio)| {
        let (size, ranks) = (size(key.bytes), count(key.ranks, "rank"));
        format!("; worst: {test}, {size}, {ranks} ({ratio:.2} times {other})")
    })
}

/// Table of the cases that were compared with a peer.
pub fn tabulate_peer(comparison: &Comparison, peer: &str) -> Table {
    let mut table = make_table(["ours", "theirs"]);
    table.add_columns(["verdict", "floor>8", "ours>6", "theirs>6", "    line<8"]);
    let rows = || comparison.rows.iter().filter(|r| r.peer == peer);
    rows().for_each(|row| add_row(row, &mut table));
    table
}

fn format_peer(comparison: &Comparison, peer: &str, view: TableView) -> String {
    let rows = || comparison.rows.iter().filter(|r| r.peer == peer);
    let mut table = tabulate_peer(comparison, peer);
    narrow(&mut table, view);
    let mut said = Document::default();
    said.text("");
    said.text(format!(
        "against {peer} ({}): {} of each run, median over up to {} rounds",
        comparison.find_version(peer),
        comparison.statistic.name(),
        comparison.rounds,
    ));
    let head = said.to_text_within(view.wraps_at);
    let curves =
        rows().map(|row| (name_sweep(name_test(row), &row.key), &row.key, row.theirs, row.ours));
    let charts = if view.plots { draw_sweeps(curves, [peer, "ours"]) } else { String::new() };
    head + &table.to_text() + &charts
}

/// Name of the sweep over sizes that contains a case; empty unless the case is a time.
fn name_sweep(test: String, key: &CaseKey) -> String {
    match key.unit == "ns" {
        true => format!("{test}, {}", count(key.ranks, "rank")),
        false => String::new(),
    }
}

/// Draws a chart of each sweep. Each of `cases` has the name of its sweep, and the values of the dots and of the line.
fn draw_sweeps<'a>(
    cases: impl Iterator<Item = (String, &'a CaseKey, f64, f64)>, [dots, line]: [&str; 2],
) -> String {
    let charset = Charset::of_locale();
    let sweeps = group(
        cases
            .filter(|(name, ..)| !name.is_empty())
            .map(|(name, key, one, two)| (name, (key.bytes, one, two))),
    );
    let mut text = String::new();
    for (name, mut points) in sweeps {
        points.sort_by_key(|point| point.0);
        let curve = |of: fn(&(u64, f64, f64)) -> f64, is_dotted| {
            let points = points.iter().map(|point| (point.0, of(point))).collect();
            Curve { points, is_dotted }
        };
        let curves = [curve(|point| point.1, true), curve(|point| point.2, false)];
        let title = format!("{name}: time by size in bytes (line: {line}, dots: {dots})");
        let lines = plot::draw_titled(&title, &curves, charset);
        text.extend(lines.into_iter().map(|line| line + "\n"));
    }
    text
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

/// Formats a comparison of stored results: the result, the table, and the rule.
pub fn format_changes(changes: &Changes, rule: Rule, view: TableView) -> String {
    let mut said = Document::default();
    let worse = changes.changes.iter().filter(|change| change.is_worse());
    let worse = worse.map(|change| (name_change(&change.key), &change.key, change.ratio.ratio));
    said.text(count_changes(changes) + &describe_worst(worse, "before"));
    changes.notes.iter().for_each(|note| said.text(format!("note: {note}")));
    for refused in &changes.refused {
        said.text(format!("{}: not compared: {}", refused.what, refused.reason));
    }
    said.text("");
    let mut table = tabulate_changes(changes);
    narrow(&mut table, view);
    let cases = changes
        .changes
        .iter()
        .map(|c| (name_sweep(name_change(&c.key), &c.key), &c.key, c.before, c.now));
    let charts = if view.plots { draw_sweeps(cases, ["before", "now"]) } else { String::new() };
    let mut rest = Document::default();
    rest.text("");
    rest.text(describe_rule(rule));
    if changes.changes.iter().any(|c| c.runs == [1, 1]) {
        rest.text(ONE_RUN);
    }
    let columns = view.wraps_at;
    said.to_text_within(columns) + &table.to_text() + &charts + &rest.to_text_within(columns)
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

/// Name of a test with its variant and level.
fn name_change(key: &CaseKey) -> String {
    match key.level {
        Level::Mpi => name_variant(key),
        level => format!("{} ({})", name_variant(key), level.name()),
    }
}

fn add_change(change: &CaseChange, table: &mut Table) {
    let key = &change.key;
    let mut cells = make_cells(name_change(key), key, [change.before, change.now], &change.ratio);
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
    use crate::testing::samples::{make_case, make_report};

    #[test]
    fn comparison__has_a_table_for_each_peer_with_its_version_and_sum() {
        let text = format_comparison(&make_comparison(), TableView::default());
        assert!(text.contains("against alpha (Alpha MPI 1.2)"), "{text}");
        assert!(text.contains("against beta"), "{text}");
        assert!(text.contains("1 faster, 1 slower"), "{text}");
        assert!(text.contains("1 cannot tell, 1 faster"), "{text}");
        assert!(text.contains("gamma: not compared: cannot run mpicc"), "{text}");
        assert!(text.contains("of each run, median over"), "{text}");
    }

    /// A comparison of two rounds, in which every row has floors and the times of a line.
    fn make_comparison_with_floors() -> Comparison {
        let beside = FloorComparison {
            floors: vec![(24.0, 26.0), (26.0, 20.0)],
            floor_of: Some("memory copy".into()),
            lines: vec![[60.0, 62.0], [60.0, 250.0]],
        };
        let mut comparison = make_comparison();
        comparison.rows = comparison.rows.into_iter().map(|row| row.with(&beside)).collect();
        comparison
    }

    #[test]
    fn rows__have_the_floor_and_the_lines_beside_them() {
        let mut comparison = make_comparison_with_floors();
        comparison.rows.truncate(1);
        let wide = TableView { is_wide: true, ..TableView::default() };
        let text = format_comparison(&comparison, wide);
        let row = text.lines().find(|l| l.starts_with("latency")).unwrap();
        assert!(row.contains("25.00   2.02   4.42"), "{row}");
        assert!(row.ends_with("60/156 (1 of 2)"), "{row}");
    }

    #[test]
    fn comparison__begins_with_its_results_and_fits_80_columns() {
        let comparison = make_comparison_with_floors();
        let text = format_comparison(&comparison, TableView::default());
        assert!(text.starts_with("against alpha: 1 faster, 1 slower; worst: "), "{text}");
        let rows = text.lines().filter(|line| line.contains('[') && line.contains(','));
        assert!(rows.clone().count() >= 4 && rows.clone().all(|row| row.len() <= 80), "{text}");
        assert!(!text.contains("geometric mean"), "{text}");
        let explained = TableView { explains: true, ..TableView::default() };
        assert!(format_comparison(&comparison, explained).contains("geometric mean"));
    }

    #[test]
    fn changes__are_drawn_on_request_and_name_the_worst() {
        let rule = Rule { statistic: Statistic::Median, threshold: 1.05, common_only: false };
        let (mut before, mut now) = (make_report(), make_report());
        before.cases = [8, 64].map(|bytes| make_case(bytes, &[100.0; 50])).to_vec();
        now.cases = vec![make_case(8, &[100.0; 50]), make_case(64, &[150.0; 50])];
        let changes = compare(&[before], &[now], rule);
        let text =
            format_changes(&changes, rule, TableView { plots: true, ..TableView::default() });
        let worst = "2 compared, 1 worse, 0 not compared; worst: latency, 64 B, 2 ranks (1.50 times before)";
        assert!(text.starts_with(worst), "{text}");
        assert!(
            text.contains("latency, 2 ranks: time by size in bytes (line: now, dots: before)"),
            "{text}"
        );
        assert!(!format_changes(&changes, rule, TableView::default()).contains("dots"));
    }

    #[test]
    fn changes__name_statistic_threshold_and_that_one_run_is_few() {
        let rule = Rule { statistic: Statistic::Median, threshold: 1.05, common_only: false };
        let text = format_changes(
            &compare(&[make_report()], &[make_report()], rule),
            rule,
            TableView::default(),
        );
        assert!(text.contains("median of each case"), "{text}");
        assert!(text.contains("exceeds 5.0 %"), "{text}");
        assert!(text.contains("one run per side"), "{text}");
        assert!(text.starts_with("4 compared, 0 worse, 0 not compared\n"), "{text}");
    }
}
