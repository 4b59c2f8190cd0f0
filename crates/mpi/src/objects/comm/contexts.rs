//! Allocation of contexts for new communicators.
//!
//! Rank 0 of a communicator leads it. The context holds the leader's world rank and a number from the leader's
//! [`Pool`], so that two leaders never make the same context. Numbers are allocated in blocks: the first is for the
//! communicator, the others are spares. All members know the spares, so that a later duplicate needs no message.

use fastpath_job::random_job_id;
use fastpath_protocol::tag::Context;
use std::cell::{Cell, RefCell};

/// Number of context numbers of one leader.
const COUNTERS: u32 = 1 << 19;
/// Smallest context number of a communicator other than `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
const FIRST: u32 = 4;
/// Number of leaders that a context can name.
const LEADERS: u32 = 1 << 20;
/// Smallest leader number of contexts between several jobs. Their leader numbers are drawn at random, from this number
/// on. A rank has such a number only in a job of more than half a million ranks.
const FIRST_SHARED: u32 = LEADERS / 2;
/// Number of contexts in a block, as long as enough contexts are free.
const BLOCK: u32 = 8;

/// Consecutive contexts of one leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextBlock {
    leader: u32,
    first: u32,
    count: u32,
}

impl ContextBlock {
    /// The empty block.
    pub const EMPTY: ContextBlock = ContextBlock { leader: 0, first: 0, count: 0 };
    /// The spares of `MPI_COMM_WORLD`, known to all ranks without a message.
    pub const WORLD_SPARES: ContextBlock = ContextBlock { leader: 0, first: FIRST, count: BLOCK };

    /// Encodes the block as a number for a message; 0 if it is empty.
    pub fn to_wire(self) -> u64 {
        match self.count {
            0 => 0,
            count => u64::from(self.leader) << 32 | u64::from(self.first) << 8 | u64::from(count),
        }
    }

    /// Decodes a block from another process; empty if the number is invalid.
    pub fn from_wire(wire: u64) -> ContextBlock {
        let (leader, first, count) = (wire >> 32, wire as u32 >> 8, wire as u32 & 0xff);
        if first < FIRST || count == 0 || count > BLOCK || first + count > COUNTERS {
            return ContextBlock::EMPTY;
        }
        let Some(leader) = u32::try_from(leader).ok().filter(|&leader| leader < LEADERS) else {
            return ContextBlock::EMPTY;
        };
        ContextBlock { leader, first, count }
    }

    /// Takes the first context of the block; `None` if it is empty.
    pub fn take(&mut self) -> Option<Context> {
        self.count = self.count.checked_sub(1)?;
        let counter = self.first;
        self.first += 1;
        Some(Context::from_leader(self.leader, counter))
    }

    /// Takes the second half of the block, rounded down.
    #[must_use]
    pub fn split_off(&mut self) -> ContextBlock {
        let count = self.count / 2;
        self.count -= count;
        ContextBlock { leader: self.leader, first: self.first + self.count, count }
    }

    /// World rank of the process that allocated the block.
    pub fn leader(&self) -> u32 {
        self.leader
    }

    /// Returns whether no context is left.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Numbers of one leader: one bit each, so that memory does not grow with the number of communicators made and freed.
/// Numbers are reused in a circle. When a number returns, no late message of its former communicator is left.
pub struct Pool {
    /// One bit for each number, set while it is in use; a byte for each block. Empty until a number is taken.
    used: RefCell<Vec<u8>>,
    /// Start of the next search for a number.
    next: Cell<u32>,
    taken: Cell<u32>,
    /// Whether this process is connected with ranks of other jobs. Blocks are then drawn at random, out of 2^35,
    /// because leaders of two jobs may have the same number and must not take the same block.
    shared: Cell<bool>,
}

const _: () = assert!(BLOCK == u8::BITS && COUNTERS.is_multiple_of(BLOCK));
/// First number after those of the predefined communicators and the spares of `MPI_COMM_WORLD`, rounded up to a block.
const FIRST_FREE: u32 = (FIRST + BLOCK).next_multiple_of(BLOCK);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// Makes a pool with all numbers but those of the predefined communicators.
    pub const fn new() -> Self {
        Pool {
            used: RefCell::new(Vec::new()),
            next: Cell::new(FIRST_FREE),
            taken: Cell::new(0),
            shared: Cell::new(false),
        }
    }

