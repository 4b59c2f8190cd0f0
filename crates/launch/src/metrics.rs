//! Metrics of a job at its end (`FASTPATH_METRICS`), for monitoring.

use fastpath_base::stored::replace_file;
use fastpath_base::sync::Ordering;
use fastpath_base::tell::escape;
use fastpath_job::inspect::metrics::{MetricKey, Metrics, MetricsFormat, RankLabels};
use fastpath_segment::{RankPhase, Segment};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// File of the metrics of this host's ranks.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    started: Instant,
}

impl MetricsFile {
    /// Makes the file of host `node`. The name has the number of every host but the first, as in `job.1.prom`, because
    /// hosts may share the folder.
    pub fn new(path: &Path, node: usize) -> MetricsFile {
        let path = match node {
            0 => path.to_owned(),
            node => {
                let end = path.extension().unwrap_or_default().to_string_lossy();
                path.with_extension(format!("{node}.{end}").trim_end_matches('.'))
            }
        };
        MetricsFile { path, started: Instant::now() }
    }

    /// Writes the metrics of `ranks`, which are on this host. Returns a diagnostic if the file cannot be written.
    pub fn write(
        &self, segment: &Segment, host: &str, ranks: impl Iterator<Item = usize>, code: i32,
    ) -> Option<String> {
        let job = format!("{:016x}", segment.header().job_id.load(Ordering::Relaxed));
        let mut metrics = Metrics::default();
        let mut count = 0;
        for rank in ranks {
            count += 1;
            let of = RankLabels { job: &job, rank, host };
            // A rank that has not finalized MPI has stored no counters.
            if let Some(page) = segment.page(rank).filter(|p| p.phase() == RankPhase::Finalized) {
                let words = page.final_counters.each_ref().map(|w| w.load(Ordering::Relaxed));
                metrics.add_counters(of, &words);
            }
        }
        metrics.add_job(MetricKey::JobRanks, &job, host, f64::from(count));
        let seconds = self.started.elapsed().as_secs_f64();
        metrics.add_job(MetricKey::JobSeconds, &job, host, seconds);
        metrics.add_job(MetricKey::JobExitCode, &job, host, f64::from(code));
        let shared = segment.used_bytes().unwrap_or(0) as f64;
        metrics.add_job(MetricKey::SharedBytes, &job, host, shared);
        let text = metrics.format(MetricsFormat::of_file(&self.path));
        let written = replace_file(&self.path, &text);
        let path = escape(&self.path.to_string_lossy()).into_owned();
        written.err().map(|e| format!("mpiexec: no metrics were written to {path}: {e}\n"))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn file__of_a_later_host_keeps_its_ending() {
        let path = |path, node| MetricsFile::new(Path::new(path), node).path;
        assert_eq!(path("/a/job.prom", 0), Path::new("/a/job.prom"));
        assert_eq!(path("/a/job.prom", 2), Path::new("/a/job.2.prom"));
        assert_eq!(path("/a/job", 2), Path::new("/a/job.2"));
    }
}
