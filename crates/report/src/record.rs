//! Types of a stored result, and their JSON form.
//!
//! One [`Report`] is one run of the tool: its conditions ([`Run`]) and its results, one [`Case`] for each test, size
//! and number of ranks. Tables, pages, comparisons and audits read only these types. The JSON form is versioned
//! ([`SCHEMA`], [`VERSION`]). A field may be added, and readers ignore unknown fields; any other change raises the
//! version.
//!
//! Times are nanoseconds; rates are derived from them on output. MB is 10^6 bytes.

mod breakdown;
pub mod histogram;
pub mod interval;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use breakdown::{AblationStep, Breakdown, FunctionShare, StepChange};
pub use histogram::{Histogram, Summary};

/// Name of the format, in every stored result.
pub const SCHEMA: &str = "fastpath.bench";

/// Version of the JSON form.
pub const VERSION: u32 = 1;

/// Variant of tests that write what they send and read what they receive. `program/engine.c` uses the same word.
pub const TOUCHED: &str = "touched";

/// One run of the tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`]; another version is rejected.
    pub version: u32,
    /// Conditions of the run.
    pub run: Run,
    /// Results, in the order of measurement.
    pub cases: Vec<Case>,
    /// Requested tests without a result, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingTest>,
    /// Instructions of operations by function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdowns: Vec<Breakdown>,
    /// Effect of each optimisation, in the order in which they were enabled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ablation: Vec<AblationStep>,
}

/// Conditions of a run: enough to judge whether two runs may be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// Version of this tool, and the commit if it was built from a repository.
    pub tool: String,
    /// Start of the run, in seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// The command as given.
    pub command: Vec<String>,
    /// The measured MPI library.
    pub mpi: Mpi,
    /// The machine.
    pub machine: Machine,
    /// Clock behind the times.
    pub clock: Clock,
    /// Variables that influence the library (`FASTPATH_*` and similar), as they were set.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Lines about the adapter, from levels below MPI: device, port, queues, both ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapter: Vec<String>,
}

/// An MPI library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mpi {
    /// Short name in tables.
    pub name: String,
    /// First line of `MPI_Get_library_version`.
    pub version: String,
    /// Compiler wrapper and launcher, or the library's file.
    pub path: String,
}

/// The machine and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Processor model, as named by the kernel.
    pub processor: String,
    /// Processors that the run may use.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// Frequency governor; None if it cannot be read (most virtual machines).
    pub governor: Option<String>,
    /// Hypervisor, if the processor reports a virtual machine.
    pub hypervisor: Option<String>,
}

/// Clock behind the times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Clock {
    /// `tsc` or `CLOCK_MONOTONIC`.
    pub source: String,
    /// Measured frequency in Hz; 10^9 for a clock in nanoseconds.
    pub frequency_hz: f64,
    /// Deviation of that frequency from the kernel's clock over the run, in parts per million.
    pub frequency_error_ppm: f64,
    /// Smallest observed step, in nanoseconds.
    pub resolution_ns: f64,
    /// Time of one reading, in nanoseconds (median).
    pub read_ns: f64,
}

/// Levels at which a test can run (one column each).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The C functions of the MPI standard.
    #[default]
    Mpi,
    /// The protocol layer: workers, endpoints, matching, without communicators and datatypes.
    Protocol,
    /// Only the transport: active messages, put, get.
    Transport,
    /// Bare loops on the verbs interface of an adapter, without the transport's protocol.
    Verbs,
}

/// Meaning of a value.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Half of a round trip.
    #[default]
    HalfRoundTrip,
    /// A whole round trip (reads, atomics).
    RoundTrip,
    /// One message of many in flight.
    Message,
    /// One call of a collective, as timed by the leading rank.
    Call,
    /// One step of a ring: one message to each neighbour, divided by two.
    Hop,
    /// The difference between the first and the last rank to leave a call.
    Skew,
    /// A process from its start to its end.
    Process,
    /// The bare operation of the hardware with which the case is compared.
    Floor,
    /// Bytes of memory; not a time.
    Memory,
    /// Instructions; not a time.
    Instructions,
    /// Share of a transfer, in percent, during which the processor could compute. Values that noise moved below 0 or
    /// above 100 are set to 0 or 100.
    Overlap,
}

