use fastpath_report::testing::parse_options;

use super::super::StepKind;
use super::*;
use crate::{Finding, FindingKind, WaterfallStep};

fn explain_line(line: &str) -> Result<Explanation, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let options = parse_options(&words).map_err(|e| e.to_string())?;
    explain(&options).map_err(|e| e.to_string())
}

const RAMCLOUD: &str = "--pcie 2.0x8 --mps 256 --adapter connectx --measured 3552MB/s --tool \
    perftest --clients 3 --single 3218MB/s --expected 4194MB/s";

fn step<'a>(made: &'a Explanation, waterfall: usize, name: &str) -> &'a WaterfallStep {
    let steps = &made.waterfalls[waterfall].steps;
    steps.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no step {name}: {steps:#?}"))
}

fn finding<'a>(made: &'a Explanation, id: &str) -> &'a Finding {
    let found = made.findings.iter().find(|f| f.id == id);
    found.unwrap_or_else(|| panic!("no finding {id}: {:#?}", made.findings))
}

#[track_caller]
fn is_near(found: f64, figure: f64) {
    assert!((found / figure - 1.0).abs() < 1e-3, "{found}, not {figure}");
}

#[test]
fn ramcloud__units_then_headers_then_nothing() {
    let made = explain_line(RAMCLOUD).unwrap();
    assert_eq!(made.waterfalls[0].unit, "MiB/s");
    is_near(step(&made, 0, "expected").level, 4194.0);
    is_near(step(&made, 0, "right units").level, 3814.7);
    is_near(step(&made, 0, "packet headers").level, 3487.6);
    is_near(step(&made, 0, "measured").level, 3552.0);
    assert!(finding(&made, "unit-error").text.contains("1 GB was taken as 1024 * 1024 kB"));
    assert!(finding(&made, "nothing-left").why.contains("18.9 B of headers for each 256 B"));
    let order = ["clock", "windows", "short-addresses", "larger-payload"]
        .map(|id| made.findings.iter().position(|f| f.id == id).unwrap());
    assert!(order.is_sorted(), "{order:?}");
    assert!(
        finding(&made, "network-ties")
            .text
            .contains("A network of 40 Gb/s is not faster than this bus: both carry 32 Gb/s")
    );
    assert!(finding(&made, "pcie-bench").text.contains("3125 MiB/s"));
}

#[test]
fn ramcloud__with_short_addresses_the_rest_is_below_one_percent() {
    let made = explain_line(&format!("{RAMCLOUD} --address 32")).unwrap();
    is_near(step(&made, 0, "packet headers").level, 3538.3);
    let left = step(&made, 0, "left");
    assert_eq!(left.kind, StepKind::Left);
    assert!((0.0..0.01 * 3552.0).contains(&left.change), "{left:?}");
}

#[test]
fn ramcloud__one_client_fits_the_senders_reads() {
    let made = explain_line(RAMCLOUD).unwrap();
    let reads = finding(&made, "sender-reads");
    assert!(
        reads.text.contains(
            "3218 MiB/s of one client agree with a sender whose memory answers reads in pieces of 128 B"
        ),
        "{}",
        reads.text
    );
    assert!(reads.why.contains("23.7 B of headers for each 128 B"), "{}", reads.why);
    assert!(finding(&made, "completion-size").text.contains("64 B are excluded"));
    assert!(
        finding(&made, "receiver-process").text.contains("19.4"),
        "{}",
        finding(&made, "receiver-process").text
    );
    let [first, second] = made.experiments.as_slice() else { panic!("{:?}", made.experiments) };
    assert!(
        first.what.starts_with("Two client hosts") && second.what.starts_with("One client host")
    );
    // The two hypotheses predict opposite outcomes.
    let seen = |e: &crate::Experiment, means: &str| {
        e.outcomes.iter().find(|o| o.means.contains(means)).unwrap().seen.clone()
    };
    assert!(
        seen(first, "sender").contains("347") && seen(first, "process").contains("3218"),
        "{first:?}"
    );
    assert!(
        seen(second, "sender").contains("3218") && !seen(second, "process").contains("3218"),
        "{second:?}"
    );
}

#[test]
fn ramcloud__its_message_rate_proves_the_unit() {
    let made = explain_line("--pcie 2.0x8 --measured 3217.8MB/s --message-rate 0.051485").unwrap();
    assert!(finding(&made, "printed-unit").text.contains("3217.8, is in MiB/s"));
    // All other figures use the proved unit.
    let reads = &finding(&made, "sender-reads").text;
    assert!(
        reads.contains(
            "3218 MiB/s of one client agree with a sender whose memory answers reads in pieces of 128 B"
        ),
        "{reads}"
    );
    let left = &finding(&made, "left").text;
    assert!(left.contains("258 MiB/s below the predicted rate"), "{left}");
    assert_eq!(made.waterfalls[0].unit, "MiB/s");
    let made = explain_line("--pcie 2.0x8 --measured 3374MB/s --message-rate 0.051485").unwrap();
    assert!(finding(&made, "printed-unit").text.contains("MB/s is right"));
    let made = explain_line("--pcie 2.0x8 --measured 3000MB/s --message-rate 0.051485").unwrap();
    assert_eq!(finding(&made, "printed-unit").kind, FindingKind::Caution);
}

