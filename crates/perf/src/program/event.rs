//! What the program prints: one JSON object a line, read with suspicion.

use serde::Deserialize;

use super::Selection;
use crate::record::{Case, Clock, Histogram, Level, Missing, Of, Timing};

/// The version of these lines.
const VERSION: u32 = 1;

/// One line of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Who is measured.
    Start(Start),
    /// A case begins.
    Progress(Progress),
    /// A case is done.
    Case(Box<Case>),
    /// A test that cannot be run.
    Missing(Missing),
    /// All is done; the clock after all that time.
    End(Clock),
    /// Not the program's, but our library's: which protocol serves which size.
    Selection(Selection),
    /// Not the program's: what a library or a launcher prints.
    Text(String),
}

/// Who is measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Start {
    program: u32,
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
    /// What measuring adds to an operation if each is timed alone, in nanoseconds.
    pub overhead_ns_each: f64,
    /// What the adapter is, where one is measured below MPI.
    #[serde(default)]
    pub adapter: Vec<String>,
}

/// A case begins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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

/// Why a line that looks like an event is none.
#[derive(Debug, thiserror::Error)]
#[error("the benchmark program printed what it should not: {reason}: {line}")]
pub struct EventError {
    /// What is wrong.
    pub reason: String,
    /// The line, cut where it is long.
    pub line: String,
}

/// A histogram as printed.
#[derive(Deserialize)]
struct Samples {
    sum: f64,
    min: f64,
    max: f64,
    buckets: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Floor {
    of: String,
    #[serde(flatten)]
    samples: Samples,
}

#[derive(Deserialize)]
struct CaseLine {
    test: String,
    variant: String,
    operation: String,
    of: Of,
    unit: String,
    bytes: u64,
    ranks: u32,
    window: Option<u32>,
    operations_per_sample: u64,
    warmup_operations: u64,
    overhead_ns: f64,
    checked: Option<bool>,
    processors: Vec<i32>,
    #[serde(default)]
    level: Level,
    #[serde(default)]
    transport: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    protocol_sizes: Option<(u64, Option<u64>)>,
    #[serde(default)]
    processor_percent: Option<f64>,
    #[serde(default)]
    lines: Option<[f64; 2]>,
    #[serde(default)]
    defined: std::collections::BTreeMap<String, f64>,
    #[serde(default)]
    counts: std::collections::BTreeMap<String, f64>,
    #[serde(flatten)]
    samples: Samples,
    floor: Option<Floor>,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Start(Start),
    Progress(Progress),
    Case(Box<CaseLine>),
    Missing {
        test: String,
        #[serde(default)]
        level: Level,
        reason: String,
    },
    End {
        clock: Clock,
    },
}

/// A bucket is at most this share of its value wide.
const BUCKET_WIDTH: f64 = 1.0 / 2048.0;

impl Samples {
    fn into_histogram(self) -> Result<Histogram, String> {
        let Samples {
            sum,
            min,
            max,
            buckets,
        } = self;
        let ascending = buckets.windows(2).all(|w| w[0].0 < w[1].0);
        let total = buckets
            .iter()
            .try_fold(0u64, |n, &(_, count)| n.checked_add(count));
        let (Some(count @ 1..), true) = (total, ascending) else {
            return Err(
                "a histogram without samples, or with too many, or out of order".to_owned(),
            );
        };
        let (lowest, highest) = (buckets[0].0, buckets[buckets.len() - 1].0);
        // Half a thousandth is rounding.
        let holds = |bound: u64, value: f64| {
            let thousandths = value * 1000.0;
            (thousandths + 1.0) >= bound as f64
                && thousandths <= (bound as f64 + 1.0) * (1.0 + BUCKET_WIDTH)
        };
        let mean = sum / count as f64;
        if !(holds(lowest, min) && holds(highest, max)) {
            return Err(
                "a histogram whose smallest or largest sample lies in no bucket".to_owned(),
            );
        }
        if !(min * 0.999_999 <= mean && mean <= max * 1.000_001) {
            return Err("a histogram whose mean lies outside of its samples".to_owned());
        }
        Histogram::from_parts(buckets, sum, min, max)
            .ok_or_else(|| "a histogram that contradicts itself".to_owned())
    }
}

impl CaseLine {
    fn into_case(self) -> Result<Case, String> {
        let (floor, floor_of) = match self.floor {
            Some(floor) => (Some(floor.samples.into_histogram()?), Some(floor.of)),
            None => (None, None),
        };
        if self.operations_per_sample == 0 {
            return Err("a sample of no operations".to_owned());
        }
        Ok(Case {
            test: self.test,
            variant: self.variant,
            operation: self.operation,
            level: self.level,
            of: self.of,
            unit: self.unit,
            bytes: self.bytes,
            ranks: self.ranks,
            window: self.window,
            samples: self.samples.into_histogram()?,
            timing: Timing {
                operations_per_sample: self.operations_per_sample,
                warmup_operations: self.warmup_operations,
                overhead_ns: self.overhead_ns,
            },
            transport: self.transport,
            protocol: self.protocol,
            protocol_sizes: self.protocol_sizes,
            floor,
            floor_of,
            floor_line: None,
            lines: self.lines,
            checked: self.checked,
            processors: self.processors,
            processor_percent: self.processor_percent,
            defined: self.defined,
            counts: self.counts,
        })
    }
}

/// Reads one line. What does not look like an event is text.
///
/// # Errors
/// A line that looks like an event and is damaged, contradicts itself, or is of another version.
pub fn parse_event(line: &str) -> Result<Event, EventError> {
    if !line.trim_start().starts_with("{\"event\":") {
        return Ok(Event::Text(line.to_owned()));
    }
    let refuse = |reason: String| EventError {
        reason,
        line: line.chars().take(200).collect(),
    };
    let parsed = serde_json::from_str(line).map_err(|e| refuse(e.to_string()))?;
    Ok(match parsed {
        Line::Start(start) if start.program == VERSION => Event::Start(start),
        Line::Start(start) => {
            return Err(refuse(format!("version {} of the lines", start.program)));
        }
        Line::Progress(progress) => Event::Progress(progress),
        Line::Case(case) => Event::Case(Box::new(case.into_case().map_err(refuse)?)),
        Line::Missing {
            test,
            level,
            reason,
        } => Event::Missing(Missing {
            test,
            level,
            reason,
        }),
        Line::End { clock } => Event::End(clock),
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const CASE: &str = r#"{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":8,"ranks":2,"window":null,"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4,"checked":null,"processors":[0,1],"sum":600,"min":100,"max":300,"buckets":[[100000,1],[199936,1],[299904,1]],"floor":{"of":"memory copy","sum":5,"min":5,"max":5,"buckets":[[5000,1]]}}"#;

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
            ("\"sum\":600", "\"sum\":6000"),
            ("\"min\":100", "\"min\":90"),
            ("\"max\":300", "\"max\":400"),
            ("[100000,1],[199936,1]", "[199936,1],[100000,1]"),
            (
                ",\"buckets\":[[100000,1],[199936,1],[299904,1]]",
                ",\"buckets\":[]",
            ),
            ("[299904,1]", "[299904,18446744073709551615]"),
            ("[299904,1]", "[299904,9007199254740993]"),
            ("\"sum\":600", "\"sum\":-600"),
            ("\"sum\":600", "\"sum\":1e400"),
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
