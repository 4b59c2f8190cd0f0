//! Explanations of devices as printed by `lspci`.

use fastpath_machine::pci::lspci;

use super::super::FindingKind;
use super::*;
use crate::moves::MoveDirection;

fn subject(text: &str) -> DevicePath {
    DevicePath {
        device: lspci::parse(text).unwrap().remove(0),
        source: "lspci",
        ..DevicePath::default()
    }
}

const CONNECTX: &str = include_str!("../../../machine/src/pci/samples/connectx2-2012.txt");
const GPU: &str = include_str!("../../../machine/src/pci/samples/gpu.txt");

fn measured(text: &str) -> LinkOptions {
    LinkOptions { measured: Some(text.parse().unwrap()), ..LinkOptions::default() }
}

fn find<'a>(made: &'a Explanation, id: &str) -> &'a Finding {
    let found = made.findings.iter().find(|f| f.id == id);
    found.unwrap_or_else(|| panic!("no `{id}` in {:?}", ids(made)))
}

fn ids(made: &Explanation) -> Vec<&str> {
    made.findings.iter().map(|f| f.id.as_str()).collect()
}

fn input<'a>(made: &'a Explanation, name: &str) -> (&'a str, &'a str) {
    let found = made.inputs.iter().find(|i| i.name == name).unwrap();
    (&found.value, &found.source)
}

#[test]
fn connectx2__is_expected_to_reach_what_the_model_says() {
    let made = explain(&subject(CONNECTX), &measured("3552MiB/s")).unwrap();
    let titles: Vec<&str> = made.waterfalls.iter().map(|w| w.title.as_str()).collect();
    assert_eq!(titles.len(), 2);
    // 8 lanes of 5 GT/s carry 3814.7 MiB/s. A write adds 24 B to each 256 B, a read 20 B to each 256 B. Skips take
    // their share.
    let [write, read] = [&made.waterfalls[0], &made.waterfalls[1]];
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    let level = |made: &Waterfall, name: &str| {
        let step = made.steps.iter().find(|s| s.name == name);
        step.unwrap_or_else(|| panic!("no {name}")).level
    };
    assert!(near(level(write, "encoding"), 3814.7), "{write:?}");
    assert!(near(level(write, "packet headers"), 3487.7), "{write:?}");
    assert!(near(predicted(write), 3479.0), "{write:?}");
    assert!(near(level(read, "packet headers"), 3538.3), "{read:?}");
    assert_eq!(input(&made, "maximum payload"), ("256 B", "lspci: DevCtl"));
    assert_eq!(find(&made, "agrees").kind, FindingKind::Answer);
    assert!(!ids(&made).contains(&"payload"), "it is as large as it can be");
    // Packets to memory below 4 GiB have shorter headers. A device with 32-bit addresses reaches only that memory.
    let mut old = subject(CONNECTX);
    old.device.dma_bits = Some(32);
    let made = explain(&old, &LinkOptions::default()).unwrap();
    assert_eq!(input(&made, "addresses").0, "32 bits");
    let asked = LinkOptions {
        address: Some(32),
        direction: Some(MoveDirection::Write),
        ..measured("3552MiB/s")
    };
    let made = explain(&subject(CONNECTX), &asked).unwrap();
    assert_eq!(made.waterfalls.len(), 1);
    assert!(near(level(&made.waterfalls[0], "packet headers"), 3538.3));
}

#[test]
fn connectx2__cut_off_says_so_and_takes_what_is_given() {
    let cut = &CONNECTX[..CONNECTX.find("\tCapabilities: [60]").unwrap()];
    let made = explain(&subject(cut), &LinkOptions::default()).unwrap();
    assert!(made.waterfalls.is_empty());
    assert_eq!(find(&made, "cut-off").kind, FindingKind::Answer);
    let by_width = find(&made, "by-width");
    assert!(by_width.text.contains("PCIe 2.0"), "{by_width:?}");
    assert!(by_width.text.contains("x8: 3648 MB/s"), "{by_width:?}");
    let asked = LinkOptions {
        pcie: Some("2.0x8".parse().unwrap()),
        mps: Some(Bytes(256)),
        ..measured("3552MiB/s")
    };
    let made = explain(&subject(cut), &asked).unwrap();
    assert_eq!(input(&made, "maximum payload"), ("256 B", "given"));
    assert_eq!(input(&made, "maximum read request").1, "not shown: assumed");
    find(&made, "agrees");
    // A text that is truncated later has the link, but not the payload.
    let cut = &CONNECTX[..CONNECTX.find("\t\tDevCtl:").unwrap()];
    let made = explain(&subject(cut), &asked).unwrap();
    find(&made, "payload-not-shown");
}

