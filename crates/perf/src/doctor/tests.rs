//! Examinations of made-up machines: trees of files as the kernel shows them.
#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::library::{Driver, Libraries};
use super::limits::Limits;
use super::troubles::Severity;
use super::*;

/// A machine's files in a folder of its own, removed at the end.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("doctor-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Tree { root }
    }

    fn write(&self, path: &str, text: &str) -> &Tree {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn link(&self, path: &str, target: &str) -> &Tree {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.root.join(target), path).unwrap();
        self
    }

    /// An adapter on a bus with one active port of 100 Gb/s, in which nothing is wrong.
    fn with_adapter(&self) -> &Tree {
        let bus = "sys/bus/pci/devices/0000:3b:00.0";
        for (file, text) in [
            ("class", "0x020700"),
            ("vendor", "0x15b3"),
            ("device", "0x1017"),
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("max_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("numa_node", "0"),
            ("infiniband/mlx5_0/name", ""),
        ] {
            self.write(&format!("{bus}/{file}"), text);
        }
        self.write("drivers/mlx5_core/x", "")
            .link(&format!("{bus}/driver"), "drivers/mlx5_core")
            .link("sys/class/infiniband/mlx5_0/device", bus)
            .write("sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000")
            .write(
                "sys/class/infiniband/mlx5_0/node_guid",
                "b859:9f03:00aa:bb01",
            )
            .write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
            .write("sys/class/infiniband_verbs/abi_version", "6")
            .write("dev/infiniband/uverbs0", "");
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "InfiniBand"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("gids/0", "fe80:0000:0000:0000:b859:9f03:00aa:bb01"),
            ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("gid_attrs/types/0", "IB/RoCE v1"),
        ] {
            self.write(&format!("{port}/{file}"), text);
        }
        self
    }

    /// Its facts, with a library that offers all of its devices.
    fn facts(&self) -> Facts {
        let mut devices = devices::list(&self.root);
        for device in &mut devices {
            device.opened = Some(Ok(()));
        }
        Facts {
            libraries: Libraries {
                path: Some("/usr/lib/libibverbs.so.1".into()),
                offered: devices.iter().map(|d| d.name.clone()).collect(),
                ..Libraries::default()
            },
            undriven: devices::list_undriven(&self.root),
            limits: Limits {
                locked: None,
                locked_most: None,
                privileged: false,
            },
            devices,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Asserts that there is one trouble, in which all of `words` occur, and of which text and verdict say so.
fn assert_one(facts: Facts, severity: Severity, words: &[&str]) {
    let examination = Examination::of(facts);
    let said: Vec<String> = examination
        .troubles
        .iter()
        .map(|t| {
            format!(
                "{:?} {}: {} remedy: {}",
                t.severity, t.subject, t.what, t.remedy
            )
        })
        .collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!(examination.troubles[0].severity, severity, "{said:?}");
    for word in words {
        assert!(said[0].contains(word), "no {word:?} in {}", said[0]);
    }
    assert_eq!(examination.healthy, severity == Severity::Note);
    let text = text_of(&examination);
    assert!(text.contains(&examination.troubles[0].what), "{text}");
    assert!(text.contains(&examination.troubles[0].remedy), "{text}");
}

fn text_of(examination: &Examination) -> String {
    let mut out = Vec::new();
    show::print(&mut out, examination).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn adapter__without_trouble_is_described() {
    let tree = Tree::new("fine");
    let examination = Examination::of(tree.with_adapter().facts());
    assert!(examination.healthy, "{:?}", examination.troubles);
    assert_eq!(examination.troubles, []);
    let text = text_of(&examination);
    for words in [
        "device mlx5_0",
        "mlx5_core",
        "16.35.2000",
        "0000:3b:00.0: 8.0 GT/s PCIe x16",
        "/dev/infiniband/uverbs0",
        "ACTIVE (LinkUp), InfiniBand, 100 Gb/sec (4X EDR)",
        "GID 0",
        "fe80:0000:0000:0000:b859:9f03:00aa:bb01",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(!text.contains("GID 1 "), "an empty row is shown\n{text}");
    assert!(text.ends_with("\nhealthy\n"), "{text}");
}

#[test]
fn nothing__is_healthy_and_says_what_runs() {
    let tree = Tree::new("nothing");
    let examination = Examination::of(tree.facts());
    assert!(examination.healthy);
    assert!(text_of(&examination).contains("shared memory alone"));
}

#[test]
fn json__holds_what_the_text_says() {
    let tree = Tree::new("json");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    let value = serde_json::to_value(Examination::of(tree.facts())).unwrap();
    assert_eq!(value["healthy"], false);
    assert_eq!(value["devices"][0]["ports"][0]["state"], "DOWN");
    assert_eq!(value["troubles"][0]["severity"], "trouble");
    assert_eq!(value["limits"]["locked"], serde_json::Value::Null);
}

#[test]
fn port__that_is_down_is_trouble() {
    let tree = Tree::new("down");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
        .write(
            "sys/class/infiniband/mlx5_0/ports/1/phys_state",
            "2: Polling",
        );
    let words = ["mlx5_0 port 1", "DOWN (Polling)", "cable"];
    assert_one(tree.facts(), Severity::Trouble, &words);
}

#[test]
fn port__that_nobody_activates_lacks_a_subnet_manager() {
    let tree = Tree::new("init");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT");
    assert_one(tree.facts(), Severity::Trouble, &["INIT", "opensm"]);
}

#[test]
fn port__that_is_idle_beside_an_active_one_is_no_trouble() {
    let tree = Tree::new("second");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN");
    assert_eq!(Examination::of(tree.facts()).troubles, []);
}

#[test]
fn port__without_an_address_cannot_be_reached() {
    let tree = Tree::new("gid");
    tree.with_adapter().write(
        "sys/class/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:0000:0000:0000:0000",
    );
    assert_one(tree.facts(), Severity::Trouble, &["GID table is empty"]);
}

/// The adapter as one of Ethernet, whose interface has this MTU and its driver's files as given.
fn on_ethernet<'a>(tree: &'a Tree, mtu: &str, files: &[(&str, &str)]) -> &'a Tree {
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    tree.with_adapter()
        .write(&format!("{port}/link_layer"), "Ethernet")
        .write(&format!("{port}/gid_attrs/types/0"), "RoCE v2")
        .write(&format!("{port}/gid_attrs/ndevs/0"), "ens1")
        .write("sys/class/net/ens1/mtu", mtu);
    for (file, text) in files {
        tree.write(&format!("sys/class/net/ens1/{file}"), text);
    }
    tree
}

#[test]
fn interface__of_small_packets_costs_speed() {
    let tree = Tree::new("mtu");
    let mut facts = on_ethernet(&tree, "1500", &[]).facts();
    facts.devices[0].ports[0].mtu = Some([1024, 4096]);
    let words = [
        "1024 bytes, where 4096 would do",
        "MTU of ens1: 1500",
        "ip link set ens1 mtu 4176",
    ];
    assert_one(facts, Severity::Note, &words);
}

#[test]
fn interface__that_grew_since_has_to_be_taken_down_and_up() {
    let tree = Tree::new("grown");
    let mut facts = on_ethernet(&tree, "9000", &[]).facts();
    facts.devices[0].ports[0].mtu = Some([1024, 4096]);
    let words = ["where 4096 would fit (MTU of ens1: 9000)", "ens1 down"];
    assert_one(facts, Severity::Note, &words);
}

#[test]
fn packets__that_do_not_fit_through_their_interface_are_trouble() {
    let tree = Tree::new("mismatch");
    on_ethernet(&tree, "1500", &[]);
    let with = |active| {
        let mut facts = tree.facts();
        facts.devices[0].ports[0].mtu = Some([active, 4096]);
        facts
    };
    let words = [
        "4096 bytes, which do not fit",
        "MTU of ens1: 1500",
        "mtu 4176",
    ];
    assert_one(with(4096), Severity::Trouble, &words);
    assert_one(with(2048), Severity::Trouble, &["are lost"]);
    assert_one(with(1024), Severity::Note, &["1024 bytes"]);
}

#[test]
fn ethernet__without_flow_control_and_marks_loses_packets() {
    let ecn = |side: &str, on: &str| -> Vec<(String, String)> {
        (0..8)
            .map(|p| (format!("ecn/{side}/enable/{p}"), on.to_owned()))
            .collect()
    };
    let with = |name: &str, pfc: &str, marks: [&str; 2]| {
        let tree = Tree::new(name);
        let mut files = vec![("qos/pfc".to_owned(), pfc.to_owned())];
        files.extend(ecn("roce_np", marks[0]));
        files.extend(ecn("roce_rp", marks[1]));
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(f, t)| (f.as_str(), t.as_str()))
            .collect();
        let mut facts = on_ethernet(&tree, "9000", &files).facts();
        facts.devices[0].ports[0].mtu = Some([4096, 4096]);
        facts
    };
    let words = ["PFC", "ECN", "ens1", "mlnx_qos"];
    assert_one(
        with("lossy", "0,0,0,0,0,0,0,0", ["0", "0"]),
        Severity::Note,
        &words,
    );
    // Marks that nobody heeds are none.
    assert_one(
        with("half", "0,0,0,0,0,0,0,0", ["1", "0"]),
        Severity::Note,
        &words,
    );
    for (name, pfc, marks, said) in [
        (
            "pfc",
            "0,0,0,1,0,0,0,0",
            ["0", "0"],
            "paused (PFC)   priorities: 3\n",
        ),
        (
            "ecn",
            "0,0,0,0,0,0,0,0",
            ["1", "1"],
            "slowed (ECN)   priorities: 0, 1, 2",
        ),
    ] {
        let examination = Examination::of(with(name, pfc, marks));
        assert_eq!(examination.troubles, []);
        let text = text_of(&examination);
        assert!(text.contains(said), "{text}");
    }
    // What the driver does not show is not known, and no trouble.
    let tree = Tree::new("unknown");
    let facts = on_ethernet(&tree, "9000", &[("qos/pfc", "0,0,0,0,0,0,0,0")]).facts();
    assert_eq!(Examination::of(facts).troubles, []);
}

#[test]
fn gids__say_version_and_interface() {
    let tree = Tree::new("gids");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    on_ethernet(&tree, "9000", &[])
        .write(
            &format!("{port}/gids/2"),
            "0000:0000:0000:0000:0000:ffff:0a00:0001",
        )
        .write(&format!("{port}/gid_attrs/types/2"), "IB/RoCE v1")
        .write(&format!("{port}/gid_attrs/ndevs/2"), "ens1.7")
        .write("sys/class/infiniband/mlx5_0/board_id", "MT_0000000008");
    let text = text_of(&Examination::of(tree.facts()));
    for words in [
        "b859:9f03:00aa:bb01 RoCE v2 ens1\n",
        "0000:ffff:0a00:0001 IB/RoCE v1 ens1.7\n",
        "board            MT_0000000008",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

#[test]
fn ethernet__of_the_first_version_alone_does_not_route() {
    let tree = Tree::new("roce");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
    assert_one(tree.facts(), Severity::Note, &["no GID of RoCE v2"]);
}

#[test]
fn uverbs__that_are_missing_or_closed_are_trouble() {
    let tree = Tree::new("uverbs");
    tree.with_adapter();
    fs::remove_file(tree.root.join("dev/infiniband/uverbs0")).unwrap();
    let words = ["/dev/infiniband/uverbs0 cannot be opened", "--device"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    fs::remove_dir_all(tree.root.join("sys/class/infiniband_verbs")).unwrap();
    assert_one(tree.facts(), Severity::Trouble, &["modprobe ib_uverbs"]);
}

#[test]
fn bus__slower_than_the_port_is_trouble_and_otherwise_a_note() {
    let tree = Tree::new("bus");
    tree.with_adapter()
        .write("sys/bus/pci/devices/0000:3b:00.0/current_link_width", "8");
    // 8 lanes of 8 GT/s are 7.9 GB/s, 100 Gb/s are 12.5.
    let words = ["x8 (7.9 GB/s)", "x16 (15.8 GB/s)", "12.5 GB/s"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    tree.write(
        "sys/class/infiniband/mlx5_0/ports/1/rate",
        "56 Gb/sec (4X FDR)",
    );
    assert_one(tree.facts(), Severity::Note, &["7.0 GB/s"]);
}

/// A configuration space in which there is nothing but the PCI Express capability of an endpoint: its payloads and
/// read requests by their codes (128 B times a power of two).
fn express(payload_can: u8, payload_is: u16, read_request: u16) -> Vec<u8> {
    let mut space = vec![0; 256];
    (space[0x06], space[0x34]) = (0x10, 0x40);
    // PCI Express, the last one; version 2, endpoint; DevCap; DevCtl; LnkCap and LnkSta: 8 GT/s x16.
    space[0x40..0x44].copy_from_slice(&[0x10, 0, 0x02, 0]);
    space[0x44] = payload_can;
    space[0x48..0x4a].copy_from_slice(&(payload_is << 5 | read_request << 12).to_le_bytes());
    space[0x4c..0x4e].copy_from_slice(&0x0103_u16.to_le_bytes());
    space[0x52..0x54].copy_from_slice(&0x0103_u16.to_le_bytes());
    space
}

#[test]
fn bus__of_small_packets_and_small_reads_costs_speed() {
    let tree = Tree::new("requests");
    tree.with_adapter();
    let bus = tree.root.join("sys/bus/pci/devices/0000:3b:00.0");
    let with = |can, is, request| {
        fs::write(bus.join("config"), express(can, is, request)).unwrap();
        tree.facts()
    };
    let words = ["carry 128 bytes, of 512", "MaxPayload", "pcie_bus_perf"];
    assert_one(with(2, 0, 2), Severity::Note, &words);
    let words = ["asks for 128 bytes", "MaxReadReq", "setpci -s 0000:3b:00.0"];
    assert_one(with(2, 1, 0), Severity::Note, &words);
    let examination = Examination::of(with(2, 1, 2));
    assert_eq!(examination.troubles, []);
    let text = text_of(&examination);
    let said = "on the bus       packets of 256 B (it could: 512 B), reads of 512 B";
    assert!(text.contains(said), "{text}");
}

#[test]
fn bus__slower_than_the_adapter_says_what_the_slot_could() {
    for (name, slot_lanes, remedy) in [
        ("narrow", "8", "this one can do no more"),
        ("wide", "16", "seat the card anew"),
    ] {
        let tree = Tree::new(name);
        tree.with_adapter();
        // The adapter below a port, as it lies in the kernel's tree.
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
        let could = format!("the slot 0000:3a:00.0 could PCIe 3.0 x{slot_lanes}");
        assert_one(tree.facts(), Severity::Trouble, &[&could, remedy]);
    }
}

#[test]
fn adapter__without_a_device_lacks_its_driver() {
    let tree = Tree::new("undriven");
    tree.with_adapter();
    fs::remove_dir_all(
        tree.root
            .join("sys/bus/pci/devices/0000:3b:00.0/infiniband"),
    )
    .unwrap();
    fs::remove_dir_all(tree.root.join("sys/class/infiniband")).unwrap();
    let words = ["0000:3b:00.0", "0x15b3:0x1017", "mlx5_ib"];
    assert_one(tree.facts(), Severity::Trouble, &words);
    fs::remove_file(tree.root.join("sys/bus/pci/devices/0000:3b:00.0/driver")).unwrap();
    assert_one(tree.facts(), Severity::Trouble, &["modprobe mlx5_ib"]);
}

#[test]
fn device__that_the_library_does_not_offer_lacks_its_provider() {
    let tree = Tree::new("provider");
    let mut facts = tree.with_adapter().facts();
    facts.devices[0].opened = None;
    assert_one(
        facts,
        Severity::Trouble,
        &["no provider", "ibverbs-providers"],
    );
}

#[test]
fn library__that_is_missing_is_trouble_where_a_device_is() {
    let missing = || Libraries {
        problem: Some("no verbs library: not found; install libibverbs1".to_owned()),
        ..Libraries::default()
    };
    let tree = Tree::new("library");
    let mut facts = tree.facts();
    facts.libraries = missing();
    assert_one(facts, Severity::Note, &["remedy: install libibverbs1"]);
    let mut facts = tree.with_adapter().facts();
    facts.libraries = missing();
    assert_one(facts, Severity::Trouble, &["remedy: install libibverbs1"]);
}

#[test]
fn locked_memory__that_is_short_is_trouble_unless_privileged() {
    let tree = Tree::new("limits");
    let limited = |most, privileged| Limits {
        locked: Some(64 << 10),
        locked_most: most,
        privileged,
    };
    let mut facts = tree.with_adapter().facts();
    facts.limits = limited(Some(64 << 10), false);
    assert_one(facts, Severity::Trouble, &["64 KiB", "limits.d"]);
    let mut facts = tree.facts();
    facts.limits = limited(None, false);
    assert_one(facts, Severity::Trouble, &["ulimit -l unlimited"]);
    let mut facts = tree.facts();
    facts.limits = limited(Some(64 << 10), true);
    assert!(Examination::of(facts).healthy);
}

/// Lines as of /proc/self/maps.
fn maps(paths: &[&str]) -> String {
    let line = |path: &&str| format!("7f00-7f10 r-xp 00002000 fd:00 1234   {path}\n");
    paths.iter().map(line).collect()
}

#[test]
fn providers__are_found_in_memory_under_both_their_names() {
    let text = maps(&[
        "/usr/lib/libc.so.6",
        "/usr/lib/libibverbs.so.1.14.44.0",
        "/usr/lib/libibverbs/librxe-rdmav34.so",
        "/usr/lib/libibverbs/librxe-rdmav34.so",
        "/usr/lib/libmlx5.so.1.24.44.0",
        "/usr/lib/libmlx5_helper.so.1",
        "[heap]",
    ]);
    let found = library::find_providers(&text, &["mlx5", "rxe"]);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["ibverbs", "mlx5", "rxe"]);
    assert_eq!(
        found["rxe"],
        [Path::new("/usr/lib/libibverbs/librxe-rdmav34.so")]
    );
}

#[test]
fn two_copies__in_memory_are_trouble_with_both_paths() {
    let tree = Tree::new("copies");
    let mut facts = tree.with_adapter().facts();
    let text = maps(&[
        "/usr/lib/libmlx5.so.1.24.44.0",
        "/home/me/rdma-core/libmlx5-rdmav34.so",
    ]);
    facts.libraries.loaded = library::find_providers(&text, &["mlx5"]);
    let words = [
        "mlx5: two copies",
        "/usr/lib/libmlx5.so.1.24.44.0 and /home/me/rdma-core/libmlx5-rdmav34.so",
    ];
    assert_one(facts, Severity::Trouble, &words);
}

#[test]
fn two_copies__configured_are_trouble_before_they_are_loaded() {
    let tree = Tree::new("configured");
    tree.write("etc/libibverbs.d/mlx5.driver", "driver mlx5")
        .write("etc/libibverbs.d/README", "driver nonsense")
        .write("lib/libibverbs/libmlx5-rdmav34.so", "")
        .write("opt/libmlx5-rdmav34.so", "");
    let named = format!("driver {}/opt/libmlx5", tree.root.display());
    tree.write("etc/libibverbs.d/own.driver", &named);
    let library = tree.root.join("lib/libibverbs.so.1");
    let mut facts = tree.with_adapter().facts();
    facts.libraries.drivers = library::list_drivers(&tree.root, Some(&library));
    assert_one(
        facts,
        Severity::Trouble,
        &["mlx5: two copies", "/opt/libmlx5-rdmav34.so"],
    );
    // The same file by another name is one copy.
    fs::remove_file(tree.root.join("opt/libmlx5-rdmav34.so")).unwrap();
    tree.link(
        "opt/libmlx5-rdmav34.so",
        "lib/libibverbs/libmlx5-rdmav34.so",
    );
    let mut facts = tree.facts();
    facts.libraries.drivers = library::list_drivers(&tree.root, Some(&library));
    assert_eq!(Examination::of(facts).troubles, []);
}

#[test]
fn driver__whose_file_is_missing_is_trouble_if_it_is_a_path() {
    let tree = Tree::new("drivers");
    tree.write("etc/libibverbs.d/a.driver", "driver /opt/nowhere/libmlx5");
    let drivers = library::list_drivers(&tree.root, None);
    assert_eq!(
        drivers,
        [Driver {
            provider: "mlx5".to_owned(),
            named_in: tree.root.join("etc/libibverbs.d/a.driver"),
            file: None,
            by_path: true,
        }]
    );
    let mut facts = tree.facts();
    facts.libraries.drivers = drivers;
    assert_one(facts, Severity::Trouble, &["names the provider mlx5"]);
    tree.write("etc/libibverbs.d/a.driver", "driver mlx4");
    let mut facts = tree.facts();
    facts.libraries.drivers = library::list_drivers(&tree.root, None);
    assert_one(facts, Severity::Note, &["names the provider mlx4"]);
}

#[test]
fn this_machine__is_examined() {
    let examination = examine();
    let value = serde_json::to_value(&examination).unwrap();
    for section in ["devices", "libraries", "limits", "troubles", "healthy"] {
        assert!(value.get(section).is_some(), "{section}");
    }
    // tests/setup installs the library and its providers.
    assert!(examination.facts.libraries.path.is_some());
    assert!(
        examination
            .facts
            .libraries
            .drivers
            .iter()
            .any(|d| d.provider == "rxe" && d.file.is_some())
    );
}
