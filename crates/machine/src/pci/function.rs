//! Facts about one PCI function, from the text of `lspci` or the kernel's files.
//!
//! A field that the source did not show is None: there are no defaults.

use fastpath_pcie::{Generation, Lanes, Link};

/// Generation and lanes of a link, each if shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkShape {
    /// Generation, from 1 (2.5 GT/s) to 7 (128 GT/s).
    pub generation: Option<u8>,
    /// Number of lanes; 0 if nothing is connected.
    pub lanes: Option<u32>,
}

impl LinkShape {
    /// Returns the link, if both values are known and something is connected.
    pub fn link(self) -> Option<Link> {
        let generation = Generation::try_from(u32::from(self.generation?)).ok()?;
        let lanes = Lanes::try_from(self.lanes?).ok()?;
        Some(Link::new(generation, lanes))
    }

    /// Describes the shape, as far as known.
    pub fn describe(self) -> String {
        match (self.generation, self.lanes) {
            (Some(g), Some(lanes)) => format!("PCIe {g}.0 x{lanes} ({})", rate_text(g)),
            (Some(g), None) => format!("PCIe {g}.0 ({}), lanes unknown", rate_text(g)),
            (None, Some(lanes)) => format!("x{lanes}, speed unknown"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// Role of a function on the bus (PCI Express Base Specification, device/port type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// An adapter.
    Endpoint,
    /// Integrated in the root complex, without a link.
    Integrated,
    /// Root port.
    Root,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
    /// Bridge to or from conventional PCI.
    Bridge,
}

impl PortType {
    /// Decodes the four bits of the capability register.
    pub fn from_code(code: u8) -> Option<PortType> {
        Some(match code {
            0 | 1 => PortType::Endpoint,
            4 => PortType::Root,
            5 => PortType::Upstream,
            6 => PortType::Downstream,
            7 | 8 => PortType::Bridge,
            9 | 10 => PortType::Integrated,
            _ => return None,
        })
    }

    /// Whether the link that its registers describe leads towards the processor.
    pub fn faces_up(self) -> bool {
        matches!(self, PortType::Endpoint | PortType::Upstream | PortType::Bridge)
    }
}

/// Visibility of the PCI Express capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapabilityState {
    /// Unknown: the text ends before the capability could appear.
    #[default]
    CutOff,
    /// All capabilities are listed, and this one is missing.
    Absent,
    /// The reader had no permission.
    Denied,
    /// The text names the capability, without its registers.
    NameOnly,
    /// Some registers of the capability are listed.
    Registers,
}

/// States of active state power management (ASPM) of an idle link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aspm {
    /// L0s, the shallow state.
    pub l0s: bool,
    /// L1, the deep state.
    pub l1: bool,
}

impl Aspm {
    /// Decodes two bits: 1 is L0s, 2 is L1.
    pub fn from_bits(bits: u32) -> Aspm {
        Aspm { l0s: bits & 1 != 0, l1: bits & 2 != 0 }
    }

    /// Names the states.
    pub fn name(self) -> &'static str {
        match (self.l0s, self.l1) {
            (false, false) => "none",
            (true, false) => "L0s",
            (false, true) => "L1",
            (true, true) => "L0s and L1",
        }
    }
}

/// Wake-up times of a link, as shown: the longest that an adapter tolerates, and the link's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeTimes {
    /// DevCap: tolerated time out of L0s.
    pub accepts_l0s: Option<String>,
    /// DevCap: tolerated time out of L1.
    pub accepts_l1: Option<String>,
    /// LnkCap: the link's time out of L0s.
    pub takes_l0s: Option<String>,
    /// LnkCap: the link's time out of L1.
    pub takes_l1: Option<String>,
}

