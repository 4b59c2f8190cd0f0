//! From costs and overrides to thresholds: pure, done once.

use super::Overrides;
use super::constants::Constants;
use super::envelope::{Curve, lower};
use super::thresholds::Thresholds;
use crate::protocols::{Protocol, curves};
use crate::wire::{RTS_HEADER, SYNC_HEADER};
use crate::worker::{EAGER_LIMIT, EARLY_LIMIT, SHORT_LIMIT};

/// Smallest piece that `FASTPATH_PIPELINE_CHUNK` can ask for, in bytes.
pub const FRAGMENT_MIN: u64 = 256;
/// Largest one: a transport buffer holds it with the header of an RTS, in whole cache lines.
pub const FRAGMENT_MAX: u64 = (EAGER_LIMIT - RTS_HEADER) as u64 / 64 * 64;
/// Largest message in one buffer, with the header of a synchronous one.
pub const WHOLE_MAX: u64 = (EAGER_LIMIT - SYNC_HEADER) as u64 / 64 * 64;

/// Size of the messages for which fragments are made. Shorter ones would do with smaller fragments by the costs below,
/// but an exchange in both directions takes longer with them (docs/performance.md, *Large messages*).
const FRAGMENTS_FOR: f64 = 256.0 * 1024.0;
/// Bounds of the pieces that are chosen by cost: several of them fit the innermost cache.
const PIECES: (f64, f64) = (1024.0, 16.0 * 1024.0);
/// The copy of the smallest piece of a cooperative copy takes so many times as long as the call that does it.
const COPY_PER_CALL: f64 = 3.0;
/// Bounds of that piece.
const COOPERATIVE_PIECES: (f64, f64) = (4096.0, 256.0 * 1024.0);
/// Largest piece of a cooperative copy: neither side waits long for the other's last one.
const COOPERATIVE_PIECE_MAX: u64 = 256 * 1024;

/// Most bytes that travel without being asked for where a progress thread receives announced messages while the program
/// computes: what leaves at once is copied by the program, in the call that sends it and in the wait.
const EAGER_BESIDE: u64 = 32 * 1024;

/// Where two ranks share a processor: nanoseconds until the other one has it, and bytes that fit the ring meanwhile.
const TURN_NS: f64 = 2000.0;
const TURN_BYTES: f64 = 64.0 * 1024.0;

/// What a rounded size may cost more than the exact one.
const ROUNDING: f64 = 1.125;

/// The power of two nearest to `value` (by ratio) within `bounds`.
fn round_piece(value: f64, bounds: (f64, f64)) -> u64 {
    let exponent = value.clamp(bounds.0, bounds.1).log2().round();
    exponent.exp2() as u64
}

/// The nearest size (by ratio) of the row 2^k, 1.5 * 2^k: what was measured twice is decided alike, and
/// so near to where costs are equal it costs next to nothing.
pub fn round_size(size: u64) -> u64 {
    if size < 64 {
        return size;
    }
    let low = 1_u64 << size.ilog2();
    let row = [low, low + low / 2, low.saturating_mul(2)];
    let distance = |at: &u64| (size as f64 / *at as f64).ln().abs();
    row.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(size)
}

/// The thresholds of a machine with these constants, as far as `overrides` allow. `kernel`: whether the
/// kernel copies between processes, as far as is known.
pub fn decide(c: &Constants, overrides: &Overrides, kernel: bool) -> Thresholds {
    let mut t = Thresholds {
        pipelined: overrides.pipeline,
        piece_max: COOPERATIVE_PIECE_MAX,
        ..Thresholds::default()
    };
    t.fragment = choose_fragment(c, overrides);
    let byte_ns = c.transfer_byte_ns + c.kernel_byte_ns;
    t.piece_min = round_piece(COPY_PER_CALL * c.kernel_call_ns / byte_ns, COOPERATIVE_PIECES);
    t.first = overrides.eager_limit();
    t.max_single = match overrides.whole && overrides.chunk.is_none() && overrides.pipeline {
        true => t.first.min(EAGER_LIMIT as u64),
        false => 0,
    };
    t.eager = choose_eager(c, &t, overrides);
    // What may go eagerly does: its sender need not wait.
    let after = t.first + 1;
    const NEVER: (u64, u64) = (u64::MAX, u64::MAX);
    let from = |shared| choose_copy(c, &t, shared, after);
    let single = if kernel { from(false) } else { NEVER };
    let direct = if overrides.direct { from(true) } else { NEVER };
    t.crowded_copy = match kernel {
        true => choose_crowded_copy(c, &t),
        false => u64::MAX,
    };
    // Who learns begins in the ring: a copy without it takes the lines away from the program that writes them next,
    // which no cost tells.
    t.single_copy = match overrides.adapt {
        true => u64::MAX,
        false => single.0,
    };
    (t.direct, t.cooperative) = direct;
    t
}

