//! `fastpath explain cliff`: lists candidate causes of a step between one size and the next, and the sizes to measure
//! that distinguish them.

use clap::Args;
use fastpath_pcie::descriptor::{self, PostMethod};
use fastpath_pcie::formulas::message::DATAGRAM_PREFIX;
use fastpath_pcie::formulas::traffic::count_blocks;
use fastpath_pcie::profile;
use fastpath_pcie::wire::{Transport, Verb};
use fastpath_pcie::{Bytes, Link, LinkError, StatedRate};

use super::bandwidth::{TransportName, VerbName};
use super::findings::{said, to_try};
use super::options::{OutputOptions, take_signs};
use super::{Experiment, Explanation, Finding, refuse_if};

/// Options of `fastpath explain cliff`.
///
/// For instance, datagrams of RAMCloud's measurement, fast at 1729 bytes and slow at 1728: `--at 1728 --transport ud
/// --rate 3020MiB/s`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct CliffOptions {
    /// Last size before the step; one byte more behaves differently
    #[arg(help_heading = "Messages", long, value_name = "BYTES")]
    pub at: Bytes,
    /// Transport of the messages
    #[arg(help_heading = "Messages", long, value_enum, default_value_t = TransportName::Rc)]
    pub transport: TransportName,
    /// Operation that transfers the messages
    #[arg(help_heading = "Messages", long, value_enum, default_value_t = VerbName::Send)]
    pub verb: VerbName,
    /// PCIe link of the receiver
    #[arg(help_heading = "Hardware", long, value_name = "LINK", default_value = "2.0x8")]
    pub pcie: Link,
    /// Maximum payload size (MPS)
    #[arg(help_heading = "Hardware", long, default_value = "256")]
    pub mps: Bytes,
    /// MTU: bytes of payload in a network packet
    #[arg(help_heading = "Hardware", long, default_value = "4096")]
    pub mtu: Bytes,
    /// Adapter: infinihost3, connectx, connectx3, connectx5, connectx7
    #[arg(help_heading = "Hardware", long, default_value = "connectx")]
    pub adapter: String,
    /// Offset of the payload from an aligned address [default: 64 for datagrams, as in perftest, else 0]
    #[arg(help_heading = "Messages", long, value_name = "BYTES")]
    pub offset: Option<Bytes>,
    /// Alignment of receive slots; perftest aligns the payload without the 40 B before the payload
    #[arg(help_heading = "Messages", long, default_value = "64")]
    pub slot_align: Bytes,
    /// Granted inline data, in bytes; 0: none
    #[arg(help_heading = "Messages", long, default_value = "0")]
    pub inline: Bytes,
    /// Bandwidth on the fast side of the step
    #[arg(help_heading = "Measured figures", long, value_name = "RATE")]
    pub rate: Option<StatedRate>,
    /// Output format
    #[command(flatten)]
    pub output: OutputOptions,
}

struct CliffCandidate {
    finding: Finding,
    changes_at: Box<dyn Fn(u64) -> bool>,
}

impl CliffCandidate {
    fn new(finding: Finding, changes_at: impl Fn(u64) -> bool + 'static) -> CliffCandidate {
        let changes_at = Box::new(changes_at);
        CliffCandidate { finding, changes_at }
    }

    fn id(&self) -> &str {
        &self.finding.id
    }

    /// Whether the change depends on the size. False for a limit of the receiver itself, which can lie at any size.
    fn has_place(&self) -> bool {
        self.id() != "packet-rate"
    }
}

