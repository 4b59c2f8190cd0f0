//! Metrics of jobs as text: for Prometheus (version 0.0.4 of its text format, which node_exporter's textfile collector
//! reads) and in OpenMetrics 1.0.

use std::fmt::Write as _;
use std::path::Path;

/// Form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus text format.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the format of a file by the end of its name.
    pub fn of_file(path: &Path) -> MetricsFormat {
        match path.extension().is_some_and(|end| end == "openmetrics") {
            true => MetricsFormat::OpenMetrics,
            false => MetricsFormat::Prometheus,
        }
    }
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
}

/// A metric: name without `_total`, unit, kind and help.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    /// Unit, which ends the name; empty for numbers of things.
    unit: &'static str,
    kind: MetricKind,
    help: &'static str,
}

/// Defines the metrics.
macro_rules! metrics {
    ($($key:ident $name:literal $unit:literal $kind:ident $help:literal;)*) => {
        /// A metric of jobs or ranks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MetricKey { $(#[doc = $help] $key,)* }

        const METRICS: &[Metric] = &[$(Metric {
            name: $name, unit: $unit, kind: MetricKind::$kind, help: $help,
        },)*];
    };
}

metrics! {
    JobRanks "fastpath_job_ranks" "" Gauge "Ranks of the job on this host.";
    JobSeconds "fastpath_job_run_seconds" "seconds" Gauge "Time since the start of the job.";
    JobExitCode "fastpath_job_exit_code" "" Gauge "Exit code of mpiexec.";
    SharedBytes "fastpath_shared_memory_bytes" "bytes" Gauge "Shared memory of the job.";
    ResidentBytes "fastpath_resident_memory_bytes" "bytes" Gauge "Resident memory of the process.";
    WaitSeconds "fastpath_wait_seconds" "seconds" Gauge
        "Duration of the longest present wait in MPI; 0 if the rank does not wait.";
    SentMessages "fastpath_sent_messages" "" Counter
        "Messages sent, without those that fit into a slot of shared memory.";
    SentBytes "fastpath_sent_bytes" "bytes" Counter
        "Bytes sent, without messages that fit into a slot of shared memory.";
    SlotsSent "fastpath_sent_slots" "" Counter
        "Slots of 64 bytes sent through shared memory, for short messages and protocol steps.";
    Requests "fastpath_requests" "" Counter "Requests made.";
    Unexpected "fastpath_unexpected_messages" "" Counter "Unexpected messages stored.";
    Waits "fastpath_waits" "" Counter "Waits that did not end at their first poll.";
    Yields "fastpath_yields" "" Counter "Yields of the processor in waits.";
    Sleeps "fastpath_sleeps" "" Counter "Sleeps of the process in waits.";
    Connections "fastpath_connections" "" Counter "Connections opened to peers.";
    Dropped "fastpath_dropped_messages" "" Counter "Invalid messages that were dropped.";
    UnexpectedNow "fastpath_unexpected_queue_messages" "" Gauge
        "Unexpected messages in the queue.";
    ReceivesNow "fastpath_posted_receives" "" Gauge "Receives under way.";
    SendsNow "fastpath_active_sends" "" Gauge "Sends under way.";
    SendBytesNow "fastpath_active_send_bytes" "bytes" Gauge "Bytes of the sends under way.";
}

/// Number of words of a rank's counters, in the order of `fastpath_protocol::Counters::words`.
pub const COUNTER_WORDS: usize = fastpath_segment::FINAL_COUNTERS;

/// Protocol and path of each kind of message, in the order of the counters. Each kind has two words: messages, bytes.
const SENT: [(&str, &str); 4] = [
    ("eager", "memory"),
    ("eager", "network"),
    ("rendezvous", "memory"),
    ("rendezvous", "network"),
];

/// Counters that follow the counters of messages: index and metric.
const COUNTED: [(usize, MetricKey); 7] = [
    (8, MetricKey::Requests),
    (9, MetricKey::Unexpected),
    (13, MetricKey::Waits),
    (14, MetricKey::Yields),
    (15, MetricKey::Sleeps),
    (16, MetricKey::Connections),
    (17, MetricKey::Dropped),
];

/// Values of metrics, each with its labels.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Vec<(MetricKey, String, f64)>,
}

/// Formats labels: `job="1",rank="0"`.
fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let between = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        _ = write!(text, "{between}{name}=\"{value}\"");
    }
    text
}

