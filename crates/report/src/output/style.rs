//! The columns of OSU's micro-benchmarks and of perftest, with the statistic of each column named above it: theirs
//! differ from column to column.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Style;
use super::format::{behind, megabytes_per_s, million_per_s, standard_deviation};
use crate::data::table;
use crate::record::{Case, Of};

/// A table in another tool's columns.
pub struct Styled {
    style: Style,
    /// Test, operation, ranks and variant of the table that is under way.
    current: Option<(String, String, u32, String)>,
}

impl Styled {
    /// An empty one.
    pub fn new(style: Style) -> Styled {
        Styled { style, current: None }
    }

    /// The line of a case, below a head where it begins a new table.
    pub fn add(&mut self, case: &Case) -> String {
        let key = (case.test.clone(), case.operation.clone(), case.ranks, case.variant.clone());
        let mut text = String::new();
        if self.current.as_ref() != Some(&key) {
            self.current = Some(key);
            text += &self.format_head(case);
        }
        if case.unit != "ns" {
            return text + "# no time: see the table of --style fastpath\n";
        }
        text + &match self.style {
            Style::Perftest => format_perftest(case),
            _ => format_osu(case),
        }
    }

    fn format_head(&self, case: &Case) -> String {
        let (tool, program, kind) = match (self.style, ColumnSet::of(case)) {
            (Style::Perftest, ColumnSet::Bandwidth | ColumnSet::Rate) => {
                ("perftest", "ib", ColumnSet::Bandwidth)
            }
            (Style::Perftest, _) => ("perftest", "ib", ColumnSet::Latency),
            (_, kind) => ("OSU", "osu", kind),
        };
        let name = name_program(program, case);
        let Columns { heads, meaning } = &COLUMNS[program][&kind];
        let variant = behind(", ", &case.variant);
        format!(
            "\n# {}{variant}: {}, {}, {} ranks; {}\n# {tool} columns: {meaning}; a sample is the \
             mean over {} operations\n{heads}\n",
            case.test,
            case.operation,
            case.of.text(),
            case.ranks,
            name.map_or_else(|| format!("{tool} has no such test"), |n| format!("as {n}")),
            case.timing.operations_per_sample,
        )
    }
}

/// Which columns a case gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ColumnSet {
    Latency,
    Bandwidth,
    Rate,
    Collective,
}

impl ColumnSet {
    fn of(case: &Case) -> ColumnSet {
        match (case.of, case.test.as_str()) {
            (Of::Message, "rate" | "multirate") => ColumnSet::Rate,
            (Of::Message, _) => ColumnSet::Bandwidth,
            (Of::Call | Of::Skew | Of::Process, _) => ColumnSet::Collective,
            _ => ColumnSet::Latency,
        }
    }
}

#[derive(Deserialize)]
struct Columns {
    heads: String,
    meaning: String,
}

table!(COLUMNS: BTreeMap<String, BTreeMap<ColumnSet, Columns>> = "columns.toml");

#[derive(Deserialize)]
struct Named {
    tests: Vec<String>,
    of: Option<Of>,
    variant: Option<String>,
    name: Option<String>,
}

table!(NAMES: BTreeMap<String, Vec<Named>> = "programs.toml");

/// The program of a tool (`osu`, `ib`) that measures the same.
fn name_program(tool: &str, case: &Case) -> Option<String> {
    let has = |wanted: &String| case.variant.split(", ").any(|part| part == wanted);
    let fits = |named: &&Named| {
        let is_of = named.of.is_none_or(|of| of == case.of);
        named.tests.contains(&case.test) && is_of && named.variant.as_ref().is_none_or(has)
    };
    let named = NAMES[tool].iter().find(fits)?;
    Some(format!("{tool}_{}", named.name.as_ref().unwrap_or(&case.test)))
}

