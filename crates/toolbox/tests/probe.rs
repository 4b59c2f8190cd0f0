//! `fastpath explain probe` with a fake driver and GPU (`cuda/driver.c`): the calls, their order and the evaluation of
//! their times. It cannot show the behaviour of a real GPU.

#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn build_driver(test: &str) -> PathBuf {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("libcuda-{test}-{}.so", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/driver.c");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([made.as_os_str(), source.as_ref()])
        .output()
        .expect("cc starts");
    assert!(output.status.success(), "{output:?}");
    made
}

fn probe(driver: &Path, options: &[&str], fail: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(["explain", "probe", "--driver"])
        .arg(driver)
        .args(options)
        .env("FAKE_FAIL", fail)
        .output()
        .expect("the command starts")
}

#[test]
fn probe__measures_both_directions_and_gives_everything_back() {
    let driver = build_driver("whole");
    let sysfs =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sysfs-{}", std::process::id()));
    let device = sysfs.join("bus/pci/devices/0000:c1:00.0");
    std::fs::create_dir_all(&device).expect("a folder");
    for (name, text) in [
        ("current_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "16"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("max_link_width", "16"),
    ] {
        std::fs::write(device.join(name), text).expect("a file");
    }
    let place = sysfs.to_str().expect("a path");
    let output = probe(&driver, &["--json", "--sysfs", place], "");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("driver: 0 contexts, 0 buffers and modules left"), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(found.len(), 2);
    for (explanation, way) in found.iter().zip(["host to device", "device to host"]) {
        let title = explanation["title"].as_str().expect("a title");
        assert!(title.contains("A GPU that is none at 0000:c1:00.0"), "{title}");
        assert!(title.contains(way), "{title}");
        let inputs = explanation["inputs"].as_array().expect("inputs");
        let copies = inputs
            .iter()
            .filter(|i| i["name"].as_str().is_some_and(|n| n.starts_with("copies of")));
        assert_eq!(copies.count(), 6, "{inputs:?}");
        assert_eq!(inputs[0]["value"], "PCIe 5.0 x16 (32 GT/s)");
        let findings = explanation["findings"].as_array().expect("findings");
        let read = findings.iter().find(|f| f["id"] == "read-time");
        assert_eq!(read.expect("a time of a read")["kind"], "answer");
    }
    let _ = std::fs::remove_dir_all(sysfs);
    let _ = std::fs::remove_file(driver);
}

#[test]
fn probe__says_which_call_failed() {
    let driver = build_driver("failing");
    for call in ["cuInit", "cuMemAlloc", "cuMemcpyHtoD"] {
        let output = probe(&driver, &[], call);
        assert!(!output.status.success(), "{call}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("nothing was measured"), "{call}: {said}");
        assert!(said.contains("CUDA_ERROR_INVALID_VALUE"), "{call}: {said}");
        if call != "cuInit" {
            assert!(said.contains("0 contexts, 0 buffers"), "{call}: {said}");
        }
    }
    // If the reads of the GPU cannot be measured, the copies alone are reported.
    for (call, why) in
        [("cuModuleLoadData", "cuModuleLoadData"), ("chase", "did not follow the chain")]
    {
        let output = probe(&driver, &["--pcie", "5.0x16"], call);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("were not measured") && flat.contains(why), "{flat}");
    }
    let output = probe(&driver, &["--gpu", "1"], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no GPU 1; the driver has 1"), "{said}");
    let _ = std::fs::remove_file(driver);
}
