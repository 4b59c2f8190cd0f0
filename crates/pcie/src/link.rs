//! A negotiated PCIe link, and the bytes of each of its packets.
//!
//! Sources: PCI Express Base Specification (packet formats, encodings, the tables of limits for acknowledgements and
//! credit updates); pcie-bench (Neugebauer et al., SIGCOMM 2018) for which of these matter; UCX for its simpler rule.

use std::fmt;
use std::str::FromStr;

use crate::units::{GbPerS, Rate};

/// Error for an impossible value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    /// Name of the value: `lanes`, `maximum payload`.
    pub what: &'static str,
    /// The given value.
    pub found: String,
    /// The expected values.
    pub expected: &'static str,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: expected {}", self.what, self.found, self.expected)
    }
}

impl std::error::Error for LinkError {}

fn refuse(what: &'static str, found: impl fmt::Display, expected: &'static str) -> LinkError {
    LinkError { what, found: found.to_string(), expected }
}

/// A generation of PCIe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b.
    Gen1 = 1,
    /// 5 GT/s, 8b/10b.
    Gen2,
    /// 8 GT/s, 128b/130b.
    Gen3,
    /// 16 GT/s, 128b/130b.
    Gen4,
    /// 32 GT/s, 128b/130b.
    Gen5,
    /// 64 GT/s, flits of 256 bytes.
    Gen6,
    /// 128 GT/s, flits of 256 bytes.
    Gen7,
}

impl Generation {
    /// All generations.
    pub const ALL: [Generation; 7] = [
        Generation::Gen1,
        Generation::Gen2,
        Generation::Gen3,
        Generation::Gen4,
        Generation::Gen5,
        Generation::Gen6,
        Generation::Gen7,
    ];

    /// Number from 1 to 7.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Billions of transfers per second on a lane.
    pub fn gt_per_s(self) -> f64 {
        match self {
            Generation::Gen1 => 2.5,
            Generation::Gen2 => 5.0,
            Generation::Gen3 => 8.0,
            Generation::Gen4 => 16.0,
            Generation::Gen5 => 32.0,
            Generation::Gen6 => 64.0,
            Generation::Gen7 => 128.0,
        }
    }

    /// Share of the bits on a lane that carries bytes: 8 of 10, 128 of 130, 242 of 256.
    pub fn encoding(self) -> f64 {
        match self {
            Generation::Gen1 | Generation::Gen2 => 8.0 / 10.0,
            Generation::Gen3 | Generation::Gen4 | Generation::Gen5 => 128.0 / 130.0,
            Generation::Gen6 | Generation::Gen7 => 242.0 / 256.0,
        }
    }

    /// Name of the encoding.
    pub fn encoding_name(self) -> &'static str {
        match self {
            Generation::Gen1 | Generation::Gen2 => "8b/10b",
            Generation::Gen3 | Generation::Gen4 | Generation::Gen5 => "128b/130b",
            Generation::Gen6 | Generation::Gen7 => "flits, 242 of 256 bytes",
        }
    }

    /// Whether packets travel in flits of fixed size, which frame and acknowledge them.
    pub fn is_flit(self) -> bool {
        self >= Generation::Gen6
    }

    /// Finds the generation whose lanes run at `gt_per_s` GT/s, as printed by `lspci` and sysfs.
    pub fn of_speed(gt_per_s: f64) -> Option<Generation> {
        let at = |g: &Generation| (g.gt_per_s() - gt_per_s).abs() < 1e-3;
        Generation::ALL.into_iter().find(at)
    }

    /// Internal delay of a receiver before it answers, in symbol times; part of [`Link::answer_limit`].
    fn internal_delay(self) -> f64 {
        match self {
            Generation::Gen1 => 19.0,
            Generation::Gen2 => 70.0,
            _ => 115.0,
        }
    }
}

impl TryFrom<u32> for Generation {
    type Error = LinkError;
    fn try_from(number: u32) -> Result<Generation, LinkError> {
        let found = Generation::ALL.into_iter().find(|g| u32::from(g.number()) == number);
        found.ok_or_else(|| refuse("generation", number, "one from 1 to 7"))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.0", self.number())
    }
}

/// Number of lanes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lanes(u8);

impl Lanes {
    /// All widths.
    pub const ALL: [u8; 7] = [1, 2, 4, 8, 12, 16, 32];

