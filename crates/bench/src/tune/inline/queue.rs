//! What inline data costs in queue memory: of a real queue pair where its provider maps it from the kernel, as
//! Soft-RoCE's does; by the formula of the descriptors where it is ordinary memory of the process (mlx4, mlx5).

use fastpath_pcie::descriptor::{self, Family};
use fastpath_pcie::wire::Transport;
use fastpath_transport::verbs::{Identity, Loop, VerbsError};
use serde::Serialize;

/// What a request costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cost {
    /// Bytes of inline data asked for.
    pub asked: u32,
    /// Bytes granted.
    pub granted: u32,
    /// Sends that the queue holds.
    pub depth: u32,
    /// Bytes of the send queue, and how they are known; None: neither way.
    pub queue: Option<Queue>,
}

/// The memory of a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Queue {
    pub bytes: u64,
    pub known_by: KnownBy,
}

/// How it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KnownBy {
    /// The queue's own mapping, in /proc/self/maps.
    Mapping,
    /// What descriptors of this generation take.
    Formula,
    /// As `Formula`, which gives no more than the least.
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

impl Cost {
    /// Bytes of the queue for each send: of a descriptor, and its part of what else the queue holds.
    pub fn descriptor(&self) -> Option<u64> {
        Some(self.queue?.bytes / u64::from(self.depth.max(1)))
    }
}

/// The generation of descriptors that a driver writes.
pub(super) fn family(identity: &Identity) -> Option<Family> {
    match identity.driver.split(' ').next() {
        Some("mlx4_core") => Some(Family::Mlx4),
        Some("mlx5_core") => Some(Family::Mlx5),
        _ => None,
    }
}

/// What a request costs on a device.
///
/// # Errors
/// The device refuses.
pub(super) fn measure(
    port: &Loop, identity: &Identity, asked: u32, depth: u32,
) -> Result<Cost, VerbsError> {
    let before = read_maps();
    let pair = port.make_pair(asked, depth)?;
    // The receive queue of one entry is the smaller mapping.
    let mapped = find_new(&before, &read_maps()).into_iter().max();
    let queue = mapped.map(|bytes| Queue { bytes, known_by: KnownBy::Mapping });
    Ok(Cost {
        asked,
        granted: pair.granted_inline(),
        depth: pair.send_depth(),
        queue: queue.or_else(|| by_formula(identity, asked, depth)),
    })
}

fn by_formula(identity: &Identity, asked: u32, depth: u32) -> Option<Queue> {
    let grant = descriptor::grant(family(identity)?, Transport::Rc, asked, 1).ok()?;
    Some(Queue {
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
            let identity = Identity {
                name: "x".to_owned(),
                part: "0x2c9:1".to_owned(),
                firmware: "1".to_owned(),
                driver: driver.to_owned(),
                software: false,
            };
            by_formula(&identity, asked, 100)
        };
        let queue = |bytes, known_by| Some(Queue { bytes, known_by });
        assert_eq!(of("mlx4_core 1", 400), queue(128 * 512, KnownBy::Formula));
        assert_eq!(of("mlx5_core 1", 0), queue(128 * 64, KnownBy::FormulaAtLeast));
        assert_eq!(of("mlx4_core 1", 5000), None);
        assert_eq!(of("irdma 1", 0), None);
    }
}