#[test]
fn old_registers__are_said_to_have_no_effect() {
    let made = explain(&subject(CONNECTX), &LinkOptions::default()).unwrap();
    for (id, parts) in [
        ("latency-timer", ["`Latency: 0`", "no effect"]),
        ("cache-line-size", ["32 bytes", "no effect"]),
        ("latency-of-devcap", ["L0s <64ns, L1 unlimited", "not delay messages"]),
    ] {
        let found = find(&made, id);
        assert_eq!(found.kind, FindingKind::Note);
        for part in parts {
            let said = found.text.replace("no \n", "no ");
            assert!(said.contains(part), "{part}: {found:?}");
        }
    }
    let virtio = "00:03.0 Ethernet controller: Red Hat, Inc. Virtio 1.0 network device (rev \
        01)\n\tStatus: Cap+\n\tLatency: 0\n\t\
                  Capabilities: [40] Vendor Specific Information: VirtIO: CommonCfg\n\tKernel \
                  driver in use: virtio-pci\n";
    let made = explain(&subject(virtio), &LinkOptions::default()).unwrap();
    assert!(find(&made, "no-express").text.contains("virtio device"));
    assert!(find(&made, "latency-timer").text.contains("no effect"));
    let linked = virtio.replace("Kernel", "LnkSta: Speed 2.5GT/s, Width x1\n\tKernel");
    let made = explain(&subject(&linked), &LinkOptions::default()).unwrap();
    assert_eq!(find(&made, "played").kind, FindingKind::Caution);
    let legacy = include_str!("../../../machine/src/pci/samples/legacy.txt").to_owned()
        + "\tKernel driver in use: mgag200\n";
    let made = explain(&subject(&legacy), &LinkOptions::default()).unwrap();
    assert!(find(&made, "latency-timer").text.contains("`Latency: 64`"));
    assert!(find(&made, "no-express").why.contains("133 MB/s"));
    assert!(!ids(&made).contains(&"cache-line-size"));
}

#[test]
fn gpu__with_half_its_lanes_is_told_by_what_the_port_could() {
    let mut gpu = subject(GPU);
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    let steps: Vec<&str> = made.waterfalls[0].steps.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(steps[..3], ["signalling", "encoding", "negotiated link"]);
    assert!(find(&made, "fewer-lanes").text.contains("8 of the 16 lanes"));
    assert!(find(&made, "fewer-lanes").why.contains("was not shown"));
    gpu.above = lspci::parse(include_str!("../../../machine/src/pci/samples/root.txt")).unwrap();
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    let why = &find(&made, "fewer-lanes").why;
    assert!(why.contains("16:00.0, supports x16"), "{why}");
    gpu.above[0].link_can.lanes = Some(8);
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    let why = &find(&made, "fewer-lanes").why;
    assert!(why.contains("wired for x8"), "{why}");
    for id in ["corrected-errors", "aspm", "retrained"] {
        find(&made, id);
    }
}

#[test]
fn both__directions_are_held_against_their_sum() {
    let both =
        |figure: &str| LinkOptions { direction: Some(MoveDirection::Both), ..measured(figure) };
    let made = explain(&subject(CONNECTX), &both("6630MiB/s")).unwrap();
    assert_eq!(made.waterfalls.len(), 1);
    let link: Link = "2.0x8".parse().unwrap();
    let sum = fastpath_pcie::formulas::both_rate(&link, TRANSFER, DataLink::Directional) * 2.0;
    let found = predicted(&made.waterfalls[0]) / sum.mib_per_s().0;
    assert!((found - 1.0).abs() < 1e-9, "{found}");
    find(&made, "agrees");
    let made = explain(&subject(CONNECTX), &both("3315MiB/s")).unwrap();
    find(&made, "one-direction");
    // Reads in pieces of 64 B limit the sum of both directions.
    let made = explain(&subject(CONNECTX), &both("5724MiB/s")).unwrap();
    let first = made.findings.iter().find(|f| f.kind == FindingKind::Cause);
    assert!(first.unwrap().text.contains("64 B"), "{first:?}");
}

