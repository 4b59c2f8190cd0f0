//! Arithmetic of send descriptors: their size, and the inline data granted to a queue pair. Also the cases in which the
//! processor writes the descriptor itself to the adapter (BlueFlame).
//!
//! Sources: the user libraries of the adapters (rdma-core, `providers/mlx4/qp.c` and `providers/mlx5/qp.c`) for their
//! rules; UCX for the largest descriptor that it builds itself.

use crate::link::LinkError;
use crate::wire::{Transport, Verb};

/// Size of the control segment, in bytes.
pub const CONTROL: u32 = 16;
/// Size of the remote address segment of writes and reads, in bytes.
pub const REMOTE_ADDRESS: u32 = 16;
/// Size of the segment with a datagram's destination, in bytes.
pub const DATAGRAM: u32 = 48;
/// Size of a segment that points at data (length, key, address), in bytes.
pub const DATA: u32 = 16;
/// Size of the header before inline data, in bytes.
pub const INLINE_HEADER: u32 = 4;
/// Size of a basic block, in bytes; descriptors begin at its multiples.
pub const BLOCK: u32 = 64;

/// Generations of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// ConnectX to ConnectX-3. Descriptors are powers of two, and each 64-byte chunk of inline data has its own header.
    Mlx4,
    /// Connect-IB, ConnectX-4 and later. Descriptors are multiples of 64 bytes with one inline header.
    Mlx5,
}

/// Resources granted to a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Size of each descriptor in the send queue, in bytes.
    pub descriptor: u32,
    /// Largest inline data, in bytes.
    pub inline: u32,
    /// Whether both values are exact. Otherwise they are lower bounds: mlx5 reserves room for the largest operation of
    /// the queue pair, which the request does not determine.
    pub is_exact: bool,
}

impl Grant {
    /// Size of a send queue with room for `entries` descriptors, in bytes. Queues are powers of two.
    pub fn queue_bytes(&self, entries: u32) -> u64 {
        u64::from(entries.max(1)).next_power_of_two() * u64::from(self.descriptor)
    }
}

/// Assumed largest descriptor, in bytes: that of mlx4. An mlx5 device's own limit (`max_sq_desc_sz`) is unknown here.
pub const LARGEST_DESCRIPTOR: u32 = 1024;

/// Largest descriptor that UCX builds itself on mlx5, in bytes: four blocks. It is no limit of the adapter or of verbs.
pub const UCX_LARGEST: u32 = 4 * BLOCK;

/// Largest short put of UCX on mlx5, in bytes: 220.
pub const UCX_SHORT_PUT: u32 = UCX_LARGEST - CONTROL - REMOTE_ADDRESS - INLINE_HEADER;

/// Bytes before the data that a queue pair of this transport reserves for every operation: exact with mlx4, a lower
/// bound with mlx5.
pub fn reserved(transport: Transport) -> u32 {
    match transport {
        Transport::Ud => CONTROL + DATAGRAM,
        _ => CONTROL + REMOTE_ADDRESS,
    }
}

/// Bytes before the data of one operation.
pub fn header(transport: Transport, verb: Verb) -> u32 {
    match (transport, verb) {
        (Transport::Ud, _) => CONTROL + DATAGRAM,
        (_, Verb::Send) => CONTROL,
        (_, Verb::Write) => CONTROL + REMOTE_ADDRESS,
    }
}

/// Size of a descriptor with `payload` bytes inside, in bytes.
pub fn inline_descriptor(family: Family, transport: Transport, verb: Verb, payload: u32) -> u32 {
    let header = header(transport, verb);
    let data = match family {
        Family::Mlx4 => {
            // The first chunk ends at the next multiple of 64; every header leaves space in it.
            let first = BLOCK - header % BLOCK - INLINE_HEADER;
            let rest = payload.saturating_sub(first);
            let chunks = 1 + rest.div_ceil(BLOCK - INLINE_HEADER);
            payload + if payload > 0 { chunks * INLINE_HEADER } else { 0 }
        }
        Family::Mlx5 => payload + if payload > 0 { INLINE_HEADER } else { 0 },
    };
    header + data.next_multiple_of(16)
}

/// Size of a descriptor that points at `segments` pieces of data, in bytes.
pub fn pointing_descriptor(transport: Transport, verb: Verb, segments: u32) -> u32 {
    header(transport, verb) + segments * DATA
}

/// Size of a descriptor of one operation with `payload` bytes, inside it or pointed at, in bytes.
pub fn descriptor(
    family: Family, transport: Transport, verb: Verb, payload: u32, inline: bool,
) -> u32 {
    match inline {
        true => inline_descriptor(family, transport, verb, payload),
        false => pointing_descriptor(transport, verb, 1),
    }
}

