//! Algorithms that a person names (`FASTPATH_COLL`), and what the report says of those that ran.

use super::{Allgather, Allreduce, Barrier, Bcast, Reduce};
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::{Ordering, StaticBool};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The algorithms of one call.
pub(super) trait Algorithm: Copy + Eq + 'static {
    /// The call's name in `FASTPATH_COLL`.
    const CALL: &'static str;
    /// A number below 16 that no other call has.
    const NUMBER: u64;
    /// All of them, with their names.
    const ALL: &'static [(Self, &'static str)];
}

macro_rules! named {
    ($($kind:ident $number:literal $call:literal: $($how:ident $name:literal),*;)*) => {
        $(impl Algorithm for $kind {
            const CALL: &'static str = $call;
            const NUMBER: u64 = $number;
            const ALL: &'static [(Self, &'static str)] = &[$(($kind::$how, $name)),*];
        })*

        /// Each call with the names of its algorithms.
        const CALLS: &[(&str, &[&str])] = &[$(($call, &[$($name),*])),*];
    };
}

named! {
    Barrier 0 "barrier": Flat "flat", Dissemination "dissemination", Nodes "nodes";
    Bcast 1 "bcast": Flat "flat", Binomial "binomial", ScatterAllgather "scatter-allgather",
        Nodes "nodes";
    Allgather 2 "allgather": Flat "flat", Doubling "doubling", Bruck "bruck", Ring "ring",
        Together "together", Shared "shared", Nodes "nodes";
    Reduce 3 "reduce": Flat "flat", Binomial "binomial", Halving "halving", Nodes "nodes";
    Allreduce 4 "allreduce": Flat "flat", Doubling "doubling", HalvingDoubling "halving",
        Ring "ring", Shared "shared", Nodes "nodes";
}

/// Whether an algorithm was named, or a report is asked for.
static IS_ASKED: StaticBool = StaticBool::new(false);

/// Whether operands may be combined in any order, whatever becomes of the last bits.
static ANY_ORDER: StaticBool = StaticBool::new(false);

/// The word that asks for it.
const ANY_ORDER_WORD: &str = "any-order";

/// Whether operands may be combined in any order.
pub(in super::super) fn wants_any_order() -> bool {
    ANY_ORDER.load(Ordering::Relaxed)
}

/// What was asked for, and what has run.
static ASKED: Mutex<Asked> = Mutex::new(Asked { named: Vec::new(), counts: None });

struct Asked {
    /// Calls with the algorithm to use.
    named: Vec<(&'static str, &'static str)>,
    /// How often each algorithm was chosen, where a report is asked for.
    counts: Option<BTreeMap<Ran, u64>>,
}

/// A call, ranks, bytes rounded down to a power of two, and the algorithm.
type Ran = (&'static str, u32, u64, &'static str);

fn asked() -> MutexGuard<'static, Asked> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what is asked for. Returns a warning for each part of `FASTPATH_COLL` that names nothing, and what ranks that
/// choose alike have alike.
pub(in super::super) fn ask(config: &Config) -> (Vec<String>, u32) {
    let mut found = asked();
    let (names, warnings) = read_names(config.text(Key::Coll));
    let agreed = names.code();
    // Not as JSON: so `fastpath bench` asks, whose times the counting would be in.
    let reports = config.choice(Key::Report) != "json" && config.flag(Key::Report);
    ANY_ORDER.store(names.any_order, Ordering::Relaxed);
    found.named = names.named;
    found.counts = reports.then(BTreeMap::new);
    let is_asked = reports || !found.named.is_empty();
    IS_ASKED.store(is_asked, Ordering::Relaxed);
    (warnings, agreed)
}

/// What `FASTPATH_COLL` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    named: Vec<(&'static str, &'static str)>,
    any_order: bool,
}

impl Names {
    /// A number for it: for each call the place of its algorithm, four bits long.
    fn code(&self) -> u32 {
        let place = |call: &str, names: &[&str]| {
            let named = self.named.iter().find(|named| named.0 == call);
            named.and_then(|named| names.iter().position(|name| *name == named.1))
        };
        let calls =
            CALLS.iter().map(|(call, names)| place(call, names).map_or(0, |at| at as u32 + 1));
        calls.fold(u32::from(self.any_order), |code, place| code << 4 | place)
    }
}

