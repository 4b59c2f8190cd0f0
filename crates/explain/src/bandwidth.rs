//! `fastpath explain bandwidth`: from what the lanes signal to what a message can reach, and what is left to the
//! measured figure.

mod judge;
mod steps;
#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
mod units;

use clap::{Args, ValueEnum};
use fastpath_pcie::formulas::DataLink;
use fastpath_pcie::formulas::message::{self, Message, Part};
use fastpath_pcie::link::AddressWidth;
use fastpath_pcie::profile::{self, Adapter};
use fastpath_pcie::wire::{Transport, Verb, Wire};
use fastpath_pcie::{Bytes, Link, LinkError, Rate, RateUnit, StatedRate};

use super::bus::Load;
use super::command::{OutputOptions, take_signs};
use super::moves::{Direction, Moves, Ratio};
use super::{Explanation, refuse_if};

/// Options of `fastpath explain bandwidth`.
///
/// For instance, RAMCloud's figures: `--pcie 2.0x8 --mps 256 --measured 3552MB/s --tool perftest --clients 3
/// --single 3218MB/s --expected 4194MB/s`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct BandwidthOptions {
    /// The link: generation and lanes, as 2.0x8
    #[arg(long, value_name = "LINK")]
    pub pcie: Link,
    /// The maximum payload [default: 256]
    #[arg(long, value_name = "BYTES")]
    pub mps: Option<Bytes>,
    /// The maximum read request [default: 512]
    #[arg(long, value_name = "BYTES")]
    pub mrrs: Option<Bytes>,
    /// Bytes in which memory answers reads: 64, 128, or up to the maximum payload [default: the maximum payload]
    #[arg(long, value_name = "BYTES")]
    pub completion: Option<Bytes>,
    /// Bits of the addresses: 64, or 32 where the memory lies below 4 GiB [default: 64]
    #[arg(long, value_name = "BITS")]
    pub address: Option<u32>,
    /// Packets carry an end-to-end checksum
    #[arg(long)]
    pub ecrc: bool,
    /// What the host does: both is an adapter that sends and receives at once, and figures are the sum [default: one
    /// message stream, from the sender's bus to the receiver's]
    #[arg(long, value_enum)]
    pub direction: Option<Direction>,
    /// Bytes received to bytes sent, with --direction both [default: 1:1]
    #[arg(long, value_name = "W:R")]
    pub ratio: Option<Ratio>,
    /// The measured bandwidth with its unit, as 3552MiB/s: of all clients together
    #[arg(long, value_name = "RATE")]
    pub measured: Option<StatedRate>,
    /// Number of clients that sent to one server
    #[arg(long, default_value_t = 1)]
    pub clients: u32,
    /// What a single client reached
    #[arg(long, value_name = "RATE")]
    pub single: Option<StatedRate>,
    /// The expected bandwidth, if it was calculated
    #[arg(long, value_name = "RATE")]
    pub expected: Option<StatedRate>,
    /// The tool that printed the measured figures; perftest writes MB/sec for 2^20 bytes
    #[arg(long, value_enum)]
    pub tool: Option<Tool>,
    /// Million messages a second that were printed beside --measured, or beside --single where that is given: proves
    /// the unit
    #[arg(long, value_name = "MPPS")]
    pub message_rate: Option<f64>,
    /// Bytes of a message [default: 64K]
    #[arg(long)]
    pub size: Option<Bytes>,
    /// Transport of the messages [default: rc]
    #[arg(long, value_enum)]
    pub transport: Option<TransportName>,
    /// Operation on the messages [default: send]
    #[arg(long, value_enum)]
    pub verb: Option<VerbName>,
    /// Every N-th send is signalled
    #[arg(long, default_value_t = 100)]
    pub cq_mod: u32,
    /// The adapter: infinihost3, connectx, connectx3, connectx5, connectx7 [default: descriptors of one of the link's
    /// generation, and no network]
    #[arg(long)]
    pub adapter: Option<String>,
    /// The network, as QDR, EDRx4 or roce100 [default: that of --adapter]
    #[arg(long, value_name = "WIRE")]
    pub wire: Option<Wire>,
    /// Bytes of payload in a packet of the network
    #[arg(long, default_value = "4096")]
    pub mtu: Bytes,
    /// How to show it
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Tools whose figures are known to be written in a way of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// ib_send_bw and its kin.
    Perftest,
}

/// Names of [`Transport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl From<TransportName> for Transport {
    fn from(name: TransportName) -> Transport {
        match name {
            TransportName::Rc => Transport::Rc,
            TransportName::Uc => Transport::Uc,
            TransportName::Ud => Transport::Ud,
        }
    }
}

/// Names of [`Verb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerbName {
    /// Lands in a receive buffer.
    Send,
    /// Written to an address.
    Write,
}

