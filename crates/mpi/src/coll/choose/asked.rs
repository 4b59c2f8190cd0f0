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
    /// All of them, with their names.
    const ALL: &'static [(Self, &'static str)];
}

macro_rules! named {
    ($($kind:ident $call:literal: $($how:ident $name:literal),*;)*) => {
        $(impl Algorithm for $kind {
            const CALL: &'static str = $call;
            const ALL: &'static [(Self, &'static str)] = &[$(($kind::$how, $name)),*];
        })*

        /// Each call with the names of its algorithms.
        const CALLS: &[(&str, &[&str])] = &[$(($call, &[$($name),*])),*];
    };
}

named! {
    Barrier "barrier": Flat "flat", Dissemination "dissemination", Nodes "nodes";
    Bcast "bcast": Flat "flat", Binomial "binomial", ScatterAllgather "scatter-allgather",
        Nodes "nodes";
    Allgather "allgather": Flat "flat", Doubling "doubling", Bruck "bruck", Ring "ring",
        Nodes "nodes";
    Reduce "reduce": Flat "flat", Binomial "binomial", RingGather "ring-gather", Nodes "nodes";
    Allreduce "allreduce": Flat "flat", Doubling "doubling", HalvingDoubling "halving",
        Ring "ring", Nodes "nodes";
}

/// Whether an algorithm was named, or a report is asked for.
static IS_ASKED: StaticBool = StaticBool::new(false);

/// What was asked for, and what has run.
static ASKED: Mutex<Asked> = Mutex::new(Asked {
    named: Vec::new(),
    counts: None,
});

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

/// Reads what is asked for. Returns a warning for each part of `FASTPATH_COLL` that names nothing.
pub(in super::super) fn ask(config: &Config) -> Vec<String> {
    let mut found = asked();
    let (named, warnings) = read_names(config.text(Key::Coll));
    found.named = named;
    let reports = config.choice(Key::Report) == "json" || config.flag(Key::Report);
    found.counts = reports.then(BTreeMap::new);
    let is_asked = reports || !found.named.is_empty();
    IS_ASKED.store(is_asked, Ordering::Relaxed);
    warnings
}

/// Calls and algorithms of a text such as `allreduce:nodes,bcast:binomial`, and what is wrong with it.
fn read_names(text: &str) -> (Vec<(&'static str, &'static str)>, Vec<String>) {
    let (mut named, mut warnings) = (Vec::new(), Vec::new());
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (call, name) = word.split_once(':').unwrap_or((word, ""));
        let Some((call, names)) = CALLS.iter().find(|known| known.0 == call) else {
            let calls: Vec<&str> = CALLS.iter().map(|known| known.0).collect();
            warnings.push(format!("no call {call:?}: there are {}", calls.join(", ")));
            continue;
        };
        match names.iter().find(|known| **known == name) {
            Some(name) => named.push((*call, *name)),
            None => warnings.push(format!(
                "{call} has no algorithm {name:?}: there are {}",
                names.join(", ")
            )),
        }
    }
    (named, warnings)
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
pub(in super::super) fn report(json: bool) -> Vec<String> {
    let asked = asked();
    let mut lines: BTreeMap<(&str, u32, &str), String> = BTreeMap::new();
    for (&(call, ranks, bytes, name), count) in asked.counts.iter().flatten() {
        let line = lines.entry((call, ranks, name)).or_default();
        let comma = if line.is_empty() { "" } else { ", " };
        _ = match json {
            true => write!(line, r#"{comma}{{"from_bytes":{bytes},"calls":{count}}}"#),
            false => write!(line, "{comma}from {bytes} B {count} times"),
        };
    }
    let say = |((call, ranks, name), sizes): ((&str, u32, &str), String)| match json {
        true => format!(
            r#"{{"collective":"{call}","ranks":{ranks},"algorithm":"{name}","sizes":[{sizes}]}}"#
        ),
        false => format!("{call} of {ranks} ranks by {name}: {sizes}"),
    };
    lines.into_iter().map(say).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__are_read_and_others_are_told() {
        let (named, warnings) =
            read_names(" allreduce:nodes,bcast:binomial, gather:ring,reduce:tree,x");
        assert_eq!(named, [("allreduce", "nodes"), ("bcast", "binomial")]);
        assert_eq!(warnings.len(), 3);
        assert!(warnings[1].contains("ring-gather"), "{warnings:?}");
    }
}