#[test]
fn agreement__with_a_link_that_could_be_more_says_so() {
    let made = explain(&subject(GPU), &measured("14.3GB/s")).unwrap();
    let found = find(&made, "agrees");
    assert!(found.text.contains("a faster link is possible"), "{found:?}");
    let mut card = subject(CONNECTX);
    card.siblings = (1..=6).map(|i| format!("41:00.{i}")).collect();
    let made = explain(&card, &measured("3479MiB/s")).unwrap();
    let found = find(&made, "agrees");
    assert!(found.text.contains("nothing is left"), "{found:?}");
    let shared = &find(&made, "shared-link").text;
    assert!(shared.contains("41:00.4 and 2 more"), "{shared}");
}

#[test]
fn speed__below_what_it_could_be_is_explained() {
    let slow = GPU.replace("LnkSta:\tSpeed 16GT/s", "LnkSta:\tSpeed 2.5GT/s (downgraded)");
    let mut gpu = subject(&slow);
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    let found = find(&made, "less-speed");
    assert!(found.text.contains("2.5 GT/s") && found.text.contains("16 GT/s"), "{found:?}");
    assert!(found.why.contains("under load"), "{found:?}");
    gpu.device.link_target = Some(1);
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    assert!(find(&made, "less-speed").why.contains("LnkCtl2"));
}

#[test]
fn switch__with_a_narrower_link_is_the_limit() {
    let mut gpu = subject(GPU);
    let mut switch = gpu.device.clone();
    switch.address = "15:00.0".to_owned();
    switch.port = Some(fastpath_machine::pci::function::PortType::Upstream);
    switch.link_is = LinkShape { generation: Some(3), lanes: Some(8) };
    gpu.above = vec![switch];
    let made = explain(&gpu, &LinkOptions::default()).unwrap();
    let step = made.waterfalls[0].steps.iter().find(|s| s.name == "narrower link above");
    let step = step.expect("a step for the switch");
    assert!(step.how.contains("15:00.0"), "{step:?}");
    // 8 lanes of 8 GT/s: 7877 MB/s.
    assert!((step.level / 7877.0 - 1.0).abs() < 1e-3, "{step:?}");
}

#[test]
fn less__than_the_link_carries_has_causes_in_the_order_in_which_they_fit() {
    // With one client of the sender, completions of 128 B allow 3299 MiB/s, and completions of 64 B are ruled out.
    let made = explain(&subject(CONNECTX), &measured("3218MiB/s")).unwrap();
    find(&made, "less");
    let causes: Vec<&Finding> =
        made.findings.iter().filter(|f| f.kind == FindingKind::Cause).collect();
    assert_eq!(causes[0].id, "read-completions", "{causes:?}");
    assert!(causes[0].text.contains("128 B"), "{causes:?}");
    assert!(causes[0].why.contains("which is what was measured"), "{causes:?}");
    let excluded = made.findings.iter().find(|f| f.kind == FindingKind::Excluded);
    assert!(excluded.unwrap().text.contains("64 B"), "{excluded:?}");
    assert!(!made.experiments.is_empty());
    // A figure in MB/s that would be right in MiB/s.
    let made = explain(&subject(CONNECTX), &measured("3480MB/s")).unwrap();
    find(&made, "unit-error");
}

#[test]
fn more__than_the_link_carries_is_not_believed() {
    let made = explain(&subject(CONNECTX), &measured("4194MiB/s")).unwrap();
    let found = find(&made, "too-much");
    assert_eq!(found.kind, FindingKind::Caution);
    assert!(found.why.contains("MB for MiB"), "{found:?}");
    assert!(made.experiments.is_empty());
}

#[test]
fn network__that_fits_is_named() {
    let mut card = subject(CONNECTX);
    card.network = Some((10.0, "mlx4_0, port 1: 10 Gb/sec (4X SDR)".to_owned()));
    let made = explain(&card, &measured("1240MB/s")).unwrap();
    let first = made.findings.iter().find(|f| f.kind == FindingKind::Cause);
    assert_eq!(first.unwrap().id, "network");
}

