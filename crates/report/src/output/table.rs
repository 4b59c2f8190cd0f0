//! Results as a table. The unit and the meaning of a time are above each test's rows. A row whose time has another
//! meaning states that meaning.

use fastpath_base::tell::count;
use fastpath_base::topology;

use crate::catalogue::find;
use crate::document::{self, terminal::wrap_lines};
use crate::format::megabytes_per_s;
use crate::headline;
use crate::output::chart::Charset;
use crate::output::plot;
use crate::record::{Case, Clock, Level};
use crate::screen;
use crate::statistics::is_same_line;

/// Form of the tables on the standard output.
#[derive(Clone, Copy, Debug)]
pub struct TableView {
    /// Width of tables, in columns.
    pub columns: usize,
    /// Width at which text is wrapped; `None`: not at all.
    pub wraps_at: Option<usize>,
    /// Whether tables have every statistic, whatever their width.
    pub is_wide: bool,
    /// Whether the meaning of the columns and the conditions follow the tables.
    pub explains: bool,
    /// Whether a chart follows each table.
    pub plots: bool,
    /// Whether each case is printed as soon as it is measured, without a headline.
    pub streams: bool,
}

impl Default for TableView {
    fn default() -> TableView {
        TableView {
            columns: screen::COLUMNS,
            wraps_at: None,
            is_wide: false,
            explains: false,
            plots: false,
            streams: false,
        }
    }
}

impl TableView {
    /// Describes the options among `--wide`, `--explain` and `--plot` that are not given; `None` if all are.
    pub fn describe_options(self, options: [&str; 3]) -> Option<String> {
        let given = [self.is_wide, self.explains, self.plots];
        let others = options.into_iter().zip(given).filter(|(_, is_given)| !is_given);
        let text = others.map(|(text, _)| text).collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then_some(text)
    }
}

/// Tables of cases: a group of rows for each test, number of ranks and level.
#[derive(Debug, Default)]
pub struct CaseTable {
    view: TableView,
    /// Cases of the current group, until all of them are measured.
    cases: Vec<Case>,
    /// Test, ranks and level of the current rows.
    group: Option<(String, u32, Level)>,
    /// Meaning of a time, as printed above the current rows.
    headed: String,
    /// Other meanings of a time in the current group.
    others: Vec<String>,
    /// Places in [`COLUMNS`] of the columns of the current group.
    chosen: Vec<usize>,
    columns: document::Table,
}

/// Describes two processors and their distance.
pub fn describe_pair(one: i32, two: i32) -> String {
    let known = usize::try_from(one).ok().zip(usize::try_from(two).ok());
    match known.and_then(|(one, two)| topology::find_distance(one, two)) {
        Some(distance) => format!("processors {one} and {two} ({})", distance.describe()),
        None => format!("processors {one} and {two}"),
    }
}

/// Describes the clock in one line.
pub fn describe_clock(clock: &Clock) -> String {
    format!(
        "{}: {:.6} GHz within {:.2} ppm, resolution {:.1} ns, {:.1} ns to read",
        clock.source,
        clock.frequency_hz / 1e9,
        clock.frequency_error_ppm,
        clock.resolution_ns,
        clock.read_ns
    )
}

/// Millions of messages per second at the median, for window tests.
pub fn million_messages_per_s(case: &Case) -> Option<f64> {
    let median = case.samples.quantile(0.5)?;
    (case.window.is_some() && case.unit == "ns" && median > 0.0).then(|| 1e3 / median)
}

fn digits(value: f64) -> String {
    match value {
        v if v < 1000.0 => format!("{v:.1}"),
        v if v < 1e7 => format!("{v:.0}"),
        v => format!("{v:.3e}"),
    }
}

fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.decimals$}"))
}

impl CaseTable {
    /// Creates tables of this form.
    pub fn new(view: TableView) -> CaseTable {
        CaseTable { view, ..CaseTable::default() }
    }

    /// Adds a case, and returns the lines that can be printed: those of the case, or those of the previous group if the
    /// case begins another one.
    pub fn add(&mut self, case: &Case) -> Vec<String> {
        if self.view.streams {
            let is_new = self.group.as_ref() != Some(&name_group(case));
            let head = if is_new { self.begin(&[case]) } else { Vec::new() };
            return head.into_iter().chain(self.format_rows(case)).collect();
        }
        let is_other = self.cases.last().is_some_and(|last| name_group(last) != name_group(case));
        let lines = if is_other { self.finish() } else { Vec::new() };
        self.cases.push(case.clone());
        lines
    }

