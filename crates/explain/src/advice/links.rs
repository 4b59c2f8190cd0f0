//! State of a link: its width and speed, those that it supports, and the cause of the difference.

use fastpath_machine::pci::function::{
    CapabilityState, LinkShape, PciFunction, PortType, rate_text,
};
use fastpath_pcie::{Link, RateUnit};

use super::{DevicePath, Moves, ceiling, format_rate};
use crate::Finding;
use crate::findings::said;

/// Finds the slowest link of the switches above a device; None if none is slower than the device's own link.
pub fn narrowest_above<'a>(
    above: &'a [PciFunction], own: &Link,
) -> Option<(&'a PciFunction, Link)> {
    let switches = above.iter().filter(|f| f.port.is_some_and(PortType::faces_up));
    let links = switches.filter_map(|f| {
        let mut link = f.link_is.link()?;
        // The device's payload applies to this link too, because a packet keeps its size along the path.
        link = link.with_max_payload(own.max_payload().into()).ok()?;
        Some((f, link.with_address(own.address()).with_ecrc(own.has_ecrc())))
    });
    let narrower = links.filter(|(_, link)| link.raw() < own.raw());
    narrower.min_by(|a, b| {
        let (a, b) = (a.1.raw().bytes_per_s(), b.1.raw().bytes_per_s());
        a.total_cmp(&b)
    })
}

/// Explains why the link's figure is missing, and how to get it.
pub fn explain_missing(subject: &DevicePath) -> Vec<Finding> {
    let device = &subject.device;
    let name = match device.shown {
        _ if !device.answers => "silent",
        CapabilityState::Absent if device.is_virtio() => "no-express-virtio",
        CapabilityState::Absent if device.is_host_bridge() => "no-express-bridge",
        CapabilityState::Absent => "no-express",
        CapabilityState::Denied => "denied",
        CapabilityState::NameOnly => "registers-missing",
        CapabilityState::CutOff => "cut-off",
        CapabilityState::Registers if device.port == Some(PortType::Integrated) => "integrated",
        CapabilityState::Registers if device.link_is.lanes == Some(0) => "link-down",
        CapabilityState::Registers => "link-not-shown",
    };
    let mut findings = vec![said!(device name)];
    let told = device.link_by_name();
    if let (Some(generation), None, true) = (told.generation, told.lanes, device.answers) {
        findings.extend(list_widths(generation));
    }
    findings
}

/// Lists the rates of a known generation by width, if only the name shows the generation.
fn list_widths(generation: u8) -> Option<Finding> {
    let widths = [1, 4, 8, 16].map(|lanes| {
        let shape = LinkShape { generation: Some(generation), lanes: Some(lanes) };
        let rate = ceiling(&shape.link()?, Moves::Write);
        Some(format!("x{lanes}: {}", format_rate(rate, RateUnit::MbPerS)))
    });
    let widths = widths.into_iter().collect::<Option<Vec<String>>>()?.join(", ");
    Some(said!(device "by-width", generation, widths))
}

/// Explains a link that is slower or narrower than the device supports.
pub fn explain_state(subject: &DevicePath, is_given: bool, findings: &mut Vec<Finding>) {
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
        findings.push(said!(device "link-full", link = is.describe()));
    }
    if !subject.siblings.is_empty() && is.link().is_some() {
        findings.push(said!(device "shared-link", siblings = list_some(&subject.siblings)));
    }
    let retrained =
        device.retrained == Some(true) || port.is_some_and(|p| p.retrained == Some(true));
    if retrained && (can != is || device.errors.corrected == Some(true)) {
        findings.push(said!(device "retrained"));
    }
}

/// Lists a few items, and the number of the other items.
fn list_some(all: &[String]) -> String {
    const SOME: usize = 4;
    let shown = all[..all.len().min(SOME)].join(", ");
    match all.len() {
        n if n > SOME => format!("{shown} and {} more", n - SOME),
        _ => shown,
    }
}

fn fewer_lanes(could: u32, lanes: u32, port: Option<&PciFunction>) -> Finding {
    let by_port = port.and_then(|p| Some((&p.address, p.link_can.lanes?)));
    match by_port {
        Some((port, wide)) if wide <= lanes => {
            said!(device "fewer-lanes-slot", lanes, could, port, wide)
        }
        Some((port, wide)) => said!(device "fewer-lanes-seat", lanes, could, port, wide),
        None => said!(device "fewer-lanes", lanes, could),
    }
}

fn less_speed(device: &PciFunction, could: u8, is: u8, port: Option<&PciFunction>) -> Finding {
    let by_port = port.and_then(|p| Some((&p.address, p.link_can.generation?)));
    let target = device.link_target.or(port.and_then(|p| p.link_target));
    let (could, now) = (rate_text(could), rate_text(is));
    match (by_port, target) {
        (Some((port, most)), _) if most <= is => {
            said!(device "less-speed-port", is = now, could, port)
        }
        (_, Some(target)) if target <= is => said!(device "less-speed-asked", is = now, could),
        _ => said!(device "less-speed", is = now, could),
    }
}
