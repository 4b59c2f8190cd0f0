//! Results as a table. The unit and the meaning of a time are above each test's rows. A row whose time has another
//! meaning states that meaning.

use fastpath_base::topology;

use crate::catalogue::find;
use crate::document;
use crate::format::megabytes_per_s;
use crate::record::{Case, Clock, Level};
use crate::statistics::is_same_line;

/// A table that grows with each case.
#[derive(Debug, Default)]
pub struct CaseTable {
    /// Test, ranks and level of the current rows.
    group: Option<(String, u32, Level)>,
    /// Meaning of a time, as printed above the current rows.
    headed: String,
    columns: document::Table,
}

/// Formats a number of ranks.
pub fn count_ranks(ranks: u32) -> String {
    format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" })
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
    /// Returns the lines for one more case.
    pub fn add(&mut self, case: &Case) -> Vec<String> {
        let mut lines = Vec::new();
        let time = describe_time(case);
        let group = (case.test.clone(), case.ranks, case.level);
        if self.group.as_ref() != Some(&group) {
            self.group = Some(group);
            self.headed = time.clone();
            self.columns = make_columns(variant_width(&case.test).max(case.variant.len()));
            lines.extend([String::new(), say_head(case), self.columns.head()]);
        }
        let mark = match case.checked {
            Some(false) => "  WRONG CONTENTS",
            _ => "",
        };
        let other = match time == self.headed {
            true => String::new(),
            false => format!("  ({time})"),
        };
        lines.push(self.columns.format_row(list_cells(case)) + mark + &other);
        for (name, value) in &case.defined {
            lines.push(format!("{:>9}   {name}: {value:.1} {}", "", case.unit));
        }
        if !case.counts.is_empty() {
            let said: Vec<String> =
                case.counts.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
            lines.push(format!("{:>9}   {}", "", said.join(", ")));
        }
        lines
    }
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

fn say_head(case: &Case) -> String {
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
        count_ranks(case.ranks),
        case.operation,
        describe_time(case)
    )
}

/// Creates the columns, with variants of `width` characters.
fn make_columns(width: usize) -> document::Table {
    const TIMES: &str = "min>9|median>9|mean>9|p90>9|p99>9|p99.9>9|max>9";
    const OTHERS: &str = "samples>8|each>5|MB/s>9|M/s>8|floor>8|ratio>7|line>7";
    document::Table::of(&format!("bytes>9|variant<{width}|{TIMES}|{OTHERS}"))
}

fn list_cells(case: &Case) -> Vec<String> {
    let mut cells = vec![case.bytes.to_string(), case.variant.clone()];
    let Some(s) = case.samples.summarize() else {
        cells.push("no samples".to_owned());
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

/// Legend of the columns, once, below the tables.
pub const LEGEND: &str = "\
each: number of operations in a sample, which is their mean. Samples of the warm-up do not count.
MB/s (MB = 10^6 bytes), M/s (million messages a second) and ratio (to the floor) refer to medians.
floor: median of the larger of a cache line one way and one copy of the message, measured in turn by
the same ranks. For a ping-pong from 4 KiB: the bare pipeline (fastpath bench copy) plus a line,
measured before the run; stored results also hold the time after it. For accesses to files: pwrite
or pread of the same bytes; for pwrite and pread: a copy.
line: ns of a cache line one way before/after the samples. !: the cache line took another time when
the bare pipeline was measured, so floor and ratio mean little until both are measured again, after
the run.
p99 etc.: nearest rank.";

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

    #[test]
    fn columns__stand_below_their_heads_in_every_variant() {
        for (test, variant) in [
            ("put", "load-store, each completed"),
            ("exit-skew", "reduce_scatter_block"),
            ("atomics", "compare_and_swap, load-store"),
            ("idle", "idle=barrier"),
        ] {
            let case = Case { test: test.into(), variant: variant.into(), ..make_case("null", 20) };
            let lines = CaseTable::default().add(&case);
            let [.., columns, row] = &lines[..] else {
                panic!("{lines:?}");
            };
            assert_eq!(columns.len(), row.len(), "{columns}\n{row}");
        }
    }

    #[test]
    fn table__heads_each_test_once_with_unit_and_of() {
        let mut table = CaseTable::default();
        let first = table.add(&make_case("64", 100)).join("\n");
        assert!(first.contains("ns of one message"), "{first}");
        assert!(first.contains("p99.9"));
        let second = table.add(&make_case("64", 100));
        assert!(second.len() == 1 && !second[0].contains("ns of"), "{second:?}");
        // A row whose time has another meaning states that meaning.
        let other = Case { of: Quantity::HalfRoundTrip, ..make_case("null", 100) };
        let third = table.add(&other);
        assert!(third.len() == 1 && third[0].ends_with("  (ns of half a round trip)"), "{third:?}");
    }
}
