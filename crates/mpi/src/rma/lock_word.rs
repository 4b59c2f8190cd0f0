//! The lock of one target's window memory in one word: a fair ticket lock for one writer or many readers.
//!
//! A request takes the next ticket. A reader enters when all earlier requests are inside or gone, and admits the next
//! reader. A writer enters when all earlier requests are gone. So no rank overtakes another, and consecutive readers
//! are inside together. Without contention, a request or a release is one atomic operation. The design is the ticket
//! lock of Reed and Kanodia, 1979, with the second counter of Mellor-Crummey and Scott, 1991.

/// Number of bits of each counter. Counters may wrap around, because fewer than 2^21 requests wait at any time.
const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;

/// The highest bit of each counter.
pub(super) const BOUNDARIES: u64 = 1 << (BITS - 1) | 1 << (2 * BITS - 1) | 1 << (3 * BITS - 1);

/// Addend of the lock word that requests the lock.
pub(super) const ASK: u64 = 1;
/// Addend of the lock word with which a reader that has waited admits the next reader.
pub(super) const ADMIT: u64 = 1 << BITS;
/// Returns the addend of the lock word that releases the lock.
pub(super) const fn leaving(exclusive: bool) -> u64 {
    1 << (2 * BITS) | if exclusive { ADMIT } else { 0 }
}

/// Value of the lock word. Zero is the free lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockWord(pub u64);

/// Position of a request in the queue.
pub(super) type Ticket = u64;

impl LockWord {
    fn pack(next: u64, readers: u64, writers: u64) -> Self {
        LockWord((next & MASK) | (readers & MASK) << BITS | (writers & MASK) << (2 * BITS))
    }

    fn next(self) -> u64 {
        self.0 & MASK
    }

    /// Returns the ticket with which a reader may enter.
    fn readers(self) -> u64 {
        self.0 >> BITS & MASK
    }

    /// Returns the ticket with which a writer may enter: the number of releases.
    fn writers(self) -> u64 {
        self.0 >> (2 * BITS) & MASK
    }

    /// Returns the word with one more request, the request's ticket, and whether the lock is granted at once.
    pub fn request(self, exclusive: bool) -> (LockWord, Ticket, bool) {
        let (next, readers, writers) = (self.next(), self.readers(), self.writers());
        let granted = self.is_turn(next, exclusive);
        let readers = readers + u64::from(granted && !exclusive);
        (LockWord::pack(next + 1, readers, writers), next, granted)
    }

    /// Returns the ticket of a request that added [`ASK`] to this word, and whether the lock is granted at once.
    pub fn asked(self, exclusive: bool) -> (Ticket, bool) {
        (self.next(), self.is_turn(self.next(), exclusive))
    }

    pub fn is_turn(self, ticket: Ticket, exclusive: bool) -> bool {
        match exclusive {
            true => self.writers() == ticket,
            false => self.readers() == ticket,
        }
    }

    /// Returns whether the request of `ticket` comes directly after the writer that holds the lock.
    pub fn is_next(self, ticket: Ticket) -> bool {
        self.readers() == self.writers() && (self.writers() + 1) & MASK == ticket
    }

    /// Returns whether a request waits for the writer that holds the lock.
    pub fn is_awaited(self) -> bool {
        !self.is_next(self.next())
    }

    /// Returns whether a writer with `ticket` waits only for readers, and so keeps later readers from joining them.
    pub fn holds_up(self, ticket: Ticket) -> bool {
        let is_behind = self.next() != (ticket + 1) & MASK;
        self.readers() == ticket && self.writers() != ticket && is_behind
    }

    /// Returns the word after a reader that waited has entered and admits the next reader.
    pub fn admit(self) -> LockWord {
        LockWord::pack(self.next(), self.readers() + 1, self.writers())
    }

    pub fn release(self, exclusive: bool) -> LockWord {
        let readers = self.readers() + u64::from(exclusive);
        LockWord::pack(self.next(), readers, self.writers() + 1)
    }

    /// Returns the first waiting request's ticket, if any. Valid while no writer holds the lock, as after a release.
    pub fn first_waiting(self) -> Option<Ticket> {
        (self.readers() != self.next()).then_some(self.readers())
    }

