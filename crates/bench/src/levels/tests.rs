//! Tests with both ranks of a job as threads of this process. Every line of the leader is parsed as a line of the
//! benchmark program is.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use fastpath_report::catalogue;
use fastpath_report::record::{Case, MissingTest};

use super::*;
use crate::options::CaseOptions;
use crate::program::{ProgramEvent, parse_event};

fn run_plan(level: Level, tests: &[&str], sizes: &[u64]) -> (Vec<Case>, Vec<MissingTest>) {
    run_as(level, tests, sizes, false)
}

fn run_as(
    level: Level, tests: &[&str], sizes: &[u64], counted: bool,
) -> (Vec<Case>, Vec<MissingTest>) {
    let mut settings = Settings::default().with_tests(tests.iter().copied());
    settings.case.sizes = sizes.to_vec();
    run_settings(level, settings, counted)
}

fn run_settings(level: Level, asked: Settings, counted: bool) -> (Vec<Case>, Vec<MissingTest>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let board = SharedBoard::create().unwrap();
    let settings = Settings {
        case: CaseOptions {
            iterations: asked.case.iterations.or(Some(64)),
            warmup: Some(10),
            window: Some(16),
            check: true,
            ..asked.case
        },
        rounds: Some(2),
        no_floor: true,
        ..asked
    };
    let plan = LevelPlan {
        level,
        settings,
        board: board.path(),
        counted,
        devices: Vec::new(),
        verbs: VerbsOptions::default(),
    };
    let (to, from) = channel();
    let jobs = Job::in_process(2).unwrap();
    std::thread::scope(|scope| {
        for job in jobs {
            let (plan, to) = (&plan, to.clone());
            scope.spawn(move || {
                let board = SharedBoard::open(&plan.board).unwrap();
                let job: &'static Job = Box::leak(Box::new(job));
                let sink = move |line: String| to.send(line).unwrap();
                run_level(plan, &board, job, Box::new(sink)).unwrap();
            });
        }
    });
    drop(to);
    let (mut cases, mut missing) = (Vec::new(), Vec::new());
    for line in from {
        match parse_event(&line) {
            Ok(ProgramEvent::Case(case)) => cases.push(*case),
            Ok(ProgramEvent::Missing(m)) => missing.push(m),
            Ok(ProgramEvent::Start(_) | ProgramEvent::Progress(_) | ProgramEvent::End { .. }) => {}
            other => panic!("{line}: {other:?}"),
        }
    }
    (cases, missing)
}

#[test]
fn protocol__carries_every_size_and_says_how() {
    let sizes = [0, 8, 48, 49, 4096, 5000, 32768, 100_000, 1 << 20];
    let (cases, missing) = run_plan(Level::Protocol, &["latency", "rate"], &sizes);
    assert_eq!((cases.len(), missing.len()), (2 * sizes.len(), 0), "{missing:?}");
    for case in &cases {
        assert_eq!((case.level, case.checked), (Level::Protocol, Some(true)), "{case:?}");
        assert!(case.samples.count() > 0 && case.protocol.is_some());
    }
    assert_eq!(cases[1].protocol.as_deref(), Some("eager short"));
}

#[test]
fn transport__carries_what_goes_without_asking() {
    let sizes = [0, 8, 48, 49, 4096, 5000, 1 << 20];
    let (cases, missing) = run_plan(Level::Transport, &["latency", "bandwidth"], &sizes);
    assert_eq!(cases.len(), 2 * (sizes.len() - 1));
    assert!(cases.iter().all(|c| c.checked == Some(true) && c.level == Level::Transport));
    assert_eq!(missing.len(), 2);
    assert!(
        missing[0].reason.contains("a protocol that level transport does not have"),
        "{missing:?}"
    );
}

#[test]
fn transport__puts_and_gets_by_load_and_store() {
    let (cases, missing) = run_plan(Level::Transport, &["put", "get"], &[8, 10_000]);
    let of = |test: &str| {
        let direct = cases.iter().filter(|c| c.test == test && c.variant == "load-store");
        direct.map(|c| (c.bytes, c.window, c.checked)).collect::<Vec<_>>()
    };
    let wanted = [(8, Some(16), Some(true)), (10_000, Some(16), Some(true))];
    assert_eq!((of("put"), of("get")), (wanted.to_vec(), wanted.to_vec()));
    // The kernel may refuse direct access; then each size reports the refusal.
    let kernel = cases.iter().filter(|c| c.variant == "kernel").count();
    let refused = missing.iter().filter(|m| m.reason.starts_with("kernel")).count();
    assert_eq!(kernel + refused, 4, "{missing:?}");
}

#[test]
fn transport__flushes_whatever_sizes_are_asked_for() {
    let (cases, missing) = run_plan(Level::Transport, &["flush"], &[8, 64]);
    let of_test: Vec<_> = cases.iter().map(|c| (c.test.as_str(), c.bytes)).collect();
    assert_eq!((of_test, missing.len()), (vec![("flush", 0)], 0));
    // A fence takes time on every processor; a shorter time means that the compiler has removed the fence.
    let fastest = cases[0].samples.quantile(0.0).unwrap();
    assert!(fastest > 0.5, "{fastest} ns");
}