/// Resources granted to a queue pair that requests `inline` bytes and `segments` pieces.
///
/// # Errors
/// No descriptor is that large ([`LARGEST_DESCRIPTOR`]).
pub fn grant(
    family: Family, transport: Transport, inline: u32, segments: u32,
) -> Result<Grant, LinkError> {
    let reserved = reserved(transport);
    let segments_need = u64::from(segments) * u64::from(DATA) + u64::from(reserved);
    let room = |descriptor: u32| {
        let left = descriptor.saturating_sub(reserved);
        let headers = match family {
            Family::Mlx4 => left.div_ceil(BLOCK),
            Family::Mlx5 => 1,
        };
        left.saturating_sub(headers * INLINE_HEADER)
    };
    (0..LARGEST_DESCRIPTOR / BLOCK)
        .map(|n| (n + 1) * BLOCK)
        .filter(|descriptor| family == Family::Mlx5 || descriptor.is_power_of_two())
        .find(|&d| room(d) >= inline && u64::from(d) >= segments_need && d > reserved)
        .map(|descriptor| match family {
            Family::Mlx4 => Grant { descriptor, inline: room(descriptor), is_exact: true },
            Family::Mlx5 => Grant { descriptor, inline, is_exact: false },
        })
        .ok_or_else(|| LinkError {
            what: "inline data",
            found: format!("{inline} B and {segments} segments"),
            expected: "a size that fits a descriptor of 1024 bytes",
        })
}

/// Estimate, in bytes, of the inline data that fits in `segments` segments. Software used this estimate before inline
/// data could be requested. A segment has 16 bytes, of which the inline header takes 4.
pub fn estimate_by_segments(segments: u32) -> u32 {
    segments * (DATA - INLINE_HEADER)
}

/// Method by which the adapter gets an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PostMethod {
    /// The processor writes the descriptor with the data inside to the adapter.
    InlineBlueFlame,
    /// The data is inside a descriptor that the adapter reads.
    Inline,
    /// The processor writes the descriptor; the adapter reads the data.
    PointBlueFlame,
    /// The adapter reads the descriptor, then the data.
    Point,
}

impl PostMethod {
    /// Number of consecutive memory reads before the first byte can leave.
    pub fn serial_reads(self) -> u32 {
        match self {
            PostMethod::InlineBlueFlame => 0,
            PostMethod::Inline | PostMethod::PointBlueFlame => 1,
            PostMethod::Point => 2,
        }
    }

    /// Whether the data is inside the descriptor.
    pub fn is_inline(self) -> bool {
        matches!(self, PostMethod::InlineBlueFlame | PostMethod::Inline)
    }

    /// Whether the processor writes the descriptor to the adapter.
    pub fn is_blueflame(self) -> bool {
        matches!(self, PostMethod::InlineBlueFlame | PostMethod::PointBlueFlame)
    }

    /// Short description.
    pub fn name(self) -> &'static str {
        match self {
            PostMethod::InlineBlueFlame => "inline, BlueFlame",
            PostMethod::Inline => "inline",
            PostMethod::PointBlueFlame => "BlueFlame",
            PostMethod::Point => "DMA",
        }
    }
}

