//! Where inline data stops paying: as a property of adapter, host and bus together.
//!
//! A prediction from profiles ([`choose`]) and a measurement ([`Choice::of_samples`]) answer with the same
//! type, so that selection and tuning can take either.

use crate::descriptor::{self, PostMethod};
use crate::formulas::latency::Path;
use crate::formulas::message::Message;
use crate::link::LinkError;
use crate::profile::{Adapter, Host};
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

/// What a message of one size takes, one way, inside the descriptor and by DMA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Bytes of the message.
    pub size: u32,
    /// Inline.
    pub inline: Time,
    /// By DMA.
    pub dma: Time,
}

impl Costs {
    /// What inline gains; less than nothing: it loses.
    pub fn gain(&self) -> Time {
        self.dma - self.inline
    }
}

/// Up to which size to send inline, with the costs that decide it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Where to stop.
    pub crossover: Crossover,
    /// Both costs at the largest size to send inline; none where it never pays.
    pub last: Option<Costs>,
    /// Both costs at the next size looked at; none where all were faster inline.
    pub next: Option<Costs>,
}

impl Choice {
    /// The choice from costs in the order of sizes, calculated or measured. A difference of up to `noise`
    /// does not count as faster.
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

    /// Whether a message of `size` bytes is to go inline.
    pub fn takes(&self, size: u32) -> bool {
        self.crossover.limit().is_some_and(|limit| size <= limit)
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
    pub way: PostMethod,
    /// What inline gains at the last size; less than nothing: it loses.
    pub gain: Time,
}

/// What inline data gives on a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Descriptor and inline size granted.
    pub grant: descriptor::Grant,
    /// Where to stop.
    pub choice: Choice,
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
    path: &Path<'_>, transport: Transport, verb: Verb, wanted: u32,
) -> Result<Prediction, LinkError> {
    let grant = descriptor::grant(path.adapter.family, transport, wanted, 1)?;
    let time = |size, inline| path.one_way(&message(path, transport, verb, size, inline));
    let samples: Vec<Costs> = (1..=grant.inline)
        .map(|size| Costs { size, inline: time(size, true), dma: time(size, false) })
        .collect();
    let mut ranges: Vec<Range> = Vec::new();
    for costs in &samples {
        let (size, gain) = (costs.size, costs.gain());
        let way = path.way(transport, verb, size, true);
        match ranges.last_mut() {
            Some(range) if range.way == way => (range.to, range.gain) = (size, gain),
            _ => ranges.push(Range { from: size, to: size, way, gain }),
        }
    }
    Ok(Prediction { grant, choice: Choice::of_samples(&samples, Time::ZERO), ranges })
}

/// Up to which size a message should go inline from `host` by `adapter`, where `wanted` bytes of inline data
/// are asked for: by their profiles, with the bus and the network that the adapter usually has.
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

    /// The size comes with what decides it: there inline is faster, one byte beyond it is not.
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