/// Explains a step between a size and the next.
///
/// # Errors
/// A value is impossible for a link or a message.
pub fn explain(options: &CliffOptions) -> Result<Explanation, LinkError> {
    let link = options.pcie.with_max_payload(options.mps.0)?;
    check(options)?;
    let at = options.at.0;
    let mut made = Explanation::new(format!("A step between {at} and {} B", at + 1));
    list_inputs(options, &link, &mut made);
    let candidates = find_candidates(options, &link)?;
    let names: Vec<&str> = candidates.iter().map(CliffCandidate::id).collect();
    made.findings.push(match names.len() {
        0 => said!(cliff "nothing-changes", why = hint_at_datagrams(options, &link)),
        count => {
            let candidates = if count == 1 { "candidate" } else { "candidates" };
            said!(cliff "candidates", count, candidates, names = names.join(", "))
        }
    });
    made.findings.extend(candidates.iter().map(|c| c.finding.clone()));
    made.experiments = plan_probes(at, &candidates);
    if !candidates.iter().all(CliffCandidate::has_place) {
        made.experiments.push(to_try!("slower", at, next = at + 1));
        made.experiments.extend([to_try!("up-and-down"), to_try!("losses")]);
    }
    Ok(made)
}

fn check(options: &CliffOptions) -> Result<(), LinkError> {
    let (at, mtu, align) = (options.at.0, options.mtu.0, options.slot_align.0);
    refuse_if(at == 0 || at > 1 << 31, "size", options.at, "1 byte to 2 GiB")?;
    let wrong = !align.is_power_of_two() || align > 1 << 20;
    let expected = "a power of two up to 1 MiB";
    refuse_if(wrong, "alignment of slots", options.slot_align, expected)?;
    refuse_if(mtu == 0, "MTU", options.mtu, "at least 1 byte")?;
    let offset = options.offset.unwrap_or_default();
    refuse_if(offset.0 > 1 << 30, "offset", offset, "at most 1 GiB")?;
    let wrong = options.transport == TransportName::Ud && at >= mtu;
    let expected = "at most one packet of the network (--mtu), also for the size after the step";
    refuse_if(wrong, "datagram", Bytes(at + 1), expected)
}

/// Describes what would change with datagrams, if the transport was not given.
fn hint_at_datagrams(options: &CliffOptions, link: &Link) -> String {
    let datagrams = CliffOptions { transport: TransportName::Ud, ..options.clone() };
    if options.transport == TransportName::Ud || options.at.0 >= options.mtu.0 {
        return String::new();
    }
    let candidates = [bus_packets(&datagrams, link), overlapping_slots(&datagrams)];
    let changes = candidates.iter().filter(|c| (c.changes_at)(options.at.0));
    match changes.map(CliffCandidate::id).collect::<Vec<&str>>().join(", ") {
        none if none.is_empty() => none,
        names => format!("With datagrams (--transport ud), the candidates would be: {names}."),
    }
}

fn offset_of(options: &CliffOptions) -> u64 {
    let is_datagram = options.transport == TransportName::Ud;
    options.offset.map_or(if is_datagram { 64 } else { 0 }, |bytes| bytes.0)
}

fn list_inputs(options: &CliffOptions, link: &Link, made: &mut Explanation) {
    let packets = format!("{link}, packets of {} B", link.max_payload());
    made.input("link", packets, "given or assumed");
    let begins = format!("{} B after an aligned address", offset_of(options));
    let source = if options.offset.is_some() { "given" } else { "assumed" };
    made.input("payload begins", begins, source);
    let slots = format!("rounded to {}", options.slot_align);
    made.input("receive slots", slots, "assumed, as perftest does");
    made.input("network", format!("packets of {}", options.mtu), "given or assumed");
}

fn find_candidates(options: &CliffOptions, link: &Link) -> Result<Vec<CliffCandidate>, LinkError> {
    let mut all = vec![bus_packets(options, link)];
    if options.transport == TransportName::Ud {
        all.push(overlapping_slots(options));
    }
    all.push(network_packets(options));
    all.extend(descriptor_ways(options)?);
    all.retain(|c| (c.changes_at)(options.at.0));
    all.extend(packet_rate(options));
    Ok(all)
}

fn bus_packets(options: &CliffOptions, link: &Link) -> CliffCandidate {
    let (offset, payload) = (offset_of(options), u64::from(link.max_payload()));
    let count = move |size| count_blocks(offset, size, payload);
    let (at, next) = (options.at.0, options.at.0 + 1);
    let (here, there, end) = (count(at), count(next), offset + at);
    let finding = said!(cliff "bus-packets", at, here, next, there, end, payload);
    CliffCandidate::new(finding, move |size| count(size) != count(size + 1))
}

