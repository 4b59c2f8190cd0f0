//! Instruction counts of a packet over an adapter on each side, by callgrind, under which rank 0 runs.
//!
//! The send side posts a window of messages. After the other rank has taken them, it processes the results:
//! completions, credits, acknowledgements. The receive side takes a window that has arrived: it polls, delivers,
//! reposts buffers, and returns credits. An empty poll belongs to neither side. A window with an empty poll is
//! discarded, and the count restarts with more time for packets to arrive.

use super::board::SharedBoard;
use super::requests::{self, collect, write_counts};

/// Messages over which the count of a side is the mean: whole windows, and whole batches of receive buffers.
pub const SIDE_MESSAGES: u64 = 1024;

/// Orders for rank 1, in addition to those of `counted`: send a window of messages, and take a window.
pub(super) const GIVE: u64 = 5;
pub(super) const TAKE: u64 = 6;

/// Name of the sender's cost of a packet.
pub const SENDS: &str = "send side";
/// Name of the receiver's cost of a packet.
pub const RECEIVES: &str = "receive side";

/// Number of warm-up messages.
const WARM: u64 = 256;
/// Number of yields during which packets can arrive, at first and at most.
const SETTLE: u64 = 64;
const SETTLE_MOST: u64 = SETTLE << 10;

/// Windows of messages over an adapter, at one level of the library.
pub(super) trait WindowSide {
    /// Messages of a window. Divides both [`SIDE_MESSAGES`] and [`WARM`].
    fn window(&self) -> u32;
    fn post_messages(&mut self, data: &[u8]);
    /// Processes the results of the posted window once.
    fn take_in(&mut self);
    /// Returns whether the queues have room for another window of messages of `bytes` bytes.
    fn has_room(&mut self, bytes: usize) -> bool;
    /// Takes a window; returns the number of empty polls.
    fn take_messages(&mut self, into: &mut [u8]) -> u32;
}

/// Counts both sides of messages of `bytes` bytes.
pub(super) fn count<L: WindowSide>(board: &SharedBoard, link: &mut L, bytes: u64) {
    let data = vec![1u8; bytes as usize];
    let mut into = data.clone();
    let window = u64::from(link.window());
    count_windows(SENDS, bytes, window, |settle| {
        collect(&mut |link: &mut L| link.post_messages(&data), link);
        board.ask(TAKE, bytes, settle);
        collect(&mut |link: &mut L| link.take_in(), link);
        let clean = link.has_room(bytes as usize);
        await_room(link, bytes as usize);
        clean
    });
    count_windows(RECEIVES, bytes, window, |settle| {
        board.ask(GIVE, bytes, settle);
        let mut vain = 0;
        collect(&mut |link: &mut L| vain = link.take_messages(&mut into), link);
        vain == 0
    });
}

fn await_room(link: &mut impl WindowSide, bytes: usize) {
    while !link.has_room(bytes) {
        link.take_in();
        std::thread::yield_now();
    }
}

/// Repeats windows until enough in a row had no empty poll. No count is written if that fails even with the longest
/// time for arrivals.
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

/// Executes an order of rank 0; false for an order of another kind.
pub(super) fn answer(link: &mut impl WindowSide, order: [u64; 4]) -> bool {
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

    /// Runs [`count_windows`] with clean or unclean windows. Returns the time given to each.
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