    /// Number of lanes.
    pub fn count(self) -> u32 {
        u32::from(self.0)
    }
}

impl TryFrom<u32> for Lanes {
    type Error = LinkError;
    fn try_from(count: u32) -> Result<Lanes, LinkError> {
        let found = Lanes::ALL.into_iter().find(|&n| u32::from(n) == count);
        let expected = "x1, x2, x4, x8, x12, x16 or x32";
        found.map(Lanes).ok_or_else(|| refuse("lanes", format_args!("x{count}"), expected))
    }
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.0)
    }
}

/// Width of the device's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressWidth {
    /// Memory below 4 GiB: a header of 3 words.
    Bits32,
    /// Any memory: a header of 4 words.
    Bits64,
}

impl TryFrom<u32> for AddressWidth {
    type Error = LinkError;
    fn try_from(bits: u32) -> Result<AddressWidth, LinkError> {
        match bits {
            32 => Ok(AddressWidth::Bits32),
            64 => Ok(AddressWidth::Bits64),
            _ => Err(refuse("address width", bits, "32 or 64 bits")),
        }
    }
}

/// Bytes that are counted around a packet's header: framing, sequence number, link checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Framing of the specification. Up to generation 2: start, sequence number, checksum, end: 1 + 2 + 4 + 1 bytes.
    /// From generation 3: a start token of 4 bytes that holds the sequence number, and 4 of checksum. In flits:
    /// nothing.
    Specified,
    /// Framing of pcie-bench: 8 bytes in every generation.
    Eight,
    /// Framing of UCX: 8 bytes up to generation 2, 10 after it (the sequence number beside the token).
    Ucx,
}

/// A negotiated link. Created by [`Link::new`] and the `with_` functions, which check each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    generation: Generation,
    lanes: Lanes,
    max_payload: u32,
    max_read_request: u32,
    completion: u32,
    address: AddressWidth,
    ecrc: bool,
    framing: Framing,
}

const SIZES: &str = "a power of two from 128 to 4096 bytes";

fn check_size(what: &'static str, bytes: u64) -> Result<u32, LinkError> {
    match bytes {
        128 | 256 | 512 | 1024 | 2048 | 4096 => Ok(bytes as u32),
        _ => Err(refuse(what, bytes, SIZES)),
    }
}

impl Link {
    /// Creates a link with the settings of most hosts: a maximum payload of 256 bytes and read requests of 512.
    /// Completions have the maximum payload, addresses have 64 bits, and there is no ECRC.
    pub fn new(generation: Generation, lanes: Lanes) -> Link {
        Link {
            generation,
            lanes,
            max_payload: 256,
            max_read_request: 512,
            completion: 256,
            address: AddressWidth::Bits64,
            ecrc: false,
            framing: Framing::Specified,
        }
    }

    /// Sets the maximum payload (DevCtl MaxPayload) in bytes. The size of completions changes too, if it equals the old
    /// maximum or exceeds the new one.
    ///
    /// # Errors
    /// The value is not a power of two from 128 to 4096.
    pub fn with_max_payload(mut self, bytes: u64) -> Result<Link, LinkError> {
        let bytes = check_size("maximum payload", bytes)?;
        if self.completion == self.max_payload || self.completion > bytes {
            self.completion = bytes;
        }
        self.max_payload = bytes;
        Ok(self)
    }

    /// Sets the maximum read request (DevCtl MaxReadReq) in bytes.
    ///
    /// # Errors
    /// The value is not a power of two from 128 to 4096.
    pub fn with_max_read_request(mut self, bytes: u64) -> Result<Link, LinkError> {
        self.max_read_request = check_size("maximum read request", bytes)?;
        Ok(self)
    }

    /// Sets the size of a read completion in bytes. Memory may split its answers at the read completion boundary (64 or
    /// 128 bytes), or combine them up to the maximum payload.
    ///
    /// # Errors
    /// The value is not a power of two from 64 to the maximum payload.
    pub fn with_completion(mut self, bytes: u64) -> Result<Link, LinkError> {
        if !bytes.is_power_of_two() || bytes < 64 || bytes > u64::from(self.max_payload) {
            let expected = "a power of two from 64 bytes to the maximum payload";
            return Err(refuse("read completion", bytes, expected));
        }
        self.completion = bytes as u32;
        Ok(self)
    }

