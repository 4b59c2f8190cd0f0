//! `fastpath explain latency`: a message's one-way time part by part, and what a pair of measurements, before and
//! after, allows one to conclude through the tick of their clock.

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
mod ticks;

use clap::Args;
use fastpath_pcie::closed::latency::Path;
use fastpath_pcie::closed::message::Message;
use fastpath_pcie::crossover::{self, Choice, Crossover, Prediction};
use fastpath_pcie::descriptor::Way;
use fastpath_pcie::profile;
use fastpath_pcie::wire::{Transport, Verb, Wire};
use fastpath_pcie::{Bytes, Link, LinkError, Time};

use super::bandwidth::{TransportName, VerbName};
use super::command::{OutputOptions, take_signs};
use super::{Explanation, Finding, FindingKind, Input, Waterfall, WaterfallBuilder};
pub use ticks::{Pair, Tick};

/// Options of `fastpath explain latency`.
///
/// For instance, inline data in 2009: `--adapter connectx --host 2009 --verb write --size 32 --inline 400 --tick acpi
/// --pair 32:2.234us:1.117us --pair 256:2.514us:2.234us`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct LatencyOptions {
    /// The adapters: infinihost3, connectx, connectx3, connectx5, connectx7
    #[arg(long, default_value = "connectx5")]
    pub adapter: String,
    /// The hosts: 2009, 2016, uncombined
    #[arg(long, default_value = "2016")]
    pub host: String,
    /// Bytes of the message
    #[arg(long, default_value = "8")]
    pub size: Bytes,
    /// How messages travel
    #[arg(long, value_enum, default_value_t = TransportName::Rc)]
    pub transport: TransportName,
    /// What is done with them
    #[arg(long, value_enum, default_value_t = VerbName::Write)]
    pub verb: VerbName,
    /// Inline data asked for at the creation of the queue pair; 0: none
    #[arg(long, default_value = "220")]
    pub inline: Bytes,
    /// The link, as 2.0x8 [default: the adapter's]
    #[arg(long, value_name = "LINK")]
    pub pcie: Option<Link>,
    /// The network, as QDR, EDRx4 or roce100 [default: the adapter's]
    #[arg(long, value_name = "WIRE")]
    pub wire: Option<Wire>,
    /// Cables and switches
    #[arg(long, default_value = "100ns")]
    pub hops: Time,
    /// How long a read of memory by the adapter takes [default: the host's]
    #[arg(long, value_name = "TIME")]
    pub read: Option<Time>,
    /// The measured one-way time
    #[arg(long, value_name = "TIME")]
    pub measured: Option<Time>,
    /// The tick of the clock behind the measured times: a time, or acpi, tsc, us
    #[arg(long, value_name = "TICK")]
    pub tick: Option<Tick>,
    /// A size with its one-way times by DMA and inline, as 32:2.234us:1.117us; may be repeated
    #[arg(long = "pair", value_name = "SIZE:BEFORE:AFTER")]
    pub pairs: Vec<Pair>,
    /// What another tool measured of the same; its step may be half a tick
    #[arg(long, value_name = "TIME")]
    pub against: Option<Time>,
    /// How to show it
    #[command(flatten)]
    pub output: OutputOptions,
}

/// `1 serial read`, `2 serial reads`.
fn say_reads(way: Way) -> String {
    match way.serial_reads() {
        1 => "1 serial read".to_owned(),
        n => format!("{n} serial reads"),
    }
}

