//! What follows from prediction and measurement.

use fastpath_pcie::closed::DataLink;
use fastpath_pcie::link::AddressWidth;
use fastpath_pcie::{Link, Rate, RateUnit};

use super::super::bus::Load;
use super::super::moves::{Moves, Ratio};
use super::super::{AGREES, Experiment, Explanation, Finding, FindingKind, Outcome, percent};
use super::{Subject, Tool, steps};

/// What perftest allows its clock to be off: it takes the processor's nominal frequency if a measurement
/// agrees with it to 2 %.
const CLOCK: f64 = 0.02;

/// The stages and what they allow: with several clients the sender's bus is not shared.
fn stages(subject: &Subject) -> Vec<(&'static str, Rate)> {
    let clients = f64::from(subject.clients);
    let receiver = ("receiver's bus", subject.receiver(&subject.link));
    let sender = ("sender's bus", subject.sender(&subject.link) * clients);
    let mut stages = match subject.moves {
        None => vec![receiver, sender],
        Some(Moves::Write) => vec![receiver],
        Some(Moves::Read) => vec![sender],
        Some(both) => vec![(BOTH_WAYS, bus(subject, &subject.link, both))],
    };
    stages.extend(subject.network().map(|rate| ("network", rate)));
    stages
}

/// The stage of a bus that is used in both directions at once.
pub(super) const BOTH_WAYS: &str = "bus both ways";

/// What a bus allows.
fn bus(subject: &Subject, link: &Link, moves: Moves) -> Rate {
    subject.load(link, moves).rate(DataLink::Directional)
}

fn tightest(subject: &Subject) -> (&'static str, Rate) {
    let stages = stages(subject).into_iter();
    let found = stages.min_by(|a, b| a.1.bytes_per_s().total_cmp(&b.1.bytes_per_s()));
    found.unwrap_or_default()
}

/// Which stage is tightest.
pub(super) fn bound_by(subject: &Subject) -> &'static str {
    tightest(subject).0
}

fn prediction(subject: &Subject) -> Rate {
    tightest(subject).1
}

struct Findings<'a>(&'a mut Vec<Finding>);

impl Findings<'_> {
    fn add(&mut self, kind: FindingKind, id: &str, text: String, why: String) {
        self.0.push(Finding {
            kind,
            id: id.to_owned(),
            text,
            why,
        });
    }
}

pub(super) fn judge(subject: &Subject, made: &mut Explanation) {
    let mut findings = Findings(&mut made.findings);
    compare_stages(subject, &mut findings);
    if let Some(both @ Moves::Both(_)) = subject.moves {
        judge_both(subject, both, &mut findings);
        made.experiments = tell_directions_apart(subject);
    }
    if let Some(measured) = subject.measured {
        judge_left(subject, measured, &mut findings);
    }
    let is_one_stream = !matches!(subject.moves, Some(Moves::Both(_) | Moves::Write));
    if let Some(single) = subject.single {
        judge_single(subject, single, &mut findings);
        made.experiments = tell_sender_from_receiver(subject, single);
    } else if is_one_stream
        && subject.clients == 1
        && subject
            .measured
            .is_some_and(|m| m < prediction(subject) * (1.0 - CLOCK))
    {
        let measured = subject.measured.unwrap_or_default();
        judge_single(subject, measured, &mut findings);
        made.experiments = tell_sender_from_receiver(subject, measured);
    }
    mention_pcie_bench(subject, &mut findings);
}

