//! Meaning of the fields of `lspci`: those that matter, and those that only seem to matter.

use fastpath_machine::pci::function::{Aspm, CapabilityState, PciFunction};
use fastpath_pcie::Link;

use super::{DevicePath, Moves, ceiling};
use crate::findings::said;
use crate::{Finding, FindingKind, percent};

/// Explains the fields of a device other than its link's width and speed.
pub fn explain_fields(subject: &DevicePath, link: Option<&Link>, findings: &mut Vec<Finding>) {
    let device = &subject.device;
    if let Some(link) = link {
        findings.extend(explain_payload(subject, link));
        findings.extend(explain_checksum(device, link));
        findings.extend(explain_tags(device, link));
    }
    explain_errors(device, findings);
    explain_power(device, findings);
    if let Some(node) = device.numa_node {
        findings.push(said!(device "numa", node));
    }
    if device.translated == Some(true) {
        findings.push(said!(device "iommu"));
    }
    explain_old_registers(device, findings);
    if device.shown == CapabilityState::Registers && device.payload_is.is_none() {
        findings.push(said!(device "payload-not-shown"));
    }
    findings.extend(device.unread.iter().map(|what| said!(device "not-read", what)));
}

fn explain_payload(subject: &DevicePath, link: &Link) -> Option<Finding> {
    let device = &subject.device;
    let (can, is) = (device.payload_can?, device.payload_is?);
    if can <= is || link.max_payload() != is {
        return None;
    }
    let larger = link.with_max_payload(can.into()).ok()?;
    let gain = percent(ceiling(&larger, Moves::Write) / ceiling(link, Moves::Write) - 1.0);
    let ports = subject.above.iter().filter_map(|p| Some((p, p.payload_can?)));
    Some(match ports.min_by_key(|(_, bytes)| *bytes) {
        Some((port, bytes)) if bytes <= is => {
            said!(device "payload-port", is, can, gain, bytes, port = port.address)
        }
        _ => said!(device "payload", is, can, gain),
    })
}

fn explain_checksum(device: &PciFunction, link: &Link) -> Option<Finding> {
    device.ecrc.filter(|is_sent| *is_sent)?;
    let without = ceiling(&link.with_ecrc(false), Moves::Write);
    Some(said!(device "ecrc", cost = percent(1.0 - ceiling(link, Moves::Write) / without)))
}

/// Time of a read over the bus, in nanoseconds, by which the number of tags is judged. A read of host memory takes
/// about 0.5 us on servers (pcie-bench, 2018), and more if it is remote or translated.
pub const READ_NS: f64 = 550.0;

fn explain_tags(device: &PciFunction, link: &Link) -> Option<Finding> {
    let (tags, bytes) = (device.tags_is?, link.max_read_request());
    let flight = f64::from(tags) * f64::from(bytes);
    let limit_ns = ceiling(link, Moves::Read).time_of(flight).ns();
    let could = device.tags_can.filter(|can| *can > tags);
    let could = could.map_or(String::new(), |can| format!(": the device supports {can} tags"));
    let (limit, read) = (format!("{limit_ns:.0}"), READ_NS);
    let found = said!(device "tags", tags, bytes, limit, read, could);
    match limit_ns {
        ns if ns < READ_NS => Some(found.of_kind(FindingKind::Caution)),
        ns => (ns <= 2.0 * READ_NS).then_some(found),
    }
}

fn explain_errors(device: &PciFunction, findings: &mut Vec<Finding>) {
    let errors = &device.errors;
    let count = errors.corrected_count.filter(|n| *n > 0);
    if errors.corrected == Some(true) || count.is_some() {
        let counted = count.map_or(String::new(), |n| format!(" ({n} of them)"));
        findings.push(said!(device "corrected-errors", counted));
    }
    if errors.uncorrected == Some(true) {
        findings.push(said!(device "uncorrected-errors"));
    }
}

/// Lists power-saving states with their times, as far as known.
fn list_times<const N: usize>(times: [(&str, bool, &Option<String>); N]) -> String {
    let known = times.into_iter().filter(|(_, is_on, _)| *is_on);
    let known = known.filter_map(|(state, _, time)| Some(format!("{state} {}", time.as_deref()?)));
    known.collect::<Vec<String>>().join(", ")
}

fn explain_power(device: &PciFunction, findings: &mut Vec<Finding>) {
    let wake = &device.wake;
    if let Some(aspm) = device.aspm_is.filter(|a| *a != Aspm::default()) {
        let takes =
            list_times([("L0s", aspm.l0s, &wake.takes_l0s), ("L1", aspm.l1, &wake.takes_l1)]);
        let takes = match takes.as_str() {
            "" => takes,
            takes => format!(
                "time to wake the link from each sleep state: {takes} (LnkCap, Exit Latency)"
            ),
        };
        findings.push(said!(device "aspm", states = aspm.name(), takes));
    }
    if let Some(state) = &device.asleep {
        findings.push(said!(device "asleep", state));
    }
    let accepts = list_times([("L0s", true, &wake.accepts_l0s), ("L1", true, &wake.accepts_l1)]);
    if !accepts.is_empty() {
        findings.push(said!(device "latency-of-devcap", accepts));
    }
}

/// Explains registers of conventional PCI that PCI Express keeps for old software.
fn explain_old_registers(device: &PciFunction, findings: &mut Vec<Finding>) {
    let is_express = matches!(device.shown, CapabilityState::Registers | CapabilityState::NameOnly);
    let maybe =
        is_express || matches!(device.shown, CapabilityState::CutOff | CapabilityState::Denied);
    let place = if is_express { "" } else { " on PCI Express" };
    if let Some(timer) = device.latency_timer {
        findings.push(match maybe {
            true => said!(device "latency-timer", timer, place),
            false if device.is_virtio() => said!(device "latency-timer-virtio", timer),
            false => said!(device "latency-timer-pci", timer),
        });
    }
    if let Some(bytes) = device.cache_line.filter(|_| maybe) {
        findings.push(said!(device "cache-line-size", bytes, place));
    }
}