/// Explains a latency.
///
/// # Errors
/// A value is none that a link, an adapter or a message can have.
pub fn explain(options: &LatencyOptions) -> Result<Explanation, LinkError> {
    let mut host = *profile::host(&options.host)?;
    host.read = options.read.unwrap_or(host.read);
    let adapter = profile::adapter(&options.adapter)?;
    let mut path = Path::new(&host, adapter)?;
    path.link = options.pcie.unwrap_or(path.link);
    path.wire = options.wire.unwrap_or(path.wire);
    path.hops = options.hops;
    let (transport, verb) = (Transport::from(options.transport), Verb::from(options.verb));
    let refuse = |what, found: &dyn ToString, expected| LinkError {
        what,
        found: found.to_string(),
        expected,
    };
    // Nothing is read in no time; what would follow is no figure of any adapter.
    if let Some(read) = options.read.filter(|read| *read <= Time::ZERO) {
        return Err(refuse("read of memory", &read, "a time of more than 0"));
    }
    if options.size.0 > 1 << 30 || options.inline.0 > 1 << 20 {
        return Err(refuse(
            "message",
            &options.size,
            "at most 1 GiB, of which at most 1 MiB inline",
        ));
    }
    if transport == Transport::Ud && (verb == Verb::Write || options.size.0 > path.wire.mtu.into())
    {
        return Err(refuse(
            "datagram",
            &options.size,
            "a send of one packet of the network",
        ));
    }
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
    let mut made = Explanation::new(format!("One way of {} by {}", options.size, adapter.title));
    made.inputs = list_inputs(options, &path, granted);
    made.waterfalls.push(draw(&path, &chosen, options.measured));
    if inline {
        let other = message(size, false);
        let mut waterfall = draw(&path, &other, None);
        waterfall.title = format!("The same by DMA: {}", say_reads(other.way));
        made.waterfalls.push(waterfall);
    }
    judge_way(&path, &chosen, &mut made);
    if let Some(found) = inlined.as_ref().filter(|_| granted > 0) {
        judge_crossover(&path, transport, &options.inline, found, &mut made)?;
    }
    let way = |size: u32| {
        path.way(transport, verb, size, size <= granted && granted > 0)
            .serial_reads()
    };
    let way_before = |size: u32| path.way(transport, verb, size, false).serial_reads();
    ticks::judge(
        options,
        path.one_way(&chosen),
        &|size| way_before(size).saturating_sub(way(size)),
        &mut made,
    );
    made.sort_findings();
    Ok(made)
}

fn list_inputs(options: &LatencyOptions, path: &Path<'_>, granted: u32) -> Vec<Input> {
    let mut inputs = Vec::new();
    let mut put = |name: &str, value: String, source: &str| {
        inputs.push(Input {
            name: name.to_owned(),
            value,
            source: source.to_owned(),
        });
    };
    put(
        "adapter",
        path.adapter.title.to_owned(),
        path.adapter.source,
    );
    put("host", path.host.title.to_owned(), path.host.source);
    let from = |given| {
        if given {
            "given"
        } else {
            "the adapter's usual"
        }
    };
    put("link", path.link.to_string(), from(options.pcie.is_some()));
    put(
        "network",
        path.wire.to_string(),
        from(options.wire.is_some()),
    );
    put(
        "read of memory",
        path.host.read.to_string(),
        if options.read.is_some() {
            "given"
        } else {
            path.host.source
        },
    );
    put(
        "inline data",
        format!("{} asked for, {granted} B granted", options.inline),
        "descriptor arithmetic of the adapter's library",
    );
    if let Some(tick) = options.tick {
        put("tick of the clock", format!("{:.3}", tick.0), "given");
    }
    inputs
}

fn draw(path: &Path<'_>, message: &Message, measured: Option<Time>) -> Waterfall {
    let title = format!("{}: {}", message.way.name(), say_reads(message.way));
    let mut parts = path.parts(message).into_iter();
    let Some(first) = parts.next() else {
        return WaterfallBuilder::start(title, "ns", "nothing", 0.0, "", "").build();
    };
    let source = path.host.source;
    let mut steps =
        WaterfallBuilder::start(title, "ns", first.name, first.time.ns(), first.how, source);
    for part in parts {
        let source = if part.name.starts_with("adapter") {
            path.adapter.source
        } else {
            source
        };
        let how = if part.name.starts_with("adapter") {
            String::new()
        } else {
            part.how
        };
        steps = steps.by(part.name, part.time.ns(), how, source);
    }
    steps = steps.state("predicted", "");
    match measured {
        Some(measured) => steps.measured("measured", measured.ns(), "").build(),
        None => steps.build(),
    }
}

