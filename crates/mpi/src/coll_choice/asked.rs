//! Algorithms named by the user (`FASTPATH_COLL`), and the report of the algorithms that ran.

use super::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Neighbor, Reduce, ReduceScatter, Scan,
};
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::{Ordering, StaticBool};
use fastpath_base::tell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct CallAlgorithms<A: 'static> {
    /// Name in `FASTPATH_COLL` and in the report.
    pub(crate) name: &'static str,
    /// Number of the call in the cache of choices: unique and below 32.
    pub(super) number: u64,
    pub(crate) all: &'static [(A, &'static str)],
}

macro_rules! calls {
    ($($call:ident $kind:ident $number:literal $name:literal: $($how:ident $word:literal),*;)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub(crate) static $call: CallAlgorithms<$kind> = CallAlgorithms {
                name: $name,
                number: $number,
                all: &[$(($kind::$how, $word)),*],
            };
        )*

        const CALLS: &[(&str, &[&str])] = &[$(($name, &[$($word),*])),*];
    };
}

calls! {
    BARRIER Barrier 0 "barrier": Flat "flat", Dissemination "dissemination", Lines "lines",
        Nodes "nodes";
    BCAST Bcast 1 "bcast": Flat "flat", Binomial "binomial", ScatterAllgather "scatter-allgather",
        Lines "lines", Nodes "nodes";
    GATHER Gather 2 "gather": Linear "linear", Binomial "binomial", Lines "lines";
    GATHERV Gather 3 "gatherv": Linear "linear";
    SCATTER Gather 4 "scatter": Linear "linear", Binomial "binomial", Shared "shared";
    SCATTERV Gather 5 "scatterv": Linear "linear";
    ALLGATHER Allgather 6 "allgather": Flat "flat", Doubling "doubling", Bruck "bruck", Ring "ring",
        Together "together", Shared "shared", Lines "lines", Nodes "nodes";
    ALLGATHERV Allgather 7 "allgatherv": Flat "flat", Bruck "bruck", Ring "ring",
        Together "together", Shared "shared", Nodes "nodes";
    ALLTOALL Alltoall 8 "alltoall": Flat "flat", Bruck "bruck", Together "together",
        Copied "copied", Pairs "pairs", Shared "shared";
    ALLTOALLV Alltoall 9 "alltoallv": Together "together", Copied "copied", Pairs "pairs";
    ALLTOALLW Alltoall 10 "alltoallw": Together "together", Copied "copied", Pairs "pairs";
    REDUCE Reduce 11 "reduce": Flat "flat", Binomial "binomial", Halving "halving",
        Shared "shared", Nodes "nodes";
    ALLREDUCE Allreduce 12 "allreduce": Flat "flat", Doubling "doubling",
        HalvingDoubling "halving", Ring "ring", Shared "shared", Lines "lines", Nodes "nodes";
    REDUCE_SCATTER ReduceScatter 13 "reduce_scatter": Allreduce "allreduce", Ring "ring",
        Shared "shared";
    REDUCE_SCATTER_BLOCK ReduceScatter 14 "reduce_scatter_block": Allreduce "allreduce",
        Ring "ring", Shared "shared";
    SCAN Scan 15 "scan": Chain "chain", Doubling "doubling", Lines "lines";
    EXSCAN Scan 16 "exscan": Chain "chain", Doubling "doubling", Lines "lines";
    NEIGHBOR_ALLGATHER Neighbor 17 "neighbor_allgather": Linear "linear";
    NEIGHBOR_ALLGATHERV Neighbor 18 "neighbor_allgatherv": Linear "linear";
    NEIGHBOR_ALLTOALL Neighbor 19 "neighbor_alltoall": Linear "linear";
    NEIGHBOR_ALLTOALLV Neighbor 20 "neighbor_alltoallv": Linear "linear";
    NEIGHBOR_ALLTOALLW Neighbor 21 "neighbor_alltoallw": Linear "linear";
}

/// Whether the user named an algorithm or requested a report.
static IS_ASKED: StaticBool = StaticBool::new(false);

/// Whether the user allows any order of operands, which may change the last bits of a result.
static ANY_ORDER: StaticBool = StaticBool::new(false);

const ANY_ORDER_WORD: &str = "any-order";

pub(crate) fn wants_any_order() -> bool {
    ANY_ORDER.load(Ordering::Relaxed)
}

static ASKED: Mutex<NamedAlgorithms> =
    Mutex::new(NamedAlgorithms { named: Vec::new(), counts: None });

struct NamedAlgorithms {
    named: Vec<(&'static str, &'static str)>,
    /// Number of uses of each algorithm, if a report is requested.
    counts: Option<BTreeMap<AlgorithmUse, u64>>,
}

