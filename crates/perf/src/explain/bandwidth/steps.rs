//! The waterfalls: receiver's bus, sender's bus, network.

use fastpath_pcie::closed::message::{self, Part};
use fastpath_pcie::closed::{DataLink, Direction, Traffic, throughput};
use fastpath_pcie::wire::Wire;
use fastpath_pcie::{Bytes, Link, Rate};

use super::super::{Waterfall, WaterfallBuilder};
use super::{BandwidthOptions, Subject, units};

const SPECIFICATION: &str = "PCI Express Base Specification";

/// From signalling, or from what somebody expected, to what the encoding leaves.
fn start(title: &str, options: Option<&BandwidthOptions>, subject: &Subject) -> WaterfallBuilder {
    let (link, unit) = (&subject.link, subject.unit);
    let generation = link.generation();
    let raw = link.raw();
    let carried = format!(
        "{} lanes * {} GT/s * {}",
        link.lanes().count(),
        generation.gt_per_s(),
        generation.encoding_name()
    );
    let expected = options.and_then(|o| o.expected);
    if let Some(expected) = expected
        && units::find_mix(expected, raw).is_some()
    {
        let figure = expected.value();
        let how = "as it was calculated, in mixed units";
        return WaterfallBuilder::start(title, unit.name(), "expected", figure, how, "given").to(
            "right units",
            raw.in_unit(unit),
            format!("{carried} = {:.0} = {:.1}", raw.gb_per_s(), raw.mib_per_s()),
            SPECIFICATION,
        );
    }
    let signalling = raw * (1.0 / generation.encoding());
    let how = format!(
        "{} lanes * {} GT/s",
        link.lanes().count(),
        generation.gt_per_s()
    );
    WaterfallBuilder::start(
        title,
        unit.name(),
        "signalling",
        signalling.in_unit(unit),
        how,
        SPECIFICATION,
    )
    .to(
        "encoding",
        raw.in_unit(unit),
        format!("{carried} = {:.1}", raw.gb_per_s()),
        SPECIFICATION,
    )
}

/// Payload a second if `traffic` is all that goes over the link for each message.
fn rate(subject: &Subject, traffic: &Traffic, data_link: DataLink) -> Rate {
    let found = throughput(&subject.link, traffic, data_link);
    Rate::from_bytes_per_s(found.per_s * subject.message.size.as_f64())
}

/// Adds headers, the other parts of a message one by one, and the data-link layer.
fn wear_down(
    mut steps: WaterfallBuilder,
    subject: &Subject,
    parts: &[Part],
    payload: &str,
) -> WaterfallBuilder {
    let unit = subject.unit;
    let main = parts.iter().find(|p| p.name == payload);
    let mut sum = main.map_or_else(Traffic::default, |p| p.traffic);
    let figure = |traffic: &Traffic, data_link| rate(subject, traffic, data_link).in_unit(unit);
    let bound = throughput(&subject.link, &sum, DataLink::Ignored).bound;
    let flow = sum.in_direction(bound);
    let each = flow.overhead / flow.packets.max(1.0);
    let how = format!(
        "{each:.0} B around each of {:.0} packets for {}",
        flow.packets, subject.message.size
    );
    steps = steps.to(
        "packet headers",
        figure(&sum, DataLink::Ignored),
        how,
        SPECIFICATION,
    );
    for part in parts.iter().filter(|p| p.name != payload) {
        sum = sum + part.traffic;
        let bytes = part.traffic.in_direction(bound).bytes();
        if bytes > 0.0 {
            let way = if bound == Direction::Up { "up" } else { "down" };
            let how = format!("{bytes:.1} B {way} per message");
            steps = steps.to(
                part.name,
                figure(&sum, DataLink::Ignored),
                how,
                subject.adapter.source,
            );
        }
    }
    let how = "4 of 1538 symbol times; what arrives the other way is answered";
    steps
        .to(
            "skips and answers",
            figure(&sum, DataLink::Directional),
            how,
            SPECIFICATION,
        )
        .state("predicted", "")
}

pub(super) fn draw_receiver(options: &BandwidthOptions, subject: &Subject) -> Waterfall {
    let title = match subject.clients {
        1 => "Receiver's bus: the adapter writes into memory".to_owned(),
        n => format!("Receiver's bus, shared by {n} clients: the adapter writes into memory"),
    };
    let parts = message::receiver(&subject.link, subject.adapter, &subject.message);
    let steps = wear_down(
        start(&title, Some(options), subject),
        subject,
        &parts,
        "payload, written",
    );
    finish(
        steps,
        subject,
        subject
            .measured
            .filter(|_| super::judge::bound_by(subject) == "receiver's bus"),
    )
}

pub(super) fn draw_sender(subject: &Subject) -> Waterfall {
    let title = "Sender's bus: the adapter reads from memory";
    let parts = message::sender(&subject.link, subject.adapter, &subject.message);
    let steps = wear_down(
        start(title, None, subject),
        subject,
        &parts,
        "payload, read",
    );
    let whole = subject
        .measured
        .filter(|_| super::judge::bound_by(subject) == "sender's bus");
    finish(steps, subject, subject.single.or(whole))
}

pub(super) fn draw_network(subject: &Subject, wire: &Wire) -> Waterfall {
    let unit = subject.unit;
    let source = "InfiniBand and Ethernet specifications";
    let title = format!("Network: {wire}");
    let message = &subject.message;
    let ceiling = wire.ceiling(message.transport, message.verb, message.size);
    let around =
        wire.message_bytes(message.transport, message.verb, message.size) - message.size.as_f64();
    let steps = WaterfallBuilder::start(
        title,
        unit.name(),
        "signalling",
        wire.signalling.in_unit(unit),
        format!("{:.1}", wire.signalling.gb_per_s()),
        source,
    )
    .to(
        "encoding",
        wire.rate.in_unit(unit),
        format!("{:.1}", wire.rate.gb_per_s()),
        source,
    )
    .to(
        "packet headers",
        ceiling.in_unit(unit),
        format!(
            "{around:.0} B around {} in {} packets",
            message.size,
            wire.packets(message.size)
        ),
        source,
    )
    .state("predicted", "");
    finish(
        steps,
        subject,
        subject
            .measured
            .filter(|_| super::judge::bound_by(subject) == "network"),
    )
}

fn finish(steps: WaterfallBuilder, subject: &Subject, measured: Option<Rate>) -> Waterfall {
    match measured {
        Some(rate) => steps
            .measured("measured", rate.in_unit(subject.unit), "")
            .build(),
        None => steps.build(),
    }
}

/// Reads of memory that answers in pieces of `completion` bytes: what they allow the sender.
pub(super) fn reads_of(subject: &Subject, completion: u64) -> Option<(Link, Rate)> {
    let link = subject.link.with_completion(completion).ok()?;
    Some((link, subject.sender(&link)))
}

/// Bytes around each packet of the maximum payload that a rate would stand for, were they all that is lost.
pub(super) fn implied_overhead(link: &Link, rate: Rate) -> f64 {
    let payload = Bytes(u64::from(link.max_payload())).as_f64();
    payload * (link.raw() / rate - 1.0)
}
