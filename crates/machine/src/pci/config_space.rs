//! Parses the configuration space of a PCI function: 64 bytes without privileges, 256 or 4096 with them.
//!
//! Offsets and fields: PCI Local Bus Specification 3.0 chapter 6, PCI Express Base Specification chapter 7.

use super::function::{Aspm, CapabilityState, Errors, LinkShape, PciFunction, PortType, WakeTimes};

/// Bytes that are readable without privileges.
pub const HEADER: usize = 64;
/// Size of the space with the capabilities, in bytes.
const CAPABILITIES: usize = 256;
/// Largest length of a capability chain; a longer one is a cycle.
const CHAIN_MAX: usize = 64;

const EXPRESS: u8 = 0x10;
const ADVANCED_ERRORS: u16 = 0x0001;

struct ConfigBytes<'a>(&'a [u8]);

impl ConfigBytes<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        let bytes = self.0.get(at..at.checked_add(2)?)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Error for bytes that are too few for a configuration space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are too few for a configuration space, whose header has {HEADER}")]
pub struct TooShort(pub usize);

/// Adds the facts in the bytes to a function.
///
/// # Errors
/// The header is incomplete.
pub fn read(bytes: &[u8], function: &mut PciFunction) -> Result<(), TooShort> {
    if bytes.len() < HEADER {
        return Err(TooShort(bytes.len()));
    }
    if bytes.iter().all(|b| *b == 0xff) {
        function.answers = false;
        return Ok(());
    }
    let space = ConfigBytes(bytes);
    function.cache_line = space.byte(0x0c).map(|longs| u32::from(longs) * 4).filter(|b| *b > 0);
    function.latency_timer = space.byte(0x0d).map(u32::from);
    if space.byte(0x0e).map(|kind| kind & 0x7f) == Some(1) {
        function.secondary = space.byte(0x19);
    }
    let has_list = space.word(0x06).is_some_and(|status| status & 0x10 != 0);
    if !has_list {
        function.shown = CapabilityState::Absent;
        return Ok(());
    }
    if bytes.len() < CAPABILITIES {
        function.shown = CapabilityState::Denied;
        return Ok(());
    }
    let express = find_capability(&space, EXPRESS);
    function.shown = match express {
        Some(_) => CapabilityState::Registers,
        None => CapabilityState::Absent,
    };
    let _ = express.and_then(|at| read_express(&space, at, function));
    let errors = find_extended(&space, ADVANCED_ERRORS);
    let _ = errors.and_then(|at| read_advanced_errors(&space, at, function));
    Ok(())
}

fn find_capability(space: &ConfigBytes, wanted: u8) -> Option<usize> {
    let mut at = usize::from(space.byte(0x34)? & !3);
    for _ in 0..CHAIN_MAX {
        if at < HEADER {
            return None;
        }
        if space.byte(at)? == wanted {
            return Some(at);
        }
        at = usize::from(space.byte(at + 1)? & !3);
    }
    None
}

fn find_extended(space: &ConfigBytes, wanted: u16) -> Option<usize> {
    let mut at = CAPABILITIES;
    for _ in 0..CHAIN_MAX {
        let head = space.long(at)?;
        if head == 0 || head == u32::MAX {
            return None;
        }
        if head as u16 == wanted {
            return Some(at);
        }
        at = (head >> 20) as usize & !3;
        if at < CAPABILITIES {
            return None;
        }
    }
    None
}

/// Decodes 128 B times a power of two from three bits; the two largest codes are reserved.
fn size_of_code(code: u32) -> Option<u32> {
    (code < 6).then(|| 128 << code)
}

fn shape(register: u32) -> LinkShape {
    let (speed, lanes) = (register & 0xf, register >> 4 & 0x3f);
    LinkShape {
        generation: (1..=7).contains(&speed).then_some(speed as u8),
        lanes: [0, 1, 2, 4, 8, 12, 16, 32].contains(&lanes).then_some(lanes),
    }
}

fn read_express(space: &ConfigBytes, at: usize, function: &mut PciFunction) -> Option<()> {
    let flags = space.word(at + 0x02)?;
    function.port = PortType::from_code((flags >> 4 & 0xf) as u8);
    let [dev_cap, link_cap] = [space.long(at + 0x04)?, space.long(at + 0x0c)?];
    let [dev_ctl, dev_sta, link_ctl, link_sta] =
        [0x08, 0x0a, 0x10, 0x12].map(|offset| space.word(at + offset).map_or(0, u32::from));
    function.payload_can = size_of_code(dev_cap & 7);
    function.payload_is = size_of_code(dev_ctl >> 5 & 7);
    function.read_request = size_of_code(dev_ctl >> 12 & 7);
    function.relaxed_order = Some(dev_ctl & 1 << 4 != 0);
    let tags = |extended: bool| Some(if extended { 256 } else { 32 });
    function.tags_can = tags(dev_cap & 1 << 5 != 0);
    function.tags_is = tags(dev_ctl & 1 << 8 != 0);
    function.errors = Errors {
        corrected: Some(dev_sta & 1 != 0),
        uncorrected: Some(dev_sta & 0b110 != 0),
        ..function.errors
    };
    // An integrated endpoint has no link, and zeros instead of the link's registers.
    if function.port != Some(PortType::Integrated) {
        function.link_can = shape(link_cap);
        function.link_is = shape(link_sta);
        function.rcb = Some(if link_ctl & 1 << 3 != 0 { 128 } else { 64 });
        function.aspm_is = Some(Aspm::from_bits(link_ctl));
        function.retrained = Some(link_sta & 1 << 14 != 0);
        function.wake = read_wake_times(dev_cap, link_cap, function.port);
    }
    if flags & 0xf >= 2 {
        read_second(space, at, function);
    }
    Some(())
}

