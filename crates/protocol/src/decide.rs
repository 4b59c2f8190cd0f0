//! Thresholds, computed once from costs and overrides. Pure.

use crate::protocols::{Protocol, curves};
use crate::selection::envelope::{Curve, lower};
use crate::selection::thresholds::{FRAGMENT_MAX, FRAGMENT_MIN, WHOLE_MAX};
use crate::selection::{Constants, Overrides, Selection, Thresholds};
use crate::wire::{EAGER_LIMIT, EARLY_LIMIT, SHORT_LIMIT};

/// Message size, in bytes, for which the fragment size is optimized. By the costs below, smaller fragments would suit
/// shorter messages better, but they make exchanges in both directions slower (docs/performance.md, *Large messages*).
const FRAGMENTS_FOR: f64 = 256.0 * 1024.0;
/// Bounds of the fragment size, in bytes. Several fragments of the largest size fit the innermost cache.
const PIECES: (f64, f64) = (1024.0, 16.0 * 1024.0);
/// Copying the smallest piece of a cooperative copy takes this multiple of the time of its system call.
const COPY_PER_CALL: f64 = 3.0;
/// Bounds of the smallest piece of a cooperative copy, in bytes.
const COOPERATIVE_PIECES: (f64, f64) = (4096.0, 256.0 * 1024.0);
/// Largest piece of a cooperative copy, in bytes, so that neither side waits long for the other's last piece.
const COOPERATIVE_PIECE_MAX: u64 = 256 * 1024;

/// Maximum number of eager bytes that a rank with a progress thread sends of a message. The thread receives announced
/// messages while the program computes. Eager bytes take the program's time, in the send call and in the wait.
const EAGER_BESIDE: u64 = 32 * 1024;

/// Nanoseconds that a rank waits until the other rank of its processor has run.
const TURN_NS: f64 = 2000.0;
/// Number of bytes sent through the ring for each wait of [`TURN_NS`].
const TURN_BYTES: f64 = 64.0 * 1024.0;

/// Largest ratio of the cost of a rounded size to the cost of the exact size.
const ROUNDING: f64 = 1.125;

fn round_piece(value: f64, bounds: (f64, f64)) -> u64 {
    let exponent = value.clamp(bounds.0, bounds.1).log2().round();
    exponent.exp2() as u64
}

/// Returns the nearest size (by ratio) of the series 2^k, 1.5 * 2^k. Repeated measurements thus lead to equal
/// decisions. Costs near the optimum differ little, so rounding costs almost nothing.
pub fn round_size(size: u64) -> u64 {
    if size < 64 {
        return size;
    }
    let low = 1_u64 << size.ilog2();
    let row = [low, low + low / 2, low.saturating_mul(2)];
    let distance = |at: &u64| (size as f64 / *at as f64).ln().abs();
    row.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(size)
}

/// Returns the thresholds of a selection.
pub fn thresholds(selection: &Selection) -> Thresholds {
    decide(&selection.constants, &selection.overrides, selection.kernel.is_ok())
}

/// Computes the thresholds from costs and overrides. `kernel`: whether the kernel is known to copy between processes.
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
    // A message that may be eager is always sent eagerly, because its sender then need not wait.
    let after = t.first + 1;
    const NEVER: (u64, u64) = (u64::MAX, u64::MAX);
    let from = |shared| choose_copy(c, &t, shared, after);
    let single = if kernel { from(false) } else { NEVER };
    let direct = if overrides.direct { from(true) } else { NEVER };
    t.crowded_copy = match kernel {
        true => choose_crowded_copy(c, &t),
        false => u64::MAX,
    };
    // A rank that learns starts with the ring. A copy without the ring takes cache lines away from the program, whose
    // next writes to these lines are slower. No cost of the model includes this slowdown.
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
    // For n bytes in parts of p, the copy of the first part and the posts delay the message. The time p * transfer + (n
    // / p) * post is least if p^2 = n * post / transfer.
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
    parts.map_or(most, |span| round_size(span.from - 1).max(t.fragment).min(most))
}

/// Returns the size from which a copy by the receiver is less work, for both sides together, than two ring copies.
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

/// Returns two sizes: the size from which a copy without the ring costs least, and the size from which both sides copy.
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
    /// Returns the largest number of eager bytes of a message.
    pub fn eager_limit(&self) -> u64 {
        let usual = if self.serves { EAGER_BESIDE } else { EARLY_LIMIT };
        let most = self.eager_max.unwrap_or(usual);
        most.clamp(SHORT_LIMIT as u64, EARLY_LIMIT)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
