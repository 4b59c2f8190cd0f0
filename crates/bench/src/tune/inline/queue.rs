//! Queue memory of inline data. The memory is measured on a real queue pair whose provider maps the queue from the
//! kernel, such as Soft-RoCE's. For a queue in ordinary process memory (mlx4, mlx5), it follows from the formula.

use fastpath_pcie::descriptor::{self, Family};
use fastpath_pcie::wire::Transport;
use fastpath_transport::verbs::{DeviceIdentity, EchoPort, VerbsError};
use serde::Serialize;

/// Cost of a request for inline data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct InlineCost {
    pub asked: u32,
    pub granted: u32,
    pub depth: u32,
    /// Size of the send queue, in bytes; None if unknown.
    pub queue: Option<QueueSize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct QueueSize {
    pub bytes: u64,
    pub known_by: KnownBy,
}

/// Source of a queue's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KnownBy {
    /// Mapping of the queue, in /proc/self/maps.
    Mapping,
    /// Descriptor formula of this generation.
    Formula,
    /// Descriptor formula that gives a lower bound.
    FormulaAtLeast,
}

impl KnownBy {
    pub fn name(self) -> &'static str {
        match self {
            KnownBy::Mapping => "mapping",
            KnownBy::Formula => "formula",
            KnownBy::FormulaAtLeast => "formula: at least",
        }
    }
}

impl InlineCost {
    /// Bytes of the queue per send: a descriptor, and its share of the rest.
    pub fn descriptor(&self) -> Option<u64> {
        Some(self.queue?.bytes / u64::from(self.depth.max(1)))
    }
}

/// Generation of the descriptors that a driver writes.
pub(super) fn family(identity: &DeviceIdentity) -> Option<Family> {
    match identity.driver.split(' ').next() {
        Some("mlx4_core") => Some(Family::Mlx4),
        Some("mlx5_core") => Some(Family::Mlx5),
        _ => None,
    }
}

/// Measures the cost of a request on a device.
pub(super) fn measure(
    port: &EchoPort, identity: &DeviceIdentity, asked: u32, depth: u32,
) -> Result<InlineCost, VerbsError> {
    let before = read_maps();
    let pair = port.make_pair(asked, depth)?;
    // The receive queue of one entry is the smaller mapping.
    let mapped = find_new(&before, &read_maps()).into_iter().max();
    let queue = mapped.map(|bytes| QueueSize { bytes, known_by: KnownBy::Mapping });
    Ok(InlineCost {
        asked,
        granted: pair.granted_inline(),
        depth: pair.send_depth(),
        queue: queue.or_else(|| by_formula(identity, asked, depth)),
    })
}

fn by_formula(identity: &DeviceIdentity, asked: u32, depth: u32) -> Option<QueueSize> {
    let grant = descriptor::grant(family(identity)?, Transport::Rc, asked, 1).ok()?;
    Some(QueueSize {
        bytes: grant.queue_bytes(depth),
        known_by: match grant.is_exact {
            true => KnownBy::Formula,
            false => KnownBy::FormulaAtLeast,
        },
    })
}

fn read_maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

/// Lengths of the mappings of RDMA devices that are in `after` and not in `before`.
fn find_new(before: &str, after: &str) -> Vec<u64> {
    let known: Vec<&str> = before.lines().collect();
    after
        .lines()
        .filter(|line| line.contains("/dev/infiniband/") && !known.contains(line))
        .filter_map(|line| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            number(to)?.checked_sub(number(from)?)
        })
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn mappings__of_the_device_that_are_new_count() {
        let before = "7f00-8f00 rw-s 00000000 00:05 12 /dev/infiniband/uverbs0\n\
                      a000-b000 rw-p 00000000 00:00 0\n";
        let after = format!(
            "{before}c000-d000 rw-p 00000000 00:00 0\n\
             10000-31000 rw-s 00002000 00:05 12 /dev/infiniband/uverbs0\n\
             40000-41000 rw-s 00001000 00:05 12 /dev/infiniband/uverbs0\n\
             zz-1 rw-s 0 0 0 /dev/infiniband/uverbs0\n"
        );
        assert_eq!(find_new(before, &after), [0x21000, 0x1000]);
        assert_eq!(find_new(&after, &after), [0; 0]);
    }

    #[test]
    fn formula__is_of_the_driver_and_says_whether_it_is_exact() {
        let of = |driver: &str, asked| {
            let identity = DeviceIdentity {
                name: "x".to_owned(),
                part: "0x2c9:1".to_owned(),
                firmware: "1".to_owned(),
                driver: driver.to_owned(),
                software: false,
            };
            by_formula(&identity, asked, 100)
        };
        let queue = |bytes, known_by| Some(QueueSize { bytes, known_by });
        assert_eq!(of("mlx4_core 1", 400), queue(128 * 512, KnownBy::Formula));
        assert_eq!(of("mlx5_core 1", 0), queue(128 * 64, KnownBy::FormulaAtLeast));
        assert_eq!(of("mlx4_core 1", 5000), None);
        assert_eq!(of("irdma 1", 0), None);
    }
}
