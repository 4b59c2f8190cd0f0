//! `fastpath explain latency`: one-way time of a message, part by part. Also the conclusions that a pair of
//! measurements allows, given the tick of their clock.

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
mod ticks;

use clap::Args;
use fastpath_pcie::crossover::{self, Choice, Crossover, Prediction};
use fastpath_pcie::descriptor::PostMethod;
use fastpath_pcie::formulas::latency::Path;
use fastpath_pcie::formulas::message::Message;
use fastpath_pcie::profile;
use fastpath_pcie::wire::{Transport, Verb, Wire};
use fastpath_pcie::{Bytes, Link, LinkError, Time};

use super::bandwidth::{TransportName, VerbName};
use super::findings::said;
use super::options::{OutputOptions, take_signs};
use super::{Explanation, Finding, Waterfall, refuse_if};
pub use ticks::{InlineGain, Tick};

/// Options of `fastpath explain latency`.
///
/// For instance, inline data in 2009: `--adapter connectx --host 2009 --verb write --size 32 --inline 400 --tick acpi
/// --pair 32:2.234us:1.117us --pair 256:2.514us:2.234us`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct LatencyOptions {
    /// Adapter: infinihost3, connectx, connectx3, connectx5 or connectx7
    #[arg(help_heading = "Hardware", long, default_value = "connectx5")]
    pub adapter: String,
    /// Model of the host: 2009 (a server of 2009), 2016 (a server of 2016 or later) or uncombined (as 2016, but writes
    /// to the adapter are not combined)
    #[arg(help_heading = "Hardware", long, default_value = "2016")]
    pub host: String,
    /// Message size in bytes
    #[arg(help_heading = "Messages", long, default_value = "8")]
    pub size: Bytes,
    /// Transport of the messages
    #[arg(help_heading = "Messages", long, value_enum, default_value_t = TransportName::Rc)]
    pub transport: TransportName,
    /// Operation that transfers the messages
    #[arg(help_heading = "Messages", long, value_enum, default_value_t = VerbName::Write)]
    pub verb: VerbName,
    /// Inline data requested at the creation of the queue pair, in bytes; 0: none
    #[arg(help_heading = "Messages", long, default_value = "220")]
    pub inline: Bytes,
    /// PCIe link, such as 2.0x8 [default: the adapter's]
    #[arg(help_heading = "Hardware", long, value_name = "LINK")]
    pub pcie: Option<Link>,
    /// Network, such as QDR, EDRx4 or roce100 [default: the adapter's]
    #[arg(help_heading = "Hardware", long, value_name = "WIRE")]
    pub wire: Option<Wire>,
    /// Latency of cables and switches
    #[arg(help_heading = "Hardware", long, default_value = "100ns")]
    pub hops: Time,
    /// Time of a memory read by the adapter [default: the host's]
    #[arg(help_heading = "Hardware", long, value_name = "TIME")]
    pub read: Option<Time>,
    /// Measured one-way time
    #[arg(help_heading = "Measured figures", long, value_name = "TIME")]
    pub measured: Option<Time>,
    /// Tick of the clock behind the measured times: a time, or acpi, tsc, us
    #[arg(help_heading = "Measured figures", long, value_name = "TICK")]
    pub tick: Option<Tick>,
    /// A size with its one-way times by DMA and inline, such as 32:2.234us:1.117us; may be repeated
    #[arg(help_heading = "Measured figures", long = "pair", value_name = "SIZE:BEFORE:AFTER")]
    pub pairs: Vec<InlineGain>,
    /// Time measured by another tool, to compare with --measured; the step of that tool may be half a tick
    #[arg(help_heading = "Measured figures", long, value_name = "TIME")]
    pub against: Option<Time>,
    /// Output format
    #[command(flatten)]
    pub output: OutputOptions,
}

fn say_reads(way: PostMethod) -> String {
    match way.serial_reads() {
        1 => "1 serial read".to_owned(),
        n => format!("{n} serial reads"),
    }
}

/// Explains a latency.
///
/// # Errors
/// A value is impossible for a link, an adapter or a message.
pub fn explain(options: &LatencyOptions) -> Result<Explanation, LinkError> {
    let mut host = *profile::host(&options.host)?;
    host.read = options.read.unwrap_or(host.read);
    let adapter = profile::adapter(&options.adapter)?;
    let mut path = Path::new(&host, adapter)?;
    path.link = options.pcie.unwrap_or(path.link);
    path.wire = options.wire.unwrap_or(path.wire);
    path.hops = options.hops;
    let (transport, verb) = (Transport::from(options.transport), Verb::from(options.verb));
    // A read takes time; with a read time of zero the prediction would describe no real adapter.
    let wrong = host.read <= Time::ZERO;
    refuse_if(wrong, "read of memory", host.read, "a time of more than 0")?;
    refuse_if(options.size.0 > 1 << 30, "message", options.size, "at most 1 GiB")?;
    refuse_if(options.inline.0 > 1 << 20, "inline data", options.inline, "at most 1 MiB")?;
    let is_datagram = transport == Transport::Ud;
    let wrong = is_datagram && verb != Verb::Send;
    let expected = "--verb send, or another transport";
    refuse_if(wrong, "verb", "write by datagram", expected)?;
    let wrong = is_datagram && options.size.0 > path.wire.mtu.into();
    refuse_if(wrong, "datagram", options.size, "at most one packet of the network")?;
    let inlined = match options.inline.0 {
        0 => None,
        wanted => Some(crossover::predict(&path, transport, verb, wanted as u32)?),
    };
    let granted = inlined.as_ref().map_or(0, |found| found.grant.inline);
    let size = options.size.0 as u32;
    let inline = size <= granted && granted > 0;
    let message = |size, inline| Message {
        way: path.way(transport, verb, size, inline),
        ..Message::new(transport, verb, Bytes(size.into()))
    };
    let chosen = message(size, inline);
    let mut made = Explanation::new(format!(
        "Predicted one-way latency of {} over {} (a model, not a measurement)",
        options.size, adapter.title
    ));
    list_inputs(options, &path, granted, &mut made);
    made.waterfalls.push(draw(&path, &chosen, options.measured));
    if inline {
        let other = message(size, false);
        let mut waterfall = draw(&path, &other, None);
        waterfall.title = format!("The same message by DMA: {}", say_reads(other.way));
        made.waterfalls.push(waterfall);
    }
    made.findings.push(judge_way(&path, &chosen));
    if let Some(found) = inlined.as_ref().filter(|_| granted > 0) {
        judge_crossover(&path, transport, &options.inline, found, &mut made.findings)?;
    }
    let reads = |size, inline| path.way(transport, verb, size, inline).serial_reads();
    let saved = |size: u32| {
        let inline = size <= granted && granted > 0;
        reads(size, false).saturating_sub(reads(size, inline))
    };
    ticks::judge(options, path.one_way(&chosen), &saved, &mut made.findings);
    made.sort_findings();
    Ok(made)
}

