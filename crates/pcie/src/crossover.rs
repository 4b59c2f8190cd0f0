//! Where inline data stops paying: as a property of adapter, host and bus together.
//!
//! A prediction from profiles ([`predict`]) and a measurement ([`find_crossing`]) answer with the same
//! type, so that selection and tuning can take either.

use crate::closed::latency::Path;
use crate::closed::message::Message;
use crate::descriptor::{self, Way};
use crate::link::LinkError;
use crate::units::{Bytes, Time};
use crate::wire::{Transport, Verb};

/// Up to which size to send inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossover {
    /// Inline is never faster.
    Never,
    /// Inline is faster up to this size in bytes, and no longer at the next one looked at.
    Until(u32),
    /// Inline is faster up to the largest size granted or measured, this one.
    Always(u32),
}

impl Crossover {
    /// The largest size to send inline; none where it never pays.
    pub fn limit(self) -> Option<u32> {
        match self {
            Crossover::Never => None,
            Crossover::Until(limit) | Crossover::Always(limit) => Some(limit),
        }
    }
}

/// Sizes that go the same way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// First size in bytes.
    pub from: u32,
    /// Last size in bytes.
    pub to: u32,
    /// How such messages go when they are inline.
    pub way: Way,
    /// What inline gains at the last size; less than nothing: it loses.
    pub gain: Time,
}

/// What inline data gives on a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Descriptor and inline size granted.
    pub grant: descriptor::Grant,
    /// Where to stop.
    pub crossover: Crossover,
    /// The ranges between changes of way.
    pub ranges: Vec<Range>,
}

fn message(path: &Path<'_>, transport: Transport, verb: Verb, size: u32, inline: bool) -> Message {
    Message {
        way: path.way(transport, verb, size, inline),
        ..Message::new(transport, verb, Bytes(u64::from(size)))
    }
}

/// What inline data gives where `wanted` bytes of it are asked for.
///
/// # Errors
/// No descriptor of the adapter holds that much.
pub fn predict(
    path: &Path<'_>,
    transport: Transport,
    verb: Verb,
    wanted: u32,
) -> Result<Prediction, LinkError> {
    let grant = descriptor::grant(path.adapter.family, transport, wanted, 1)?;
    let time = |size, inline| path.one_way(&message(path, transport, verb, size, inline));
    let samples: Vec<(u32, Time, Time)> = (1..=grant.inline)
        .map(|size| (size, time(size, true), time(size, false)))
        .collect();
    let mut ranges: Vec<Range> = Vec::new();
    for &(size, inline, other) in &samples {
        let (way, gain) = (path.way(transport, verb, size, true), other - inline);
        match ranges.last_mut() {
            Some(range) if range.way == way => (range.to, range.gain) = (size, gain),
            _ => ranges.push(Range {
                from: size,
                to: size,
                way,
                gain,
            }),
        }
    }
    Ok(Prediction {
        grant,
        crossover: find_crossing(&samples, Time::ZERO),
        ranges,
    })
}

/// The crossover in samples of a size, the time inline, the time by DMA, in the order of sizes. A
/// difference of up to `noise` does not count as faster.
pub fn find_crossing(samples: &[(u32, Time, Time)], noise: Time) -> Crossover {
    let pays = |&&(_, inline, other): &&(u32, Time, Time)| other - inline > noise;
    let count = samples.iter().take_while(pays).count();
    match samples.get(..count).and_then(<[_]>::last) {
        None => Crossover::Never,
        Some(&(size, ..)) if count == samples.len() => Crossover::Always(size),
        Some(&(size, ..)) => Crossover::Until(size),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::profile::{adapter, host};

    fn at(host_name: &str, adapter_name: &str, wanted: u32) -> Prediction {
        let path = Path::new(host(host_name).unwrap(), adapter(adapter_name).unwrap()).unwrap();
        predict(&path, Transport::Rc, Verb::Write, wanted).unwrap()
    }

    #[test]
    fn crossover__is_a_property_of_the_host() {
        assert_eq!(
            at("2016", "connectx5", 220).crossover,
            Crossover::Always(220)
        );
        let slow = at("uncombined", "connectx5", 220).crossover;
        assert!(matches!(slow, Crossover::Until(n) if n < 220), "{slow:?}");
    }

    #[test]
    fn crossover__is_a_property_of_the_adapter() {
        let pushes = at("uncombined", "connectx3", 400).crossover;
        let reads = at("uncombined", "infinihost3", 400).crossover;
        assert_ne!(pushes, reads);
    }

    #[test]
    fn gain__of_400_bytes_in_2009_falls_at_the_blueflame_limit() {
        let found = at("2009", "connectx", 400);
        assert_eq!((found.grant.descriptor, found.grant.inline), (512, 448));
        let ways: Vec<_> = found.ranges.iter().map(|r| (r.from, r.to, r.way)).collect();
        assert_eq!(
            ways,
            [(1, 208, Way::InlineBlueFlame), (209, 448, Way::Inline)]
        );
        assert!(found.ranges[0].gain > found.ranges[1].gain);
        assert_eq!(found.crossover, Crossover::Always(448));
    }

    #[test]
    fn crossing__needs_more_than_noise() {
        let ns = Time::from_ns;
        let samples = [
            (8, ns(1.0), ns(3.0)),
            (64, ns(2.0), ns(3.0)),
            (128, ns(4.0), ns(3.0)),
        ];
        assert_eq!(find_crossing(&samples, Time::ZERO), Crossover::Until(64));
        assert_eq!(find_crossing(&samples, ns(1.5)), Crossover::Until(8));
        assert_eq!(find_crossing(&samples, ns(5.0)), Crossover::Never);
        assert_eq!(
            find_crossing(&samples[..2], Time::ZERO),
            Crossover::Always(64)
        );
        assert_eq!(find_crossing(&[], Time::ZERO), Crossover::Never);
        assert_eq!(Crossover::Never.limit(), None);
    }
}
