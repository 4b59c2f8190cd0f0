//! The facts about one PCI function, from the text of `lspci` or the kernel's files.
//!
//! A field that the source did not show is None: nothing here is a default.

use fastpath_pcie::{Generation, Lanes, Link};

/// Generation and lanes of a link, each where it was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkShape {
    /// 1 (2.5 GT/s) to 7 (128 GT/s).
    pub generation: Option<u8>,
    /// Lanes; 0 where nothing is connected.
    pub lanes: Option<u32>,
}

impl LinkShape {
    /// The link, where both of its parts are known and something is connected.
    pub fn link(self) -> Option<Link> {
        let generation = Generation::try_from(u32::from(self.generation?)).ok()?;
        let lanes = Lanes::try_from(self.lanes?).ok()?;
        Some(Link::new(generation, lanes))
    }

    /// The shape in words, as far as it is known.
    pub fn describe(self) -> String {
        match (self.generation, self.lanes) {
            (Some(g), Some(lanes)) => format!("PCIe {g}.0 x{lanes} ({})", rate_text(g)),
            (Some(g), None) => format!("PCIe {g}.0 ({}), lanes unknown", rate_text(g)),
            (None, Some(lanes)) => format!("x{lanes}, speed unknown"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// What a function is on the bus (PCI Express Base Specification, device/port type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// An adapter.
    Endpoint,
    /// A function inside the processor's own complex: it has no link.
    Integrated,
    /// Where a link leaves the processor.
    Root,
    /// A switch, towards the processor.
    Upstream,
    /// A switch, towards an adapter.
    Downstream,
    /// To or from a bus of the older kind.
    Bridge,
}

impl Port {
    /// From the four bits of the capability register.
    pub fn from_code(code: u8) -> Option<Port> {
        Some(match code {
            0 | 1 => Port::Endpoint,
            4 => Port::Root,
            5 => Port::Upstream,
            6 => Port::Downstream,
            7 | 8 => Port::Bridge,
            9 | 10 => Port::Integrated,
            _ => return None,
        })
    }

    /// Whether the link that its registers describe leads towards the processor.
    pub fn faces_up(self) -> bool {
        matches!(self, Port::Endpoint | Port::Upstream | Port::Bridge)
    }
}

/// How much of the PCI Express capability was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Nothing says whether there is one: the text ends before.
    #[default]
    CutOff,
    /// All capabilities are listed, and it is not among them.
    Absent,
    /// The reader had no permission.
    Denied,
    /// It is named, and its registers are not listed.
    NameOnly,
    /// Some of its registers are there.
    Registers,
}

/// Power saving of an idle link: which states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aspm {
    /// The shallow state.
    pub l0s: bool,
    /// The deep state.
    pub l1: bool,
}

impl Aspm {
    /// From two bits: 1 is L0s, 2 is L1.
    pub fn from_bits(bits: u32) -> Aspm {
        Aspm { l0s: bits & 1 != 0, l1: bits & 2 != 0 }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match (self.l0s, self.l1) {
            (false, false) => "none",
            (true, false) => "L0s",
            (false, true) => "L1",
            (true, true) => "L0s and L1",
        }
    }
}

/// Longest times that an adapter tolerates until its link wakes, and that its link takes, as shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeTimes {
    /// DevCap: what the adapter tolerates, out of L0s.
    pub accepts_l0s: Option<String>,
    /// The same, out of L1.
    pub accepts_l1: Option<String>,
    /// LnkCap: what the link takes, out of L0s.
    pub takes_l0s: Option<String>,
    /// The same, out of L1.
    pub takes_l1: Option<String>,
}