fn overlapping_slots(options: &CliffOptions) -> CliffCandidate {
    let align = options.slot_align.0;
    // A slot must hold prefix and payload, but the next slot begins where the payload alone would end.
    let overlap =
        move |size: u64| DATAGRAM_PREFIX.saturating_sub(size.next_multiple_of(align) - size);
    let (at, next) = (options.at.0, options.at.0 + 1);
    let (here, there, prefix) = (overlap(at), overlap(next), DATAGRAM_PREFIX);
    let finding = said!(cliff "slot-overlap", at, here, next, there, prefix, align);
    CliffCandidate::new(finding, move |size| overlap(size) > 0 && overlap(size + 1) == 0)
}

fn network_packets(options: &CliffOptions) -> CliffCandidate {
    let (at, next, mtu) = (options.at.0, options.at.0 + 1, options.mtu.0);
    let (here, there) = (at.div_ceil(mtu), next.div_ceil(mtu));
    let finding = said!(cliff "network-packets", at, here, next, there, mtu);
    CliffCandidate::new(finding, move |size| size.div_ceil(mtu) != (size + 1).div_ceil(mtu))
}

fn descriptor_ways(options: &CliffOptions) -> Result<Option<CliffCandidate>, LinkError> {
    let adapter = profile::adapter(&options.adapter)?;
    let (transport, verb) = (Transport::from(options.transport), Verb::from(options.verb));
    let granted = options.inline.0;
    if granted == 0 {
        return Ok(None);
    }
    let blueflame = adapter.blueflame;
    let way = move |size: u64| -> PostMethod {
        let (bytes, inline) = (size.min(1 << 30) as u32, size <= granted);
        descriptor::way(adapter.family, transport, verb, bytes, inline, blueflame, 1)
    };
    let (at, next) = (options.at.0, options.at.0 + 1);
    let finding = said!(cliff "descriptor",
        at,
        here = way(at).name(),
        reads_here = way(at).serial_reads(),
        next,
        there = way(next).name(),
        reads_there = way(next).serial_reads(),
        granted,
        blueflame
    );
    Ok(Some(CliffCandidate::new(finding, move |size| way(size) != way(size + 1))))
}

/// A receiver with a fixed time per packet, whose limit can lie at any size.
fn packet_rate(options: &CliffOptions) -> Option<CliffCandidate> {
    let (at, next) = (options.at.0, options.at.0 + 1);
    let each = options.rate?.rate.time_of(next as f64);
    let million = format!("{:.2}", 1e3 / each.ns());
    let finding = said!(cliff "packet-rate", next, million, each);
    Some(CliffCandidate::new(finding, move |size| size == at))
}

