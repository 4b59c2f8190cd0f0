//! Operations of a level, made for callgrind: rank 0 runs under it and makes them, rank 1 answers.
//!
//! As in `instructions.c`, collection is on inside the operation alone, and what the peer has to do
//! is done before or after it: a message is there before it is received.

use std::ffi::CString;

use fastpath_transport::Remote;

use super::board::SharedBoard;
use super::remote::{Memory, Target, move_once};
use super::transport::TransportLink;
use super::{LevelLink, LevelPlan};
use crate::instructions::requests;
use crate::instructions::{CALLS, WARM};

/// What rank 1 is asked to do.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const SHARE: u64 = 3;
const END: u64 = 4;

/// Makes the operations, or answers.
pub fn run(plan: &LevelPlan, board: &SharedBoard, leads: bool, link: &mut impl LevelLink) {
    if !leads {
        return answer(board, link);
    }
    for &bytes in &plan.settings.sizes {
        count_messages(board, link, bytes);
        count_remote(board, link, bytes);
    }
    board.order([END, 0, 0, 0]);
    board.await_answer();
}

fn answer(board: &SharedBoard, link: &mut impl LevelLink) {
    let mut shared: Vec<Target> = Vec::new();
    loop {
        let [what, bytes, kind, _] = board.take_order();
        let mut buffer = vec![1u8; bytes as usize];
        let mut words = [0; 4];
        match what {
            SEND => link.send(&buffer),
            RECEIVE => link.recv(&mut buffer),
            SHARE => {
                let memory = Memory::ALL[kind as usize % Memory::ALL.len()];
                if let Ok(transport) = link.remote() {
                    let target = Target::new(transport, memory, bytes as usize);
                    words = target.describe();
                    shared.push(target);
                }
            }
            _ => break,
        }
        board.answer(words);
    }
    // They are reached until here.
    if let Ok(transport) = link.remote() {
        shared.into_iter().for_each(|t| t.free(transport));
    }
    board.answer([0; 4]);
}

/// Asks rank 1 for something; what it answers when that is done.
fn ask(board: &SharedBoard, what: u64, bytes: u64, kind: u64) -> [u64; 4] {
    board.order([what, bytes, kind, 0]);
    board.await_answer()
}

/// Collects over [`CALLS`] calls of `operation`; `before` and `after` are not counted.
fn count<L>(
    name: &str,
    bytes: u64,
    link: &mut L,
    mut before: impl FnMut(&mut L),
    mut operation: impl FnMut(&mut L),
    mut after: impl FnMut(&mut L),
) {
    for n in 0..WARM + CALLS {
        if n == WARM {
            requests::forget();
        }
        before(link);
        requests::toggle_collect();
        make(&mut operation, link);
        requests::toggle_collect();
        after(link);
    }
    let name = CString::new(format!("{name} {bytes}")).unwrap_or_default();
    requests::dump(&name);
}

/// Callgrind counts whole blocks, and leaves out the one that ends with a request. Apart from it, the
/// operation has blocks of its own.
#[inline(never)]
fn make<L>(operation: &mut impl FnMut(&mut L), link: &mut L) {
    operation(link);
}

fn count_messages(board: &SharedBoard, link: &mut impl LevelLink, bytes: u64) {
    let mut buffer = vec![1u8; bytes as usize];
    let nothing = |_: &mut _| ();
    let take = |_: &mut _| {
        ask(board, RECEIVE, bytes, 0);
    };
    count("send", bytes, link, nothing, |l| l.send(&buffer), take);
    let give = |_: &mut _| {
        ask(board, SEND, bytes, 0);
    };
    count(
        "receive",
        bytes,
        link,
        give,
        |l| l.recv(&mut buffer),
        nothing,
    );
}

/// Puts, gets and flushes, where the level has them and the memory can be reached.
fn count_remote(board: &SharedBoard, link: &mut impl LevelLink, bytes: u64) {
    let Ok(link) = link.remote() else {
        return;
    };
    let mut buffer = vec![1u8; bytes as usize];
    for (kind, memory) in Memory::ALL.into_iter().enumerate() {
        let [there, addr, rkey, _] = ask(board, SHARE, bytes, kind as u64);
        let remote = Remote { addr, rkey };
        if there != 1 || move_once(link, true, &mut buffer, remote).is_err() {
            continue;
        }
        // It has worked once, and what it returns is the same every time.
        let mut carry = |l: &mut TransportLink, puts| {
            let _ = move_once(l, puts, &mut buffer, remote);
        };
        let (nothing, flush) = (|_: &mut _| (), |l: &mut TransportLink| l.lane.flush());
        count(
            &name(memory, "put"),
            bytes,
            link,
            nothing,
            |l| carry(l, true),
            flush,
        );
        count(
            &name(memory, "get"),
            bytes,
            link,
            nothing,
            |l| carry(l, false),
            flush,
        );
        count(
            &name(memory, "flush"),
            bytes,
            link,
            |l| carry(l, true),
            flush,
            nothing,
        );
    }
}

fn name(memory: Memory, operation: &str) -> String {
    format!("{operation}, {}", memory.name())
}
