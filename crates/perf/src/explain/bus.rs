//! The waterfall of a bus: from what its lanes signal to what is left for data, step by step.

use fastpath_pcie::closed::message::Part;
use fastpath_pcie::closed::{DataLink, Direction, Traffic, throughput};
use fastpath_pcie::{Bytes, Link, Rate, RateUnit};

use super::{Waterfall, WaterfallBuilder};

/// Where the constants of a bus come from.
pub const SPECIFICATION: &str = "PCI Express Base Specification";

/// What a bus is for: one operation, again and again.
pub struct Load<'a> {
    /// The bus.
    pub link: Link,
    /// Bytes of data that one operation moves.
    pub data: Bytes,
    /// What it puts on the link: its data first, then what comes with them.
    pub parts: &'a [Part],
    /// Where the sizes of what comes with the data are from.
    pub source: &'static str,
}

impl Load<'_> {
    /// Data a second if these parts are all that is on the bus.
    fn rate_of(&self, traffic: &Traffic, data_link: DataLink) -> Rate {
        let found = throughput(&self.link, traffic, data_link);
        Rate::from_bytes_per_s(found.per_s * self.data.as_f64())
    }

    /// Data a second.
    pub fn rate(&self, data_link: DataLink) -> Rate {
        let all = fastpath_pcie::closed::message::sum(self.parts);
        self.rate_of(&all, data_link)
    }

    /// Wears a figure down from the bits of the link to the data: headers, the other parts one by one, the data-link layer.
    pub fn wear_down(&self, mut steps: WaterfallBuilder, unit: RateUnit) -> WaterfallBuilder {
        let figure = |traffic: &Traffic, data_link| self.rate_of(traffic, data_link).in_unit(unit);
        let Some((data, others)) = self.parts.split_first() else {
            return steps;
        };
        let mut sum = data.traffic;
        let bound = throughput(&self.link, &sum, DataLink::Ignored).bound;
        steps = steps.to(
            "packet headers",
            figure(&sum, DataLink::Ignored),
            self.say_headers(&sum, bound),
            SPECIFICATION,
        );
        for part in others {
            sum = sum + part.traffic;
            let bytes = part.traffic.in_direction(bound).bytes();
            if bytes > 0.0 {
                let way = if bound == Direction::Up { "up" } else { "down" };
                let how = format!("{bytes:.1} B {way} per message");
                steps = steps.to(part.name, figure(&sum, DataLink::Ignored), how, self.source);
            }
        }
        let how = match self.link.generation().is_flit() {
            true => "4 of 1538 symbol times; 6 of the 242 bytes of each flit",
            false => "4 of 1538 symbol times; what arrives the other way is answered",
        };
        let left = figure(&sum, DataLink::Directional);
        steps
            .to("skips and answers", left, how, SPECIFICATION)
            .state("predicted", "")
    }

    fn say_headers(&self, traffic: &Traffic, bound: Direction) -> String {
        let flow = traffic.in_direction(bound);
        let (packets, around) = (flow.packets.max(1.0), flow.overhead / flow.packets.max(1.0));
        let each = flow.data / packets;
        match each.fract() == 0.0 {
            true => format!("{around:.0} B around each {each:.0} B of {}", self.data),
            false => format!(
                "{around:.0} B around each of {packets:.0} packets for {}",
                self.data
            ),
        }
    }
}

/// What the lanes of a link signal.
pub fn say_lanes(link: &Link) -> String {
    let generation = link.generation();
    format!(
        "{} lanes * {} GT/s",
        link.lanes().count(),
        generation.gt_per_s()
    )
}

/// The same with the encoding, after which bytes are counted.
pub fn say_encoding(link: &Link) -> String {
    format!(
        "{} * {}",
        say_lanes(link),
        link.generation().encoding_name()
    )
}

/// A waterfall that begins with what a link signals, and what the encoding leaves.
pub fn start(title: &str, link: &Link, unit: RateUnit) -> WaterfallBuilder {
    let raw = link.raw();
    let signalling = raw * (1.0 / link.generation().encoding());
    let figure = |rate: Rate| rate.in_unit(unit);
    let how = format!("{} = {:.1}", say_encoding(link), raw.gb_per_s());
    WaterfallBuilder::start(
        title,
        unit.name(),
        "signalling",
        figure(signalling),
        say_lanes(link),
        SPECIFICATION,
    )
    .to("encoding", figure(raw), how, SPECIFICATION)
}

/// The waterfall with a measured figure held against it, where there is one.
pub fn finish(steps: WaterfallBuilder, measured: Option<Rate>, unit: RateUnit) -> Waterfall {
    match measured {
        Some(rate) => steps.measured("measured", rate.in_unit(unit), "").build(),
        None => steps.build(),
    }
}
