//! Output of the program: one JSON object a line, validated as untrusted.

use anyhow::{Result, anyhow};
use fastpath_base::tell::count;
use fastpath_report::output::table::{describe_clock, describe_pair};
use fastpath_report::record::{Case, Clock, MissingTest};
use serde::{Deserialize, Serialize};

use super::selection::{LearnedCosts, Selection};

/// Version of the format.
pub const VERSION: u32 = 1;

/// One line of output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ProgramEvent {
    Start(Start),
    Progress(CaseProgress),
    /// Result of a case, in the stored form.
    Case(Box<Case>),
    /// A test that cannot be run.
    Missing(MissingTest),
    End {
        /// Final properties of the clock.
        clock: Clock,
    },
    /// Protocol selection, printed by this library.
    #[serde(skip)]
    Selection(Selection),
    /// Costs learned from messages, printed by this library.
    #[serde(skip)]
    Learnt(LearnedCosts),
    /// Other output, of a library or a launcher.
    #[serde(skip)]
    Text(String),
}

/// Start of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the format.
    pub program: u32,
    /// First line of `MPI_Get_library_version`.
    pub library: String,
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Processors of the first and the last rank.
    pub processors: Vec<i32>,
    /// Host of rank 0.
    pub host: String,
    pub clock: Clock,
    /// Overhead of measuring each operation singly, in nanoseconds.
    pub overhead_ns_each: f64,
    /// Lines about the adapter, if one is measured below MPI.
    #[serde(default)]
    pub adapter: Vec<String>,
}

impl Start {
    /// Describes the measured library and the clock.
    pub fn describe(&self) -> String {
        let ranks = self.ranks;
        let on = match self.processors.as_slice() {
            &[first, last] if ranks > 1 => {
                format!(", the first and the last on {}", describe_pair(first, last))
            }
            _ => String::new(),
        };
        let adapter: String = self.adapter.iter().map(|l| format!("\n{l}")).collect();
        format!(
            "{}; {}{on}\nclock {}; timing each operation separately would add {:.1} ns{adapter}",
            self.library,
            count(ranks, "rank"),
            describe_clock(&self.clock),
            self.overhead_ns_each
        )
    }
}

/// Start of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseProgress {
    pub test: String,
    /// Bytes of the case.
    pub bytes: u64,
    /// Number of finished cases.
    pub done: u64,
    /// Number of cases of the whole job, as far as known.
    pub total: u64,
}

/// Parses one line. A line that does not look like an event is text.
///
/// # Errors
/// A line that looks like an event, but is damaged, inconsistent, or of another version.
pub fn parse_event(line: &str) -> Result<ProgramEvent> {
    if !line.trim_start().starts_with("{\"event\":") {
        return Ok(ProgramEvent::Text(line.to_owned()));
    }
    let refuse = |reason: String| {
        let shown: String = line.chars().take(200).collect();
        anyhow!("unexpected output of the benchmark program ({reason}): {shown}")
    };
    let event = serde_json::from_str(line).map_err(|e| refuse(e.to_string()))?;
    let wrong = match &event {
        ProgramEvent::Start(start) if start.program != VERSION => {
            format!("the program has version {}, not {VERSION}", start.program)
        }
        ProgramEvent::Case(case) if case.samples.count() == 0 => {
            "a histogram without samples".to_owned()
        }
        ProgramEvent::Case(case) if case.timing.operations_per_sample == 0 => {
            "a sample of no operations".to_owned()
        }
        _ => return Ok(event),
    };
    Err(refuse(wrong))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::record::Quantity;

    const CASE: &str = r#"{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":8,"ranks":2,"window":null,"timing":{"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4},"checked":null,"processors":[0,1],"samples":{"count":3,"min":100,"mean":200,"max":300,"buckets":[[100000,1],[199936,1],[299904,1]]},"floor_of":"memory copy","floor":{"count":1,"min":5,"mean":5,"max":5,"buckets":[[5000,1]]}}"#;

    fn refusal(line: &str) -> String {
        parse_event(line).unwrap_err().to_string()
    }

    #[test]
    fn case__is_read_with_its_floor() {
        let ProgramEvent::Case(case) = parse_event(CASE).unwrap() else {
            panic!("another event");
        };
        assert_eq!((case.test.as_str(), case.bytes), ("latency", 8));
        assert_eq!(case.of, Quantity::HalfRoundTrip);
        let s = case.samples.summarize().unwrap();
        assert_eq!((s.count, s.min, s.mean, s.max), (3, 100.0, 200.0, 300.0));
        assert_eq!(case.floor_of.as_deref(), Some("memory copy"));
        assert_eq!(case.floor.unwrap().count(), 1);
    }

    #[test]
    fn text__passes_through() {
        for text in ["", "hello", "{\"other\":1}", "WARNING: {\"event\":"] {
            assert_eq!(parse_event(text).unwrap(), ProgramEvent::Text(text.to_owned()));
        }
    }

    #[test]
    fn damaged_lines__are_errors_that_show_the_line() {
        let half = &CASE[..CASE.len() / 2];
        assert!(refusal(half).contains("\"test\":\"latency\""));
        assert!(refusal("{\"event\":\"case\"}").contains("missing field"));
        assert!(refusal("{\"event\":\"dance\"}").contains("dance"));
        let twice = format!("{CASE}{CASE}");
        assert!(refusal(&twice).contains("trailing"));
    }

    #[test]
    fn histogram__that_contradicts_itself_is_refused() {
        for (from, to) in [
            ("\"mean\":200", "\"mean\":2000"),
            ("\"min\":100", "\"min\":90"),
            ("\"max\":300", "\"max\":400"),
            ("[100000,1],[199936,1]", "[199936,1],[100000,1]"),
            (",\"buckets\":[[100000,1],[199936,1],[299904,1]]", ",\"buckets\":[]"),
            ("[299904,1]", "[299904,18446744073709551615]"),
            ("[299904,1]", "[299904,9007199254740993]"),
            ("\"mean\":200", "\"mean\":-200"),
            ("\"mean\":200", "\"mean\":1e400"),
            ("\"count\":3", "\"count\":4"),
        ] {
            let wrong = CASE.replacen(from, to, 1);
            assert_ne!(wrong, CASE, "{from}");
            assert!(parse_event(&wrong).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn samples_of_no_operations__are_refused() {
        let wrong = CASE.replacen("sample\":16", "sample\":0", 1);
        assert!(refusal(&wrong).contains("no operations"));
    }

    #[test]
    fn another_version__is_refused() {
        let start = |v: u32| {
            format!(
                r#"{{"event":"start","program":{v},"library":"x","ranks":2,"processors":[0,1],"host":"h","clock":{{"source":"tsc","frequency_hz":2e9,"frequency_error_ppm":1,"resolution_ns":1,"read_ns":20}},"overhead_ns_each":20}}"#
            )
        };
        assert!(matches!(
            parse_event(&start(1)),
            Ok(ProgramEvent::Start(s)) if s.clock.source == "tsc"
        ));
        assert!(refusal(&start(2)).contains("version 2"));
    }
}
