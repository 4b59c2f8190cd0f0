//! Crossover of inline data and DMA, as a property of adapter, host and bus together.
//!
//! A prediction from profiles ([`choose`]) and a measurement ([`Choice::of_samples`]) have one result type, so that
//! selection and tuning can use either.

use crate::descriptor::{self, PostMethod};
use crate::formulas::latency::Path;
use crate::formulas::message::Message;
use crate::link::LinkError;
use crate::profile::{Adapter, Host};
use crate::units::{Bytes, Time};
use crate::wire::{Transport, Verb};

/// Limit of inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossover {
    /// Inline is never faster.
    Never,
    /// Inline is faster up to this size in bytes, and not at the next examined size.
    Until(u32),
    /// Inline is faster up to this size in bytes, the largest that is granted or measured.
    Always(u32),
}

impl Crossover {
    /// Returns the largest size to send inline; None if inline is never faster.
    pub fn limit(self) -> Option<u32> {
        match self {
            Crossover::Never => None,
            Crossover::Until(limit) | Crossover::Always(limit) => Some(limit),
        }
    }
}

/// One-way times of a message of one size, inline and by DMA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Message size in bytes.
    pub size: u32,
    /// Time with the payload inline.
    pub inline: Time,
    /// Time with the payload by DMA.
    pub dma: Time,
}

impl Costs {
    /// Gain of inline; negative if it loses.
    pub fn gain(&self) -> Time {
        self.dma - self.inline
    }
}

/// Limit of inline data, with the costs that determine it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The limit.
    pub crossover: Crossover,
    /// Both costs at the largest size to send inline; None if inline is never faster.
    pub last: Option<Costs>,
    /// Both costs at the next examined size; None if all were faster inline.
    pub next: Option<Costs>,
}

impl Choice {
    /// Chooses from costs in the order of sizes, calculated or measured. A difference of up to `noise` does not count
    /// as faster.
    pub fn of_samples(samples: &[Costs], noise: Time) -> Choice {
        let pays = |costs: &&Costs| costs.gain() > noise;
        let count = samples.iter().take_while(pays).count();
        let (faster, others) = samples.split_at(count);
        let (last, next) = (faster.last().copied(), others.first().copied());
        let crossover = match (last, next) {
            (None, _) => Crossover::Never,
            (Some(last), None) => Crossover::Always(last.size),
            (Some(last), Some(_)) => Crossover::Until(last.size),
        };
        Choice { crossover, last, next }
    }

    /// Whether to send a message of `size` bytes inline.
    pub fn takes(&self, size: u32) -> bool {
        self.crossover.limit().is_some_and(|limit| size <= limit)
    }
}

/// Range of sizes with one post method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodRange {
    /// First size in bytes.
    pub from: u32,
    /// Last size in bytes.
    pub to: u32,
    /// Method of messages of these sizes if they are inline.
    pub way: PostMethod,
    /// Gain of inline at the last size; negative if it loses.
    pub gain: Time,
}

/// Predicted effect of inline data on a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Granted descriptor and inline size.
    pub grant: descriptor::Grant,
    /// Limit of inline data.
    pub choice: Choice,
    /// Ranges between changes of the method.
    pub ranges: Vec<MethodRange>,
}

fn message(path: &Path<'_>, transport: Transport, verb: Verb, size: u32, inline: bool) -> Message {
    Message {
        way: path.way(transport, verb, size, inline),
        ..Message::new(transport, verb, Bytes(u64::from(size)))
    }
}

/// Predicts the effect of inline data if `wanted` bytes are requested.
///
/// # Errors
/// No descriptor of the adapter holds that much.
pub fn predict(
    path: &Path<'_>, transport: Transport, verb: Verb, wanted: u32,
) -> Result<Prediction, LinkError> {
    let grant = descriptor::grant(path.adapter.family, transport, wanted, 1)?;
    let time = |size, inline| path.one_way(&message(path, transport, verb, size, inline));
    let samples: Vec<Costs> = (1..=grant.inline)
        .map(|size| Costs { size, inline: time(size, true), dma: time(size, false) })
        .collect();
    let mut ranges: Vec<MethodRange> = Vec::new();
    for costs in &samples {
        let (size, gain) = (costs.size, costs.gain());
        let way = path.way(transport, verb, size, true);
        match ranges.last_mut() {
            Some(range) if range.way == way => (range.to, range.gain) = (size, gain),
            _ => ranges.push(MethodRange { from: size, to: size, way, gain }),
        }
    }
    Ok(Prediction { grant, choice: Choice::of_samples(&samples, Time::ZERO), ranges })
}

