//! A page that the two ranks share, separate from measured memory: orders, answers, and the cache lines of the floor.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_base::wait::{futex_wait, futex_wake};
use fastpath_segment::open_nameless;
use memmap2::{MmapOptions, MmapRaw};

const BYTES: usize = 4096;

/// Empty polls after which a rank that waits for an order sleeps, and its longest sleep. Only an order ends the sleep
/// early. The second values are for a rank that also serves the other rank: it polls for milliseconds and sleeps
/// briefly.
const POLLS: [u32; 2] = [64, 8192];
const NAPS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(1)];

pub const WORDS: usize = 4;

/// Size and alignment of the engine's `struct share`.
#[repr(C, align(128))]
struct EngineShare([u8; 512]);

#[repr(C)]
struct Page {
    share: EngineShare,
    asked: AtomicU32,
    answered: AtomicU32,
    order: [AtomicU64; WORDS],
    answer: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Page>() <= BYTES);

/// The mapped page. All zero is its initial state.
pub struct SharedBoard {
    mapped: MmapRaw,
    file: File,
}

impl SharedBoard {
    /// Creates a page, for the command that starts the ranks.
    pub fn create() -> io::Result<SharedBoard> {
        let file = File::from(open_nameless().map_err(io::Error::other)?);
        file.set_len(BYTES as u64)?;
        SharedBoard::map(file)
    }

    /// Opens the page that another process of this user created.
    pub fn open(path: &str) -> io::Result<SharedBoard> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < BYTES as u64 {
            return Err(io::Error::other(format!(
                "{path} is not the file that the two ranks share"
            )));
        }
        SharedBoard::map(file)
    }

    fn map(file: File) -> io::Result<SharedBoard> {
        let mapped = MmapOptions::new().len(BYTES).map_raw(&file)?;
        Ok(SharedBoard { mapped, file })
    }

    /// Path by which other processes of this user can open the page, while this process holds it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping lives as long as the board, and has only atomics.
        unsafe { &*self.mapped.as_ptr().cast() }
    }

    /// Cache lines by which the engine measures the floor (`struct share` of the benchmark program); all zero at first.
    pub fn lines(&self) -> *mut u8 {
        // SAFETY: the field is inside the mapping.
        unsafe { &raw mut (*self.mapped.as_mut_ptr().cast::<Page>()).share }.cast()
    }

    /// Publishes an order and wakes the other rank. The preceding order must have been answered.
    pub fn order(&self, words: [u64; WORDS]) {
        let page = self.page();
        for (slot, word) in page.order.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        let next = page.asked.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: release; pairs with the acquire load in `await_order`, and publishes the words.
        page.asked.store(next, Ordering::Release);
        futex_wake(&page.asked, 1);
    }

    /// Waits for the next order.
    pub fn take_order(&self) -> [u64; WORDS] {
        self.await_order(POLLS[0], NAPS[0], || false)
    }

    /// Waits like [`SharedBoard::take_order`], and calls `act` meanwhile, which returns whether it did any work. A rank
    /// that is idle for long sleeps between polls, to leave the processor to measured ranks.
    pub fn take_order_meanwhile(&self, act: impl FnMut() -> bool) -> [u64; WORDS] {
        self.await_order(POLLS[1], NAPS[1], act)
    }

    fn await_order(
        &self, polls: u32, nap: Duration, mut act: impl FnMut() -> bool,
    ) -> [u64; WORDS] {
        let page = self.page();
        let last = page.answered.load(Ordering::Relaxed);
        let mut vain = 0;
        // ORDERING: acquire; pairs with the release store in `order`.
        while page.asked.load(Ordering::Acquire) == last {
            vain = if act() { 0 } else { vain + 1 };
            match vain < polls {
                true => std::thread::yield_now(),
                false => _ = futex_wait(&page.asked, last, Some(nap)),
            }
        }
        std::array::from_fn(|i| page.order[i].load(Ordering::Relaxed))
    }

    /// Reports that the order is done, with its result.
    pub fn answer(&self, words: [u64; WORDS]) {
        let page = self.page();
        for (slot, word) in page.answer.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        let last = page.answered.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: release; pairs with the acquire load in `await_answer`.
        page.answered.store(last, Ordering::Release);
    }

    /// Gives an order to the other rank, and returns its answer.
    pub fn ask(&self, what: u64, bytes: u64, kind: u64) -> [u64; WORDS] {
        self.order([what, bytes, kind, 0]);
        self.await_answer()
    }

    /// Exchanges words with the other rank. Both ranks call it; the rank that publishes orders sets `leads`.
    pub fn exchange(&self, leads: bool, own: [u64; WORDS]) -> [u64; WORDS] {
        if leads {
            self.order(own);
            return self.await_answer();
        }
        let theirs = self.take_order();
        self.answer(own);
        theirs
    }

    /// Exchanges bytes with the other rank, some words at a time.
    pub fn exchange_bytes<const N: usize>(&self, leads: bool, own: &[u8; N]) -> [u8; N] {
        let mut theirs = [0; N];
        let parts = own.chunks(8 * WORDS).zip(theirs.chunks_mut(8 * WORDS));
        for (own, theirs) in parts {
            let mut words = [[0; 8]; WORDS];
            words.as_flattened_mut()[..own.len()].copy_from_slice(own);
            let said = self.exchange(leads, words.map(u64::from_le_bytes));
            let said = said.map(u64::to_le_bytes);
            theirs.copy_from_slice(&said.as_flattened()[..theirs.len()]);
        }
        theirs
    }

    /// Waits until the last order has been answered.
    pub fn await_answer(&self) -> [u64; WORDS] {
        let page = self.page();
        let asked = page.asked.load(Ordering::Relaxed);
        // ORDERING: acquire; pairs with the release store in `answer`.
        while page.answered.load(Ordering::Acquire) != asked {
            std::thread::yield_now();
        }
        std::array::from_fn(|i| page.answer[i].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn orders__are_taken_and_answered_once_each_through_two_mappings() {
        let board = SharedBoard::create().unwrap();
        let other = SharedBoard::open(&board.path()).unwrap();
        std::thread::scope(|scope| {
            // Binds the whole wrapper, so that the closure captures it and not its field.
            let other = PeerBoard(other);
            scope.spawn(move || {
                let other = other;
                for _ in 0..100 {
                    let [a, b, ..] = other.0.take_order();
                    other.0.answer([a + b, 0, 0, 0]);
                }
                assert_eq!(other.0.exchange(false, [5, 6, 7, 8]), [1, 2, 3, 4]);
                assert_eq!(other.0.exchange_bytes(false, &[2; 75]), [1; 75]);
            });
            for n in 0..100 {
                board.order([n, 1, 0, 0]);
                assert_eq!(board.await_answer()[0], n + 1);
            }
            assert_eq!(board.exchange(true, [1, 2, 3, 4]), [5, 6, 7, 8]);
            assert_eq!(board.exchange_bytes(true, &[1; 75]), [2; 75]);
        });
        assert!(SharedBoard::open("/proc/self/fd/9999").is_err());
        assert!(SharedBoard::open("/dev/null").is_err());
    }

    struct PeerBoard(SharedBoard);

    // SAFETY: the page is shared memory of atomics, made to be used from several processes.
    unsafe impl Send for PeerBoard {}
}
