//! What a packet over an adapter costs each of its two sides, made for callgrind: rank 0 runs under it.
//!
//! The side that sends posts a window of messages and, once the other rank has taken them, takes in what that has
//! brought: completions, credits, acknowledgements. The side that receives takes a window that is there: polls, hands
//! out, posts buffers anew, says what was taken. A poll that finds no packet belongs to neither side, so a window with
//! one is thrown away, and all begins anew with more time for the packets to arrive.

use super::board::SharedBoard;
use super::counted::{ask, collect, write_counts};
use crate::instructions::SIDE_MESSAGES;
use crate::instructions::requests;

/// What rank 1 is asked to do, besides what the other counts ask: to send a window, to take one.
pub(super) const GIVE: u64 = 5;
pub(super) const TAKE: u64 = 6;

/// What a packet costs its sender, as it is called.
pub const SENDS: &str = "send side";
/// What it costs its receiver.
pub const RECEIVES: &str = "receive side";

/// Messages before those that count.
const WARM: u64 = 256;
/// Offers of the processor that packets are given to come, at first and at most.
const SETTLE: u64 = 64;
const SETTLE_MOST: u64 = SETTLE << 10;

/// A level's way to send and take windows of messages over an adapter.
pub(super) trait Side {
    /// Messages of a window: a whole part of [`SIDE_MESSAGES`] and of [`WARM`].
    fn window(&self) -> u32;
    /// Posts a window.
    fn post_messages(&mut self, data: &[u8]);
    /// Takes in, once, what the window that was posted has brought.
    fn take_in(&mut self);
    /// Whether there is room for another window.
    fn has_room(&mut self, bytes: usize) -> bool;
    /// Takes a window; says how many looks found nothing.
    fn take_messages(&mut self, into: &mut [u8]) -> u32;
}

/// Counts both sides of messages of this size.
pub(super) fn count<L: Side>(board: &SharedBoard, link: &mut L, bytes: u64) {
    let data = vec![1u8; bytes as usize];
    let mut into = data.clone();
    let window = u64::from(link.window());
    count_windows(SENDS, bytes, window, |settle| {
        collect(&mut |link: &mut L| link.post_messages(&data), link);
        ask(board, TAKE, bytes, settle);
        collect(&mut |link: &mut L| link.take_in(), link);
        let clean = link.has_room(bytes as usize);
        await_room(link, bytes as usize);
        clean
    });
    count_windows(RECEIVES, bytes, window, |settle| {
        ask(board, GIVE, bytes, settle);
        let mut vain = 0;
        collect(&mut |link: &mut L| vain = link.take_messages(&mut into), link);
        vain == 0
    });
}

fn await_room(link: &mut impl Side, bytes: usize) {
    while !link.has_room(bytes) {
        link.take_in();
        std::thread::yield_now();
    }
}

/// Makes windows until enough in a row had no empty poll; without them there is no count.
fn count_windows(name: &str, bytes: u64, window: u64, mut make: impl FnMut(u64) -> bool) {
    let (warm, counted) = (WARM / window, SIDE_MESSAGES / window);
    let mut settle = SETTLE;
    while settle <= SETTLE_MOST {
        let clean = (0..warm + counted).all(|n| {
            if n == warm {
                requests::forget();
            }
            make(settle)
        });
        if clean {
            return write_counts(name, bytes);
        }
        settle *= 4;
    }
    requests::forget();
}

/// Does what rank 0 asks for; false where that is nothing of this.
pub(super) fn answer(link: &mut impl Side, order: [u64; 4]) -> bool {
    let [what, bytes, settle, _] = order;
    let mut buffer = vec![1u8; bytes as usize];
    match what {
        GIVE => {
            await_room(link, bytes as usize);
            link.post_messages(&buffer);
        }
        TAKE => {
            link.take_messages(&mut buffer);
        }
        _ => return false,
    }
    (0..settle).for_each(|_| std::thread::yield_now());
    true
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// What [`count_windows`] makes of windows that are clean or not: for each, how much time was given.
    fn count_with(mut is_clean: impl FnMut(usize) -> bool) -> Vec<u64> {
        let mut given = Vec::new();
        count_windows(SENDS, 8, 64, |settle| {
            given.push(settle);
            is_clean(given.len())
        });
        given
    }

    #[test]
    fn windows__are_as_many_as_the_count_is_divided_by() {
        let given = count_with(|_| true);
        assert_eq!(given.len() as u64, (WARM + SIDE_MESSAGES) / 64);
        assert!(given.iter().all(|&settle| settle == SETTLE));
    }

    #[test]
    fn window__with_a_look_in_vain_begins_all_anew_with_more_time() {
        let given = count_with(|n| n != 7);
        let (before, after) = given.split_at(7);
        assert!(before.iter().all(|&settle| settle == SETTLE));
        assert!(after.iter().all(|&settle| settle == 4 * SETTLE));
        assert_eq!(after.len() as u64, (WARM + SIDE_MESSAGES) / 64);
    }

    #[test]
    fn windows__that_are_never_clean_end() {
        assert_eq!(count_with(|_| false).last(), Some(&SETTLE_MOST));
    }
}
