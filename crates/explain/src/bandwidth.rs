//! `fastpath explain bandwidth`: from the signalling rate of the lanes to the achievable bandwidth of a message, and
//! the gap to the measured figure.

mod judge;
mod steps;
#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
mod units;

use clap::{Args, ValueEnum};
use fastpath_pcie::formulas::DataLink;
use fastpath_pcie::formulas::message::{self, Message, TrafficPart};
use fastpath_pcie::link::AddressWidth;
use fastpath_pcie::profile::{self, Adapter};
use fastpath_pcie::wire::{Transport, Verb, Wire};
use fastpath_pcie::{Bytes, Link, LinkError, Rate, RateUnit, StatedRate};

use super::bus::Load;
use super::moves::{MoveDirection, Moves, Ratio};
use super::options::{OutputOptions, take_signs};
use super::{Explanation, refuse_if};

/// Options of `fastpath explain bandwidth`.
///
/// For instance, RAMCloud's figures: `--pcie 2.0x8 --mps 256 --measured 3552MB/s --tool perftest --clients 3
/// --single 3218MB/s --expected 4194MB/s`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(take_signs))]
pub struct BandwidthOptions {
    /// PCIe link: generation and lanes, such as 2.0x8
    #[arg(help_heading = "PCIe link", long, value_name = "LINK")]
    pub pcie: Link,
    /// Maximum payload size (MPS) [default: 256]
    #[arg(help_heading = "PCIe link", long, value_name = "BYTES")]
    pub mps: Option<Bytes>,
    /// Maximum read request size (MRRS) [default: 512]
    #[arg(help_heading = "PCIe link", long, value_name = "BYTES")]
    pub mrrs: Option<Bytes>,
    /// Completion size of memory reads, in bytes: 64, 128, or up to the maximum payload [default: the maximum payload]
    #[arg(help_heading = "PCIe link", long, value_name = "BYTES")]
    pub completion: Option<Bytes>,
    /// Address width in bits: 64, or 32 if the memory is below 4 GiB [default: 64]
    #[arg(help_heading = "PCIe link", long, value_name = "BITS")]
    pub address: Option<u32>,
    /// Packets carry an end-to-end checksum (ECRC)
    #[arg(help_heading = "PCIe link", long)]
    pub ecrc: bool,
    /// Direction of transfers; both: the adapter sends and receives at once, and figures are the sum [default:
    /// one message stream, from the sender's bus to the receiver's]
    #[arg(help_heading = "Messages", long, value_enum)]
    pub direction: Option<MoveDirection>,
    /// Ratio of bytes received to bytes sent, with --direction both [default: 1:1]
    #[arg(help_heading = "Messages", long, value_name = "W:R")]
    pub ratio: Option<Ratio>,
    /// Measured bandwidth with its unit, such as 3552MiB/s: the sum over all clients
    #[arg(help_heading = "Measured figures", long, value_name = "RATE")]
    pub measured: Option<StatedRate>,
    /// Number of clients that sent to one server
    #[arg(help_heading = "Measured figures", long, default_value_t = 1)]
    pub clients: u32,
    /// Bandwidth of a single client
    #[arg(help_heading = "Measured figures", long, value_name = "RATE")]
    pub single: Option<StatedRate>,
    /// Expected bandwidth, if it was calculated
    #[arg(help_heading = "Measured figures", long, value_name = "RATE")]
    pub expected: Option<StatedRate>,
    /// Tool that printed the measured figures; perftest prints MB/sec for 2^20 bytes
    #[arg(help_heading = "Measured figures", long, value_enum)]
    pub tool: Option<Tool>,
    /// Message rate in millions per second that the tool printed with the figure of --single, or of --measured if
    /// --single is not given; it shows the unit of the figure
    #[arg(help_heading = "Measured figures", long, value_name = "MPPS")]
    pub message_rate: Option<f64>,
    /// Message size in bytes [default: 64K]
    #[arg(help_heading = "Messages", long)]
    pub size: Option<Bytes>,
    /// Transport of the messages [default: rc]
    #[arg(help_heading = "Messages", long, value_enum)]
    pub transport: Option<TransportName>,
    /// Operation that transfers the messages [default: send]
    #[arg(help_heading = "Messages", long, value_enum)]
    pub verb: Option<VerbName>,
    /// Signal every N-th send
    #[arg(help_heading = "Messages", long, default_value_t = 100)]
    pub cq_mod: u32,
    /// Adapter: infinihost3, connectx, connectx3, connectx5, connectx7 [default: descriptors of an adapter of the
    /// link's generation, and no network]
    #[arg(help_heading = "Adapter and network", long)]
    pub adapter: Option<String>,
    /// Network, such as QDR, EDRx4 or roce100 [default: that of --adapter]
    #[arg(help_heading = "Adapter and network", long, value_name = "WIRE")]
    pub wire: Option<Wire>,
    /// MTU: bytes of payload in a network packet
    #[arg(help_heading = "Adapter and network", long, default_value = "4096")]
    pub mtu: Bytes,
    /// Output format
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Tools with unusual units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// ib_send_bw and its relatives.
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
    /// Send to a receive buffer.
    Send,
    /// RDMA write to an address.
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

struct BandwidthSubject {
    link: Link,
    /// Network, if it is given or the given adapter implies it.
    wire: Option<Wire>,
    adapter: &'static Adapter,
    message: Message,
    /// Direction of the transfers; None: a message stream from the sender's bus to the receiver's.
    moves: Option<Moves>,
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

impl BandwidthSubject {
    /// Limit of the receiver's bus.
    fn receiver(&self, link: &Link) -> Rate {
        self.load(link, Moves::Write).rate(DataLink::Directional)
    }

