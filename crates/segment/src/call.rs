//! Word by which peers call a rank's progress thread, when they need an answer while the program computes.
//!
//! | word | progress thread | word after a call |
//! |---|---|---|
//! | `NONE` | does not exist | |
//! | `ATTENDED` | sleeps: a thread of the program waits inside MPI, and polls | `MISSED` |
//! | `MISSED` | sleeps, as in `ATTENDED` | |
//! | `ASLEEP` | sleeps | `RUNG`, with a wake-up |
//! | `AWAKE` | polls this word, on a processor without other use | `RUNG` |
//! | `DUE` | naps, then polls for messages | `RUNG`, with a wake-up |
//! | `BUSY` | polls for messages | `RUNG` |
//! | `RUNG` | is to poll for messages | |
//!
//! Peers call after publishing a message. The rank's own threads change the word under their lock. Senders of short
//! messages do not call, so such messages cost nothing.
//!
//! `DUE` is for ranks with peers on other hosts. A wait of the program consumes the events of their messages, and only
//! another poll rearms the events. The progress thread makes that poll after a nap of [`NAP`], because the program may
//! soon wait again and poll itself. While the program waits, the thread stays asleep, which the bit `DEEP` marks. The
//! thread is therefore woken at most once per [`NAP`].

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
/// Bit set in addition to `ATTENDED` or `MISSED` if the progress thread sleeps without a time limit, until it is woken.
const DEEP: u32 = 8;

/// Length of the progress thread's nap in `DUE`: a few round trips over a network.
const NAP: Duration = Duration::from_micros(250);

/// Call word of a rank; zero (`NONE`) if the rank has no progress thread.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct CallWord(AtomicU32);

impl CallWord {
    /// Returns whether the rank has a progress thread.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Calls the progress thread, if there is one, after a message was published.
    #[inline]
    pub fn ring(&self) {
        if self.is_answered() {
            self.ring_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn ring_slow(&self) {
        // ORDERING: either this thread sees the changed call word, or the thread that changed the word sees what was
        // published. Partners are the fences in `resume` and `take`.
        fence(Ordering::SeqCst);
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let next = match word & !DEEP {
                ATTENDED => MISSED | word & DEEP,
                ASLEEP | AWAKE | BUSY | DUE => RUNG,
                _ => return,
            };
            // ORDERING: release: the called thread sees what was published. Partners: acquires in `resume`, `take`,
            // `rest`.
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

    /// Marks the progress thread as existing. The thread begins with a poll.
    pub fn begin(&self) {
        self.0.store(RUNG, Ordering::Relaxed);
        // A peer that still reads `NONE` does not call. By this fence, the first poll sees that peer's messages.
        wait::fence_others();
    }

    /// Marks the progress thread as no longer existing, and wakes it so that it ends.
    pub fn end(&self) {
        self.0.store(NONE, Ordering::Relaxed);
        wait::futex_wake(&self.0, u32::MAX);
    }

    /// Notes that a thread of the program polls. Returns whether that thread has to answer an earlier call.
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

    /// Returns whether a thread of the program polls.
    pub fn is_attended(&self) -> bool {
        is_attended(self.0.load(Ordering::Relaxed))
    }

    /// Returns whether there is a progress thread and no thread of the program polls: the program computes.
    pub fn finds_computing(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word != NONE && !is_attended(word)
    }

    /// Notes that no thread of the program polls any more. Returns whether a call was missed meanwhile; the caller must
    /// then poll now. If `due` is true, the progress thread polls soon, even without a call.
    pub fn resume(&self, due: bool) -> bool {
        let next = if due { DUE } else { ASLEEP };
        // ORDERING: acquire pairs with the release of a call.
        let word = self.0.swap(next, Ordering::Acquire);
        // ORDERING: the change of the word comes before the poll that follows; partner is the fence in `ring_slow`.
        fence(Ordering::SeqCst);
        if due && word & DEEP != 0 {
            wait::futex_wake(&self.0, u32::MAX);
        }
        word & !DEEP == MISSED
    }

    /// Waits on the progress thread for a call. Polls as long as `is_awake` returns true, then sleeps for at most
    /// `limit`. Returns true if a call came, a poll is due, or the thread must end; false after the time limit.
    pub fn wait(&self, limit: Option<Duration>, mut is_awake: impl FnMut() -> bool) -> bool {
        let relaxed = Ordering::Relaxed;
        loop {
            let word = self.0.load(relaxed);
            let end = match word {
                RUNG | NONE => return true,
                DUE => {
                    // In the loom model, a nap ends at once.
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

    /// Notes, on the progress thread, that this thread now polls for all messages published so far.
    pub fn take(&self) {
        // ORDERING: acquire pairs with the release of a call.
        self.0.swap(BUSY, Ordering::Acquire);
        // ORDERING: the change of the word comes before the poll that follows; partner is the fence in `ring_slow`.
        fence(Ordering::SeqCst);
    }

    /// Notes, on the progress thread, that its poll found nothing and that it is about to sleep, or to stay `awake`.
    /// Returns false if a call came meanwhile.
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

    fn state(call: &CallWord) -> u32 {
        call.0.load(Ordering::Relaxed)
    }

    #[test]
    fn call__without_sleeper__does_nothing() {
        let call = CallWord::default();
        call.ring();
        assert!(!call.is_answered() && state(&call) == NONE);
    }

    #[test]
    fn call__is_kept_until_the_next_look() {
        let call = CallWord::default();
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
        let call = CallWord::default();
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
        let call = CallWord::default();
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

    struct CallModel {
        call: CallWord,
        published: AtomicU32,
        /// Lock of the rank. It holds the last published value that a thread has seen.
        seen: Mutex<u32>,
    }

    fn make() -> Arc<CallModel> {
        let shared = CallModel {
            call: CallWord::default(),
            published: AtomicU32::new(0),
            seen: Mutex::new(0),
        };
        shared.call.begin();
        Arc::new(shared)
    }

    fn look(shared: &CallModel, seen: &mut u32) {
        *seen = shared.published.load(Ordering::Relaxed);
    }

    /// Runs a progress thread until it has seen `wanted`. The thread stays awake for one poll each time. A lost call
    /// shows as an endless sleep of the thread.
    fn serve(shared: &CallModel, wanted: u32) {
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

    fn publish(shared: &CallModel, value: u32) {
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
                        // No peer calls, so only `resume(true)` can make the thread poll.
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
    fn call__during_changes_of_attention__is_never_missed() {
        explore(2, || {
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
                        // The progress thread must poll too, so that `serve` returns although this thread polled.
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
