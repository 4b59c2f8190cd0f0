//! Report of the selected protocols and the reasons: `FASTPATH_REPORT` and `fastpath info --protocols`.

use crate::decide;
use crate::protocols::{FAR, PeerPlace, RECORDS, SelectionCase};
use crate::rma::{AccessPath, Reach};
use crate::selection::constants::{FIELDS, Field};
use crate::selection::thresholds::{FRAGMENT_MAX, FRAGMENT_MIN};
use crate::selection::{Overrides, Selection, Source};
use crate::wire::{EARLY_LIMIT, SHORT_LIMIT};
use fastpath_transport::PeerClass;
use serde::Serialize;
use std::fmt::{self, Display};

/// Returns a text as a JSON string, with quotation marks.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Report of a selection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelectionReport {
    /// Launcher of the job, and how rank 0 detected it; empty outside a job.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub started: String,
    /// Source of the constants.
    pub source: String,
    /// Measured costs.
    pub constants: Vec<Constant>,
    /// Classes of peers and kinds of memory.
    pub classes: Vec<SelectionClass>,
    /// The user's settings and their effects.
    pub notes: Vec<String>,
}

/// One constant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constant {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
}

/// Peers with equal capabilities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelectionClass {
    /// Description of the peers.
    pub peer: &'static str,
    /// Kind of memory.
    pub memory: &'static str,
    /// Transports in use.
    pub transports: Vec<&'static str>,
    /// Ranges of sizes from 0 bytes up, without gap or overlap.
    pub ranges: Vec<SizeRange>,
    /// Access to the peers' memory by one-sided operations.
    pub one_sided: Vec<OneSided>,
    /// Options that messages to these peers do not use, or use only for some sizes.
    pub rejected: Vec<RejectedOption>,
    /// Adapter that reaches the peers, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Rule by which a pair changes from the first transport to the second, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<String>,
}

/// One range of sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeRange {
    /// Smallest message, in bytes.
    pub from: u64,
    /// Largest message, in bytes; `None` without a limit.
    pub to: Option<u64>,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// How the bytes move.
    pub how: String,
    /// Model costs of the smallest and the largest message, in nanoseconds; `None` if not modelled.
    pub cost_ns: Option<[f64; 2]>,
}

const COMBINED: &str = "the kernel copies the target's data to the origin and the result back; the \
                        origin's processor combines the operands, under a lock in shared memory";

/// Access to memory by one-sided operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneSided {
    /// Operations.
    pub operations: &'static str,
    /// Name of the access path.
    pub way: &'static str,
    /// Description of the access path.
    pub how: &'static str,
}

impl OneSided {
    /// Returns the access paths of one-sided operations to memory with this reach. Either this rank's processor or the
    /// owner's performs atomics. `locks`: whether this rank maps the memory that has the locks of windows.
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

/// Option that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedOption {
    /// Name of the option.
    pub option: &'static str,
    /// Reason.
    pub reason: String,
}

impl SelectionReport {
    /// Creates the report of the protocols that a selection chooses for these peers.
    pub fn of(selection: &Selection, peers: Vec<PeerClass>) -> SelectionReport {
        let constant = |field: &Field| Constant {
            name: field.name,
            value: (field.get)(&selection.constants),
            unit: field.unit,
        };
        let t = decide::thresholds(selection);
        let classes = peers.iter().flat_map(|peers| {
            let describe =
                |shared| describe(&SelectionCase { selection, thresholds: &t, peers, shared });
            let both = peers.same_host && !peers.in_process && peers.load_store;
            [false, true][..=usize::from(both)].iter().copied().map(describe).collect::<Vec<_>>()
        });
        SelectionReport {
            started: String::new(),
            source: selection.source.to_string(),
            constants: FIELDS.iter().map(constant).collect(),
            classes: classes.collect(),
            notes: list_notes(selection),
        }
    }

    /// Returns the report as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }
}