/// Plans measurements at sizes near the step at which some candidates change and others do not.
fn plan_probes(at: u64, candidates: &[CliffCandidate]) -> Vec<Experiment> {
    let placed: Vec<&CliffCandidate> = candidates.iter().filter(|c| c.has_place()).collect();
    let changing = |size: u64| placed.iter().filter(move |c| (c.changes_at)(size)).count();
    let mut probes = Vec::new();
    for candidate in &placed {
        let any = |size: &u64| (candidate.changes_at)(*size);
        let alone = |size: &u64| any(size) && changing(*size) == 1;
        let (below, above) = (|| (1..at).rev().take(4096), || at + 1..at + 4096);
        let mut found: Vec<u64> = below().find(alone).into_iter().collect();
        found.extend(above().find(alone));
        if found.is_empty() {
            found.extend(below().find(any).into_iter().chain(above().find(any)));
        }
        if found.is_empty() {
            continue;
        }
        let sizes: Vec<String> = found.iter().map(|s| format!("{s} and {}", s + 1)).collect();
        let change = |c: &&CliffCandidate| found.iter().all(|&size| (c.changes_at)(size));
        let there: Vec<&str> = candidates.iter().filter(change).map(CliffCandidate::id).collect();
        // If no step is measured at these sizes, all candidates that change at these sizes are excluded.
        let (sizes, not_there) = (sizes.join(", "), there.join(" nor "));
        let there = there.join(" or ");
        probes.push(to_try!("other-size", sizes, there, not_there));
    }
    probes
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::FindingKind;
    use super::*;
    use fastpath_report::testing::parse_options;

    fn explain_line(line: &str) -> Result<Explanation, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let options = parse_options(&words).map_err(|e| e.to_string())?;
        explain(&options).map_err(|e| e.to_string())
    }

    fn causes(made: &Explanation) -> Vec<&str> {
        let causes = made.findings.iter().filter(|f| f.kind == FindingKind::Cause);
        causes.map(|f| f.id.as_str()).collect()
    }

    #[test]
    fn cliff__of_1728_has_three_candidates_and_sizes_that_tell_them_apart() {
        let made = explain_line("--at 1728 --transport ud --rate 3020MiB/s").unwrap();
        assert_eq!(causes(&made), ["bus-packets", "slot-overlap", "packet-rate"]);
        let text = |id: &str| {
            made.findings
                .iter()
                .find(|f| f.id == id && f.kind == FindingKind::Cause)
                .unwrap()
                .text
                .clone()
        };
        assert!(
            text("bus-packets").contains("1728 B are written in 7 packets on the bus, 1729 B in 8")
        );
        assert!(text("slot-overlap").contains("overlap by 40 B, those of 1729 B by 0"));
        assert!(
            text("packet-rate").contains("1.83 million") && text("packet-rate").contains("546 ns")
        );
        let probes: Vec<&str> = made.experiments.iter().map(|e| e.what.as_str()).collect();
        assert_eq!(probes[0], "Measure 1472 and 1473, 1984 and 1985 B.");
        assert_eq!(probes[1], "Measure 1664 and 1665, 1792 and 1793 B.");
        assert_eq!(probes.len(), 5);
        // Slots change every 64 B, so also at 1472 and 1984.
        let none = |i: usize| made.experiments[i].outcomes[1].means.as_str();
        assert_eq!(none(0), "not bus-packets nor slot-overlap");
        assert_eq!(none(1), "not slot-overlap");
    }

    #[test]
    fn datagrams__are_hinted_at_where_nothing_else_changes() {
        let why = |line: &str| {
            let made = explain_line(line).unwrap();
            let found = made.findings.iter().find(|f| f.id == "nothing-changes");
            found.unwrap().why.clone()
        };
        let hint = why("--at 1728");
        assert!(hint.contains("--transport ud") && hint.contains("slot-overlap"), "{hint}");
        assert_eq!(why("--at 1700"), "");
    }

    #[test]
    fn cliff__of_inline_data_is_the_descriptor() {
        let made = explain_line("--at 208 --verb write --inline 448 --adapter connectx").unwrap();
        assert_eq!(causes(&made), ["descriptor"]);
        let made = explain_line("--at 448 --verb write --inline 448").unwrap();
        assert_eq!(causes(&made), ["descriptor"]);
        assert!(causes(&explain_line("--at 300 --verb write --inline 448").unwrap()).is_empty());
        assert_eq!(causes(&explain_line("--at 4096").unwrap()), ["bus-packets", "network-packets"]);
    }

    #[test]
    fn nonsense__is_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--at 0", "1 byte to 2 GiB"),
            ("--at -5", "cannot be negative"),
            ("--at 1728 --mps 100", "a power of two from 128"),
            ("--at 1728 --pcie 2.0x3", "expected x1, x2"),
            ("--at 1728 --slot-align 48", "a power of two up to"),
            ("--at 1728 --rate 3020", "needs its unit"),
            ("--at 1728 --adapter rtl8139", "expected infinihost3"),
            ("--at 100000 --transport ud", "at most one packet"),
            ("--at 4096 --transport ud", "at most one packet"),
            ("--at 1728 --mtu 0", "at least 1 byte"),
        ] {
            let error = explain_line(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
