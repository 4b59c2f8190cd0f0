//! Puts back and forth, each seen in memory by the rank that it reaches, which answers with one of its own: the
//! ping-pong of perftest's `ib_write_lat`, at levels above verbs.
#![allow(unsafe_code)]

use fastpath_report::record::{Case, Of};

use super::{RemoteLink, Target, complete, engine, post, serve_until};
use crate::levels::protocol::end_without_peer;
use crate::levels::{LevelTest, alternate};

/// Looks at memory between two at the transport: bytes that come as messages are written only there.
const POLLS: u32 = 16;
/// Polls between two checks of whether the peer is there; after each check others may have the processor.
const POLLS_PER_YIELD: u32 = 1024;

/// Measures one size; both ranks reach each other's memory, and each has written none of the other's since they agreed.
pub fn run<L: RemoteLink>(
    rank: &mut engine::Rank, link: &mut L, test: &LevelTest, buffer: &mut [u8],
    target: &mut Target, checked: Option<bool>,
) {
    let bytes = buffer.len();
    // What was put before is there, and nobody writes before both are ready.
    serve_until(link, rank, true);
    target.as_slice().fill(0);
    serve_until(link, rank, true);
    let variant = format!("{}, seen in memory", link.variant());
    let case = Case {
        operation: "put and flush, seen in memory".to_owned(),
        of: Of::HalfRoundTrip,
        checked,
        ..test.case(bytes, 0, &variant, link.way(true, bytes))
    };
    let (leads, at) = (rank.leads(), target.at.wrapping_add(bytes - 1));
    let mut mark = 0_u8;
    rank.measure_served(case, 2.0, link, |link, operations| {
        // The mark of a round trip is the same both ways.
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

/// Waits until the other rank has written the last byte; ends the process where it has left the job.
#[inline]
fn await_mark(link: &mut impl RemoteLink, last: *const u8, mark: u8) {
    // SAFETY: the last byte of the target; the other rank or an adapter writes it, so it is read anew each time.
    let has_come = || unsafe { last.read_volatile() } == mark;
    if !await_written(link, has_come, |link| _ = link.serve(), |link| link.has_lost_peer()) {
        end_without_peer();
    }
}

/// Waits until something has arrived; false if the peer has left.
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
            // What it wrote before it left is there by then.
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
        // What is waited for comes at so many services, and the peer is lost from so many on.
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
        // Written, and then gone.
        assert_eq!(wait(until_yield, until_yield), (true, until_yield));
    }
}