impl Display for SelectionReport {
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
            for RejectedOption { option, reason } in &class.rejected {
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

impl SelectionReport {
    /// Formats the protocol and its cost by size in lines of at most 80 columns, without steps and rejected options.
    pub fn to_brief(&self) -> String {
        let mut lines = Vec::new();
        for class in &self.classes {
            lines.push(format!(
                "to {}, {} ({})",
                class.peer,
                class.memory,
                class.transports.join(", ")
            ));
            for range in &class.ranges {
                let (sizes, cost) = (range.sizes(), range.cost());
                lines.push(format!("  {sizes:<20} {:<24} {cost}", range.protocol));
            }
            let one_sided = class.one_sided.iter();
            lines.extend(one_sided.map(|o| format!("  {:<20} {}", o.operations, o.way)));
            lines.extend(class.upgrades.iter().map(|rule| format!("  {:<20} {rule}", "upgrades")));
        }
        lines.push(format!("costs: {}", self.source));
        lines.extend(self.notes.iter().cloned());
        lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

impl SizeRange {
    /// Returns the sizes as text.
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
            Some([from, to]) if self.to.is_some() && text(from) != text(to) => {
                format!("{} to {}", text(from), text(to))
            }
            Some([from, _]) if self.to.is_some() => text(from),
            Some([from, _]) => format!("from {}", text(from)),
            None => String::new(),
        }
    }
}

fn describe(case: &SelectionCase) -> SelectionClass {
    let (peers, t, place) = (case.peers, case.thresholds, case.place());
    let copies = t.single_copy.min(t.crowded_copy) != u64::MAX;
    let is_copied = place == PeerPlace::Node && !case.shared && copies;
    let copier = peers.single_copy.filter(|_| is_copied);
    let mut class = SelectionClass {
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

/// Returns the access paths that a pair has after its upgrade to a connection; until then it uses messages.
fn list_one_sided(case: &SelectionCase) -> Vec<OneSided> {
    let (peers, place) = (case.peers, case.place());
    let maps = case.thresholds.direct != u64::MAX;
    let reach = Reach {
        shared: place == PeerPlace::Itself || (case.shared && maps),
        kernel: place == PeerPlace::Node && case.selection.kernel.is_ok(),
        adapter: place == PeerPlace::Outside && peers.registered.is_ok(),
    };
    OneSided::list(reach, place == PeerPlace::Node && peers.load_store && maps)
}

/// Adds the ranges of sizes. Each record serves the sizes above the limits of earlier records, up to its own limit.
fn list_ranges(case: &SelectionCase, class: &mut SelectionClass) {
    let curves = case.curves();
    let mut next = Some(0);
    for (record, curve) in RECORDS.iter().zip(&curves) {
        let most = match (record.probe)(case) {
            Ok(most) => most,
            Err(reason) => {
                let option = record.name;
                class.rejected.push(RejectedOption { option, reason });
                continue;
            }
        };
        let Some(from) = next.filter(|&from| most >= from) else {
            continue;
        };
        let to = (most != u64::MAX).then_some(most);
        let cost = |last| Some([curve.at(from)?, curve.at(last)?]);
        class.ranges.push(SizeRange {
            from,
            to,
            protocol: record.name,
            how: format!("{} ({})", (record.describe)(case), record.steps),
            cost_ns: match case.place() {
                PeerPlace::Node => cost(to.unwrap_or(FAR.max(from))),
                _ => None, // not modelled
            },
        });
        next = to.map(|to| to + 1);
    }
}

fn list_settings(case: &SelectionCase, rejected: &mut Vec<RejectedOption>) {
    let Overrides { pipeline, adapt, .. } = case.selection.overrides;
    for (option, is_on) in [("pipelining", pipeline), ("learning", adapt || case.shared)] {
        if !is_on {
            let reason = "switched off by FASTPATH_DISABLE".to_owned();
            rejected.push(RejectedOption { option, reason });
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
        Some(format!("{name} is {wanted} B, but {what} {least} to {most} B; {taken} B are used"))
    };
    let eager = "an eager message has";
    let notes = [
        note("FASTPATH_EAGER_MAX", overrides.eager_max, least..=most, eager),
        note(
            "FASTPATH_PIPELINE_CHUNK",
            overrides.chunk,
            FRAGMENT_MIN..=FRAGMENT_MAX,
            "a chunk has",
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cost__equal_at_both_ends__is_printed_once() {
        let cost = |to, cost_ns| {
            let range = SizeRange { from: 0, to, protocol: "", how: String::new(), cost_ns };
            range.cost()
        };
        assert_eq!(cost(Some(63), Some([200.0, 200.4])), "200 ns");
        assert_eq!(cost(Some(63), Some([200.0, 1234.0])), "200 ns to 1.2 us");
        assert_eq!(cost(None, Some([200.0, 200.0])), "from 200 ns");
        assert_eq!(cost(Some(63), None), "");
    }
}
