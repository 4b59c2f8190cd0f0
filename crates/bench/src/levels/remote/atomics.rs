//! Atomics on one word of the other rank's memory, each complete before the next. A processor carries them out,
//! whatever the lane: this one where the memory is mapped, at the level of a transport too; elsewhere the owner's,
//! which the protocol asks by messages.

use fastpath_report::record::Case;

use super::super::{LevelTest, engine, protocol};
use super::{Memory, RemoteLink, reach};

/// What is done to the word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Atomic {
    FetchAdd,
    CompareSwap,
}

/// With its name in variants, as the test of the MPI functions has it, and in words.
const ATOMICS: [(Atomic, &str, &str); 2] = [
    (Atomic::FetchAdd, "fetch_and_op", "fetch and add, then flush"),
    (Atomic::CompareSwap, "compare_and_swap", "compare and swap, then flush"),
];

/// Why a transport has none.
const BY_OWNER: &str = "a transport changes no words of memory that is not mapped: their owner \
                        does, asked by messages (--level protocol)";

/// Measures each in every kind of memory.
pub fn run(rank: &mut engine::Rank, link: &mut impl RemoteLink, test: &LevelTest) {
    for &memory in link.memories() {
        match link.has_atomics(memory) {
            true => run_memory(rank, link, test, memory),
            false => rank.missing(test.name, BY_OWNER),
        }
    }
}

fn run_memory(
    rank: &mut engine::Rank, link: &mut impl RemoteLink, test: &LevelTest, memory: Memory,
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

/// What the word holds after [`has_right_answers`].
const LAST: u64 = 7;

/// Whether a word that was 0 answers as one does.
fn has_right_answers(link: &mut impl RemoteLink) -> bool {
    let mut change = |atomic, operand, compare| link.change(atomic, operand, compare);
    change(Atomic::FetchAdd, 5, 0) == Some(0)
        && change(Atomic::FetchAdd, 5, 0) == Some(5)
        && change(Atomic::CompareSwap, 99, 9) == Some(10)
        && change(Atomic::CompareSwap, LAST, 10) == Some(10)
}