/// Reads a text such as `allreduce:nodes,bcast:binomial`; also says what is wrong with it.
fn read_names(text: &str) -> (Names, Vec<String>) {
    let (mut names, mut warnings) = (Names::default(), Vec::new());
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        if word == ANY_ORDER_WORD {
            names.any_order = true;
            continue;
        }
        let (call, name) = word.split_once(':').unwrap_or((word, ""));
        let Some((call, known)) = CALLS.iter().find(|known| known.0 == call) else {
            let calls: Vec<&str> = CALLS.iter().map(|known| known.0).collect();
            let calls = calls.join(", ");
            warnings.push(format!("no call {call:?}: there are {calls}, and {ANY_ORDER_WORD}"));
            continue;
        };
        match known.iter().find(|known| **known == name) {
            Some(name) => names.named.push((*call, *name)),
            None => warnings
                .push(format!("{call} has no algorithm {name:?}: there are {}", known.join(", "))),
        }
    }
    (names, warnings)
}

/// The algorithm that runs: the usual one, or the one that was named where it `may` be used.
#[inline]
pub(super) fn settle<A: Algorithm>(usual: A, bytes: u64, ranks: u32, may: impl Fn(A) -> bool) -> A {
    if IS_ASKED.load(Ordering::Relaxed) {
        return settle_slow(usual, bytes, ranks, may);
    }
    usual
}

#[cold]
#[inline(never)]
fn settle_slow<A: Algorithm>(usual: A, bytes: u64, ranks: u32, may: impl Fn(A) -> bool) -> A {
    let mut asked = asked();
    let named = asked.named.iter().find(|named| named.0 == A::CALL);
    let (how, name) = A::ALL
        .iter()
        .find(|(how, name)| named.is_some_and(|named| named.1 == *name) && may(*how))
        .or_else(|| A::ALL.iter().find(|(how, _)| *how == usual))
        .copied()
        .unwrap_or((usual, ""));
    if let Some(counts) = &mut asked.counts {
        let floor = bytes.checked_ilog2().map_or(0, |log| 1 << log);
        *counts.entry((A::CALL, ranks, floor, name)).or_default() += 1;
    }
    how
}

/// What has run, where a report is asked for: a line for each call, number of ranks and algorithm.
pub(in super::super) fn report() -> Vec<String> {
    let asked = asked();
    let mut lines: BTreeMap<(&str, u32, &str), String> = BTreeMap::new();
    for (&(call, ranks, bytes, name), count) in asked.counts.iter().flatten() {
        let line = lines.entry((call, ranks, name)).or_default();
        let comma = if line.is_empty() { "" } else { ", " };
        _ = write!(line, "{comma}from {bytes} B {count} times");
    }
    let say = |((call, ranks, name), sizes)| format!("{call} of {ranks} ranks by {name}: {sizes}");
    lines.into_iter().map(say).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__are_read_and_others_are_told() {
        let (names, warnings) =
            read_names(" allreduce:nodes,bcast:binomial, gather:ring,reduce:tree,x");
        assert_eq!(names.named, [("allreduce", "nodes"), ("bcast", "binomial")]);
        assert!(!names.any_order);
        assert_eq!(warnings.len(), 3);
        assert!(warnings[1].contains("halving"), "{warnings:?}");
    }

    #[test]
    fn scale_md__lists_each_call_and_its_algorithms() {
        let page = include_str!("../../../../../docs/scale.md");
        for (call, names) in CALLS {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| `{call}` | {} |", names.join(", "));
            assert!(page.contains(&row), "docs/scale.md has no row {row}");
        }
    }

    #[test]
    fn code__is_another_one_for_each_choice() {
        let code = |text: &str| read_names(text).0.code();
        assert_eq!(code(""), 0);
        assert_eq!(code("reduce:nodes,bcast:flat"), code("bcast:flat , reduce:nodes"));
        let mut codes: Vec<u32> = CALLS
            .iter()
            .flat_map(|(call, names)| names.iter().map(move |name| format!("{call}:{name}")))
            .chain([String::new(), "any-order".into()])
            .map(|text| code(&text))
            .collect();
        let all = codes.len();
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }
}
