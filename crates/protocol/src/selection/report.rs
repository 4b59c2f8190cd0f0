//! What was chosen and why, for people and programs: `FASTPATH_REPORT` and `fastpath info --protocols`.

use super::constants::FIELDS;
use super::decide::{PART_MAX, PART_MIN};
use super::envelope::Curve;
use super::{Selection, Source, Thresholds};
use crate::protocols::{Protocol, RECORDS, Record, below, curves};
use crate::rma::{Reach, Way};
use crate::worker::{EARLY_LIMIT, SHORT_LIMIT};
use fastpath_transport::PeerClass;
use serde::Serialize;
use std::fmt::{self, Display};

/// The whole of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Where the constants come from.
    pub source: String,
    /// What things cost here.
    pub constants: Vec<Constant>,
    /// For each class of peers and kind of memory.
    pub classes: Vec<Class>,
    /// What the user set and what came of it.
    pub notes: Vec<String>,
}

/// One constant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The value's unit.
    pub unit: &'static str,
}

/// Peers that are served alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    /// Which peers.
    pub peer: &'static str,
    /// Which memory.
    pub memory: &'static str,
    /// What moves the bytes.
    pub transports: Vec<&'static str>,
    /// Without gap or overlap, from 0 bytes up.
    pub ranges: Vec<Range>,
    /// How memory of theirs is reached by one-sided operations.
    pub one_sided: Vec<OneSided>,
    /// What could serve these peers and does not, or not everywhere.
    pub rejected: Vec<Rejected>,
    /// The adapter that leads there, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// What makes a pair change from the first transport to the second, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rises: Option<String>,
}

/// One range of sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Range {
    /// Smallest message, in bytes.
    pub from: u64,
    /// Largest message, in bytes; None: no limit.
    pub to: Option<u64>,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// How the bytes move.
    pub how: String,
    /// What the smallest and the largest one cost by the model, in nanoseconds; None: the model does
    /// not say.
    pub cost_ns: Option<[f64; 2]>,
}

/// How one-sided operations reach memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneSided {
    /// Which ones.
    pub operations: &'static str,
    /// The way, as keys name theirs.
    pub way: &'static str,
    /// What it does.
    pub how: &'static str,
}

impl OneSided {
    /// The ways to memory that can be reached so. Atomics are done by a processor: this one's, or the owner's.
    fn list(reach: Reach) -> Vec<OneSided> {
        let of = |operations, way: Way| OneSided {
            operations,
            way: way.name(),
            how: match way {
                Way::LoadStore => {
                    "no MPI windows yet; this processor reads and writes the memory where it lies"
                }
                Way::Kernel => "no MPI windows yet; the kernel copies between the processes",
                Way::Adapter => {
                    "no MPI windows yet; the adapter reads and writes the owner's memory"
                }
                Way::Messages => {
                    "no MPI windows yet; the owner carries them out when it makes progress"
                }
            },
        };
        match reach.way() {
            way @ (Way::LoadStore | Way::Messages) => vec![of("put, get, atomics", way)],
            way => vec![of("put, get", way), of("atomics", Way::Messages)],
        }
    }
}

/// An option that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// Its name.
    pub option: &'static str,
    /// Why.
    pub reason: String,
}

/// Largest size whose cost is told where a range has no end.
const FAR: u64 = 1 << 20;

impl Report {
    /// The report on what was selected for these peers.
    pub fn of(selection: &Selection, peers: Vec<PeerClass>) -> Report {
        let constant = |field: &super::constants::Field| Constant {
            name: field.name,
            value: (field.get)(&selection.constants),
            unit: field.unit,
        };
        let t = selection.thresholds();
        let mut classes = Vec::new();
        for peers in peers {
            if peers.in_process {
                classes.push(describe_self(&t, peers));
            } else if !peers.same_host {
                classes.push(describe_outside(&t, peers));
            } else {
                classes.push(describe_node(selection, &t, &peers, false));
                if peers.load_store {
                    classes.push(describe_node(selection, &t, &peers, true));
                }
            }
        }
        Report {
            source: selection.source.to_string(),
            constants: FIELDS.iter().map(constant).collect(),
            classes,
            notes: list_notes(selection),
        }
    }

