//! How a rank's progress thread is called by peers that need an answer while the program computes.
//!
//! | word | the progress thread | a call makes it |
//! |---|---|---|
//! | `NONE` | there is none | |
//! | `ATTENDED` | sleeps: a thread of the program waits inside MPI, and looks by itself | `MISSED` |
//! | `MISSED` | the same | |
//! | `ASLEEP` | sleeps | `RUNG`, and wakes it |
//! | `AWAKE` | polls this word, on a processor that nobody else needs | `RUNG` |
//! | `DUE` | sleeps for a moment, then has to look | `RUNG`, and wakes it |
//! | `BUSY` | looks | `RUNG` |
//! | `RUNG` | has to look | |
//!
//! Peers call, after whatever they have published. The rank's own threads change the word inside their lock. So a short
//! message costs nothing: its sender does not call.
//!
//! `DUE` is for ranks with peers on other hosts. A wait of the program uses up what tells of their messages, and only
//! who looks next can ask for it again. That is left to the thread, and not at once: the program may well wait again.
//! While it does the thread sleeps on, and says so by a bit of the word (`DEEP`), so that it is woken at most once in
//! [`NAP`].

use fastpath_base::sync::{AtomicU32, Ordering, fence, spin_loop};
use fastpath_base::wait::{self, Wake};
use std::time::Duration;

const NONE: u32 = 0;
const ATTENDED: u32 = 1;
const MISSED: u32 = 2;
const ASLEEP: u32 = 3;
const BUSY: u32 = 4;
const RUNG: u32 = 5;
const DUE: u32 = 6;
const AWAKE: u32 = 7;
/// Beside `ATTENDED` and `MISSED`: the thread sleeps until it is woken.
const DEEP: u32 = 8;

/// How long the thread leaves the program alone that has waited: a few round trips over a network.
const NAP: Duration = Duration::from_micros(250);

/// The word. Zero where a rank has no progress thread.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Call(AtomicU32);

impl Call {
    /// Whether the rank has a progress thread.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Calls the thread, if there is one, to what was published before.
    #[inline]
    pub fn ring(&self) {
        if self.is_answered() {
            self.ring_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring_slow(&self) {
        // ORDERING: either this sees what the word was changed to, or who has changed it sees what was published
        // before; partners are the fences in `resume` and `take`.
        fence(Ordering::SeqCst);
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let next = match word & !DEEP {
                ATTENDED => MISSED | word & DEEP,
                ASLEEP | AWAKE | BUSY | DUE => RUNG,
                _ => return,
            };
            // ORDERING: release: what was published is seen by who finds the call; partners are the acquires of
            // `resume`, `take` and `rest`.
            let order = Ordering::Release;
            let changed = self.0.compare_exchange(word, next, order, Ordering::Relaxed);
            if changed.is_ok() {
                if word == ASLEEP || word == DUE {
                    wait::futex_wake(&self.0, u32::MAX);
                }
                return;
            }
        }
    }

    /// There is a thread from now on, which has to look.
    pub fn begin(&self) {
        self.0.store(RUNG, Ordering::Relaxed);
        // Peers that have found nobody to call have published before the thread's first look.
        wait::fence_others();
    }

    /// The thread is to end; wakes it to see that.
    pub fn end(&self) {
        self.0.store(NONE, Ordering::Relaxed);
        wait::futex_wake(&self.0, u32::MAX);
    }

    /// A thread of the program looks from now on; says whether a call is left to it.
    pub fn attend(&self) -> bool {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let next = match word {
                ASLEEP => ATTENDED | DEEP,
                _ => ATTENDED,
            };
            // ORDERING: acquire pairs with the release of a call.
            let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if self.0.compare_exchange(word, next, order, relaxed).is_ok() {
                return word == RUNG;
            }
        }
    }

    /// Whether a thread of the program looks.
    pub fn is_attended(&self) -> bool {
        is_attended(self.0.load(Ordering::Relaxed))
    }

    /// Whether there is a progress thread and no thread of the program polls: that computes.
    pub fn finds_computing(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word != NONE && !is_attended(word)
    }

