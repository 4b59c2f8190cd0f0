//! What each protocol costs between two ranks of a node, by size, made of the machine's constants.
//!
//! Time runs from the begin of the send until the receiver, which waits already, has all of it. Two
//! sides that work at once count once. The form of each curve follows the steps in `wire`; the
//! constants' defaults were fitted to ping-pongs with buffers that are written on each turn.

use super::constants::Constants;
use super::envelope::Curve;
use super::thresholds::Thresholds;
use crate::pieces::HALF;
use crate::worker::{EARLY_LIMIT, SHORT_LIMIT};
use fastpath_transport::Cost;

/// What one side must do beyond what the size asks for.
fn fixed(sender: f64, latency: f64, receiver: f64, ns_per_byte: f64) -> Cost {
    Cost {
        send_overhead_ns: sender,
        recv_overhead_ns: receiver,
        ns_per_byte,
        latency_ns: latency,
    }
}

/// A message that fits the slot: one line. Without the data area, half of a message's work.
pub fn short(c: &Constants) -> Curve {
    let cost = fixed(c.post_ns / 2.0, c.line_ns, c.post_ns / 2.0, 0.0);
    Curve::line(0, SHORT_LIMIT as u64, cost)
}

/// One buffer: copied in, then copied out.
pub fn eager(c: &Constants, most: u64) -> Curve {
    let cost = fixed(c.post_ns, c.line_ns, c.post_ns, 2.0 * c.transfer_byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, most, cost)
}

/// Nanoseconds for each byte of a stream in pieces of `piece` bytes, which both sides copy at once or,
/// not `pipelined`, one after the other with a line in between.
fn stream_byte_ns(c: &Constants, piece: u64, pipelined: bool) -> f64 {
    let piece = piece as f64;
    match pipelined {
        true => c.transfer_byte_ns + c.post_ns / piece,
        false => 2.0 * (c.transfer_byte_ns + (c.post_ns + c.line_ns) / piece),
    }
}

/// Several buffers without asking: the receiver copies one out while the sender copies the next one in.
/// A single part costs what `eager` does.
pub fn parts(c: &Constants, t: &Thresholds) -> Curve {
    let ns_per_byte = stream_byte_ns(c, t.part, true);
    let first = t.part as f64 * (2.0 * c.transfer_byte_ns - ns_per_byte);
    let cost = fixed(c.post_ns + first, c.line_ns, c.post_ns, ns_per_byte);
    Curve::line(t.part + 1, t.first, cost)
}

/// The announcement with the first bytes, then fragments: the answer is on its way while the first
/// bytes are copied, and must be made and handled.
pub fn fragments(c: &Constants, t: &Thresholds) -> Curve {
    let early = t.first.min(EARLY_LIMIT);
    let piece = t.part.min(early) as f64;
    let stream = stream_byte_ns(c, t.part, true);
    let begin = 2.0 * c.post_ns + c.line_ns + piece * (2.0 * c.transfer_byte_ns - stream);
    let handshake = 4.0 * c.post_ns + 3.0 * c.line_ns;
    let early_ns = (begin + early as f64 * stream).max(handshake);
    let ns_per_byte = stream_byte_ns(c, t.fragment, t.pipelined);
    let start = early_ns + 2.0 * c.step_ns - early as f64 * ns_per_byte;
    let cost = fixed(start, 0.0, 0.0, ns_per_byte);
    Curve::line(early + 1, u64::MAX, cost)
}

/// A byte that one side fetches from the other's cache takes so many times as long as one of a stream, which
/// either side carries half the way.
const LOAD_BYTE: f64 = 1.5;

/// What a copy without the ring costs a side: each call, and each byte.
#[derive(Clone, Copy)]
pub struct Copying {
    /// Once for a message.
    first_ns: f64,
    call_ns: f64,
    byte_ns: f64,
}

impl Copying {
    /// By the kernel. The first call of a message counts twice: the locks and the counters of the other
    /// process's memory lie in another cache.
    pub fn by_kernel(c: &Constants) -> Copying {
        Copying {
            first_ns: c.kernel_call_ns,
            call_ns: c.kernel_call_ns,
            byte_ns: c.transfer_byte_ns + c.kernel_byte_ns,
        }
    }

