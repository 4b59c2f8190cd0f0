//! Conclusions from prediction and measurement.

use fastpath_pcie::formulas::DataLink;
use fastpath_pcie::link::AddressWidth;
use fastpath_pcie::{Bytes, Link, Rate, RateUnit};

use super::super::bus::Load;
use super::super::findings::{said, to_try};
use super::super::moves::{Moves, Ratio};
use super::super::{AGREES, Experiment, Explanation, Finding, FindingKind, percent};
use super::{BandwidthSubject, Tool};

/// Tolerated error of perftest's clock. Perftest uses the processor's nominal frequency if a measured frequency agrees
/// with it within 2 %.
const CLOCK: f64 = 0.02;

/// Name of the stage of a bus that is used in both directions at once.
pub(super) const BOTH_WAYS: &str = "bus both ways";

/// Stages and their limits. Each client has its own bus, so the limit of the senders' buses grows with the number of
/// clients.
fn stages(subject: &BandwidthSubject) -> Vec<(&'static str, Rate)> {
    let clients = f64::from(subject.clients);
    let receiver = ("receiver's bus", subject.receiver(&subject.link));
    let sender = ("sender's bus", subject.sender(&subject.link) * clients);
    let mut stages = match subject.moves {
        None => vec![receiver, sender],
        Some(Moves::Write) => vec![receiver],
        Some(Moves::Read) => vec![sender],
        Some(both) => vec![(BOTH_WAYS, bus(subject, &subject.link, both))],
    };
    stages.extend(subject.network().map(|rate| ("network", rate)));
    stages
}

fn bus(subject: &BandwidthSubject, link: &Link, moves: Moves) -> Rate {
    subject.load(link, moves).rate(DataLink::Directional)
}

fn tightest(subject: &BandwidthSubject) -> (&'static str, Rate) {
    let stages = stages(subject).into_iter();
    let found = stages.min_by(|a, b| a.1.bytes_per_s().total_cmp(&b.1.bytes_per_s()));
    found.unwrap_or_default()
}

pub(super) fn bound_by(subject: &BandwidthSubject) -> &'static str {
    tightest(subject).0
}

fn off(rate: Rate, from: Rate) -> String {
    format!("{:+.1}", (rate / from - 1.0) * 100.0)
}

pub(super) fn judge(subject: &BandwidthSubject, made: &mut Explanation) {
    let findings = &mut made.findings;
    compare_stages(subject, findings);
    if let Some(Moves::Both(ratio)) = subject.moves {
        judge_both(subject, ratio, findings);
        made.experiments = tell_directions_apart(subject);
    }
    if let Some(measured) = subject.measured {
        judge_left(subject, measured, findings);
    }
    // A single stream below the limit is as informative as --single.
    let is_one_stream = !matches!(subject.moves, Some(Moves::Both(_) | Moves::Write));
    let short = |m: &Rate| *m < tightest(subject).1 * (1.0 - CLOCK);
    let alone = subject.measured.filter(|m| is_one_stream && subject.clients == 1 && short(m));
    if let Some(single) = subject.single.or(alone) {
        judge_single(subject, single, findings);
        made.experiments = tell_sender_from_receiver(subject, single);
    }
    findings.push(mention_pcie_bench(subject));
}

fn compare_stages(subject: &BandwidthSubject, findings: &mut Vec<Finding>) {
    let mut stages = match subject.moves {
        Some(both @ Moves::Both(_)) => {
            vec![("the bus both ways", bus(subject, &subject.link, both))]
        }
        _ => vec![
            ("the receiver's bus", subject.receiver(&subject.link)),
            ("one sender's bus", subject.sender(&subject.link)),
        ],
    };
    stages.extend(subject.network().map(|rate| ("the network", rate)));
    let all = stages.iter().map(|(name, rate)| format!("{name} {}", subject.say(*rate)));
    let all = all.collect::<Vec<String>>().join(", ");
    let (stage, rate) = tightest(subject);
    let limit = said!(bandwidth "limit", stage, rate = subject.say(rate), all);
    findings.push(match subject.measured {
        Some(_) => limit.of_kind(FindingKind::Note),
        None => limit,
    });
    let Some(wire) = subject.wire else { return };
    let (bus, signals) = (subject.link.raw(), wire.signalling.gb_per_s().0);
    if (bus / wire.rate - 1.0).abs() < 1e-3 && signals > bus.gb_per_s().0 {
        let (signals, both) = (format!("{signals:.0}"), format!("{:.0}", bus.gb_per_s()));
        findings.push(said!(bandwidth "network-ties", signals, both));
    }
}

