//! What the program prints: one JSON object a line, read with suspicion.

use anyhow::{Result, anyhow};
use fastpath_report::output::table::{count_ranks, describe_clock, describe_pair};
use fastpath_report::record::{Case, Clock, Missing};
use serde::{Deserialize, Serialize};

use super::selection::{Learnt, Selection};

/// The version of these lines.
pub const VERSION: u32 = 1;

/// One line of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// Who is measured.
    Start(Start),
    /// A case begins.
    Progress(Progress),
    /// A case is done; written as it is stored.
    Case(Box<Case>),
    /// A test that cannot be run.
    Missing(Missing),
    /// All is done.
    End {
        /// The clock after all that time.
        clock: Clock,
    },
    /// Not the program's, but our library's: which protocol serves which size.
    #[serde(skip)]
    Selection(Selection),
    /// The same: what was learnt of messages.
    #[serde(skip)]
    Learnt(Learnt),
    /// Not the program's: what a library or a launcher prints.
    #[serde(skip)]
    Text(String),
}

/// Who is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The version of these lines.
    pub program: u32,
    /// First line of `MPI_Get_library_version`.
    pub library: String,
    /// Ranks of the job.
    pub ranks: u32,
    /// Processors on which the first and the last rank were seen.
    pub processors: Vec<i32>,
    /// Host of rank 0.
    pub host: String,
    /// The clock.
    pub clock: Clock,
    /// What measuring adds to an operation if each is timed singly, in nanoseconds.
    pub overhead_ns_each: f64,
    /// What the adapter is, where one is measured below MPI.
    #[serde(default)]
    pub adapter: Vec<String>,
}

impl Start {
    /// The library that is measured and the clock, as text.
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
            "{}; {}{on}\nclock {}; timing each operation would add {:.1} ns to it{adapter}",
            self.library,
            count_ranks(ranks),
            describe_clock(&self.clock),
            self.overhead_ns_each
        )
    }
}

/// A case begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Name of the test.
    pub test: String,
    /// Bytes of the case.
    pub bytes: u64,
    /// Cases done.
    pub done: u64,
    /// Cases of the whole job, as far as they are known.
    pub total: u64,
}

/// Reads one line. What does not look like an event is text.
///
/// # Errors
/// A line that looks like an event and is damaged, contradicts itself, or is of another version.
pub fn parse_event(line: &str) -> Result<Event> {
    if !line.trim_start().starts_with("{\"event\":") {
        return Ok(Event::Text(line.to_owned()));
    }
    let refuse = |reason: String| {
        let shown: String = line.chars().take(200).collect();
        anyhow!("unexpected output of the benchmark program: {reason}: {shown}")
    };
    let event = serde_json::from_str(line).map_err(|e| refuse(e.to_string()))?;
    let wrong = match &event {
        Event::Start(start) if start.program != VERSION => {
            format!("version {} of the lines", start.program)
        }
        Event::Case(case) if case.samples.count() == 0 => "a histogram without samples".to_owned(),
        Event::Case(case) if case.timing.operations_per_sample == 0 => {
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
    use fastpath_report::record::Of;

    const CASE: &str = r#"{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":8,"ranks":2,"window":null,"timing":{"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4},"checked":null,"processors":[0,1],"samples":{"count":3,"min":100,"mean":200,"max":300,"buckets":[[100000,1],[199936,1],[299904,1]]},"floor_of":"memory copy","floor":{"count":1,"min":5,"mean":5,"max":5,"buckets":[[5000,1]]}}"#;

    fn refusal(line: &str) -> String {
        parse_event(line).unwrap_err().to_string()
    }

    #[test]
    fn case__is_read_with_its_floor() {
        let Event::Case(case) = parse_event(CASE).unwrap() else {
            panic!("another event");
        };
        assert_eq!((case.test.as_str(), case.bytes), ("latency", 8));
        assert_eq!(case.of, Of::HalfRoundTrip);
        let s = case.samples.summarize().unwrap();
        assert_eq!((s.count, s.min, s.mean, s.max), (3, 100.0, 200.0, 300.0));
        assert_eq!(case.floor_of.as_deref(), Some("memory copy"));
        assert_eq!(case.floor.unwrap().count(), 1);
    }

    #[test]
    fn text__passes_through() {
        for text in ["", "hello", "{\"other\":1}", "WARNING: {\"event\":"] {
            assert_eq!(parse_event(text).unwrap(), Event::Text(text.to_owned()));
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
            Ok(Event::Start(s)) if s.clock.source == "tsc"
        ));
        assert!(refusal(&start(2)).contains("version 2"));
    }
}