/// Call, whether it was on an intercommunicator, ranks, algorithm, and bytes rounded down to a power of two.
type AlgorithmUse = (&'static str, bool, u32, &'static str, u64);

fn asked() -> MutexGuard<'static, NamedAlgorithms> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether calls are counted. If so, calls avoid the immediate path, which does not count.
pub(crate) fn counts() -> bool {
    asked().counts.is_some()
}

/// Reads the settings; rank 0 stores counts for the report. Returns a warning for each invalid part of `FASTPATH_COLL`,
/// and a code that is equal on ranks with equal settings.
pub(crate) fn ask(config: &Config, rank: usize) -> (Vec<String>, u32) {
    let mut found = asked();
    let (names, warnings) = read_names(config.text(Key::Coll));
    let agreed = names.code();
    let wanted = config.choice(Key::Report) == "json" || config.flag(Key::Report);
    let reports = wanted && rank == 0;
    ANY_ORDER.store(names.any_order, Ordering::Relaxed);
    found.named = names.named;
    found.counts = reports.then(BTreeMap::new);
    let is_asked = reports || !found.named.is_empty();
    IS_ASKED.store(is_asked, Ordering::Relaxed);
    (warnings, agreed)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct AlgorithmNames {
    named: Vec<(&'static str, &'static str)>,
    any_order: bool,
}

impl AlgorithmNames {
    /// Returns a hash (FNV-1) of the named algorithms; 0 if none is named.
    fn code(&self) -> u32 {
        let place = |call: &str, names: &[&str]| {
            let named = self.named.iter().find(|named| named.0 == call);
            named.and_then(|named| names.iter().position(|name| *name == named.1))
        };
        let calls =
            CALLS.iter().map(|(call, names)| place(call, names).map_or(0, |at| at as u32 + 1));
        calls.fold(u32::from(self.any_order), |code, place| code.wrapping_mul(0x0100_0193) ^ place)
    }
}

/// Parses a text such as `allreduce:nodes,bcast:binomial`. Returns the names, and a warning for each invalid part.
fn read_names(text: &str) -> (AlgorithmNames, Vec<String>) {
    let (mut names, mut warnings) = (AlgorithmNames::default(), Vec::new());
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        if word == ANY_ORDER_WORD {
            names.any_order = true;
            continue;
        }
        let (call, name) = word.split_once(':').unwrap_or((word, ""));
        let Some((call, known)) = CALLS.iter().find(|known| known.0 == call) else {
            let calls: Vec<&str> = CALLS.iter().map(|known| known.0).collect();
            let calls = calls.join(", ");
            warnings.push(format!(
                "{call:?} is not the name of a collective call: use one of {calls}, or \
                 {ANY_ORDER_WORD}"
            ));
            continue;
        };
        match known.iter().find(|known| **known == name) {
            Some(name) => names.named.push((*call, *name)),
            None => {
                let there = match known {
                    [only] => format!("use {only}"),
                    _ => format!("use one of {}", known.join(", ")),
                };
                warnings.push(format!("{call} has no algorithm {name:?}: {there}"));
            }
        }
    }
    (names, warnings)
}

/// Returns the algorithm that runs: the named one if `may` allows it, otherwise `usual`. `bytes` is for the report.
#[inline]
pub(super) fn settle<A: Copy + Eq>(
    call: &'static CallAlgorithms<A>, usual: A, bytes: impl FnOnce() -> u64, ranks: u32,
    may: impl Fn(A) -> bool,
) -> A {
    if IS_ASKED.load(Ordering::Relaxed) {
        return settle_slow(call, usual, bytes(), ranks, may);
    }
    usual
}

#[cold]
#[inline(never)]
fn settle_slow<A: Copy + Eq>(
    call: &'static CallAlgorithms<A>, usual: A, bytes: u64, ranks: u32, may: impl Fn(A) -> bool,
) -> A {
    let mut asked = asked();
    let named = asked.named.iter().find(|named| named.0 == call.name);
    let (how, name) = (call.all.iter())
        .find(|(how, name)| named.is_some_and(|named| named.1 == *name) && may(*how))
        .or_else(|| call.all.iter().find(|(how, _)| *how == usual))
        .copied()
        .unwrap_or((usual, ""));
    asked.count((call.name, false, ranks, name, bytes));
    how
}

/// Counts a call on an intercommunicator, where each call has only one algorithm.
#[inline]
pub(crate) fn note_between<A>(
    call: &'static CallAlgorithms<A>, way: &'static str, ranks: u32, bytes: impl FnOnce() -> u64,
) {
    if IS_ASKED.load(Ordering::Relaxed) {
        asked().count((call.name, true, ranks, way, bytes()));
    }
}

