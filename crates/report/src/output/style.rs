//! The columns of OSU's micro-benchmarks, perftest and the Intel MPI Benchmarks, each below the name of its statistic.

use fastpath_base::tell::count;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::Style;
use crate::data::{fill, table, values};
use crate::document::Table;
use crate::format::{behind, megabytes_per_s, million_per_s};
use crate::record::interval::standard_deviation;
use crate::record::{Case, Quantity, Summary};

/// A table in another tool's columns.
pub struct StyledTable {
    style: Style,
    /// Test, operation, ranks and variant of the current table.
    current: Option<(String, String, u32, String)>,
}

impl StyledTable {
    /// An empty table.
    pub fn new(style: Style) -> StyledTable {
        StyledTable { style, current: None }
    }

    /// Formats the line of a case, below a head if the case begins a new table.
    pub fn add(&mut self, case: &Case) -> String {
        let (tool, program, set) = self.choose_columns(case);
        let columns = &COLUMNS[program][&set];
        let table = Table::of(&columns.heads);
        let key = (case.test.clone(), case.operation.clone(), case.ranks, case.variant.clone());
        let mut text = String::new();
        if self.current.as_ref() != Some(&key) {
            self.current = Some(key);
            text = write_head(self.style, tool, program, columns, case) + &table.head() + "\n";
        }
        if case.unit != "ns" {
            return text + "# no time: see the table of --style fastpath\n";
        }
        let Some(s) = case.samples.summarize() else {
            return text + &format!("# {} no samples\n", case.bytes);
        };
        text + &table.format_row(fill_cells(&columns.cells, case, &s).split('|')) + "\n"
    }

    /// Returns the tool, the prefix of its programs' names, and its columns for a case.
    fn choose_columns(&self, case: &Case) -> (&'static str, &'static str, ColumnSet) {
        match (self.style, ColumnSet::of(case)) {
            (Style::Perftest, ColumnSet::Bandwidth | ColumnSet::Rate) => {
                ("perftest", "ib", ColumnSet::Bandwidth)
            }
            (Style::Perftest, _) => ("perftest", "ib", ColumnSet::Latency),
            (Style::Imb, ColumnSet::Rate) => ("IMB", "imb", ColumnSet::Bandwidth),
            (Style::Imb, _) if case.test == "barrier" => ("IMB", "imb", ColumnSet::Barrier),
            (Style::Imb, set) => ("IMB", "imb", set),
            (_, set) => ("OSU", "osu", set),
        }
    }
}

