//! Load of one operation on the link.

use std::ops::{Add, Mul};

use crate::link::Link;
use crate::units::Bytes;

/// Direction on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device to the host.
    Up,
    /// From the host to the device.
    Down,
}

/// Packets in one direction. A fraction is a share of a packet, such as 0.01 for a completion entry of every 100th
/// message.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Flow {
    /// Number of packets.
    pub packets: f64,
    /// Number of packets that use credits, which the other side returns by updates: all but completions.
    pub credited: f64,
    /// Data in the packets, in bytes.
    pub data: f64,
    /// Bytes around the data.
    pub overhead: f64,
}

impl Flow {
    fn new(packets: u64, data: u64, overhead: u32) -> Flow {
        Flow {
            packets: packets as f64,
            credited: packets as f64,
            data: data as f64,
            overhead: (packets * u64::from(overhead)) as f64,
        }
    }

    /// Total bytes.
    pub fn bytes(&self) -> f64 {
        self.data + self.overhead
    }
}

impl Add for Flow {
    type Output = Flow;
    fn add(self, other: Flow) -> Flow {
        Flow {
            packets: self.packets + other.packets,
            credited: self.credited + other.credited,
            data: self.data + other.data,
            overhead: self.overhead + other.overhead,
        }
    }
}

impl Mul<f64> for Flow {
    type Output = Flow;
    fn mul(self, times: f64) -> Flow {
        Flow {
            packets: self.packets * times,
            credited: self.credited * times,
            data: self.data * times,
            overhead: self.overhead * times,
        }
    }
}

/// Packets in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// From the device to the host.
    pub up: Flow,
    /// From the host to the device.
    pub down: Flow,
}

impl Traffic {
    /// Traffic of a device that writes `size` bytes to memory, from an aligned address on.
    pub fn write(link: &Link, size: Bytes) -> Traffic {
        Traffic::write_at(link, 0, size)
    }

    /// Traffic of a device that writes `size` bytes at `address`; packets are split at multiples of the maximum
    /// payload.
    pub fn write_at(link: &Link, address: u64, size: Bytes) -> Traffic {
        let packets = count_blocks(address, size.0, u64::from(link.max_payload()));
        Traffic { up: Flow::new(packets, size.0, link.write_overhead()), down: Flow::default() }
    }

    /// Traffic of a device that reads `size` bytes of memory, from an aligned address on.
    pub fn read(link: &Link, size: Bytes) -> Traffic {
        Traffic::read_at(link, 0, size)
    }

    /// Traffic of a device that reads `size` bytes at `address`: requests go up, completions come down. Completions are
    /// split at multiples of their size, and each answers only one request.
    pub fn read_at(link: &Link, address: u64, size: Bytes) -> Traffic {
        let request = u64::from(link.max_read_request());
        let completion = u64::from(link.completion()).min(request);
        let requests = count_blocks(address, size.0, request);
        let completions = count_blocks(address, size.0, completion);
        Traffic {
            up: Flow::new(requests, 0, link.read_request()),
            down: Flow {
                credited: 0.0,
                ..Flow::new(completions, size.0, link.completion_overhead())
            },
        }
    }

    /// Traffic of a processor that writes `size` bytes to the device in packets of up to `chunk` bytes: a doorbell, or
    /// a descriptor through write-combining.
    pub fn store(link: &Link, size: Bytes, chunk: u32) -> Traffic {
        let packets = size.0.div_ceil(u64::from(chunk.max(1)));
        Traffic { up: Flow::default(), down: Flow::new(packets, size.0, link.write_overhead()) }
    }

    /// Returns the flow in a direction.
    pub fn in_direction(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

impl Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        Traffic { up: self.up + other.up, down: self.down + other.down }
    }
}

impl Mul<f64> for Traffic {
    type Output = Traffic;
    fn mul(self, times: f64) -> Traffic {
        Traffic { up: self.up * times, down: self.down * times }
    }
}

/// Number of blocks of `block` bytes that `size` bytes at `address` touch.
pub fn count_blocks(address: u64, size: u64, block: u64) -> u64 {
    if size == 0 {
        return 0;
    }
    let first = address / block;
    (address.saturating_add(size - 1)) / block - first + 1
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn write__of_1729_bytes_behind_64_takes_an_eighth_packet() {
        let link: Link = "2.0x8".parse().unwrap();
        let packets = |size| Traffic::write_at(&link, 64, Bytes(size)).up.packets;
        assert_eq!((packets(1728), packets(1729)), (7.0, 8.0));
        assert_eq!((packets(1472), packets(1473)), (6.0, 7.0));
        assert_eq!((packets(1984), packets(1985)), (8.0, 9.0));
        assert_eq!(packets(0), 0.0);
    }

    #[test]
    fn read__answers_each_request_by_itself() {
        let link: Link = "2.0x8".parse().unwrap();
        let link = link.with_max_read_request(128).unwrap();
        let traffic = Traffic::read(&link, Bytes(512));
        assert_eq!((traffic.up.packets, traffic.down.packets), (4.0, 4.0));
        assert_eq!(traffic.up.data, 0.0);
    }

    proptest! {
        #[test]
        fn blocks__are_those_that_hold_a_byte(address in 0..5000u64, size in 0..5000u64, shift in 6..12u32) {
            let block = 1 << shift;
            let mut touched: Vec<u64> = (address..address + size).map(|a| a / block).collect();
            touched.dedup();
            prop_assert_eq!(count_blocks(address, size, block), touched.len() as u64);
        }
    }
}