#[test]
fn levels__follow_from_changes_in_every_waterfall() {
    for line in [
        RAMCLOUD,
        "--pcie 5.0x16 --adapter connectx7",
        "--pcie 3.0x8 --wire FDR --transport ud --size 2K --measured 20Gb/s",
    ] {
        let made = explain_line(line).unwrap();
        assert_eq!(made.waterfalls.len(), 3);
        for waterfall in &made.waterfalls {
            let mut level = 0.0;
            for step in &waterfall.steps {
                match step.kind {
                    StepKind::Start => level = step.level,
                    StepKind::Change => level += step.change,
                    _ => (),
                }
                if matches!(step.kind, StepKind::Change | StepKind::Level) {
                    assert!((step.level - level).abs() < 1e-6, "{line}: {step:?}");
                    assert!(step.change <= 1e-9, "{line}: {step:?}");
                }
            }
        }
    }
}

#[test]
fn tighter__stage_is_named() {
    let made = explain_line("--pcie 5.0x16 --wire QDR --adapter connectx7").unwrap();
    assert!(finding(&made, "limit").text.starts_with("The network is the limit"));
    let made = explain_line("--pcie 2.0x8 --completion 64").unwrap();
    assert!(finding(&made, "limit").text.starts_with("The sender's bus is the limit"));
}

/// In both directions at once, requests share the upstream direction with writes. The sum is therefore less than twice
/// the smaller of the two rates.
#[test]
fn both__is_the_sum_of_the_model() {
    let made = explain_line("--pcie 2.0x8 --direction both").unwrap();
    let titles: Vec<&str> = made.waterfalls.iter().map(|w| w.title.as_str()).collect();
    assert_eq!(titles.len(), 1);
    assert!(titles[0].starts_with("Bus, both ways"), "{titles:?}");
    is_near(step(&made, 0, "encoding").level, 2.0 * 3814.7);
    // For each 64 KiB in each direction, 256 writes and 128 read requests go upstream. Each write has 24 B besides its
    // 256 B of data, and each request has 24 B.
    let up = 65536.0 + 384.0 * 24.0;
    is_near(step(&made, 0, "packet headers").level, 2.0 * 3814.7 * 65536.0 / up);
    let link: Link = "2.0x8".parse().unwrap();
    let rate = fastpath_pcie::formulas::both_rate(&link, Bytes(1 << 16), DataLink::Directional);
    let small = step(&made, 0, "predicted").level / (2.0 * rate.mib_per_s().0);
    assert!((0.997..1.0).contains(&small), "{small}");
    assert!(finding(&made, "limit").text.starts_with("The bus both ways is the limit"));
    let each = finding(&made, "each-way");
    assert!(each.text.contains("of arriving data"), "{each:?}");
    assert!(each.why.contains("3476 MiB/s and 3479 MiB/s"), "{each:?}");
}

#[test]
fn both__by_a_ratio_is_bound_by_the_fuller_direction() {
    let made = explain_line("--pcie 2.0x8 --direction both --ratio 3:1").unwrap();
    // At a ratio of 3 to 1, both directions together carry a third more than one direction.
    is_near(step(&made, 0, "encoding").level, 4.0 / 3.0 * 3814.7);
    let up = 3.0 * 256.0 * 280.0 + 128.0 * 24.0;
    is_near(step(&made, 0, "packet headers").level, 3814.7 * 4.0 * 65536.0 / up);
    // The network is used in both directions too.
    let made = explain_line("--pcie 5.0x16 --wire QDR --direction both").unwrap();
    is_near(step(&made, 1, "predicted").level, 2.0 * 3790.0);
}

#[test]
fn both__tells_a_sum_from_one_direction() {
    let line = |measured: &str| {
        let line = format!("--pcie 2.0x8 --direction both --measured {measured}");
        explain_line(&line).unwrap()
    };
    finding(&line("6600MiB/s"), "nothing-left");
    let one = finding(&line("3300MiB/s"), "one-direction").clone();
    assert_eq!(one.kind, FindingKind::Cause);
    assert!(one.text.contains("6600 MiB/s"), "{one:?}");
    finding(&line("7600MiB/s"), "above-the-limit");
    let experiments = line("5000MiB/s").experiments;
    assert!(experiments[0].what.contains("--direction write"), "{experiments:?}");
}

#[test]
fn direction__shows_one_side() {
    for (direction, title) in [("write", "Receiver's bus"), ("read", "Sender's bus")] {
        let line =
            format!("--pcie 2.0x8 --completion 64 --direction {direction} --measured 2858MiB/s");
        let made = explain_line(&line).unwrap();
        assert_eq!(made.waterfalls.len(), 1);
        assert!(made.waterfalls[0].title.starts_with(title));
        let id = if direction == "read" { "nothing-left" } else { "left" };
        finding(&made, id);
    }
}