    /// Returns the lines of the last group: its result in a sentence, its table and its chart.
    pub fn finish(&mut self) -> Vec<String> {
        let cases = std::mem::take(&mut self.cases);
        let cases: Vec<&Case> = cases.iter().collect();
        if cases.is_empty() {
            return Vec::new();
        }
        // The first headline is the first line of the output.
        let mut lines = if self.group.is_none() { Vec::new() } else { vec![String::new()] };
        let charset = Charset::of_locale();
        if let Some(headline) = headline::describe(cases.iter().copied()) {
            lines.extend(self.wrap(&charset.encode(&headline)));
        }
        lines.extend(self.begin(&cases));
        cases.iter().for_each(|case| lines.extend(self.format_rows(case)));
        for (at, time) in std::mem::take(&mut self.others).iter().enumerate() {
            lines.extend(self.wrap(&format!("  {} {time}", "*".repeat(at + 1))));
        }
        if self.view.plots {
            lines.extend(plot::draw_cases(&cases, charset));
        }
        lines
    }

    fn wrap(&self, text: &str) -> Vec<String> {
        wrap_lines(text, self.view.wraps_at).lines().map(str::to_owned).collect()
    }

    /// Begins a group that has at least these cases; returns its head.
    fn begin(&mut self, cases: &[&Case]) -> Vec<String> {
        let Some(first) = cases.first() else {
            return Vec::new();
        };
        self.group = Some(name_group(first));
        self.headed = describe_time(first);
        let rows: Vec<Vec<String>> = cases.iter().map(|case| list_cells(case)).collect();
        let width = rows.iter().map(|row| row[VARIANT].chars().count()).max().unwrap_or(0);
        let is_open = self.view.streams || self.view.is_wide;
        let width = width.max(if is_open { variant_width(&first.test) } else { 0 });
        self.chosen = match self.view.is_wide {
            true => (0..COLUMNS.len()).collect(),
            // Two columns are left for the marks behind a row.
            false => choose_columns(&rows, width, self.view.columns - 2),
        };
        // The headline of a busy machine has no ratio to the floor either.
        if !is_open && headline::find_busy_share(cases).is_some() {
            self.chosen.retain(|&at| ![RATIO, LINE].contains(&at));
        }
        self.columns = make_columns(&self.chosen, width);
        let mut lines = vec![String::new()];
        lines.extend(self.wrap(&describe_group(first)));
        lines.push(self.columns.head());
        lines
    }

    /// Returns the text behind a row: nothing if the head states the meaning of its times; otherwise this meaning, or
    /// the mark of a line below the table that states it.
    fn mark_meaning(&mut self, time: String) -> String {
        if time == self.headed {
            return String::new();
        }
        if self.view.streams {
            return format!("  ({time})");
        }
        let known = self.others.iter().position(|other| *other == time);
        let at = known.unwrap_or(self.others.len());
        if known.is_none() {
            self.others.push(time);
        }
        format!(" {}", "*".repeat(at + 1))
    }

    /// Formats the lines of a case.
    fn format_rows(&mut self, case: &Case) -> Vec<String> {
        let mut all = list_cells(case);
        // Without its column, a line that marks a floor of another state leaves the mark to the ratio.
        if all[LINE].ends_with('!') && !self.chosen.contains(&LINE) {
            all[RATIO].push('!');
        }
        let mark = match case.checked {
            Some(false) => "  WRONG CONTENTS",
            _ => "",
        };
        let other = self.mark_meaning(describe_time(case));
        let cells = self.chosen.iter().map(|&at| all[at].clone());
        let mut lines = vec![self.columns.format_row(cells) + mark + &other];
        for (name, value) in &case.defined {
            lines.push(format!("{:>9}   {name}: {value:.1} {}", "", case.unit));
        }
        if !case.counts.is_empty() {
            let said: Vec<String> =
                case.counts.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
            let counts = format!("{:>9}   {}", "", said.join(", "));
            lines.extend(self.wrap(&counts));
        }
        lines
    }
}

fn name_group(case: &Case) -> (String, u32, Level) {
    (case.test.clone(), case.ranks, case.level)
}