    /// As one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in &self.classes {
            let transports = class.transports.join(", ");
            let by = class
                .adapter
                .as_ref()
                .map(|adapter| format!(" on {adapter}"));
            let by = by.unwrap_or_default();
            writeln!(f, "to {}, {} ({transports}{by})", class.peer, class.memory)?;
            for range in &class.ranges {
                let (sizes, cost) = (range.sizes(), range.cost());
                let name = range.protocol;
                writeln!(f, "  {sizes:<20} {name:<24} {cost:<18} {}", range.how)?;
            }
            for OneSided {
                operations,
                way,
                how,
            } in &class.one_sided
            {
                writeln!(f, "  {operations:<20} {way:<24} {:<18} {how}", "")?;
            }
            if let Some(rule) = &class.rises {
                writeln!(f, "  {:<20} {rule}", "rises")?;
            }
            for Rejected { option, reason } in &class.rejected {
                writeln!(f, "  {:<20} {option:<24} {reason}", "not used")?;
            }
        }
        writeln!(f, "costs: {}", self.source)?;
        for constant in &self.constants {
            let Constant { name, value, unit } = constant;
            writeln!(f, "  {name:<20} {value:.3} {unit}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

impl Range {
    /// The sizes as text.
    pub fn sizes(&self) -> String {
        match self.to {
            Some(to) => format!("{} to {to} B", self.from),
            None => format!("from {} B", self.from),
        }
    }

    fn cost(&self) -> String {
        let text = |ns: f64| match ns {
            _ if ns < 1000.0 => format!("{ns:.0} ns"),
            _ => format!("{:.1} us", ns / 1e3),
        };
        match self.cost_ns {
            Some([from, to]) if self.to.is_some() => format!("{} to {}", text(from), text(to)),
            Some([from, _]) => format!("from {}", text(from)),
            None => String::new(),
        }
    }
}

/// The steps of a table: each serves up to its size.
fn list_ranges(steps: Vec<(u64, &'static str, String, Option<Curve>)>) -> Vec<Range> {
    let mut ranges = Vec::new();
    let mut from = 0;
    for (to, protocol, how, curve) in steps {
        if to < from {
            continue;
        }
        let cost = |curve: Curve| {
            let last = if to == u64::MAX { FAR.max(from) } else { to };
            Some([curve.at(from)?, curve.at(last)?])
        };
        ranges.push(Range {
            from,
            to: (to != u64::MAX).then_some(to),
            protocol,
            how,
            cost_ns: curve.and_then(cost),
        });
        if to == u64::MAX {
            break;
        }
        from = to + 1;
    }
    ranges
}

fn describe_self(t: &Thresholds, peers: PeerClass) -> Class {
    let parts = t.first.min(t.single_copy.saturating_sub(1));
    let whole = "kept in the process until it is received".to_owned();
    let pieces = format!("as above, in parts of {} B", t.part);
    let once = "announced, then copied once from buffer to buffer".to_owned();
    Class {
        peer: peers.peer,
        memory: "any memory",
        transports: peers.transports.to_vec(),
        ranges: list_ranges(vec![
            (t.eager, "eager", whole, None),
            (parts, "eager in parts", pieces, None),
            (u64::MAX, "rendezvous, one copy", once, None),
        ]),
        one_sided: OneSided::list(Reach {
            shared: true,
            ..Reach::default()
        }),
        rejected: Vec::new(),
        adapter: None,
        rises: None,
    }
}

/// Those that an adapter leads to. What it costs there is not modelled.
fn describe_outside(t: &Thresholds, peers: PeerClass) -> Class {
    let fetched = match peers.registered {
        Ok(()) => t.fetch,
        Err(_) => u64::MAX,
    };
    let whole = "whole, in packets of the adapter, without asking".to_owned();
    let most = t.whole.min(peers.whole);
    let parts = format!("parts of {} B without asking", t.part.max(most));
    let fragments = format!(
        "announced with {} B, then fragments of {} B",
        t.first,
        t.fragment.max(most)
    );
    let fetch = "announced; the receiver's adapter reads from buffer to buffer".to_owned();
    let first = t.first.min(below(t.single_copy));
    let steps = vec![
        (t.eager.max(most), "eager", whole, None),
        (first, "eager in parts", parts, None),
        (below(fetched), "rendezvous, pipelined", fragments, None),
        (u64::MAX, "rendezvous, fetched", fetch, None),
    ];
    let reject = |reason: &str| Rejected {
        option: "rendezvous, fetched",
        reason: reason.to_owned(),
    };
    Class {
        peer: peers.peer,
        memory: "any memory",
        transports: peers.transports.to_vec(),
        ranges: list_ranges(steps),
        // Of a pair that gets a connection later, once it has it; by messages until then.
        one_sided: OneSided::list(Reach {
            adapter: peers.registered.is_ok(),
            ..Reach::default()
        }),
        rejected: peers.registered.err().map(reject).into_iter().collect(),
        adapter: peers.adapter,
        rises: peers.rises,
    }
}

fn describe_node(selection: &Selection, t: &Thresholds, peers: &PeerClass, shared: bool) -> Class {
    let c = &selection.constants;
    let curves = curves(c, t, shared);
    let describe = |(record, curve): (&Record, &Curve)| {
        let (name, how) = ((record.name)(shared), (record.how)(t, shared));
        ((record.most)(t, shared), name, how, Some(curve.clone()))
    };
    let steps = RECORDS.iter().zip(&curves).map(describe).collect();
    let copier = peers
        .single_copy
        .filter(|_| t.single_copy != u64::MAX && !shared);
    Class {
        peer: peers.peer,
        memory: if shared {
            "memory from MPI_Alloc_mem"
        } else {
            "private memory"
        },
        transports: peers.transports.iter().copied().chain(copier).collect(),
        ranges: list_ranges(steps),
        one_sided: OneSided::list(Reach {
            shared: shared && t.direct != u64::MAX,
            kernel: selection.kernel.is_ok(),
            ..Reach::default()
        }),
        rejected: list_rejected(selection, t, shared, &curves),
        adapter: None,
        rises: None,
    }
}

fn list_rejected(
    selection: &Selection,
    t: &Thresholds,
    shared: bool,
    curves: &[Curve],
) -> Vec<Rejected> {
    let wishes = &selection.wishes;
    let mut rejected = Vec::new();
    let mut reject = |option, reason: String| rejected.push(Rejected { option, reason });
    if !wishes.pipeline {
        reject("pipelining", "switched off by FASTPATH_DISABLE".to_owned());
    }
    let dear = || {
        let cost = |of: Protocol| curves[of as usize].at(FAR).unwrap_or(f64::NAN) / 1e3;
        format!(
            "costs more: 1 MiB takes {:.1} us instead of {:.1} us",
            cost(Protocol::Cooperative),
            cost(Protocol::Pipelined)
        )
    };
    if shared {
        if !wishes.direct {
            reject("direct", "switched off by FASTPATH_DISABLE".to_owned());
        } else if t.direct == u64::MAX {
            reject("direct", dear());
        }
        return rejected;
    }
    if !wishes.adapt {
        let why = "switched off by FASTPATH_DISABLE".to_owned();
        reject("learning", why);
    }
    reject(
        "direct",
        "the memory is not shared (MPI_Alloc_mem gives such)".to_owned(),
    );
    if let Err(why) = &selection.kernel {
        reject("single copy", why.clone());
    } else if t.single_copy == u64::MAX {
        reject("single copy", dear());
    }
    rejected
}

fn list_notes(selection: &Selection) -> Vec<String> {
    let mut notes = Vec::new();
    let wishes = &selection.wishes;
    let (least, most) = (SHORT_LIMIT as u64, EARLY_LIMIT);
    if let Some(wanted) = wishes
        .eager_max
        .filter(|wanted| !(least..=most).contains(wanted))
    {
        let taken = wishes.unasked();
        notes.push(format!(
            "FASTPATH_EAGER_MAX is {wanted} B: from {least} to {most} B can travel without being asked for, so it counts as {taken} B"
        ));
    }
    if let Some(wanted) = wishes
        .chunk
        .filter(|wanted| !(PART_MIN..=PART_MAX).contains(wanted))
    {
        let taken = wanted.clamp(PART_MIN, PART_MAX);
        notes.push(format!(
            "FASTPATH_PIPELINE_CHUNK is {wanted} B: a piece has {PART_MIN} to {PART_MAX} B, so it counts as {taken} B"
        ));
    }
    notes
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Defaults(why) => write!(f, "defaults, {why}"),
            Source::File(path) => write!(f, "from {}", path.display()),
        }
    }
}