/// Errors recorded since they were last cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Corrected errors: a packet was sent again.
    pub corrected: Option<bool>,
    /// Number of corrected errors, if the kernel counts them.
    pub corrected_count: Option<u64>,
    /// Uncorrected errors.
    pub uncorrected: Option<bool>,
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciFunction {
    /// `[domain:]bus:device.function`; empty if the text begins after it.
    pub address: String,
    /// Class and name, as shown.
    pub name: String,
    /// Whether the function's registers are readable: false if every byte is ff.
    pub answers: bool,
    /// Visibility of the PCI Express capability.
    pub shown: CapabilityState,
    /// Role on the bus.
    pub port: Option<PortType>,
    /// Bus number behind a bridge.
    pub secondary: Option<u8>,
    /// Fastest and widest link that this end supports.
    pub link_can: LinkShape,
    /// Negotiated link.
    pub link_is: LinkShape,
    /// Target speed set by software, as generation.
    pub link_target: Option<u8>,
    /// Whether the link was retrained since it came up, on request or because of errors (LnkSta, BWMgmt; only
    /// downstream ports have it).
    pub retrained: Option<bool>,
    /// Supported maximum payload, in bytes.
    pub payload_can: Option<u32>,
    /// Configured maximum payload, in bytes.
    pub payload_is: Option<u32>,
    /// Configured maximum read request, in bytes.
    pub read_request: Option<u32>,
    /// Read completion boundary, in bytes.
    pub rcb: Option<u32>,
    /// Supported number of outstanding reads (32, 256 or 768 tags).
    pub tags_can: Option<u32>,
    /// Enabled number of outstanding reads.
    pub tags_is: Option<u32>,
    /// Whether relaxed ordering is enabled.
    pub relaxed_order: Option<bool>,
    /// Enabled ASPM states.
    pub aspm_is: Option<Aspm>,
    /// Wake-up times.
    pub wake: WakeTimes,
    /// Whether the function sends end-to-end checksums (ECRC).
    pub ecrc: Option<bool>,
    /// Recorded errors.
    pub errors: Errors,
    /// Latency timer of conventional PCI, in clock ticks; meaningless on PCI Express.
    pub latency_timer: Option<u32>,
    /// Cache line size of conventional PCI, in bytes.
    pub cache_line: Option<u32>,
    /// Width of memory addresses that the function's driver allows, in bits.
    pub dma_bits: Option<u32>,
    /// Nearest NUMA node.
    pub numa_node: Option<u32>,
    /// Whether an IOMMU translates the function's addresses; false if they are passed through.
    pub translated: Option<bool>,
    /// Power state, if it is not full power.
    pub asleep: Option<String>,
    /// Facts that could not be read, with reasons.
    pub unread: Vec<String>,
}

impl PciFunction {
    /// Creates a function that answers and of which nothing else is known.
    pub fn new(address: &str, name: &str) -> PciFunction {
        PciFunction {
            address: address.to_owned(),
            name: name.to_owned(),
            answers: true,
            ..PciFunction::default()
        }
    }

    /// Returns the function's bus number; None if the address is unknown.
    pub fn bus(&self) -> Option<u8> {
        let (before, _) = self.address.rsplit_once(':')?;
        let bus = before.rsplit(':').next()?;
        u8::from_str_radix(bus, 16).ok()
    }

    /// Returns the domain of the function's address, `0000` if the address has none.
    pub fn domain(&self) -> &str {
        match self.address.split(':').collect::<Vec<_>>().as_slice() {
            [domain, _, _] => domain,
            _ => "0000",
        }
    }

    /// Whether another function is on the same card: the addresses differ only in the function.
    pub fn is_sibling(&self, other: &PciFunction) -> bool {
        let card = |f: &PciFunction| {
            let (card, _) = f.address.rsplit_once('.')?;
            Some((
                f.domain().to_owned(),
                card.rsplit(':').nth(1)?.to_owned(),
                card.rsplit(':').next()?.to_owned(),
            ))
        };
        self.address != other.address && card(self).is_some() && card(self) == card(other)
    }

    /// Whether the function is a virtio device, simulated by a hypervisor.
    pub fn is_virtio(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.contains("virtio") || name.contains("[1af4:10")
    }

