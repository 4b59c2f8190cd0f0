//! The operations of the bare loops, made for callgrind: rank 0 runs under it, rank 1 answers.

use super::super::LevelPlan;
use super::super::board::SharedBoard;
use super::super::counted::{RECEIVE, SEND, ask, count, count_messages};
use super::bare::Bare;
use crate::bench::verbs::Connection;

/// What rank 1 is asked to do, besides messages.
const NOTHING: u64 = 3;
const END: u64 = 4;

/// Makes the operations, or answers.
pub fn run(
    plan: &LevelPlan,
    board: &SharedBoard,
    leads: bool,
    bare: &mut Bare,
    connection: Connection,
) {
    if !leads {
        return answer(board, bare);
    }
    for &bytes in &plan.settings.sizes {
        // Posting alone: when its completion is there depends on the adapter, and is taken outside of what is counted.
        count_messages(
            board,
            bytes,
            bare,
            |b| b.flush(),
            |b| b.post_message(bytes as usize),
            Bare::receive,
        );
        if connection == Connection::Rc {
            count_remote(board, bare, bytes);
        }
    }
    ask(board, END, 0, 0);
}

fn answer(board: &SharedBoard, bare: &mut Bare) {
    loop {
        let [what, bytes, ..] = board.take_order();
        match what {
            SEND => bare.send(bytes as usize),
            RECEIVE => bare.receive(),
            NOTHING => {}
            _ => break,
        }
        board.answer([0; 4]);
    }
    board.answer([0; 4]);
}

fn count_remote(board: &SharedBoard, bare: &mut Bare, bytes: u64) {
    let bytes_of = bytes as usize;
    let nothing = |_: &mut Bare| ();
    let flush = |b: &mut Bare| b.flush_remote();
    count(
        "put",
        bytes,
        bare,
        nothing,
        |b| b.post_remote(true, bytes_of),
        flush,
    );
    count(
        "get",
        bytes,
        bare,
        nothing,
        |b| b.post_remote(false, bytes_of),
        flush,
    );
    // The completion is there when the flush looks: the other rank has been asked something meanwhile.
    let put = |b: &mut Bare| {
        b.post_remote(true, bytes_of);
        ask(board, NOTHING, 0, 0);
    };
    count("flush", bytes, bare, put, flush, nothing);
}
