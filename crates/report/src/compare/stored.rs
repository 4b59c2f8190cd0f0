//! Comparison of two stored results: a baseline and the current one.
//!
//! Only equal cases are compared. Two single runs give only the noise within a run, which is less than the noise
//! between runs. The threshold allows for the noise between runs. Several runs on a side show both kinds of noise.

use fastpath_base::tell::count;
use std::collections::BTreeMap;

use serde::Serialize;

use super::{Statistic, is_more_better};
use crate::format::behind;
use crate::output::csv::word;
use crate::record::interval::{self, Ratio, Verdict};
use crate::record::{Case, CaseKey, Report};

/// Rule of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Statistic to compare.
    pub statistic: Statistic,
    /// A change counts if its interval excludes 1 and it is larger than this factor (1 or more).
    pub threshold: f64,
    /// Whether to ignore cases that one side lacks.
    pub common_only: bool,
}

/// One case on both sides.
#[derive(Clone, Debug)]
pub struct CaseChange {
    /// Key of the case.
    pub key: CaseKey,
    /// The earlier statistic; the geometric mean of several runs.
    pub before: f64,
    /// The current statistic; the geometric mean of several runs.
    pub now: f64,
    /// Ratio now/before.
    pub ratio: Ratio,
    /// Verdict, with the threshold applied.
    pub verdict: Verdict,
    /// Number of runs of each side: before, now.
    pub runs: [usize; 2],
}

impl CaseChange {
    /// Whether the case became worse.
    pub fn is_worse(&self) -> bool {
        let worse = if is_more_better(self.key.of) { Verdict::Below } else { Verdict::Above };
        self.verdict == worse
    }
}

/// A case that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RefusedCase {
    /// The case, as text.
    pub what: String,
    /// The reason.
    pub reason: String,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Compared cases.
    pub changes: Vec<CaseChange>,
    /// Cases that could not be compared.
    pub refused: Vec<RefusedCase>,
    /// Relevant differences between the runs as a whole.
    pub notes: Vec<String>,
}

impl Changes {
    /// Exit code. 0: nothing became worse. 1: a case became worse. 2: a case could not be compared.
    pub fn exit_code(&self) -> u8 {
        if self.changes.iter().any(CaseChange::is_worse) {
            1
        } else if !self.refused.is_empty() || self.changes.is_empty() {
            2
        } else {
            0
        }
    }
}

type Side<'a> = BTreeMap<CaseKey, Vec<&'a Case>>;

fn gather(reports: &[Report]) -> Side<'_> {
    let mut side = Side::new();
    for case in reports.iter().flat_map(|r| &r.cases) {
        side.entry(case.key()).or_default().push(case);
    }
    side
}

/// Compares two sides, each of one run or several.
pub fn compare(before: &[Report], now: &[Report], rule: Rule) -> Changes {
    let mut result = Changes { notes: list_differences(before, now), ..Changes::default() };
    let (old, new) = (gather(before), gather(now));
    for (key, cases) in &new {
        let outcome = match old.get(key) {
            Some(earlier) => compare_case(key, earlier, cases, rule),
            None if rule.common_only => continue,
            None => Err(explain_missing(key, &old, "the baseline")),
        };
        match outcome {
            Ok(change) => result.changes.push(change),
            Err(reason) => result.refused.push(RefusedCase { what: describe_key(key), reason }),
        }
    }
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        if !rule.common_only && !has_like(key, &new) {
            result.refused.push(RefusedCase {
                what: describe_key(key),
                reason: "exists only in the baseline".to_owned(),
            });
        }
    }
    result
}

