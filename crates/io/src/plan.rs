//! Plans of collective accesses by aggregators (two-phase access; Thakur, Gropp and Lusk, 1999).
//!
//! Planning is pure: all ranks compute the same plan from exchanged shares, without the file. The accessed range is cut
//! into one domain for each aggregator, at multiples of a page or a stripe. An aggregator walks its domain in windows
//! of its buffer's size, one window a round. In each round, ranks send it their bytes of the window, or receive them.

use std::ops::Range;

/// Access of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankAccess {
    /// Offset of the first byte in the file.
    pub low: i64,
    /// End of the last byte in the file, exclusive.
    pub high: i64,
    /// Bytes accessed. 0 means that the rank accesses nothing.
    pub bytes: u64,
    /// Mean bytes of a piece.
    pub piece: u64,
    /// Number of the rank's host.
    pub node: u32,
}

impl RankAccess {
    /// Returns whether the access may have bytes in `window`.
    pub fn meets(&self, window: &Range<i64>) -> bool {
        self.bytes > 0 && self.low < window.end && window.start < self.high
    }
}

/// Use of an access method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// The method is used if it costs less.
    #[default]
    Automatic,
    /// The method is always used.
    Enabled,
    /// The method is never used.
    Disabled,
}

/// Parameters of a plan, equal on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Use of two-phase access.
    pub switch: Switch,
    /// Bytes of an aggregator's buffer.
    pub buffer: u64,
    /// Number of aggregators. 0 means one for each host.
    pub aggregators: u64,
    /// Alignment of domains and windows, in bytes.
    pub align: u64,
    /// Mean bytes of a piece below which two-phase access is worthwhile.
    pub worthwhile: u64,
}

/// Plan of one collective access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPlan {
    aggregators: Vec<u32>,
    /// Start of each aggregator's domain, and the end of the last domain.
    cuts: Vec<i64>,
    window: i64,
}

/// Two-phase access pays only if at least one part in `DENSITY` of the range is accessed.
const DENSITY: u64 = 8;

impl AccessPlan {
    /// Returns the plan of an access, or none if independent accesses are cheaper.
    pub fn make(shares: &[RankAccess], tuning: &Tuning) -> Option<AccessPlan> {
        let wanted = || shares.iter().filter(|share| share.bytes > 0);
        let low = wanted().map(|share| share.low).min()?;
        let high = wanted().map(|share| share.high).max()?;
        let is_planned = match tuning.switch {
            Switch::Disabled => false,
            Switch::Enabled => true,
            Switch::Automatic => pays(shares, (high - low) as u64, tuning.worthwhile),
        };
        if !is_planned || shares.len() < 2 {
            return None;
        }
        let aggregators = choose_aggregators(shares, tuning.aggregators);
        let (align, window) = fit(tuning);
        let cuts = cut(low..high, aggregators.len() as u64, align);
        Some(AccessPlan { aggregators, cuts, window })
    }

    /// Returns the aggregators, each rank once.
    pub fn aggregators(&self) -> &[u32] {
        &self.aggregators
    }

    /// Returns the index of `rank` among the aggregators.
    pub fn index_of(&self, rank: u32) -> Option<usize> {
        self.aggregators.iter().position(|other| *other == rank)
    }

    fn domain(&self, index: usize) -> Range<i64> {
        match self.cuts.get(index..index + 2) {
            Some([start, end]) => *start..*end,
            _ => 0..0,
        }
    }

    /// Start of the window in which the domain starts: a multiple of the window size, at or before that start.
    fn base(&self, index: usize) -> i64 {
        let start = self.domain(index).start;
        start - start.rem_euclid(self.window)
    }

    /// Returns the number of rounds that walk all domains.
    pub fn rounds(&self) -> u64 {
        let of = |index: usize| {
            let domain = self.domain(index);
            let bytes = match domain.is_empty() {
                true => 0,
                false => (domain.end - self.base(index)) as u64,
            };
            bytes.div_ceil(self.window as u64)
        };
        (0..self.aggregators.len()).map(of).max().unwrap_or(0)
    }