fn format_osu(case: &Case) -> String {
    let Some(s) = case.samples.summarize() else {
        return format!("# {} no samples\n", case.bytes);
    };
    let mut text = format!("{:<10}", case.bytes);
    let megabytes = megabytes_per_s(case, s.mean).unwrap_or(0.0);
    match ColumnSet::of(case) {
        ColumnSet::Bandwidth => text += &format!("{megabytes:>18.2}"),
        ColumnSet::Rate => {
            let rate = million_per_s(case, s.mean).unwrap_or(0.0) * 1e6;
            text += &format!("{megabytes:>18.2}{rate:>23.2}");
        }
        ColumnSet::Collective => {
            for value in [s.mean, s.min, s.max] {
                text += &format!("{:>18.3}", value / 1e3);
            }
            text += &format!("{:>12}", count_operations(case));
        }
        ColumnSet::Latency => {
            for value in [s.mean, s.median, s.p90, s.p99] {
                text += &format!("{:>18.3}", value / 1e3);
            }
        }
    }
    text + "\n"
}

fn format_perftest(case: &Case) -> String {
    let Some(s) = case.samples.summarize() else {
        return format!("# {} no samples\n", case.bytes);
    };
    let operations = count_operations(case);
    if matches!(ColumnSet::of(case), ColumnSet::Bandwidth | ColumnSet::Rate) {
        let mebibytes = |ns| megabytes_per_s(case, ns).unwrap_or(0.0) * 1e6 / f64::from(1 << 20);
        return format!(
            " {:<10} {:<14} {:<19.2} {:<21.2} {:.6}\n",
            case.bytes,
            operations,
            mebibytes(s.min),
            mebibytes(s.mean),
            million_per_s(case, s.mean).unwrap_or(0.0),
        );
    }
    let deviation = standard_deviation(&case.samples).unwrap_or(0.0);
    let mut text = format!(" {:<7} {:<14}", case.bytes, operations);
    for value in [s.min, s.max, s.median, s.mean, deviation, s.p99, s.p999] {
        text += &format!(" {:<14.3}", value / 1e3);
    }
    text.trim_end().to_owned() + "\n"
}

fn count_operations(case: &Case) -> u64 {
    case.samples.count() * case.timing.operations_per_sample.max(1)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::{make_case, make_report};

    fn format(style: Style, cases: &[Case]) -> String {
        let mut styled = Styled::new(style);
        cases.iter().map(|c| styled.add(c)).collect()
    }

    #[test]
    fn osu__has_a_name_for_windows_and_for_each_atomic() {
        let name = |test: &str, variant: &str, of| {
            let case =
                Case { test: test.into(), variant: variant.into(), of, ..make_case(8, &[1.0]) };
            name_program("osu", &case).unwrap_or_default()
        };
        assert_eq!(name("put", "windows", Of::Message), "osu_put_bw");
        assert_eq!(name("put", "each flushed", Of::RoundTrip), "osu_put_latency");
        let atomic = |variant| name("atomics", variant, Of::RoundTrip);
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
        let case =
            Case { test: "bandwidth".into(), of: Of::Message, ..make_case(65536, &[20371.0]) };
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
        is_named("put", Of::HalfRoundTrip, "", Some("ib_write_lat"));
        is_named("put", Of::Call, "adapter, each completed", None);
        is_named("put", Of::Message, "", Some("ib_write_bw"));
        is_named("get", Of::RoundTrip, "", Some("ib_read_lat"));
        let both = "ib_send_bw --bidirectional";
        is_named("rate", Of::Message, "both ways", Some(both));
    }

    #[test]
    fn perftest_latency__leaves_out_no_sample() {
        let text = format(Style::Perftest, &[make_case(2, &[1.0, 2.0, 9000.0])]);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[3], "9.000", "t_max");
    }

    #[test]
    fn every_style__prints_every_case_of_a_report() {
        let report = make_report();
        for style in [Style::Osu, Style::Perftest] {
            let text = format(style, &report.cases);
            let numbers = text.lines().filter(|l| !l.contains('#') && !l.is_empty()).count();
            assert_eq!(numbers, report.cases.len(), "{text}");
        }
    }

    #[test]
    fn test__that_the_other_tool_lacks_is_said_to_be_ours() {
        let case = Case { test: "ring-random".into(), of: Of::Hop, ..make_case(8, &[1.0]) };
        assert!(format(Style::Osu, &[case]).contains("OSU has no such test"));
    }
}
