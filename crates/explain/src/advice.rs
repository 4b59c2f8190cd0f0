//! Interpretation of a device's facts: the rate of its link, the rate that it supports, and causes of a lower rate.
//!
//! Nothing is read here: facts come from `fastpath_machine::pci`.

mod causes;
mod fields;
mod links;

use fastpath_machine::pci::DevicePath;
use fastpath_machine::pci::function::{CapabilityState, LinkShape, PciFunction};
use fastpath_pcie::formulas::DataLink;
use fastpath_pcie::link::AddressWidth;
use fastpath_pcie::{Bytes, Link, LinkError, Rate, RateUnit};

use super::bus::{self, Load};
use super::findings::said;
use super::moves::{Moves, Ratio};
use super::options::LinkOptions;
use super::{Explanation, Finding, Waterfall};

/// Explains a device. Fails if a given value is impossible for a link.
pub fn explain(subject: &DevicePath, asked: &LinkOptions) -> Result<Explanation, LinkError> {
    let device = &subject.device;
    let direction = Moves::of_options(asked.direction, asked.ratio)?;
    let mut made = Explanation::new(title_of(device));
    let link = collect(subject, asked, &mut made)?;
    if let Some(link) = link {
        let narrowest = links::narrowest_above(&subject.above, &link);
        let unit = asked.measured.map_or(RateUnit::MbPerS, |m| m.unit);
        let directions = match direction {
            Some(one) => vec![one],
            None => vec![Moves::Write, Moves::Read],
        };
        for moves in &directions {
            let waterfall = draw_waterfall(*moves, subject, &link, narrowest, unit, asked);
            made.waterfalls.push(waterfall);
        }
        made.findings.push(answer(&link, narrowest, unit, &directions));
        // A software device has a simulated link.
        made.findings.extend(device.is_virtio().then(|| said!(device "played")));
        if let Some(measured) = asked.measured {
            causes::judge(subject, &link, narrowest, measured, &directions, &mut made);
        }
    } else {
        made.findings.extend(links::explain_missing(subject));
    }
    links::explain_state(subject, asked.pcie.is_some(), &mut made.findings);
    fields::explain_fields(subject, link.as_ref(), &mut made.findings);
    Ok(made)
}

fn title_of(device: &PciFunction) -> String {
    match (device.address.as_str(), device.name.as_str()) {
        ("", _) => "a device without address".to_owned(),
        (address, "") => address.to_owned(),
        (address, name) => format!("{address} {name}"),
    }
}

fn collect(
    subject: &DevicePath, asked: &LinkOptions, made: &mut Explanation,
) -> Result<Option<Link>, LinkError> {
    let device = &subject.device;
    let source = |register: &str| format!("{}: {register}", subject.source);
    let (shape, from) = match asked.pcie {
        Some(_) => (LinkShape::default(), "given".to_owned()),
        None if device.link_is != LinkShape::default() => (device.link_is, source("LnkSta")),
        None => (device.link_by_name(), "the name of the device".to_owned()),
    };
    let link = asked.pcie.or_else(|| shape.link());
    match (&link, device.shown) {
        (Some(link), _) => made.input("link", describe_link(link), from),
        (None, CapabilityState::Absent) => {
            made.input("link", "none: not a PCI Express function", subject.source);
        }
        (None, _) => made.input("link", "not shown", ""),
    }
    if device.link_can != LinkShape::default() {
        made.input("could be", device.link_can.describe(), source("LnkCap"));
    }
    let Some(link) = link else {
        return Ok(None);
    };
    let mut size = |name, given: Option<u64>, read: Option<u32>, usual| {
        let (bytes, from) = match (given, read) {
            (Some(given), _) => (given, "given".to_owned()),
            (None, Some(read)) => (u64::from(read), source("DevCtl")),
            (None, None) => (usual, "not shown: assumed".to_owned()),
        };
        made.input(name, format!("{bytes} B"), from);
        bytes
    };
    let payload = size("maximum payload", asked.mps.map(|b| b.0), device.payload_is, 256);
    let request = size("maximum read request", asked.mrrs.map(|b| b.0), device.read_request, 512);
    let (bits, from) = match (asked.address, device.dma_bits) {
        (Some(bits), _) => (bits, "given".to_owned()),
        (None, Some(bits)) if bits <= 32 => (32, source("dma_mask_bits")),
        _ => (64, "assumed: memory above 4 GiB".to_owned()),
    };
    let mut link = link.with_max_payload(payload)?.with_max_read_request(request)?;
    link = link.with_address(AddressWidth::try_from(bits)?);
    made.input("addresses", format!("{bits} bits"), from);
    if let Some(ecrc) = device.ecrc {
        link = link.with_ecrc(ecrc);
        let state = if ecrc { "sent" } else { "not sent" };
        made.input("end-to-end checksum", state, source("AERCap"));
    }
    if let Some((rate, name)) = &subject.network {
        made.input("network", format!("{rate} Gb/s of data"), name);
    }
    Ok(Some(link))
}

