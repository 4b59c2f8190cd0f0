//! The state of a link: what it is, what it could be, and whose fault the difference is.

use fastpath_machine::pci::function::{Function, LinkShape, Port, Shown, rate_text};
use fastpath_pcie::{Link, RateUnit};

use super::{Moves, Subject, ceiling, format_rate};
use crate::Finding;
use crate::findings::said;

/// The narrowest link of the switches above that is narrower than the device's own.
pub fn narrowest_above<'a>(above: &'a [Function], own: &Link) -> Option<(&'a Function, Link)> {
    let switches = above.iter().filter(|f| f.port.is_some_and(Port::faces_up));
    let links = switches.filter_map(|f| {
        let mut link = f.link_is.link()?;
        // A packet keeps its size on the way.
        link = link.with_max_payload(own.max_payload().into()).ok()?;
        Some((f, link.with_address(own.address()).with_ecrc(own.has_ecrc())))
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
    let name = match device.shown {
        _ if !device.answers => "silent",
        Shown::Absent if device.is_virtio() => "no-express-virtio",
        Shown::Absent if device.is_host_bridge() => "no-express-bridge",
        Shown::Absent => "no-express",
        Shown::Denied => "denied",
        Shown::NameOnly => "registers-missing",
        Shown::CutOff => "cut-off",
        Shown::Registers if device.port == Some(Port::Integrated) => "integrated",
        Shown::Registers if device.link_is.lanes == Some(0) => "link-down",
        Shown::Registers => "link-not-shown",
    };
    let mut findings = vec![said!(device name)];
    let told = device.link_by_name();
    if let (Some(generation), None, true) = (told.generation, told.lanes, device.answers) {
        findings.extend(list_widths(generation));
    }
    findings
}

/// What a link of a known generation carries by width, if only the name shows the generation.
fn list_widths(generation: u8) -> Option<Finding> {
    let widths = [1, 4, 8, 16].map(|lanes| {
        let shape = LinkShape { generation: Some(generation), lanes: Some(lanes) };
        let rate = ceiling(&shape.link()?, Moves::Write);
        Some(format!("x{lanes}: {}", format_rate(rate, RateUnit::MbPerS)))
    });
    let widths = widths.into_iter().collect::<Option<Vec<String>>>()?.join(", ");
    Some(said!(device "by-width", generation, widths))
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

/// A few of many, and how many more there are.
fn list_some(all: &[String]) -> String {
    const SOME: usize = 4;
    let shown = all[..all.len().min(SOME)].join(", ");
    match all.len() {
        n if n > SOME => format!("{shown} and {} more", n - SOME),
        _ => shown,
    }
}

fn fewer_lanes(could: u32, lanes: u32, port: Option<&Function>) -> Finding {
    let by_port = port.and_then(|p| Some((&p.address, p.link_can.lanes?)));
    match by_port {
        Some((port, wide)) if wide <= lanes => {
            said!(device "fewer-lanes-slot", lanes, could, port, wide)
        }
        Some((port, wide)) => said!(device "fewer-lanes-seat", lanes, could, port, wide),
        None => said!(device "fewer-lanes", lanes, could),
    }
}

fn less_speed(device: &Function, could: u8, is: u8, port: Option<&Function>) -> Finding {
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