fn choose_fragment(c: &Constants, overrides: &Overrides) -> u64 {
    if let Some(chunk) = overrides.chunk {
        return chunk.clamp(FRAGMENT_MIN, FRAGMENT_MAX);
    }
    if !overrides.pipeline {
        return FRAGMENT_MAX;
    }
    // A message of n bytes in parts of p takes the copy of the first part longer than its stream, and
    // each part costs a post: p * transfer + (n / p) * post is least where p^2 = n * post / transfer.
    round_piece((FRAGMENTS_FOR * c.post_ns / c.transfer_byte_ns).sqrt(), PIECES)
}

fn choose_eager(c: &Constants, t: &Thresholds, overrides: &Overrides) -> u64 {
    let most = overrides.eager_limit().min(WHOLE_MAX);
    if !overrides.pipeline {
        return most;
    }
    let curves = curves(c, t, false);
    let spans = lower(&curves[Protocol::Eager as usize..=Protocol::Fragments as usize]);
    let parts = spans.iter().rev().take_while(|span| span.best == 1).last();
    // What one part holds needs no second one.
    parts.map_or(most, |span| round_size(span.from - 1).max(t.fragment).min(most))
}

/// The size from which the receiver's copy takes less work of both sides together than two through the ring.
fn choose_crowded_copy(c: &Constants, t: &Thresholds) -> u64 {
    let fixed = 2.0 * c.step_ns + 2.0 * c.kernel_call_ns;
    let through_ring =
        c.transfer_byte_ns + 2.0 * c.post_ns / t.fragment as f64 + TURN_NS / TURN_BYTES;
    let saved = through_ring - c.kernel_byte_ns;
    match saved > 0.0 {
        true => round_size((fixed / saved).min(1e15) as u64).max(t.first + 1),
        false => u64::MAX,
    }
}

/// The size from which copies without the ring cost least, up to any size, and the one from which both
/// sides take part in them; the largest number where there is none.
fn choose_copy(c: &Constants, t: &Thresholds, shared: bool, after: u64) -> (u64, u64) {
    const COPIES: usize = Protocol::Get as usize;
    let mut curves = curves(c, t, shared);
    let curves = &mut curves[..Protocol::Put as usize];
    for curve in &mut curves[COPIES..] {
        *curve = curve.clone().within(after, u64::MAX);
    }
    let spans = lower(curves);
    let start = |first: usize| {
        let served = spans.iter().rev().take_while(|span| span.best >= first);
        let Some(span) = served.last() else {
            return u64::MAX;
        };
        let least = |curves: &[Curve], size| {
            let costs = curves.iter().filter_map(|curve| curve.at(size));
            costs.min_by(f64::total_cmp)
        };
        let rounded = round_size(span.from - 1).max(after);
        let costs = (least(&curves[..first], rounded), least(&curves[first..], rounded));
        match costs {
            (Some(a), Some(b)) if a.max(b) > ROUNDING * a.min(b) => span.from,
            _ => rounded,
        }
    };
    let from = start(COPIES);
    (from, start(Protocol::Cooperative as usize).max(from))
}

impl Overrides {
    /// Most bytes that may travel without being asked for.
    pub fn eager_limit(&self) -> u64 {
        let usual = if self.serves { EAGER_BESIDE } else { EARLY_LIMIT };
        let most = self.eager_max.unwrap_or(usual);
        most.clamp(SHORT_LIMIT as u64, EARLY_LIMIT)
    }
}
