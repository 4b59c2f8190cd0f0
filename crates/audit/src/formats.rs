//! What the tables of other tools look like, and what is known of their columns: `data/formats.toml`, which names the
//! source of each entry. [`recognise`] reads texts by it.
//!
//! [`recognise`]: super::recognise

use std::collections::BTreeMap;

use fastpath_report::data::table;
use serde::Deserialize;

use super::table::{Role, Unit};

/// The tools whose version or title stands in the text, by name.
pub const PERFTEST: &str = "perftest";
pub const OSU: &str = "OSU Micro-Benchmarks";
pub const IMB: &str = "Intel MPI Benchmarks";
pub const HPCC: &str = "HPCC";
pub const IPERF3: &str = "iperf3";
pub const QPERF: &str = "qperf";

/// A column that a tool prints.
#[derive(Deserialize)]
pub struct Heading {
    /// Its heading without `#`, words separated by one blank; one `*` matches any characters.
    pub text: String,
    /// The unit; None: it has none, or it follows from [`Heading::text`] and the version.
    pub unit: Option<Unit>,
    /// The statistic, if the tool prints a measurement.
    pub statistic: Option<String>,
    /// What the numbers are.
    #[serde(default = "measured")]
    pub role: Role,
    /// Whether it holds words, which are skipped.
    #[serde(default)]
    pub words: bool,
}

/// Something to know about the tables of a tool.
#[derive(Deserialize)]
pub struct Note {
    /// The test is one of these: a part of its title; an empty text: the title is not known.
    /// No entry: any test.
    #[serde(default)]
    pub tests: Vec<String>,
    /// A column of this heading is there; empty: any columns.
    #[serde(default)]
    pub column: String,
    /// What is known.
    pub text: String,
}

/// A form of table with a line of headings above its rows.
#[derive(Deserialize)]
pub struct Format {
    /// The tool.
    pub tool: String,
    /// Every column that it may have.
    pub heading: Vec<Heading>,
    /// Its line of headings holds one of these; else it is another tool's.
    pub marks: Vec<String>,
    /// What is known beside unit and statistic.
    pub note: Vec<Note>,
    /// What no table of it says.
    pub unknown: String,
}

/// A value that a tool prints by name, one to a line.
#[derive(Deserialize)]
pub struct Named {
    /// Its name; one `*` matches any characters.
    pub pattern: String,
    /// The unit; None: written behind each number, see [`written_unit`].
    pub unit: Option<Unit>,
    /// The statistic; None: it is a setting.
    pub statistic: Option<String>,
    /// Whether it is a size, a count or a setting.
    #[serde(default)]
    pub exact: bool,
}

/// The values of a tool.
#[derive(Deserialize)]
pub struct NamedSet {
    /// The tool.
    pub tool: String,
    /// The title of their table; None: it stands above them.
    pub title: Option<String>,
    /// Digits that the tool prints at least.
    pub digits: Option<u32>,
    /// What is known of all of them.
    pub known: Vec<String>,
    /// What none of them says.
    pub unknown: String,
    /// The values.
    pub value: Vec<Named>,
}

/// A column of iperf3.
#[derive(Deserialize)]
pub struct Iperf3Column {
    /// Its heading.
    pub name: String,
    /// Its statistic.
    pub statistic: String,
    /// The words of one value, the unit included.
    pub words: usize,
}

/// Everything in the file.
#[derive(Deserialize)]
pub struct Formats {
    /// Tables with headings.
    pub format: Vec<Format>,
    /// Values by name.
    pub values: BTreeMap<String, NamedSet>,
    /// The columns of iperf3.
    pub iperf3: Vec<Iperf3Column>,
    /// By tool: units as they stand behind a number.
    written: BTreeMap<String, BTreeMap<String, Unit>>,
}

table!(
    /// What is known of other tools.
    pub FORMATS: Formats = "formats.toml"
);

impl Formats {
    /// A set of values that the file has.
    pub fn set(&'static self, name: &str) -> &'static NamedSet {
        &self.values[name]
    }
}

fn measured() -> Role {
    Role::Measured
}

/// The unit of IMB's `Mbytes/sec` by its version, `V4.0.0`, `4.1`, `2017` or `2021.11`; unsettled where the text gives
/// no version.
pub fn imb_megabytes(version: Option<&str>) -> Unit {
    let major = version.map(|v| v.trim_start_matches('V').split('.').next().unwrap_or(""));
    match major.and_then(|m| m.parse::<u32>().ok()) {
        Some(major) if major >= 2018 => Unit::new("MB/s (10^6)"),
        Some(_) => Unit::new("MiB/s (2^20)"),
        None => Unit::unsettled("MB/s (2^20 up to 2017, 10^6 since)"),
    }
}

/// The unit that a tool writes so.
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