fn compare_case(
    key: &CaseKey, old: &[&Case], new: &[&Case], rule: Rule,
) -> Result<CaseChange, String> {
    check_batches(old, new, rule.statistic)?;
    let take = |cases: &[&Case]| -> Option<Vec<f64>> {
        cases.iter().map(|c| rule.statistic.take(&c.samples)).collect()
    };
    let (Some(before), Some(now)) = (take(old), take(new)) else {
        return Err("the baseline or the new result has no samples".to_owned());
    };
    let ratio = if let ([a], [b]) = (new, old) {
        compare_single(a, b, rule.statistic)
    } else {
        interval::of_groups(&now, &before)
    };
    let ratio = ratio.ok_or("the value of one side is zero, so there is no ratio")?;
    let large = ratio.ratio > rule.threshold || ratio.ratio < 1.0 / rule.threshold;
    let verdict = match ratio.interval {
        // Without an interval (a minimum, few samples) only the threshold decides.
        None if large && rule.threshold > 1.0 && ratio.ratio > 1.0 => Verdict::Above,
        None if large && rule.threshold > 1.0 => Verdict::Below,
        Some(_) if large => ratio.judge(),
        _ => Verdict::CannotTell,
    };
    let average =
        |values: &[f64]| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp();
    Ok(CaseChange {
        key: key.clone(),
        before: average(&before),
        now: average(&now),
        ratio,
        verdict,
        runs: [old.len(), new.len()],
    })
}

/// Compares one run on each side: the interval comes from the samples.
fn compare_single(now: &Case, before: &Case, statistic: Statistic) -> Option<Ratio> {
    let side = |case: &Case| {
        let value = statistic.take(&case.samples)?;
        Some((value, statistic.find_interval(&case.samples)))
    };
    match (side(now)?, side(before)?) {
        ((a, Some(a_interval)), (b, Some(b_interval))) => {
            interval::of_intervals((a, a_interval), (b, b_interval))
        }
        ((a, _), (b, _)) => interval::of_pairs(&[(a, b)]),
    }
}

/// Rejects different batch sizes: a percentile over means of 16 operations differs from a percentile over single
/// operations.
fn check_batches(old: &[&Case], new: &[&Case], statistic: Statistic) -> Result<(), String> {
    if statistic == Statistic::Mean {
        return Ok(());
    }
    let first = old[0].timing.operations_per_sample;
    let other = old.iter().chain(new).map(|c| c.timing.operations_per_sample).find(|o| *o != first);
    match other {
        None => Ok(()),
        Some(other) => Err(format!(
            "different statistic ({}): a sample is the mean of {first} operations on one side, and \
             of {other} operations on the other; measure both sides with --timing batch=N, or use \
             --statistic mean",
            statistic.name(),
        )),
    }
}

/// A case as text.
pub fn describe_key(key: &CaseKey) -> String {
    let variant = behind(" ", &key.variant);
    format!(
        "{}{variant}, {} B, {}, level {}",
        key.test,
        key.bytes,
        count(key.ranks, "rank"),
        key.level.name()
    )
}

fn list_key_differences(a: &CaseKey, b: &CaseKey) -> Vec<String> {
    let show_window = |w: Option<u32>| w.map_or("none".to_owned(), |w| w.to_string());
    let fields = [
        ("operation", a.operation.clone(), b.operation.clone()),
        ("size", format!("{} B", a.bytes), format!("{} B", b.bytes)),
        ("level", a.level.name().to_owned(), b.level.name().to_owned()),
        ("what is timed", word(&a.of), word(&b.of)),
        ("unit", a.unit.clone(), b.unit.clone()),
        ("ranks", a.ranks.to_string(), b.ranks.to_string()),
        ("window", show_window(a.window), show_window(b.window)),
        ("variant", a.variant.clone(), b.variant.clone()),
    ];
    fields
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| format!("different {name}: {b} before, {a} now"))
        .collect()
}

/// Finds the most similar case of the test on the other side.
fn find_nearest<'a>(key: &CaseKey, side: &'a Side<'_>) -> Option<&'a CaseKey> {
    side.keys()
        .filter(|other| other.test == key.test)
        .min_by_key(|other| list_key_differences(key, other).len())
}