fn add(made: &mut Explanation, kind: FindingKind, id: &str, text: String, why: String) {
    made.findings.push(Finding {
        kind,
        id: id.to_owned(),
        text,
        why,
    });
}

fn judge_way(path: &Path<'_>, message: &Message, made: &mut Explanation) {
    let total = path.one_way(message);
    let reads = message.way.serial_reads();
    let reads = match reads {
        0 => "no read of memory".to_owned(),
        1 => "one read of memory".to_owned(),
        n => format!("{n} reads of memory, one after the other,"),
    };
    let way = message.way.name();
    let text = format!("{total} one way ({way}): {reads} before the first byte leaves.");
    let why = format!(
        "Each read takes {}; the processor is busy for {}.",
        path.host.read,
        path.processor_time(message)
    );
    add(made, FindingKind::Answer, "one-way", text, why);
}

/// Both costs on each side of where inline data stops to pay.
fn say_costs(choice: &Choice) -> String {
    let costs = [choice.last, choice.next].into_iter().flatten();
    let said: Vec<String> = costs
        .map(|c| format!("{} B take {} inline, {} by DMA", c.size, c.inline, c.dma))
        .collect();
    format!(" {}.", said.join("; "))
}

fn judge_crossover(
    path: &Path<'_>,
    transport: Transport,
    wanted: &Bytes,
    found: &Prediction,
    made: &mut Explanation,
) -> Result<(), LinkError> {
    let grant = found.grant;
    let (id, text) = match found.choice.crossover {
        Crossover::Never => ("crossover", "Inline data is never faster here.".to_owned()),
        Crossover::Until(size) => {
            let again = found
                .ranges
                .iter()
                .find(|r| r.from > size && r.gain > Time::ZERO);
            let again = again.map_or_else(String::new, |range| {
                let from = range.from;
                format!(
                    " From {from} B on, where the adapter reads the descriptor, it is faster again."
                )
            });
            let text = format!(
                "Inline data is faster up to {size} B; beyond, the processor's stores cost more than the reads that they save.{again}"
            );
            ("crossover", text)
        }
        Crossover::Always(size) => (
            "crossover",
            format!("Inline data is faster at every size granted, up to {size} B."),
        ),
    };
    let ranges: Vec<String> = found
        .ranges
        .iter()
        .map(|r| {
            format!(
                "{} to {} B {}, {} {} at the end",
                r.from,
                r.to,
                r.way.name(),
                r.gain.max(Time::ZERO - r.gain),
                if r.gain < Time::ZERO {
                    "lost"
                } else {
                    "gained"
                }
            )
        })
        .collect();
    add(
        made,
        FindingKind::Note,
        id,
        text,
        format!("{}.{}", ranges.join("; "), say_costs(&found.choice)),
    );
    if let [first, second, ..] = found.ranges.as_slice() {
        let text = format!(
            "A step at {} and {} B: there a descriptor outgrows BlueFlame ({} B), and one more read begins.",
            first.to, second.from, path.adapter.blueflame
        );
        add(
            made,
            FindingKind::Note,
            "blueflame-limit",
            text,
            String::new(),
        );
    }
    let small = fastpath_pcie::descriptor::grant(path.adapter.family, transport, 0, 1)?;
    let (least, why) = match grant.is_exact {
        true => ("", ""),
        false => (
            "at least ",
            "mlx5 keeps room for the largest operation that the queue pair allows: the exact grant is what its creation returns, and the device has a limit of its own (max_sq_desc_sz).",
        ),
    };
    let text = format!(
        "{} B asked for are granted as {least}{} B in descriptors of {least}{} B: a send queue of 128 takes {} instead of {}.",
        wanted.0,
        grant.inline,
        grant.descriptor,
        Bytes(grant.queue_bytes(128)),
        Bytes(small.queue_bytes(128))
    );
    add(
        made,
        FindingKind::Note,
        "queue-memory",
        text,
        why.to_owned(),
    );
    Ok(())
}