    /// Limit of the sender's bus.
    fn sender(&self, link: &Link) -> Rate {
        self.load(link, Moves::Read).rate(DataLink::Directional)
    }

    /// Load of one message on a link, if it is received, sent, or both.
    fn load(&self, link: &Link, moves: Moves) -> Load {
        let received = || message::receiver(link, self.adapter, &self.message);
        let sent = || message::sender(link, self.adapter, &self.message);
        let mut parts = match moves {
            Moves::Write => received(),
            Moves::Read => sent(),
            Moves::Both(ratio) => {
                let times = |parts: Vec<TrafficPart>, times: u32| {
                    let times = f64::from(times);
                    parts
                        .into_iter()
                        .map(move |part| TrafficPart { traffic: part.traffic * times, ..part })
                };
                let both = times(received(), ratio.written).chain(times(sent(), ratio.read));
                merge(both)
            }
        };
        // Put the data first: the parts that precede the data on the bus are small.
        parts.sort_by_key(|part| !part.name.starts_with("payload"));
        Load {
            link: *link,
            data: moves.data(self.message.size),
            of_data: if matches!(moves, Moves::Both(_)) { 2 } else { 1 },
            parts,
            source: self.adapter.source,
        }
    }

    /// Limit of the network, if one is known; the sum of both directions if the transfers use both.
    fn network(&self) -> Option<Rate> {
        let message = &self.message;
        let over = self.moves.map_or(1.0, Moves::over_one);
        let of = |wire: Wire| wire.ceiling(message.transport, message.verb, message.size) * over;
        self.wire.map(of)
    }

    fn through_network(&self, rate: Rate) -> Rate {
        self.network().map_or(rate, |network| network.min(rate))
    }

    fn say(&self, rate: Rate) -> String {
        let figure = rate.in_unit(self.unit);
        let digits = if figure < 100.0 { 1 } else { 0 };
        format!("{figure:.digits$} {}", self.unit)
    }
}

fn merge(parts: impl Iterator<Item = TrafficPart>) -> Vec<TrafficPart> {
    let mut all: Vec<TrafficPart> = Vec::new();
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

fn check(options: &BandwidthOptions) -> Result<BandwidthSubject, LinkError> {
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
    let expected = "--verb send, or another transport";
    refuse_if(wrong, "verb", "write by datagram", expected)?;
    let expected = "--cq-mod of at least 1";
    refuse_if(options.cq_mod == 0, "signalled sends", 0, expected)?;
    refuse_if(options.clients == 0, "clients", 0, "at least one")?;
    let rate = options.message_rate.unwrap_or(1.0);
    let wrong = !(rate.is_finite() && rate > 0.0);
    let expected = "millions of messages a second, more than 0";
    refuse_if(wrong, "message rate", rate, expected)?;
    let moves = Moves::of_options(options.direction, options.ratio)?;
    let several = options.clients > 1 || options.single.is_some();
    let wrong = matches!(moves, Some(Moves::Both(_))) && several;
    let expected = "one client with --direction both, and no --single";
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
    Ok(BandwidthSubject {
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

/// Newest known adapter whose bus is not newer than the link; its descriptors stand for those of other adapters.
fn adapter_of_generation(link: &Link) -> &'static Adapter {
    let is_not_newer = |adapter: &&Adapter| {
        let own: Result<Link, LinkError> = adapter.link.parse();
        own.is_ok_and(|own| own.generation() <= link.generation())
    };
    let found = profile::ADAPTERS.iter().rfind(is_not_newer);
    found.unwrap_or(&profile::ADAPTERS[0])
}

fn name_of(value: impl ValueEnum) -> String {
    let known = value.to_possible_value();
    known.map_or_else(String::new, |v| v.get_name().to_owned())
}

fn list_inputs(options: &BandwidthOptions, subject: &BandwidthSubject, made: &mut Explanation) {
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
        let value = format!("both at once, bytes received to bytes sent {ratio}");
        put("directions", value, true);
    }
    put("verb", name_of(options.verb()), options.verb.is_some());
    put("adapter", subject.adapter.title.to_owned(), options.adapter.is_some());
    let network = subject.wire.map_or_else(
        || "unknown, so not modelled; pass --adapter or --wire".to_owned(),
        |wire| format!("{wire}, packets of {} B", wire.mtu),
    );
    put("network", network, options.wire.is_some());
}
