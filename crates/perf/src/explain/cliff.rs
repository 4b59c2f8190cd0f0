//! `fastpath explain cliff`: what changes between one size and the next, and which sizes to probe to tell the
//! candidates apart.

use clap::Args;
use fastpath_pcie::closed::message::DATAGRAM_PREFIX;
use fastpath_pcie::closed::traffic::count_blocks;
use fastpath_pcie::descriptor::{self, Way};
use fastpath_pcie::profile;
use fastpath_pcie::wire::{Transport, Verb};
use fastpath_pcie::{Bytes, Link, LinkError, StatedRate};

use super::bandwidth::{TransportName, VerbName};
use super::command::{OutputOptions, take_signs};
use super::{Experiment, Explanation, Finding, FindingKind, Input, Outcome};

/// Options of `fastpath explain cliff`.
///
/// For instance, datagrams of RAMCloud's measurement, fast at 1729 bytes and slow at 1728: `--at 1728 --transport ud
/// --rate 3020MiB/s`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct CliffOptions {
    /// The last size before the step; one byte more behaves otherwise
    #[arg(long, value_name = "BYTES")]
    pub at: Bytes,
    /// How messages travel
    #[arg(long, value_enum, default_value_t = TransportName::Rc)]
    pub transport: TransportName,
    /// What is done with them
    #[arg(long, value_enum, default_value_t = VerbName::Send)]
    pub verb: VerbName,
    /// The receiver's link
    #[arg(long, value_name = "LINK", default_value = "2.0x8")]
    pub pcie: Link,
    /// The maximum payload
    #[arg(long, default_value = "256")]
    pub mps: Bytes,
    /// Bytes of payload in a packet of the network
    #[arg(long, default_value = "4096")]
    pub mtu: Bytes,
    /// The adapter: infinihost3, connectx, connectx3, connectx5, connectx7
    #[arg(long, default_value = "connectx")]
    pub adapter: String,
    /// Where the payload begins, from an aligned address on [default: 64 for datagrams, as perftest lays them out, else
    /// 0]
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<Bytes>,
    /// To what receive slots are rounded; perftest rounds the payload without the 40 B before it
    #[arg(long, default_value = "64")]
    pub slot_align: Bytes,
    /// Inline data granted; 0: none
    #[arg(long, default_value = "0")]
    pub inline: Bytes,
    /// The bandwidth on the fast side of the step
    #[arg(long, value_name = "RATE")]
    pub rate: Option<StatedRate>,
    /// How to show it
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Something that changes at the step.
struct Candidate {
    id: &'static str,
    text: String,
    why: String,
    /// Whether a size lies right below such a change.
    changes_at: Box<dyn Fn(u64) -> bool>,
}

/// Explains a step between a size and the next.
///
/// # Errors
/// A value is none that a link or a message can have.
pub fn explain(options: &CliffOptions) -> Result<Explanation, LinkError> {
    let link = options.pcie.with_max_payload(options.mps.0)?;
    let at = options.at.0;
    let refuse = |what, found: &dyn ToString, expected| LinkError {
        what,
        found: found.to_string(),
        expected,
    };
    if at == 0 || at > 1 << 31 {
        return Err(refuse("size", &options.at, "1 byte to 2 GiB"));
    }
    if !options.slot_align.0.is_power_of_two() || options.slot_align.0 > 1 << 20 {
        return Err(refuse(
            "alignment of slots",
            &options.slot_align,
            "a power of two up to 1 MiB",
        ));
    }
    if options.mtu.0 == 0 || options.offset.is_some_and(|o| o.0 > 1 << 30) {
        return Err(refuse(
            "offset or MTU",
            &options.mtu,
            "an MTU of at least 1 byte, an offset of at most 1 GiB",
        ));
    }
    if options.transport == TransportName::Ud && at >= options.mtu.0 {
        return Err(refuse(
            "datagram",
            &Bytes(at + 1),
            "at most one packet of the network (--mtu), one byte after the step too",
        ));
    }
    let mut made = Explanation::new(format!("A step between {at} and {} B", at + 1));
    made.inputs = list_inputs(options, &link);
    let candidates = find_candidates(options, &link)?;
    for candidate in &candidates {
        add(
            &mut made,
            FindingKind::Cause,
            candidate.id,
            candidate.text.clone(),
            candidate.why.clone(),
        );
    }
    if candidates.is_empty() {
        let text = "Nothing that is known here changes between these sizes.".to_owned();
        add(
            &mut made,
            FindingKind::Answer,
            "nothing-changes",
            text,
            hint_at_datagrams(options, &link),
        );
    } else {
        let names: Vec<&str> = candidates.iter().map(|c| c.id).collect();
        let what = if names.len() == 1 {
            "candidate"
        } else {
            "candidates"
        };
        let text = format!("{} {what}: {}.", names.len(), names.join(", "));
        let why =
            "They change at this size; which one matters, only other sizes can tell.".to_owned();
        made.findings
            .insert(0, finding(FindingKind::Answer, "candidates", text, why));
    }
    made.experiments = plan_probes(at, &candidates);
    made.experiments.extend(plan_others(options, &candidates));
    Ok(made)
}