    /// Records that this process is connected with ranks of other jobs.
    pub fn share(&self) {
        self.shared.set(true);
    }

    /// Drops the numbers of an exiting process.
    pub(crate) fn drop_all(&self) {
        self.used.take();
    }

    fn draw(&self) -> ContextBlock {
        let random = random_job_id();
        let (leader, block) = (random as u32, (random >> 32) as u32);
        let free = COUNTERS / BLOCK - FIRST_FREE / BLOCK;
        ContextBlock {
            leader: FIRST_SHARED + leader % (LEADERS - FIRST_SHARED),
            first: FIRST_FREE + block % free * BLOCK,
            count: BLOCK,
        }
    }

    /// Takes a block for a communicator that the caller, of world rank `leader`, leads or may lead. The block is empty
    /// if the process leads as many communicators as it can.
    pub fn reserve(&self, leader: u32) -> ContextBlock {
        if self.shared.get() {
            return self.draw();
        }
        // A process that leads many communicators takes single numbers, without spares.
        let whole = self.taken.get() < COUNTERS / 2;
        let found = whole.then(|| self.find_block()).flatten();
        let found = found.or_else(|| self.find_one());
        let Some((first, count)) = found else {
            return ContextBlock::EMPTY;
        };
        self.mark(first, count, true);
        self.next.set(first + count);
        ContextBlock { leader, first, count }
    }

    fn find_block(&self) -> Option<(u32, u32)> {
        let is_free = |block: &u32| self.byte(*block) == 0;
        let start = self.next.get().div_ceil(BLOCK);
        let first = FIRST_FREE / BLOCK;
        let found = (start..COUNTERS / BLOCK).chain(first..start).find(is_free)?;
        Some((found * BLOCK, BLOCK))
    }

    fn find_one(&self) -> Option<(u32, u32)> {
        let is_free = |number: &u32| self.byte(number / BLOCK) & bit(*number) == 0;
        let start = self.next.get();
        let found = (start..COUNTERS).chain(FIRST_FREE..start).find(is_free)?;
        Some((found, 1))
    }

    fn byte(&self, block: u32) -> u8 {
        self.used.borrow().get(block as usize).copied().unwrap_or(0)
    }

    /// Marks numbers as `used`. Numbers that are marked already are not counted again.
    fn mark(&self, first: u32, count: u32, used: bool) {
        let mut bytes = self.used.borrow_mut();
        bytes.resize((COUNTERS / BLOCK) as usize, 0);
        for number in first..first + count {
            let byte = &mut bytes[(number / BLOCK) as usize];
            if (*byte & bit(number) != 0) != used {
                *byte ^= bit(number);
                let taken = self.taken.get();
                self.taken.set(if used { taken + 1 } else { taken - 1 });
            }
        }
    }

    /// Takes back the rest of a block if the calling process, `me`, is its leader.
    pub fn give_back(&self, me: u32, block: ContextBlock) {
        if block.count == 0 || block.leader != me || block.first < FIRST_FREE {
            return;
        }
        self.mark(block.first, block.count, false);
        if block.first + block.count == self.next.get() {
            // The numbers were not used, so the next communicator may have them.
            self.next.set(block.first);
        }
    }

    /// Takes back the context of a freed communicator, if the calling process led it.
    pub fn release(&self, me: u32, context: Context) {
        let (leader, counter) = context.origin();
        if leader == me && counter >= FIRST_FREE {
            self.mark(counter, 1, false);
        }
    }
}