fn compare_stages(subject: &Subject, findings: &mut Findings<'_>) {
    let mut stages = vec![
        ("the receiver's bus", subject.receiver(&subject.link)),
        ("one sender's bus", subject.sender(&subject.link)),
    ];
    if let Some(both @ Moves::Both(_)) = subject.moves {
        stages = vec![("the bus both ways", bus(subject, &subject.link, both))];
    }
    stages.extend(subject.network().map(|rate| ("the network", rate)));
    let all: Vec<String> = stages
        .iter()
        .map(|(name, rate)| format!("{name} {}", subject.say(*rate)))
        .collect();
    let text = format!(
        "The {} is the limit: {}.",
        bound_by(subject),
        subject.say(prediction(subject))
    );
    let kind = if subject.measured.is_some() {
        FindingKind::Note
    } else {
        FindingKind::Answer
    };
    findings.add(
        kind,
        "limit",
        text,
        format!("Allowed by {}.", all.join(", by ")),
    );
    let Some(wire) = subject.wire else { return };
    let (bus, signals) = (subject.link.raw(), wire.signalling.gb_per_s().0);
    let wire = wire.rate;
    if (bus / wire - 1.0).abs() < 1e-3 && signals > bus.gb_per_s().0 {
        let text = format!(
            "A network of {signals:.0} Gb/s is not faster than this bus: both carry {:.0} after their encoding, and headers decide.",
            bus.gb_per_s()
        );
        findings.add(FindingKind::Note, "network-ties", text, String::new());
    }
}

fn judge_left(subject: &Subject, measured: Rate, findings: &mut Findings<'_>) {
    let (stage, predicted) = tightest(subject);
    let off = measured / predicted - 1.0;
    let moves = subject.moves.unwrap_or(Moves::Write);
    let raw = subject.link.raw() * moves.over_one();
    let load = Load::of_transfers(&subject.link, moves, subject.message.size);
    let headers = raw - load.rate(DataLink::Ignored);
    let share = headers / raw * 100.0;
    let implied = steps::implied_overhead(&subject.link, measured);
    let stands = match off > -0.25 && moves == Moves::Write {
        true => format!(
            " The measured figure stands for {implied:.1} B around each {} B.",
            subject.link.max_payload()
        ),
        false => String::new(),
    };
    let why = format!(
        "Measured {}, predicted {}: {:+.1} %. Headers alone take {} ({share:.1} %).{stands}",
        subject.say(measured),
        subject.say(predicted),
        off * 100.0,
        subject.say(headers),
    );
    if off.abs() <= AGREES {
        let text = match stage {
            "network" => "Nothing is left to explain: the network delivers what it can.",
            _ => "Nothing is left to explain: the bus delivers what it can.",
        }
        .to_owned();
        findings.add(FindingKind::Answer, "nothing-left", text, why);
    } else if off > 0.0 {
        let text = format!(
            "The figure is {:.1} % above what the {stage} can carry: it, or what is known of the {stage}, is wrong.",
            off * 100.0
        );
        findings.add(FindingKind::Caution, "above-the-limit", text, why);
    } else {
        let text = format!("{} are left to explain.", subject.say(predicted - measured));
        findings.add(FindingKind::Answer, "left", text, why);
    }
    if off > 0.0 {
        explain_excess(subject, measured, findings);
    }
}

/// Why a figure may lie above the limit, likeliest first.
fn explain_excess(subject: &Subject, measured: Rate, findings: &mut Findings<'_>) {
    let (stage, predicted) = tightest(subject);
    let off = measured / predicted - 1.0;
    let mut cause =
        |id: &str, text: String, why: String| findings.add(FindingKind::Cause, id, text, why);
    let other = other_unit(measured, predicted, subject.unit).filter(|_| off > AGREES);
    if let Some((unit, rate)) = other {
        cause(
            "unit",
            format!(
                "The unit: {:.0} {unit} would agree.",
                measured.in_unit(subject.unit)
            ),
            format!(
                "They are {}: {:+.1} %.",
                subject.say(rate),
                (rate / predicted - 1.0) * 100.0
            ),
        );
    }
    if off <= AGREES {
        let (text, why) = match subject.tool {
            Some(Tool::Perftest) => (
                format!(
                    "The tool's clock: perftest may be off by up to {}.",
                    percent(CLOCK)
                ),
                format!(
                    "It takes the processor's nominal frequency where a measurement agrees with it to {}.",
                    percent(CLOCK)
                ),
            ),
            None => (
                "The tool's clock or its window may be off by that much.".to_owned(),
                String::new(),
            ),
        };
        cause("clock", text, why);
    }
    if stage == "network" {
        return cause(
            "other-network",
            "The network is another one: say --wire.".to_owned(),
            String::new(),
        );
    }
    if subject.clients > 1 {
        cause(
            "windows",
            format!(
                "Figures of {} clients were added whose windows did not coincide.",
                subject.clients
            ),
            "What one sends before or after the others it sends alone.".to_owned(),
        );
    }
    let mut other = |id: &str, link: fastpath_pcie::Link, text: &str| {
        let moves = subject.moves.unwrap_or(Moves::Write);
        let allowed = bus(subject, &link, moves);
        if allowed > bus(subject, &subject.link, moves) {
            let off = (measured / allowed - 1.0) * 100.0;
            cause(
                id,
                text.to_owned(),
                format!(
                    "Then {} are allowed, and {off:+.1} % are left.",
                    subject.say(allowed)
                ),
            );
        }
    };
    other(
        "short-addresses",
        subject.link.with_address(AddressWidth::Bits32),
        "The buffers lie below 4 GiB: headers are 4 bytes shorter.",
    );
    if let Ok(link) = subject
        .link
        .with_max_payload(u64::from(subject.link.max_payload()) * 2)
    {
        other(
            "larger-payload",
            link,
            "The maximum payload is twice what was said: look at DevCtl, not at DevCap.",
        );
    }
}