    /// Returns the rounds in which a share may meet a window, as ascending ranges that do not touch.
    pub fn busy_rounds(&self, shares: &[RankAccess]) -> Vec<Range<u64>> {
        let wanted = shares.iter().filter(|share| share.bytes > 0 && share.low < share.high);
        let wanted = join(wanted.map(|share| share.low..share.high).collect());
        let mut rounds = Vec::new();
        for index in 0..self.aggregators.len() {
            let (domain, base) = (self.domain(index), self.base(index));
            let round = |at: i64| ((at - base) / self.window) as u64;
            let first = wanted.partition_point(|range| range.end <= domain.start);
            for range in wanted[first..].iter().take_while(|range| range.start < domain.end) {
                let (start, end) = (range.start.max(domain.start), range.end.min(domain.end));
                rounds.push(round(start)..round(end - 1) + 1);
            }
        }
        join(rounds)
    }

    /// Returns the bytes of the buffer that the windows of aggregator `index` need.
    pub fn buffer_bytes(&self, index: usize) -> u64 {
        let domain = self.domain(index);
        (domain.end - domain.start).min(self.window) as u64
    }

    /// Returns the bytes of the file that aggregator `index` handles in `round`; empty after its last round.
    pub fn window(&self, index: usize, round: u64) -> Range<i64> {
        let domain = self.domain(index);
        let start = i128::from(self.base(index)) + i128::from(round) * i128::from(self.window);
        let end = start + i128::from(self.window);
        let within = |at: i128| at.clamp(i128::from(domain.start), i128::from(domain.end)) as i64;
        within(start)..within(end)
    }
}

/// Sorts ranges and merges those that touch.
fn join<T: Copy + Ord>(mut ranges: Vec<Range<T>>) -> Vec<Range<T>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<T>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Whether two-phase access costs less than independent calls. The ranges of the ranks must overlap, pieces must be
/// small, and at least one part in `DENSITY` of the range must be accessed.
fn pays(shares: &[RankAccess], range: u64, worthwhile: u64) -> bool {
    let mut wanted: Vec<&RankAccess> = shares.iter().filter(|share| share.bytes > 0).collect();
    wanted.sort_by_key(|share| share.low);
    let mut reached = i64::MIN;
    let mut is_interleaved = false;
    for share in &wanted {
        is_interleaved |= share.low < reached;
        reached = reached.max(share.high);
    }
    let bytes = wanted.iter().fold(0u64, |sum, share| sum.saturating_add(share.bytes));
    let pieces = wanted
        .iter()
        .fold(0u64, |sum, share| sum.saturating_add(share.bytes.div_ceil(share.piece.max(1))));
    is_interleaved && bytes / pieces.max(1) < worthwhile && bytes >= range / DENSITY
}

/// Chooses aggregators in turn from each host, to spread them over the hosts.
fn choose_aggregators(shares: &[RankAccess], asked: u64) -> Vec<u32> {
    let mut by_host: Vec<(u32, Vec<u32>)> = Vec::new();
    for (rank, share) in (0..).zip(shares) {
        match by_host.iter_mut().find(|(node, _)| *node == share.node) {
            Some((_, ranks)) => ranks.push(rank),
            None => by_host.push((share.node, vec![rank])),
        }
    }
    let number = match asked {
        0 => by_host.len(),
        asked => usize::try_from(asked).unwrap_or(usize::MAX).min(shares.len()),
    };
    let most = by_host.iter().map(|(_, ranks)| ranks.len()).max().unwrap_or(0);
    let in_turn = (0..most).flat_map(|turn| by_host.iter().filter_map(move |(_, r)| r.get(turn)));
    in_turn.take(number).copied().collect()
}

/// Returns alignment and window size: the buffer in whole stripes, or in pages if a stripe is larger than the buffer.
fn fit(tuning: &Tuning) -> (i64, i64) {
    const PAGE: u64 = 4096;
    let most = 1 << 40;
    let align = tuning.align.clamp(1, most);
    let buffer = tuning.buffer.clamp(1, most);
    let step = match align <= buffer {
        true => align,
        false => PAGE.min(buffer),
    };
    (align as i64, (buffer / step * step) as i64)
}