/// Overhead per packet of the maximum payload, in bytes, that would explain the whole loss.
fn implied_overhead(link: &Link, rate: Rate) -> f64 {
    let payload = Bytes(u64::from(link.max_payload())).as_f64();
    payload * (link.raw() / rate - 1.0)
}

fn judge_left(subject: &BandwidthSubject, measured: Rate, findings: &mut Vec<Finding>) {
    let (stage, predicted) = tightest(subject);
    let share = measured / predicted - 1.0;
    let moves = subject.moves.unwrap_or(Moves::Write);
    let raw = subject.link.raw() * moves.over_one();
    let load = Load::of_transfers(&subject.link, moves, subject.message.size);
    let headers = raw - load.rate(DataLink::Ignored);
    let implied = implied_overhead(&subject.link, measured);
    let stands = match share > -0.25 && moves == Moves::Write {
        true => format!(
            " The measured figure would correspond to {implied:.1} B of headers for each {} B of \
             payload.",
            subject.link.max_payload()
        ),
        false => String::new(),
    };
    let why = format!(
        "Measured {}, predicted {}: {} %. Headers alone take {} ({:.1} %).{stands}",
        subject.say(measured),
        subject.say(predicted),
        off(measured, predicted),
        subject.say(headers),
        headers / raw * 100.0,
    );
    findings.push(if share.abs() <= AGREES {
        let stage = if stage == "network" { stage } else { "bus" };
        said!(bandwidth "nothing-left", stage, why)
    } else if share > 0.0 {
        said!(bandwidth "above-the-limit", off = format!("{:.1}", share * 100.0), stage, why)
    } else {
        said!(bandwidth "left", rate = subject.say(predicted - measured), why)
    });
    if share > 0.0 {
        explain_excess(subject, measured, findings);
    }
}

fn explain_excess(subject: &BandwidthSubject, measured: Rate, findings: &mut Vec<Finding>) {
    let (stage, predicted) = tightest(subject);
    if measured / predicted - 1.0 > AGREES {
        if let Some((unit, rate)) = other_unit(measured, predicted, subject.unit) {
            let figure = format!("{:.0}", measured.in_unit(subject.unit));
            let (off, rate) = (off(rate, predicted), subject.say(rate));
            findings.push(said!(bandwidth "unit", figure, unit, rate, off));
        }
    } else {
        findings.push(match subject.tool {
            Some(Tool::Perftest) => said!(bandwidth "clock-perftest", clock = percent(CLOCK)),
            None => said!(bandwidth "clock"),
        });
    }
    if stage == "network" {
        return findings.push(said!(bandwidth "other-network"));
    }
    if subject.clients > 1 {
        findings.push(said!(bandwidth "windows", clients = subject.clients));
    }
    let link = &subject.link;
    let larger = link.with_max_payload(u64::from(link.max_payload()) * 2).ok();
    let others = [
        ("short-addresses", Some(link.with_address(AddressWidth::Bits32))),
        ("larger-payload", larger),
    ];
    let moves = subject.moves.unwrap_or(Moves::Write);
    for (name, other) in others.into_iter().filter_map(|(name, link)| Some((name, link?))) {
        let allowed = bus(subject, &other, moves);
        if allowed > bus(subject, link, moves) {
            let (rate, off) = (subject.say(allowed), off(measured, allowed));
            findings.push(said!(bandwidth name, rate, off));
        }
    }
}

/// Finds a unit in which the number agrees with the prediction, and the rate in that unit.
fn other_unit(measured: Rate, predicted: Rate, unit: RateUnit) -> Option<(RateUnit, Rate)> {
    let as_unit = |other| (other, Rate::new(measured.in_unit(unit), other));
    let agrees = |(_, rate): &(RateUnit, Rate)| (*rate / predicted - 1.0).abs() <= AGREES;
    let others = RateUnit::ALL.into_iter().filter(|other| *other != unit);
    others.map(as_unit).find(agrees)
}

/// Returns the sender's limit if memory answers reads in pieces of `completion` bytes.
fn reads_of(subject: &BandwidthSubject, completion: u64) -> Option<Rate> {
    let link = subject.link.with_completion(completion).ok()?;
    Some(subject.sender(&link))
}

