//! A page that the two ranks share, apart from what is measured: orders, addresses, the lines of
//! the floor.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use fastpath_base::sync::{AtomicU32, AtomicU64, Ordering};
use fastpath_base::wait::{futex_wait, futex_wake};
use fastpath_bootstrap::segment::open_nameless;
use memmap2::{MmapOptions, MmapRaw};

const BYTES: usize = 4096;

/// Empty polls after which a rank that waits for an order sleeps between them, and how long at most: an order wakes it,
/// but nothing else. One that serves the other meanwhile looks for some milliseconds and naps.
const POLLS: [u32; 2] = [64, 8192];
const NAPS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(1)];

/// Words of an order or an answer.
pub const WORDS: usize = 4;

/// As large as `struct share`, and where it may lie.
#[repr(C, align(128))]
struct Share([u8; 512]);

#[repr(C)]
struct Page {
    share: Share,
    asked: AtomicU32,
    answered: AtomicU32,
    order: [AtomicU64; WORDS],
    answer: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Page>() <= BYTES);

/// The page, mapped. All zero is its initial state.
pub struct SharedBoard {
    mapped: MmapRaw,
    file: File,
}

impl SharedBoard {
    /// A new page, for the command that starts the ranks.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn create() -> io::Result<SharedBoard> {
        let file = File::from(open_nameless().map_err(io::Error::other)?);
        file.set_len(BYTES as u64)?;
        SharedBoard::map(file)
    }

    /// The page that another process of this user made.
    ///
    /// # Errors
    /// It is not there (any more), or is no such page.
    pub fn open(path: &str) -> io::Result<SharedBoard> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < BYTES as u64 {
            return Err(io::Error::other(format!("{path} is no board")));
        }
        SharedBoard::map(file)
    }

    fn map(file: File) -> io::Result<SharedBoard> {
        let mapped = MmapOptions::new().len(BYTES).map_raw(&file)?;
        Ok(SharedBoard { mapped, file })
    }

    /// Where another process of this user can open it, as long as this one holds it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as the board lives; all that lies there is atomic.
        unsafe { &*self.mapped.as_ptr().cast() }
    }

    /// Where the engine keeps the lines of the floor (`struct share` of the benchmark program); all zero at first.
    pub fn lines(&self) -> *mut u8 {
        // SAFETY: inside the mapping.
        unsafe { &raw mut (*self.mapped.as_mut_ptr().cast::<Page>()).share }.cast()
    }

    /// Gives an order; the one before must have been answered.
    pub fn order(&self, words: [u64; WORDS]) {
        let page = self.page();
        for (slot, word) in page.order.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        let next = page.asked.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: pairs with the acquire load in `take_order`: the words are there.
        page.asked.store(next, Ordering::Release);
        futex_wake(&page.asked, 1);
    }

    /// Waits for the next order.
    pub fn take_order(&self) -> [u64; WORDS] {
        self.await_order(POLLS[0], NAPS[0], || false)
    }

    /// As [`SharedBoard::take_order`], calling `act` while it waits, which returns whether there was something to do. A
    /// rank that has been idle for long sleeps between polls: it takes no processor from those that are measured.
    pub fn take_order_meanwhile(&self, act: impl FnMut() -> bool) -> [u64; WORDS] {
        self.await_order(POLLS[1], NAPS[1], act)
    }

    fn await_order(
        &self, polls: u32, nap: Duration, mut act: impl FnMut() -> bool,
    ) -> [u64; WORDS] {
        let page = self.page();
        let last = page.answered.load(Ordering::Relaxed);
        let mut vain = 0;
        // ORDERING: pairs with the release store in `order`.
        while page.asked.load(Ordering::Acquire) == last {
            vain = if act() { 0 } else { vain + 1 };
            match vain < polls {
                true => std::thread::yield_now(),
                false => _ = futex_wait(&page.asked, last, Some(nap)),
            }
        }
        std::array::from_fn(|i| page.order[i].load(Ordering::Relaxed))
    }

    /// Says that the order has been done, and what came of it.
    pub fn answer(&self, words: [u64; WORDS]) {
        let page = self.page();
        for (slot, word) in page.answer.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        let last = page.answered.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: pairs with the acquire load in `await_answer`.
        page.answered.store(last, Ordering::Release);
    }

    /// Tells the other rank these words and learns its own. Called by both, the one that gives orders with `leads`.
    pub fn exchange(&self, leads: bool, own: [u64; WORDS]) -> [u64; WORDS] {
        if leads {
            self.order(own);
            return self.await_answer();
        }
        let theirs = self.take_order();
        self.answer(own);
        theirs
    }

    /// The same of bytes, as many of either side, some words at a time.
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
        // ORDERING: pairs with the release store in `answer`.
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
            // The mapping is moved into the thread whole.
            let other = Other(other);
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

    struct Other(SharedBoard);

    // SAFETY: the page is shared memory of atomics, made to be used from several processes.
    unsafe impl Send for Other {}
}
