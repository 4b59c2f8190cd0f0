//! A measured bandwidth against what the link carries: nothing left, too much, or why less was reached.

use fastpath_pcie::{Link, Rate, StatedRate};

use super::fields::READ_NS;
use super::{Moves, Ratio, Subject, ceiling, expected, finding, format_rate, links};
use crate::explain::function::Function;
use crate::explain::{
    AGREES, Experiment, Explanation, Finding, FindingKind, MIB_OVER_MB, Outcome, percent,
};

/// Something that would allow so much and no more.
struct Hypothesis {
    id: &'static str,
    rate: Rate,
    /// What it is, as the beginning of a sentence.
    what: String,
    why: String,
}

/// Holds a measured figure against the link, and ranks what may be behind a difference.
pub(super) fn judge(
    subject: &Subject,
    link: &Link,
    narrowest: Option<(&Function, Link)>,
    measured: StatedRate,
    directions: &[Moves],
    made: &mut Explanation,
) {
    let predictions = directions.iter().map(|d| expected(link, narrowest, *d));
    let ceilings: Vec<Rate> = predictions.collect();
    let shares: Vec<f64> = ceilings.iter().map(|c| measured.rate / *c).collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let each: Vec<String> = (0..directions.len())
        .map(|i| {
            let rate = format_rate(ceilings[i], measured.unit);
            let what = directions[i].short();
            format!("{:.1} % of the {rate} of {what}", shares[i] * 100.0)
        })
        .collect();
    let each = each.join(" and ");
    let could = links::make(subject.device.link_can);
    let could_more = narrowest.is_some() || could.is_some_and(|c| c.raw() > link.raw());
    let nothing_left = match could_more {
        true => "the bus explains it, and the bus is less than it could be",
        false => "the bus explains it, nothing is left to look for",
    };
    let fits = shares.iter().any(|share| (share - 1.0).abs() <= AGREES);
    let open = percent(AGREES);
    let (at, says, why) = match fits {
        true if least > 1.0 => (
            "agrees",
            nothing_left,
            format!(
                "a little more than it can carry: memory below 4 GiB has shorter headers (--address 32), and the clocks and windows \
                 of the usual tools leave {open} open"
            ),
        ),
        true => (
            "agrees",
            nothing_left,
            format!("within what clocks and windows of the usual tools leave open ({open})"),
        ),
        false if least > 1.0 => (
            "too-much",
            "more than this link can carry",
            format!(
                "a unit (MB for MiB makes {}), a clock, both directions added up, data that never crossed the bus (a cache), or \
                 another link than this one",
                percent(MIB_OVER_MB)
            ),
        ),
        false => (
            "less",
            "the link is not the limit",
            "the causes below stand in the order in which they fit the figure".to_owned(),
        ),
    };
    let text = format!("Measured is {each}: {says}.");
    let kind = match at {
        "too-much" => FindingKind::Caution,
        _ => FindingKind::Answer,
    };
    made.findings.push(finding(kind, at, text, why));
    if at == "less" {
        rank(
            list_hypotheses(subject, link, measured, directions),
            measured,
            made,
        );
        made.findings.extend(list_open_causes(subject));
        made.experiments = propose(directions);
    }
}

/// Those that fit first; those that allow more than was measured after them; those that would not have allowed it are
/// ruled out.
fn rank(hypotheses: Vec<Hypothesis>, measured: StatedRate, made: &mut Explanation) {
    let off = |h: &Hypothesis| h.rate / measured.rate - 1.0;
    let (mut possible, excluded): (Vec<_>, Vec<_>) =
        hypotheses.into_iter().partition(|h| off(h) >= -AGREES);
    possible.sort_by(|a, b| off(a).total_cmp(&off(b)));
    for h in possible {
        let rate = format_rate(h.rate, measured.unit);
        let fit = match off(&h) {
            d if d <= AGREES => format!("it allows {rate}, which is what was measured"),
            d => format!(
                "it allows {rate}, {:.0} % more than was measured: not alone",
                d * 100.0
            ),
        };
        let why = join(&fit, &h.why);
        made.findings
            .push(finding(FindingKind::Cause, h.id, h.what, why));
    }
    for h in excluded {
        let why = format!(
            "it allows {} only, and more was measured",
            format_rate(h.rate, measured.unit)
        );
        made.findings
            .push(finding(FindingKind::Excluded, h.id, h.what, why));
    }
}

fn join(fit: &str, why: &str) -> String {
    match why {
        "" => fit.to_owned(),
        why => format!("{fit}; {why}"),
    }
}

