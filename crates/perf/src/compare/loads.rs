//! The loads of programs, as one named set of tests: `fastpath compare --loads`.
//!
//! Buffers that nobody touches, one message at a time and one pair of ranks flatter whatever has
//! just been copied. These are what programs do besides: buffers that are written and read, both
//! directions at once, rings and all-to-all of more ranks than processors, windows, halos, memory of
//! `MPI_Alloc_mem`, odd addresses, large collectives, and the first messages after `MPI_Init`.

use super::rounds::Plan;
use crate::program::Settings;

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;

/// A test as a program would run it.
struct Load {
    test: &'static str,
    /// Numbers of ranks, a job each.
    ranks: &'static [u32],
    sizes: &'static [u64],
    /// Sizes where there are more ranks than processors.
    crowded: &'static [u64],
    window: Option<u32>,
    touch: bool,
    buffer: Option<&'static str>,
    offset: Option<u32>,
    layout: Option<&'static str>,
}

/// Of two ranks.
const fn pair(test: &'static str, sizes: &'static [u64]) -> Load {
    Load {
        test,
        ranks: &[2],
        sizes,
        crowded: sizes,
        window: None,
        touch: false,
        buffer: None,
        offset: None,
        layout: None,
    }
}

const fn touched(load: Load) -> Load {
    Load {
        touch: true,
        ..load
    }
}

const fn windows(test: &'static str, window: u32) -> Load {
    Load {
        window: Some(window),
        ..pair(test, &[8, 4 * KI, 64 * KI, 256 * KI])
    }
}

/// Of two to eight ranks: on two processors most of them wait for one.
const fn many(test: &'static str, sizes: &'static [u64]) -> Load {
    Load {
        ranks: &[2, 4, 8],
        crowded: &[8, 4 * KI, 64 * KI],
        ..pair(test, sizes)
    }
}

const fn collective(test: &'static str) -> Load {
    Load {
        crowded: &[4 * KI, 64 * KI],
        ..many(test, COLLECTIVE)
    }
}

const PING_PONG: &[u64] = &[
    0,
    8,
    64,
    256,
    KI,
    4 * KI,
    8 * KI,
    16 * KI,
    32 * KI,
    64 * KI,
    256 * KI,
    MI,
    4 * MI,
];
const LARGE: &[u64] = &[4 * KI, 16 * KI, 64 * KI, 256 * KI, MI];
const FEW: &[u64] = &[64, 4 * KI, 64 * KI, MI];
const RING: &[u64] = &[8, 4 * KI, 64 * KI, MI];
const COLLECTIVE: &[u64] = &[4 * KI, 64 * KI, MI, 4 * MI];

const LOADS: &[Load] = &[
    pair("latency", PING_PONG),
    touched(pair("latency", LARGE)),
    Load {
        buffer: Some("alloc_mem"),
        ..pair("latency", FEW)
    },
    Load {
        offset: Some(1),
        ..pair("latency", FEW)
    },
    Load {
        layout: Some("strided"),
        ..pair("latency", &[32 * KI, 256 * KI])
    },
    pair("first", &[64 * KI]),
    windows("bandwidth", 16),
    windows("bandwidth", 64),
    touched(windows("bandwidth", 16)),
    windows("bibandwidth", 16),
    windows("bibandwidth", 64),
    many("sendrecv", RING),
    touched(pair("sendrecv", LARGE)),
    Load {
        crowded: &[32 * KI],
        ..many("halo", &[32 * KI, 256 * KI])
    },
    many("alltoall", RING),
    touched(pair("alltoall", RING)),
    collective("bcast"),
    collective("allgather"),
    collective("allreduce"),
    touched(pair("allreduce", COLLECTIVE)),
];

/// A plan for each load and number of ranks; `settings` gives those of a test, by whether there are
/// more ranks than processors.
pub fn list_plans(processors: usize, settings: impl Fn(&str, bool) -> Settings) -> Vec<Plan> {
    let make = |load: &Load, ranks: u32| {
        let crowded = ranks as usize > processors;
        let sizes = if crowded { load.crowded } else { load.sizes };
        let common = settings(load.test, crowded);
        let timing = match crowded {
            // A message may take milliseconds there.
            true => Some("batch=1".to_owned()),
            false => common.timing.clone(),
        };
        Plan {
            ranks,
            settings: Settings {
                sizes: sizes.to_vec(),
                window: load.window,
                touch: load.touch,
                buffer: load.buffer.map(str::to_owned),
                offset: load.offset,
                layout: load.layout.map(str::to_owned),
                timing,
                ..common
            },
        }
    };
    let of_load = |load: &Load| {
        let ranks = load.ranks.iter();
        ranks.map(|&n| make(load, n)).collect::<Vec<_>>()
    };
    LOADS.iter().flat_map(of_load).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::catalogue::find;

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
        let is_single = |p: &Plan| p.settings.timing.as_deref() == Some("batch=1");
        assert!(crowded.clone().count() > 0 && crowded.clone().all(is_single));
        assert!(
            crowded
                .clone()
                .all(|p| p.settings.sizes.iter().all(|&s| s <= 64 * KI))
        );
    }
}