/// Width of the longest variant of a test, in characters. Known in advance, because the table grows line by line.
fn variant_width(test: &str) -> usize {
    match test {
        "put" | "get" => "load-store, each completed".len(),
        "atomics" => "compare_and_swap, load-store".len(),
        "exit-skew" => "reduce_scatter_block".len(),
        _ => 14,
    }
}

fn describe_time(case: &Case) -> String {
    let window = case.window.map_or(String::new(), |w| format!("windows of {w}; "));
    format!("{window}{} of {}", case.unit, case.of.text())
}

/// Describes what the rows of a group are.
fn describe_group(case: &Case) -> String {
    let text = find(&case.test).map_or("", |t| t.text);
    let touched = match case.is_touched() {
        true => {
            ", each message written before it is sent and read after it is received, within the \
             measured time"
        }
        false => "",
    };
    format!(
        "{}{}: {text}; {}; {}{touched}; {}",
        case.test,
        case.level.phrase(),
        count(case.ranks, "rank"),
        case.operation,
        describe_time(case)
    )
}

/// Heading, least width and priority of each column. A narrow table lacks the columns with the largest priorities.
const COLUMNS: [(&str, usize, u8); 16] = [
    ("bytes", 9, 0),
    ("variant", 0, 0),
    ("min", 9, 5),
    ("median", 9, 0),
    ("mean", 9, 7),
    ("p90", 9, 8),
    ("p99", 9, 4),
    ("p99.9", 9, 9),
    ("max", 9, 6),
    ("samples", 8, 10),
    ("each", 5, 11),
    ("MB/s", 9, 2),
    ("M/s", 8, 3),
    ("floor", 8, 1),
    ("ratio", 7, 1),
    ("line", 7, 12),
];

/// Places of columns in [`COLUMNS`].
const VARIANT: usize = 1;
const MEDIAN: usize = 3;
const RATIO: usize = 14;
const LINE: usize = 15;

/// Chooses the columns that have values and fit into `columns`, with variants of `width` characters.
fn choose_columns(rows: &[Vec<String>], width: usize, columns: usize) -> Vec<usize> {
    let has_values = |at: usize| rows.iter().any(|row| !["", "-"].contains(&&row[at][..]));
    let mut order: Vec<usize> = (0..COLUMNS.len()).filter(|&at| has_values(at)).collect();
    order.sort_by_key(|&at| COLUMNS[at].2);
    let mut used = 0;
    let fitting = order.iter().take_while(|&&at| {
        used += 1 + if at == VARIANT { width } else { COLUMNS[at].1 };
        COLUMNS[at].2 == 0 || used <= columns + 1
    });
    let mut order: Vec<usize> = fitting.copied().collect();
    order.sort_unstable();
    order
}

/// Creates the chosen columns, with variants of `width` characters.
fn make_columns(chosen: &[usize], width: usize) -> document::Table {
    document::Table::new(chosen.iter().map(|&at| match at {
        VARIANT => document::Column::text(COLUMNS[at].0, width.max(COLUMNS[at].0.len())),
        _ => document::Column::number(COLUMNS[at].0, COLUMNS[at].1),
    }))
}

/// Formats the values of all [`COLUMNS`].
fn list_cells(case: &Case) -> Vec<String> {
    let mut cells = vec![case.bytes.to_string(), case.variant.clone()];
    let Some(s) = case.samples.summarize() else {
        cells.resize(COLUMNS.len(), String::new());
        cells[MEDIAN] = "no samples".to_owned();
        return cells;
    };
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5));
    cells.extend([s.min, s.median, s.mean, s.p90, s.p99, s.p999, s.max].map(digits));
    cells.extend([
        s.count.to_string(),
        case.timing.operations_per_sample.to_string(),
        optional(megabytes_per_s(case, s.median), 0),
        optional(million_messages_per_s(case), 2),
        floor.map_or_else(|| "-".to_owned(), digits),
        optional(floor.map(|f| s.median / f), 2),
        describe_lines(case),
    ]);
    cells
}

/// Describes the time of a cache line before and after the samples, and marks a floor measured with another one.
fn describe_lines(case: &Case) -> String {
    let Some([before, after]) = case.lines else {
        return "-".to_owned();
    };
    let other = |line: f64| ![before, after].iter().all(|&l| is_same_line(l, line));
    let mark = match case.floor_line.is_some_and(other) {
        true => "!",
        false => "",
    };
    format!("{before:.0}/{after:.0}{mark}")
}

