//! Devices in trees like the kernel's.

use std::os::unix::fs::symlink;

use fastpath_report::testing::parse_dump;

use super::*;

struct SysfsTree(PathBuf);

impl SysfsTree {
    fn new(name: &str) -> SysfsTree {
        let name = format!("fastpath-sysfs-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        SysfsTree(root)
    }

    /// Adds a function below others; `path` is like `pci0000:16/0000:16:00.0/0000:17:00.0`.
    fn add(&self, path: &str, config: &[u8], files: &[(&str, &str)]) -> PathBuf {
        let folder = self.0.join("devices").join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config"), config).unwrap();
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        let link = self.0.join("bus/pci/devices").join(last_name(&folder));
        symlink(&folder, link).unwrap();
        folder
    }

    fn name(&self, class: &str, name: &str, folder: &Path) -> PathBuf {
        let entry = self.0.join("class").join(class).join(name);
        fs::create_dir_all(&entry).unwrap();
        symlink(folder, entry.join("device")).unwrap();
        entry
    }
}

impl Drop for SysfsTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample(name: &str) -> Vec<u8> {
    parse_dump(match name {
        "gpu" => include_str!("../samples/gpu.hex"),
        "root" => include_str!("../samples/root.hex"),
        _ => include_str!("../samples/connectx2.hex"),
    })
}

const LINK: [(&str, &str); 4] = [
    ("current_link_speed", "16.0 GT/s PCIe"),
    ("current_link_width", "8"),
    ("max_link_speed", "16.0 GT/s PCIe"),
    ("max_link_width", "16"),
];

#[test]
fn device__is_read_with_the_ports_above_it() {
    let tree = SysfsTree::new("root");
    tree.add("pci0000:16/0000:16:00.0", &sample("root"), &[]);
    let files = [
        ("vendor", "0x10de"),
        ("device", "0x2204"),
        ("class", "0x030000"),
        ("numa_node", "1"),
        ("dma_mask_bits", "47"),
        ("iommu_group/type", "DMA-FQ"),
        ("power_state", "D0"),
        ("aer_dev_correctable", "RxErr 3\nBadTLP 4\nNonFatalErr 100\nTOTAL_ERR_COR 107"),
    ];
    let path = "pci0000:16/0000:16:00.0/0000:17:00.0";
    let folder = tree.add(path, &sample("gpu"), &files);
    tree.name("drm", "card0", &folder);
    for name in ["0000:17:00.0", "17:00.0", "card0"] {
        let subject = read_device(&tree.0, name).unwrap();
        let device = &subject.device;
        assert_eq!(device.address, "0000:17:00.0");
        assert_eq!(device.name, "VGA controller [0300] [10de:2204]");
        assert_eq!((device.link_is.lanes, device.link_can.lanes), (Some(8), Some(16)));
        assert_eq!(device.payload_is, Some(256));
        assert_eq!((device.numa_node, device.dma_bits), (Some(1), Some(47)));
        assert_eq!((device.translated, &device.asleep), (Some(true), &None));
        assert_eq!(device.errors.corrected_count, Some(7));
        assert_eq!(device.unread, Vec::<String>::new());
        let above: Vec<&str> = subject.above.iter().map(|f| f.address.as_str()).collect();
        assert_eq!(above, ["0000:16:00.0"]);
        assert_eq!(subject.above[0].port, Some(PortType::Root));
    }
}

#[test]
fn device__without_privileges_has_its_link_and_says_what_is_missing() {
    let tree = SysfsTree::new("user");
    let header = &sample("gpu")[..64];
    tree.add("pci0000:16/0000:16:00.0", &sample("root")[..64], &LINK);
    tree.add("pci0000:16/0000:16:00.0/0000:17:00.0", header, &LINK);
    let subject = read_device(&tree.0, "0000:17:00.0").unwrap();
    let device = &subject.device;
    assert_eq!((device.link_is.generation, device.link_is.lanes), (Some(4), Some(8)));
    assert_eq!((device.payload_is, device.shown), (None, CapabilityState::Registers));
    assert!(device.unread[0].contains("run as root"), "{:?}", device.unread);
    assert_eq!(subject.above[0].link_can.lanes, Some(16));
}

#[test]
fn adapter__is_known_by_its_own_name_and_its_network() {
    let tree = SysfsTree::new("adapter");
    let folder = tree.add("pci0000:40/0000:41:00.0", &sample("connectx2"), &[]);
    let entry = tree.name("infiniband", "mlx4_0", &folder);
    fs::create_dir_all(entry.join("ports/1")).unwrap();
    fs::write(entry.join("ports/1/rate"), "40 Gb/sec (4X QDR)\n").unwrap();
    fs::write(entry.join("ports/1/link_layer"), "InfiniBand\n").unwrap();
    let subject = read_device(&tree.0, "mlx4_0").unwrap();
    let (rate, name) = subject.network.unwrap();
    assert!((rate - 32.0).abs() < 1e-9, "{rate}");
    assert!(name.contains("mlx4_0") && name.contains("QDR"), "{name}");
    assert!(subject.siblings.is_empty());
    for function in ["0000:42:00.0", "0000:42:00.1"] {
        let folder = tree.add(&format!("pci0000:40/{function}"), &sample("connectx2"), &[]);
        let entry = tree.name("net", &format!("eth{}", &function[11..]), &folder);
        fs::write(entry.join("speed"), "25000\n").unwrap();
    }
    let subject = read_device(&tree.0, "eth1").unwrap();
    assert_eq!(subject.network, Some((25.0, "eth1: 25000 Mb/s".to_owned())));
    assert_eq!(subject.siblings, ["0000:42:00.0"]);
    fs::write(tree.0.join("class/net/eth1/speed"), "-1\n").unwrap();
    assert_eq!(read_device(&tree.0, "eth1").unwrap().network, None);
}

#[test]
fn adapter__of_a_virtual_machine_lies_below_its_function() {
    let tree = SysfsTree::new("virtio");
    let folder = tree.add("pci0000:00/0000:00:03.0", &sample("connectx2")[..64], &[]);
    let virtio = folder.join("virtio2");
    fs::create_dir_all(&virtio).unwrap();
    tree.name("net", "eth0", &virtio);
    let files = [("vendor", "0x1af4"), ("device", "0x1041"), ("class", "0x020000")];
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    let subject = read_device(&tree.0, "eth0").unwrap();
    assert_eq!(subject.device.address, "0000:00:03.0");
    // The device's registers are not readable, but the kernel has no file of a link, so the capability is absent.
    assert_eq!(subject.device.shown, CapabilityState::Absent);
    assert!(subject.device.name.contains("virtio network device"), "{}", subject.device.name);
    assert!(subject.device.is_virtio());
    let error = read_device(&tree.0, "eth1").unwrap_err().to_string();
    assert!(error.contains("names: eth0"), "{error}");
}

#[test]
fn virtual_function__shows_the_link_of_the_physical_one() {
    let tree = SysfsTree::new("virtual");
    let physical = tree.add("pci0000:40/0000:41:00.0", &sample("connectx2"), &[]);
    let mut empty = sample("connectx2");
    empty[0x6c..0x70].fill(0);
    empty[0x70..0x74].fill(0);
    let folder = tree.add("pci0000:40/0000:41:00.1", &empty, &[]);
    symlink(&physical, folder.join("physfn")).unwrap();
    let device = read_device(&tree.0, "41:00.1").unwrap().device;
    assert_eq!(device.link_is.lanes, Some(8));
    assert!(device.unread[0].contains("0000:41:00.0"), "{:?}", device.unread);
}

#[test]
fn names__that_are_none_or_unknown_are_refused() {
    let tree = SysfsTree::new("names");
    let folder = tree.add("pci0000:40/0000:41:00.0", &sample("connectx2"), &[]);
    tree.name("infiniband", "mlx4_0", &folder);
    let other = tree.0.join("devices/virtual/net");
    fs::create_dir_all(&other).unwrap();
    tree.name("net", "veth0", &other);
    for name in ["", "../../etc/passwd", ".", "..", "a b", "mlx4_0/ports"] {
        let error = read_device(&tree.0, name).unwrap_err().to_string();
        assert!(error.contains("is not a device name"), "{name}: {error}");
    }
    let error = read_device(&tree.0, "mlx5_7").unwrap_err().to_string();
    assert!(error.contains("mlx5_7") && error.contains("mlx4_0"), "{error}");
    assert!(!error.contains("veth0"), "{error}");
    let error = read_device(&tree.0, "veth0").unwrap_err().to_string();
    assert!(error.contains("has no PCI address"), "{error}");
    let error = read_device(Path::new("/proc/none"), "mlx5_0").unwrap_err();
    assert!(error.to_string().contains("names: none"), "{error}");
}

#[test]
fn files__with_nonsense_are_not_believed() {
    let tree = SysfsTree::new("nonsense");
    let files = [
        ("current_link_speed", "Unknown"),
        ("current_link_width", "4294967295"),
        ("max_link_speed", "\u{1b}[31m"),
        ("numa_node", "-1"),
        ("dma_mask_bits", "1e9"),
        ("power_state", "unknown"),
        ("vendor", "0x\u{1b}[31m"),
        ("aer_dev_correctable", "RxErr\nBadTLP -3"),
    ];
    tree.add("pci0000:40/0000:41:00.0", b"short", &files);
    let device = read_device(&tree.0, "0000:41:00.0").unwrap().device;
    assert_eq!((device.link_is, device.link_can), Default::default());
    assert_eq!((device.numa_node, device.dma_bits), (None, None));
    assert_eq!((device.name.as_str(), device.errors.corrected_count), ("", None));
    assert!(device.unread[0].contains("5 bytes"), "{:?}", device.unread);
}