fn has_like(key: &CaseKey, side: &Side<'_>) -> bool {
    find_nearest(key, side).is_some_and(|other| {
        let differences = list_key_differences(key, other);
        differences.len() == 1 && !differences[0].starts_with("different size")
    })
}

fn explain_missing(key: &CaseKey, side: &Side<'_>, name: &str) -> String {
    match find_nearest(key, side) {
        None => format!("{name} has no test with this name"),
        Some(other) => match list_key_differences(key, other).as_slice() {
            [size] if size.starts_with("different size") => format!("{name} lacks this size"),
            differences => differences.join("; "),
        },
    }
}

fn list_differences(before: &[Report], now: &[Report]) -> Vec<String> {
    let (Some(a), Some(b)) = (before.first(), now.first()) else {
        return Vec::new();
    };
    let (a, b) = (&a.run, &b.run);
    let fields = [
        ("host", &a.machine.host, &b.machine.host),
        ("processor", &a.machine.processor, &b.machine.processor),
        ("kernel", &a.machine.kernel, &b.machine.kernel),
        ("MPI library", &a.mpi.version, &b.mpi.version),
        ("clock", &a.clock.source, &b.clock.source),
    ];
    let mut notes: Vec<String> = fields
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| format!("another {name}: {a} before, {b} now"))
        .collect();
    if a.environment != b.environment {
        notes.push(format!("other settings: {:?} before, {:?} now", a.environment, b.environment));
    }
    notes
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::{Level, Quantity, Run};
    use crate::testing::samples::{make_case, make_report};

    const RULE: Rule = Rule { statistic: Statistic::Median, threshold: 1.05, common_only: false };

    fn make_samples(middle: f64) -> Vec<f64> {
        (0..200).map(|i| middle + f64::from(i % 11) / 10.0).collect()
    }

    fn make_run(cases: Vec<Case>) -> Vec<Report> {
        let mut report = Report::new(Run::default());
        report.cases = cases;
        vec![report]
    }

    fn run_of(ns: f64) -> Vec<Report> {
        make_run(vec![make_case(8, &make_samples(ns))])
    }

    #[test]
    fn same_result__has_no_change_and_code_0() {
        let result = compare(&run_of(100.0), &run_of(100.0), RULE);
        assert_eq!(result.exit_code(), 0, "{result:?}");
        assert_eq!(result.changes[0].verdict, Verdict::CannotTell);
        assert!(result.notes.is_empty() && result.refused.is_empty());
    }

    #[test]
    fn slower_case__has_code_1_and_its_ratio() {
        let result = compare(&run_of(100.0), &run_of(120.0), RULE);
        assert_eq!(result.exit_code(), 1);
        let change = &result.changes[0];
        assert!((change.ratio.ratio - 1.2).abs() < 0.01, "{change:?}");
        assert_eq!(compare(&run_of(120.0), &run_of(100.0), RULE).exit_code(), 0);
    }

    #[test]
    fn change__within_the_threshold_is_none() {
        let result = compare(&run_of(100.0), &run_of(103.0), RULE);
        assert_eq!(result.exit_code(), 0);
        let strict = Rule { threshold: 1.0, ..RULE };
        assert_eq!(compare(&run_of(100.0), &run_of(103.0), strict).exit_code(), 1);
    }

    #[test]
    fn minimum__has_no_interval_and_goes_by_the_threshold() {
        let rule = Rule { statistic: Statistic::Min, ..RULE };
        let result = compare(&run_of(100.0), &run_of(120.0), rule);
        assert_eq!(result.changes[0].ratio.interval, None);
        assert_eq!(result.exit_code(), 1);
        let without = Rule { threshold: 1.0, ..rule };
        assert_eq!(compare(&run_of(100.0), &run_of(120.0), without).exit_code(), 0);
    }

    #[test]
    fn several_runs__bring_the_noise_between_them() {
        let many =
            |values: &[f64]| -> Vec<Report> { values.iter().flat_map(|v| run_of(*v)).collect() };
        let noisy = compare(&many(&[100.0, 140.0]), &many(&[130.0, 150.0]), RULE);
        assert_eq!(noisy.changes[0].verdict, Verdict::CannotTell, "{noisy:?}");
        assert_eq!(noisy.changes[0].runs, [2, 2]);
        let clear = compare(&many(&[100.0, 101.0, 99.0]), &many(&[130.0, 131.0, 129.0]), RULE);
        assert_eq!(clear.exit_code(), 1);
    }

    fn refuse(change: impl FnOnce(&mut Case)) -> Vec<RefusedCase> {
        let old = run_of(100.0);
        let mut new = old.clone();
        change(&mut new[0].cases[0]);
        let result = compare(&old, &new, RULE);
        assert_eq!(result.exit_code(), 2);
        assert!(result.changes.is_empty());
        result.refused
    }

    #[test]
    fn unlike_cases__are_refused_with_the_reason() {
        type Edit = fn(&mut Case);
        let changes: [(&str, Edit); 7] = [
            ("different operation", |c| c.operation = "MPI_Isend/MPI_Irecv".into()),
            ("different level: mpi before, protocol now", |c| c.level = Level::Protocol),
            ("different what is timed", |c| c.of = Quantity::RoundTrip),
            ("different unit", |c| c.unit = "us".into()),
            ("different ranks: 2 before, 4 now", |c| c.ranks = 4),
            ("different window: none before, 64 now", |c| c.window = Some(64)),
            ("different statistic", |c| c.timing.operations_per_sample = 1),
        ];
        for (reason, change) in changes {
            let refused = refuse(change);
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].reason.contains(reason), "{refused:?}");
        }
    }

    #[test]
    fn size_or_test__that_one_side_lacks_is_refused_on_both() {
        let refused = refuse(|c| c.bytes = 16);
        let reasons: Vec<&str> = refused.iter().map(|r| r.reason.as_str()).collect();
        assert_eq!(reasons, ["the baseline lacks this size", "exists only in the baseline"]);
        let refused = refuse(|c| c.test = "other".into());
        assert!(refused[0].reason.contains("no test with this name"), "{refused:?}");
    }

    #[test]
    fn common_only__passes_over_what_one_side_lacks() {
        let old = make_run(vec![make_case(8, &make_samples(100.0)), make_case(64, &[1.0])]);
        let new = make_run(vec![make_case(8, &make_samples(100.0)), make_case(128, &[1.0])]);
        let rule = Rule { common_only: true, ..RULE };
        assert_eq!(compare(&old, &new, rule).exit_code(), 0);
        assert_eq!(compare(&old, &new, RULE).exit_code(), 2);
    }

    #[test]
    fn mean__does_not_depend_on_the_batch() {
        let old = run_of(100.0);
        let mut new = old.clone();
        new[0].cases[0].timing.operations_per_sample = 1;
        let rule = Rule { statistic: Statistic::Mean, ..RULE };
        assert_eq!(compare(&old, &new, rule).exit_code(), 0);
    }

    #[test]
    fn share_that_is_free__is_worse_when_it_falls() {
        let case = |percent: f64| {
            let mut case = make_case(8, &make_samples(percent));
            (case.of, case.unit) = (Quantity::Overlap, "%".into());
            make_run(vec![case])
        };
        assert_eq!(compare(&case(90.0), &case(40.0), RULE).exit_code(), 1);
        assert_eq!(compare(&case(40.0), &case(90.0), RULE).exit_code(), 0);
    }

    #[test]
    fn other_machine__is_noted() {
        let (old, mut new) = (vec![make_report()], vec![make_report()]);
        new[0].run.machine.host = "node8".into();
        let notes = compare(&old, &new, RULE).notes;
        assert_eq!(notes, ["another host: node7 before, node8 now"]);
    }

    #[test]
    fn nothing_to_compare__is_no_success() {
        assert_eq!(compare(&make_run(vec![]), &make_run(vec![]), RULE).exit_code(), 2);
    }
}