#[test]
fn states__without_a_link_have_their_answer() {
    let all = lspci::parse(include_str!("../../../machine/src/pci/samples/host.txt")).unwrap();
    let answer = |address: &str| {
        let device = all.iter().find(|f| f.address.ends_with(address)).unwrap();
        let one = DevicePath { device: device.clone(), source: "lspci", ..DevicePath::default() };
        let made = explain(&one, &LinkOptions::default()).unwrap();
        assert!(made.waterfalls.is_empty());
        made.findings[0].id.clone()
    };
    assert_eq!(answer("00:02.0"), "link-down");
    assert_eq!(answer("00:04.0"), "integrated");
    assert_eq!(answer("0a:03.0"), "no-express");
    assert_eq!(answer("65:00.0"), "silent");
    let denied = "01:00.0 A card\n\tFlags: bus master\n\tCapabilities: <access denied>\n";
    let made = explain(&subject(denied), &LinkOptions::default()).unwrap();
    assert!(find(&made, "denied").why.contains("root"));
}

#[test]
fn fields__that_cost_bandwidth_say_how_much() {
    let nvme = subject(include_str!("../../../machine/src/pci/samples/nvme.txt"));
    let made = explain(&nvme, &LinkOptions::default()).unwrap();
    // The checksum takes 4 of 284 B.
    assert!(find(&made, "ecrc").text.contains("1.4 %"), "{made:?}");
    let small =
        CONNECTX.replace("NoSnoop-\n\t\t\tMaxPayload 256", "NoSnoop-\n\t\t\tMaxPayload 128");
    let made = explain(&subject(&small), &LinkOptions::default()).unwrap();
    // The share of data is 128/152 with the small payload and 256/280 with the large one.
    assert!(find(&made, "payload").text.contains("at most 8.6 %"), "{made:?}");
    assert!(!ids(&made).contains(&"tags"));
    // A port above that supports no larger payload, and one that does.
    let mut below = subject(&small);
    below.above = lspci::parse(include_str!("../../../machine/src/pci/samples/root.txt")).unwrap();
    for (bytes, said) in [(128, "a larger payload is not possible"), (256, "pci=pcie_bus_perf")] {
        below.above[0].payload_can = Some(bytes);
        let made = explain(&below, &LinkOptions::default()).unwrap();
        let why = &find(&made, "payload").why;
        assert!(why.contains(said), "{bytes}: {why}");
    }
    // 32 reads of 128 B last 568 ns at 7.2 GB/s, and half as long on twice the lanes.
    for (text, kind) in [
        (include_str!("../../../machine/src/pci/samples/nvme.txt"), FindingKind::Note),
        (GPU, FindingKind::Caution),
    ] {
        let mut few = subject(text);
        few.device.tags_is = Some(32);
        few.device.read_request = Some(128);
        let made = explain(&few, &LinkOptions::default()).unwrap();
        assert_eq!(find(&made, "tags").kind, kind);
    }
}

#[test]
fn values__that_no_link_has_are_refused_with_what_was_expected() {
    for (payload, read_request, address) in
        [(Some(300), None, None), (None, Some(64), None), (None, None, Some(48))]
    {
        let asked = LinkOptions {
            mps: payload.map(Bytes),
            mrrs: read_request.map(Bytes),
            address,
            ..LinkOptions::default()
        };
        let error = explain(&subject(CONNECTX), &asked).unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
    }
}

#[test]
fn ratio__without_both_directions_is_refused_even_where_no_link_is_shown() {
    let asked = LinkOptions { ratio: Some(Ratio::EVEN), ..LinkOptions::default() };
    let cut = &CONNECTX[..CONNECTX.find("\tCapabilities: [60]").unwrap()];
    for text in [CONNECTX, cut] {
        assert!(explain(&subject(text), &asked).is_err(), "{text}");
    }
}

#[test]
fn virtio__is_named_and_has_no_link() {
    let device = PciFunction {
        shown: CapabilityState::Absent,
        ..PciFunction::new("0000:00:03.0", "virtio network device [0200] [1af4:1041]")
    };
    let made =
        explain(&DevicePath { device, ..DevicePath::default() }, &LinkOptions::default()).unwrap();
    assert!(made.title.contains("virtio network device"), "{}", made.title);
    let answer = &made.findings[0].text;
    assert!(answer.contains("not a PCI Express function but a virtio device"), "{answer}");
}
