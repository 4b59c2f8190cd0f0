//! The state of a link: what it is, what it could be, and whose fault the difference is.

use fastpath_pcie::{Generation, Lanes, Link, RateUnit};

use super::{Moves, Subject, ceiling, finding, format_rate};
use crate::explain::function::{Function, LinkShape, Port, Shown, rate_text};
use crate::explain::{Finding, FindingKind};

/// A link of a shape, where both of its parts are known and something is connected.
pub fn make(shape: LinkShape) -> Option<Link> {
    let generation = Generation::try_from(u32::from(shape.generation?)).ok()?;
    let lanes = Lanes::try_from(shape.lanes?).ok()?;
    Some(Link::new(generation, lanes))
}

/// A shape in words, as far as it is known.
pub fn say(shape: LinkShape) -> String {
    match (shape.generation, shape.lanes) {
        (Some(g), Some(lanes)) => format!("PCIe {g}.0 x{lanes} ({})", rate_text(g)),
        (Some(g), None) => format!("PCIe {g}.0 ({}), lanes unknown", rate_text(g)),
        (None, Some(lanes)) => format!("x{lanes}, speed unknown"),
        (None, None) => "unknown".to_owned(),
    }
}

/// The narrowest link of the switches above that is narrower than the device's own.
pub fn narrowest_above<'a>(above: &'a [Function], own: &Link) -> Option<(&'a Function, Link)> {
    let switches = above.iter().filter(|f| f.port.is_some_and(Port::faces_up));
    let links = switches.filter_map(|f| {
        let mut link = make(f.link_is)?;
        // A packet keeps its size on the way.
        link = link.with_max_payload(own.max_payload().into()).ok()?;
        Some((
            f,
            link.with_address(own.address()).with_ecrc(own.has_ecrc()),
        ))
    });
    let narrower = links.filter(|(_, link)| link.raw() < own.raw());
    narrower.min_by(|a, b| {
        let (a, b) = (a.1.raw().bytes_per_s(), b.1.raw().bytes_per_s());
        a.total_cmp(&b)
    })
}

/// Why there is no figure, and what would give one.
pub fn explain_missing(subject: &Subject) -> Vec<Finding> {
    let device = &subject.device;
    let what_next = "give it: --pcie 3.0x8";
    let (id, text, why) = match device.shown {
        _ if !device.answers => (
            "silent",
            "The device does not answer: each of its registers reads as ones. It fell off the bus, has no power or sleeps \
             deeper than it can be woken from.",
            "dmesg says when; a slot that is re-seated or a host that is switched off and on may bring it back",
        ),
        Shown::Absent if device.is_virtio() => (
            "no-express",
            "It is no PCI Express function: it is a virtio device, which the software of the hypervisor plays. It has no lanes, \
             and no bus limits it.",
            "processors of the host copy what it moves; the adapter behind it is explained on the host",
        ),
        Shown::Absent if device.is_host_bridge() => (
            "no-express",
            "It is no PCI Express function: it is the bridge between the processor and its buses, and has no link of its own.",
            "",
        ),
        Shown::Absent => (
            "no-express",
            "It is no PCI Express function: it has no such capability, and so no link of lanes. It is a device of the older PCI \
             or of the chip set, or the software of a hypervisor plays it.",
            "a PCI bus of 32 bits and 33 MHz carries 133 MB/s in all",
        ),
        Shown::Denied => (
            "denied",
            "The capabilities were not readable.",
            "run it as root: sudo lspci -vv",
        ),
        Shown::NameOnly => (
            "registers-missing",
            "It is a PCI Express device, but its registers are not listed: the text is cut off there, or made with -v.",
            "run it with -vv, as root",
        ),
        Shown::CutOff => (
            "cut-off",
            "The text ends before the PCI Express capability, so width, speed and payload are not in it.",
            what_next,
        ),
        Shown::Registers if device.port == Some(Port::Integrated) => (
            "integrated",
            "It is integrated in the root complex and has no link: nothing here limits it.",
            "",
        ),
        Shown::Registers if device.link_is.lanes == Some(0) => (
            "link-down",
            "Nothing is connected, or the link is down: it has no lanes.",
            "",
        ),
        Shown::Registers => (
            "link-not-shown",
            "Width and speed of the link (LnkSta) were not shown.",
            what_next,
        ),
    };
    let mut findings = vec![finding(
        FindingKind::Answer,
        id,
        text.to_owned(),
        why.to_owned(),
    )];
    let told = device.link_by_name();
    if let (Some(generation), None, true) = (told.generation, told.lanes, device.answers) {
        findings.extend(list_widths(generation));
    }
    findings
}

