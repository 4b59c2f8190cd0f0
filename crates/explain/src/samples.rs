//! Sample explanations for tests.

use super::{Experiment, Explanation, Finding, FindingKind, Input, PossibleResult, Waterfall};

/// An explanation with every part: a waterfall that falls from 4000 by 800, and one that rises.
pub fn make_explanation() -> Explanation {
    let mut made = Explanation::new("why 3100 MB/s");
    let input = |name: &str, value: &str, source: &str| Input {
        name: name.into(),
        value: value.into(),
        source: source.into(),
    };
    made.inputs = vec![
        input("link", "PCIe 2.0 x8", "lspci: LnkSta"),
        input("maximum payload", "256 B", "assumed"),
    ];
    let from = "PCI Express Base Specification, chapter 4";
    let falls = Waterfall::start(
        "adapter to memory",
        "MB/s",
        "8 lanes",
        4000.0,
        "8 lanes of 5 GT/s, 8 of 10 bits",
        from,
    )
    .to("packet headers", 3200.0, "24 B around each 96 B", from)
    .state();
    let rises = Waterfall::start("one way", "ns", "software", 75.0, "given", "given")
        .by("doorbell", 40.0, "a store over the bus", "UCX")
        .by("two reads, one after the other", 700.0, "2 x 350 ns", "UCX")
        .state();
    made.waterfalls = vec![falls.finish(Some(3100.0)), rises.finish(None)];
    let kinds = [
        FindingKind::Answer,
        FindingKind::Cause,
        FindingKind::Cause,
        FindingKind::Excluded,
        FindingKind::Note,
        FindingKind::Caution,
    ];
    let finding = |(i, kind): (usize, FindingKind)| Finding {
        kind,
        id: format!("finding-{i}"),
        text: format!("finding {i}, a sentence of some length that has to go on in a second line"),
        why: if i % 2 == 0 { "3200 - 3100" } else { "" }.into(),
    };
    made.findings = kinds.into_iter().enumerate().map(finding).collect();
    made.experiments = vec![Experiment {
        what: "two clients instead of one".into(),
        outcomes: vec![
            PossibleResult { seen: "3200 MB/s".into(), means: "the sender was the limit".into() },
            PossibleResult { seen: "3100 MB/s".into(), means: "the receiver is".into() },
        ],
    }];
    made
}
