//! Application-like loads as one named set of tests: `fastpath compare --loads`.
//!
//! Untouched buffers, one message at a time and one pair of ranks favour data that has just been copied. The loads add
//! buffers that are written and read, odd addresses, memory of `MPI_Alloc_mem`, and both directions at once. They also
//! add windows, halos, rings and all-to-all of more ranks than processors, large collectives, and the first messages
//! after `MPI_Init`.

use fastpath_report::data::table;
use serde::Deserialize;

use super::rounds::RunPlan;
use crate::options::CaseOptions;
use crate::program::Settings;

/// A test with application-like settings.
#[derive(Deserialize)]
struct Load {
    test: String,
    /// Numbers of ranks, a job each.
    #[serde(default = "pair")]
    ranks: Vec<u32>,
    /// Message sizes, in bytes, if there are more ranks than processors; None: unchanged.
    crowded: Option<Vec<u64>>,
    #[serde(flatten)]
    case: CaseOptions,
}

#[derive(Deserialize)]
struct Loads {
    load: Vec<Load>,
}

table!(LOADS: Loads = "loads.toml");

fn pair() -> Vec<u32> {
    vec![2]
}

/// Lists a plan for each load and number of ranks. `settings` returns the settings of a test, given whether there are
/// more ranks than processors.
pub fn list_plans(processors: usize, settings: impl Fn(&str, bool) -> Settings) -> Vec<RunPlan> {
    let make = |load: &Load, ranks: u32| {
        let crowded = ranks as usize > processors;
        let common = settings(&load.test, crowded);
        let timing = match crowded {
            // A message may take milliseconds with more ranks than processors.
            true => Some("batch=1".to_owned()),
            false => common.timing.clone(),
        };
        let mut case = CaseOptions {
            iterations: common.case.iterations,
            duration: common.case.duration,
            warmup: common.case.warmup,
            check: common.case.check,
            ..load.case.clone()
        };
        if let (true, Some(sizes)) = (crowded, &load.crowded) {
            case.sizes.clone_from(sizes);
        }
        RunPlan { ranks, settings: Settings { case, timing, ..common } }
    };
    let of_load = |load: &Load| {
        let ranks = load.ranks.iter();
        ranks.map(|&n| make(load, n)).collect::<Vec<_>>()
    };
    LOADS.load.iter().flat_map(of_load).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::catalogue::find;

    #[test]
    fn loads__are_known_tests_and_each_plan_is_another() {
        let settings = |test: &str, _| Settings {
            tests: vec![test.to_owned()],
            timing: Some("batch=16".into()),
            ..Settings::default()
        };
        let plans = list_plans(2, settings);
        for (at, plan) in plans.iter().enumerate() {
            assert!(find(&plan.settings.tests[0]).is_some());
            assert!(!plans[..at].contains(plan), "{plan:?}");
        }
        let crowded = plans.iter().filter(|p| p.ranks > 2);
        let is_single = |p: &RunPlan| p.settings.timing.as_deref() == Some("batch=1");
        assert!(crowded.clone().count() > 0 && crowded.clone().all(is_single));
        assert!(crowded.clone().all(|p| p.settings.case.sizes.iter().all(|&s| s <= 1 << 20)));
    }
}