#[test]
fn touched__messages_are_a_variant_of_latency_and_no_other_test_has_them() {
    for level in [Level::Protocol, Level::Transport] {
        let mut settings = Settings::default().with_tests(["latency", "rate", "put"]);
        settings.case.sizes = vec![0, 5, 4000];
        settings.case.touch = true;
        let (cases, missing) = run_settings(level, settings, false);
        let right = |c: &Case| c.test == "latency" && c.is_touched() && c.checked == Some(true);
        assert!(cases.len() == 3 && cases.iter().all(right), "{cases:?}");
        assert!(missing.iter().all(|m| m.reason.contains("--touch")));
        assert!(missing.iter().any(|m| m.test == "put"), "{missing:?}");
    }
}

#[test]
fn operations__for_callgrind_come_to_their_end_without_it() {
    for level in [Level::Protocol, Level::Transport] {
        let (cases, missing) = run_as(level, &[], &[0, 8, 2048], true);
        assert!(cases.is_empty() && missing.is_empty());
    }
}

#[test]
fn levels__put_and_get_in_the_same_ways() {
    let sizes = [0, 8, 10_000];
    let ways = [Level::Protocol, Level::Transport].map(|level| {
        let (cases, missing) = run_plan(level, &["put", "get", "flush"], &sizes);
        let (last, moved) = cases.split_last().unwrap();
        assert_eq!((last.test.as_str(), last.level), ("flush", level));
        assert!(moved.iter().all(|c| c.checked == Some(true) && c.level == level));
        // Each test has, for each size, one case with windows and one with single operations. Both exist by load and
        // store, and also by the kernel if the kernel allows it. Puts of at least one byte also have a case that goes
        // back and forth ("seen in memory").
        let (seen, moved): (Vec<&Case>, Vec<&Case>) =
            moved.iter().partition(|c| c.variant.ends_with("seen in memory"));
        assert!(seen.iter().all(|c| c.test == "put" && c.bytes > 0));
        let both_ways = missing.is_empty();
        assert_eq!(seen.len(), if both_ways { 4 } else { 2 }, "{missing:?}");
        assert_eq!(moved.len() + 2 * missing.len(), 2 * 2 * 2 * sizes.len(), "{missing:?}");
        let way = |c: &Case| (c.test.clone(), c.variant.clone(), c.bytes, c.protocol.clone());
        moved.into_iter().map(way).collect::<Vec<_>>()
    });
    assert_eq!(ways[0], ways[1]);
}

#[test]
fn atomics__answer_right_at_each_level() {
    let (cases, missing) = run_plan(Level::Protocol, &["atomics"], &[4096]);
    // Atomics run by load and store and, if the kernel allows direct access, by messages.
    assert_eq!(cases.len() % 2, 0, "{missing:?}");
    let by_load_store = cases.iter().filter(|c| c.variant.contains("load-store"));
    let operations: Vec<&str> = by_load_store.map(|c| c.operation.as_str()).collect();
    assert_eq!(
        operations,
        ["fetch and add, then flush", "compare and swap, then flush"],
        "{missing:?}"
    );
    assert!(cases.iter().all(|c| c.bytes == 8 && c.checked == Some(true)));
    // A transport has atomics on mapped memory only.
    let (cases, missing) = run_plan(Level::Transport, &["atomics"], &[8]);
    let way = |c: &Case| (c.variant.clone(), c.bytes, c.checked);
    let expected = ["fetch_and_op, load-store", "compare_and_swap, load-store"];
    let expected = expected.map(|variant| (variant.to_owned(), 8, Some(true)));
    assert_eq!(cases.iter().map(way).collect::<Vec<_>>(), expected);
    assert!(missing.len() == 1 && missing[0].reason.contains("--level protocol"), "{missing:?}");
}

#[test]
fn iterations__are_as_many_as_were_asked_for() {
    for (iterations, timing) in [(1, "auto"), (10, "auto"), (12, "batch=4"), (3, "each")] {
        let mut settings = Settings::default().with_tests(["latency"]);
        settings.case.sizes = vec![8];
        settings.case.iterations = Some(iterations);
        settings.timing = Some(timing.into());
        let (cases, _) = run_settings(Level::Protocol, settings, false);
        let made = cases[0].samples.count() * cases[0].timing.operations_per_sample;
        assert_eq!(made, iterations, "{timing}");
    }
}

#[test]
fn tests__are_those_of_the_catalogue_at_their_levels() {
    for test in &TESTS.test {
        let known = catalogue::find(test.name).unwrap();
        let here = |level: &Level| known.levels.contains(level);
        assert!(test.levels.iter().all(here), "{}", test.name);
        assert!(test.sizes.iter().all(|&bytes| bytes <= 1 << 20), "{}", test.name);
    }
    for test in catalogue::list() {
        let below = test.levels.iter().filter(|level| **level != Level::Mpi);
        for &level in below {
            assert!(!find_tests(level, test.name).is_empty(), "{}", test.name);
        }
    }
}