/// Errors that the function has noted since they were last cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Corrected ones: a packet was sent again.
    pub corrected: Option<bool>,
    /// How many, where the kernel counts them.
    pub corrected_count: Option<u64>,
    /// Others.
    pub uncorrected: Option<bool>,
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// `[domain:]bus:device.function`; empty where the text begins below it.
    pub address: String,
    /// Class and name, as shown.
    pub name: String,
    /// Whether its registers can be read at all: false where every byte is ff.
    pub answers: bool,
    /// How much of the PCI Express capability was shown.
    pub shown: Shown,
    /// What it is on the bus.
    pub port: Option<Port>,
    /// The bus behind a bridge.
    pub secondary: Option<u8>,
    /// What the link could be, by this end.
    pub link_can: LinkShape,
    /// What it was trained to.
    pub link_is: LinkShape,
    /// The speed that software asks the link to have, as generation.
    pub link_target: Option<u8>,
    /// Whether the link was trained again since it came up, because it was asked to or because it was
    /// unreliable (LnkSta, BWMgmt; only ports that face down have it).
    pub retrained: Option<bool>,
    /// Largest payload of a packet that it could handle, bytes.
    pub payload_can: Option<u32>,
    /// The largest that it may send, bytes.
    pub payload_is: Option<u32>,
    /// Most that one read may ask for, bytes.
    pub read_request: Option<u32>,
    /// Boundary at which completions of reads may be cut, bytes.
    pub rcb: Option<u32>,
    /// Reads that it could have under way at once (32, 256 or 768 tags).
    pub tags_can: Option<u32>,
    /// Reads that it may have under way at once.
    pub tags_is: Option<u32>,
    /// Whether it may let packets overtake.
    pub relaxed_order: Option<bool>,
    /// Power saving that is switched on.
    pub aspm_is: Option<Aspm>,
    /// Times to wake.
    pub wake: WakeTimes,
    /// Whether it sends end-to-end checksums.
    pub ecrc: Option<bool>,
    /// Errors.
    pub errors: Errors,
    /// PCI's latency timer, clock ticks of a bus that is not there.
    pub latency_timer: Option<u32>,
    /// PCI's cache line size, bytes.
    pub cache_line: Option<u32>,
    /// Bits of the addresses that its driver lets it use for memory.
    pub dma_bits: Option<u32>,
    /// Node of memory that it is near to.
    pub numa_node: Option<u32>,
    /// Whether its addresses are translated on the way: true, or false where they are passed through.
    pub translated: Option<bool>,
    /// Power state, where it is not the full one.
    pub asleep: Option<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl Function {
    /// A function that answers, with nothing else known.
    pub fn new(address: &str, name: &str) -> Function {
        Function {
            address: address.to_owned(),
            name: name.to_owned(),
            answers: true,
            ..Function::default()
        }
    }

    /// The number of its bus; None where the address is not known.
    pub fn bus(&self) -> Option<u8> {
        let (before, _) = self.address.rsplit_once(':')?;
        let bus = before.rsplit(':').next()?;
        u8::from_str_radix(bus, 16).ok()
    }

    /// The domain of its address, `0000` where none is written.
    pub fn domain(&self) -> &str {
        match self.address.split(':').collect::<Vec<_>>().as_slice() {
            [domain, _, _] => domain,
            _ => "0000",
        }
    }

    /// Whether another function is of the same card: all of its address but the function is the same.
    pub fn is_sibling(&self, other: &Function) -> bool {
        let card = |f: &Function| {
            let (card, _) = f.address.rsplit_once('.')?;
            Some((
                f.domain().to_owned(),
                card.rsplit(':').nth(1)?.to_owned(),
                card.rsplit(':').next()?.to_owned(),
            ))
        };
        self.address != other.address && card(self).is_some() && card(self) == card(other)
    }

    /// Whether it is a virtio device, which the software of a hypervisor plays.
    pub fn is_virtio(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.contains("virtio") || name.contains("[1af4:10")
    }

    /// Whether it is where the buses meet the processor.
    pub fn is_host_bridge(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.starts_with("host bridge")
    }

    /// What the name says about the link (`PCIe 2.0 5GT/s`, `PCIe 2.0 x8`), if no register does.
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

/// The generation that signals at `gt_per_s` GT/s.
pub fn generation_of_rate(gt_per_s: f64) -> Option<u8> {
    Generation::of_speed(gt_per_s).map(Generation::number)
}

/// Signalling of a generation, as `lspci` writes it: `5 GT/s`.
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
        let f = Function::new("0001:c4:00.0", "");
        assert_eq!((f.bus(), f.domain()), (Some(0xc4), "0001"));
        let f = Function::new("41:00.0", "");
        assert_eq!((f.bus(), f.domain()), (Some(0x41), "0000"));
        assert_eq!(Function::default().bus(), None);
    }

    #[test]
    fn siblings__share_all_but_the_function() {
        let sibling = |a: &str, b: &str| Function::new(a, "").is_sibling(&Function::new(b, ""));
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
            let told = Function::new("", name).link_by_name();
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