/// What to think of the link of a device that software plays.
pub fn explain_played(device: &Function) -> Option<Finding> {
    device.is_virtio().then(|| {
        finding(
            FindingKind::Caution,
            "played",
            "It is a virtio device, which the software of the hypervisor plays: width and speed of its link are made up, and limit \
             nothing."
                .to_owned(),
            "processors of the host copy what it moves".to_owned(),
        )
    })
}

/// What a link of a known generation carries by width, where only the name tells the generation.
fn list_widths(generation: u8) -> Option<Finding> {
    let widths = [1, 4, 8, 16].map(|lanes| {
        let shape = LinkShape {
            generation: Some(generation),
            lanes: Some(lanes),
        };
        let rate = ceiling(&make(shape)?, Moves::Write);
        Some(format!("x{lanes}: {}", format_rate(rate, RateUnit::MbPerS)))
    });
    let widths: Option<Vec<String>> = widths.into_iter().collect();
    Some(finding(
        FindingKind::Note,
        "by-width",
        format!(
            "Its name says PCIe {generation}.0. With payloads of 256 B it would write at most {}.",
            widths?.join(", ")
        ),
        "a name says what was sold, not what was trained".to_owned(),
    ))
}

/// Where the link is less than the device could be, and what stands behind it.
pub fn explain_state(subject: &Subject, is_given: bool, findings: &mut Vec<Finding>) {
    let device = &subject.device;
    if is_given {
        return;
    }
    let (can, is) = (device.link_can, device.link_is);
    let port = subject.above.first();
    if let (Some(could), Some(lanes)) = (can.lanes, is.lanes.filter(|l| *l > 0))
        && lanes < could
    {
        findings.push(fewer_lanes(could, lanes, port));
    }
    if let (Some(could), Some(generation)) = (can.generation, is.generation)
        && generation < could
        && is.lanes != Some(0)
    {
        findings.push(less_speed(device, could, generation, port));
    }
    if can.lanes.is_some() && can == is {
        let text = format!("The link is what the device can be: {}.", say(is));
        findings.push(finding(FindingKind::Note, "link-full", text, String::new()));
    }
    if !subject.siblings.is_empty() && make(is).is_some() {
        findings.push(finding(
            FindingKind::Note,
            "shared-link",
            format!(
                "The link is shared with {}: what all functions of the card move must fit through it.",
                list_some(&subject.siblings)
            ),
            String::new(),
        ));
    }
    let retrained =
        device.retrained == Some(true) || port.is_some_and(|p| p.retrained == Some(true));
    if retrained && (can != is || device.errors.corrected == Some(true)) {
        findings.push(finding(
            FindingKind::Note,
            "retrained",
            "The port has noted a change of width or speed since it came up (BWMgmt): asked for by software, or made to \
             save an unreliable link."
                .to_owned(),
            "clear it (setpci) and see whether it comes back".to_owned(),
        ));
    }
}

/// A few of many, and how many more there are.
fn list_some(all: &[String]) -> String {
    const SOME: usize = 4;
    let shown = all.iter().take(SOME).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match all.len() {
        n if n > SOME => format!("{shown} and {} more", n - SOME),
        _ => shown,
    }
}

fn fewer_lanes(could: u32, lanes: u32, port: Option<&Function>) -> Finding {
    let text = format!("The link has {lanes} of the {could} lanes that the device could use.");
    let by_port = port.and_then(|p| Some((p, p.link_can.lanes?)));
    let why = match by_port {
        Some((port, wide)) if wide <= lanes => format!(
            "the port above, {}, has no more: the slot is wired for x{wide}, or its lanes are shared with another slot",
            port.address
        ),
        Some((port, wide)) => format!(
            "the port above, {}, could be x{wide}: look at the seating of the card, a riser or cable, dirty contacts, and \
             settings of the firmware that split the slot",
            port.address
        ),
        None => "a slot that is wired for less, lanes shared with another slot, a riser or cable, the seating of the card; \
                 the port above was not shown, and would tell"
            .to_owned(),
    };
    finding(FindingKind::Caution, "fewer-lanes", text, why)
}

fn less_speed(device: &Function, could: u8, is: u8, port: Option<&Function>) -> Finding {
    let text = format!(
        "The link runs at {}, and the device could at {}.",
        rate_text(is),
        rate_text(could)
    );
    let of_port = port.and_then(|p| Some((p, p.link_can.generation?)));
    let target = device.link_target.or(port.and_then(|p| p.link_target));
    let why = match (of_port, target) {
        (Some((port, most)), _) if most <= is => {
            format!("the port above, {}, can do no more", port.address)
        }
        (_, Some(target)) if target <= is => {
            "software asks for this speed (LnkCtl2): a driver that saves power, or a setting of the firmware".to_owned()
        }
        _ => "some devices (graphics) slow their link down while idle: look again under load; else signal quality, a riser \
              or cable, or a setting of the firmware"
            .to_owned(),
    };
    finding(FindingKind::Caution, "less-speed", text, why)
}
