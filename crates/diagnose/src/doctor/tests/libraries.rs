//! The verbs library and its providers.

use std::path::Path;

use super::super::library::{self, Driver};
use super::*;

#[test]
fn device__that_the_library_does_not_offer_lacks_its_provider() {
    let tree = TestTree::new("provider");
    let mut facts = tree.with_adapter().facts();
    facts.devices[0].opened = None;
    assert_one(facts, Severity::Trouble, &["no provider", "ibverbs-providers"]);
}

#[test]
fn library__that_is_missing_is_trouble_where_a_device_is() {
    let missing = || Libraries {
        problem: Some("no verbs library: not found; install libibverbs1".to_owned()),
        ..Libraries::default()
    };
    let tree = TestTree::new("library");
    let mut facts = tree.facts();
    facts.libraries = missing();
    assert_one(facts, Severity::Note, &["remedy: install libibverbs1"]);
    // Without the library, its providers and devices are unknown.
    tree.write("etc/libibverbs.d/mlx5.driver", "driver mlx5");
    let mut facts = tree.with_adapter().facts();
    facts.devices[0].opened = None;
    facts.libraries = Libraries { drivers: library::list_drivers(&tree.root, None), ..missing() };
    assert_one(facts, Severity::Trouble, &["remedy: install libibverbs1"]);
}

/// Lines of /proc/self/maps.
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
    assert_eq!(found["rxe"], [Path::new("/usr/lib/libibverbs/librxe-rdmav34.so")]);
}

#[test]
fn two_copies__in_memory_are_trouble_with_both_paths() {
    let tree = TestTree::new("copies");
    let mut facts = tree.with_adapter().facts();
    let text = maps(&["/usr/lib/libmlx5.so.1.24.44.0", "/home/me/rdma-core/libmlx5-rdmav34.so"]);
    facts.libraries.loaded = library::find_providers(&text, &["mlx5"]);
    let words = [
        "mlx5: this provider exists in more than one copy",
        "/usr/lib/libmlx5.so.1.24.44.0 and /home/me/rdma-core/libmlx5-rdmav34.so",
    ];
    assert_one(facts, Severity::Trouble, &words);
}

#[test]
fn two_copies__configured_are_trouble_before_they_are_loaded() {
    let tree = TestTree::new("configured");
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
        &["mlx5: this provider exists in more than one copy", "/opt/libmlx5-rdmav34.so"],
    );
    fs::remove_file(tree.root.join("opt/libmlx5-rdmav34.so")).unwrap();
    tree.link("opt/libmlx5-rdmav34.so", "lib/libibverbs/libmlx5-rdmav34.so");
    let mut facts = tree.facts();
    facts.libraries.drivers = library::list_drivers(&tree.root, Some(&library));
    assert_eq!(Examination::of(facts).diagnostics, []);
}

#[test]
fn driver__whose_file_is_missing_is_trouble_if_it_is_a_path() {
    let tree = TestTree::new("drivers");
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
