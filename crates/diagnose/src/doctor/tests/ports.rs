//! Ports, their addresses and their network interfaces.

use super::*;

#[test]
fn port__that_is_down_is_trouble() {
    let tree = TestTree::new("down");
    tree.with_adapter()
        .write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
        .write("sys/class/infiniband/mlx5_0/ports/1/phys_state", "2: Polling");
    let words = ["mlx5_0 port 1", "DOWN (Polling)", "cable"];
    assert_one(tree.facts(), Severity::Trouble, &words);
}

#[test]
fn port__that_stays_inactive__lacks_a_subnet_manager() {
    let tree = TestTree::new("init");
    tree.with_adapter().write("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT");
    assert_one(tree.facts(), Severity::Trouble, &["INIT", "opensm"]);
}

#[test]
fn port__that_is_idle_beside_an_active_one_is_no_trouble() {
    let tree = TestTree::new("second");
    tree.with_adapter().write("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN");
    assert_eq!(Examination::of(tree.facts()).diagnostics, []);
}

#[test]
fn port__without_an_address_cannot_be_reached() {
    let tree = TestTree::new("gid");
    tree.with_adapter().write(
        "sys/class/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:0000:0000:0000:0000",
    );
    assert_one(tree.facts(), Severity::Trouble, &["GID table is empty"]);
}

/// Makes the adapter an Ethernet one, with this MTU of its interface and these files of its driver.
fn on_ethernet<'a>(tree: &'a TestTree, mtu: &str, files: &[(&str, &str)]) -> &'a TestTree {
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
    let tree = TestTree::new("mtu");
    let mut facts = on_ethernet(&tree, "1500", &[]).facts();
    facts.devices[0].ports[0].mtu = Some([1024, 4096]);
    let words = [
        "1024 bytes, although the port can send 4096",
        "MTU of ens1: 1500",
        "ip link set ens1 mtu 4176",
    ];
    assert_one(facts, Severity::Note, &words);
}

#[test]
fn interface__that_grew_since_has_to_be_taken_down_and_up() {
    let tree = TestTree::new("grown");
    let mut facts = on_ethernet(&tree, "9000", &[]).facts();
    facts.devices[0].ports[0].mtu = Some([1024, 4096]);
    let words = ["although 4096 would fit (MTU of ens1: 9000)", "ens1 down"];
    assert_one(facts, Severity::Note, &words);
}

#[test]
fn packets__that_do_not_fit_through_their_interface_are_trouble() {
    let tree = TestTree::new("mismatch");
    on_ethernet(&tree, "1500", &[]);
    let with = |active| {
        let mut facts = tree.facts();
        facts.devices[0].ports[0].mtu = Some([active, 4096]);
        facts
    };
    let words = ["4096 bytes, more than the interface passes", "MTU of ens1: 1500", "mtu 4176"];
    assert_one(with(4096), Severity::Trouble, &words);
    assert_one(with(2048), Severity::Trouble, &["are lost"]);
    assert_one(with(1024), Severity::Note, &["1024 bytes"]);
}

#[test]
fn ethernet__without_flow_control_and_marks_loses_packets() {
    let ecn = |side: &str, on: &str| -> Vec<(String, String)> {
        (0..8).map(|p| (format!("ecn/{side}/enable/{p}"), on.to_owned())).collect()
    };
    let with = |name: &str, pfc: &str, marks: [&str; 2]| {
        let tree = TestTree::new(name);
        let mut files = vec![("qos/pfc".to_owned(), pfc.to_owned())];
        files.extend(ecn("roce_np", marks[0]));
        files.extend(ecn("roce_rp", marks[1]));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(f, t)| (f.as_str(), t.as_str())).collect();
        let mut facts = on_ethernet(&tree, "9000", &files).facts();
        facts.devices[0].ports[0].mtu = Some([4096, 4096]);
        facts
    };
    let words = ["PFC", "ECN", "ens1", "mlnx_qos"];
    assert_one(with("lossy", "0,0,0,0,0,0,0,0", ["0", "0"]), Severity::Note, &words);
    // Congestion notifications without reactions to them have no effect.
    assert_one(with("half", "0,0,0,0,0,0,0,0", ["1", "0"]), Severity::Note, &words);
    for (name, pfc, marks, said) in [
        ("pfc", "0,0,0,1,0,0,0,0", ["0", "0"], "paused (PFC)   priorities: 3\n"),
        ("ecn", "0,0,0,0,0,0,0,0", ["1", "1"], "slowed (ECN)   priorities: 0, 1, 2"),
    ] {
        let examination = Examination::of(with(name, pfc, marks));
        assert_eq!(examination.diagnostics, []);
        let text = text_of(&examination);
        assert!(text.contains(said), "{text}");
    }
    // Settings that the driver does not report are unknown, and no problem.
    let tree = TestTree::new("unknown");
    let facts = on_ethernet(&tree, "9000", &[("qos/pfc", "0,0,0,0,0,0,0,0")]).facts();
    assert_eq!(Examination::of(facts).diagnostics, []);
}

#[test]
fn gids__say_version_and_interface() {
    let tree = TestTree::new("gids");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    on_ethernet(&tree, "9000", &[])
        .write(&format!("{port}/gids/2"), "0000:0000:0000:0000:0000:ffff:0a00:0001")
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
    let tree = TestTree::new("roce");
    tree.with_adapter().write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
    assert_one(tree.facts(), Severity::Note, &["no GID of RoCE v2"]);
}