    /// Sets the width of addresses.
    pub fn with_address(mut self, address: AddressWidth) -> Link {
        self.address = address;
        self
    }

    /// Sets whether packets carry an end-to-end checksum (4 bytes).
    pub fn with_ecrc(mut self, ecrc: bool) -> Link {
        self.ecrc = ecrc;
        self
    }

    /// Sets the framing that is counted.
    pub fn with_framing(mut self, framing: Framing) -> Link {
        self.framing = framing;
        self
    }

    /// The generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The lanes.
    pub fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// Largest data of a packet, in bytes.
    pub fn max_payload(&self) -> u32 {
        self.max_payload
    }

    /// Largest read request, in bytes.
    pub fn max_read_request(&self) -> u32 {
        self.max_read_request
    }

    /// Size of a read completion, in bytes.
    pub fn completion(&self) -> u32 {
        self.completion
    }

    /// The width of addresses.
    pub fn address(&self) -> AddressWidth {
        self.address
    }

    /// Whether packets carry an end-to-end checksum.
    pub fn has_ecrc(&self) -> bool {
        self.ecrc
    }

    /// The framing that is counted.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Rate in one direction after the encoding.
    pub fn raw(&self) -> Rate {
        let lane = self.generation.gt_per_s() * self.generation.encoding();
        GbPerS(lane * f64::from(self.lanes.count())).into()
    }

    fn frame(&self) -> u32 {
        let framing = match self.framing {
            Framing::Specified if self.generation.is_flit() => 0,
            Framing::Ucx if self.generation >= Generation::Gen3 => 10,
            _ => 8,
        };
        framing + if self.ecrc { 4 } else { 0 }
    }

    /// Bytes around the data of a memory write.
    pub fn write_overhead(&self) -> u32 {
        self.frame() + self.request_header()
    }

    /// Bytes of a memory read request; it has no data.
    pub fn read_request(&self) -> u32 {
        self.frame() + self.request_header()
    }

    /// Bytes around the data of a read completion.
    pub fn completion_overhead(&self) -> u32 {
        self.frame() + 12
    }

    fn request_header(&self) -> u32 {
        match self.address {
            AddressWidth::Bits32 => 12,
            AddressWidth::Bits64 => 16,
        }
    }

    /// Largest number of symbol times between two acknowledgements, or two credit updates. The value is the base
    /// specification's formula behind its tables, `(payload + 28) * factor / lanes + delay`, rounded down. A symbol
    /// time is that of one byte on one lane.
    pub fn answer_limit(&self) -> u32 {
        let lanes = self.lanes.count();
        let factor = match self.max_payload {
            128 | 256 => match lanes {
                1..=4 => 1.4,
                8 => 2.5,
                _ => 3.0,
            },
            _ if lanes >= 12 => 2.0,
            _ => 1.0,
        };
        let packet = f64::from(self.max_payload + 28);
        (packet * factor / f64::from(lanes) + self.generation.internal_delay()).floor() as u32
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PCIe {} {}", self.generation, self.lanes)
    }
}

impl FromStr for Link {
    type Err = LinkError;

