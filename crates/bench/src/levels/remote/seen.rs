//! Puts back and forth. The target rank detects each put by polling memory, and answers with a put. This is the
//! ping-pong of perftest's `ib_write_lat`, at levels above verbs.
#![allow(unsafe_code)]

use fastpath_report::record::{Case, Quantity};

use super::{RemoteLink, RemoteTarget, complete, engine, post, serve_until};
use crate::levels::protocol::end_without_peer;
use crate::levels::{LevelTest, alternate};

/// Polls of memory between two calls of progress. Only progress writes bytes that arrive as messages.
const POLLS: u32 = 16;
/// Polls between two checks of whether the peer is alive. The processor is yielded after each check.
const POLLS_PER_YIELD: u32 = 1024;

/// Measures one size. Both ranks can access each other's memory, and have written none of it since they last agreed.
pub fn run<L: RemoteLink>(
    rank: &mut engine::LevelRank, link: &mut L, test: &LevelTest, buffer: &mut [u8],
    target: &mut RemoteTarget, checked: Option<bool>,
) {
    let bytes = buffer.len();
    // Earlier puts have arrived, and no rank writes before both are ready.
    serve_until(link, rank, true);
    target.as_slice().fill(0);
    serve_until(link, rank, true);
    let variant = format!("{}, seen in memory", link.variant());
    let case = Case {
        operation: "put and flush, seen in memory".to_owned(),
        of: Quantity::HalfRoundTrip,
        checked,
        ..test.case(bytes, 0, &variant, link.way(true, bytes))
    };
    let (leads, at) = (rank.leads(), target.at.wrapping_add(bytes - 1));
    let mut mark = 0_u8;
    rank.measure_served(case, 2.0, link, |link, operations| {
        // Both puts of a round trip write one mark value.
        for _ in 0..operations {
            mark = mark.wrapping_add(1);
            let give = |link: &mut L| write(link, buffer, mark);
            alternate(link, leads, 1, give, |link| await_mark(link, at, mark));
        }
    });
}

#[inline]
fn write(link: &mut impl RemoteLink, buffer: &mut [u8], mark: u8) {
    if let Some(last) = buffer.last_mut() {
        *last = mark;
    }
    post(link, true, buffer);
    complete(link);
}

/// Waits until the other rank has written the last byte; ends the process if the other rank has left the job.
#[inline]
fn await_mark(link: &mut impl RemoteLink, last: *const u8, mark: u8) {
    // SAFETY: the pointer is to the last byte of the target. The other rank or an adapter writes it, hence the volatile
    // read.
    let has_come = || unsafe { last.read_volatile() } == mark;
    if !await_written(link, has_come, |link| _ = link.serve(), |link| link.has_lost_peer()) {
        end_without_peer();
    }
}

#[inline]
fn await_written<L>(
    link: &mut L, has_come: impl Fn() -> bool, mut serve: impl FnMut(&mut L),
    has_lost: impl Fn(&mut L) -> bool,
) -> bool {
    let mut polls = 0_u32;
    while !has_come() {
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS) {
            serve(link);
        }
        if polls.is_multiple_of(POLLS_PER_YIELD) {
            // Data written before the peer left has arrived by now.
            if has_lost(link) {
                return has_come();
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    true
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wait__ends_with_what_is_written_or_with_the_peer() {
        // The data arrives at call `comes_at` of `serve`, and the peer is lost from call `lost_at` on.
        let wait = |comes_at: u32, lost_at: u32| {
            let served = std::cell::Cell::new(0);
            let has_come = || served.get() >= comes_at;
            let serve = |_: &mut ()| served.set(served.get() + 1);
            let come = await_written(&mut (), has_come, serve, |()| served.get() >= lost_at);
            (come, served.get())
        };
        let never = u32::MAX;
        let until_yield = POLLS_PER_YIELD / POLLS;
        assert_eq!(wait(0, 0), (true, 0), "it is there");
        assert_eq!(wait(5000, never), (true, 5000));
        assert_eq!(wait(never, 0), (false, until_yield));
        assert_eq!(wait(never, 3 * until_yield), (false, 3 * until_yield));
        // The peer writes and then leaves.
        assert_eq!(wait(until_yield, until_yield), (true, until_yield));
    }
}
