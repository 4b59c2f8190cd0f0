//! Operations of the bare loops, counted by callgrind: rank 0 runs under it, rank 1 answers.

use super::super::LevelPlan;
use super::super::board::SharedBoard;
use super::super::counted::{RECEIVE, SEND, count, count_messages};
use super::super::sides::{self, WindowSide};
use super::bare::{BareLoop, Pace};
use super::wire::DEPTHS;
use crate::options::verbs::Connection;

/// Orders for rank 1, in addition to [`SEND`] and [`RECEIVE`].
const NOTHING: u64 = 3;
const END: u64 = 4;

/// Messages of a window in which each side's cost is counted. Only the last is signaled.
const SIDE_WINDOW: u32 = DEPTHS[1] / 4;

impl WindowSide for BareLoop<'_> {
    fn window(&self) -> u32 {
        SIDE_WINDOW
    }

    fn post_messages(&mut self, data: &[u8]) {
        self.send_window(SIDE_WINDOW, data.len());
    }

    fn take_in(&mut self) {
        self.poll_sends();
    }

    fn has_room(&mut self, _: usize) -> bool {
        self.is_done()
    }

    fn take_messages(&mut self, _: &mut [u8]) -> u32 {
        (0..SIDE_WINDOW).map(|_| self.receive()).sum()
    }
}

pub fn run(
    plan: &LevelPlan, board: &SharedBoard, leads: bool, bare: &mut BareLoop, connection: Connection,
) {
    if !leads {
        return answer(board, bare);
    }
    for &bytes in &plan.settings.case.sizes {
        // Count only the post. The completion is taken outside the count, because its time depends on the adapter.
        let post = |b: &mut BareLoop| b.post_message(bytes as usize);
        let take = |b: &mut BareLoop| _ = b.receive();
        count_messages(board, bytes, bare, |b| b.flush(), post, take);
        bare.begin(Pace::of_windows(&plan.verbs, DEPTHS[1]));
        sides::count(board, bare, bytes);
        bare.begin(Pace::of_rounds(&plan.verbs, DEPTHS[1]));
        if connection == Connection::Rc {
            count_remote(board, bare, bytes);
        }
    }
    board.ask(END, 0, 0);
}

fn answer(board: &SharedBoard, bare: &mut BareLoop) {
    loop {
        let order = board.take_order();
        let [what, bytes, ..] = order;
        match what {
            _ if sides::answer(bare, order) => {}
            SEND => bare.send(bytes as usize),
            RECEIVE => {
                bare.receive();
            }
            NOTHING => {}
            _ => break,
        }
        board.answer([0; 4]);
    }
    board.answer([0; 4]);
}

fn count_remote(board: &SharedBoard, bare: &mut BareLoop, bytes: u64) {
    let bytes_of = bytes as usize;
    let nothing = |_: &mut BareLoop| ();
    let flush = |b: &mut BareLoop| b.flush_remote();
    let put = |b: &mut BareLoop| b.post_remote(true, bytes_of);
    count("put", bytes, bare, nothing, put, flush);
    let get = |b: &mut BareLoop| b.post_remote(false, bytes_of);
    count("get", bytes, bare, nothing, get, flush);
    // The completion is available when the flush polls, because an order to the other rank precedes the flush.
    let put = |b: &mut BareLoop| {
        b.post_remote(true, bytes_of);
        board.ask(NOTHING, 0, 0);
    };
    count("flush", bytes, bare, put, flush, nothing);
}