/// What would change if the messages were datagrams, where it was not said how they travel.
fn hint_at_datagrams(options: &CliffOptions, link: &Link) -> String {
    let datagrams = CliffOptions {
        transport: TransportName::Ud,
        ..options.clone()
    };
    if options.transport == TransportName::Ud || options.at.0 >= options.mtu.0 {
        return String::new();
    }
    let candidates = [bus_packets(&datagrams, link), overlapping_slots(&datagrams)];
    let changes = candidates.iter().filter(|c| (c.changes_at)(options.at.0));
    let names: Vec<&str> = changes.map(|c| c.id).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "With datagrams (--transport ud) there would be: {}.",
            names.join(", ")
        ),
    }
}

fn finding(kind: FindingKind, id: &str, text: String, why: String) -> Finding {
    Finding {
        kind,
        id: id.to_owned(),
        text,
        why,
    }
}

fn add(made: &mut Explanation, kind: FindingKind, id: &str, text: String, why: String) {
    made.findings.push(finding(kind, id, text, why));
}

fn offset_of(options: &CliffOptions) -> u64 {
    let usual = if options.transport == TransportName::Ud {
        64
    } else {
        0
    };
    options.offset.map_or(usual, |bytes| bytes.0)
}

fn list_inputs(options: &CliffOptions, link: &Link) -> Vec<Input> {
    let given = |is: bool| if is { "given" } else { "assumed" };
    let input = |name: &str, value: String, source: &str| Input {
        name: name.to_owned(),
        value,
        source: source.to_owned(),
    };
    vec![
        input(
            "link",
            format!("{link}, packets of {} B", link.max_payload()),
            "given or assumed",
        ),
        input(
            "payload begins",
            format!("{} B behind an aligned address", offset_of(options)),
            given(options.offset.is_some()),
        ),
        input(
            "receive slots",
            format!("rounded to {}", options.slot_align),
            "assumed, as perftest does",
        ),
        input(
            "network",
            format!("packets of {}", options.mtu),
            "given or assumed",
        ),
    ]
}

fn find_candidates(options: &CliffOptions, link: &Link) -> Result<Vec<Candidate>, LinkError> {
    let at = options.at.0;
    let mut all = vec![bus_packets(options, link)];
    if options.transport == TransportName::Ud {
        all.push(overlapping_slots(options));
    }
    all.push(network_packets(options));
    all.extend(descriptor_ways(options)?);
    let mut found: Vec<Candidate> = all.into_iter().filter(|c| (c.changes_at)(at)).collect();
    found.extend(packet_rate(options));
    Ok(found)
}

fn bus_packets(options: &CliffOptions, link: &Link) -> Candidate {
    let (offset, payload) = (offset_of(options), u64::from(link.max_payload()));
    let count = move |size| count_blocks(offset, size, payload);
    let at = options.at.0;
    Candidate {
        id: "bus-packets",
        text: format!(
            "{at} B are written in {} packets on the bus, {} B in {}.",
            count(at),
            at + 1,
            count(at + 1)
        ),
        why: format!(
            "The payload ends at {}, a multiple of {payload}: the next packet carries one byte, a part of a cache line. The same every {payload} B.",
            offset + at
        ),
        changes_at: Box::new(move |size| count(size) != count(size + 1)),
    }
}

