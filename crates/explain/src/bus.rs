//! Waterfall of a bus: from the signalling rate of its lanes to the data rate, step by step.

use fastpath_pcie::formulas::message::TrafficPart;
use fastpath_pcie::formulas::{DataLink, Direction, Flow, Traffic, throughput};
use fastpath_pcie::{Bytes, Link, Rate, RateUnit};

use super::Waterfall;
use super::moves::Moves;

/// Source of the constants of a bus.
pub const SPECIFICATION: &str = "PCI Express Base Specification";

/// Load on a bus: one operation, repeated.
pub struct Load {
    pub link: Link,
    /// Data that one operation moves, in bytes.
    pub data: Bytes,
    /// Traffic of one operation on the link: its data first, then the overhead.
    pub parts: Vec<TrafficPart>,
    /// Number of parts that are data.
    pub of_data: usize,
    /// Source of the overhead's sizes.
    pub source: &'static str,
}

impl Load {
    /// Load of transfers of `size` bytes, without overhead.
    pub fn of_transfers(link: &Link, moves: Moves, size: Bytes) -> Load {
        let parts = moves.parts(link, size);
        Load { link: *link, data: moves.data(size), of_data: parts.len(), parts, source: "" }
    }

    /// Data rate if `traffic` is everything on the bus.
    fn rate_of(&self, traffic: &Traffic, data_link: DataLink) -> Rate {
        let found = throughput(&self.link, traffic, data_link);
        Rate::from_bytes_per_s(found.per_s * self.data.as_f64())
    }

    pub fn rate(&self, data_link: DataLink) -> Rate {
        let all = fastpath_pcie::formulas::message::sum(&self.parts);
        self.rate_of(&all, data_link)
    }

    /// Adds the steps from the bits of the link to the data: headers, the other parts one by one, the data-link layer.
    pub fn wear_down(&self, mut steps: Waterfall, unit: RateUnit) -> Waterfall {
        let figure = |traffic: &Traffic, data_link| self.rate_of(traffic, data_link).in_unit(unit);
        let (data, others) = self.parts.split_at(self.of_data.min(self.parts.len()));
        let mut sum = fastpath_pcie::formulas::message::sum(data);
        let bound = throughput(&self.link, &sum, DataLink::Ignored).bound;
        steps = steps.to(
            "packet headers",
            figure(&sum, DataLink::Ignored),
            self.say_headers(data, bound),
            SPECIFICATION,
        );
        for part in others {
            sum = sum + part.traffic;
            let bytes = part.traffic.in_direction(bound).bytes();
            if bytes > 0.0 {
                let way = if bound == Direction::Up { "up" } else { "down" };
                let how = format!("{bytes:.1} B {way} per {}", self.data);
                steps = steps.to(part.name, figure(&sum, DataLink::Ignored), how, self.source);
            }
        }
        let how = match self.link.generation().is_flit() {
            true => {
                "SKP sets take 4 of 1538 symbol times; DLLPs take 6 of the 242 bytes of each flit"
            }
            false => {
                "SKP sets take 4 of 1538 symbol times; DLLPs acknowledge the data of the other side"
            }
        };
        let left = figure(&sum, DataLink::Directional);
        steps.to("SKP sets and DLLPs", left, how, SPECIFICATION).state()
    }

    fn say_headers(&self, data: &[TrafficPart], bound: Direction) -> String {
        let flows = data.iter().map(|part| part.traffic.in_direction(bound));
        let said: Vec<String> = flows.filter(|f| f.packets > 0.0).map(say_headers).collect();
        format!("{} for {}", said.join(", "), self.data)
    }
}

/// Describes the bytes around the data, or the bytes of requests, which carry no data.
fn say_headers(flow: &Flow) -> String {
    let (packets, around) = (flow.packets, flow.overhead / flow.packets);
    let each = flow.data / packets;
    match each.fract() == 0.0 {
        _ if flow.data == 0.0 => format!("{around:.0} B for each of {packets:.0} requests"),
        true => format!("{around:.0} B around each {each:.0} B"),
        false => format!("{around:.0} B around each of {packets:.0} packets"),
    }
}

pub fn say_lanes(link: &Link) -> String {
    let generation = link.generation();
    format!("{} lanes * {} GT/s", link.lanes().count(), generation.gt_per_s())
}

pub fn say_encoding(link: &Link) -> String {
    format!("{} * {}", say_lanes(link), link.generation().encoding_name())
}

/// Starts a waterfall with the signalling rate and the encoding.
pub fn start(title: &str, link: &Link, moves: Moves, unit: RateUnit) -> Waterfall {
    let over = moves.over_one();
    let raw = link.raw();
    let signalling = raw * (over / link.generation().encoding());
    let figure = |rate: Rate| rate.in_unit(unit);
    let times = match moves {
        Moves::Both(_) => format!(" * {} for both ways", (over * 1e3).round() / 1e3),
        _ => String::new(),
    };
    let how = format!("{} = {:.1}{times}", say_encoding(link), raw.gb_per_s());
    let lanes = format!("{}{times}", say_lanes(link));
    Waterfall::start(title, unit.name(), "signalling", figure(signalling), lanes, SPECIFICATION).to(
        "encoding",
        figure(raw * over),
        how,
        SPECIFICATION,
    )
}

/// Ends a waterfall, with the measured figure if there is one.
pub fn finish(steps: Waterfall, measured: Option<Rate>, unit: RateUnit) -> Waterfall {
    steps.finish(measured.map(|rate| rate.in_unit(unit)))
}
