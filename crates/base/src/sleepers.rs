//! Threads of one process that sleep until they have work.
//!
//! One of them, the leader, sleeps on a word that other processes know and store to, and polls for all threads. Each
//! other thread sleeps on its own word, a *bell*, so that it can be woken alone. A waiting thread that is awake polls
//! for all. When the last awake thread leaves, it makes another thread the leader ([`Sleepers::hand_on`]).
//!
//! Every function is called under one lock, which also protects everything that a woken thread reads. The bells order
//! no memory. `make test-loom` checks a model.

use crate::sync::{AtomicU32, Ordering};
use crate::wait;
use std::sync::Arc;

/// Value of a bell that has not been rung: the thread of this bell has not been woken.
pub const QUIET: u32 = 0;
const RUNG: u32 = 1;

/// Registration of a sleeping thread.
#[derive(Debug)]
pub struct WakeSlot {
    number: u64,
    bell: Option<Arc<AtomicU32>>,
}

impl WakeSlot {
    /// Returns the word to sleep on while it holds [`QUIET`]; `None` for the leader.
    pub fn bell(&self) -> Option<&AtomicU32> {
        self.bell.as_deref()
    }

    /// Returns whether this thread leads.
    pub fn leads(&self) -> bool {
        self.bell.is_none()
    }
}

#[derive(Debug, Clone)]
struct Sleeper<T> {
    number: u64,
    bell: Option<Arc<AtomicU32>>,
    awaits: T,
}

/// Sleeping threads that this process has not woken, the longest asleep first. `T` describes what a thread awaits.
#[derive(Debug, Clone)]
pub struct Sleepers<T> {
    asleep: Vec<Sleeper<T>>,
    /// Whether a leader has the word: it sleeps there, or was woken and has not returned. A thread that registers then
    /// gets a bell. If that thread slept on the word, it would take the wake-up from the leader, which may still be
    /// about to sleep.
    is_led: bool,
    next: u64,
}

impl<T> Default for Sleepers<T> {
    fn default() -> Self {
        Sleepers { asleep: Vec::new(), is_led: false, next: 0 }
    }
}

impl<T> Sleepers<T> {
    /// Number of sleepers that this process has not woken.
    #[inline]
    pub fn count(&self) -> u32 {
        self.asleep.len() as u32
    }

    /// Registers the calling thread, which is about to sleep. The leader then announces its sleep in the word, polls
    /// once more, and calls [`Sleepers::wake_followers`].
    pub fn register(&mut self, awaits: T) -> WakeSlot {
        let bell = self.is_led.then(|| Arc::new(AtomicU32::new(QUIET)));
        self.is_led = true;
        self.next += 1;
        self.asleep.push(Sleeper { number: self.next, bell: bell.clone(), awaits });
        WakeSlot { number: self.next, bell }
    }

    /// Removes the registration of a thread that was woken.
    pub fn unregister(&mut self, slot: &WakeSlot) {
        self.asleep.retain(|sleeper| sleeper.number != slot.number);
        self.is_led &= !slot.leads();
    }

    /// Wakes the sleepers for which `is_due` is true. `wake_leader` wakes the leader by a change of the word.
    pub fn wake(&mut self, mut is_due: impl FnMut(&T) -> bool, wake_leader: impl FnMut()) {
        self.wake_if(|sleeper| is_due(&sleeper.awaits), wake_leader);
    }

    /// Wakes the due sleepers except the leader, after the leader has announced its sleep. Messages that arrived before
    /// woke no thread, because the word showed a thread awake.
    pub fn wake_followers(&mut self, mut is_due: impl FnMut(&T) -> bool) {
        self.wake_if(|sleeper| sleeper.bell.is_some() && is_due(&sleeper.awaits), || {});
    }

    fn wake_if(
        &mut self, mut is_due: impl FnMut(&Sleeper<T>) -> bool, mut wake_leader: impl FnMut(),
    ) {
        self.asleep.retain(|sleeper| {
            let due = is_due(sleeper);
            match (&sleeper.bell, due) {
                (_, false) => {}
                (Some(bell), true) => {
                    bell.store(RUNG, Ordering::Relaxed);
                    wait::futex_wake(bell, 1);
                }
                (None, true) => wake_leader(),
            }
            !due
        });
    }

    /// Makes another thread the leader when the last awake thread leaves. If `polls` is set, an existing leader is
    /// woken, because it must poll for a change that no other process reports.
    pub fn hand_on(&mut self, polls: bool, wake_leader: impl FnMut()) {
        let leads = |sleeper: &Sleeper<T>| sleeper.bell.is_none();
        let place = match self.is_led {
            true if polls => self.asleep.iter().position(leads),
            true => None,
            // The woken thread finds no work, and registers as the leader.
            false => (!self.asleep.is_empty()).then_some(0),
        };
        if let Some(place) = place {
            let mut at = 0..;
            self.wake_if(|_| at.next() == Some(place), wake_leader);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "sleepers/tests.rs"]
mod tests;

#[cfg(all(test, feature = "loom"))]
#[path = "sleepers/loom.rs"]
mod model;