    /// No thread of the program looks any more; says whether something was published meanwhile for which the progress
    /// thread would have been called, and which has to be looked for now. `due`: the thread is to look soon, whether or
    /// not it is called.
    pub fn resume(&self, due: bool) -> bool {
        let next = if due { DUE } else { ASLEEP };
        // ORDERING: acquire pairs with the release of a call.
        let word = self.0.swap(next, Ordering::Acquire);
        // ORDERING: before the look that follows; partner is the fence in `ring_slow`.
        fence(Ordering::SeqCst);
        if due && word & DEEP != 0 {
            wait::futex_wake(&self.0, u32::MAX);
        }
        word & !DEEP == MISSED
    }

    /// The thread's: waits until it is called, or for so long: awake as long as `is_awake` says so, which is asked
    /// again and again, then asleep. Whether it was called or is to look, or there is no thread any more.
    pub fn wait(&self, limit: Option<Duration>, mut is_awake: impl FnMut() -> bool) -> bool {
        let relaxed = Ordering::Relaxed;
        loop {
            let word = self.0.load(relaxed);
            let end = match word {
                RUNG | NONE => return true,
                DUE => {
                    // The model's naps are over at once.
                    let end = match cfg!(feature = "loom") {
                        true => Wake::TimedOut,
                        false => wait::futex_wait(&self.0, word, Some(NAP)),
                    };
                    if end == Wake::TimedOut && self.0.load(relaxed) == DUE {
                        return true;
                    }
                    continue;
                }
                AWAKE | ASLEEP => {
                    let next = if is_awake() { AWAKE } else { ASLEEP };
                    let changed = match word == next {
                        true => Ok(word),
                        false => self.0.compare_exchange(word, next, relaxed, relaxed),
                    };
                    match (changed, next) {
                        (Ok(_), ASLEEP) => wait::futex_wait(&self.0, ASLEEP, limit),
                        _ => {
                            spin_loop();
                            continue;
                        }
                    }
                }
                _ if is_attended(word) && is_awake() => {
                    spin_loop();
                    continue;
                }
                _ if is_attended(word) => {
                    let deep = word | DEEP;
                    match self.0.compare_exchange(word, deep, relaxed, relaxed) {
                        Ok(_) => wait::futex_wait(&self.0, deep, limit),
                        Err(_) => continue,
                    }
                }
                _ => wait::futex_wait(&self.0, word, limit),
            };
            if end == Wake::TimedOut {
                return matches!(self.0.load(relaxed), RUNG | NONE);
            }
        }
    }

    /// The thread's: it looks from now on, for all that was published before.
    pub fn take(&self) {
        // ORDERING: acquire pairs with the release of a call.
        self.0.swap(BUSY, Ordering::Acquire);
        // ORDERING: before the look that follows; partner is the fence in `ring_slow`.
        fence(Ordering::SeqCst);
    }

