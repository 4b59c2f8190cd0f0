//! `fastpath explain`: subcommands, and the output of explanations.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use fastpath_machine::pci::DevicePath;
use fastpath_machine::pci::function::{CapabilityState, PciFunction, PortType};
use fastpath_machine::pci::lspci;
use fastpath_machine::pci::sysfs;
use fastpath_pcie::LinkError;
use fastpath_report::files::read_input;
use fastpath_report::output;
use fastpath_report::output::file::OutputFile;
use fastpath_report::output::json::to_json;
use fastpath_report::refuse_usage;
use fastpath_report::usage::UsageError;

use super::advice;
use super::bandwidth::{self, BandwidthOptions};
use super::cliff::{self, CliffOptions};
use super::latency::{self, LatencyOptions};
use super::options::{LinkOptions, LocalOptions, OutputOptions};
use super::probe::{self, ProbeOptions};
use super::show::{Look, format_overview, format_text};
use super::{Explanation, page};

/// Largest text that is read, in bytes.
const TEXT_MAX: u64 = 64 << 20;

/// Options of `fastpath explain`.
#[derive(Args, Debug)]
pub struct ExplainOptions {
    /// Subject to explain
    #[command(subcommand)]
    pub what: ExplainCommand,
}

/// Subcommands.
#[derive(Subcommand, Debug)]
pub enum ExplainCommand {
    /// Bandwidth limits of bus, adapter and network, step by step, and the gap to a measured figure
    Bandwidth(Box<BandwidthOptions>),
    /// One-way time of a message, part by part, compared with measured times
    Latency(Box<LatencyOptions>),
    /// Changes between one size and the next, and sizes to measure to find the cause
    Cliff(Box<CliffOptions>),
    /// Fields of `lspci -vv`: what a link carries, what it supports, and why it carries less
    Lspci(LspciOptions),
    /// Like `lspci`, for a device of this machine, read from sysfs
    Device(DeviceOptions),
    /// Measure copies to and from a GPU and compare them with the prediction for its link (needs the CUDA driver)
    Probe(ProbeOptions),
}

