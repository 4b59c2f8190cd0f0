//! Where the contexts of new communicators come from.
//!
//! Rank 0 of a communicator leads it: the context carries the leader's world rank and a number that
//! the leader takes from its [`Pool`], so that two leaders never make the same. Numbers are handed
//! out in blocks: the first for the communicator itself, the others as spares that all its members
//! know, so that a later duplicate needs no message.

use fastpath_protocol::tag::Context;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Numbers that a leader has in all.
const COUNTERS: u32 = 1 << 19;
/// Numbers below are those of `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
const FIRST: u32 = 4;
/// Numbers in a block while there are plenty.
const BLOCK: u32 = 8;

/// Some consecutive contexts of one leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    leader: u32,
    first: u32,
    count: u32,
}

impl Block {
    /// No contexts.
    pub const EMPTY: Block = Block {
        leader: 0,
        first: 0,
        count: 0,
    };
    /// The spares of `MPI_COMM_WORLD`, known to all without a message.
    pub const WORLD_SPARES: Block = Block {
        leader: 0,
        first: FIRST,
        count: BLOCK,
    };

    /// The block as a number that the leader sends to the others; 0 if it is empty.
    pub fn to_wire(self) -> u64 {
        if self.count == 0 {
            0
        } else {
            u64::from(self.first) << 32 | u64::from(self.count)
        }
    }

    /// A block that the process of world rank `leader` wrote; empty if the number makes no sense.
    pub fn from_wire(leader: u32, wire: u64) -> Block {
        let (first, count) = ((wire >> 32) as u32, wire as u32);
        if first < FIRST || count > BLOCK || first.saturating_add(count) > COUNTERS {
            return Block::EMPTY;
        }
        Block {
            leader,
            first,
            count,
        }
    }

    /// Takes the first context out.
    pub fn take(&mut self) -> Option<Context> {
        self.count = self.count.checked_sub(1)?;
        let counter = self.first;
        self.first += 1;
        Some(Context::from_leader(self.leader, counter))
    }

    /// Takes the second half out, rounded down.
    #[must_use]
    pub fn split_off(&mut self) -> Block {
        let count = self.count / 2;
        self.count -= count;
        Block {
            leader: self.leader,
            first: self.first + self.count,
            count,
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The numbers of one leader.
pub struct Pool {
    next: Cell<u32>,
    /// Blocks that were never used, the last one given back on top.
    unused: RefCell<Vec<(u32, u32)>>,
    /// Numbers of freed communicators. The oldest is used again first, so that late messages of a
    /// communicator have ended when its number returns.
    freed: RefCell<VecDeque<u32>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// A pool with all numbers but those of the predefined communicators.
    pub const fn new() -> Self {
        Pool {
            next: Cell::new(FIRST + BLOCK),
            unused: RefCell::new(Vec::new()),
            freed: RefCell::new(VecDeque::new()),
        }
    }

    /// Takes a block for a communicator that the process of world rank `leader`, the caller, leads
    /// or may turn out to lead; empty when the process leads as many communicators as it can.
    pub fn reserve(&self, leader: u32) -> Block {
        if let Some((first, count)) = self.unused.borrow_mut().pop() {
            return Block {
                leader,
                first,
                count,
            };
        }
        let next = self.next.get();
        if next < COUNTERS {
            // Spares are for a process that leads few communicators.
            let count = if next < COUNTERS / 2 { BLOCK } else { 1 };
            self.next.set(next + count);
            return Block {
                leader,
                first: next,
                count,
            };
        }
        match self.freed.borrow_mut().pop_front() {
            Some(first) => Block {
                leader,
                first,
                count: 1,
            },
            None => Block::EMPTY,
        }
    }

    /// Takes back what is left of a block of the calling process, `me`. Blocks of other leaders are
    /// theirs to take back.
    pub fn give_back(&self, me: u32, block: Block) {
        if block.count == 0 || block.leader != me || block.first < FIRST + BLOCK {
            return;
        }
        if block.first + block.count == self.next.get() {
            self.next.set(block.first);
        } else {
            self.unused.borrow_mut().push((block.first, block.count));
        }
    }

    /// Takes back the context of a communicator that was freed, if the calling process led it.
    pub fn release(&self, me: u32, context: Context) {
        let (leader, counter) = context.origin();
        if leader == me && counter >= FIRST {
            self.freed.borrow_mut().push_back(counter);
        }
    }
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
        assert_eq!(Block::from_wire(3, block.to_wire()), block);
        assert!(Block::from_wire(3, 0).is_empty());
        for garbage in [1, 1 << 32 | 1, u64::MAX, 20 << 32 | 9] {
            assert!(Block::from_wire(3, garbage).is_empty(), "{garbage:#x}");
        }
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
        let mut none = Block::EMPTY;
        assert!(none.split_off().is_empty() && none.take().is_none());
    }

    #[test]
    fn pool__hands_each_context_out_once_and_then_the_oldest_freed() {
        let pool = Pool::new();
        let mut seen = HashSet::new();
        let mut world = Block::WORLD_SPARES;
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
        }
        assert!(seen.len() as u32 == COUNTERS - FIRST);
        pool.release(0, order[7]);
        pool.release(0, order[5]);
        pool.release(1, order[6]);
        assert_eq!(pool.reserve(0).take(), Some(order[7]));
        assert_eq!(pool.reserve(0).take(), Some(order[5]));
        assert!(pool.reserve(0).is_empty());
    }

    #[test]
    fn give_back__makes_unused_numbers_available_at_once() {
        let pool = Pool::new();
        let (a, b) = (pool.reserve(0), pool.reserve(0));
        pool.give_back(0, a);
        assert_eq!(pool.reserve(0), a);
        pool.give_back(0, b);
        assert_eq!(pool.reserve(0), b);
        let mut partly = b;
        partly.take();
        pool.give_back(1, partly); // another leader's
        assert_ne!(pool.reserve(0).first, partly.first);
    }
}