impl Level {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        ["mpi", "protocol", "transport", "verbs"][self as usize]
    }

    /// ` at the level of ...`, to append for a level below MPI; empty for MPI.
    pub fn phrase(self) -> &'static str {
        match self {
            Level::Mpi => "",
            Level::Protocol => " at the level of the protocol",
            Level::Transport => " at the level of the transport",
            Level::Verbs => " at the level of verbs",
        }
    }
}

impl Quantity {
    /// Description.
    pub fn text(self) -> &'static str {
        match self {
            Quantity::HalfRoundTrip => "half a round trip",
            Quantity::RoundTrip => "a whole round trip",
            Quantity::Message => "one message of many in flight",
            Quantity::Call => "one call",
            Quantity::Hop => {
                "half of a step in which each rank sends one message to each of its two neighbours"
            }
            Quantity::Skew => "time between the first and the last rank to leave the call",
            Quantity::Process => "the whole program",
            Quantity::Floor => "the bare hardware operation",
            Quantity::Memory => "memory",
            Quantity::Instructions => "instructions of one call",
            Quantity::Overlap => {
                "share of the transfer time that is free to compute; noise can cause values \
                 outside 0 to 100 %, which count as 0 or 100 %"
            }
        }
    }
}

/// Timing of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timing {
    /// Operations per sample; above 1 a sample is the mean over consecutive operations.
    pub operations_per_sample: u64,
    /// Operations of the warm-up, which are in no sample.
    pub warmup_operations: u64,
    /// Overhead of measuring an operation, in nanoseconds: the loop with its clock readings less the bare loop.
    pub overhead_ns: f64,
}

/// One test with one size and one number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Case {
    /// Name of the test (`latency`, `rate`, `ring-random`, ...).
    pub test: String,
    /// Distinction from cases of equal name: a pair of ranks (`0-3`), a collective's root, `idle=sleep`, `touched` if
    /// each message is written before it is sent and read after it is received, `strided`, `alloc_mem` or `offset 1` by
    /// buffer layout; empty without one.
    #[serde(default)]
    pub variant: String,
    /// Timed operation, as named by the standard (`MPI_Send/MPI_Recv`, `put`).
    pub operation: String,
    /// Level of the test.
    #[serde(default)]
    pub level: Level,
    /// Meaning of a value.
    pub of: Quantity,
    /// `ns`, `B`, `instructions` or `%`.
    pub unit: String,
    /// Payload of one operation, or of one message in window tests, in bytes.
    pub bytes: u64,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Messages in flight at once, in window tests.
    #[serde(default)]
    pub window: Option<u32>,
    /// All samples of the test.
    pub samples: Histogram,
    /// Timing of the samples.
    pub timing: Timing,
    /// Transport that carried the messages, if the library reports it.
    #[serde(default)]
    pub transport: Option<String>,
    /// Protocol of the messages, if the library reports it.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Smallest and largest size that `protocol` serves; null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_sizes: Option<(u64, Option<u64>)>,
    /// Time that the hardware needs for the transfer, measured in turn with the case; in the case's unit.
    #[serde(default)]
    pub floor: Option<Histogram>,
    /// Name of the floor in `floor` (`cache line one way`, `memory copy`; between hosts `bare socket`).
    #[serde(default)]
    pub floor_of: Option<String>,
    /// One-way time of a cache line between the ranks' processors while the floor was measured, in nanoseconds. Only
    /// set if the floor was not measured by the ranks themselves in turn with the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_line: Option<f64>,
    /// One-way time of a cache line between the ranks' processors right before and right after the samples, in
    /// nanoseconds. On a virtual machine this time depends on which cache the two processors share, which may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<[f64; 2]>,
    /// Whether payloads were correct, verified outside the timed loop; None if not requested.
    #[serde(default)]
    pub checked: Option<bool>,
    /// Processors of the leading rank and its partner.
    #[serde(default)]
    pub processors: Vec<i32>,
    /// Processor time of the leading rank, in percent of the time of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_percent: Option<f64>,
    /// Figures that another tool defines for these samples, by that tool's name for them (`HPCC
    /// RandomlyOrderedRingLatency`), in the case's unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defined: BTreeMap<String, f64>,
    /// Counts of the leading rank per operation, if counted (`completions per send`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, f64>,
}

