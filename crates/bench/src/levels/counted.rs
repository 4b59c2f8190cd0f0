//! Operations of a level, made for callgrind: rank 0 runs under it and makes them, rank 1 answers.
//!
//! As in `instructions.c`, collection is on only inside the operation, and what the peer has to do is done before or
//! after it: a message is there before it is received.

use std::ffi::CString;
use std::time::{Duration, Instant};

use super::board::SharedBoard;
use super::remote::{Memory, Target, Words, move_whole};
use super::{LevelLink, LevelPlan, sides};
use crate::instructions::requests;
use crate::instructions::{CALLS, WARM};

/// What rank 1 is asked to do.
pub(super) const SEND: u64 = 1;
pub(super) const RECEIVE: u64 = 2;
const SHARE: u64 = 3;
const END: u64 = 4;
const _: () = assert!(sides::GIVE > END && sides::TAKE > END);

/// How long rank 1 looks at nothing between windows.
const REST: Duration = Duration::from_secs(2);

/// Makes the operations, or answers.
pub fn run<L: LevelLink>(plan: &LevelPlan, board: &SharedBoard, leads: bool, link: &mut L) {
    if !leads {
        return answer(board, link);
    }
    // Who only posts and only looks at what arrives takes in no completions, and can give no credits back.
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
    // What a rank does while it waits and nothing comes.
    count("progress of nothing", 0, link, |_| (), serve, |_| ());
    ask(board, END, 0, 0);
}

fn answer(board: &SharedBoard, link: &mut impl LevelLink) {
    let mut shared: Vec<Target> = Vec::new();
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
                    shared.push(Target::new(link, memory, bytes as usize));
                }
                let said = shared.last().map_or([0; 9], |target| target.words);
                words[..3].copy_from_slice(&said[3 * part as usize..][..3]);
            }
            _ => break,
        }
        board.answer(words);
    }
    // They are reached until here.
    shared.into_iter().for_each(|t| t.end(link));
    board.answer([0; 4]);
}

/// What this rank does next. Between windows that the other one counts it looks at nothing, however long they take,
/// lest it sends again what is not lost; unless that is longer than nothing was lost.
fn take_order(board: &SharedBoard, link: &mut impl LevelLink, rests: bool) -> [u64; 4] {
    let (since, mut calls) = (Instant::now(), 0);
    board.take_order_meanwhile(|| {
        (!rests || since.elapsed() > REST) && link.serve_living(&mut calls)
    })
}

/// Asks rank 1 for something; what it answers when that is done.
pub(super) fn ask(board: &SharedBoard, what: u64, bytes: u64, kind: u64) -> [u64; 4] {
    board.order([what, bytes, kind, 0]);
    board.await_answer()
}

/// Collects over [`CALLS`] calls of `operation`; `before` and `after` are not counted.
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

/// Makes the operation once and collects over it.
// `fastpath bench instructions`: a call between the requests would be counted with it.
#[inline(always)]
pub(super) fn collect<L>(operation: &mut impl FnMut(&mut L), link: &mut L) {
    requests::toggle_collect();
    make(operation, link);
    requests::toggle_collect();
}

/// Writes what was collected, and forgets it.
pub(super) fn write_counts(name: &str, bytes: u64) {
    let name = CString::new(format!("{name} {bytes}")).unwrap_or_default();
    requests::dump(&name);
}

/// Callgrind counts whole blocks, and leaves out the one that ends with a request. Apart from it, the
/// operation has blocks of its own.
#[inline(never)]
fn make<L>(operation: &mut impl FnMut(&mut L), link: &mut L) {
    operation(link);
}

/// Counts a send and a receive of `bytes` bytes; `before` runs before each of them.
pub(super) fn count_messages<L>(
    board: &SharedBoard, bytes: u64, link: &mut L, mut before: impl FnMut(&mut L),
    send: impl FnMut(&mut L), receive: impl FnMut(&mut L),
) {
    let take = |_: &mut L| {
        ask(board, RECEIVE, bytes, 0);
    };
    count("send", bytes, link, &mut before, send, take);
    let give = |link: &mut L| {
        before(link);
        ask(board, SEND, bytes, 0);
    };
    count("receive", bytes, link, give, receive, |_| ());
}

/// What the operation says is not asked.
fn let_go(_: bool) {}

/// Puts, gets and flushes, in every kind of memory that can be reached.
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
        // It has worked once, and what it returns is the same every time.
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