/// Compares the rate of one client with the sender's reads, by completion size.
fn judge_single(subject: &BandwidthSubject, single: Rate, findings: &mut Vec<Finding>) {
    let sizes = [64, 128, 256, 512].into_iter();
    let sizes = sizes.filter(|&n| n <= u64::from(subject.link.max_payload()));
    let mut allowed: Vec<(u64, Rate)> =
        sizes.filter_map(|n| Some((n, reads_of(subject, n)?))).collect();
    allowed.sort_by(|a, b| a.1.bytes_per_s().total_cmp(&b.1.bytes_per_s()));
    let list = allowed.iter().map(|(n, rate)| format!("{n} B: {}", subject.say(*rate)));
    let why = format!(
        "Limit of a sender, by the size of the pieces in which its memory answers reads: {}. The \
         measured figure would mean {:.1} B of headers for each 128 B of payload.",
        list.collect::<Vec<String>>().join("; "),
        128.0 * (subject.link.raw() / single - 1.0)
    );
    let said_single = subject.say(single);
    let fits = allowed.iter().find(|(_, rate)| (single / *rate - 1.0).abs() <= CLOCK);
    findings.push(match fits {
        Some((size, rate)) => {
            let share = format!("{:.1}", single / *rate * 100.0);
            let rate = subject.say(*rate);
            said!(bandwidth "sender-reads", single = said_single, size, share, rate, why)
        }
        None => said!(bandwidth "sender-reads-none", single = said_single, why),
    });
    let excluded = allowed.iter().filter(|(_, rate)| single > *rate * (1.0 + CLOCK));
    for (size, rate) in excluded {
        findings.push(said!(bandwidth "completion-size", size, rate = subject.say(*rate)));
    }
    let size = subject.message.size;
    let time = format!("{:.1}", single.time_of(size.as_f64()));
    findings.push(said!(bandwidth "receiver-process", time, size));
}

fn tell_sender_from_receiver(subject: &BandwidthSubject, single: Rate) -> Vec<Experiment> {
    let twice = |rate: Rate| subject.say(subject.through_network(rate).min(single * 2.0));
    let two = twice(subject.receiver(&subject.link));
    let more = twice(subject.sender(&subject.link));
    let single = subject.say(single);
    vec![to_try!("two-clients", two, single), to_try!("two-servers", single, more)]
}

/// Explains each direction, the effect of bursts, and whether the figure covers one direction only.
fn judge_both(subject: &BandwidthSubject, ratio: Ratio, findings: &mut Vec<Finding>) {
    let (link, both) = (&subject.link, Moves::Both(ratio));
    let sum = bus(subject, link, both);
    let all = f64::from(ratio.written + ratio.read);
    findings.push(said!(bandwidth "each-way",
        arrives = subject.say(sum * (f64::from(ratio.written) / all)),
        leaves = subject.say(sum * (f64::from(ratio.read) / all)),
        alone_in = subject.say(bus(subject, link, Moves::Write)),
        alone_out = subject.say(bus(subject, link, Moves::Read))
    ));
    let bursts = subject.say(subject.load(link, both).rate(DataLink::Bursts));
    if bursts != subject.say(sum) {
        findings.push(said!(bandwidth "bursts", rate = bursts));
    }
    let predicted = tightest(subject).1;
    let together = subject.measured.map(|m| m * both.over_one());
    if let Some(rate) = together.filter(|m| (*m / predicted - 1.0).abs() <= AGREES) {
        findings.push(said!(bandwidth "one-direction", rate = subject.say(rate)));
    }
}

fn tell_directions_apart(subject: &BandwidthSubject) -> Vec<Experiment> {
    let each = |name: &str, moves| {
        let rate = subject.through_network(bus(subject, &subject.link, moves));
        to_try!(name, rate = subject.say(rate))
    };
    vec![each("receive-alone", Moves::Write), each("send-alone", Moves::Read)]
}

fn mention_pcie_bench(subject: &BandwidthSubject) -> Finding {
    let moves = subject.moves.unwrap_or(Moves::Write);
    let load = Load::of_transfers(&subject.link, moves, subject.message.size);
    let (symmetric, own) = (load.rate(DataLink::Symmetric), load.rate(DataLink::Directional));
    let off = format!("{:.0}", (1.0 - symmetric / own) * 100.0);
    said!(bandwidth "pcie-bench", rate = subject.say(symmetric), moves = moves.short(), off)
}
