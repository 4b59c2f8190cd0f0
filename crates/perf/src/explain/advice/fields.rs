//! What the fields of `lspci` mean: those that matter, and those that only look as if they did.

use fastpath_pcie::Link;

use super::{Moves, Subject, ceiling, finding};
use crate::explain::function::{Aspm, Function, Shown};
use crate::explain::{Finding, FindingKind, percent};

/// Everything that the fields of a device say besides its link's width and speed.
pub fn explain_fields(subject: &Subject, link: Option<&Link>, findings: &mut Vec<Finding>) {
    let device = &subject.device;
    if let Some(link) = link {
        explain_payload(subject, link, findings);
        explain_checksum(device, link, findings);
        explain_tags(device, link, findings);
    }
    explain_errors(device, findings);
    explain_power(device, findings);
    explain_place(device, findings);
    explain_old_registers(device, findings);
    if device.shown == Shown::Registers && device.payload_is.is_none() {
        findings.push(note(
            "payload-not-shown",
            "The payload that the device may send (DevCtl MaxPayload) was not shown; DevCap says only what it could.",
            "256 B is what most hosts set, 128 B what they fall back to",
        ));
    }
    for unread in &device.unread {
        findings.push(finding(
            FindingKind::Caution,
            "not-read",
            unread.clone(),
            String::new(),
        ));
    }
}

fn note(id: &str, text: &str, why: &str) -> Finding {
    finding(FindingKind::Note, id, text.to_owned(), why.to_owned())
}

fn explain_payload(subject: &Subject, link: &Link, findings: &mut Vec<Finding>) {
    let device = &subject.device;
    let (Some(can), Some(is)) = (device.payload_can, device.payload_is) else {
        return;
    };
    if can <= is || link.max_payload() != is {
        return;
    }
    let Ok(larger) = link.with_max_payload(can.into()) else {
        return;
    };
    let gain = ceiling(&larger, Moves::Write) / ceiling(link, Moves::Write) - 1.0;
    let ports = subject
        .above
        .iter()
        .filter_map(|p| Some((p, p.payload_can?)));
    let least = ports.min_by_key(|(_, bytes)| *bytes);
    let why = match least {
        Some((port, bytes)) if bytes <= is => format!(
            "no more is possible: {} on the way takes {bytes} B (all ports of a path must agree)",
            port.address
        ),
        _ => "all ports of the path must take it; Linux sets it with the boot option pci=pcie_bus_perf, firmware by a setting"
            .to_owned(),
    };
    findings.push(finding(
        FindingKind::Note,
        "payload",
        format!(
            "Packets carry {is} B where the device could send {can} B: {} more at most.",
            percent(gain)
        ),
        why,
    ));
}

fn explain_checksum(device: &Function, link: &Link, findings: &mut Vec<Finding>) {
    if !device.ecrc.is_some_and(|e| e.generate_is) {
        return;
    }
    let without = ceiling(&link.with_ecrc(false), Moves::Write);
    let cost = 1.0 - ceiling(link, Moves::Write) / without;
    findings.push(finding(
        FindingKind::Note,
        "ecrc",
        format!(
            "Each packet carries an end-to-end checksum (ECRC) of 4 B: {} of the bandwidth.",
            percent(cost)
        ),
        String::new(),
    ));
}

/// Time of a read over the bus, nanoseconds, that the number of tags is judged by: a read of host memory takes
/// about 0.5 us on servers (pcie-bench, 2018), and more where it is remote or translated.
pub const READ_NS: f64 = 550.0;

fn explain_tags(device: &Function, link: &Link, findings: &mut Vec<Finding>) {
    let (Some(tags), reads) = (device.tags_is, ceiling(link, Moves::Read)) else {
        return;
    };
    let flight = f64::from(tags) * f64::from(link.max_read_request());
    let limit_ns = reads.time_of(flight).ns();
    if limit_ns > 2.0 * READ_NS {
        return;
    }
    let kind = if limit_ns < READ_NS {
        FindingKind::Caution
    } else {
        FindingKind::Note
    };
    findings.push(finding(
        kind,
        "tags",
        format!(
            "{tags} reads of {} B may be under way at once: at full speed they must be answered within {limit_ns:.0} ns.",
            link.max_read_request()
        ),
        format!(
            "memory answers after about {READ_NS:.0} ns, later from another node or through an IOMMU; larger read requests or \
             more tags (ExtTag) allow more{}",
            match device.tags_can {
                Some(can) if can > tags => format!(": the device could have {can}"),
                _ => String::new(),
            }
        ),
    ));
}

