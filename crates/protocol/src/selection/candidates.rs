//! Parts of the costs of protocols between two ranks of a node. Each protocol's file combines these parts.
//!
//! Time runs from the start of the send until the receiver, which already waits, has the whole message. Work that both
//! sides do in parallel counts once. Each curve follows the steps of its protocol. The constants' defaults were fitted
//! to ping-pongs whose buffers are written on each turn.

use super::constants::Constants;
use fastpath_transport::Cost;

pub(crate) fn fixed(sender: f64, latency: f64, receiver: f64, ns_per_byte: f64) -> Cost {
    Cost { send_overhead_ns: sender, recv_overhead_ns: receiver, ns_per_byte, latency_ns: latency }
}

/// Returns the nanoseconds per byte of a stream in pieces of `piece` bytes. If `pipelined`, both sides copy at the same
/// time; otherwise the sides copy one after the other, and a line is exchanged in between.
pub(crate) fn stream_byte_ns(c: &Constants, piece: u64, pipelined: bool) -> f64 {
    let piece = piece as f64;
    match pipelined {
        true => c.transfer_byte_ns + c.post_ns / piece,
        false => 2.0 * (c.transfer_byte_ns + (c.post_ns + c.line_ns) / piece),
    }
}

/// Time to load a byte from the other side's cache, as a multiple of its time in a stream that both sides copy.
const LOAD_BYTE: f64 = 1.5;

/// Cost of a copy without the ring. `call_ns`: of each system call, and once more per message. `byte_ns`: of each byte.
#[derive(Clone, Copy)]
pub struct DirectCopyCost {
    pub(crate) call_ns: f64,
    pub(crate) byte_ns: f64,
}

impl DirectCopyCost {
    /// Returns the cost for memory that both sides reach by load and store, or of copies by the kernel. The first
    /// kernel call costs an extra call, because the other process's locks and counters are in another cache.
    pub fn of(c: &Constants, shared: bool) -> DirectCopyCost {
        let (call_ns, byte_ns) = match shared {
            true => (0.0, LOAD_BYTE * c.transfer_byte_ns),
            false => (c.kernel_call_ns, c.transfer_byte_ns + c.kernel_byte_ns),
        };
        DirectCopyCost { call_ns, byte_ns }
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
