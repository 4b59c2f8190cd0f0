//! Comparison of a measured bandwidth with that of the link. The result is agreement, a measured figure above that of
//! the link, or causes of a lower figure.

use fastpath_machine::pci::function::PciFunction;
use fastpath_pcie::{Link, Rate, RateUnit, StatedRate};

use super::fields::READ_NS;
use super::{DevicePath, Moves, Ratio, ceiling, expected, format_rate};
use crate::findings::{said, to_try};
use crate::{AGREES, Explanation, Finding, FindingKind, MIB_OVER_MB, percent};

/// A possible cause, and the rate to which it would limit the transfers.
struct Hypothesis {
    rate: Rate,
    finding: Finding,
}

/// Compares a measured figure with the link, and ranks possible causes of a difference.
pub(super) fn judge(
    subject: &DevicePath, link: &Link, narrowest: Option<(&PciFunction, Link)>,
    measured: StatedRate, directions: &[Moves], made: &mut Explanation,
) {
    let share_of = |moves: &Moves| {
        let most = expected(link, narrowest, *moves);
        let (rate, what) = (format_rate(most, measured.unit), moves.short());
        let share = measured.rate / most;
        (share, format!("{:.1} % of the {rate} of {what}", share * 100.0))
    };
    let (shares, each): (Vec<f64>, Vec<String>) = directions.iter().map(share_of).unzip();
    let each = each.join(" and ");
    let is_above = shares.iter().all(|share| *share > 1.0);
    let could = subject.device.link_can.link();
    let says = match narrowest.is_some() || could.is_some_and(|c| c.raw() > link.raw()) {
        true => "The bus explains this rate, but a faster link is possible",
        false => "The bus explains this rate, so nothing is left to explain",
    };
    let open = percent(AGREES);
    if shares.iter().any(|share| (share - 1.0).abs() <= AGREES) {
        let name = if is_above { "agrees-above" } else { "agrees" };
        made.findings.push(said!(device name, each, says, open));
    } else if is_above {
        made.findings.push(said!(device "too-much", each, mib = percent(MIB_OVER_MB)));
    } else {
        made.findings.push(said!(device "less", each));
        let hypotheses = list_hypotheses(subject, link, measured, directions);
        rank(hypotheses, measured, made);
        made.findings.extend(list_open_causes(subject));
        made.experiments.extend((!subject.copies).then(|| to_try!("device-hosts")));
        if directions.len() > 1 {
            made.experiments.push(to_try!("device-directions"));
        }
    }
}

/// Ranks causes that match first, then those that allow more than was measured. Causes that allow less are excluded.
fn rank(hypotheses: Vec<Hypothesis>, measured: StatedRate, made: &mut Explanation) {
    let off = |h: &Hypothesis| h.rate / measured.rate - 1.0;
    let (mut possible, excluded): (Vec<_>, Vec<_>) =
        hypotheses.into_iter().partition(|h| off(h) >= -AGREES);
    possible.sort_by(|a, b| off(a).total_cmp(&off(b)));
    for h in possible {
        let rate = format_rate(h.rate, measured.unit);
        let fit = match off(&h) {
            d if d <= AGREES => format!("this cause allows {rate}, which is what was measured"),
            d => format!(
                "this cause allows {rate}, {:.0} % more than was measured, so it is not the only \
                 cause",
                d * 100.0
            ),
        };
        let why = format!("{fit}; {}", h.finding.why);
        made.findings.push(h.finding.because(why));
    }
    for h in excluded {
        let rate = format_rate(h.rate, measured.unit);
        let why = format!("this cause allows only {rate}, but more was measured");
        made.findings.push(h.finding.of_kind(FindingKind::Excluded).because(why));
    }
}

fn list_hypotheses(
    subject: &DevicePath, link: &Link, measured: StatedRate, directions: &[Moves],
) -> Vec<Hypothesis> {
    let mut all = Vec::new();
    let mut put = |rate, finding| all.push(Hypothesis { rate, finding });
    let find = |does: fn(Moves) -> bool| directions.iter().copied().find(|m| does(*m));
    let (reading, writing) = (find(Moves::reads), find(Moves::writes));
    let (read, write) = (reading.unwrap_or(Moves::Read), writing.unwrap_or(Moves::Write));
    let whose = match directions {
        [_, _, ..] => "Memory, here or at the sender (if the sender's link is like this one),",
        [moves] if moves.reads() => "Memory",
        _ => "The sender's memory (if the sender's link is like this one)",
    };
    // If the device itself copies to memory, no memory is read, so completions cannot limit the copies.
    let has_reader = reading.is_some() || !subject.copies;
    let cuts = [64u64, 128].into_iter().filter(|_| has_reader);
    for (bytes, cut) in cuts.filter_map(|n| Some((n, link.with_completion(n).ok()?))) {
        if ceiling(&cut, read) < ceiling(link, read) {
            put(ceiling(&cut, read), said!(device "read-completions", whose, bytes));
        }
    }
    if let Some((gbit, name)) = &subject.network {
        let rate = Rate::from_bytes_per_s(gbit * 1e9 / 8.0 * write.over_one());
        put(rate, said!(device "network", name));
    }
    if let Ok(small) = link.with_max_payload(128)
        && subject.device.payload_is.is_none()
        && link.max_payload() > 128
    {
        put(ceiling(&small, write), said!(device "payload-128"));
    }
    if let Some(tags) = subject.device.tags_is.filter(|_| reading.is_some()) {
        let bytes = link.max_read_request();
        let flight = f64::from(tags) * f64::from(bytes) * read.of_reads();
        for ns in [READ_NS, 2.0 * READ_NS] {
            let rate = Rate::from_bytes_per_s(flight / ns * 1e9);
            if rate < ceiling(link, read) {
                put(rate, said!(device "few-tags", tags, bytes, ns));
            }
        }
    }
    let binary = Rate::from_bytes_per_s(measured.value() * binary_of(measured));
    let agrees = |d: &Moves| (binary / ceiling(link, *d) - 1.0).abs() <= AGREES;
    if !subject.copies && binary > measured.rate && directions.iter().any(agrees) {
        let rate = format_rate(binary, measured.unit);
        put(measured.rate, said!(device "unit-error", rate));
    }
    if let [both @ Moves::Both(Ratio::EVEN)] = directions
        && (measured.rate * 2.0 / ceiling(link, *both) - 1.0).abs() <= AGREES
    {
        put(measured.rate, said!(device "one-direction"));
    }
    all
}

/// Bytes per second of the binary unit that is often mistaken for the decimal unit of `measured`.
fn binary_of(measured: StatedRate) -> f64 {
    match measured.unit {
        RateUnit::MbPerS => RateUnit::MibPerS.bytes_per_s(),
        RateUnit::GbytePerS => RateUnit::GibPerS.bytes_per_s(),
        unit => unit.bytes_per_s(),
    }
}

fn list_open_causes(subject: &DevicePath) -> Vec<Finding> {
    let device = &subject.device;
    let open = [
        ("replays", device.errors.corrected == Some(true)),
        ("one-process", !subject.copies),
        ("far-memory", device.numa_node.is_none() || device.translated.is_none()),
        ("ordering", device.relaxed_order == Some(false)),
    ];
    let open = open.into_iter().filter(|(_, is_open)| *is_open);
    open.map(|(name, _)| said!(device name)).collect()
}
