//! Operations of a level, counted by callgrind: rank 0 runs under it and executes them, rank 1 answers.
//!
//! Collection is on only inside the operation, as in `instructions.c`. The peer does its part before or after the
//! operation: a message has arrived before its receive is counted.

use std::time::{Duration, Instant};

use super::board::SharedBoard;
use super::remote::{Memory, RemoteTarget, Words, move_whole};
use super::requests::{self, collect, write_counts};
use super::{LevelLink, LevelPlan, sides};

/// Number of calls over which a count is the mean, equal to that in `instructions.c`.
pub const CALLS: u64 = 1000;

/// Number of warm-up calls, equal to that in `instructions.c`.
const WARM: u64 = 200;

/// Orders for rank 1.
pub(super) const SEND: u64 = 1;
pub(super) const RECEIVE: u64 = 2;
const SHARE: u64 = 3;
const END: u64 = 4;
const _: () = assert!(sides::GIVE > END && sides::TAKE > END);

/// Longest time for which rank 1 does not poll while it waits for the next window of messages that rank 0 counts.
const REST: Duration = Duration::from_secs(2);

pub fn run<L: LevelLink>(plan: &LevelPlan, board: &SharedBoard, leads: bool, link: &mut L) {
    if !leads {
        return answer(board, link);
    }
    // Make progress before each call: only progress takes completions and so returns credits, posts and polls do not.
    let serve = |link: &mut L| _ = link.serve();
    for &bytes in &plan.settings.case.sizes {
        let data = vec![1u8; bytes as usize];
        let mut into = data.clone();
        let send = |l: &mut L| l.send(&data);
        let receive = |l: &mut L| l.recv(&mut into);
        count_messages(board, bytes, link, serve, send, receive);
        link.count_sides(board, bytes);
        count_remote(board, link, bytes);
    }
    // Cost of one progress call of a waiting rank, if nothing has arrived.
    count("progress of nothing", 0, link, |_| (), serve, |_| ());
    board.ask(END, 0, 0);
}

fn answer(board: &SharedBoard, link: &mut impl LevelLink) {
    let mut shared: Vec<RemoteTarget> = Vec::new();
    let mut rests = false;
    loop {
        let order = take_order(board, link, rests);
        rests = link.answer_sides(order);
        if rests {
            board.answer([0; 4]);
            continue;
        }
        let [what, bytes, kind, part] = order;
        let mut buffer = vec![1u8; bytes as usize];
        let mut words = [0; 4];
        match what {
            SEND => link.send(&buffer),
            RECEIVE => link.recv(&mut buffer),
            SHARE => {
                let memories: &[Memory] = link.memories();
                if part == 0 {
                    let memory = memories[kind as usize % memories.len()];
                    shared.push(RemoteTarget::new(link, memory, bytes as usize));
                }
                let said = shared.last().map_or([0; 9], |target| target.words);
                words[..3].copy_from_slice(&said[3 * part as usize..][..3]);
            }
            _ => break,
        }
        board.answer(words);
    }
    // Free the memory only now: rank 0 may access it until its last order.
    shared.into_iter().for_each(|t| t.end(link));
    board.answer([0; 4]);
}

/// Waits for the next order of rank 0. Between windows that rank 0 counts, this rank does not poll: a poll would
/// retransmit packets that are not lost. After REST it polls again, because a packet may be lost.
fn take_order(board: &SharedBoard, link: &mut impl LevelLink, rests: bool) -> [u64; 4] {
    let (since, mut calls) = (Instant::now(), 0);
    board.take_order_meanwhile(|| {
        (!rests || since.elapsed() > REST) && link.serve_living(&mut calls)
    })
}

/// Counts the instructions of [`CALLS`] calls of `operation`, without those of `before` and `after`.
pub(super) fn count<L>(
    name: &str, bytes: u64, link: &mut L, mut before: impl FnMut(&mut L),
    mut operation: impl FnMut(&mut L), mut after: impl FnMut(&mut L),
) {
    for n in 0..WARM + CALLS {
        if n == WARM {
            requests::forget();
        }
        before(link);
        collect(&mut operation, link);
        after(link);
    }
    write_counts(name, bytes);
}

/// Counts a send and a receive of `bytes` bytes; `before` runs before each send and each receive.
pub(super) fn count_messages<L>(
    board: &SharedBoard, bytes: u64, link: &mut L, mut before: impl FnMut(&mut L),
    send: impl FnMut(&mut L), receive: impl FnMut(&mut L),
) {
    let take = |_: &mut L| {
        board.ask(RECEIVE, bytes, 0);
    };
    count("send", bytes, link, &mut before, send, take);
    let give = |link: &mut L| {
        before(link);
        board.ask(SEND, bytes, 0);
    };
    count("receive", bytes, link, give, receive, |_| ());
}

/// Ignores the result of an operation.
fn let_go(_: bool) {}

/// Counts puts, gets and flushes, for every kind of memory that can be reached.
fn count_remote<L: LevelLink>(board: &SharedBoard, link: &mut L, bytes: u64) {
    let mut buffer = vec![1u8; bytes as usize];
    for kind in 0..link.memories().len() as u64 {
        let mut words: Words = [0; 9];
        for part in 0..3 {
            board.order([SHARE, bytes, kind, part as u64]);
            words[3 * part..][..3].copy_from_slice(&board.await_answer()[..3]);
        }
        let opened = words[0] != 0 && link.open(words, (bytes as usize).max(1)).is_ok();
        if !opened || !move_whole(link, true, &mut buffer) {
            continue;
        }
        let way = link.variant();
        let name = |operation: &str| format!("{operation}, {way}");
        // The operation has succeeded once, and its result does not change, so results are ignored.
        let mut into = buffer.clone();
        let (nothing, flush) = (|_: &mut L| (), |l: &mut L| let_go(l.flush()));
        let put = |l: &mut L| let_go(l.put(&buffer));
        let get = |l: &mut L| let_go(l.get(&mut into));
        count(&name("put"), bytes, link, nothing, put, flush);
        count(&name("get"), bytes, link, nothing, get, flush);
        count(&name("flush"), bytes, link, put, flush, nothing);
        count(&name("flush of nothing"), bytes, link, flush, flush, nothing);
    }
}
