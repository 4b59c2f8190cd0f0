//! `fastpath explain`: its subcommands, and how an explanation leaves the tool.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Arg, Args, Subcommand};
use fastpath_machine::pci::Subject;
use fastpath_machine::pci::function::{Function, Port, Shown};
use fastpath_machine::pci::lspci;
use fastpath_machine::pci::sysfs;
use fastpath_pcie::{Bytes, Link, StatedRate};
use fastpath_report::files::read_input;
use fastpath_report::output;
use fastpath_report::output::file::Target;
use fastpath_report::output::json::to_json;

use super::advice;
use super::bandwidth::{self, BandwidthOptions};
use super::cliff::{self, CliffOptions};
use super::latency::{self, LatencyOptions};
use super::moves::{Direction, Ratio};
use super::probe::{self, ProbeOptions};
use super::show::{Look, format_overview, format_text};
use super::{Explanation, page};

/// Most bytes of a text that are read.
const TEXT_MAX: u64 = 64 << 20;

/// Options of `fastpath explain`.
#[derive(Args, Debug)]
pub struct ExplainOptions {
    /// What to explain
    #[command(subcommand)]
    pub what: What,
}

/// What can be explained.
#[derive(Subcommand, Debug)]
pub enum What {
    /// The bandwidth that bus, adapter and network allow, step by step, and the gap to a measured figure
    Bandwidth(Box<BandwidthOptions>),
    /// A message's one-way time, part by part, and what measured times show
    Latency(Box<LatencyOptions>),
    /// What changes between one size and the next, and which sizes to probe to tell the causes apart
    Cliff(Box<CliffOptions>),
    /// What the fields of `lspci -vv` say: what a link carries, what it could, why less may be seen
    Lspci(LspciOptions),
    /// As `lspci`, for a device of this machine, read from the kernel's files
    Device(DeviceOptions),
    /// Measure copies to and from a GPU and compare them with the prediction for its link (needs the CUDA driver)
    Probe(ProbeOptions),
}

/// How an explanation is shown.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputOptions {
    /// Print JSON (docs/schema/explanation-1.json), one object a line for each device
    #[arg(long)]
    pub json: bool,
    /// Write a page with the waterfalls as pictures, whole in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Lets a value begin with a sign, so that what reads it says what was expected.
pub(super) fn take_signs(arg: Arg) -> Arg {
    let takes = arg.get_action().takes_values() && !arg.is_positional();
    arg.allow_hyphen_values(takes)
}

/// A measured figure, and values of the link in place of those that were read.
#[derive(Args, Clone, Debug, Default)]
#[command(mut_args(take_signs))]
pub struct LinkOptions {
    /// A measured bandwidth with its unit, as 3552MiB/s or 12.3GB/s
    #[arg(long, value_name = "RATE")]
    pub measured: Option<StatedRate>,
    /// What was measured [default: both are shown]
    #[arg(long, value_enum)]
    pub direction: Option<Direction>,
    /// Bytes written to bytes read, with --direction both [default: 1:1]
    #[arg(long, value_name = "W:R")]
    pub ratio: Option<Ratio>,
    /// The link, instead of the one that was read: generation and lanes, as 2.0x8
    #[arg(long, value_name = "LINK")]
    pub pcie: Option<Link>,
    /// The maximum payload, instead of the value that was read
    #[arg(long, value_name = "BYTES")]
    pub mps: Option<Bytes>,
    /// The maximum read request, instead of the value that was read
    #[arg(long, value_name = "BYTES")]
    pub mrrs: Option<Bytes>,
    /// Bits of the addresses: 64, or 32 where the memory lies below 4 GiB
    #[arg(long, value_name = "BITS")]
    pub address: Option<u32>,
}

impl LinkOptions {
    fn is_given(&self) -> bool {
        self.measured.is_some() || self.pcie.is_some() || self.mps.is_some() || self.mrrs.is_some()
    }
}

/// Options of `fastpath explain lspci`.
///
/// Fields that puzzle are explained, whatever they are: `Latency: 0` and `Cache Line Size` are registers of the older
/// PCI, without effect on PCI Express; `Latency L0s <64ns` in DevCap is what the device tolerates, no delay.
#[derive(Args, Debug)]
pub struct LspciOptions {
    /// File with the text of `lspci -vv` (run as root, so that it has the capabilities); -: standard input
    pub file: PathBuf,
    /// The device, by its address as in the text [default: every one with a link]
    #[arg(long, value_name = "ADDRESS")]
    pub device: Option<String>,
    /// Further facts
    #[command(flatten)]
    pub link: LinkOptions,
    /// How to show it
    #[command(flatten)]
    pub output: OutputOptions,
}