/// Formats the comments above a table.
fn write_head(style: Style, tool: &str, program: &str, columns: &Columns, case: &Case) -> String {
    let name = name_program(program, case);
    let counterpart = match &name {
        None => format!("{tool} has no counterpart of this test"),
        Some(name) => format!("as {name}"),
    };
    let own = format!(
        "# {}{}: {}, {}, {}; {counterpart}\n# {tool} columns: {}; a sample is the mean over \
         {} operations\n",
        case.test,
        behind(", ", &case.variant),
        case.operation,
        case.of.text(),
        count(case.ranks, "rank"),
        columns.meaning,
        case.timing.operations_per_sample,
    );
    match style {
        // Readers of IMB's output find a table by these lines.
        Style::Imb => {
            let (name, line) = (name.unwrap_or_else(|| case.test.clone()), "-".repeat(51));
            let ranks = case.ranks;
            format!("\n{own}#{line}\n# Benchmarking {name} \n# #processes = {ranks} \n#{line}\n")
        }
        _ => format!("\n{own}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ColumnSet {
    Latency,
    Bandwidth,
    Rate,
    Collective,
    /// A barrier in the layout of IMB, without a size.
    Barrier,
}

impl ColumnSet {
    fn of(case: &Case) -> ColumnSet {
        match (case.of, case.test.as_str()) {
            (Quantity::Message, "rate" | "multirate") => ColumnSet::Rate,
            (Quantity::Message, _) => ColumnSet::Bandwidth,
            (Quantity::Call | Quantity::Skew | Quantity::Process, _) => ColumnSet::Collective,
            _ => ColumnSet::Latency,
        }
    }
}

#[derive(Deserialize)]
struct Columns {
    heads: String,
    cells: String,
    meaning: String,
}

/// Fills in the values of a cell template: times in microseconds, rates from the mean, a peak from the smallest sample.
fn fill_cells(cells: &str, case: &Case, s: &Summary) -> String {
    let us = |ns: f64| format!("{:.3}", ns / 1e3);
    let short = |ns: f64| format!("{:.2}", ns / 1e3);
    let megabytes = |ns| megabytes_per_s(case, ns).unwrap_or(0.0);
    let mebibytes = |ns| format!("{:.2}", megabytes(ns) * 1e6 / f64::from(1 << 20));
    let million = million_per_s(case, s.mean).unwrap_or(0.0);
    let values = values![
        bytes = case.bytes,
        operations = case.samples.count() * case.timing.operations_per_sample.max(1),
        min2 = short(s.min),
        max2 = short(s.max),
        mean2 = short(s.mean),
        min = us(s.min),
        max = us(s.max),
        mean = us(s.mean),
        median = us(s.median),
        deviation = us(standard_deviation(&case.samples).unwrap_or(0.0)),
        p90 = us(s.p90),
        p99 = us(s.p99),
        p999 = us(s.p999),
        megabytes = format!("{:.2}", megabytes(s.mean)),
        megabytes_p50 = format!("{:.2}", megabytes(s.median)),
        megabytes_p90 = format!("{:.2}", megabytes(s.p90)),
        megabytes_p99 = format!("{:.2}", megabytes(s.p99)),
        mebibytes = mebibytes(s.mean),
        mebibytes_peak = mebibytes(s.min),
        messages = format!("{:.2}", million * 1e6),
        messages_whole = format!("{:.0}", million * 1e6),
        million_messages = format!("{million:.6}"),
    ];
    fill(cells, values)
}

table!(COLUMNS: BTreeMap<String, BTreeMap<ColumnSet, Columns>> = "columns.toml");

#[derive(Deserialize)]
struct NamedTests {
    tests: Vec<String>,
    of: Option<Quantity>,
    variant: Option<String>,
    name: Option<String>,
}

table!(NAMES: BTreeMap<String, Vec<NamedTests>> = "programs.toml");

/// Returns the name of the program of `tool` (`osu`, `ib`) that measures the quantity of `case`; None if there is none.
fn name_program(tool: &str, case: &Case) -> Option<String> {
    let has = |wanted: &String| case.variant.split(", ").any(|part| part == wanted);
    let fits = |named: &&NamedTests| {
        let is_of = named.of.is_none_or(|of| of == case.of);
        named.tests.contains(&case.test) && is_of && named.variant.as_ref().is_none_or(has)
    };
    let named = NAMES[tool].iter().find(fits)?;
    let name = named.name.as_ref().unwrap_or(&case.test);
    Some(if tool == "imb" { name.clone() } else { format!("{tool}_{name}") })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::{make_case, make_report};

    fn format(style: Style, cases: &[Case]) -> String {
        let mut styled = StyledTable::new(style);
        cases.iter().map(|c| styled.add(c)).collect()
    }

    #[test]
    fn osu__has_a_name_for_windows_and_for_each_atomic() {
        let name = |test: &str, variant: &str, of| {
            let case =
                Case { test: test.into(), variant: variant.into(), of, ..make_case(8, &[1.0]) };
            name_program("osu", &case).unwrap_or_default()
        };
        assert_eq!(name("put", "windows", Quantity::Message), "osu_put_bw");
        assert_eq!(name("put", "each flushed", Quantity::RoundTrip), "osu_put_latency");
        let atomic = |variant| name("atomics", variant, Quantity::RoundTrip);
        assert_eq!(atomic("compare_and_swap, load-store"), "osu_cas_latency");
        assert_eq!(atomic("accumulate"), "osu_acc_latency");
    }

    #[test]
    fn osu_latency__has_its_columns_in_microseconds_and_names_the_statistic() {
        let text = format(Style::Osu, &[make_case(8, &[1000.0, 2000.0, 6000.0])]);
        assert!(text.contains("# Size       Avg Latency(us)"), "{text}");
        assert!(text.contains("as osu_latency"), "{text}");
        assert!(text.contains("mean over all samples"), "{text}");
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..2], ["8", "3.000"]);
    }

    #[test]
    fn perftest_bandwidth__is_in_mebibytes_and_says_so() {
        let case = Case {
            test: "bandwidth".into(),
            of: Quantity::Message,
            ..make_case(65536, &[20371.0])
        };
        let text = format(Style::Perftest, &[case]);
        assert!(text.contains("BW average[MiB/sec]"), "{text}");
        // 65536 B in 20371 ns: 3217.1 MB/s of 10^6, 3068.1 MiB/s.
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[3], "3068.09", "{text}");
        assert_eq!(last[1], "16", "operations, not samples");
    }

    #[test]
    fn perftest_names__are_those_of_what_is_timed() {
        let is_named = |test: &str, of, variant: &str, name: Option<&str>| {
            let case =
                Case { test: test.into(), of, variant: variant.into(), ..make_case(8, &[1.0]) };
            assert_eq!(name_program("ib", &case).as_deref(), name);
        };
        is_named("put", Quantity::HalfRoundTrip, "", Some("ib_write_lat"));
        is_named("put", Quantity::Call, "adapter, each completed", None);
        is_named("put", Quantity::Message, "", Some("ib_write_bw"));
        is_named("get", Quantity::RoundTrip, "", Some("ib_read_lat"));
        let both = "ib_send_bw --bidirectional";
        is_named("rate", Quantity::Message, "both ways", Some(both));
    }

    #[test]
    fn perftest_latency__leaves_out_no_sample() {
        let text = format(Style::Perftest, &[make_case(2, &[1.0, 2.0, 9000.0])]);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[3], "9.000", "t_max");
    }

    #[test]
    fn osu_bandwidth__has_the_tail_of_the_slow_samples() {
        let samples: Vec<f64> = (1..=100).map(|n| f64::from(n) * 100.0).collect();
        let case =
            Case { test: "bandwidth".into(), of: Quantity::Message, ..make_case(1000, &samples) };
        let text = format(Style::Osu, &[case]);
        assert!(text.contains("P50 Tail BW(MB/s) P90 Tail BW(MB/s) P99 Tail BW(MB/s)"), "{text}");
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        // 1000 B in 5000, 9000 and 9900 ns; the histogram rounds times.
        for (found, expected) in last[2..].iter().zip([200.0, 111.11, 101.01]) {
            let found: f64 = found.parse().unwrap();
            assert!((found / expected - 1.0).abs() < 1e-3, "{text}");
        }
        assert_eq!(last.len(), 5, "{text}");
    }

    #[test]
    fn imb__has_its_layout() {
        let barrier =
            Case { test: "barrier".into(), of: Quantity::Call, ..make_case(0, &[2000.0]) };
        let text = format(Style::Imb, &[make_case(4096, &[2000.0, 3000.0]), barrier]);
        let expected = "# Benchmarking PingPong \n# #processes = 2 \n#-";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("\n       #bytes #repetitions      t[usec]   Mbytes/sec\n         4096"),
            "{text}"
        );
        // 4096 B in 2500 ns.
        let row = text.lines().find(|line| line.contains("4096")).unwrap();
        assert!(row.ends_with("         2.50      1638.40"), "{text}");
        let head = " #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n";
        assert!(text.contains(head), "{text}");
    }

    #[test]
    fn every_style__prints_every_case_of_a_report() {
        let report = make_report();
        for style in [Style::Osu, Style::Perftest, Style::Imb] {
            let text = format(style, &report.cases);
            let numbers = text.lines().filter(|l| !l.contains('#') && !l.is_empty()).count();
            assert_eq!(numbers, report.cases.len(), "{text}");
        }
    }

    #[test]
    fn test__that_the_other_tool_lacks_is_said_to_be_ours() {
        let case = Case { test: "ring-random".into(), of: Quantity::Hop, ..make_case(8, &[1.0]) };
        assert!(format(Style::Osu, &[case]).contains("OSU has no counterpart of this test"));
    }
}