    /// Parses `2.0x8`, `5 x16`, `gen3x8`: a generation and a width; the rest as in [`Link::new`].
    fn from_str(text: &str) -> Result<Link, LinkError> {
        let expected = "a generation and a width, such as 2.0x8 or 5.0x16";
        let malformed = || refuse("link", format_args!("`{text}`"), expected);
        let (generation, lanes) = text.trim().split_once(['x', 'X']).ok_or_else(malformed)?;
        let generation = generation.trim();
        let generation = generation.strip_prefix("gen").unwrap_or(generation);
        let generation = generation.strip_suffix(".0").unwrap_or(generation);
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| malformed()),
            false => Err(malformed()),
        };
        let generation = Generation::try_from(number(generation.trim())?)?;
        Ok(Link::new(generation, Lanes::try_from(number(lanes.trim())?)?))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(text: &str) -> Link {
        text.parse().unwrap()
    }

    #[test]
    fn raw__is_gigabits_per_lane() {
        for (text, gb) in [
            ("1.0x1", 2.0),
            ("2.0x1", 4.0),
            ("3.0x1", 8.0 * 128.0 / 130.0),
            ("4.0x1", 16.0 * 128.0 / 130.0),
            ("5.0x1", 32.0 * 128.0 / 130.0),
            ("6.0x1", 64.0 * 242.0 / 256.0),
            ("7.0x1", 128.0 * 242.0 / 256.0),
            ("2.0x8", 32.0),
            ("5.0x16", 504.123),
        ] {
            let raw = link(text).raw().gb_per_s().0;
            assert!((raw / gb - 1.0).abs() < 1e-5, "{text}: {raw}");
        }
        assert_eq!(Generation::of_speed(8.0), Some(Generation::Gen3));
        assert_eq!(Generation::of_speed(10.0), None);
    }

    #[test]
    fn packets__cost_what_the_specification_says() {
        let long = link("2.0x8");
        assert_eq!((long.write_overhead(), long.read_request()), (24, 24));
        assert_eq!(long.completion_overhead(), 20);
        let short = long.with_address(AddressWidth::Bits32);
        assert_eq!((short.write_overhead(), short.completion_overhead()), (20, 20));
        assert_eq!(short.with_ecrc(true).write_overhead(), 24);
        assert_eq!(link("3.0x8").write_overhead(), 24);
        assert_eq!(link("3.0x8").with_framing(Framing::Ucx).write_overhead(), 26);
        assert_eq!(link("2.0x8").with_framing(Framing::Ucx).write_overhead(), 24);
        assert_eq!(link("6.0x8").write_overhead(), 16);
        assert_eq!(link("6.0x8").with_framing(Framing::Eight).write_overhead(), 24);
    }

    #[test]
    fn answer_limit__is_that_of_the_tables() {
        let limit = |text, mps| link(text).with_max_payload(mps).unwrap().answer_limit();
        for (text, of_128, of_256, of_512, of_4096) in [
            ("1.0x1", 237, 416, 559, 4143),
            ("1.0x4", 73, 118, 154, 1050),
            ("1.0x16", 48, 72, 86, 534),
            ("2.0x8", 118, 158, 137, 585),
            ("2.0x32", 84, 96, 103, 327),
            ("3.0x8", 163, 203, 182, 630),
            ("5.0x16", 144, 168, 182, 630),
        ] {
            let found = [128, 256, 512, 4096].map(|mps| limit(text, mps));
            assert_eq!(found, [of_128, of_256, of_512, of_4096], "{text}");
        }
    }

    #[test]
    fn impossible_links__are_refused_with_what_was_expected() {
        for (text, expected) in [
            ("2.0x3", "lanes x3: expected x1, x2, x4"),
            ("9.0x8", "generation 9: expected one from 1 to 7"),
            ("0x8", "generation 0"),
            ("2.0", "expected a generation and a width"),
            ("2.5x8", "expected a generation and a width"),
            ("-2x8", "expected a generation and a width"),
            ("2.0x", "expected a generation and a width"),
            ("2.0x99999999999", "expected a generation and a width"),
        ] {
            let error = text.parse::<Link>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let link = link("2.0x8");
        for bytes in [0, 64, 255, 300, 8192, u64::MAX] {
            let error = link.with_max_payload(bytes).unwrap_err().to_string();
            assert!(error.contains("a power of two from 128 to 4096"), "{error}");
            assert!(link.with_max_read_request(bytes).is_err());
        }
        for bytes in [0, 32, 96, 512] {
            assert!(link.with_completion(bytes).is_err(), "{bytes}");
        }
        assert!(AddressWidth::try_from(48).is_err());
    }

    proptest! {
        #[test]
        fn text__of_any_kind_is_a_link_or_refused(text in "\\PC{0,16}", shaped in "(gen)?[0-9.]{0,4}[xX ]{0,2}[0-9]{0,6}") {
            for text in [text, shaped] {
                if let Ok(link) = text.parse::<Link>() {
                    prop_assert!(link.raw().bytes_per_s() > 0.0);
                }
                let _ = text.parse::<crate::wire::Wire>();
            }
        }
    }

    #[test]
    fn completion__never_exceeds_the_maximum_payload() {
        let link = link("2.0x8").with_max_payload(512).unwrap();
        assert_eq!(link.completion(), 512);
        let small = link.with_completion(64).unwrap();
        assert_eq!(small.with_max_payload(128).unwrap().completion(), 64);
        assert_eq!(link.with_max_payload(128).unwrap().completion(), 128);
    }
}