#[test]
fn network__binds_only_where_it_is_known() {
    // 40 GB/s is four times the QDR rate, and two thirds of the bus rate.
    let made = explain_line("--pcie 5.0x16 --measured 40GB/s").unwrap();
    assert_eq!(made.waterfalls.len(), 2);
    assert!(made.findings.iter().all(|f| f.id != "above-the-limit"));
    let left = &finding(&made, "left").text;
    assert!(left.contains("17.4 GB/s below the predicted rate"), "{left}");
    let made = explain_line("--pcie 5.0x16 --measured 40GB/s --wire QDR").unwrap();
    let above = &finding(&made, "above-the-limit").text;
    assert!(above.contains("above what the network can carry"), "{above}");
    finding(&made, "other-network");
}

#[test]
fn inputs__are_given_only_where_they_were() {
    let source = |line: &str, name: &str| {
        let made = explain_line(line).unwrap();
        let found = made.inputs.into_iter().find(|i| i.name == name);
        found.unwrap_or_else(|| panic!("no input {name}")).source
    };
    for (name, option) in [
        ("message", "--size 4K"),
        ("transport", "--transport uc"),
        ("verb", "--verb write"),
        ("adapter", "--adapter connectx3"),
        ("network", "--wire FDR"),
    ] {
        assert_eq!(source("--pcie 3.0x8", name), "assumed", "{name}");
        let line = format!("--pcie 3.0x8 {option}");
        assert_eq!(source(&line, name), "given", "{name}");
    }
}

#[test]
fn excess__offers_the_unit_before_the_clock() {
    let causes = |line: &str| -> Vec<String> {
        let found = explain_line(line).unwrap().findings.into_iter();
        let causes = found.filter(|f| f.kind == FindingKind::Cause);
        causes.map(|f| f.id).collect()
    };
    // The figure is 5 % too large, as if MB/s were labelled MiB/s. A clock error is at most 2 %.
    let found = causes("--pcie 2.0x8 --measured 3650MiB/s");
    assert_eq!(found[0], "unit");
    assert!(!found.contains(&"clock".to_owned()), "{found:?}");
    let bits = explain_line("--pcie 2.0x8 --measured 29GB/s").unwrap();
    assert!(finding(&bits, "unit").text.contains("29 Gb/s would agree"));
    let clock = |line: &str| finding(&explain_line(line).unwrap(), "clock").text.clone();
    assert!(!clock("--pcie 2.0x8 --measured 3500MiB/s").contains("perftest"));
    assert!(clock("--pcie 2.0x8 --measured 3500MB/s --tool perftest").contains("perftest"));
}

#[test]
fn nonsense__is_refused_with_what_was_expected() {
    for (line, expected) in [
        ("--pcie 2.0x3", "expected x1, x2, x4"),
        ("--pcie 9.0x8", "one from 1 to 7"),
        ("--pcie 2.0x8 --mps 300", "a power of two from 128 to 4096"),
        ("--pcie 2.0x8 --mrrs 64", "a power of two from 128 to 4096"),
        ("--pcie 2.0x8 --completion 512", "to the maximum payload"),
        ("--pcie 2.0x8 --address 48", "32 or 64 bits"),
        ("--pcie 2.0x8 --measured 3552", "needs its unit"),
        ("--pcie 2.0x8 --measured -3552MiB/s", "cannot be negative"),
        ("--pcie 2.0x8 --size -1", "cannot be negative"),
        ("--pcie 2.0x8 --wire PDR", "expected an InfiniBand link"),
        ("--pcie 2.0x8 --mtu 1500", "256, 512, 1024, 2048 or 4096"),
        ("--pcie 2.0x8 --adapter ne2000", "expected infinihost3"),
        ("--pcie 2.0x8 --size 0", "1 byte to 2 GiB"),
        ("--pcie 2.0x8 --transport ud", "at most one packet"),
        ("--pcie 2.0x8 --transport ud --size 2K --verb write", "another transport"),
        ("--pcie 2.0x8 --clients 0", "at least one"),
        ("--pcie 2.0x8 --cq-mod 0", "--cq-mod"),
        ("--pcie 2.0x8 --direction up", "possible values"),
        ("--pcie 2.0x8 --ratio 2:1", "--direction both"),
        ("--pcie 2.0x8 --direction read --ratio 2:1", "--direction both"),
        ("--pcie 2.0x8 --direction both --ratio 2", "as 2:1"),
        ("--pcie 2.0x8 --direction both --ratio -1:1", "as 2:1"),
        ("--pcie 2.0x8 --direction both --clients 3", "one client with --direction both"),
        ("--pcie 2.0x8 --message-rate 0", "more than 0"),
        ("--pcie 2.0x8 --message-rate NaN", "more than 0"),
        ("", "--pcie"),
    ] {
        let error = explain_line(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}