/// Chooses the limit of inline data that `adapter` sends from `host` if `wanted` bytes are requested. Times are those
/// of the two profiles; bus and network are the adapter's usual ones.
///
/// # Errors
/// No descriptor of the adapter holds that much.
pub fn choose(
    host: &Host, adapter: &Adapter, transport: Transport, verb: Verb, wanted: u32,
) -> Result<Choice, LinkError> {
    let path = Path::new(host, adapter)?;
    Ok(predict(&path, transport, verb, wanted)?.choice)
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
        assert_eq!(at("2016", "connectx5", 220).choice.crossover, Crossover::Always(220));
        let slow = at("uncombined", "connectx5", 220).choice.crossover;
        assert!(matches!(slow, Crossover::Until(n) if n < 220), "{slow:?}");
    }

    #[test]
    fn crossover__is_a_property_of_the_adapter() {
        let pushes = at("uncombined", "connectx3", 400).choice.crossover;
        let reads = at("uncombined", "infinihost3", 400).choice.crossover;
        assert_ne!(pushes, reads);
    }

    #[test]
    fn gain__of_400_bytes_in_2009_falls_at_the_blueflame_limit() {
        let found = at("2009", "connectx", 400);
        assert_eq!((found.grant.descriptor, found.grant.inline), (512, 448));
        let ways: Vec<_> = found.ranges.iter().map(|r| (r.from, r.to, r.way)).collect();
        assert_eq!(ways, [(1, 208, PostMethod::InlineBlueFlame), (209, 448, PostMethod::Inline)]);
        assert!(found.ranges[0].gain > found.ranges[1].gain);
        assert_eq!(found.choice.crossover, Crossover::Always(448));
    }

    /// The costs on both sides of the limit: inline is faster at the limit, and is not faster one byte above it.
    #[test]
    fn choice__has_the_costs_on_both_sides() {
        let (host, adapter) = (host("uncombined").unwrap(), adapter("connectx5").unwrap());
        let choice = choose(host, adapter, Transport::Rc, Verb::Write, 220).unwrap();
        let (last, next) = (choice.last.unwrap(), choice.next.unwrap());
        assert_eq!(choice.crossover, Crossover::Until(last.size));
        assert_eq!(next.size, last.size + 1);
        assert!(last.inline < last.dma && next.inline >= next.dma, "{choice:?}");
        assert!(choice.takes(last.size) && !choice.takes(next.size));
        let path = Path::new(host, adapter).unwrap();
        let time =
            |inline| path.one_way(&message(&path, Transport::Rc, Verb::Write, last.size, inline));
        assert_eq!((last.inline, last.dma), (time(true), time(false)));
        let all =
            choose(crate::profile::host("2016").unwrap(), adapter, Transport::Rc, Verb::Write, 220);
        assert_eq!(all.unwrap().next, None);
        assert!(choose(host, adapter, Transport::Rc, Verb::Write, 5000).is_err());
    }

    #[test]
    fn samples__count_beyond_the_noise_alone() {
        let costs = |size, inline, dma| Costs {
            size,
            inline: Time::from_ns(inline),
            dma: Time::from_ns(dma),
        };
        let samples = [costs(8, 1.0, 3.0), costs(64, 2.0, 3.0), costs(128, 4.0, 3.0)];
        let choice = |samples: &[Costs], noise| Choice::of_samples(samples, Time::from_ns(noise));
        for (noise, crossover) in
            [(0.0, Crossover::Until(64)), (1.5, Crossover::Until(8)), (5.0, Crossover::Never)]
        {
            assert_eq!(choice(&samples, noise).crossover, crossover, "{noise}");
        }
        let found = choice(&samples, 1.5);
        assert_eq!((found.last, found.next), (Some(samples[0]), Some(samples[1])));
        assert_eq!(choice(&samples[..2], 0.0).crossover, Crossover::Always(64));
        let none = choice(&[], 0.0);
        assert_eq!((none.crossover, none.last, none.next), (Crossover::Never, None, None));
        assert!(!none.takes(0));
        assert_eq!(Crossover::Never.limit(), None);
    }
}