fn overlapping_slots(options: &CliffOptions) -> Candidate {
    let align = options.slot_align.0;
    // A slot must hold prefix and payload, and the next begins where the payload alone would end.
    let overlap =
        move |size: u64| DATAGRAM_PREFIX.saturating_sub(size.next_multiple_of(align) - size);
    let at = options.at.0;
    Candidate {
        id: "slot-overlap",
        text: format!(
            "Receive slots of {at} B overlap by {} B, those of {} B by {}.",
            overlap(at),
            at + 1,
            overlap(at + 1)
        ),
        why: format!(
            "A slot has {DATAGRAM_PREFIX} B of route header before the payload, and the next one begins at the payload's size rounded to {align}: the header of one datagram lands on the end of the one before. Every {align} B."
        ),
        changes_at: Box::new(move |size| {
            (overlap(size) > 0) != (overlap(size + 1) > 0) && overlap(size) > 0
        }),
    }
}

fn network_packets(options: &CliffOptions) -> Candidate {
    let (at, mtu) = (options.at.0, options.mtu.0);
    Candidate {
        id: "network-packets",
        text: format!(
            "{at} B take {} packets of the network, {} B take {}.",
            at.div_ceil(mtu),
            at + 1,
            (at + 1).div_ceil(mtu)
        ),
        why: format!("Packets carry up to {mtu} B."),
        changes_at: Box::new(move |size| size.div_ceil(mtu) != (size + 1).div_ceil(mtu)),
    }
}

fn descriptor_ways(options: &CliffOptions) -> Result<Option<Candidate>, LinkError> {
    let adapter = profile::adapter(&options.adapter)?;
    let (transport, verb) = (Transport::from(options.transport), Verb::from(options.verb));
    let granted = options.inline.0;
    if granted == 0 {
        return Ok(None);
    }
    let way = move |size: u64| -> Way {
        let inline = size <= granted;
        descriptor::way(
            adapter.family,
            transport,
            verb,
            size.min(1 << 30) as u32,
            inline,
            adapter.blueflame,
            1,
        )
    };
    let at = options.at.0;
    let (here, there) = (way(at), way(at + 1));
    Ok(Some(Candidate {
        id: "descriptor",
        text: format!(
            "{at} B go by {} ({} serial reads), {} B by {} ({}).",
            here.name(),
            here.serial_reads(),
            at + 1,
            there.name(),
            there.serial_reads()
        ),
        why: format!(
            "{granted} B are granted inline; BlueFlame takes descriptors of up to {} B.",
            adapter.blueflame
        ),
        changes_at: Box::new(move |size| way(size) != way(size + 1)),
    }))
}

/// A receiver that needs so long for each packet has its limit wherever it has it.
fn packet_rate(options: &CliffOptions) -> Option<Candidate> {
    let rate = options.rate?.rate;
    let size = options.at.0 + 1;
    let per_packet = rate.time_of(size as f64);
    let million = 1e3 / per_packet.ns();
    let at = options.at.0;
    Some(Candidate {
        id: "packet-rate",
        text: format!("At {} B, {million:.2} million packets a second arrive, one in {per_packet}; smaller ones come faster than the receiver may manage.", size),
        why: "A receiver that falls behind may stay so: its buffers leave the cache, it runs out of receive descriptors, and datagrams are lost.".to_owned(),
        changes_at: Box::new(move |size| size == at),
    })
}

