//! Fuzz tests of command lines and of device descriptions.
#![allow(non_snake_case)]

use fastpath_machine::pci::function::PciFunction;
use fastpath_machine::pci::{DevicePath, config_space, lspci};
use fastpath_report::testing::{parse_dump, parse_options};

use crate::advice::explain;
use crate::command::{ExplainCommand, ExplainOptions};
use crate::options::LinkOptions;
use crate::show::{Look, format_text};
use crate::{bandwidth, cliff, latency};

#[test]
fn fuzz__text_of_lspci_is_explained_or_refused() {
    let corpus: &[&[u8]] = &[
        include_bytes!("../../machine/src/pci/samples/connectx2-2012.txt"),
        include_bytes!("../../machine/src/pci/samples/gpu.txt"),
        include_bytes!("../../machine/src/pci/samples/root.txt"),
        b"41:00.0 A\n\tLatency: 0, Cache Line Size: 32 bytes\n\tCapabilities: <access denied>\n",
        b"LnkSta: Speed 8GT/s (ok), Width x8 (downgraded)\n",
    ];
    let mut round = 0;
    crate::mutate::run(corpus, |input| {
        round += 1;
        match lspci::parse(&String::from_utf8_lossy(input)) {
            Ok(functions) if round % 8 == 0 => {
                functions.into_iter().take(2).for_each(explain_all_ways);
            }
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn fuzz__configuration_space_is_read() {
    let dump = |text| parse_dump(text);
    let corpus = [
        dump(include_str!("../../machine/src/pci/samples/gpu.hex")),
        dump(include_str!("../../machine/src/pci/samples/root.hex"))[..256].to_vec(),
        dump(include_str!("../../machine/src/pci/samples/nvme.hex"))[..64].to_vec(),
    ];
    let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
    let mut round = 0;
    crate::mutate::run(&corpus, |input| {
        round += 1;
        let mut function = PciFunction::new("0000:17:00.0", "");
        if config_space::read(input, &mut function).is_ok() && round % 8 == 0 {
            explain_all_ways(function);
        }
    });
}

#[test]
fn fuzz__command_lines_of_explain_are_answered_or_refused() {
    let corpus: &[&[u8]] = &[
        b"bandwidth --pcie 2.0x8 --mps 256 --measured 3552MB/s --tool perftest --clients 3 \
            --single 3218MB/s --expected 4194MB/s",
        b"bandwidth --pcie 5.0x16 --transport ud --size 2K --wire roce100 --mtu 2048 --measured \
            20Gb/s --message-rate 1.2 --ecrc",
        b"latency --adapter connectx --host 2009 --size 32 --inline 400 --tick acpi --pair \
            32:2.234us:1.117us --measured 1us --against 2us",
        b"latency --size 1M --read 1us --hops 0ns --wire EDRx1 --pcie 3.0x16 --verb send",
        b"cliff --at 1728 --transport ud --rate 3020MiB/s --offset 64 --slot-align 64",
        b"cliff --at 208 --verb write --inline 448 --mps 4096 --mtu 256",
    ];
    let mut round = 0;
    crate::mutate::run(corpus, |input| {
        round += 1;
        if round % 16 != 0 {
            return;
        }
        let line = String::from_utf8_lossy(input);
        let words: Vec<&str> = line.split_whitespace().collect();
        let Ok(options) = parse_options::<ExplainOptions>(&words) else {
            return;
        };
        let made = match &options.what {
            ExplainCommand::Bandwidth(options) => bandwidth::explain(options),
            ExplainCommand::Latency(options) => latency::explain(options),
            ExplainCommand::Cliff(options) => cliff::explain(options),
            _ => return,
        };
        match made {
            Ok(made) => {
                for step in made.waterfalls.iter().flat_map(|w| &w.steps) {
                    assert!(step.level.is_finite() && step.change.is_finite(), "{line}: {step:?}");
                }
                format_text(&made, Look::PLAIN);
            }
            Err(error) => assert!(!error.expected.is_empty()),
        }
    });
}

/// Checks that any device description can be explained and printed, with finite figures.
fn explain_all_ways(device: PciFunction) {
    let subject = DevicePath {
        above: vec![device.clone()],
        device,
        source: "lspci",
        ..DevicePath::default()
    };
    let asked = LinkOptions { measured: "3552MiB/s".parse().ok(), ..LinkOptions::default() };
    let made = explain(&subject, &asked).expect("what was read is checked where it is read");
    for step in made.waterfalls.iter().flat_map(|w| &w.steps) {
        assert!(step.level.is_finite() && step.level >= 0.0, "{step:?}");
    }
    let text = format_text(&made, Look::PLAIN);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}