fn bit(number: u32) -> u8 {
    1 << (number % BLOCK)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn block__travels_as_a_number() {
        let pool = Pool::new();
        let block = pool.reserve(3);
        assert_eq!(ContextBlock::from_wire(block.to_wire()), block);
        assert!(ContextBlock::from_wire(0).is_empty());
        for garbage in [1, 1 << 8 | 1, u64::MAX, 20 << 8 | 9, 1 << 52 | 20 << 8 | 1] {
            assert!(ContextBlock::from_wire(garbage).is_empty(), "{garbage:#x}");
        }
    }

    #[test]
    fn shared__blocks_are_of_no_rank_and_travel_too() {
        let pool = Pool::new();
        pool.share();
        for _ in 0..1000 {
            let block = pool.reserve(3);
            assert!(block.leader() >= FIRST_SHARED && block.count == BLOCK);
            assert_eq!(ContextBlock::from_wire(block.to_wire()), block);
            // Random blocks are not taken back.
            pool.give_back(3, block);
        }
        assert_eq!(pool.taken.get(), 0);
    }

    #[test]
    fn split_off__divides_without_loss() {
        let mut whole = Pool::new().reserve(2);
        let mut seen = HashSet::new();
        let mut half = whole.split_off();
        while let Some(context) = whole.take().or_else(|| half.take()) {
            assert!(seen.insert(context));
        }
        assert_eq!(seen.len() as u32, BLOCK);
        let mut none = ContextBlock::EMPTY;
        assert!(none.split_off().is_empty() && none.take().is_none());
    }

    #[test]
    fn pool__hands_each_context_out_once_and_a_freed_one_after_all_others() {
        let pool = Pool::new();
        let mut seen = HashSet::new();
        let mut world = ContextBlock::WORLD_SPARES;
        while let Some(context) = world.take() {
            assert!(seen.insert(context));
        }
        let mut order = Vec::new();
        loop {
            let mut block = pool.reserve(0);
            if block.is_empty() {
                break;
            }
            while let Some(context) = block.take() {
                assert!(seen.insert(context), "{context:?}");
                order.push(context);
            }
            // A number that is freed early is reused only after those never used.
            if order.len() == 40 {
                pool.release(0, order[30]);
                assert!(seen.remove(&order[30]));
            }
        }
        assert_eq!(order.last(), Some(&order[30]));
        assert_eq!(order.len() as u32, COUNTERS - FIRST_FREE + 1);
        pool.release(0, order[7]);
        pool.release(0, order[5]);
        pool.release(1, order[6]);
        assert_eq!(pool.reserve(0).take(), Some(order[5]));
        assert_eq!(pool.reserve(0).take(), Some(order[7]));
        assert!(pool.reserve(0).is_empty());
    }

    #[test]
    fn pool__counts_what_is_in_use_whatever_comes_back() {
        let pool = Pool::new();
        for round in 0..COUNTERS / 4 {
            let mut block = pool.reserve(0);
            let context = block.take().expect("all others were given back");
            if round % 3 == 0 {
                pool.give_back(0, block);
                pool.release(0, context);
            } else {
                pool.release(0, context);
                pool.give_back(0, block);
            }
            assert_eq!(pool.taken.get(), 0);
        }
        pool.release(0, Context::from_leader(0, FIRST_FREE));
        assert_eq!(pool.taken.get(), 0);
    }

    #[test]
    fn give_back__of_the_last_block_makes_its_numbers_the_next() {
        let pool = Pool::new();
        let (a, b) = (pool.reserve(0), pool.reserve(0));
        pool.give_back(0, b);
        assert_eq!(pool.reserve(0), b);
        let mut partly = b;
        partly.take();
        pool.give_back(1, partly); // no effect: another process leads the block
        assert_ne!(pool.reserve(0).first, partly.first);
        pool.give_back(0, a);
        assert_eq!(pool.taken.get(), 2 * BLOCK);
    }
}