/// A requested test without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingTest {
    /// Name of the test.
    pub test: String,
    /// Level of the test.
    #[serde(default)]
    pub level: Level,
    /// Reason.
    pub reason: String,
}

/// Properties that must be equal for two cases to be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaseKey {
    /// See [`Case`].
    pub test: String,
    /// See [`Case`].
    pub variant: String,
    /// See [`Case`].
    pub operation: String,
    /// See [`Case`].
    pub level: Level,
    /// See [`Case`].
    pub of: Quantity,
    /// See [`Case`].
    pub unit: String,
    /// See [`Case`].
    pub bytes: u64,
    /// See [`Case`].
    pub ranks: u32,
    /// See [`Case`].
    pub window: Option<u32>,
}

impl Case {
    /// Whether each message was written before its send and read after its receive, within the measured time.
    pub fn is_touched(&self) -> bool {
        self.variant.split(", ").any(|part| part == TOUCHED)
    }

    /// One-way time of a cache line, in ns: the mean of before and after the samples. None if it was not measured.
    pub fn line(&self) -> Option<f64> {
        self.lines.map(|[before, after]| (before + after) / 2.0)
    }

    /// Key that identifies the case.
    pub fn key(&self) -> CaseKey {
        CaseKey {
            test: self.test.clone(),
            variant: self.variant.clone(),
            operation: self.operation.clone(),
            level: self.level,
            of: self.of,
            unit: self.unit.clone(),
            bytes: self.bytes,
            ranks: self.ranks,
            window: self.window,
        }
    }
}

/// Parses JSON that states its format and version.
///
/// # Errors
/// The text is not JSON of this type, or has another format or version.
pub fn read_versioned<T: DeserializeOwned>(
    text: &str, wanted: &'static str, version: u32,
) -> Result<T> {
    #[derive(Deserialize)]
    struct ReportHead {
        schema: String,
        version: u32,
    }
    let shape = "the file is not a stored result";
    let head: ReportHead = serde_json::from_str(text).context(shape)?;
    ensure!(head.schema == wanted, "the result has the schema `{}`, not `{wanted}`", head.schema);
    let found = head.version;
    ensure!(found == version, "the result has version {found}; this tool reads version {version}");
    serde_json::from_str(text).context(shape)
}

impl Report {
    /// An empty report of this version.
    pub fn new(run: Run) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            run,
            cases: Vec::new(),
            missing: Vec::new(),
            breakdowns: Vec::new(),
            ablation: Vec::new(),
        }
    }

    /// Parses a stored result.
    ///
    /// # Errors
    /// See [`read_versioned`].
    pub fn from_json(text: &str) -> Result<Report> {
        read_versioned(text, SCHEMA, VERSION)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples;

    fn make_report() -> Report {
        let mut report = Report::new(Run::default());
        report.cases.push(samples::make_case(8, &[120.0, 130.5, 9000.0]));
        report
    }

    #[test]
    fn report__survives_a_round_trip_through_json() {
        let report = make_report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(Report::from_json(&text).unwrap(), report);
    }

    #[test]
    fn report__of_another_schema_or_version_is_refused() {
        let text = serde_json::to_string(&make_report()).unwrap();
        let refusal = |text: &str| Report::from_json(text).unwrap_err().to_string();
        let other = refusal(&text.replacen(SCHEMA, "something.else", 1));
        assert!(other.contains("the schema `something.else`"), "{other}");
        let later = refusal(&text.replacen("\"version\":1", "\"version\":2", 1));
        assert!(later.contains("version 2"), "{later}");
        assert_eq!(refusal("{}"), "the file is not a stored result");
    }

    #[test]
    fn key__tells_levels_apart() {
        let case = make_report().cases.remove(0);
        let other = Case { level: Level::Transport, ..case.clone() };
        assert_ne!(case.key(), other.key());
    }
}