    /// Returns whether the lock is neither held nor requested.
    #[cfg(test)]
    pub fn is_free(self) -> bool {
        self.next() == self.readers() && self.next() == self.writers()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_protocol::rma::add_masked;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn additions__change_the_word_as_its_transitions_do(word: u64, exclusive: bool) {
            let word = LockWord(word & ((1 << (3 * BITS)) - 1));
            let add = |word: LockWord, by| LockWord(add_masked(word.0, by, BOUNDARIES));
            prop_assert_eq!(add(word, leaving(exclusive)), word.release(exclusive));
            prop_assert_eq!(add(word, ADMIT), word.admit());
            let (asked, ticket, granted) = word.request(exclusive);
            prop_assert_eq!(word.asked(exclusive), (ticket, granted));
            let after = add(word, ASK);
            let after = if granted && !exclusive { add(after, ADMIT) } else { after };
            prop_assert_eq!(after, asked);
        }
    }

    #[test]
    fn holds_up__a_writer_that_gives_way_lets_readers_in_and_comes_after_them() {
        for start in [0, MASK - 2, MASK - 1, MASK] {
            let word = LockWord::pack(start, start, start);
            let (word, _, granted) = word.request(false);
            assert!(granted);
            let (word, writer, _) = word.request(true);
            assert!(!word.holds_up(writer), "no request follows it");
            let (word, reader, granted) = word.request(false);
            assert!(!granted && word.holds_up(writer) && !word.holds_up(reader));
            // Act as a reader that enters and leaves.
            let word = word.admit().release(false);
            assert!(word.is_turn(reader, false));
            let (word, again, granted) = word.admit().request(true);
            assert!(!granted && !word.holds_up(again));
            let word = word.release(false);
            assert!(!word.is_turn(again, true));
            let word = word.release(false);
            assert!(word.is_turn(again, true) && word.release(true).is_free());
        }
    }

    #[test]
    fn lock__is_taken_at_once_where_it_is_free() {
        for exclusive in [true, false] {
            let mut word = LockWord(0);
            for _ in 0..5_000_000 / 2 {
                let (taken, _, granted) = word.request(exclusive);
                assert!(granted && !taken.is_free());
                word = taken.release(exclusive);
                assert!(word.is_free() && word.first_waiting().is_none());
            }
        }
    }

    #[derive(Default)]
    struct LockModel {
        inside: Vec<bool>,
        waiting: VecDeque<bool>,
    }

    impl LockModel {
        fn may_enter(&self, exclusive: bool) -> bool {
            match exclusive {
                true => self.inside.is_empty(),
                false => !self.inside.contains(&true),
            }
        }
    }

    proptest! {
        #[test]
        fn lock__lets_in_whom_a_queue_would(steps in prop::collection::vec((0..3_u8, any::<bool>()), 0..300), start in 0..=MASK) {
            let mut word = LockWord::pack(start, start, start);
            let mut model = LockModel::default();
            let mut tickets: VecDeque<(Ticket, bool)> = VecDeque::new();
            for (step, exclusive) in steps {
                match step {
                    0 => {
                        let at_once = model.waiting.is_empty() && model.may_enter(exclusive);
                        let (asked, ticket, granted) = word.request(exclusive);
                        word = asked;
                        prop_assert_eq!(granted, at_once);
                        match granted {
                            true => model.inside.push(exclusive),
                            false => {
                                model.waiting.push_back(exclusive);
                                tickets.push_back((ticket, exclusive));
                            }
                        }
                    }
                    1 if !model.inside.is_empty() => word = word.release(model.inside.remove(0)),
                    _ => {}
                }
                while let Some(&(ticket, exclusive)) = tickets.front() {
                    if !model.inside.contains(&true) {
                        prop_assert_eq!(word.first_waiting(), Some(ticket));
                    }
                    prop_assert_eq!(word.is_turn(ticket, exclusive), model.may_enter(exclusive));
                    for &(later, kind) in tickets.iter().skip(1) {
                        prop_assert!(!word.is_turn(later, kind));
                    }
                    if !word.is_turn(ticket, exclusive) {
                        break;
                    }
                    if !exclusive {
                        word = word.admit();
                    }
                    tickets.pop_front();
                    model.waiting.pop_front();
                    model.inside.push(exclusive);
                }
                let idle = model.inside.is_empty() && model.waiting.is_empty();
                prop_assert_eq!(word.is_free(), idle);
            }
        }
    }
}