    /// By load and store.
    pub fn by_load(c: &Constants) -> Copying {
        Copying {
            first_ns: 0.0,
            call_ns: 0.0,
            byte_ns: LOAD_BYTE * c.transfer_byte_ns,
        }
    }
}

/// The receiver alone copies, as soon as it has the announcement.
pub fn receiver_copy(c: &Constants, by: Copying) -> Curve {
    let receiver = c.post_ns + c.step_ns + by.first_ns + by.call_ns;
    let cost = fixed(c.post_ns, c.line_ns, receiver, by.byte_ns);
    Curve::line(SHORT_LIMIT as u64 + 1, u64::MAX, cost)
}

/// Both sides copy pieces. The receiver begins when it has answered, the sender when it has the answer,
/// and the end of its last piece must be told.
pub fn joint_copy(c: &Constants, by: Copying, t: &Thresholds) -> Curve {
    let (least, most) = (t.piece_min, t.piece_max);
    let (sender, latency) = (c.post_ns + c.step_ns, 2.0 * c.line_ns);
    let receiver = 2.0 * c.post_ns + c.step_ns + by.first_ns;
    let cost = |more: f64, ns_per_byte| fixed(sender, latency, receiver + more, ns_per_byte);
    let half = HALF.clamp(least, most);
    let piece = |size: u64| by.call_ns + size as f64 * by.byte_ns;
    let each = piece(half) / (2 * half) as f64;
    // One piece; then a second, shorter one; two halves; three and four pieces; two pieces for either side.
    let mut curve = Curve::line(
        SHORT_LIMIT as u64 + 1,
        u64::MAX,
        cost(by.call_ns, by.byte_ns),
    )
    .then(least + 1, cost(piece(least), 0.0));
    if half > least {
        curve = curve.then(2 * least + 1, cost(by.call_ns, by.byte_ns / 2.0));
    }
    curve = curve
        .then(2 * half + 1, cost(0.0, each))
        .then(4 * half + 1, cost(2.0 * by.call_ns, by.byte_ns / 2.0));
    let calls = by.call_ns / (2.0 * most as f64);
    if most > half {
        curve = curve.then(4 * most + 1, cost(0.0, calls + by.byte_ns / 2.0));
    }
    curve
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// A curve does not jump where its pieces meet.
    fn check_steps(curve: &Curve, sizes: &[u64]) {
        for &size in sizes {
            let (before, after) = (curve.at(size).unwrap(), curve.at(size + 1).unwrap());
            let step = after / before;
            assert!((0.99..1.01).contains(&step), "{size}: {before} and {after}");
        }
    }

    #[test]
    fn joint_copy__does_not_jump() {
        let (c, t) = (Constants::default(), Thresholds::default());
        for by in [Copying::by_kernel(&c), Copying::by_load(&c)] {
            let curve = joint_copy(&c, by, &t);
            let sizes = [
                t.piece_min,
                2 * t.piece_min,
                2 * HALF,
                4 * HALF,
                4 * t.piece_max,
            ];
            check_steps(&curve, &sizes);
        }
    }

    #[test]
    fn parts__of_one_cost_what_a_buffer_does() {
        let (c, t) = (Constants::default(), Thresholds::default());
        let (parts, eager) = (parts(&c, &t), eager(&c, 1 << 20));
        let (one, two) = (eager.at(t.part).unwrap(), parts.at(t.part + 1).unwrap());
        assert!((two / one - 1.0).abs() < 0.01, "{one} and {two}");
    }

    #[test]
    fn fragments__go_on_where_the_parts_end() {
        let (c, t) = (Constants::default(), Thresholds::default());
        let last = parts(&c, &t).at(t.first).unwrap();
        let next = fragments(&c, &t).at(t.first + 1).unwrap();
        assert!(
            (next - last - 2.0 * c.step_ns).abs() < 1.0,
            "{last} and {next}"
        );
    }

    #[test]
    fn stream__that_is_not_pipelined_takes_twice_as_long() {
        let c = Constants::default();
        assert!(stream_byte_ns(&c, 8192, false) >= 2.0 * stream_byte_ns(&c, 8192, true));
    }
}
