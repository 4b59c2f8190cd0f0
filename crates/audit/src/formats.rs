//! Table formats of other tools, and facts about their columns: `data/formats.toml`, which has the source of each
//! entry. [`recognise`] uses them.
//!
//! [`recognise`]: super::recognise

use std::collections::BTreeMap;

use fastpath_report::data::table;
use serde::Deserialize;

use super::table::{ColumnRole, Unit};

/// Names of tools whose version or title is in the text.
pub const PERFTEST: &str = "perftest";
pub const OSU: &str = "OSU Micro-Benchmarks";
pub const IMB: &str = "Intel MPI Benchmarks";
pub const HPCC: &str = "HPCC";
pub const IPERF3: &str = "iperf3";
pub const QPERF: &str = "qperf";

#[derive(Deserialize)]
pub struct Heading {
    /// Heading without `#`, words separated by one blank; one `*` matches any characters.
    pub text: String,
    /// Unit; None: there is none, or it follows from [`Heading::text`] and the version.
    pub unit: Option<Unit>,
    pub statistic: Option<String>,
    #[serde(default = "measured")]
    pub role: ColumnRole,
    /// Whether the column has words, which are skipped.
    #[serde(default)]
    pub words: bool,
}

#[derive(Deserialize)]
pub struct Note {
    /// Tests to which the note applies, each given by a part of its title. An empty text stands for a table without a
    /// title. Without an entry, the note applies to every test.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Part of the heading of a column that the table must have; empty if none is required.
    #[serde(default)]
    pub column: String,
    pub text: String,
}

/// A table format with a line of headings above its rows.
#[derive(Deserialize)]
pub struct Format {
    pub tool: String,
    pub heading: Vec<Heading>,
    /// Identifying headings: a line without one of these belongs to another tool.
    pub marks: Vec<String>,
    pub note: Vec<Note>,
    /// Facts that the tool's tables do not show.
    pub unknown: String,
}

/// A value that a tool prints by name, one per line.
#[derive(Deserialize)]
pub struct NamedValue {
    /// Name; one `*` matches any characters.
    pub pattern: String,
    /// Unit; None: it follows each number, see [`written_unit`].
    pub unit: Option<Unit>,
    /// Statistic; None: the value is a setting.
    pub statistic: Option<String>,
    /// Whether the value is a size, a count or a setting.
    #[serde(default)]
    pub exact: bool,
}

#[derive(Deserialize)]
pub struct NamedSet {
    pub tool: String,
    /// Title of the table of these values; None: the title is above the values.
    pub title: Option<String>,
    /// Least number of digits that the tool prints.
    pub digits: Option<u32>,
    /// Facts about all values of the set.
    pub known: Vec<String>,
    pub unknown: String,
    pub value: Vec<NamedValue>,
}

/// A column of iperf3.
#[derive(Deserialize)]
pub struct Iperf3Column {
    pub name: String,
    pub statistic: String,
    /// Number of words of one value, including the unit.
    pub words: usize,
}

#[derive(Deserialize)]
pub struct Formats {
    pub format: Vec<Format>,
    pub values: BTreeMap<String, NamedSet>,
    /// Columns of iperf3.
    pub iperf3: Vec<Iperf3Column>,
    /// Units after a number, by tool.
    written: BTreeMap<String, BTreeMap<String, Unit>>,
}

table!(
    /// Facts about other tools.
    pub FORMATS: Formats = "formats.toml"
);

impl Formats {
    /// Returns a set of values that the file has.
    pub fn set(&'static self, name: &str) -> &'static NamedSet {
        &self.values[name]
    }
}

fn measured() -> ColumnRole {
    ColumnRole::Measured
}

/// Unit of IMB's `Mbytes/sec` by its version, `V4.0.0`, `4.1`, `2017` or `2021.11`; ambiguous if the text has no
/// version.
pub fn imb_megabytes(version: Option<&str>) -> Unit {
    let major = version.map(|v| v.trim_start_matches('V').split('.').next().unwrap_or(""));
    match major.and_then(|m| m.parse::<u32>().ok()) {
        Some(major) if major >= 2018 => Unit::new("MB/s (10^6)"),
        Some(_) => Unit::new("MiB/s (2^20)"),
        None => Unit::unsettled("MB/s (2^20 up to 2017, 10^6 since)"),
    }
}

/// Finds the unit that a tool writes as `word`.
pub fn written_unit(tool: &str, word: &str) -> Option<Unit> {
    FORMATS.written.get(tool)?.get(word).copied()
}

/// Whether a text matches the pattern, in which one `*` matches any characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}