    /// The thread's: its look has found nothing, and it is about to sleep, or to stay `awake`; false where it was
    /// called meanwhile.
    pub fn rest(&self, awake: bool) -> bool {
        let next = if awake { AWAKE } else { ASLEEP };
        // ORDERING: acquire pairs with the release of a call.
        let (order, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.0.compare_exchange(BUSY, next, order, relaxed).is_ok()
    }
}

fn is_attended(word: u32) -> bool {
    matches!(word & !DEEP, ATTENDED | MISSED)
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn state(call: &Call) -> u32 {
        call.0.load(Ordering::Relaxed)
    }

    #[test]
    fn call__to_nobody_does_nothing() {
        let call = Call::default();
        call.ring();
        assert!(!call.is_answered() && state(&call) == NONE);
    }

    #[test]
    fn call__is_kept_for_whoever_looks_next() {
        let call = Call::default();
        call.begin();
        assert!(call.wait(None, || false), "the first look is due at once");
        call.take();
        call.ring();
        assert!(!call.rest(false), "it came while the thread looked");
        call.take();
        assert!(call.rest(false) && !call.attend());
        assert!(call.is_attended() && !call.wait(Some(Duration::ZERO), || false));
        assert!(!call.resume(false), "nothing came");
        assert!(!call.attend());
        call.ring();
        call.ring();
        assert!(call.is_attended() && call.resume(false));
        call.ring();
        assert!(call.attend(), "the thread is not needed for it any more");
        call.end();
        assert!(call.wait(None, || false) && !call.is_answered());
    }

    #[test]
    fn call__finds_a_thread_awake_for_a_while() {
        let call = Call::default();
        call.begin();
        call.take();
        assert!(call.rest(true) && state(&call) == AWAKE && call.finds_computing());
        let mut polls = 0;
        let poll = || {
            polls += 1;
            if polls == 3 {
                call.ring();
            }
            polls <= 5
        };
        assert!(call.wait(None, poll) && polls == 3, "called while it polled");
        call.take();
        assert!(call.rest(true) && !call.attend() && !call.finds_computing());
        let mut polls = 0;
        let poll = || {
            polls += 1;
            match polls {
                2 => assert_eq!(state(&call), ATTENDED, "it polls beside the program"),
                3 => assert!(!call.resume(false)),
                5 => assert_eq!(state(&call), AWAKE, "and says so when that goes on"),
                _ => {}
            }
            polls < 6
        };
        assert!(!call.wait(Some(Duration::ZERO), poll));
        assert!(polls == 6 && state(&call) == ASLEEP);
    }

    #[test]
    fn due__is_a_look_after_a_nap_unless_the_program_waits_again() {
        let call = Call::default();
        call.begin();
        call.take();
        assert!(call.rest(false) && !call.attend());
        assert!(!call.resume(true) && call.finds_computing());
        assert!(call.wait(None, || false), "after a nap");
        assert!(!call.attend() && !call.wait(Some(Duration::ZERO), || false));
        call.ring();
        assert_eq!(state(&call), MISSED | DEEP, "who has napped sleeps");
        assert!(call.resume(true) && call.wait(None, || false));
        call.ring();
        assert_eq!(state(&call), RUNG);
    }
}

#[cfg(all(test, feature = "loom"))]
#[allow(non_snake_case)]
mod model {
    use super::*;
    use fastpath_base::sync::explore;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    struct Shared {
        call: Call,
        /// What peers have published.
        published: AtomicU32,
        /// The rank's lock, and what was seen under it.
        seen: Mutex<u32>,
    }

    fn make() -> Arc<Shared> {
        let shared =
            Shared { call: Call::default(), published: AtomicU32::new(0), seen: Mutex::new(0) };
        shared.call.begin();
        Arc::new(shared)
    }

    fn look(shared: &Shared, seen: &mut u32) {
        *seen = shared.published.load(Ordering::Relaxed);
    }

    /// A progress thread until it has seen so many; one call that is missed is a sleep without end. It stays awake for
    /// one poll each time.
    fn serve(shared: &Shared, wanted: u32) {
        loop {
            let mut polls = 0;
            let awake = || {
                polls += 1;
                polls == 1
            };
            let mut seen = shared.seen.lock().unwrap();
            while !shared.call.is_attended() && *seen != wanted {
                shared.call.take();
                look(shared, &mut seen);
                if shared.call.rest(true) {
                    break;
                }
            }
            if *seen == wanted {
                return;
            }
            drop(seen);
            shared.call.wait(None, awake);
        }
    }

    fn publish(shared: &Shared, value: u32) {
        shared.published.store(value, Ordering::Relaxed);
        shared.call.ring();
    }

    #[test]
    fn call__is_missed_by_no_sleeper() {
        explore(3, || {
            let shared = make();
            let peer = {
                let shared = shared.clone();
                thread::spawn(move || (1..3).for_each(|value| publish(&shared, value)))
            };
            serve(&shared, 2);
            peer.join().unwrap();
        });
    }

    #[test]
    fn due__thread_looks_after_the_program_has_waited() {
        explore(3, || {
            let shared = make();
            let program = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for value in 1..3 {
                        let _seen = shared.seen.lock().unwrap();
                        shared.call.attend();
                        // Nobody calls for it.
                        shared.published.store(value, Ordering::Relaxed);
                        shared.call.resume(true);
                    }
                })
            };
            serve(&shared, 2);
            program.join().unwrap();
        });
    }

    #[test]
    fn call__is_missed_by_nobody_while_the_program_comes_and_goes() {
        explore(3, || {
            let shared = make();
            let peer = {
                let shared = shared.clone();
                thread::spawn(move || publish(&shared, 1))
            };
            let program = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut seen = shared.seen.lock().unwrap();
                    let rung = shared.call.attend();
                    if shared.call.resume(false) || rung {
                        look(&shared, &mut seen);
                        // Whether or not that was all, the thread looks too.
                        shared.call.ring();
                    }
                })
            };
            serve(&shared, 1);
            peer.join().unwrap();
            program.join().unwrap();
        });
    }
}