/// Sizes near the step at which some candidates change and others do not.
fn plan_probes(at: u64, candidates: &[Candidate]) -> Vec<Experiment> {
    let mut probes = Vec::new();
    for (index, candidate) in candidates
        .iter()
        .enumerate()
        .filter(|(_, c)| c.id != "packet-rate")
    {
        let alone = |size: &u64| {
            let others = candidates
                .iter()
                .enumerate()
                .filter(|(i, c)| *i != index && c.id != "packet-rate");
            (candidate.changes_at)(*size) && !others.into_iter().any(|(_, c)| (c.changes_at)(*size))
        };
        let any = |size: &u64| (candidate.changes_at)(*size);
        let below = (1..at).rev().take(4096);
        let above = at + 1..at + 4096;
        let found: Vec<u64> = match (below.clone().find(alone), above.clone().find(alone)) {
            (None, None) => below
                .clone()
                .find(any)
                .into_iter()
                .chain(above.clone().find(any))
                .collect(),
            (a, b) => a.into_iter().chain(b).collect(),
        };
        if found.is_empty() {
            continue;
        }
        let sizes: Vec<String> = found.iter().map(|s| format!("{s} and {}", s + 1)).collect();
        let change = |c: &&Candidate| found.iter().all(|&size| (c.changes_at)(size));
        let there: Vec<&str> = candidates.iter().filter(change).map(|c| c.id).collect();
        // Without a step there, none of those that change there is the cause.
        let outcome = |seen: &str, means: String| Outcome {
            seen: seen.to_owned(),
            means,
        };
        probes.push(Experiment {
            what: format!("Measure {} B.", sizes.join(", ")),
            outcomes: vec![
                outcome("a step there too", there.join(" or ")),
                outcome("none", format!("not {}", there.join(" nor "))),
            ],
        });
    }
    probes
}

fn plan_others(options: &CliffOptions, candidates: &[Candidate]) -> Vec<Experiment> {
    if !candidates.iter().any(|c| c.id == "packet-rate") {
        return Vec::new();
    }
    let at = options.at.0;
    let outcome = |seen: &str, means: &str| Outcome {
        seen: seen.to_owned(),
        means: means.to_owned(),
    };
    vec![
        Experiment {
            what: format!("Send {at} B no faster than {} B were sent.", at + 1),
            outcomes: vec![outcome("no loss of bandwidth", "packet-rate"), outcome("slow as before", "not packet-rate")],
        },
        Experiment {
            what: "Go through the sizes upwards, then downwards, without a pause.".to_owned(),
            outcomes: vec![outcome("the step lies elsewhere on the way back", "packet-rate: a state that keeps itself"), outcome("the same place", "a property of the size")],
        },
        Experiment {
            what: "Compare what was sent with what was received, and look at the port's counter of missing receive descriptors.".to_owned(),
            outcomes: vec![outcome("some are missing", "packet-rate: datagrams are lost at the receiver, since the network itself holds them back and loses none"), outcome("none", "the sender was held back")],
        },
    ]
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::cli::parse_options;

    fn explain_line(line: &str) -> Result<Explanation, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let options = parse_options(&words).map_err(|e| e.to_string())?;
        explain(&options).map_err(|e| e.to_string())
    }

    fn causes(made: &Explanation) -> Vec<&str> {
        let causes = made
            .findings
            .iter()
            .filter(|f| f.kind == FindingKind::Cause);
        causes.map(|f| f.id.as_str()).collect()
    }

    #[test]
    fn cliff__of_1728_has_three_candidates_and_sizes_that_tell_them_apart() {
        let made = explain_line("--at 1728 --transport ud --rate 3020MiB/s").unwrap();
        assert_eq!(
            causes(&made),
            ["bus-packets", "slot-overlap", "packet-rate"]
        );
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
        // Slots change every 64 B, and so at 1472 and 1984 too.
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
        assert!(
            hint.contains("--transport ud") && hint.contains("slot-overlap"),
            "{hint}"
        );
        assert_eq!(why("--at 1700"), "");
    }

    #[test]
    fn cliff__of_inline_data_is_the_descriptor() {
        let made = explain_line("--at 208 --verb write --inline 448 --adapter connectx").unwrap();
        assert_eq!(causes(&made), ["descriptor"]);
        let made = explain_line("--at 448 --verb write --inline 448").unwrap();
        assert_eq!(causes(&made), ["descriptor"]);
        assert!(causes(&explain_line("--at 300 --verb write --inline 448").unwrap()).is_empty());
        assert_eq!(
            causes(&explain_line("--at 4096").unwrap()),
            ["bus-packets", "network-packets"]
        );
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
