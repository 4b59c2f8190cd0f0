//! Kind of a function, by the numbers in its configuration space; the names are in `data/classes.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use fastpath_report::data::table;

#[derive(Deserialize)]
struct Classes {
    subclass: BTreeMap<String, String>,
    class: BTreeMap<String, String>,
    virtio: Vec<Virtio>,
}

#[derive(Deserialize)]
struct Virtio {
    r#type: u16,
    older: Option<u16>,
    name: String,
}

table!(CLASSES: Classes = "classes.toml");

/// Name of a class with its subclass (`0x0200`) (PCI Code and ID Assignment Specification).
pub fn class_name(class: u16) -> &'static str {
    let near = CLASSES.subclass.get(&format!("{class:04x}"));
    let found = near.or_else(|| CLASSES.class.get(&format!("{:02x}", class >> 8)));
    found.map_or("device of no class", String::as_str)
}

/// Vendor of virtio devices, which are software (Virtual I/O Device Specification 1.2, 4.1.2).
const VIRTIO_VENDOR: u16 = 0x1af4;
/// Device numbers of virtio; the newer ones are the type plus 0x1040.
const VIRTIO_DEVICES: std::ops::RangeInclusive<u16> = 0x1000..=0x107f;
const VIRTIO_NEWER: u16 = 0x1040;

/// Name of a virtio device, by vendor and device number; None for other devices.
pub fn virtio_name(vendor: u16, device: u16) -> Option<String> {
    if vendor != VIRTIO_VENDOR || !VIRTIO_DEVICES.contains(&device) {
        return None;
    }
    let is_it = |v: &&Virtio| device == VIRTIO_NEWER + v.r#type || Some(device) == v.older;
    let name = CLASSES.virtio.iter().find(is_it).map_or("device", |v| &v.name);
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
