//! Identifies the statistic that a column heading names.

pub const MEAN: &str = "mean";
pub const MEDIAN: &str = "median";

const NAMED: [(&[&str], &str); 6] = [
    (&["stdev", "stddev", "std dev", "deviation"], "standard deviation"),
    (&["typical", "median", "p50"], MEDIAN),
    (&["percentile", "p90", "p95", "p99"], "percentile"),
    (&["avg", "average", "mean"], MEAN),
    (&["min"], "minimum"),
    (&["max", "peak"], "maximum"),
];

pub fn named_statistic(heading: &str) -> Option<&'static str> {
    let lower = heading.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|w| lower.contains(w));
    let found = NAMED.iter().find(|(words, _)| any(words));
    found.map(|(_, statistic)| *statistic)
}