fn describe_link(link: &Link) -> String {
    format!("{link} ({} GT/s)", link.generation().gt_per_s())
}

/// Size of the transfers for which ceilings are calculated: large enough that effects at their ends are negligible.
const TRANSFER: Bytes = Bytes(1 << 20);

/// Largest rate that a device can move over a link in one direction. Acknowledgements of this traffic go the other way.
fn ceiling(link: &Link, moves: Moves) -> Rate {
    rate(link, moves, DataLink::Directional)
}

fn rate(link: &Link, moves: Moves, data_link: DataLink) -> Rate {
    Load::of_transfers(link, moves, TRANSFER).rate(data_link)
}

fn expected(link: &Link, narrowest: Option<(&PciFunction, Link)>, moves: Moves) -> Rate {
    let own = ceiling(link, moves);
    match narrowest {
        Some((_, above)) => own.min(ceiling(&above, moves)),
        None => own,
    }
}

fn draw_waterfall(
    moves: Moves, subject: &DevicePath, link: &Link, narrowest: Option<(&PciFunction, Link)>,
    unit: RateUnit, asked: &LinkOptions,
) -> Waterfall {
    let figure = |rate: Rate| rate.in_unit(unit);
    let could = match asked.pcie {
        Some(_) => None,
        None => subject.device.link_can.link(),
    };
    let could = could.filter(|c| c.raw() > link.raw());
    let over = moves.over_one();
    let mut made = bus::start(&moves.title(), &could.unwrap_or(*link), moves, unit);
    if could.is_some() {
        let how = format!("{}; the device supports more", bus::say_encoding(link));
        made = made.to("negotiated link", figure(link.raw() * over), how, "");
    }
    let bound = match narrowest {
        Some((port, above)) => {
            let how = format!("{} at {}", bus::say_encoding(&above), port.address);
            made = made.to("narrower link above", figure(above.raw() * over), how, "");
            above
        }
        None => *link,
    };
    made = Load::of_transfers(&bound, moves, TRANSFER).wear_down(made, unit);
    bus::finish(made, asked.measured.map(|m| m.rate), unit)
}

fn answer(
    link: &Link, narrowest: Option<(&PciFunction, Link)>, unit: RateUnit, directions: &[Moves],
) -> Finding {
    let rate = |moves| format_rate(expected(link, narrowest, moves), unit);
    let pieces = link.with_completion(64).unwrap_or(*link);
    let both = match directions {
        [both @ Moves::Both(ratio)] => {
            format!("; {} in total when it does both at once, {ratio}", rate(*both))
        }
        _ => String::new(),
    };
    said!(device "ceiling",
        write = rate(Moves::Write),
        read = rate(Moves::Read),
        both,
        payload = link.max_payload(),
        pieces = format_rate(expected(&pieces, narrowest, Moves::Read), unit),
        together = rate(Moves::Both(Ratio::EVEN))
    )
}

fn format_rate(rate: Rate, unit: RateUnit) -> String {
    let value = rate.in_unit(unit);
    let digits = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
fn predicted(waterfall: &Waterfall) -> f64 {
    let states = |s: &&super::WaterfallStep| s.kind == super::StepKind::Level;
    let level = waterfall.steps.iter().rfind(states);
    level.map_or(f64::NAN, |s| s.level)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
