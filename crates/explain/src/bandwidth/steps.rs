//! Waterfalls of the receiver's bus, the sender's bus and the network.

use fastpath_pcie::wire::Wire;
use fastpath_pcie::{Rate, StatedRate};

use super::super::Waterfall;
use super::super::bus;
use super::super::moves::Moves;
use super::judge::{BOTH_WAYS, bound_by};
use super::{BandwidthOptions, BandwidthSubject, units};

/// First steps: from the signalling rate, or the expected figure, to the rate after encoding.
fn start(
    title: &str, expected: Option<StatedRate>, subject: &BandwidthSubject, moves: Moves,
) -> Waterfall {
    let (link, unit) = (&subject.link, subject.unit);
    let raw = link.raw() * moves.over_one();
    let mixed = expected.filter(|stated| units::find_mix(*stated, raw).is_some());
    let Some(expected) = mixed else {
        return bus::start(title, link, moves, unit);
    };
    let carried = bus::say_encoding(link);
    Waterfall::start(
        title,
        unit.name(),
        "expected",
        expected.value(),
        "as it was calculated, in mixed units",
        "given",
    )
    .to(
        "right units",
        raw.in_unit(unit),
        format!("{carried} = {:.0} = {:.1}", raw.gb_per_s(), raw.mib_per_s()),
        bus::SPECIFICATION,
    )
}

/// Draws a bus, with the measured figure if the bus is the limit.
fn draw_bus(
    title: &str, expected: Option<StatedRate>, subject: &BandwidthSubject,
    (moves, stage): (Moves, &str), single: Option<Rate>,
) -> Waterfall {
    let load = subject.load(&subject.link, moves);
    let steps = load.wear_down(start(title, expected, subject, moves), subject.unit);
    let is_bound = bound_by(subject) == stage;
    let measured = single.or(subject.measured.filter(|_| is_bound));
    bus::finish(steps, measured, subject.unit)
}

pub(super) fn draw_receiver(options: &BandwidthOptions, subject: &BandwidthSubject) -> Waterfall {
    let title = match subject.clients {
        1 => "Receiver's bus: the adapter writes into memory".to_owned(),
        n => format!("Receiver's bus, shared by {n} clients: the adapter writes into memory"),
    };
    let what = (Moves::Write, "receiver's bus");
    draw_bus(&title, options.expected, subject, what, None)
}

pub(super) fn draw_sender(subject: &BandwidthSubject) -> Waterfall {
    let title = "Sender's bus: the adapter reads from memory";
    draw_bus(title, None, subject, (Moves::Read, "sender's bus"), subject.single)
}

pub(super) fn draw_both(
    options: &BandwidthOptions, subject: &BandwidthSubject, both: Moves,
) -> Waterfall {
    let title = "Bus, both ways: the adapter writes what arrives and reads what leaves";
    draw_bus(title, options.expected, subject, (both, BOTH_WAYS), None)
}

pub(super) fn draw_network(subject: &BandwidthSubject, wire: &Wire) -> Waterfall {
    let unit = subject.unit;
    let source = "InfiniBand and Ethernet specifications";
    let both = if matches!(subject.moves, Some(Moves::Both(_))) { ", both ways" } else { "" };
    let title = format!("Network: {wire}{both}");
    let message = &subject.message;
    let over = subject.moves.map_or(1.0, Moves::over_one);
    let ceiling = wire.ceiling(message.transport, message.verb, message.size) * over;
    let around =
        wire.message_bytes(message.transport, message.verb, message.size) - message.size.as_f64();
    let steps = Waterfall::start(
        title,
        unit.name(),
        "signalling",
        (wire.signalling * over).in_unit(unit),
        format!("{:.1}", wire.signalling.gb_per_s()),
        source,
    )
    .to(
        "encoding",
        (wire.rate * over).in_unit(unit),
        format!("{:.1}", wire.rate.gb_per_s()),
        source,
    )
    .to(
        "packet headers",
        ceiling.in_unit(unit),
        format!(
            "{around:.0} B of headers around {} in {} packets",
            message.size,
            wire.packets(message.size)
        ),
        source,
    )
    .state();
    let is_bound = bound_by(subject) == "network";
    bus::finish(steps, subject.measured.filter(|_| is_bound), unit)
}
