//! Profiles of adapters and hosts.
//!
//! Times are for models only. Each profile states the sources, and the times of which only the sum is known.

use crate::descriptor::Family;
use crate::link::LinkError;
use crate::units::Time;

/// An RDMA adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adapter {
    /// Name: `connectx`.
    pub name: &'static str,
    /// Description.
    pub title: &'static str,
    /// Generation of the adapter's descriptors.
    pub family: Family,
    /// Size of its BlueFlame buffer, in bytes; 0: none.
    pub blueflame: u32,
    /// Size of a doorbell write, in bytes.
    pub doorbell: u32,
    /// Size of a completion entry, in bytes.
    pub completion_entry: u32,
    /// Size of a receive descriptor of one segment, in bytes.
    pub receive_descriptor: u32,
    /// Largest number of outstanding memory reads.
    pub reads_in_flight: u32,
    /// Network packets that it buffers before the network must wait, in bytes.
    pub receive_buffer: u32,
    /// Default bus.
    pub link: &'static str,
    /// Default network.
    pub wire: &'static str,
    /// Time from the last required byte until the first bit leaves.
    pub send: Time,
    /// Time from the last bit until the first write to memory.
    pub receive: Time,
    /// Source of the figures.
    pub source: &'static str,
}

/// A processor with its memory and its path to the adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Name.
    pub name: &'static str,
    /// Description.
    pub title: &'static str,
    /// Time of the library for one send before it writes to the adapter.
    pub post: Time,
    /// Time of writing the doorbell.
    pub doorbell: Time,
    /// Time of writing 64 bytes to the adapter through write-combining.
    pub store: Time,
    /// Time of copying a byte into a descriptor.
    pub copy: Time,
    /// Time from a read request's last byte leaving the adapter until the completion's first byte is back.
    pub read: Time,
    /// Time from a write's last byte leaving the adapter until the processor can see it.
    pub write: Time,
    /// Time of noticing a completion and returning.
    pub poll: Time,
    /// Source of the figures.
    pub source: &'static str,
}

const fn ns(ns: f64) -> Time {
    Time::from_ns(ns)
}

/// All known adapters.
pub static ADAPTERS: [Adapter; 5] = [
    Adapter {
        name: "infinihost3",
        title: "InfiniHost III",
        family: Family::Mlx4,
        blueflame: 0,
        doorbell: 8,
        completion_entry: 32,
        receive_descriptor: 16,
        reads_in_flight: 8,
        receive_buffer: 64 * 1024,
        link: "1.0x8",
        wire: "DDR",
        send: ns(450.0),
        receive: ns(350.0),
        source: "InfiniHost III has no BlueFlame; assumed: descriptors as those of mlx4, and the \
            adapter's times of sending and receiving",
    },
    Adapter {
        name: "connectx",
        title: "ConnectX, ConnectX-2",
        family: Family::Mlx4,
        blueflame: 256,
        doorbell: 4,
        completion_entry: 32,
        receive_descriptor: 16,
        reads_in_flight: 16,
        receive_buffer: 128 * 1024,
        link: "2.0x8",
        wire: "QDR",
        send: ns(300.0),
        receive: ns(250.0),
        source: "rdma-core mlx4; only the sum of the times is known, from a one-way latency of \
            1.12 us",
    },
    Adapter {
        name: "connectx3",
        title: "ConnectX-3",
        family: Family::Mlx4,
        blueflame: 256,
        doorbell: 4,
        completion_entry: 64,
        receive_descriptor: 16,
        reads_in_flight: 16,
        receive_buffer: 256 * 1024,
        link: "3.0x8",
        wire: "FDR",
        send: ns(200.0),
        receive: ns(170.0),
        source: "rdma-core mlx4; 700 ns from host to host at FDR (UCX)",
    },
    Adapter {
        name: "connectx5",
        title: "ConnectX-4 to ConnectX-6",
        family: Family::Mlx5,
        blueflame: 256,
        doorbell: 8,
        completion_entry: 64,
        receive_descriptor: 16,
        reads_in_flight: 32,
        receive_buffer: 512 * 1024,
        link: "3.0x16",
        wire: "EDR",
        send: ns(150.0),
        receive: ns(130.0),
        source: "rdma-core mlx5; 600 ns from host to host, from EDR on (UCX)",
    },
    Adapter {
        name: "connectx7",
        title: "ConnectX-7",
        family: Family::Mlx5,
        blueflame: 256,
        doorbell: 8,
        completion_entry: 64,
        receive_descriptor: 16,
        reads_in_flight: 64,
        receive_buffer: 1024 * 1024,
        link: "5.0x16",
        wire: "NDR",
        send: ns(140.0),
        receive: ns(120.0),
        source: "descriptors as those of ConnectX-5; times assumed",
    },
];

/// All known hosts.
pub static HOSTS: [Host; 3] = [
    Host {
        name: "2009",
        title: "a server of 2009",
        post: ns(150.0),
        doorbell: ns(40.0),
        store: ns(60.0),
        copy: ns(0.25),
        read: ns(490.0),
        write: ns(300.0),
        poll: ns(80.0),
        source: "read time of 0.42 to 0.56 us, from the gain by inline data in 2009; the other \
            times are assumed, with a one-way latency of 1.12 us in all",
    },
    Host {
        name: "2016",
        title: "a server of 2016 or later",
        post: ns(75.0),
        doorbell: ns(40.0),
        store: ns(25.0),
        copy: ns(0.05),
        read: ns(350.0),
        write: ns(150.0),
        poll: ns(20.0),
        source: "UCX: descriptor fetch 350 ns, doorbell 40 ns, post 75 ns, completion entry 20 ns",
    },
    Host {
        name: "uncombined",
        title: "a host that does not combine writes to the adapter",
        post: ns(75.0),
        doorbell: ns(40.0),
        store: ns(320.0),
        copy: ns(0.05),
        read: ns(350.0),
        write: ns(150.0),
        poll: ns(20.0),
        source: "as a server of 2016, but 64 bytes take eight stores of 8 bytes, 40 ns each",
    },
];

/// Finds an adapter by name.
///
/// # Errors
/// There is none of that name.
pub fn adapter(name: &str) -> Result<&'static Adapter, LinkError> {
    let found = ADAPTERS.iter().find(|a| a.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| LinkError {
        what: "adapter",
        found: format!("`{name}`"),
        expected: "infinihost3, connectx, connectx3, connectx5 or connectx7",
    })
}

/// Finds a host by name.
///
/// # Errors
/// There is none of that name.
pub fn host(name: &str) -> Result<&'static Host, LinkError> {
    let found = HOSTS.iter().find(|h| h.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| LinkError {
        what: "host",
        found: format!("`{name}`"),
        expected: "2009, 2016 or uncombined",
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn profiles__are_found_by_name_and_hold_valid_links() {
        for known in &ADAPTERS {
            assert_eq!(adapter(&known.name.to_uppercase()).unwrap(), known);
            known.link.parse::<crate::Link>().unwrap();
            known.wire.parse::<crate::wire::Wire>().unwrap();
        }
        for known in &HOSTS {
            assert_eq!(host(known.name).unwrap(), known);
        }
        assert_eq!(
            ADAPTERS.len(),
            adapter("?").unwrap_err().expected.replace(" or ", ", ").split(", ").count()
        );
        assert_eq!(
            HOSTS.len(),
            host("?").unwrap_err().expected.replace(" or ", ", ").split(", ").count()
        );
    }
}
