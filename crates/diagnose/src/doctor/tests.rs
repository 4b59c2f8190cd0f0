//! Examinations of simulated machines: file trees like the kernel's.
#![allow(non_snake_case)]

mod adapters;
mod libraries;
mod ports;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::diagnostics::Severity;
use super::library::Libraries;
use super::limits::Limits;
use super::*;

struct TestTree {
    root: PathBuf,
}

impl TestTree {
    fn new(name: &str) -> TestTree {
        let root = std::env::temp_dir().join(format!("doctor-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        TestTree { root }
    }

    fn write(&self, path: &str, text: &str) -> &TestTree {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn link(&self, path: &str, target: &str) -> &TestTree {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.root.join(target), path).unwrap();
        self
    }

    /// Adds a healthy adapter on a bus with one active port of 100 Gb/s.
    fn with_adapter(&self) -> &TestTree {
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
            .write("sys/class/infiniband/mlx5_0/node_guid", "b859:9f03:00aa:bb01")
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

    /// Facts of the machine, with a library that lists all of its devices.
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
            engines: Vec::new(),
            network: engines::EngineNetwork {
                addresses: vec!["192.0.2.7".into()],
                problem: None,
                ports: String::new(),
            },
            limits: Limits { locked: None, locked_most: None, privileged: false },
            devices,
            wanted: None,
            refused: None,
        }
    }
}

impl Drop for TestTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Asserts that there is one diagnostic, which contains all of `words`, and that text and verdict agree with it.
fn assert_one(facts: Facts, severity: Severity, words: &[&str]) {
    let examination = Examination::of(facts);
    let said: Vec<String> = examination
        .diagnostics
        .iter()
        .map(|t| format!("{:?} {}: {} remedy: {}", t.severity, t.subject, t.what, t.remedy))
        .collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!(examination.diagnostics[0].severity, severity, "{said:?}");
    for word in words {
        assert!(said[0].contains(word), "no {word:?} in {}", said[0]);
    }
    assert_eq!(examination.healthy, severity == Severity::Note);
    let text = text_of(&examination);
    assert!(text.contains(&examination.diagnostics[0].what), "{text}");
    assert!(text.contains(&examination.diagnostics[0].remedy), "{text}");
}

fn text_of(examination: &Examination) -> String {
    show::describe(examination).to_text()
}

#[test]
fn adapter__without_trouble_is_described() {
    let tree = TestTree::new("fine");
    let examination = Examination::of(tree.with_adapter().facts());
    assert!(examination.healthy, "{:?}", examination.diagnostics);
    assert_eq!(examination.diagnostics, []);
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
    assert!(text.starts_with("healthy\n"), "{text}");
}

#[test]
fn nothing__is_healthy_and_says_what_runs() {
    let tree = TestTree::new("nothing");
    let examination = Examination::of(tree.facts());
    assert!(examination.healthy);
    assert!(text_of(&examination).contains("TCP between hosts"));
}

#[test]
fn json__holds_what_the_text_says() {
    let tree = TestTree::new("json");
    tree.with_adapter().write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    let value = serde_json::to_value(Examination::of(tree.facts())).unwrap();
    assert_eq!(value["healthy"], false);
    assert_eq!(value["devices"][0]["ports"][0]["state"], "DOWN");
    assert_eq!(value["diagnostics"][0]["severity"], "trouble");
    assert_eq!(value["limits"]["locked"], serde_json::Value::Null);
}

#[test]
fn locked_memory__that_is_short_is_trouble_unless_privileged() {
    let tree = TestTree::new("limits");
    let limited =
        |most, privileged| Limits { locked: Some(64 << 10), locked_most: most, privileged };
    let mut facts = tree.with_adapter().facts();
    facts.limits = limited(Some(64 << 10), false);
    assert_one(facts, Severity::Trouble, &["64 KiB", "limits.d"]);
    let mut facts = tree.facts();
    facts.limits = limited(None, false);
    assert_one(facts, Severity::Trouble, &["ulimit -l unlimited"]);
    let mut facts = tree.facts();
    facts.limits = Limits { locked: Some(8 << 20), ..limited(None, false) };
    assert_one(facts, Severity::Note, &["8192 KiB", "ulimit -l unlimited"]);
    let mut facts = tree.facts();
    facts.limits = limited(Some(64 << 10), true);
    assert!(Examination::of(facts).healthy);
}

#[test]
fn this_machine__is_examined() {
    let examination = examine();
    let value = serde_json::to_value(&examination).unwrap();
    for section in ["devices", "libraries", "limits", "diagnostics", "healthy"] {
        assert!(value.get(section).is_some(), "{section}");
    }
    assert!(examination.facts.libraries.path.is_some());
    assert!(
        examination.facts.libraries.drivers.iter().any(|d| d.provider == "rxe" && d.file.is_some())
    );
}
