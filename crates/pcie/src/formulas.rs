//! Closed-form model: the cost of each operation on the bus, and the resulting rate.
//!
//! [`Traffic`] is the load of one operation on the link in each direction. [`throughput`] is the number of operations
//! per second. [`DataLink`] determines the charge for packets of the data-link layer.

pub mod latency;
pub mod message;
pub mod traffic;

pub use traffic::{Direction, Flow, Traffic};

use crate::link::Link;
use crate::units::{Bytes, Rate};

/// Size of an acknowledgement or of a credit update, including framing, in bytes.
pub const DLLP_BYTES: f64 = 8.0;

/// Share of symbol times used by skips, which compensate clock differences: 4 in each 1538.
pub const SKIP_SHARE: f64 = 4.0 / 1538.0;

/// Share of a flit's 242 usable bytes that the data-link layer uses.
pub const FLIT_SHARE: f64 = 6.0 / 242.0;

/// Charge for packets of the data-link layer (acknowledgements, credit updates, skips).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataLink {
    /// No charge: only headers count.
    Ignored,
    /// Data-link packets are charged in the direction in which they travel, opposite to the answered packets. Each
    /// packet is acknowledged, and each packet that uses credits is followed by an update that returns them. At most
    /// one acknowledgement and one update are sent per [`Link::answer_limit`] symbol times, in each of which every lane
    /// carries a byte. Skips take their share of both directions. Packets are assumed to be spread evenly, which
    /// maximizes the number of answers.
    Directional,
    /// Like `Directional`, with packets in bursts and pauses between. This minimizes the number of answers: one per
    /// limit while packets arrive. The real rate is between those of `Directional` and `Bursts`. Both variants are
    /// equal for writes alone, and differ by at most 1.2 % for simultaneous writes and reads.
    Bursts,
    /// The published model of pcie-bench: both directions pay for answers at full traffic, at one byte per symbol time
    /// for any number of lanes.
    Symmetric,
}

impl DataLink {
    /// Share of a direction's rate that is lost with any traffic.
    pub fn fixed_share(self, link: &Link) -> f64 {
        match self {
            DataLink::Ignored => 0.0,
            DataLink::Symmetric => SKIP_SHARE + 2.0 * DLLP_BYTES / f64::from(link.answer_limit()),
            _ if link.generation().is_flit() => SKIP_SHARE + FLIT_SHARE,
            DataLink::Directional | DataLink::Bursts => SKIP_SHARE,
        }
    }

    /// Time that one direction of the link needs for an operation, in byte times. `own` is sent in it, `other` opposite
    /// to it.
    fn need(self, link: &Link, own: &Flow, other: &Flow) -> f64 {
        let left = 1.0 - self.fixed_share(link);
        let limit = f64::from(link.answer_limit() * link.lanes().count());
        let share = DLLP_BYTES / limit;
        let bytes = own.bytes();
        let (all, updates) = (DLLP_BYTES * other.packets, DLLP_BYTES * other.credited);
        match self {
            _ if link.generation().is_flit() => return bytes / left,
            DataLink::Ignored | DataLink::Symmetric => return bytes / left,
            DataLink::Bursts => {
                let most = share * other.bytes();
                return (bytes + all.min(most) + updates.min(most)) / left;
            }
            DataLink::Directional => (),
        }
        // Each packet is answered (`each`), or acknowledgements reach their limit and take `share` of the time
        // (`some`), or updates reach their limit too (`none`). The case that applies gives the least time.
        let each = (bytes + all + updates) / left;
        let some = (bytes + updates) / (left - share);
        let none = bytes / (left - share - if updates > 0.0 { share } else { 0.0 });
        each.min(some).min(none)
    }
}

/// Rate of an operation on a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Operations per second.
    pub per_s: f64,
    /// The limiting direction.
    pub bound: Direction,
    /// Share of the raw rate in use, from the device to the host, and from the host to the device.
    pub busy: (f64, f64),
}

/// Rate at which `link` can carry `traffic`.
pub fn throughput(link: &Link, traffic: &Traffic, data_link: DataLink) -> Throughput {
    let up = data_link.need(link, &traffic.up, &traffic.down);
    let down = data_link.need(link, &traffic.down, &traffic.up);
    let raw = link.raw().bytes_per_s();
    let bound = match up >= down {
        true => Direction::Up,
        false => Direction::Down,
    };
    let per_s = raw / up.max(down);
    Throughput { per_s, bound, busy: (up * per_s / raw, down * per_s / raw) }
}