/// A unit in which the same figure agrees with what is predicted, and the rate that it then is.
fn other_unit(measured: Rate, predicted: Rate, unit: RateUnit) -> Option<(RateUnit, Rate)> {
    let as_unit = |other| (other, Rate::new(measured.in_unit(unit), other));
    let agrees = |(_, rate): &(RateUnit, Rate)| (*rate / predicted - 1.0).abs() <= AGREES;
    RateUnit::ALL
        .into_iter()
        .filter(|other| *other != unit)
        .map(as_unit)
        .find(agrees)
}

/// Holds what one client reached against the sender's reads, by the size of completions.
fn judge_single(subject: &Subject, single: Rate, findings: &mut Findings<'_>) {
    let sizes = [64, 128, 256, 512]
        .into_iter()
        .filter(|&n| n <= u64::from(subject.link.max_payload()));
    let mut allowed: Vec<(u64, Rate)> = sizes
        .filter_map(|n| Some((n, steps::reads_of(subject, n)?.1)))
        .collect();
    allowed.sort_by(|a, b| a.1.bytes_per_s().total_cmp(&b.1.bytes_per_s()));
    let list: Vec<String> = allowed
        .iter()
        .map(|(n, rate)| format!("{n} B: {}", subject.say(*rate)))
        .collect();
    let why = format!(
        "Reads that memory answers in pieces of {}. The figure stands for {:.1} B around each 128 B.",
        list.join("; "),
        128.0 * (subject.link.raw() / single - 1.0)
    );
    let fits = allowed
        .iter()
        .find(|(_, rate)| (single / *rate - 1.0).abs() <= CLOCK);
    match fits {
        Some((size, rate)) => {
            let text = format!(
                "One client's {} fit the sender's reads, answered in pieces of {size} B: {:.1} % of {}.",
                subject.say(single),
                single / *rate * 100.0,
                subject.say(*rate)
            );
            findings.add(FindingKind::Cause, "sender-reads", text, why);
        }
        None => findings.add(
            FindingKind::Note,
            "sender-reads",
            format!(
                "One client's {} fit no size of read completions.",
                subject.say(single)
            ),
            why,
        ),
    }
    for (size, rate) in allowed
        .iter()
        .filter(|(_, rate)| single > *rate * (1.0 + CLOCK))
    {
        let text = format!(
            "Completions of {size} B are excluded: they allow {} at most.",
            subject.say(*rate)
        );
        findings.add(
            FindingKind::Excluded,
            "completion-size",
            text,
            String::new(),
        );
    }
    let per_message = single.time_of(subject.message.size.as_f64());
    findings.add(
        FindingKind::Cause,
        "receiver-process",
        format!(
            "One client's limit may be the receiving process, if it takes {per_message:.1} for each message of {}.",
            subject.message.size
        ),
        "It would then be the limit of every sender to that process, however many there are."
            .to_owned(),
    );
}

