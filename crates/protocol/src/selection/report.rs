//! What was chosen and why, for people and programs: `FASTPATH_REPORT` and `fastpath info --protocols`.

use super::constants::FIELDS;
use super::decide::{FRAGMENT_MAX, FRAGMENT_MIN};
use super::{Overrides, Selection, Source};
use crate::protocols::{Case, FAR, PeerPlace, RECORDS};
use crate::rma::{AccessPath, Reach};
use crate::worker::{EARLY_LIMIT, SHORT_LIMIT};
use fastpath_transport::PeerClass;
use serde::Serialize;
use std::fmt::{self, Display};

/// A text as JSON has it, in quotation marks.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The whole of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// By whom the job was started, and how rank 0 knows; empty outside of a job.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub started: String,
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
    pub upgrades: Option<String>,
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

/// What stands for atomics on memory that the kernel copies.
const COMBINED: &str = "this processor combines between two copies, under a lock in shared memory";

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
    /// `locks`: this one has the locks of windows in memory that it maps.
    fn list(reach: Reach, locks: bool) -> Vec<OneSided> {
        let of =
            |operations, way: AccessPath| OneSided { operations, way: way.name(), how: way.how() };
        match reach.way() {
            way @ (AccessPath::LoadStore | AccessPath::Messages) => {
                vec![of("put, get, atomics", way)]
            }
            way @ AccessPath::Kernel if locks => {
                let atomics = OneSided { how: COMBINED, ..of("atomics", way) };
                vec![of("put, get", way), atomics]
            }
            way => vec![of("put, get", way), of("atomics", AccessPath::Messages)],
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

impl Report {
    /// The report on what was selected for these peers.
    pub fn of(selection: &Selection, peers: Vec<PeerClass>) -> Report {
        let constant = |field: &super::constants::Field| Constant {
            name: field.name,
            value: (field.get)(&selection.constants),
            unit: field.unit,
        };
        let t = selection.thresholds();
        let classes = peers.iter().flat_map(|peers| {
            let describe = |shared| describe(&Case { selection, thresholds: &t, peers, shared });
            let both = peers.same_host && !peers.in_process && peers.load_store;
            [false, true][..=usize::from(both)].iter().copied().map(describe).collect::<Vec<_>>()
        });
        Report {
            started: String::new(),
            source: selection.source.to_string(),
            constants: FIELDS.iter().map(constant).collect(),
            classes: classes.collect(),
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
        if !self.started.is_empty() {
            writeln!(f, "{}", self.started)?;
        }
        for class in &self.classes {
            let transports = class.transports.join(", ");
            let by = class.adapter.as_ref().map(|adapter| format!(" on {adapter}"));
            let by = by.unwrap_or_default();
            writeln!(f, "to {}, {} ({transports}{by})", class.peer, class.memory)?;
            for range in &class.ranges {
                let (sizes, cost) = (range.sizes(), range.cost());
                let name = range.protocol;
                writeln!(f, "  {sizes:<20} {name:<24} {cost:<18} {}", range.how)?;
            }
            for OneSided { operations, way, how } in &class.one_sided {
                writeln!(f, "  {operations:<20} {way:<24} {:<18} {how}", "")?;
            }
            if let Some(rule) = &class.upgrades {
                writeln!(f, "  {:<20} {rule}", "upgrades")?;
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

/// What the records say of a class of peers.
fn describe(case: &Case) -> Class {
    let (peers, t, place) = (case.peers, case.thresholds, case.place());
    let copies = t.single_copy.min(t.crowded_copy) != u64::MAX;
    let is_copied = place == PeerPlace::Node && !case.shared && copies;
    let copier = peers.single_copy.filter(|_| is_copied);
    let mut class = Class {
        peer: peers.peer,
        memory: match (place, case.shared) {
            (PeerPlace::Node, true) => "memory from MPI_Alloc_mem",
            (PeerPlace::Node, false) => "private memory",
            _ => "any memory",
        },
        transports: peers.transports.iter().copied().chain(copier).collect(),
        ranges: Vec::new(),
        one_sided: list_one_sided(case),
        rejected: Vec::new(),
        adapter: peers.adapter.clone(),
        upgrades: peers.upgrades.clone(),
    };
    if place == PeerPlace::Node {
        list_settings(case, &mut class.rejected);
    }
    list_ranges(case, &mut class);
    class
}

/// Of a pair that gets a connection later, once it has it; by messages until then.
fn list_one_sided(case: &Case) -> Vec<OneSided> {
    let (peers, place) = (case.peers, case.place());
    let maps = case.thresholds.direct != u64::MAX;
    let reach = Reach {
        shared: place == PeerPlace::Itself || (case.shared && maps),
        kernel: place == PeerPlace::Node && case.selection.kernel.is_ok(),
        adapter: place == PeerPlace::Outside && peers.registered.is_ok(),
    };
    OneSided::list(reach, place == PeerPlace::Node && peers.load_store && maps)
}

/// Each record serves up to its size, from the one of those before it.
fn list_ranges(case: &Case, class: &mut Class) {
    let curves = case.curves();
    let mut next = Some(0);
    for (record, curve) in RECORDS.iter().zip(&curves) {
        let most = match (record.most)(case) {
            Ok(most) => most,
            Err(reason) => {
                let option = record.name;
                class.rejected.push(Rejected { option, reason });
                continue;
            }
        };
        let Some(from) = next.filter(|&from| most >= from) else {
            continue;
        };
        let to = (most != u64::MAX).then_some(most);
        let cost = |last| Some([curve.at(from)?, curve.at(last)?]);
        class.ranges.push(Range {
            from,
            to,
            protocol: record.name,
            how: format!("{} ({})", (record.how)(case), record.steps),
            cost_ns: match case.place() {
                PeerPlace::Node => cost(to.unwrap_or(FAR.max(from))),
                _ => None, // not modelled
            },
        });
        next = to.map(|to| to + 1);
    }
}

/// Optimisations that are switched off.
fn list_settings(case: &Case, rejected: &mut Vec<Rejected>) {
    let Overrides { pipeline, adapt, .. } = case.selection.overrides;
    for (option, is_on) in [("pipelining", pipeline), ("learning", adapt || case.shared)] {
        if !is_on {
            let reason = "switched off by FASTPATH_DISABLE".to_owned();
            rejected.push(Rejected { option, reason });
        }
    }
}

fn list_notes(selection: &Selection) -> Vec<String> {
    let overrides = &selection.overrides;
    let (least, most) = (SHORT_LIMIT as u64, EARLY_LIMIT);
    let note = |name, wanted: Option<u64>, bounds: std::ops::RangeInclusive<u64>, what: &str| {
        let wanted = wanted.filter(|wanted| !bounds.contains(wanted))?;
        let (least, most) = bounds.into_inner();
        let taken = wanted.clamp(least, most);
        Some(format!("{name} is {wanted} B: {what} {least} to {most} B, so it counts as {taken} B"))
    };
    let eager = "what goes eagerly has";
    let notes = [
        note("FASTPATH_EAGER_MAX", overrides.eager_max, least..=most, eager),
        note(
            "FASTPATH_PIPELINE_CHUNK",
            overrides.chunk,
            FRAGMENT_MIN..=FRAGMENT_MAX,
            "a piece has",
        ),
    ];
    notes.into_iter().flatten().collect()
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Defaults(why) => write!(f, "defaults, {why}"),
            Source::File(path) => write!(f, "from {}", path.display()),
        }
    }
}
