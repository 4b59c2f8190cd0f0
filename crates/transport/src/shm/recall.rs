//! Recall of announced messages: sender and receiver agree whether the recall or the match was first.
//!
//! The sender's usual path is unaffected. The receiver's usual path has one more store and load for each RTS that it
//! matches. The protocol is Dekker's handshake, with the fence on the rare side (as in `fastpath_base::wait`):
//!
//! ```text
//! sender                                receiver
//! entry = request                       claimed = request
//! fence_others()                        (compiler order only)
//! claimed == request: it was matched    no entry pending: it has the message
//! else entry = request | TAKEN_BACK     entry == request: takes it out, and has the message
//!                                       entry == request | TAKEN_BACK: there is no message
//! ```
//!
//! `claimed` holds only the last request. The sender recognizes earlier ones by their answers, which were posted before
//! the next claim. If an answer still waits for room, the receiver writes [`ANY`].

use fastpath_base::sync::{AtomicU32, CacheLine, Ordering, compiler_fence};
use fastpath_base::wait;

/// Maximum number of concurrent recalls in one direction.
pub const RECALLS: usize = if cfg!(feature = "loom") { 2 } else { 256 };
/// Bit of an entry whose message was recalled. Requests do not have it.
const TAKEN_BACK: u32 = 1 << 31;
/// Value of `claimed` that means: any request may have been claimed.
const ANY: u32 = u32::MAX;

/// Shared state of recalls of one direction.
#[repr(C, align(64))]
pub struct Recalls {
    /// Request whose message was matched last, or [`ANY`]. Written by the receiver.
    claimed: CacheLine<AtomicU32>,
    pending: CacheLine<AtomicU32>,
    /// Requests whose recall the sender has begun, one for each entry; 0 if the entry is free.
    entries: [AtomicU32; RECALLS],
}

