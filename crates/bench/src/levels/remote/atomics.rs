//! Atomics on one word of the other rank's memory, each complete before the next. The local processor executes them on
//! mapped memory; otherwise the protocol sends a message to the owner, whose processor executes them.

use fastpath_report::record::Case;

use super::super::{LevelTest, engine, protocol};
use super::{Memory, RemoteLink, reach};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Atomic {
    FetchAdd,
    CompareSwap,
}

/// Each atomic operation, its name in variants (as in the test of the MPI functions), and its description.
const ATOMICS: [(Atomic, &str, &str); 2] = [
    (Atomic::FetchAdd, "fetch_and_op", "fetch and add, then flush"),
    (Atomic::CompareSwap, "compare_and_swap", "compare and swap, then flush"),
];

/// Reason for which a transport has no atomics.
const BY_OWNER: &str = "at level transport, atomics exist only on mapped memory; measure atomics \
    on other memory with --level protocol, where the target rank executes them";

pub fn run(rank: &mut engine::LevelRank, link: &mut impl RemoteLink, test: &LevelTest) {
    for &memory in link.memories() {
        match link.has_atomics(memory) {
            true => run_memory(rank, link, test, memory),
            false => rank.missing(test.name, BY_OWNER),
        }
    }
}

fn run_memory(
    rank: &mut engine::LevelRank, link: &mut impl RemoteLink, test: &LevelTest, memory: Memory,
) {
    let mut target = match reach(rank, link, memory, 8, has_right_answers) {
        Ok(target) => target,
        Err(why) => return rank.missing(test.name, &why),
    };
    let leads = rank.leads();
    let checked = rank.checks().then(|| {
        let right = leads || target.as_slice() == LAST.to_ne_bytes();
        rank.agree(right)
    });
    for (atomic, name, operation) in ATOMICS {
        let variant = format!("{name}, {}", link.way_of_atomics());
        let way = link.way_of_atomics();
        let operation = operation.to_owned();
        let case = Case { operation, checked, ..test.case(8, 0, &variant, way) };
        rank.measure_served(case, test.divisor(), link, |link, operations| {
            let mut last = LAST;
            for _ in 0..if leads { operations } else { 0 } {
                let Some(found) = link.change(atomic, last.wrapping_add(1), last) else {
                    protocol::end_without_peer();
                };
                last = found;
            }
        });
    }
    target.end(link);
}

/// Value of the word after [`has_right_answers`].
const LAST: u64 = 7;

/// Whether atomics on a word that was 0 return the correct values.
fn has_right_answers(link: &mut impl RemoteLink) -> bool {
    let mut change = |atomic, operand, compare| link.change(atomic, operand, compare);
    change(Atomic::FetchAdd, 5, 0) == Some(0)
        && change(Atomic::FetchAdd, 5, 0) == Some(5)
        && change(Atomic::CompareSwap, 99, 9) == Some(10)
        && change(Atomic::CompareSwap, LAST, 10) == Some(10)
}