impl Metrics {
    /// Adds a value of a job.
    pub fn add_job(&mut self, key: MetricKey, job: &str, host: &str, value: f64) {
        self.samples.push((key, labels(&[("job", job), ("host", host)]), value));
    }

    /// Adds a value of a rank.
    pub fn add_rank(&mut self, key: MetricKey, of: RankLabels<'_>, value: f64) {
        self.samples.push((key, of.text(&[]), value));
    }

    /// Adds the counters of a rank.
    pub fn add_counters(&mut self, of: RankLabels<'_>, words: &[u64; COUNTER_WORDS]) {
        for (index, (protocol, path)) in SENT.into_iter().enumerate() {
            let text = of.text(&[("protocol", protocol), ("path", path)]);
            self.samples.push((MetricKey::SentMessages, text.clone(), words[2 * index] as f64));
            self.samples.push((MetricKey::SentBytes, text, words[2 * index + 1] as f64));
        }
        for (index, key) in COUNTED {
            self.add_rank(key, of, words[index] as f64);
        }
    }

    /// Formats all values. Metrics without a value are left out.
    pub fn format(&self, format: MetricsFormat) -> String {
        let mut out = String::new();
        for (index, metric) in METRICS.iter().enumerate() {
            let mut samples =
                self.samples.iter().filter(|(key, ..)| *key as usize == index).peekable();
            if samples.peek().is_none() {
                continue;
            }
            let sample = match metric.kind {
                MetricKind::Counter => format!("{}_total", metric.name),
                MetricKind::Gauge => metric.name.to_owned(),
            };
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
            };
            _ = match format {
                MetricsFormat::Prometheus => {
                    writeln!(out, "# HELP {sample} {}\n# TYPE {sample} {kind}", metric.help)
                }
                MetricsFormat::OpenMetrics => {
                    _ = writeln!(out, "# TYPE {} {kind}", metric.name);
                    if !metric.unit.is_empty() {
                        _ = writeln!(out, "# UNIT {} {}", metric.name, metric.unit);
                    }
                    writeln!(out, "# HELP {} {}", metric.name, metric.help)
                }
            };
            for (_, labels, value) in samples {
                _ = writeln!(out, "{sample}{{{labels}}} {value}");
            }
        }
        if format == MetricsFormat::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

/// Labels of a rank.
#[derive(Clone, Copy, Debug)]
pub struct RankLabels<'a> {
    /// Identifier of the job, equal on all its hosts.
    pub job: &'a str,
    /// Rank in the job.
    pub rank: usize,
    /// Host of the rank.
    pub host: &'a str,
}

impl RankLabels<'_> {
    fn text(&self, more: &[(&str, &str)]) -> String {
        let rank = self.rank.to_string();
        let own = [("job", self.job), ("rank", &*rank), ("host", self.host)];
        labels(&[&own[..], more].concat())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn sample() -> Metrics {
        let mut metrics = Metrics::default();
        metrics.add_job(MetricKey::JobSeconds, "1", "a\"\\\n", 1.5);
        let of = RankLabels { job: "1", rank: 3, host: "h" };
        let mut words = [0; COUNTER_WORDS];
        words[..2].copy_from_slice(&[7, 4096]);
        metrics.add_counters(of, &words);
        metrics
    }

    #[test]
    fn prometheus__names_each_counter_with_its_total() {
        let text = sample().format(MetricsFormat::Prometheus);
        let bytes = "# HELP fastpath_sent_bytes_total Bytes sent, without messages that fit into a \
                     slot of shared memory.\n# TYPE fastpath_sent_bytes_total counter\n\
                     fastpath_sent_bytes_total{job=\"1\",rank=\"3\",host=\"h\",protocol=\"eager\",\
                     path=\"memory\"} 4096\n";
        assert!(text.contains(bytes), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn open_metrics__has_units_and_an_end() {
        let text = sample().format(MetricsFormat::OpenMetrics);
        let bytes = "# TYPE fastpath_sent_bytes counter\n# UNIT fastpath_sent_bytes bytes\n";
        assert!(text.contains(bytes) && text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn labels__are_escaped() {
        let text = sample().format(MetricsFormat::Prometheus);
        assert!(text.contains(r#"fastpath_job_run_seconds{job="1",host="a\"\\\n"} 1.5"#), "{text}");
    }

    #[test]
    fn units__end_the_names() {
        for metric in METRICS {
            assert!(metric.name.ends_with(metric.unit), "{}", metric.name);
            assert!(metric.name.starts_with("fastpath_"), "{}", metric.name);
        }
    }
}