/// Describes the largest overhead of timing on an operation.
pub fn describe_overhead(cases: &[Case]) -> String {
    let most = cases.iter().map(|c| c.timing.overhead_ns).fold(0.0, f64::max);
    format!(
        "Timing added at most {most:.2} ns to an operation (median of the loop with clock \
         readings, less that of the loop without)."
    )
}

/// Options that print more, once, below the tables. See [`TableView::describe_options`].
pub const OPTIONS: [&str; 3] =
    ["--wide: all statistics", "--explain: columns, floor, steps", "--plot: chart"];

/// Legend of the columns, once, below the tables.
pub const LEGEND: &str = "\
bytes: payload of a message or call. min to max: of all samples, in the unit above the table; p99 \
etc. are nearest rank.
each: number of operations in a sample, which is their mean. Samples of the warm-up do not count.
MB/s (MB = 10^6 bytes), M/s (million messages a second) and ratio (to the floor) refer to medians.
floor: median of the larger of a cache line one way and one copy of the message, measured in turn \
by the same ranks. For a ping-pong from 4 KiB: the bare pipeline (fastpath bench copy) plus a \
line, measured before the run; stored results also hold the time after it. For accesses to files: \
pwrite or pread of the same bytes; for pwrite and pread: a copy.
line: ns of a cache line one way before/after the samples. !: the cache line took another time \
when the bare pipeline was measured, so floor and ratio mean little until both are measured again, \
after the run.
";

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::Quantity;

    fn make_case(window: &str, median: u64) -> Case {
        let line = format!(
            r#"{{"test":"rate","variant":"","operation":"MPI_Isend","of":"message","unit":"ns","bytes":1000000,"ranks":2,"window":{window},"timing":{{"operations_per_sample":1,"warmup_operations":0,"overhead_ns":0}},"checked":null,"processors":[0,1],"samples":{{"count":1,"min":{median},"mean":{median},"max":{median},"buckets":[[{},1]]}}}}"#,
            median * 1000
        );
        serde_json::from_str(&line).expect("a case")
    }

    #[test]
    fn rates__are_decimal_megabytes_and_millions() {
        let case = make_case("64", 100_000);
        let rate = megabytes_per_s(&case, case.samples.quantile(0.5).unwrap()).unwrap();
        assert!((rate - 10_000.0).abs() < 1.0, "{rate}");
        let case = make_case("64", 20);
        assert_eq!(million_messages_per_s(&case), Some(50.0));
        assert_eq!(million_messages_per_s(&make_case("null", 20)), None);
    }

    /// Lines of tables with these cases.
    fn format(view: TableView, cases: &[Case]) -> Vec<String> {
        let mut table = CaseTable::new(view);
        let mut lines: Vec<String> = cases.iter().flat_map(|case| table.add(case)).collect();
        lines.extend(table.finish());
        lines
    }

    const WIDE: TableView = TableView {
        columns: 80,
        wraps_at: Some(80),
        is_wide: true,
        explains: false,
        plots: false,
        streams: false,
    };
    const NARROW: TableView = TableView { is_wide: false, ..WIDE };

    #[test]
    fn columns__stand_below_their_heads_in_every_variant() {
        for (test, variant) in [
            ("put", "load-store, each completed"),
            ("exit-skew", "reduce_scatter_block"),
            ("atomics", "compare_and_swap, load-store"),
            ("idle", "idle=barrier"),
        ] {
            let case = Case { test: test.into(), variant: variant.into(), ..make_case("null", 20) };
            for view in [WIDE, NARROW, TableView { streams: true, ..NARROW }] {
                let lines = format(view, std::slice::from_ref(&case));
                let [.., columns, row] = &lines[..] else {
                    panic!("{lines:?}");
                };
                assert_eq!(columns.len(), row.len(), "{columns}\n{row}");
                assert!(row.contains(variant), "{row}");
                assert!(view.is_wide || row.len() <= 80, "{row}");
            }
        }
    }

    #[test]
    fn table__narrows_to_its_columns_and_drops_empty_ones() {
        let cases = [make_case("64", 100), make_case("64", 200)];
        let heads = |columns: usize| -> Vec<String> {
            let lines = format(TableView { columns, ..NARROW }, &cases);
            let head = lines.iter().find(|line| line.contains("median")).unwrap();
            assert!(head.len() <= columns, "{head}");
            head.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(heads(42), ["bytes", "median", "MB/s", "M/s"]);
        let heads = heads(80);
        assert_eq!(heads, ["bytes", "min", "median", "mean", "p99", "max", "MB/s", "M/s"]);
        let wide = format(WIDE, &cases).join("\n");
        assert!(wide.contains("p99.9") && wide.contains("variant"), "{wide}");
    }

    #[test]
    fn busy_machine__has_no_ratio_in_a_narrow_table() {
        let floor = Some([50.0].into_iter().collect());
        let make = |percent| Case {
            processor_percent: Some(percent),
            bytes: 8,
            floor: floor.clone(),
            ..make_case("null", 100)
        };
        let has_ratio = |view, percent| {
            let lines = format(view, &[make(percent)]);
            let head = lines.iter().find(|line| line.contains("  median")).unwrap();
            head.split_whitespace().any(|column| column == "ratio")
        };
        assert!(has_ratio(NARROW, 99.0) && has_ratio(WIDE, 40.0));
        assert!(!has_ratio(NARROW, 40.0));
    }

    #[test]
    fn options__that_are_given_are_not_described() {
        let text = |view: TableView| view.describe_options(OPTIONS);
        let all = "--wide: all statistics; --explain: columns, floor, steps; --plot: chart";
        assert_eq!(text(NARROW).as_deref(), Some(all));
        let plot = "--explain: columns, floor, steps; --plot: chart";
        assert_eq!(text(WIDE).as_deref(), Some(plot));
        let every = TableView { explains: true, plots: true, ..WIDE };
        assert_eq!(text(every), None);
    }

    #[test]
    fn headline__is_first_in_each_group() {
        let mut cases = vec![make_case("64", 100), make_case("64", 100)];
        cases.push(Case { ranks: 4, ..make_case("64", 400) });
        let lines = format(NARROW, &cases);
        let is_headline = |line: &&String| line.starts_with("977 KiB: ");
        assert_eq!(lines.iter().filter(is_headline).count(), 2, "{lines:#?}");
        assert!(lines[0].starts_with("977 KiB: "), "{lines:#?}");
        assert!(lines[1].is_empty() && lines[3].contains("windows of 64"), "{lines:#?}");
    }

    #[test]
    fn floor_of_another_state__is_marked_without_its_column_too() {
        let case = Case {
            floor: Some([50.0].into_iter().collect()),
            floor_line: Some(200.0),
            lines: Some([60.0, 60.0]),
            ..make_case("null", 100)
        };
        for (view, mark) in [(WIDE, "60/60!"), (TableView { columns: 60, ..NARROW }, "2.00!")] {
            let lines = format(view, std::slice::from_ref(&case));
            assert!(lines.last().unwrap().ends_with(mark), "{lines:#?}");
        }
    }

    #[test]
    fn other_meaning__is_marked_and_stated_below() {
        let other = Case { of: Quantity::HalfRoundTrip, ..make_case("null", 100) };
        let lines = format(NARROW, &[make_case("64", 100), other]);
        let [.., row, note] = &lines[..] else { panic!("{lines:#?}") };
        assert!(row.ends_with(" *") && row.len() <= 80, "{lines:#?}");
        assert_eq!(note, "  * ns of half a round trip");
    }

    #[test]
    fn stream__heads_each_test_once_with_unit_and_of() {
        let mut table = CaseTable::new(TableView { streams: true, ..WIDE });
        let first = table.add(&make_case("64", 100)).join("\n");
        assert!(first.contains("ns of one message"), "{first}");
        assert!(first.contains("p99.9"));
        let second = table.add(&make_case("64", 100));
        assert!(second.len() == 1 && !second[0].contains("ns of"), "{second:?}");
        // A row whose time has another meaning states that meaning.
        let other = Case { of: Quantity::HalfRoundTrip, ..make_case("null", 100) };
        let third = table.add(&other);
        assert!(third.len() == 1 && third[0].ends_with("  (ns of half a round trip)"), "{third:?}");
        assert!(table.finish().is_empty());
    }
}