fn list_hypotheses(
    subject: &Subject,
    link: &Link,
    measured: StatedRate,
    directions: &[Moves],
) -> Vec<Hypothesis> {
    let mut all = Vec::new();
    let mut put = |id, rate, what: &str, why: &str| {
        all.push(Hypothesis {
            id,
            rate,
            what: what.to_owned(),
            why: why.to_owned(),
        });
    };
    let find = |does: fn(Moves) -> bool| directions.iter().copied().find(|m| does(*m));
    let reads = find(Moves::reads);
    let (reading, writing) = (
        reads.unwrap_or(Moves::Read),
        find(Moves::writes).unwrap_or(Moves::Write),
    );
    let whose = match directions {
        [_, _, ..] => "Memory, here or at the sender (if its link is like this one),",
        [moves] if moves.reads() => "Memory",
        _ => "The sender's memory (if its link is like this one)",
    };
    for bytes in [64u64, 128] {
        let Ok(cut) = link.with_completion(bytes) else {
            continue;
        };
        let rate = ceiling(&cut, reading);
        if rate < ceiling(link, reading) {
            let what = format!("{whose} answers reads in pieces of {bytes} B.");
            let why = "RCB is the least a host may cut at; what it does, only a measurement shows";
            put("read-completions", rate, &what, why);
        }
    }
    if let Some((gbit, name)) = &subject.network {
        let rate = Rate::from_bytes_per_s(gbit * 1e9 / 8.0 * writing.over_one());
        let what = format!("The network is the limit: {name}.");
        put(
            "network",
            rate,
            &what,
            "headers of its packets come off this",
        );
    }
    if let Ok(small) = link.with_max_payload(128)
        && subject.device.payload_is.is_none()
        && link.max_payload() > 128
    {
        let rate = ceiling(&small, writing);
        put(
            "payload-128",
            rate,
            "The payload is 128 B: it was not shown.",
            "DevCtl MaxPayload tells",
        );
    }
    if let Some(tags) = subject.device.tags_is.filter(|_| reads.is_some()) {
        let bytes = f64::from(tags) * f64::from(link.max_read_request()) * reading.of_reads();
        for ns in [READ_NS, 2.0 * READ_NS] {
            let rate = Rate::from_bytes_per_s(bytes / ns * 1e9);
            if rate < ceiling(link, reading) {
                let what = format!(
                    "{tags} reads of {} B at once are too few for memory that answers after {ns:.0} ns.",
                    link.max_read_request()
                );
                put(
                    "tags",
                    rate,
                    &what,
                    "memory of another node, or an IOMMU, makes it slower",
                );
            }
        }
    }
    let binary = Rate::from_bytes_per_s(measured.value() * binary_of(measured));
    let agrees = |d: &Moves| (binary / ceiling(link, *d) - 1.0).abs() <= AGREES;
    if binary > measured.rate && directions.iter().any(agrees) {
        let what = "The figure is in MiB: perftest and others write MB for 2^20 bytes.";
        let why = format!(
            "it would be {}, as the link carries",
            format_rate(binary, measured.unit)
        );
        put("unit-error", measured.rate, what, &why);
    }
    if let [both @ Moves::Both(Ratio::EVEN)] = directions
        && (measured.rate * 2.0 / ceiling(link, *both) - 1.0).abs() <= AGREES
    {
        let what = "The figure is of one direction: the other has as much again.";
        put("one-direction", measured.rate, what, "the sum would agree");
    }
    all
}

/// The binary unit that is often written as the decimal one that was given.
fn binary_of(measured: StatedRate) -> f64 {
    use fastpath_pcie::RateUnit;
    match measured.unit {
        RateUnit::MbPerS => RateUnit::MibPerS.bytes_per_s(),
        RateUnit::GbytePerS => RateUnit::GibPerS.bytes_per_s(),
        unit => unit.bytes_per_s(),
    }
}

/// Causes that give no figure of their own.
fn list_open_causes(subject: &Subject) -> Vec<Finding> {
    let device = &subject.device;
    let mut all = Vec::new();
    let mut put = |id: &str, text: &str, why: &str| {
        all.push(finding(
            FindingKind::Cause,
            id,
            text.to_owned(),
            why.to_owned(),
        ));
    };
    if device.errors.corrected == Some(true) {
        put(
            "replays",
            "Packets are sent again after errors of the link.",
            "see the counters under load",
        );
    }
    put(
        "one-process",
        "One process does not keep the device busy: too little in flight, small messages, a copy on the way.",
        "more in flight, or two processes, reach more if so",
    );
    if device.numa_node.is_none() || device.translated.is_none() {
        put(
            "far-memory",
            "The memory lies at another node than the device, or an IOMMU translates each address.",
            "numactl --membind and --cpunodebind; iommu=pt",
        );
    }
    if device.relaxed_order == Some(false) {
        put(
            "ordering",
            "Relaxed ordering is off (DevCtl RlxdOrd): some hosts write slower so.",
            "seen where each write waits for the one before it at another node",
        );
    }
    all
}

fn propose(directions: &[Moves]) -> Vec<Experiment> {
    let outcome = |seen: &str, means: &str| Outcome {
        seen: seen.to_owned(),
        means: means.to_owned(),
    };
    let mut all = vec![Experiment {
        what: "two hosts against one process here, then one host against two".to_owned(),
        outcomes: vec![
            outcome(
                "two hosts reach more",
                "the host that sends is the limit, not this one",
            ),
            outcome(
                "two processes here reach more",
                "software here is the limit",
            ),
            outcome("neither does", "the device, its link or the network here"),
        ],
    }];
    if directions.len() > 1 {
        all.push(Experiment {
            what: "each direction alone (--direction write, --direction read)".to_owned(),
            outcomes: vec![
                outcome(
                    "only reads are slow",
                    "completions, tags or the latency of memory",
                ),
                outcome(
                    "both are",
                    "software, power saving, or the way to this memory",
                ),
            ],
        });
    }
    all
}