/// Method of an operation with `payload` bytes, posted inline or not. `buffer` is the adapter's BlueFlame buffer in
/// bytes (0: none), `posted` the number of operations posted at once.
pub fn way(
    family: Family, transport: Transport, verb: Verb, payload: u32, inline: bool, buffer: u32,
    posted: u32,
) -> PostMethod {
    let size = descriptor(family, transport, verb, payload, inline);
    // mlx4 pushes only inline descriptors, mlx5 any single descriptor.
    let pushed = posted == 1 && size <= buffer && (inline || family == Family::Mlx5);
    match (inline, pushed) {
        (true, true) => PostMethod::InlineBlueFlame,
        (true, false) => PostMethod::Inline,
        (false, true) => PostMethod::PointBlueFlame,
        (false, false) => PostMethod::Point,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn granted(family: Family, transport: Transport, inline: u32) -> (u32, u32) {
        let grant = grant(family, transport, inline, 1).unwrap();
        (grant.descriptor, grant.inline)
    }

    #[test]
    fn grant__of_mlx4_is_what_its_descriptor_leaves() {
        for (from, to, descriptor, inline) in [
            (0, 28, 64, 28),
            (29, 88, 128, 88),
            (92, 200, 256, 208),
            (236, 400, 512, 448),
            (512, 900, 1024, 928),
        ] {
            for asked in [from, to] {
                assert_eq!(granted(Family::Mlx4, Transport::Rc, asked), (descriptor, inline));
            }
        }
        for (from, to, descriptor, inline) in
            [(0, 60, 128, 60), (64, 128, 256, 180), (188, 400, 512, 420)]
        {
            for asked in [from, to] {
                assert_eq!(granted(Family::Mlx4, Transport::Ud, asked), (descriptor, inline));
            }
        }
    }

    #[test]
    fn grant__of_mlx5_is_at_least_what_was_asked_for() {
        // No inline data, UCX's short put, perftest's default, and more than either.
        for (transport, inline, descriptor) in [
            (Transport::Rc, 0, 64),
            (Transport::Rc, UCX_SHORT_PUT, 256),
            (Transport::Rc, 236, 320),
            (Transport::Rc, 512, 576),
            (Transport::Ud, 188, 256),
        ] {
            let grant = grant(Family::Mlx5, transport, inline, 1).unwrap();
            let least = Grant { descriptor, inline, is_exact: false };
            assert_eq!(grant, least);
        }
        assert!(grant(Family::Mlx4, Transport::Rc, 0, 1).unwrap().is_exact);
    }

    #[test]
    fn ucx__short_put_is_220() {
        assert_eq!(UCX_SHORT_PUT, 220);
        let size = |verb, payload| inline_descriptor(Family::Mlx5, Transport::Rc, verb, payload);
        assert_eq!(size(Verb::Write, UCX_SHORT_PUT), UCX_LARGEST);
        assert_eq!(size(Verb::Send, 236), UCX_LARGEST);
    }

    #[test]
    fn grant__costs_queue_memory() {
        let small = grant(Family::Mlx4, Transport::Rc, 0, 1).unwrap();
        let large = grant(Family::Mlx4, Transport::Rc, 400, 1).unwrap();
        assert_eq!(small.queue_bytes(128), 8192);
        assert_eq!(large.queue_bytes(128), 8 * small.queue_bytes(128));
        assert_eq!(large.queue_bytes(100), large.queue_bytes(128));
    }

    #[test]
    fn grant__beyond_the_largest_descriptor_is_refused() {
        for (family, inline, segments) in [
            (Family::Mlx4, 929, 1),
            (Family::Mlx5, 1024 - 32 - 4 + 1, 1),
            (Family::Mlx4, 0, 100),
            (Family::Mlx4, u32::MAX, u32::MAX),
        ] {
            let error = grant(family, Transport::Rc, inline, segments).unwrap_err();
            assert!(error.to_string().contains("a size that fits a descriptor of"), "{error}");
        }
    }

    #[test]
    fn pointing__descriptors_of_datagrams_take_a_second_block() {
        let size = |transport, verb| pointing_descriptor(transport, verb, 1);
        assert_eq!(size(Transport::Rc, Verb::Send), 32);
        assert_eq!(size(Transport::Rc, Verb::Write), 48);
        assert_eq!(size(Transport::Ud, Verb::Send), 80);
    }

    #[test]
    fn estimate__is_twelve_a_segment() {
        assert_eq!(estimate_by_segments(1), 12);
        assert_eq!(estimate_by_segments(4), 48);
    }

    #[test]
    fn cliff__of_mlx4_is_where_the_descriptor_outgrows_blueflame() {
        for (transport, verb, last) in [
            (Transport::Rc, Verb::Write, 208),
            (Transport::Rc, Verb::Send, 224),
            (Transport::Ud, Verb::Send, 180),
        ] {
            let way = |payload| way(Family::Mlx4, transport, verb, payload, true, 256, 1);
            assert_eq!(way(last), PostMethod::InlineBlueFlame, "{transport:?} {verb:?}");
            assert_eq!(way(last + 1), PostMethod::Inline, "{transport:?} {verb:?}");
        }
    }

    #[test]
    fn blueflame__takes_one_operation_at_a_time() {
        let way = |family, inline, posted| {
            way(family, Transport::Rc, Verb::Write, 8, inline, 256, posted)
        };
        assert_eq!(way(Family::Mlx4, true, 1).serial_reads(), 0);
        assert_eq!(way(Family::Mlx4, true, 2).serial_reads(), 1);
        assert_eq!(way(Family::Mlx4, false, 1).serial_reads(), 2);
        assert_eq!(way(Family::Mlx5, false, 1).serial_reads(), 1);
        assert_eq!(way(Family::Mlx5, false, 2).serial_reads(), 2);
    }

    proptest! {
        /// Granted inline data fits the granted descriptor.
        #[test]
        fn grant__fits(inline in 0..900u32, ud: bool, mlx5: bool) {
            let family = if mlx5 { Family::Mlx5 } else { Family::Mlx4 };
            let (transport, verb) = if ud { (Transport::Ud, Verb::Send) } else { (Transport::Rc, Verb::Write) };
            if let Ok(grant) = grant(family, transport, inline, 1) {
                prop_assert!(grant.inline >= inline);
                let size = inline_descriptor(family, transport, verb, grant.inline);
                prop_assert!(size <= grant.descriptor);
                if grant.is_exact {
                    prop_assert_eq!(size, grant.descriptor);
                    prop_assert!(inline_descriptor(family, transport, verb, grant.inline + 1) > grant.descriptor);
                }
            }
        }
    }
}