impl From<VerbName> for Verb {
    fn from(name: VerbName) -> Verb {
        match name {
            VerbName::Send => Verb::Send,
            VerbName::Write => Verb::Write,
        }
    }
}

/// What is to be explained, checked.
struct Subject {
    link: Link,
    /// The network, where one is given or comes with the adapter given.
    wire: Option<Wire>,
    adapter: &'static Adapter,
    message: Message,
    /// One side, or both at once.
    moves: Option<Moves>,
    /// The unit of the answer.
    unit: RateUnit,
    measured: Option<Rate>,
    single: Option<Rate>,
    clients: u32,
    tool: Option<Tool>,
}

impl BandwidthOptions {
    fn size(&self) -> Bytes {
        self.size.unwrap_or(Bytes(64 << 10))
    }

    fn transport(&self) -> TransportName {
        self.transport.unwrap_or(TransportName::Rc)
    }

    fn verb(&self) -> VerbName {
        self.verb.unwrap_or(VerbName::Send)
    }
}

impl Subject {
    /// What the receiver's bus allows.
    fn receiver(&self, link: &Link) -> Rate {
        self.load(link, Moves::Write).rate(DataLink::Directional)
    }

    /// What the sender's bus allows.
    fn sender(&self, link: &Link) -> Rate {
        self.load(link, Moves::Read).rate(DataLink::Directional)
    }

    /// Messages over a link: received, sent, or both.
    fn load(&self, link: &Link, moves: Moves) -> Load {
        let received = || message::receiver(link, self.adapter, &self.message);
        let sent = || message::sender(link, self.adapter, &self.message);
        let mut parts = match moves {
            Moves::Write => received(),
            Moves::Read => sent(),
            Moves::Both(ratio) => {
                let times = |parts: Vec<Part>, times: u32| {
                    let times = f64::from(times);
                    parts
                        .into_iter()
                        .map(move |part| Part { traffic: part.traffic * times, ..part })
                };
                let both = times(received(), ratio.written).chain(times(sent(), ratio.read));
                merge(both)
            }
        };
        // The data first: what goes before them on the bus is small.
        parts.sort_by_key(|part| !part.name.starts_with("payload"));
        Load {
            link: *link,
            data: moves.data(self.message.size),
            of_data: if matches!(moves, Moves::Both(_)) { 2 } else { 1 },
            parts,
            source: self.adapter.source,
        }
    }

    /// What the network allows, if one is known: in both directions where both are used.
    fn network(&self) -> Option<Rate> {
        let message = &self.message;
        let over = self.moves.map_or(1.0, Moves::over_one);
        let of = |wire: Wire| wire.ceiling(message.transport, message.verb, message.size) * over;
        self.wire.map(of)
    }

    /// A rate, or the network's where that is less.
    fn through_network(&self, rate: Rate) -> Rate {
        self.network().map_or(rate, |network| network.min(rate))
    }

    /// A figure in the unit of the answer.
    fn say(&self, rate: Rate) -> String {
        let figure = rate.in_unit(self.unit);
        let digits = if figure < 100.0 { 1 } else { 0 };
        format!("{figure:.digits$} {}", self.unit)
    }
}

/// Parts of one name as one.
fn merge(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match all.iter_mut().find(|p| p.name == part.name) {
            Some(known) => known.traffic = known.traffic + part.traffic,
            None => all.push(part),
        }
    }
    all
}

/// Explains a bandwidth.
///
/// # Errors
/// A value is impossible for a link, an adapter or a message.
pub fn explain(options: &BandwidthOptions) -> Result<Explanation, LinkError> {
    let subject = check(options)?;
    let what = match subject.measured {
        Some(measured) => format!("{} over {}", subject.say(measured), subject.link),
        None => format!("What {} can carry", subject.link),
    };
    let mut made = Explanation::new(what);
    list_inputs(options, &subject, &mut made);
    units::judge(options, &subject, &mut made);
    match subject.moves {
        Some(both @ Moves::Both(_)) => {
            let waterfall = steps::draw_both(options, &subject, both);
            made.waterfalls.push(waterfall);
        }
        one => {
            let is = |moves| one.is_none_or(|one| one == moves);
            let receiver = is(Moves::Write).then(|| steps::draw_receiver(options, &subject));
            let sender = is(Moves::Read).then(|| steps::draw_sender(&subject));
            made.waterfalls.extend(receiver.into_iter().chain(sender));
        }
    }
    made.waterfalls.extend(subject.wire.map(|wire| steps::draw_network(&subject, &wire)));
    judge::judge(&subject, &mut made);
    made.sort_findings();
    Ok(made)
}