/// Rate at which the device can write memory, in transfers of `size` bytes.
pub fn write_rate(link: &Link, size: Bytes, data_link: DataLink) -> Rate {
    let found = throughput(link, &Traffic::write(link, size), data_link);
    Rate::from_bytes_per_s(found.per_s * size.as_f64())
}

/// Rate at which the device can read memory, in transfers of `size` bytes.
pub fn read_rate(link: &Link, size: Bytes, data_link: DataLink) -> Rate {
    let found = throughput(link, &Traffic::read(link, size), data_link);
    Rate::from_bytes_per_s(found.per_s * size.as_f64())
}

/// Rate in each direction while the device reads as much as it writes.
pub fn both_rate(link: &Link, size: Bytes, data_link: DataLink) -> Rate {
    let traffic = Traffic::write(link, size) + Traffic::read(link, size);
    let found = throughput(link, &traffic, data_link);
    Rate::from_bytes_per_s(found.per_s * size.as_f64())
}

/// Utilisation by UCX's rule (`ucs_topo_get_pci_bw`): four packets of the maximum payload, with their headers, cost 16
/// bytes of answers.
pub fn ucx_utilisation(link: &Link) -> f64 {
    let payload = f64::from(link.max_payload());
    let header = f64::from(link.with_framing(crate::link::Framing::Ucx).write_overhead());
    4.0 * payload / (4.0 * (payload + header) + 16.0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::link::AddressWidth;
    use proptest::prelude::*;

    const SIZE: Bytes = Bytes(65536);

    fn link(text: &str, mps: u64) -> Link {
        text.parse::<Link>().unwrap().with_max_payload(mps).unwrap()
    }

    #[track_caller]
    fn is_near(rate: Rate, mib: f64) {
        let found = rate.mib_per_s().0;
        assert!((found / mib - 1.0).abs() < 1e-3, "{found} MiB/s, not {mib}");
    }

    /// Rates with headers only, and with pcie-bench's charge for the data-link layer.
    #[test]
    fn grid__of_generation_2_x8_writes() {
        for (mps, bits, headers, charged) in [
            (128, 64, 3212.0, 2768.0),
            (256, 64, 3488.0, 3125.0),
            (512, 64, 3644.0, 3209.0),
            (128, 32, 3299.0, 2843.0),
            (256, 32, 3538.0, 3171.0),
            (512, 32, 3671.0, 3233.0),
        ] {
            let link = link("2.0x8", mps).with_address(AddressWidth::try_from(bits).unwrap());
            is_near(write_rate(&link, SIZE, DataLink::Ignored), headers);
            is_near(write_rate(&link, SIZE, DataLink::Symmetric), charged);
        }
    }

    #[test]
    fn grid__of_generation_2_x8_reads() {
        for (completion, headers, charged) in
            [(64, 2906.0, 2605.0), (128, 3299.0, 2957.0), (256, 3538.0, 3171.0)]
        {
            let link = link("2.0x8", 256).with_completion(completion).unwrap();
            is_near(read_rate(&link, SIZE, DataLink::Ignored), headers);
            is_near(read_rate(&link, SIZE, DataLink::Symmetric), charged);
        }
    }

    #[test]
    fn grid__of_generation_3_x8() {
        let link = link("3.0x8", 256);
        is_near(write_rate(&link, SIZE, DataLink::Ignored), 6868.0);
        is_near(write_rate(&link, SIZE, DataLink::Symmetric), 6309.0);
        is_near(read_rate(&link, SIZE, DataLink::Ignored), 6968.0);
        is_near(read_rate(&link, SIZE, DataLink::Symmetric), 6400.0);
    }

    #[test]
    fn symmetric__is_pcie_benchs_rate_below_the_packets() {
        for (text, gb, share) in [("2.0x8", 28.68, 0.896), ("3.0x8", 57.88, 0.9186)] {
            let link = link(text, 256);
            let left = 1.0 - DataLink::Symmetric.fixed_share(&link);
            assert!((left / share - 1.0).abs() < 1e-3, "{left}");
            let rate = (link.raw() * left).gb_per_s().0;
            assert!((rate / gb - 1.0).abs() < 1e-3, "{rate}");
        }
    }

    #[test]
    fn ucx__rule_gives_its_figures() {
        let link = link("2.0x8", 256);
        assert!((ucx_utilisation(&link) - 0.9014).abs() < 1e-4);
        is_near(link.raw() * ucx_utilisation(&link), 3438.6);
    }

    /// One-way writes pay only for skips. The answers that pcie-bench charges too travel in the opposite direction.
    #[test]
    fn directional__writes_lose_only_the_skips() {
        let long = link("2.0x8", 256);
        is_near(write_rate(&long, SIZE, DataLink::Directional), 3479.0);
        let short = long.with_address(AddressWidth::Bits32);
        is_near(write_rate(&short, SIZE, DataLink::Directional), 3529.0);
        let lost = write_rate(&long, SIZE, DataLink::Symmetric)
            / write_rate(&long, SIZE, DataLink::Directional);
        assert!((0.89..0.91).contains(&lost), "{lost}");
    }

    #[test]
    fn both__is_bound_by_the_tighter_direction() {
        let link = link("2.0x8", 256);
        let traffic = Traffic::write(&link, SIZE) + Traffic::read(&link, SIZE);
        // 256 writes with 24 bytes and 128 requests of 24 bytes share the upstream direction.
        assert_eq!(traffic.up.bytes(), 65536.0 + 256.0 * 24.0 + 128.0 * 24.0);
        assert_eq!(traffic.down.bytes(), 65536.0 + 256.0 * 20.0);
        let found = throughput(&link, &traffic, DataLink::Ignored);
        assert_eq!(found.bound, Direction::Up);
        is_near(both_rate(&link, SIZE, DataLink::Ignored), 3814.697 * 65536.0 / traffic.up.bytes());
    }

    #[test]
    fn reads__of_tiny_requests_are_bound_by_the_requests() {
        let link = link("2.0x8", 256);
        let found = throughput(&link, &Traffic::read(&link, Bytes(1)), DataLink::Ignored);
        assert_eq!(found.bound, Direction::Up);
    }

    fn any_link() -> impl Strategy<Value = Link> {
        let size = || prop::sample::select(vec![128u64, 256, 512, 1024, 2048, 4096]);
        (
            1..=7u32,
            prop::sample::select(crate::Lanes::ALL.map(u32::from).to_vec()),
            size(),
            size(),
            any::<[bool; 2]>(),
        )
            .prop_map(|(generation, lanes, mps, mrrs, [short, ecrc])| {
                let generation = crate::Generation::try_from(generation).unwrap();
                let width = if short { 32 } else { 64 };
                Link::new(generation, crate::Lanes::try_from(lanes).unwrap())
                    .with_max_payload(mps)
                    .and_then(|l| l.with_max_read_request(mrrs))
                    .unwrap()
                    .with_address(AddressWidth::try_from(width).unwrap())
                    .with_ecrc(ecrc)
            })
    }

    proptest! {
        /// Writes alone have no opposite traffic, so bursts make no difference. With simultaneous reads the difference
        /// is small.
        #[test]
        fn bursts__matter_little(link in any_link(), pages in 1..64u64) {
            let gain = |rate: fn(&Link, Bytes, DataLink) -> Rate| {
                let size = Bytes(pages * 4096);
                rate(&link, size, DataLink::Bursts) / rate(&link, size, DataLink::Directional)
            };
            prop_assert_eq!(gain(write_rate), 1.0);
            prop_assert!((1.0 - 1e-12..1.012).contains(&gain(both_rate)), "{}", gain(both_rate));
        }

        /// Without a data-link charge, a larger payload never makes whole transfers slower. With a charge it may,
        /// because the limit of answers falls from 256 to 512 bytes. A charge never makes transfers faster. No rate
        /// exceeds the raw rate.
        #[test]
        fn rate__is_monotone_and_bounded(link in any_link(), pages in 1..64u64) {
            let size = Bytes(pages * 4096);
            for rate in [write_rate, read_rate, both_rate] {
                let ignored = rate(&link, size, DataLink::Ignored);
                prop_assert!(ignored < link.raw());
                for data_link in [DataLink::Directional, DataLink::Bursts, DataLink::Symmetric] {
                    prop_assert!(rate(&link, size, data_link) < ignored);
                }
                let bursts = rate(&link, size, DataLink::Bursts);
                prop_assert!(bursts.bytes_per_s() >= rate(&link, size, DataLink::Directional).bytes_per_s() * (1.0 - 1e-12));
                if let Ok(larger) = link.with_max_payload(u64::from(link.max_payload()) * 2) {
                    prop_assert!(rate(&larger, size, DataLink::Ignored) >= ignored);
                }
            }
        }
    }
}
