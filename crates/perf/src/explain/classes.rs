//! What a function is, by the numbers in its configuration space.

/// Classes that are told more closely than by their first byte: class and subclass.
const SUBCLASSES: [(u16, &str); 15] = [
    (0x0106, "SATA controller"),
    (0x0108, "non-volatile memory controller"),
    (0x0200, "Ethernet controller"),
    (0x0207, "InfiniBand controller"),
    (0x0300, "VGA controller"),
    (0x0302, "3D controller"),
    (0x0600, "host bridge"),
    (0x0601, "ISA bridge"),
    (0x0604, "PCI bridge"),
    (0x0680, "bridge"),
    (0x0800, "interrupt controller"),
    (0x0806, "IOMMU"),
    (0x0c03, "USB controller"),
    (0x0c05, "SMBus controller"),
    (0x0880, "system peripheral"),
];

/// Classes by their first byte.
const CLASSES: [(u8, &str); 17] = [
    (0x00, "device older than classes"),
    (0x01, "mass storage controller"),
    (0x02, "network controller"),
    (0x03, "display controller"),
    (0x04, "multimedia controller"),
    (0x05, "memory controller"),
    (0x06, "bridge"),
    (0x07, "communication controller"),
    (0x08, "system peripheral"),
    (0x09, "input device"),
    (0x0b, "processor"),
    (0x0c, "serial bus controller"),
    (0x0d, "wireless controller"),
    (0x10, "encryption controller"),
    (0x11, "signal processing controller"),
    (0x12, "processing accelerator"),
    (0x13, "instrumentation"),
];

/// What a class and its subclass (`0x0200`) are called (PCI Code and ID Assignment Specification).
pub fn class_name(class: u16) -> &'static str {
    let near = SUBCLASSES.iter().find(|(code, _)| *code == class);
    if let Some((_, name)) = near {
        return name;
    }
    let by_first = CLASSES
        .iter()
        .find(|(code, _)| u16::from(*code) == class >> 8);
    by_first.map_or("device of no class", |(_, name)| name)
}

/// Who makes virtio devices: software (Virtual I/O Device Specification 1.2, 4.1.2).
const VIRTIO_VENDOR: u16 = 0x1af4;
/// Numbers of such devices: the newer ones are their type and 0x1040.
const VIRTIO_DEVICES: std::ops::RangeInclusive<u16> = 0x1000..=0x107f;
const VIRTIO_NEWER: u16 = 0x1040;

/// Types of virtio devices (the same, chapter 5), and the older numbers of some.
const VIRTIO_TYPES: [(u16, Option<u16>, &str); 11] = [
    (1, Some(0x1000), "network device"),
    (2, Some(0x1001), "block device"),
    (3, Some(0x1003), "console"),
    (4, Some(0x1005), "source of randomness"),
    (5, Some(0x1002), "memory balloon"),
    (8, Some(0x1004), "SCSI host"),
    (9, Some(0x1009), "9P transport"),
    (16, None, "GPU"),
    (18, None, "input device"),
    (19, None, "socket"),
    (26, None, "file system"),
];

/// What a virtio device is, by vendor and device number; None where it is none.
pub fn virtio_name(vendor: u16, device: u16) -> Option<String> {
    if vendor != VIRTIO_VENDOR || !VIRTIO_DEVICES.contains(&device) {
        return None;
    }
    let is_it = |(kind, older, _): &&(u16, Option<u16>, &str)| {
        device == VIRTIO_NEWER + kind || Some(device) == *older
    };
    let name = VIRTIO_TYPES.iter().find(is_it).map_or("device", |t| t.2);
    Some(format!("virtio {name}"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn class__is_named_as_closely_as_it_is_known() {
        for (class, name) in [
            (0x0207, "InfiniBand controller"),
            (0x0280, "network controller"),
            (0x0600, "host bridge"),
            (0xffff, "device of no class"),
        ] {
            assert_eq!(class_name(class), name, "{class:x}");
        }
    }

    #[test]
    fn virtio__is_known_by_its_numbers() {
        let name = |device| virtio_name(0x1af4, device);
        assert_eq!(name(0x1041).as_deref(), Some("virtio network device"));
        assert_eq!(name(0x1000), name(0x1041));
        assert_eq!(name(0x1045).as_deref(), Some("virtio memory balloon"));
        assert_eq!(name(0x107f).as_deref(), Some("virtio device"));
        assert_eq!(name(0x1110), None);
        assert_eq!(virtio_name(0x8086, 0x1041), None);
    }
}
