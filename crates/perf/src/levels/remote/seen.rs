//! Puts back and forth, each seen in memory by the rank that it reaches, which answers with one of its own: the ping-pong of
//! perftest's `ib_write_lat`, at levels above verbs.
#![allow(unsafe_code)]

use super::{RemoteLink, Target, complete, engine, post, serve_until};
use crate::levels::LevelTest;

/// Looks at memory between two at the transport: bytes that come as messages are written only there.
const LOOKS: u32 = 16;

/// Measures one size; both ranks reach each other's memory, and each has written none of the other's since they agreed.
pub fn run(
    rank: &mut engine::Rank,
    link: &mut impl RemoteLink,
    test: &LevelTest,
    buffer: &mut [u8],
    target: &mut Target,
    checked: Option<bool>,
) {
    let bytes = buffer.len();
    // What was put before is there, and nobody writes before both are ready.
    serve_until(link, rank, true);
    target.as_slice().fill(0);
    serve_until(link, rank, true);
    let variant = format!("{}, seen in memory", link.variant());
    let case = engine::Figures {
        test: test.name,
        variant: &variant,
        operation: "put and flush, seen in memory",
        of: "half-round-trip",
        bytes,
        window: 0,
        divisor: 2.0,
        protocol: link.way(true, bytes),
        protocol_sizes: None,
        checked,
        line_floor: false,
    };
    let (leads, at) = (rank.leads(), target.at.wrapping_add(bytes - 1));
    let mut mark = 0_u8;
    rank.measure_served(&case, link, |link, operations| {
        for _ in 0..operations {
            mark = mark.wrapping_add(1);
            if leads {
                write(link, buffer, mark);
                await_mark(link, at, mark);
            } else {
                await_mark(link, at, mark);
                write(link, buffer, mark);
            }
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

/// Waits until the other rank has written the last byte.
#[inline]
fn await_mark(link: &mut impl RemoteLink, last: *const u8, mark: u8) {
    let mut looks = 0_u32;
    // SAFETY: the last byte of the target; the other rank or an adapter writes it, so it is read anew each time.
    while unsafe { last.read_volatile() } != mark {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS) {
            link.serve();
        }
        std::hint::spin_loop();
    }
}
