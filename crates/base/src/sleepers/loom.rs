//! Model of the hand-over between sleeping threads. Two threads each wait for a message. A peer sends both messages,
//! and wakes the thread that sleeps on the word. A missing wake-up shows as a deadlock.
#![allow(non_snake_case)]

use super::*;
use crate::sync::{AtomicBool, compiler_fence, explore};
use ::loom::sync::{Arc as Shared, Mutex, MutexGuard};
use ::loom::thread;

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

/// State under the lock: waiting threads, messages taken, and sleepers.
struct LockState {
    waiting: u32,
    taken: [bool; 2],
    sleepers: Sleepers<usize>,
    /// Number of wake-ups, by threads of this process, of a thread without a message while there was a leader.
    needless: u32,
}

struct WakeModel {
    word: AtomicU32,
    /// Thread whose message is a word of the peer, which only this thread polls; 2 for none.
    polls_itself: usize,
    rings: [AtomicBool; 2],
    place: Mutex<LockState>,
}

impl WakeModel {
    fn new(polls_itself: usize) -> Shared<Self> {
        let place =
            LockState { waiting: 0, taken: [false; 2], sleepers: Sleepers::default(), needless: 0 };
        Shared::new(WakeModel {
            word: AtomicU32::new(AWAKE),
            polls_itself,
            rings: [AtomicBool::new(false), AtomicBool::new(false)],
            place: Mutex::new(place),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LockState> {
        self.place.lock().unwrap()
    }

    fn wake_word(&self) {
        // ORDERING: the word transfers no data; see the transport's `iface::wake`.
        let slept =
            self.word.compare_exchange(SLEEPING, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
        if slept.is_ok() {
            wait::futex_wake(&self.word, u32::MAX);
        }
    }

    fn send(&self, to: usize) {
        // ORDERING: release pairs with the acquire in `progress`.
        self.rings[to].store(true, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.wake_word();
    }

    fn progress(&self, place: &mut LockState) -> bool {
        let mut moved = false;
        for (of, (ring, taken)) in self.rings.iter().zip(&mut place.taken).enumerate() {
            // ORDERING: acquire pairs with the release in `send`.
            if of != self.polls_itself && !*taken && ring.load(Ordering::Acquire) {
                (*taken, moved) = (true, true);
            }
        }
        if moved {
            self.wake_sleepers(place);
        }
        moved
    }

    fn wake_sleepers(&self, place: &mut LockState) {
        let taken = place.taken;
        place.sleepers.wake(|&me| taken[me] || me == self.polls_itself, || self.wake_word());
    }

    fn is_over(&self, place: &mut LockState, me: usize) -> bool {
        // ORDERING: acquire pairs with the release in `send`.
        place.taken[me] |= me == self.polls_itself && self.rings[me].load(Ordering::Acquire);
        place.taken[me]
    }

    /// The wait of a thread, as in `Worker::wait_until`.
    fn wait(&self, me: usize) {
        let mut place = self.lock();
        place.waiting += 1;
        loop {
            self.progress(&mut place);
            if self.is_over(&mut place, me) {
                break;
            }
            let slot = place.sleepers.register(me);
            if slot.leads() {
                // ORDERING: release as in `asleep::sleep`; partner is the peer's read of the word after its fence.
                self.word.store(SLEEPING, Ordering::Release);
                wait::fence_others();
            }
            let moved = self.progress(&mut place);
            if slot.leads() {
                let taken = place.taken;
                place.sleepers.wake_followers(|&of| taken[of] || of == self.polls_itself);
            }
            if !moved && !self.is_over(&mut place, me) {
                drop(place);
                match slot.bell() {
                    Some(bell) => wait::futex_wait(bell, QUIET, None),
                    None => wait::futex_wait(&self.word, SLEEPING, None),
                };
                place = self.lock();
            }
            let rung = slot.bell().is_some_and(|bell| bell.load(Ordering::Relaxed) == RUNG);
            let had_to_poll = me == self.polls_itself;
            if rung && !place.taken[me] && place.sleepers.is_led && !had_to_poll {
                place.needless += 1;
            }
            place.sleepers.unregister(&slot);
            if slot.leads() {
                self.word.store(AWAKE, Ordering::Relaxed);
                self.wake_sleepers(&mut place);
            }
        }
        place.waiting -= 1;
        if place.waiting == place.sleepers.count() {
            place.sleepers.hand_on(false, || self.wake_word());
        }
    }
}

fn begin_waits(world: &Shared<WakeModel>) -> [thread::JoinHandle<()>; 2] {
    [0, 1].map(|me| {
        let world = world.clone();
        thread::spawn(move || world.wait(me))
    })
}

#[test]
fn threads__each_get_their_message_from_any_finder() {
    explore(2, || {
        let world = WakeModel::new(2);
        let waits = begin_waits(&world);
        world.send(1);
        world.send(0);
        for wait in waits {
            wait.join().unwrap();
        }
        let place = world.lock();
        assert_eq!((place.waiting, place.sleepers.count(), place.needless), (0, 0, 0));
    });
}

/// The leader leaves with its message before the other thread's message arrives.
#[test]
fn leader__that_leaves_is_followed_by_another_one() {
    explore(2, || {
        let world = WakeModel::new(2);
        let waits = begin_waits(&world);
        world.send(0);
        for (me, wait) in waits.into_iter().enumerate() {
            wait.join().unwrap();
            if me == 0 {
                world.send(1);
            }
        }
        assert_eq!(world.lock().sleepers.count(), 0);
    });
}

/// One message is a word that the progress function does not poll. The thread that awaits it must poll the word itself,
/// whichever thread is awake when the word changes.
#[test]
fn word_of_a_peer__is_seen_by_the_thread_that_awaits_it() {
    explore(3, || {
        let world = WakeModel::new(1);
        let waits = begin_waits(&world);
        world.send(1);
        for (me, wait) in waits.into_iter().enumerate().rev() {
            wait.join().unwrap();
            if me == 1 {
                world.send(0);
            }
        }
        assert_eq!(world.lock().sleepers.count(), 0);
    });
}
