//! What a measurement leaves behind: the types of a stored result, and its JSON form.
//!
//! One [`Report`] is one run of the tool: how it was made ([`Run`]) and what came out, one
//! [`Case`] for each test, size and number of ranks. Tables, pages, comparisons and audits read
//! these types and nothing else. The JSON form is versioned ([`SCHEMA`], [`VERSION`]): a field may
//! be added, and readers ignore those they do not know; any other change raises the version.
//!
//! Times are nanoseconds, rates are formed from them where they are shown. MB is 10^6 bytes.

mod breakdown;
pub mod histogram;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use breakdown::{AblationStep, Breakdown, Part, StepChange};
pub use histogram::{Histogram, Summary};

/// The name that every stored result carries.
pub const SCHEMA: &str = "fastpath.bench";

/// The version of the JSON form.
pub const VERSION: u32 = 1;

/// The variant of tests that write what they send and read what they receive; the same word as in
/// `program/engine.c`.
pub const TOUCHED: &str = "touched";

/// One run of the tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`]; another one is refused.
    pub version: u32,
    /// How the run was made.
    pub run: Run,
    /// What came out, in the order of measurement.
    pub cases: Vec<Case>,
    /// What was asked for and not measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Where the instructions of operations go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdowns: Vec<Breakdown>,
    /// What each optimisation gives, in the order in which they were switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ablation: Vec<AblationStep>,
}

/// How a run was made: enough to judge whether two runs may be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// Version of this tool, and the commit where it was built from a repository.
    pub tool: String,
    /// Start of the run, seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// The command as given.
    pub command: Vec<String>,
    /// The MPI library that was measured.
    pub mpi: Mpi,
    /// Where it ran.
    pub machine: Machine,
    /// The clock behind the times.
    pub clock: Clock,
    /// Variables that influence the library (`FASTPATH_*` and the like), as they were set.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What the levels below MPI say of the adapter they run on: device, port, queues, both ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapter: Vec<String>,
}

/// An MPI library.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mpi {
    /// Short name by which tables call it.
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
    /// Processor model as the kernel names it.
    pub processor: String,
    /// Processors that the run may use.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// Frequency governor; None where it cannot be read (most virtual machines).
    pub governor: Option<String>,
    /// Hypervisor, where the processor says that it is a virtual one.
    pub hypervisor: Option<String>,
}

/// The clock behind the times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Clock {
    /// `tsc` or `CLOCK_MONOTONIC`.
    pub source: String,
    /// Its measured frequency in Hz; 10^9 for a clock that gives nanoseconds.
    pub frequency_hz: f64,
    /// Deviation of that frequency from the kernel's clock over the run, in parts per million.
    pub frequency_error_ppm: f64,
    /// Smallest step that it was seen to make, in nanoseconds.
    pub resolution_ns: f64,
    /// What one reading costs, in nanoseconds (median).
    pub read_ns: f64,
}

/// The levels at which a test can run (one column each).
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

/// What a time is of.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// Half of a round trip.
    #[default]
    HalfRoundTrip,
    /// A whole round trip (reads, atomics).
    RoundTrip,
    /// One message of many in flight.
    Message,
    /// One call of a collective, as the rank that leads sees it.
    Call,
    /// One step of a ring: one message to each neighbour, divided by two.
    Hop,
    /// The difference between the first and the last rank to leave a call.
    Skew,
    /// A process from its start to its end.
    Process,
    /// The bare operation of the hardware that the case is held against.
    Floor,
    /// Bytes of memory; no time.
    Memory,
    /// Instructions; no time.
    Instructions,
    /// The share of a transfer, in percent, during which the processor could compute; what noise
    /// moved below 0 or above 100 is kept as those.
    Overlap,
}

impl Level {
    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        ["mpi", "protocol", "transport", "verbs"][self as usize]
    }

    /// ` at the level of ...`, behind what is of a level below MPI.
    pub fn phrase(self) -> &'static str {
        match self {
            Level::Mpi => "",
            Level::Protocol => " at the level of the protocol",
            Level::Transport => " at the level of the transport",
            Level::Verbs => " at the level of verbs",
        }
    }
}

impl Of {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Of::HalfRoundTrip => "half a round trip",
            Of::RoundTrip => "a whole round trip",
            Of::Message => "one message of many in flight",
            Of::Call => "one call",
            Of::Hop => "one step of the ring, halved",
            Of::Skew => "from the first rank to leave to the last",
            Of::Process => "the program from start to end",
            Of::Floor => "the bare operation of the hardware",
            Of::Memory => "memory",
            Of::Instructions => "instructions of one call",
            Of::Overlap => {
                "share of the transfer free to compute; what noise moved outside of 0 to 100 % \
                 counts as those"
            }
        }
    }
}

/// How samples were timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timing {
    /// Operations behind one sample; above 1 a sample is the mean over that many in a row.
    pub operations_per_sample: u64,
    /// Operations of the warm-up, which are in no sample.
    pub warmup_operations: u64,
    /// What the measuring adds to an operation, in nanoseconds: the loop with its clock readings
    /// less the bare loop.
    pub overhead_ns: f64,
}