fn list_inputs(options: &LatencyOptions, path: &Path<'_>, granted: u32, made: &mut Explanation) {
    let from = |given| {
        if given { "given" } else { "usual for the adapter" }
    };
    made.input("adapter", path.adapter.title, path.adapter.source);
    made.input("host", path.host.title, path.host.source);
    made.input("link", path.link, from(options.pcie.is_some()));
    made.input("network", path.wire, from(options.wire.is_some()));
    let source = if options.read.is_some() { "given" } else { path.host.source };
    made.input("read of memory", path.host.read, source);
    let inline = format!("{} requested, {granted} B granted", options.inline);
    made.input("inline data", inline, "descriptor arithmetic of the adapter's library");
    if let Some(tick) = options.tick {
        made.input("tick of the clock", format!("{:.3}", tick.0), "given");
    }
}

fn draw(path: &Path<'_>, message: &Message, measured: Option<Time>) -> Waterfall {
    let title = format!("{}: {}", message.way.name(), say_reads(message.way));
    let mut parts = path.parts(message).into_iter();
    let Some(first) = parts.next() else {
        return Waterfall::start(title, "ns", "nothing", 0.0, "", "").finish(None);
    };
    let source = path.host.source;
    let mut steps = Waterfall::start(title, "ns", first.name, first.time.ns(), first.how, source);
    for part in parts {
        let (how, source) = match part.name.starts_with("adapter") {
            true => (String::new(), path.adapter.source),
            false => (part.how, source),
        };
        steps = steps.by(part.name, part.time.ns(), how, source);
    }
    steps.state().finish(measured.map(|m| m.ns()))
}

fn judge_way(path: &Path<'_>, message: &Message) -> Finding {
    let reads = match message.way.serial_reads() {
        0 => "no read of memory".to_owned(),
        1 => "one read of memory".to_owned(),
        n => format!("{n} reads of memory, one after the other,"),
    };
    let (total, way) = (path.one_way(message), message.way.name());
    let (read, busy) = (path.host.read, path.processor_time(message));
    said!(latency "one-way", total, way, reads, read, busy)
}

/// Describes both costs on each side of the crossover of inline data.
fn say_costs(choice: &Choice) -> String {
    let costs = [choice.last, choice.next].into_iter().flatten();
    let said: Vec<String> =
        costs.map(|c| format!("{} B take {} inline, {} by DMA", c.size, c.inline, c.dma)).collect();
    format!(" {}.", said.join("; "))
}

fn say_ranges(found: &Prediction) -> String {
    let said = found.ranges.iter().map(|r| {
        let what = if r.gain < Time::ZERO { "lost" } else { "gained" };
        let gain = r.gain.max(Time::ZERO - r.gain);
        format!("{} to {} B {}, {gain} {what} at the largest size", r.from, r.to, r.way.name())
    });
    format!("{}.{}", said.collect::<Vec<String>>().join("; "), say_costs(&found.choice))
}

fn judge_crossover(
    path: &Path<'_>, transport: Transport, wanted: &Bytes, found: &Prediction,
    findings: &mut Vec<Finding>,
) -> Result<(), LinkError> {
    let why = say_ranges(found);
    findings.push(match found.choice.crossover {
        Crossover::Never => said!(latency "crossover-never", why),
        Crossover::Until(size) => {
            let mut beyond = found.ranges.iter().filter(|r| r.from > size);
            let again = beyond.find(|r| r.gain > Time::ZERO).map_or_else(String::new, |r| {
                let from = r.from;
                format!(
                    " From {from} B on, where the adapter reads the descriptor, inline data is \
                    faster again."
                )
            });
            said!(latency "crossover-until", size, again, why)
        }
        Crossover::Always(size) => said!(latency "crossover-always", size, why),
    });
    let blueflame = path.adapter.blueflame;
    if let [first, second, ..] = found.ranges.as_slice() {
        let (first, second) = (first.to, second.from);
        findings.push(said!(latency "blueflame-limit", first, second, blueflame));
    }
    let least = fastpath_pcie::descriptor::grant(path.adapter.family, transport, 0, 1)?;
    let grant = found.grant;
    let name = if grant.is_exact { "queue-memory" } else { "queue-memory-least" };
    findings.push(said!(latency name,
        wanted = wanted.0,
        granted = grant.inline,
        descriptor = grant.descriptor,
        queue = Bytes(grant.queue_bytes(128)),
        small = Bytes(least.queue_bytes(128))
    ));
    Ok(())
}