impl NamedAlgorithms {
    /// Counts a call if a report is requested. A call of a single rank sends nothing and is not counted.
    fn count(&mut self, (call, between, ranks, name, bytes): AlgorithmUse) {
        if let Some(counts) = self.counts.as_mut().filter(|_| ranks > 1) {
            let floor = bytes.checked_ilog2().map_or(0, |log| 1 << log);
            *counts.entry((call, between, ranks, name, floor)).or_default() += 1;
        }
    }
}

/// Returns the report, if it is requested: a line for each call, number of ranks and algorithm.
pub(crate) fn report(json: bool) -> Vec<String> {
    print(asked().counts.iter().flatten(), json)
}

fn print<'a>(counts: impl Iterator<Item = (&'a AlgorithmUse, &'a u64)>, json: bool) -> Vec<String> {
    let mut lines: BTreeMap<(&str, bool, u32, &str), String> = BTreeMap::new();
    for (&(call, between, ranks, name, bytes), count) in counts {
        let sizes = lines.entry((call, between, ranks, name)).or_default();
        let comma = match (sizes.is_empty(), json) {
            (true, _) => "",
            (_, true) => ",",
            _ => ", ",
        };
        _ = match json {
            true => write!(sizes, r#"{comma}{{"from_bytes":{bytes},"calls":{count}}}"#),
            false => write!(
                sizes,
                "{comma}{count} call{} from {bytes} B",
                if *count == 1 { "" } else { "s" }
            ),
        };
    }
    let say = |((call, between, ranks, name), sizes)| match json {
        true => format!(
            "{{\"rank\":0,\"collective\":\"{call}\",\"between_groups\":{between},\"ranks\":{ranks},\
             \"algorithm\":\"{name}\",\"sizes\":[{sizes}]}}"
        ),
        false => {
            let groups = if between { " between groups" } else { "" };
            let ranks = tell::count(ranks, "rank");
            format!("{call}{groups} on {ranks}, algorithm {name}: {sizes}")
        }
    };
    lines.into_iter().map(say).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__are_read_and_others_are_told() {
        let (names, warnings) =
            read_names(" allreduce:nodes,bcast:binomial, gather:ring,reduce:tree,x,gatherv:tree");
        assert_eq!(names.named, [("allreduce", "nodes"), ("bcast", "binomial")]);
        assert!(!names.any_order);
        assert_eq!(warnings.len(), 4);
        assert!(warnings[1].contains("halving"), "{warnings:?}");
        assert!(warnings[3].ends_with(": use linear"), "{warnings:?}");
        assert_eq!(read_names("gatherv:linear").1, [""; 0]);
    }

    #[test]
    fn number__is_another_one_for_each_call() {
        let numbers = [
            BARRIER.number,
            BCAST.number,
            GATHER.number,
            GATHERV.number,
            SCATTER.number,
            SCATTERV.number,
            ALLGATHER.number,
            ALLGATHERV.number,
            ALLTOALL.number,
            ALLTOALLV.number,
            ALLTOALLW.number,
            REDUCE.number,
            ALLREDUCE.number,
            REDUCE_SCATTER.number,
            REDUCE_SCATTER_BLOCK.number,
            SCAN.number,
            EXSCAN.number,
            NEIGHBOR_ALLGATHER.number,
            NEIGHBOR_ALLGATHERV.number,
            NEIGHBOR_ALLTOALL.number,
            NEIGHBOR_ALLTOALLV.number,
            NEIGHBOR_ALLTOALLW.number,
        ];
        assert_eq!(numbers.len(), CALLS.len());
        for (at, number) in numbers.iter().enumerate() {
            assert!(*number < 32 && !numbers[..at].contains(number));
        }
        assert_eq!(NEIGHBOR_ALLTOALLW.number as usize + 1, CALLS.len());
    }

    #[test]
    fn report__has_a_line_for_each_call_ranks_and_algorithm() {
        let mut asked = NamedAlgorithms { named: Vec::new(), counts: Some(BTreeMap::new()) };
        for bytes in [8, 9, 16] {
            asked.count(("scan", false, 4, "chain", bytes));
        }
        asked.count(("bcast", true, 5, "leaders", 0));
        asked.count(("bcast", false, 1, "flat", 0));
        let print = |json| print(asked.counts.iter().flatten(), json);
        assert_eq!(
            print(false),
            [
                "bcast between groups on 5 ranks, algorithm leaders: 1 call from 0 B",
                "scan on 4 ranks, algorithm chain: 2 calls from 8 B, 1 call from 16 B",
            ]
        );
        let line = concat!(
            r#"{"rank":0,"collective":"scan","between_groups":false,"ranks":4,"algorithm":"chain","#,
            r#""sizes":[{"from_bytes":8,"calls":2},{"from_bytes":16,"calls":1}]}"#
        );
        assert_eq!(print(true)[1], line);
    }

    #[test]
    fn scale_md__lists_each_call_and_its_algorithms() {
        let page = include_str!("../../../../docs/scale.md");
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