    /// Whether the function is a host bridge, which connects the buses to the processor.
    pub fn is_host_bridge(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.starts_with("host bridge")
    }

    /// Returns the link that the name indicates (`PCIe 2.0 5GT/s`, `PCIe 2.0 x8`), for use without registers.
    pub fn link_by_name(&self) -> LinkShape {
        let told = self.name.split("PCIe ").nth(1).unwrap_or_default();
        let mut words = told.split_whitespace();
        let number = |word: &str, mark: &str, end: &str| {
            let digits = word.strip_prefix(mark).unwrap_or(word);
            digits.strip_suffix(end).unwrap_or(digits).parse().ok()
        };
        let first = words.next().and_then(|w| number(w, "Gen", ".0"));
        let lanes = words.next().filter(|w| w.starts_with('x'));
        LinkShape {
            generation: first.filter(|g| (1..=7).contains(g)).map(|g: u32| g as u8),
            lanes: lanes
                .and_then(|w| number(w, "x", ""))
                .filter(|l| [1, 2, 4, 8, 12, 16, 32].contains(l)),
        }
    }
}

/// Returns the generation with a signalling rate of `gt_per_s` GT/s.
pub fn generation_of_rate(gt_per_s: f64) -> Option<u8> {
    Generation::of_speed(gt_per_s).map(Generation::number)
}

/// Signalling rate of a generation, formatted as by `lspci`: `5 GT/s`.
pub fn rate_text(generation: u8) -> String {
    match Generation::try_from(u32::from(generation)) {
        Ok(generation) => format!("{} GT/s", generation.gt_per_s()),
        Err(_) => "unknown speed".to_owned(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn address__has_a_bus_and_a_domain() {
        let f = PciFunction::new("0001:c4:00.0", "");
        assert_eq!((f.bus(), f.domain()), (Some(0xc4), "0001"));
        let f = PciFunction::new("41:00.0", "");
        assert_eq!((f.bus(), f.domain()), (Some(0x41), "0000"));
        assert_eq!(PciFunction::default().bus(), None);
    }

    #[test]
    fn siblings__share_all_but_the_function() {
        let sibling =
            |a: &str, b: &str| PciFunction::new(a, "").is_sibling(&PciFunction::new(b, ""));
        assert!(sibling("41:00.0", "41:00.1") && sibling("0000:41:00.0", "41:00.1"));
        for (a, b) in
            [("41:00.0", "41:00.0"), ("41:00.0", "41:01.0"), ("41:00.0", "0001:41:00.1"), ("", "")]
        {
            assert!(!sibling(a, b), "{a} {b}");
        }
    }

    #[test]
    fn name__tells_a_link() {
        let by_name = |name: &str| {
            let told = PciFunction::new("", name).link_by_name();
            (told.generation, told.lanes)
        };
        let old = "MT26428 [ConnectX VPI PCIe 2.0 5GT/s - IB QDR / 10GigE]";
        assert_eq!(by_name(old), (Some(2), None));
        let new = "Dual Port 40Gb/s Adapter IC with PCIe 2.0 x8 5.0GT/s In...";
        assert_eq!(by_name(new), (Some(2), Some(8)));
        assert_eq!(by_name("NVMe SSD PCIe Gen4 x4"), (Some(4), Some(4)));
        for none in ["PCIe bridge", "PCIe 9.0", "PCIe ", "Ethernet Controller"] {
            assert_eq!(by_name(none), (None, None), "{none}");
        }
    }

    #[test]
    fn rates__are_those_of_the_generations() {
        assert_eq!(generation_of_rate(2.5), Some(1));
        assert_eq!(generation_of_rate(16.0), Some(4));
        assert_eq!(generation_of_rate(7.0), None);
        assert_eq!(rate_text(1), "2.5 GT/s");
        assert_eq!(rate_text(5), "32 GT/s");
        assert_eq!(rate_text(9), "unknown speed");
    }
}
