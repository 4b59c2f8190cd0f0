//! Adapters on their bus, and user-space access.

use super::*;

#[test]
fn uverbs__that_are_missing_or_closed_are_trouble() {
    let tree = TestTree::new("uverbs");
    tree.with_adapter();
    fs::remove_file(tree.root.join("dev/infiniband/uverbs0")).unwrap();
    let words = ["/dev/infiniband/uverbs0 cannot be opened", "--device"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    fs::remove_dir_all(tree.root.join("sys/class/infiniband_verbs")).unwrap();
    assert_one(tree.facts(), Severity::Trouble, &["modprobe ib_uverbs"]);
}

#[test]
fn bus__slower_than_the_port_is_trouble_and_otherwise_a_note() {
    let tree = TestTree::new("bus");
    tree.with_adapter().write("sys/bus/pci/devices/0000:3b:00.0/current_link_width", "8");
    // 8 lanes of 8 GT/s carry 7.9 GB/s; the port of 100 Gb/s needs 12.5 GB/s.
    let words = ["x8 (7.9 GB/s)", "x16 (15.8 GB/s)", "12.5 GB/s"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    tree.write("sys/class/infiniband/mlx5_0/ports/1/rate", "56 Gb/sec (4X FDR)");
    assert_one(tree.facts(), Severity::Note, &["7.0 GB/s"]);
}

/// A configuration space with only the PCI Express capability of an endpoint. Payloads and read requests are given by
/// their codes (128 B times a power of two).
fn express(payload_can: u8, payload_is: u16, read_request: u16) -> Vec<u8> {
    let mut space = vec![0; 256];
    (space[0x06], space[0x34]) = (0x10, 0x40);
    // The PCI Express capability, the last one of the chain; version 2, endpoint; DevCap; DevCtl; LnkCap and LnkSta: 8
    // GT/s x16.
    space[0x40..0x44].copy_from_slice(&[0x10, 0, 0x02, 0]);
    space[0x44] = payload_can;
    space[0x48..0x4a].copy_from_slice(&(payload_is << 5 | read_request << 12).to_le_bytes());
    space[0x4c..0x4e].copy_from_slice(&0x0103_u16.to_le_bytes());
    space[0x52..0x54].copy_from_slice(&0x0103_u16.to_le_bytes());
    space
}

#[test]
fn bus__of_small_packets_and_small_reads_costs_speed() {
    let tree = TestTree::new("requests");
    tree.with_adapter();
    let bus = tree.root.join("sys/bus/pci/devices/0000:3b:00.0");
    let with = |can, is, request| {
        fs::write(bus.join("config"), express(can, is, request)).unwrap();
        tree.facts()
    };
    let words = ["writes 128 bytes per packet, and supports 512", "MaxPayload", "pcie_bus_perf"];
    assert_one(with(2, 0, 2), Severity::Note, &words);
    let words = ["at most 128 bytes of memory per request", "MaxReadReq", "setpci -s 0000:3b:00.0"];
    assert_one(with(2, 1, 0), Severity::Note, &words);
    let examination = Examination::of(with(2, 1, 2));
    assert_eq!(examination.diagnostics, []);
    let text = text_of(&examination);
    let said = "on the bus       packets of 256 B (supports 512 B), reads of 512 B";
    assert!(text.contains(said), "{text}");
}

#[test]
fn bus__slower_than_the_adapter_says_what_the_slot_could() {
    for (name, slot_lanes, remedy) in
        [("narrow", "8", "a slot with more lanes"), ("wide", "16", "reseat the card")]
    {
        let tree = TestTree::new(name);
        tree.with_adapter();
        // The adapter below a port, as in the kernel's tree.
        let bus = tree.root.join("sys/bus/pci/devices/0000:3b:00.0");
        let port = tree.root.join("sys/devices/pci0000:3a/0000:3a:00.0");
        fs::create_dir_all(&port).unwrap();
        fs::rename(&bus, port.join("0000:3b:00.0")).unwrap();
        symlink(port.join("0000:3b:00.0"), &bus).unwrap();
        for (file, text) in [
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("max_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "8"),
            ("max_link_width", slot_lanes),
            ("class", "0x060400"),
        ] {
            tree.write(&format!("sys/devices/pci0000:3a/0000:3a:00.0/{file}"), text);
        }
        tree.write("sys/bus/pci/devices/0000:3b:00.0/current_link_width", "8");
        let could = format!("its slot 0000:3a:00.0 supports PCIe 3.0 x{slot_lanes}");
        assert_one(tree.facts(), Severity::Trouble, &[&could, remedy]);
    }
}

#[test]
fn adapter__without_a_device_lacks_its_driver() {
    let tree = TestTree::new("undriven");
    tree.with_adapter();
    fs::remove_dir_all(tree.root.join("sys/bus/pci/devices/0000:3b:00.0/infiniband")).unwrap();
    fs::remove_dir_all(tree.root.join("sys/class/infiniband")).unwrap();
    let words = ["0000:3b:00.0", "0x15b3:0x1017", "mlx5_ib"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    fs::remove_file(tree.root.join("sys/bus/pci/devices/0000:3b:00.0/driver")).unwrap();
    assert_one(tree.facts(), Severity::Trouble, &["modprobe mlx5_ib"]);
}

#[test]
fn device__that_jobs_are_told_to_use_is_there_with_its_port() {
    let tree = TestTree::new("wanted");
    tree.with_adapter();
    let with = |name: &str| Facts { wanted: Some(name.to_owned()), ..tree.facts() };
    for right in ["mlx5_0", "mlx5_0:1"] {
        assert_eq!(Examination::of(with(right)).diagnostics, []);
    }
    for (wrong, what) in [
        ("mlx5_1", "the host has no RDMA device mlx5_1"),
        ("mlx5_0:2", "mlx5_0 has no port 2"),
        ("mlx5_0:x", "'mlx5_0:x' is not the name of a device"),
        ("mlx5_0:", "'mlx5_0:' is not the name of a device"),
    ] {
        let subject = format!("FASTPATH_DEVICE={wrong}");
        let words = [subject.as_str(), what, "mlx5_0:1"];
        assert_one(with(wrong), Severity::Trouble, &words);
    }
    let refused =
        Facts { refused: Some("FASTPATH_TRANSPORTS leaves rc alone".to_owned()), ..tree.facts() };
    let words = ["end at once", "leaves rc alone", "unset it"];
    assert_one(refused, Severity::Trouble, &words);
    let without_network = |why: &str| {
        let mut facts = tree.facts();
        facts.network.problem = Some(why.to_owned());
        facts
    };
    let words = ["connected jobs", "not a range of ports", "unset it"];
    let wrong = without_network("FASTPATH_PORTS=\"abc\" is not a range of ports");
    assert_one(wrong, Severity::Trouble, &words);
    let meant = Examination::of(without_network("this host has no interface"));
    assert!(meant.healthy && meant.diagnostics.is_empty());
    let nowhere =
        Facts { wanted: Some("mlx5_0".to_owned()), ..TestTree::new("nothing_wanted").facts() };
    assert_one(nowhere, Severity::Trouble, &["unset FASTPATH_DEVICE; the host has no RDMA device"]);
}