/// Options of `fastpath explain lspci`.
///
/// Explains confusing fields: `Latency: 0` and `Cache Line Size` are registers of conventional PCI, without effect on
/// PCI Express. `Latency L0s <64ns` in DevCap is what the device tolerates, not a delay.
#[derive(Args, Debug)]
pub struct LspciOptions {
    /// File with the output of `lspci -vv` (run as root, so that the text has the capabilities); -: standard input
    pub file: PathBuf,
    /// Device, by its address in the text [default: every device with a link]
    #[arg(long, value_name = "ADDRESS")]
    pub device: Option<String>,
    /// Further facts
    #[command(flatten)]
    pub link: LinkOptions,
    /// Output format
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Options of `fastpath explain device`.
#[derive(Args, Debug)]
pub struct DeviceOptions {
    /// Device, such as mlx5_0, eth0, nvme0 or card0, or a PCI address such as 0000:41:00.0
    pub name: String,
    /// The machine
    #[command(flatten)]
    pub here: LocalOptions,
}

/// Runs `fastpath explain`.
///
/// # Errors
/// The device cannot be read, a value is impossible for a link, or the output is closed.
pub fn run(options: &ExplainOptions) -> Result<()> {
    match &options.what {
        ExplainCommand::Bandwidth(options) => {
            let made = bandwidth::explain(options).map_err(refuse_value)?;
            write(&[made], &options.output)
        }
        ExplainCommand::Latency(options) => {
            let made = latency::explain(options).map_err(refuse_value)?;
            write(&[made], &options.output)
        }
        ExplainCommand::Cliff(options) => {
            let made = cliff::explain(options).map_err(refuse_value)?;
            write(&[made], &options.output)
        }
        ExplainCommand::Lspci(options) => run_lspci(options),
        ExplainCommand::Device(options) => {
            let here = &options.here;
            let subject = sysfs::read_device(&here.sysfs, &options.name)?;
            let explanation = explain_device(&subject, &here.link)?;
            write(&[explanation], &here.output)
        }
        ExplainCommand::Probe(options) => write(&probe::explain(options)?, &options.here.output),
    }
}

/// Converts an error about a value of the command line into a usage error.
fn refuse_value(error: LinkError) -> UsageError {
    UsageError(error.to_string())
}

/// Explains a device. An error is a usage error if the device can be explained without the options.
fn explain_device(subject: &DevicePath, link: &LinkOptions) -> Result<Explanation> {
    advice::explain(subject, link).map_err(|error| {
        match advice::explain(subject, &LinkOptions::default()) {
            Ok(_) => refuse_value(error).into(),
            Err(_) => error.into(),
        }
    })
}

fn run_lspci(options: &LspciOptions) -> Result<()> {
    let named = || options.file.display().to_string();
    let bytes = read_input(&options.file, TEXT_MAX).with_context(named)?;
    let functions = lspci::parse(&String::from_utf8_lossy(&bytes)).with_context(named)?;
    let chosen = choose(&functions, options.device.as_deref(), options.link.is_given())?;
    let explanations: Vec<Explanation> = chosen
        .into_iter()
        .map(|i| explain_device(&make_subject(&functions, i), &options.link))
        .collect::<Result<_, _>>()?;
    match explanations.as_slice() {
        [_] => write(&explanations, &options.output),
        _ => write_as(&explanations, &options.output, format_overview),
    }
}

/// Whether a device is explained by default: it has or may have a link, and is not a port on the path to another
/// device.
fn is_of_interest(f: &PciFunction) -> bool {
    let on_the_way = matches!(
        f.port,
        Some(PortType::Root | PortType::Upstream | PortType::Downstream | PortType::Integrated)
    );
    !f.answers || f.shown != CapabilityState::Absent && !on_the_way && f.secondary.is_none()
}

fn choose(functions: &[PciFunction], named: Option<&str>, needs_one: bool) -> Result<Vec<usize>> {
    let list = |which: &[usize]| {
        let some = which.iter().take(20).map(|i| functions[*i].address.as_str());
        some.collect::<Vec<_>>().join(", ")
    };
    let all: Vec<usize> = (0..functions.len()).collect();
    if let Some(named) = named {
        let short = named.strip_prefix("0000:").unwrap_or(named);
        let is_named = |i: &usize| {
            let address = functions[*i].address.as_str();
            address.strip_prefix("0000:").unwrap_or(address).eq_ignore_ascii_case(short)
        };
        let one = all.iter().copied().find(is_named);
        return match one {
            Some(one) => Ok(vec![one]),
            None => refuse_usage!("the text has no device `{named}`; use one of {}", list(&all)),
        };
    }
    let mut chosen: Vec<usize> =
        all.iter().copied().filter(|i| is_of_interest(&functions[*i])).collect();
    if chosen.is_empty() {
        chosen = all;
    }
    if needs_one && chosen.len() > 1 {
        refuse_usage!("the text has several devices; choose one with --device: {}", list(&chosen));
    }
    Ok(chosen)
}

/// Returns a device of a text with the ports above it, by the bus numbers of the bridges.
fn make_subject(functions: &[PciFunction], index: usize) -> DevicePath {
    let device = functions[index].clone();
    let (mut bus, domain) = (device.bus(), device.domain());
    let mut above: Vec<PciFunction> = Vec::new();
    while let Some(number) = bus {
        let leads = |f: &&PciFunction| {
            let here = f.secondary == Some(number);
            here && f.domain() == domain && f.bus() != Some(number)
        };
        let Some(port) = functions.iter().find(leads) else {
            break;
        };
        if above.len() == 32 {
            break;
        }
        bus = port.bus();
        above.push(port.clone());
    }
    let siblings = functions.iter().filter(|f| f.is_sibling(&device));
    DevicePath {
        siblings: siblings.map(|f| f.address.clone()).collect(),
        device,
        above,
        network: None,
        source: "lspci",
        copies: false,
    }
}

/// Writes explanations as requested. A page is written in addition to the text.
fn write(explanations: &[Explanation], options: &OutputOptions) -> Result<()> {
    write_as(explanations, options, |all, look| {
        let texts: Vec<String> = all.iter().map(|e| format_text(e, look)).collect();
        texts.join("\n\n")
    })
}

fn write_as(
    explanations: &[Explanation], options: &OutputOptions,
    format: fn(&[Explanation], Look) -> String,
) -> Result<()> {
    if let Some(path) = &options.html {
        let target = OutputFile::open(path)?;
        target.finish(&page::write_page(explanations))?;
    }
    let text = if options.json {
        explanations.iter().map(|e| to_json(e) + "\n").collect()
    } else {
        format(explanations, Look::of_stdout())
    };
    output::print(&text)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::io::Read;

    use super::*;

    const HOST: &str = include_str!("../../machine/src/pci/samples/host.txt");

    #[test]
    fn devices__with_a_link_are_chosen_where_none_is_named() {
        let all = lspci::parse(HOST).unwrap();
        let addresses = |chosen: Vec<usize>| -> Vec<String> {
            chosen.into_iter().map(|i| all[i].address.clone()).collect()
        };
        let chosen = addresses(choose(&all, None, false).unwrap());
        assert_eq!(chosen, ["0000:17:00.0", "0000:41:00.0", "0000:65:00.0"]);
        for named in ["41:00.0", "0000:41:00.0"] {
            assert_eq!(addresses(choose(&all, Some(named), true).unwrap()), ["0000:41:00.0"]);
        }
        let error = choose(&all, None, true).unwrap_err().to_string();
        assert!(error.contains("--device") && error.contains("0000:17:00.0"), "{error}");
        let error = choose(&all, Some("99:00.0"), false).unwrap_err().to_string();
        assert!(error.contains("99:00.0") && error.contains("0000:16:00.0"), "{error}");
    }

    #[test]
    fn text__of_more_than_64_mib_is_refused_and_none_is_cut() {
        let read =
            |len| fastpath_report::files::read_whole(std::io::repeat(b'x').take(len), TEXT_MAX);
        let whole = read(TEXT_MAX).unwrap();
        assert_eq!(whole.len() as u64, TEXT_MAX);
        for len in [TEXT_MAX + 1, TEXT_MAX + 4096] {
            let error = read(len).unwrap_err().to_string();
            assert!(error.contains("longer than 67108864 bytes"), "{error}");
        }
    }

    #[test]
    fn ports__above_a_device_are_found_by_their_buses() {
        let all = lspci::parse(HOST).unwrap();
        let gpu = all.iter().position(|f| f.address.contains("17:00.0")).unwrap();
        let above = make_subject(&all, gpu).above;
        assert_eq!(above.len(), 1);
        assert_eq!(above[0].address, "0000:16:00.0");
    }

    #[test]
    fn ports__in_a_circle_end() {
        let mut all = lspci::parse(HOST).unwrap();
        let root = all.iter().position(|f| f.port == Some(PortType::Root)).unwrap();
        all[root].secondary = all[root].bus();
        assert!(make_subject(&all, root).above.len() <= 32);
    }
}
