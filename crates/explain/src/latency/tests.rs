use fastpath_report::testing::parse_options;

use super::super::FindingKind;
use super::*;
use crate::{Finding, StepKind};

fn explain_line(line: &str) -> Result<Explanation, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let options = parse_options(&words).map_err(|e| e.to_string())?;
    explain(&options).map_err(|e| e.to_string())
}

const OF_2009: &str = "--adapter connectx --host 2009 --verb write --size 32 --inline 400 --tick \
    acpi --pair 32:2.234us:1.117us --pair 256:2.514us:2.234us";

fn findings<'a>(made: &'a Explanation, id: &str) -> Vec<&'a Finding> {
    made.findings.iter().filter(|f| f.id == id).collect()
}

#[test]
fn inline__of_2009_read_through_the_clocks_tick() {
    let made = explain_line(OF_2009).unwrap();
    let gains = findings(&made, "gain");
    assert!(gains[0].text.contains("0.84 to 1.40 us"), "{gains:?}");
    assert!(
        gains[0].why.contains("By DMA 8 ticks (2.23 to 2.51 us), inline 4 ticks (1.12 to 1.40 us)"),
        "{gains:?}"
    );
    assert!(gains[0].why.contains("saves 2 serial reads: 0.42 to 0.70 us each"), "{gains:?}");
    assert!(gains[1].text.contains("0.00 to 0.56 us"), "{gains:?}");
    assert!(gains[1].why.contains("saves 1 serial read:"), "{gains:?}");
    assert!(findings(&made, "read-time")[0].text.contains("0.42 to 0.56 us"));
    assert!(findings(&made, "queue-memory")[0].text.contains(
        "granted as 448 B in descriptors of \
        512 B: a send queue of 128 takes 64 KiB instead of 8 KiB"
    ));
    assert!(findings(&made, "blueflame-limit")[0].text.contains("208 and 209 B"));
}

#[test]
fn waterfalls__add_up_to_the_prediction_with_and_without_inline() {
    let made = explain_line(OF_2009).unwrap();
    let totals: Vec<f64> = made
        .waterfalls
        .iter()
        .map(|w| {
            let parts =
                w.steps.iter().filter(|s| matches!(s.kind, StepKind::Start | StepKind::Change));
            let sum: f64 =
                parts.map(|s| if s.kind == StepKind::Start { s.level } else { s.change }).sum();
            let level = w.steps.iter().find(|s| s.kind == StepKind::Level).unwrap().level;
            assert!((sum - level).abs() < 1e-6);
            level
        })
        .collect();
    let ticks: Vec<f64> = totals.iter().map(|ns| (ns / (1e9 / 3_579_545.0)).floor()).collect();
    assert_eq!(ticks, [4.0, 8.0], "{totals:?}");
    assert!(
        made.waterfalls[0].title.contains("0 serial reads")
            && made.waterfalls[1].title.contains("2 serial reads")
    );
}

#[test]
fn polls__late_or_early_differ_by_less_than_a_tick() {
    let made = explain_line(&format!("{OF_2009} --measured 1.117us --against 1.257us")).unwrap();
    let said = findings(&made, "difference");
    let text = &said[0].text;
    assert!(text.contains("0.5 of a tick, so either time may be the shorter one"), "{said:?}");
    assert_eq!(said[0].kind, FindingKind::Caution);
}

#[test]
fn measured__is_judged_by_the_interval_of_its_tick() {
    // 4 ticks printed mean a true time of 1117 to 1397 ns.
    let line = "--adapter connectx --host 2009 --inline 400 --tick acpi --measured";
    let made = explain_line(&format!("{line} 1.117us")).unwrap();
    let agrees = &findings(&made, "agrees")[0];
    assert!(agrees.why.contains("1.12 to 1.40 us"), "{agrees:?}");
    let said = |measured: &str| {
        let made = explain_line(&format!("{line} {measured}")).unwrap();
        assert!(findings(&made, "agrees").is_empty());
        findings(&made, "left")[0].text.clone()
    };
    assert!(said("2.234us").contains("us more than predicted"));
    assert!(said("0.559us").contains("us less than predicted"));
}

#[test]
fn losses__are_called_so() {
    let gain = |pair: &str| {
        let made = explain_line(&format!("--inline 220 --tick acpi --pair {pair}")).unwrap();
        findings(&made, "gain")[0].text.clone()
    };
    assert_eq!(gain("32:1us:2us"), "32 B: the loss is 0.56 to 1.12 us.");
    assert_eq!(
        gain("32:1us:1us"),
        "32 B: the gain is -0.28 to 0.28 us, so the change may be a loss."
    );
}

#[test]
fn grants__of_mlx5_are_least_ones() {
    for line in ["--inline 512", "--verb send --inline 236"] {
        let made = explain_line(&format!("--adapter connectx5 {line}")).unwrap();
        let memory = &findings(&made, "queue-memory")[0];
        assert!(memory.text.contains("granted as at least"), "{memory:?}");
        assert!(memory.why.contains("max_sq_desc_sz"), "{memory:?}");
    }
}

#[test]
fn crossover__is_told_for_host_and_adapter() {
    let at = |line: &str| findings(&explain_line(line).unwrap(), "crossover")[0].text.clone();
    assert!(at("--adapter connectx5 --host 2016").contains("every size granted, up to 220 B"));
    assert!(at("--adapter connectx5 --host uncombined").contains("faster up to"));
    let made = explain_line("--adapter connectx5 --host uncombined").unwrap();
    let why = &findings(&made, "crossover")[0].why;
    assert!(why.contains(" lost at the largest size") && !why.contains('-'), "{why}");
    assert!(why.contains("92 B take ") && why.contains("93 B take "), "{why}");
}

#[test]
fn contradicting__pairs_are_said_to_be() {
    let made = explain_line(
        "--adapter connectx --host 2009 --inline 400 --tick 1ns --pair \
        32:2.2us:1.1us --pair 64:2.2us:2.1us",
    )
    .unwrap();
    assert_eq!(findings(&made, "read-time")[0].kind, FindingKind::Caution);
    let made = explain_line("--pair 32:2.2us:1.1us").unwrap();
    assert_eq!(findings(&made, "no-tick").len(), 1);
}

#[test]
fn nonsense__is_refused_with_what_was_expected() {
    for (line, expected) in [
        ("--measured 1.12", "needs its unit"),
        ("--tick 0ns", "above 0"),
        ("--pair 32:2us", "SIZE:BEFORE:AFTER"),
        ("--pair 32:2us:1us:0us", "SIZE:BEFORE:AFTER"),
        ("--pair x:2us:1us", "SIZE:BEFORE:AFTER"),
        ("--host 1999", "expected 2009, 2016"),
        ("--adapter x", "expected infinihost3"),
        ("--inline 1000 --adapter connectx5", "a size that fits a descriptor of 1024 bytes"),
        ("--size 2G", "at most 1 GiB"),
        ("--transport ud --verb write", "expected --verb send"),
        ("--hops -1us", "cannot be negative"),
        ("--size -1", "cannot be negative"),
        ("--tick -1ns", "cannot be negative"),
        ("--pair -1:2us:1us", "SIZE:BEFORE:AFTER"),
        ("--read 5", "needs its unit"),
    ] {
        let error = explain_line(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn read__that_takes_no_time_is_refused() {
    let error = explain_line("--read 0ns").unwrap_err();
    assert!(error.contains("read of memory") && error.contains("more than 0"), "{error}");
    assert!(explain_line("--read 1ns").is_ok());
}