impl Recalls {
    #[cfg(test)]
    pub(super) fn fresh() -> Self {
        Recalls {
            claimed: CacheLine(AtomicU32::new(0)),
            pending: CacheLine(AtomicU32::new(0)),
            entries: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Claims the announced message of `request`, to match it; returns false if it was recalled. Called by the
    /// receiver. `answered`: whether the answers to all earlier claims have been posted.
    #[inline]
    pub fn claim(&self, request: u32, answered: bool) -> bool {
        let claimed = if answered { request } else { ANY };
        // ORDERING: release pairs with the acquire in `ask`: a reader of this claim sees the answers to earlier claims.
        self.claimed.store(claimed, Ordering::Release);
        // ORDERING: the load stays behind the store; partner is the fence in `ask`.
        compiler_fence(Ordering::SeqCst);
        self.pending.load(Ordering::Relaxed) == 0 || self.claim_slow(request)
    }

    #[cold]
    #[inline(never)]
    fn claim_slow(&self, request: u32) -> bool {
        for entry in &self.entries {
            match entry.load(Ordering::Relaxed) {
                asked if asked == request => {
                    return self.replace(entry, request, 0) || !self.is_taken_back(request);
                }
                found if found == request | TAKEN_BACK => return false,
                _ => {}
            }
        }
        true
    }

    /// Whether the announced message of `request` was recalled. Called by the receiver.
    #[inline]
    pub fn is_taken_back(&self, request: u32) -> bool {
        let is_it = |entry: &AtomicU32| entry.load(Ordering::Relaxed) == request | TAKEN_BACK;
        self.pending.load(Ordering::Relaxed) != 0 && self.entries.iter().any(is_it)
    }

    /// Clears the recall of `request`. Called by the receiver when it has dropped the message.
    pub fn forget(&self, request: u32) {
        for entry in &self.entries {
            self.replace(entry, request | TAKEN_BACK, 0);
        }
    }

    /// Requests the recall of the announced message of `request`. Called by the sender. Returns an entry for
    /// [`Recalls::decide`], the next call, or `None` if the message may have been matched or no entry is free.
    pub fn ask(&self, request: u32) -> Option<usize> {
        let index = self.entries.iter().position(|entry| entry.load(Ordering::Relaxed) == 0)?;
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.entries[index].store(request, Ordering::Relaxed);
        // ORDERING: this fence acts for both sides, so either the receiver sees the entry, or this side sees its claim.
        // Partner: the compiler fence in `claim`.
        let fenced = wait::fence_others();
        // ORDERING: acquire pairs with the release in `claim`.
        let claimed = self.claimed.load(Ordering::Acquire);
        if !fenced || claimed == request || claimed == ANY {
            self.decide(index, request, false);
            return None;
        }
        Some(index)
    }

    /// Recalls the message if `take_back` is set, because nothing shows a match; else abandons the recall. Called by
    /// the sender. Returns whether the message was recalled, which fails if the receiver has matched it first.
    pub fn decide(&self, index: usize, request: u32, take_back: bool) -> bool {
        let new = if take_back { request | TAKEN_BACK } else { 0 };
        self.replace(&self.entries[index], request, new) && take_back
    }

    /// Whether the receiver has dropped the message. Called by the sender.
    pub fn is_forgotten(&self, index: usize, request: u32) -> bool {
        self.entries[index].load(Ordering::Relaxed) != request | TAKEN_BACK
    }

    fn replace(&self, entry: &AtomicU32, old: u32, new: u32) -> bool {
        let relaxed = Ordering::Relaxed;
        let replaced = entry.compare_exchange(old, new, relaxed, relaxed).is_ok();
        if replaced && new == 0 {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
        replaced
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const REQUEST: u32 = 1 << 30 | 4100;

    #[test]
    fn ask__finds_what_was_claimed_last() {
        let recalls = Recalls::fresh();
        assert!(recalls.claim(REQUEST, true));
        assert_eq!(recalls.ask(REQUEST), None);
        assert!(recalls.ask(REQUEST + 1).is_some());
        assert!(recalls.claim(REQUEST + 2, false));
        assert_eq!(recalls.ask(REQUEST + 3), None, "an answer may be on its way");
    }

    #[test]
    fn claim__of_a_message_that_is_asked_for_is_first_until_it_is_decided() {
        let recalls = Recalls::fresh();
        let index = recalls.ask(REQUEST).unwrap();
        assert!(recalls.claim(REQUEST, true));
        assert!(!recalls.decide(index, REQUEST, true));
        let index = recalls.ask(REQUEST + 1).unwrap();
        assert!(recalls.decide(index, REQUEST + 1, true));
        assert!(!recalls.claim(REQUEST + 1, true) && recalls.is_taken_back(REQUEST + 1));
        assert!(!recalls.is_forgotten(index, REQUEST + 1));
        recalls.forget(REQUEST + 1);
        assert!(recalls.is_forgotten(index, REQUEST + 1) && recalls.claim(REQUEST + 1, true));
        assert_eq!(recalls.pending.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn ask__refuses_where_all_entries_are_in_use() {
        let recalls = Recalls::fresh();
        for request in (REQUEST..).take(RECALLS) {
            let index = recalls.ask(request).unwrap();
            assert!(recalls.decide(index, request, true));
        }
        assert_eq!(recalls.ask(REQUEST + RECALLS as u32), None);
        recalls.forget(REQUEST + 7);
        assert_eq!(recalls.ask(REQUEST), Some(7));
    }

    #[test]
    fn words__of_a_peer_that_writes_anything_do_no_harm() {
        let recalls = Recalls::fresh();
        for word in [1, u32::MAX, TAKEN_BACK, REQUEST | TAKEN_BACK] {
            recalls.pending.store(word, Ordering::Relaxed);
            recalls.entries.iter().for_each(|entry| entry.store(word, Ordering::Relaxed));
            recalls.claim(REQUEST, true);
            recalls.forget(REQUEST);
            recalls.ask(REQUEST);
        }
    }
}