/// A device of this machine: where it is described, what is known besides, and how to show it.
#[derive(Args, Clone, Debug)]
pub struct HereOptions {
    /// Where the kernel's files are
    #[arg(long, default_value = "/sys", hide = true)]
    pub sysfs: PathBuf,
    /// Further facts
    #[command(flatten)]
    pub link: LinkOptions,
    /// How to show it
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Options of `fastpath explain device`.
#[derive(Args, Debug)]
pub struct DeviceOptions {
    /// The device: as mlx5_0, eth0, nvme0 or card0, or an address as 0000:41:00.0
    pub name: String,
    /// The machine
    #[command(flatten)]
    pub here: HereOptions,
}

/// Does what `fastpath explain` was asked for.
///
/// # Errors
/// The device cannot be read, a value is impossible for a link, or the output is closed.
pub fn run(options: &ExplainOptions) -> Result<()> {
    match &options.what {
        What::Bandwidth(options) => write(&[bandwidth::explain(options)?], &options.output),
        What::Latency(options) => write(&[latency::explain(options)?], &options.output),
        What::Cliff(options) => write(&[cliff::explain(options)?], &options.output),
        What::Lspci(options) => run_lspci(options),
        What::Device(options) => {
            let here = &options.here;
            let subject = sysfs::read_device(&here.sysfs, &options.name)?;
            let explanation = advice::explain(&subject, &here.link)?;
            write(&[explanation], &here.output)
        }
        What::Probe(options) => probe::run(options),
    }
}

fn run_lspci(options: &LspciOptions) -> Result<()> {
    let named = || options.file.display().to_string();
    let bytes = read_input(&options.file, TEXT_MAX).with_context(named)?;
    let functions = lspci::parse(&String::from_utf8_lossy(&bytes)).with_context(named)?;
    let chosen = choose(&functions, options.device.as_deref(), options.link.is_given())?;
    let explanations: Vec<Explanation> = chosen
        .into_iter()
        .map(|i| advice::explain(&make_subject(&functions, i), &options.link))
        .collect::<Result<_, _>>()?;
    match explanations.as_slice() {
        [_] => write(&explanations, &options.output),
        _ => write_as(&explanations, &options.output, format_overview),
    }
}

/// Whether a device is worth an explanation where none is named: it has a link, or may have one, and
/// is no port on the way to another.
fn is_of_interest(f: &Function) -> bool {
    let on_the_way =
        matches!(f.port, Some(Port::Root | Port::Upstream | Port::Downstream | Port::Integrated));
    !f.answers || f.shown != Shown::Absent && !on_the_way && f.secondary.is_none()
}

/// Which devices of a text are meant.
fn choose(functions: &[Function], named: Option<&str>, needs_one: bool) -> Result<Vec<usize>> {
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
            None => bail!("no device `{named}` in the text: expected is one of {}", list(&all)),
        };
    }
    let mut chosen: Vec<usize> =
        all.iter().copied().filter(|i| is_of_interest(&functions[*i])).collect();
    if chosen.is_empty() {
        chosen = all;
    }
    if needs_one && chosen.len() > 1 {
        bail!(
            "the text has several devices: say which one is meant, --device ADDRESS of {}",
            list(&chosen)
        );
    }
    Ok(chosen)
}

/// A device of a text with the ports above it, by the bus numbers of the bridges.
fn make_subject(functions: &[Function], index: usize) -> Subject {
    let device = functions[index].clone();
    let (mut bus, domain) = (device.bus(), device.domain());
    let mut above: Vec<Function> = Vec::new();
    while let Some(number) = bus {
        let leads = |f: &&Function| {
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
    Subject {
        siblings: siblings.map(|f| f.address.clone()).collect(),
        device,
        above,
        network: None,
        source: "lspci",
        copies: false,
    }
}

/// Shows explanations as was asked. A page comes beside the text, not in its place.
///
/// # Errors
/// The page or the standard output cannot be written.
pub fn write(explanations: &[Explanation], options: &OutputOptions) -> Result<()> {
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
        let target = Target::open(path)?;
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
        let root = all.iter().position(|f| f.port == Some(Port::Root)).unwrap();
        all[root].secondary = all[root].bus();
        assert!(make_subject(&all, root).above.len() <= 32);
    }
}
