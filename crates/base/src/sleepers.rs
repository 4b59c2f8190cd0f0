//! Threads of one process that sleep in one place, each until it has something to do.
//!
//! One of them, the leader, sleeps on a word that other processes know and store to. It polls for all. Each other one
//! sleeps on a bell of its own, so that it is woken alone. While a thread that waits there is awake, that one polls for
//! all; the last one that leaves awake has another one lead ([`Sleepers::hand_on`]).
//!
//! Every function is called under the lock of that place, and what a woken thread has to see lies under that lock: the
//! bells order nothing. `make test-loom` has the model.

use crate::sync::{AtomicU32, Ordering};
use crate::wait;
use std::sync::Arc;

/// What a bell says until it is rung.
pub const QUIET: u32 = 0;
const RUNG: u32 = 1;

/// Where a thread sleeps.
#[derive(Debug)]
pub struct Bed {
    number: u64,
    bell: Option<Arc<AtomicU32>>,
}

impl Bed {
    /// The word to sleep on while it holds [`QUIET`]; none for the leader.
    pub fn bell(&self) -> Option<&AtomicU32> {
        self.bell.as_deref()
    }

    /// Whether this thread leads.
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

/// Those that sleep and that nobody of this process has woken, the longest asleep first; `T` says what each waits for.
#[derive(Debug, Clone)]
pub struct Sleepers<T> {
    asleep: Vec<Sleeper<T>>,
    /// Whether a thread has the word: it sleeps there, or was woken and has not come back yet. One that comes in
    /// meanwhile gets a bell: in the word it would hide the wake-up from the other one, which may still be on its way
    /// to sleep.
    is_led: bool,
    next: u64,
}

impl<T> Default for Sleepers<T> {
    fn default() -> Self {
        Sleepers { asleep: Vec::new(), is_led: false, next: 0 }
    }
}

impl<T> Sleepers<T> {
    /// How many sleep that nobody of this process has woken.
    #[inline]
    pub fn count(&self) -> u32 {
        self.asleep.len() as u32
    }

    /// Whether a thread has the word.
    pub fn is_led(&self) -> bool {
        self.is_led
    }

    /// The calling thread is going to sleep; the leader has to announce that in the word, to look
    /// once more, and to call [`Sleepers::wake_followers`].
    pub fn lie_down(&mut self, awaits: T) -> Bed {
        let bell = self.is_led.then(|| Arc::new(AtomicU32::new(QUIET)));
        self.is_led = true;
        self.next += 1;
        self.asleep.push(Sleeper { number: self.next, bell: bell.clone(), awaits });
        Bed { number: self.next, bell }
    }

    /// It is back, whoever woke it.
    pub fn get_up(&mut self, bed: &Bed) {
        self.asleep.retain(|sleeper| sleeper.number != bed.number);
        self.is_led &= !bed.leads();
    }

    /// Wakes those of which `is_due` says that they may have something to do; the leader by `wake_leader`, which stores
    /// another value in the word and wakes who sleeps on it.
    pub fn wake(&mut self, mut is_due: impl FnMut(&T) -> bool, wake_leader: impl FnMut()) {
        self.wake_if(|sleeper| is_due(&sleeper.awaits), wake_leader);
    }

    /// The same of all but the leader, which has announced its sleep: what came while a thread was awake here, and the
    /// word said so, has woken nobody.
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

    /// The last thread awake in this place leaves it: another one is to lead. `polls`: whether the leader, if there is
    /// one, has to look for what no other process wakes it for.
    pub fn hand_on(&mut self, polls: bool, wake_leader: impl FnMut()) {
        let leads = |sleeper: &Sleeper<T>| sleeper.bell.is_none();
        let place = match self.is_led {
            true if polls => self.asleep.iter().position(leads),
            true => None,
            // It finds nothing, and lies down on the word.
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