fn explain_errors(device: &Function, findings: &mut Vec<Finding>) {
    let errors = &device.errors;
    let count = errors.corrected_count.filter(|n| *n > 0);
    if errors.corrected == Some(true) || count.is_some() {
        let counted = count.map_or(String::new(), |n| format!(" ({n} of them)"));
        findings.push(finding(
            FindingKind::Caution,
            "corrected-errors",
            format!(
                "The link had errors that it corrected{counted}: packets were sent again."
            ),
            "a few over months do no harm; if they grow under load, they cost bandwidth and point to contacts, risers or cables"
                .to_owned(),
        ));
    }
    if errors.uncorrected == Some(true) {
        findings.push(finding(
            FindingKind::Caution,
            "uncorrected-errors",
            "The device has noted errors that could not be corrected.".to_owned(),
            "dmesg has them as AER; old ones may be from the start of the machine".to_owned(),
        ));
    }
}

fn explain_power(device: &Function, findings: &mut Vec<Finding>) {
    if let Some(aspm) = device.aspm_is.filter(|a| *a != Aspm::default()) {
        let times = [
            ("L0s", aspm.l0s, &device.wake.takes_l0s),
            ("L1", aspm.l1, &device.wake.takes_l1),
        ];
        let takes: Vec<String> = times
            .into_iter()
            .filter(|(_, on, _)| *on)
            .filter_map(|(state, _, time)| Some(format!("{state} {}", time.as_deref()?)))
            .collect();
        let why = match takes.as_slice() {
            [] => String::new(),
            takes => format!("waking takes {} (LnkCap, Exit Latency)", takes.join(", ")),
        };
        findings.push(finding(
            FindingKind::Caution,
            "aspm",
            format!(
                "An idle link may sleep ({}): the first message after a pause is late; bandwidth does not suffer.",
                aspm.name()
            ),
            why,
        ));
    }
    if let Some(state) = &device.asleep {
        findings.push(finding(
            FindingKind::Caution,
            "asleep",
            format!("The device is in power state {state}: what its link is now says little."),
            "look again while it works".to_owned(),
        ));
    }
    let wake = &device.wake;
    let accepts = [("L0s", &wake.accepts_l0s), ("L1", &wake.accepts_l1)];
    let accepts: Vec<String> = accepts
        .into_iter()
        .filter_map(|(state, time)| Some(format!("{state} {}", time.as_deref()?)))
        .collect();
    if !accepts.is_empty() {
        let text = format!(
            "`Latency {}` of DevCap is how long the device can wait for its link to wake from power saving (ASPM). It is no \
             delay of messages.",
            accepts.join(", ")
        );
        findings.push(note(
            "latency-of-devcap",
            &text,
            "PCI Express Base Specification, Device Capabilities Register",
        ));
    }
}

fn explain_place(device: &Function, findings: &mut Vec<Finding>) {
    if let Some(node) = device.numa_node {
        let text =
            format!("It is near to memory of node {node}: processes that use it run best there.");
        findings.push(note(
            "numa",
            &text,
            "reads of memory of another node take about 0.1 us longer",
        ));
    }
    if device.translated == Some(true) {
        findings.push(note(
            "iommu",
            "Its addresses are translated by an IOMMU: an address that is not in its cache costs the device another walk.",
            "about 0.3 us for a miss (pcie-bench, 2018); large pages help, and iommu=pt does without",
        ));
    }
}

/// Registers of the older PCI that PCI Express keeps for old software.
fn explain_old_registers(device: &Function, findings: &mut Vec<Finding>) {
    let is_express = matches!(device.shown, Shown::Registers | Shown::NameOnly);
    let maybe = is_express || device.shown == Shown::CutOff || device.shown == Shown::Denied;
    let on_express = if is_express { "" } else { " on PCI Express" };
    match (device.latency_timer, maybe) {
        (Some(timer), true) => {
            let text = format!(
                "`Latency: {timer}` is PCI's latency timer: how long a device could hold a bus that all shared. It has no \
                 effect{on_express}, and says nothing about time."
            );
            findings.push(note(
                "latency-timer",
                &text,
                "PCI Express Base Specification: hardwired to 0",
            ));
        }
        (Some(timer), false) if device.is_virtio() => {
            let text = format!(
                "`Latency: {timer}` is PCI's latency timer. There is no bus here that it could hold: it has no effect."
            );
            findings.push(note("latency-timer", &text, ""));
        }
        (Some(timer), false) => {
            let text = format!(
                "`Latency: {timer}` is PCI's latency timer: how many clock ticks the device may hold the bus while others wait."
            );
            findings.push(note("latency-timer", &text, ""));
        }
        (None, _) => {}
    }
    if let Some(bytes) = device.cache_line.filter(|_| maybe) {
        let text = format!(
            "`Cache Line Size: {bytes} bytes` is a register of PCI that is kept for old software. It has no effect{on_express}: \
             {bytes} does no harm, whatever the processor's lines are."
        );
        findings.push(note(
            "cache-line-size",
            &text,
            "PCI Express Base Specification: no effect on any device behavior",
        ));
    }
}