fn tell_sender_from_receiver(subject: &Subject, single: Rate) -> Vec<Experiment> {
    let shared = subject.through_network(subject.receiver(&subject.link));
    let two = shared.min(single * 2.0);
    let outcome = |rate: Rate, means: &str| Outcome {
        seen: format!("about {} together", subject.say(rate)),
        means: means.to_owned(),
    };
    let sender = "the sender's bus is the limit";
    let receiver = "the receiving process is the limit";
    vec![
        Experiment {
            what: "Two client hosts send to one server process.".to_owned(),
            outcomes: vec![outcome(two, sender), outcome(single, receiver)],
        },
        Experiment {
            what: "One client host sends to processes on two server hosts.".to_owned(),
            outcomes: vec![
                outcome(single, sender),
                outcome(
                    subject
                        .through_network(subject.sender(&subject.link))
                        .min(single * 2.0),
                    receiver,
                ),
            ],
        },
    ]
}

/// What each direction has, what bursts change, and whether the figure is of one of them.
fn judge_both(subject: &Subject, both: Moves, findings: &mut Findings<'_>) {
    let link = &subject.link;
    let sum = bus(subject, link, both);
    let alone = [Moves::Write, Moves::Read].map(|moves| bus(subject, link, moves));
    let text = match both {
        Moves::Both(Ratio { written, read }) => {
            let all = f64::from(written + read);
            format!(
                "The bus carries {} of what arrives and {} of what leaves at once.",
                subject.say(sum * (f64::from(written) / all)),
                subject.say(sum * (f64::from(read) / all)),
            )
        }
        _ => return,
    };
    let why = format!(
        "Alone they would be {} and {}: requests go the way of what is written, and each direction answers for the other.",
        subject.say(alone[0]),
        subject.say(alone[1]),
    );
    findings.add(FindingKind::Note, "each-way", text, why);
    let bursts = subject.load(link, both).rate(DataLink::Bursts);
    if subject.say(bursts) != subject.say(sum) {
        let text = format!(
            "Packets in bursts need fewer answers than packets by turns: up to {} then.",
            subject.say(bursts)
        );
        findings.add(FindingKind::Note, "bursts", text, String::new());
    }
    let is_one = |m: &Rate| (*m * both.over_one() / prediction(subject) - 1.0).abs() <= AGREES;
    if let Some(measured) = subject.measured.filter(is_one) {
        let text = format!(
            "The figure is of one direction: both together would be {}.",
            subject.say(measured * both.over_one())
        );
        let why = "Here figures are the sum; so are perftest's with -b.".to_owned();
        findings.add(FindingKind::Cause, "one-direction", text, why);
    }
}

fn tell_directions_apart(subject: &Subject) -> Vec<Experiment> {
    let outcome = |seen: String, means: &str| Outcome {
        seen,
        means: means.to_owned(),
    };
    let about = |moves| {
        let rate = subject.through_network(bus(subject, &subject.link, moves));
        format!("about {}", subject.say(rate))
    };
    let limit = "this direction is as the bus allows, and the limit is met only by both at once";
    let own = "this direction has a limit of its own";
    let each = |what: &str, moves| Experiment {
        what: what.to_owned(),
        outcomes: vec![
            outcome(about(moves), limit),
            outcome("less".to_owned(), own),
        ],
    };
    vec![
        each("Receive alone (--direction write).", Moves::Write),
        each("Send alone (--direction read).", Moves::Read),
    ]
}

fn mention_pcie_bench(subject: &Subject, findings: &mut Findings<'_>) {
    let moves = subject.moves.unwrap_or(Moves::Write);
    let load = Load::of_transfers(&subject.link, moves, subject.message.size);
    let (symmetric, own) = (
        load.rate(DataLink::Symmetric),
        load.rate(DataLink::Directional),
    );
    let text = format!(
        "pcie-bench's model gives {} for the {}, {:.0} % less.",
        subject.say(symmetric),
        moves.short(),
        (1.0 - symmetric / own) * 100.0
    );
    let why = "It charges acknowledgements and credit updates to both directions, where those of what is written travel the other way, and each with 8 bytes \
               per limit, where a symbol time carries a byte on every lane."
        .to_owned();
    findings.add(FindingKind::Note, "pcie-bench", text, why);
}