/// Cuts `range` at multiples of `align` into `domains` nearly equal parts. Parts may be empty.
fn cut(range: Range<i64>, domains: u64, align: i64) -> Vec<i64> {
    let (low, high) = (i128::from(range.start), i128::from(range.end));
    let parts = i128::from(domains.max(1));
    let align = i128::from(align);
    let place = |index: i128| match index {
        0 => low,
        index if index == parts => high,
        index => {
            let even = low + (high - low) * index / parts;
            ((even + align / 2).div_euclid(align) * align).clamp(low, high)
        }
    };
    (0..=parts).map(|index| place(index) as i64).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TUNING: Tuning = Tuning {
        switch: Switch::Automatic,
        buffer: 1 << 20,
        aggregators: 0,
        align: 4096,
        worthwhile: 4096,
    };

    fn interleaved(
        ranks: u32, piece: u64, pieces: u64, node: impl Fn(u32) -> u32,
    ) -> Vec<RankAccess> {
        let share = |rank: u32| RankAccess {
            low: i64::from(rank) * piece as i64,
            high: ((pieces - 1) * u64::from(ranks) + u64::from(rank) + 1) as i64 * piece as i64,
            bytes: piece * pieces,
            piece,
            node: node(rank),
        };
        (0..ranks).map(share).collect()
    }

    #[test]
    fn plan__is_made_where_it_pays() {
        let small = interleaved(4, 8, 1000, |_| 0);
        assert!(AccessPlan::make(&small, &TUNING).is_some());
        assert!(AccessPlan::make(&interleaved(4, 8192, 1000, |_| 0), &TUNING).is_none());
        let off = Tuning { switch: Switch::Disabled, ..TUNING };
        assert!(AccessPlan::make(&small, &off).is_none());
        let on = Tuning { switch: Switch::Enabled, ..TUNING };
        let apart: Vec<RankAccess> = (0..4)
            .map(|rank| RankAccess {
                low: rank * 8000,
                high: rank * 8000 + 8000,
                bytes: 8000,
                piece: 8,
                node: 0,
            })
            .collect();
        assert!(AccessPlan::make(&apart, &TUNING).is_none());
        assert!(AccessPlan::make(&apart, &on).is_some());
        assert!(AccessPlan::make(&apart[..1], &on).is_none());
        let sparse: Vec<RankAccess> =
            small.iter().map(|s| RankAccess { high: 1 << 40, ..*s }).collect();
        assert!(AccessPlan::make(&sparse, &TUNING).is_none());
        assert!(AccessPlan::make(&[RankAccess::default(); 4], &on).is_none());
    }

    #[test]
    fn aggregators__are_one_on_each_host_or_as_many_as_asked() {
        let shares = interleaved(6, 8, 1000, |rank| rank / 2);
        let of = |aggregators| {
            let tuning = Tuning { aggregators, ..TUNING };
            AccessPlan::make(&shares, &tuning).unwrap().aggregators().to_vec()
        };
        assert_eq!(of(0), [0, 2, 4]);
        assert_eq!(of(2), [0, 2]);
        assert_eq!(of(4), [0, 2, 4, 1]);
        assert_eq!(of(100).len(), 6);
    }

    #[test]
    fn rounds__between_shares_that_lie_far_apart_are_left_out() {
        let at = |low| RankAccess { low, high: low + 8, bytes: 8, piece: 8, node: 0 };
        let shares = [at(0), at(1 << 62), RankAccess::default(), at(8)];
        for aggregators in 1..5 {
            let tuning = Tuning { switch: Switch::Enabled, aggregators, ..TUNING };
            let plan = AccessPlan::make(&shares, &tuning).unwrap();
            let busy = plan.busy_rounds(&shares);
            assert_eq!(busy[0], 0..1);
            assert_eq!(busy.iter().map(|rounds| rounds.end - rounds.start).sum::<u64>(), 2);
            assert!(plan.rounds() > 1 << 38);
        }
    }

    proptest! {
        #[test]
        fn rounds__are_busy_where_a_share_meets_a_window(
            shares in prop::collection::vec((0i64..5000, 0i64..300, 0u64..2), 2..6),
            aggregators in 1u64..5, align in prop::sample::select(vec![1u64, 16, 4096]), buffer in 1u64..600,
        ) {
            let shares: Vec<RankAccess> = shares.into_iter().map(|(low, len, bytes)| RankAccess {
                low, high: low + len, bytes, piece: 1, node: 0,
            }).collect();
            let tuning = Tuning { switch: Switch::Enabled, aggregators, align, buffer, ..TUNING };
            let Some(plan) = AccessPlan::make(&shares, &tuning) else { return Ok(()) };
            let indices = 0..plan.aggregators().len();
            let meets = |round| indices.clone().any(|index| {
                let window = plan.window(index, round);
                !window.is_empty() && shares.iter().any(|s| s.low < s.high && s.meets(&window))
            });
            let wanted: Vec<u64> = (0..plan.rounds()).filter(|round| meets(*round)).collect();
            let busy: Vec<u64> = plan.busy_rounds(&shares).into_iter().flatten().collect();
            prop_assert_eq!(busy, wanted);
        }

        #[test]
        fn windows__cover_every_byte_once_and_are_aligned(
            low in 0i64..100_000, len in 1i64..400_000, aggregators in 1u64..7,
            align in prop::sample::select(vec![1u64, 512, 4096, 65536]), buffer in 1u64..100_000,
        ) {
            let share = |rank: i64| RankAccess {
                low: low + rank.min(len - 1), high: low + len, bytes: 10, piece: 1, node: rank as u32,
            };
            let shares: Vec<RankAccess> = (0..6).map(share).collect();
            let tuning = Tuning { switch: Switch::Enabled, aggregators, align, buffer, ..TUNING };
            let plan = AccessPlan::make(&shares, &tuning).unwrap();
            let mut windows = vec![];
            for index in 0..plan.aggregators().len() {
                prop_assert!(plan.window(index, plan.rounds()).is_empty());
                for round in 0..plan.rounds() {
                    let window = plan.window(index, round);
                    prop_assert!((window.end - window.start) as u64 <= plan.buffer_bytes(index));
                    windows.push(window);
                }
            }
            windows.retain(|window| !window.is_empty());
            windows.sort_by_key(|window| window.start);
            let mut at = low;
            for window in &windows {
                prop_assert_eq!(window.start, at);
                prop_assert!((window.end - window.start) as u64 <= buffer);
                prop_assert!(align > buffer || at == low || at % align as i64 == 0);
                at = window.end;
            }
            prop_assert_eq!(at, low + len);
        }

        #[test]
        fn plan__of_any_shares_ends(
            shares in prop::collection::vec((any::<i64>(), any::<i64>(), any::<u64>(), any::<u64>()), 0..6),
            buffer in any::<u64>(), align in any::<u64>(), aggregators in any::<u64>(),
        ) {
            let shares: Vec<RankAccess> = shares.into_iter().map(|(a, b, bytes, piece)| RankAccess {
                low: (a.min(b) & i64::MAX).min(b & i64::MAX), high: b & i64::MAX, bytes, piece, node: 0,
            }).collect();
            for switch in [Switch::Automatic, Switch::Enabled] {
                let tuning = Tuning { switch, buffer, align, aggregators, worthwhile: 4096 };
                if let Some(plan) = AccessPlan::make(&shares, &tuning) {
                    let rounds = plan.rounds();
                    let busy = plan.busy_rounds(&shares);
                    prop_assert!(busy.iter().all(|busy| busy.start < busy.end && busy.end <= rounds));
                    for index in 0..plan.aggregators().len() {
                        let (first, last) = (plan.window(index, 0), plan.window(index, rounds));
                        prop_assert!(first.start <= first.end && last.is_empty());
                    }
                }
            }
        }
    }
}