/// One test at one size on one number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Case {
    /// Name of the test (`latency`, `rate`, `ring-random`, ...).
    pub test: String,
    /// What distinguishes it from cases of the same name: a pair of ranks (`0-3`), a collective's root, `idle=sleep`,
    /// `touched` where each message is written before it is sent and read after it has come, `strided`, `alloc_mem` or
    /// `offset 1` by how buffers lie; empty if nothing does.
    #[serde(default)]
    pub variant: String,
    /// The operation timed, as the standard calls it (`MPI_Send/MPI_Recv`, `put`).
    pub operation: String,
    /// The level.
    #[serde(default)]
    pub level: Level,
    /// What a time is of.
    pub of: Of,
    /// `ns`, `B`, `instructions` or `%`.
    pub unit: String,
    /// Payload of one operation in bytes; of one message in tests of windows.
    pub bytes: u64,
    /// Ranks of the job.
    pub ranks: u32,
    /// Messages in flight at once, in tests of windows.
    #[serde(default)]
    pub window: Option<u32>,
    /// Every sample of the test.
    pub samples: Histogram,
    /// How they were timed.
    pub timing: Timing,
    /// The transport and the protocol that served it, where the library says so.
    #[serde(default)]
    pub transport: Option<String>,
    /// See `transport`.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The smallest and the largest size that this protocol serves; null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_sizes: Option<(u64, Option<u64>)>,
    /// What the hardware needs for the same, measured in turn with the case; in the case's unit.
    #[serde(default)]
    pub floor: Option<Histogram>,
    /// What that floor is (`cache line one way`, `memory copy`; between hosts `bare socket`).
    #[serde(default)]
    pub floor_of: Option<String>,
    /// One way of a cache line between the ranks' processors while that floor was measured, in
    /// nanoseconds, where it was not by the ranks themselves in turn with the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_line: Option<f64>,
    /// One way of a cache line between the ranks' processors right before the samples and right
    /// after them, in nanoseconds: what two processors share changes on a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<[f64; 2]>,
    /// Whether payloads were verified outside the timed loop: None if not asked for.
    #[serde(default)]
    pub checked: Option<bool>,
    /// Processors on which the leading rank and its partner were seen.
    #[serde(default)]
    pub processors: Vec<i32>,
    /// Processor time that the leading rank used, in percent of the time that the samples took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_percent: Option<f64>,
    /// Figures that the definition of another tool makes of the same samples, by that tool's name
    /// for them (`HPCC RandomlyOrderedRingLatency`), in the case's unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defined: BTreeMap<String, f64>,
    /// What the leading rank did for each operation, where that was counted (`completions per send`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, f64>,
}

/// What was asked for and not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Missing {
    /// The test.
    pub test: String,
    /// Its level.
    #[serde(default)]
    pub level: Level,
    /// Why.
    pub reason: String,
}

/// What must agree for two cases to stand in one ratio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Key {
    /// See [`Case`].
    pub test: String,
    /// See [`Case`].
    pub variant: String,
    /// See [`Case`].
    pub operation: String,
    /// See [`Case`].
    pub level: Level,
    /// See [`Case`].
    pub of: Of,
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
    /// Whether each message was written before it was sent and read after it had come, so that
    /// the times include both.
    pub fn is_touched(&self) -> bool {
        self.variant.split(", ").any(|part| part == TOUCHED)
    }

    /// One way of a cache line beside the samples: the mean of before and after.
    pub fn line(&self) -> Option<f64> {
        self.lines.map(|[before, after]| (before + after) / 2.0)
    }

    /// What identifies the case.
    pub fn key(&self) -> Key {
        Key {
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

/// Reads JSON that must say first of what form and version it is.
///
/// # Errors
/// It is not JSON of this shape, of another form, or of another version of it.
pub fn read_versioned<T: DeserializeOwned>(
    text: &str, wanted: &'static str, version: u32,
) -> Result<T> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        version: u32,
    }
    let shape = "not a stored result";
    let head: Head = serde_json::from_str(text).context(shape)?;
    ensure!(head.schema == wanted, "a result of `{}`, not of `{wanted}`", head.schema);
    let found = head.version;
    ensure!(found == version, "version {found} of the form; this tool reads {version}");
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

    /// Reads a stored result.
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
        assert!(other.contains("a result of `something.else`"), "{other}");
        let later = refusal(&text.replacen("\"version\":1", "\"version\":2", 1));
        assert!(later.starts_with("version 2"), "{later}");
        assert_eq!(refusal("{}"), "not a stored result");
    }

    #[test]
    fn key__tells_levels_apart() {
        let case = make_report().cases.remove(0);
        let other = Case { level: Level::Transport, ..case.clone() };
        assert_ne!(case.key(), other.key());
    }
}