fn check(options: &BandwidthOptions) -> Result<Subject, LinkError> {
    let mut link = options.pcie.with_ecrc(options.ecrc);
    if let Some(mps) = options.mps {
        link = link.with_max_payload(mps.0)?;
    }
    if let Some(mrrs) = options.mrrs {
        link = link.with_max_read_request(mrrs.0)?;
    }
    if let Some(completion) = options.completion {
        link = link.with_completion(completion.0)?;
    }
    if let Some(bits) = options.address {
        link = link.with_address(AddressWidth::try_from(bits)?);
    }
    let adapter = match &options.adapter {
        Some(name) => profile::adapter(name)?,
        None => adapter_of_generation(&link),
    };
    let wire = match options.wire {
        Some(wire) => wire,
        None => adapter.wire.parse()?,
    };
    let wire = wire.with_mtu(options.mtu.0)?;
    let (size, transport) = (options.size(), Transport::from(options.transport()));
    let is_datagram = transport == Transport::Ud;
    let wrong = size.0 == 0 || size.0 > 1 << 31;
    refuse_if(wrong, "message", size, "1 byte to 2 GiB")?;
    let wrong = is_datagram && size > options.mtu;
    let expected = "at most one packet of the network (--mtu)";
    refuse_if(wrong, "datagram", size, expected)?;
    let wrong = is_datagram && options.verb() == VerbName::Write;
    let expected = "a send, or another transport";
    refuse_if(wrong, "verb", "write by datagram", expected)?;
    let expected = "one in at least one (--cq-mod)";
    refuse_if(options.cq_mod == 0, "signalled sends", 0, expected)?;
    refuse_if(options.clients == 0, "clients", 0, "at least one")?;
    let rate = options.message_rate.unwrap_or(1.0);
    let wrong = !(rate.is_finite() && rate > 0.0);
    let expected = "millions of messages a second, more than 0";
    refuse_if(wrong, "message rate", rate, expected)?;
    let moves = Moves::of_options(options.direction, options.ratio)?;
    let several = options.clients > 1 || options.single.is_some();
    let wrong = matches!(moves, Some(Moves::Both(_))) && several;
    let expected = "one figure of one host in both directions, without --clients and --single";
    refuse_if(wrong, "clients", options.clients, expected)?;
    let message = Message {
        signal_every: options.cq_mod,
        receive_batch: 16,
        mtu: wire.mtu,
        ..Message::new(transport, options.verb().into(), size)
    };
    let proved = units::prove(options);
    let meant = |stated: StatedRate| units::reinterpret(stated, options.tool, proved);
    let unit = options.measured.or(options.single).map(|s| meant(s).unit);
    Ok(Subject {
        link,
        wire: (options.wire.is_some() || options.adapter.is_some()).then_some(wire),
        adapter,
        message,
        moves,
        unit: unit.unwrap_or(RateUnit::MibPerS),
        measured: options.measured.map(|s| meant(s).rate),
        single: options.single.map(|s| meant(s).rate),
        clients: options.clients,
        tool: options.tool,
    })
}

/// The newest adapter known whose bus is not newer than the link: its descriptors stand for those of others.
fn adapter_of_generation(link: &Link) -> &'static Adapter {
    let is_not_newer = |adapter: &&Adapter| {
        let own: Result<Link, LinkError> = adapter.link.parse();
        own.is_ok_and(|own| own.generation() <= link.generation())
    };
    let found = profile::ADAPTERS.iter().rfind(is_not_newer);
    found.unwrap_or(&profile::ADAPTERS[0])
}

/// As it is written on the command line.
fn name_of(value: impl ValueEnum) -> String {
    let known = value.to_possible_value();
    known.map_or_else(String::new, |v| v.get_name().to_owned())
}

fn list_inputs(options: &BandwidthOptions, subject: &Subject, made: &mut Explanation) {
    let link = &subject.link;
    let mut put = |name: &str, value: String, given: bool| {
        made.input(name, value, if given { "given" } else { "assumed" });
    };
    let bytes = |n: u32| Bytes(n.into()).to_string();
    put("link", link.to_string(), true);
    put("maximum payload", bytes(link.max_payload()), options.mps.is_some());
    put("maximum read request", bytes(link.max_read_request()), options.mrrs.is_some());
    put("read completion", bytes(link.completion()), options.completion.is_some());
    let bits = if link.address() == AddressWidth::Bits64 { 64 } else { 32 };
    put("addresses", format!("{bits} bits"), options.address.is_some());
    put("message", subject.message.size.to_string(), options.size.is_some());
    let transport = name_of(options.transport()).to_uppercase();
    put("transport", transport, options.transport.is_some());
    if let Some(Moves::Both(ratio)) = subject.moves {
        let value = format!("both at once, {ratio} received to sent");
        put("directions", value, true);
    }
    put("verb", name_of(options.verb()), options.verb.is_some());
    put("adapter", subject.adapter.title.to_owned(), options.adapter.is_some());
    let network = subject.wire.map_or_else(
        || "not known, and left out: --adapter, --wire".to_owned(),
        |wire| format!("{wire}, packets of {} B", wire.mtu),
    );
    put("network", network, options.wire.is_some());
}
