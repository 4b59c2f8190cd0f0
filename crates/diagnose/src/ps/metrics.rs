//! `fastpath ps --metrics`: the state of running jobs for monitoring.

use super::Listing;
use fastpath_job::inspect::metrics::{MetricKey, Metrics, MetricsFormat, RankLabels};
use std::io::{self, Write};

/// Prints the metrics of the jobs of this host. `format` is a word of `--metrics`.
///
/// # Errors
/// The output cannot be written.
pub(super) fn write(listing: &Listing, format: &str) -> io::Result<()> {
    io::stdout().lock().write_all(self::format(listing, format).as_bytes())
}

fn format(listing: &Listing, format: &str) -> String {
    let mut metrics = Metrics::default();
    let host = &*listing.host;
    for job in &listing.jobs {
        let mut add = |key, value| metrics.add_job(key, &job.id, host, value);
        add(MetricKey::JobRanks, job.ranks.len() as f64);
        add(MetricKey::SharedBytes, job.shared_bytes as f64);
        if let Some(seconds) = job.seconds {
            add(MetricKey::JobSeconds, seconds);
        }
        for entry in &job.ranks {
            let of = RankLabels { job: &job.id, rank: entry.rank, host };
            let traffic = &entry.traffic;
            if let Some(counters) = traffic.counters {
                metrics.add_counters(of, &counters.words());
            }
            let longest = entry.waits.iter().map(|wait| wait.seconds).fold(0.0, f64::max);
            let mut add = |key, value| metrics.add_rank(key, of, value);
            add(MetricKey::ResidentBytes, entry.resident_bytes as f64);
            add(MetricKey::WaitSeconds, longest);
            add(MetricKey::SlotsSent, traffic.ring_slots_sent as f64);
            if let Some(queues) = &traffic.queues {
                add(MetricKey::UnexpectedNow, queues.unexpected as f64);
                add(MetricKey::ReceivesNow, queues.receives as f64);
                add(MetricKey::SendsNow, queues.sends as f64);
                add(MetricKey::SendBytesNow, queues.send_bytes as f64);
            }
        }
    }
    metrics.format(match format {
        "openmetrics" => MetricsFormat::OpenMetrics,
        _ => MetricsFormat::Prometheus,
    })
}
