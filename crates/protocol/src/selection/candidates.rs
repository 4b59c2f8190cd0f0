//! What the costs of protocols are made of, between two ranks of a node; each protocol's own is in its file.
//!
//! Time runs from the begin of the send until the receiver, which waits already, has all of it. Two
//! sides that work at once count once. The form of each curve follows the steps of its protocol; the
//! constants' defaults were fitted to ping-pongs with buffers that are written on each turn.

use super::constants::Constants;
use fastpath_transport::Cost;

/// What one side must do beyond what the size asks for.
pub(crate) fn fixed(sender: f64, latency: f64, receiver: f64, ns_per_byte: f64) -> Cost {
    Cost { send_overhead_ns: sender, recv_overhead_ns: receiver, ns_per_byte, latency_ns: latency }
}

/// Nanoseconds for each byte of a stream in pieces of `piece` bytes, which both sides copy at once or,
/// not `pipelined`, one after the other with a line in between.
pub(crate) fn stream_byte_ns(c: &Constants, piece: u64, pipelined: bool) -> f64 {
    let piece = piece as f64;
    match pipelined {
        true => c.transfer_byte_ns + c.post_ns / piece,
        false => 2.0 * (c.transfer_byte_ns + (c.post_ns + c.line_ns) / piece),
    }
}

/// A byte that one side fetches from the other's cache takes so many times as long as one of a stream, which
/// either side carries half the way.
const LOAD_BYTE: f64 = 1.5;

/// What a copy without the ring costs a side: each call, once more for a message, and each byte.
#[derive(Clone, Copy)]
pub struct Copying {
    pub(crate) call_ns: f64,
    pub(crate) byte_ns: f64,
}

impl Copying {
    /// Of memory that both sides reach by load and store, or by the kernel. Once more: its first call
    /// meets locks and counters of the other process that lie in another cache.
    pub fn of(c: &Constants, shared: bool) -> Copying {
        let (call_ns, byte_ns) = match shared {
            true => (0.0, LOAD_BYTE * c.transfer_byte_ns),
            false => (c.kernel_call_ns, c.transfer_byte_ns + c.kernel_byte_ns),
        };
        Copying { call_ns, byte_ns }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn stream__that_is_not_pipelined_takes_twice_as_long() {
        let c = Constants::default();
        assert!(stream_byte_ns(&c, 8192, false) >= 2.0 * stream_byte_ns(&c, 8192, true));
    }
}