/// Reads the registers that version 2 of the capability added.
fn read_second(space: &ConfigBytes, at: usize, function: &mut PciFunction) -> Option<()> {
    if space.long(at + 0x24)? & 1 << 17 != 0 {
        function.tags_can = Some(768);
    }
    if space.word(at + 0x28)? & 1 << 12 != 0 {
        function.tags_is = Some(768);
    }
    let target = space.word(at + 0x30)? & 0xf;
    function.link_target = (1..=7).contains(&target).then_some(target as u8);
    Some(())
}

/// Decodes times from three bits, formatted as by `lspci`.
fn read_wake_times(dev_cap: u32, link_cap: u32, port: Option<PortType>) -> WakeTimes {
    const L0S: &str = "<64ns <128ns <256ns <512ns <1us <2us <4us unlimited";
    const L1: &str = "<1us <2us <4us <8us <16us <32us <64us unlimited";
    let word =
        |table: &str, code: u32| table.split(' ').nth((code & 7) as usize).map(str::to_owned);
    let is_endpoint = port == Some(PortType::Endpoint);
    let can = Aspm::from_bits(link_cap >> 10);
    WakeTimes {
        accepts_l0s: word(L0S, dev_cap >> 6).filter(|_| is_endpoint),
        accepts_l1: word(L1, dev_cap >> 9).filter(|_| is_endpoint),
        takes_l0s: word(L0S, link_cap >> 12).filter(|_| can.l0s),
        takes_l1: word(L1, link_cap >> 15).filter(|_| can.l1),
    }
}

fn read_advanced_errors(space: &ConfigBytes, at: usize, function: &mut PciFunction) -> Option<()> {
    // Receiver error, bad TLP, bad DLLP, replay number rollover, replay timeout.
    const OF_LINK: u32 = 1 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 12;
    function.errors.corrected = Some(space.long(at + 0x10)? & OF_LINK != 0);
    let control = space.long(at + 0x18)?;
    function.ecrc = Some(control & 1 << 6 != 0);
    Some(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::pci::lspci;
    use fastpath_report::testing::parse_dump;

    fn read_new(bytes: &[u8]) -> PciFunction {
        let mut function = PciFunction::new("", "");
        read(bytes, &mut function).unwrap();
        function
    }

    macro_rules! pair {
        ($name:literal) => {
            (
                parse_dump(include_str!(concat!("samples/", $name, ".hex"))),
                include_str!(concat!("samples/", $name, ".txt")),
            )
        };
    }

    #[test]
    fn bytes__say_what_lspci_says_of_them() {
        for (bytes, text) in
            [pair!("connectx2"), pair!("gpu"), pair!("nvme"), pair!("root"), pair!("legacy")]
        {
            let mut from_text = lspci::parse(text).unwrap().remove(0);
            let mut from_bytes = read_new(&bytes);
            from_bytes.address.clone_from(&from_text.address);
            from_bytes.name.clone_from(&from_text.name);
            if from_text.shown == CapabilityState::CutOff {
                from_text.shown = CapabilityState::Absent;
            }
            assert_eq!(from_bytes, from_text);
        }
    }

    #[test]
    fn bytes__that_everyone_may_read_lack_the_capabilities() {
        let (bytes, _) = pair!("gpu");
        let f = read_new(&bytes[..HEADER]);
        assert_eq!((f.shown, f.cache_line), (CapabilityState::Denied, Some(64)));
        assert_eq!(f.link_is, LinkShape::default());
        let f = read_new(&bytes[..256]);
        assert_eq!((f.shown, f.ecrc), (CapabilityState::Registers, None));
        assert_eq!(f.link_is.lanes, Some(8));
    }

    #[test]
    fn read_completion_boundary__is_64_or_128() {
        let (mut bytes, text) = pair!("gpu");
        assert_eq!(read_new(&bytes).rcb, Some(64));
        bytes[0x88] |= 1 << 3;
        assert_eq!(read_new(&bytes).rcb, Some(128));
        let text = text.replace("RCB 64", "RCB 128");
        assert_eq!(lspci::parse(&text).unwrap()[0].rcb, Some(128));
    }

    #[test]
    fn bytes__of_a_device_that_is_gone_and_too_few() {
        assert!(!read_new(&[0xff; 256]).answers);
        let error = read(&[0; 63], &mut PciFunction::new("", "")).unwrap_err();
        assert!(error.to_string().contains("63 bytes"), "{error}");
    }

    #[test]
    fn chains__that_go_in_a_circle_or_out_of_the_space_end() {
        let (mut bytes, _) = pair!("gpu");
        bytes[0x61] = 0x60;
        assert_eq!(read_new(&bytes).shown, CapabilityState::Absent);
        let (mut bytes, _) = pair!("gpu");
        bytes[0x103] = 0x10;
        bytes[0x102] = 0x01;
        assert_eq!(read_new(&bytes).ecrc, None);
        // A pointer into the space of ordinary capabilities, to bytes that look like an extended capability.
        let (mut bytes, _) = pair!("gpu");
        bytes[0x102] = 0x01;
        bytes[0x103] = 0x0c;
        bytes[0xc0] = ADVANCED_ERRORS as u8;
        assert_eq!(read_new(&bytes).ecrc, None);
        let (mut bytes, _) = pair!("gpu");
        bytes[0x34] = 0xfc;
        bytes[0xfc] = EXPRESS;
        let f = read_new(&bytes[..256]);
        assert_eq!((f.shown, f.payload_can), (CapabilityState::Registers, None));
    }
}
