//! The hand-over between threads that sleep, under the model checker: two threads wait for a message each, a peer sends
//! both and wakes who sleeps on the word. A wake-up that is missing shows as a deadlock.
#![allow(non_snake_case)]

use super::*;
use crate::sync::{AtomicBool, compiler_fence, explore};
use ::loom::sync::{Arc as Shared, Mutex, MutexGuard};
use ::loom::thread;

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

/// What the lock protects: threads that wait, messages that were taken, and who sleeps.
struct LockState {
    waiting: u32,
    taken: [bool; 2],
    sleepers: Sleepers<usize>,
    /// Sleeps that a thread of this process ended though its message had not come, and nobody had to lead.
    needless: u32,
}

struct World {
    word: AtomicU32,
    /// The thread whose message is a word of the peer's, which only it polls; 2: none.
    polls_itself: usize,
    rings: [AtomicBool; 2],
    place: Mutex<LockState>,
}

impl World {
    fn new(polls_itself: usize) -> Shared<Self> {
        let place =
            LockState { waiting: 0, taken: [false; 2], sleepers: Sleepers::default(), needless: 0 };
        Shared::new(World {
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
        // ORDERING: nothing is handed over by the word; see the transport's `iface::wake`.
        let slept =
            self.word.compare_exchange(SLEEPING, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
        if slept.is_ok() {
            wait::futex_wake(&self.word, u32::MAX);
        }
    }

    /// The peer: a message, and a look whether somebody sleeps.
    fn send(&self, to: usize) {
        // ORDERING: release pairs with the acquire in `progress`.
        self.rings[to].store(true, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.wake_word();
    }

    /// Takes what has come, for whichever thread, and wakes that one.
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

    /// Whether a thread has its message.
    fn is_over(&self, place: &mut LockState, me: usize) -> bool {
        // ORDERING: acquire pairs with the release in `send`.
        place.taken[me] |= me == self.polls_itself && self.rings[me].load(Ordering::Acquire);
        place.taken[me]
    }

    /// The wait of a thread, as `Worker::wait_until` has it.
    fn wait(&self, me: usize) {
        let mut place = self.lock();
        place.waiting += 1;
        loop {
            self.progress(&mut place);
            if self.is_over(&mut place, me) {
                break;
            }
            let bed = place.sleepers.lie_down(me);
            if bed.leads() {
                // ORDERING: as in `asleep::sleep`; partner is the peer's look after its fence.
                self.word.store(SLEEPING, Ordering::Release);
                wait::fence_others();
            }
            let moved = self.progress(&mut place);
            if bed.leads() {
                let taken = place.taken;
                place.sleepers.wake_followers(|&of| taken[of] || of == self.polls_itself);
            }
            if !moved && !self.is_over(&mut place, me) {
                drop(place);
                match bed.bell() {
                    Some(bell) => wait::futex_wait(bell, QUIET, None),
                    None => wait::futex_wait(&self.word, SLEEPING, None),
                };
                place = self.lock();
            }
            let rung = bed.bell().is_some_and(|bell| bell.load(Ordering::Relaxed) == RUNG);
            let had_to_poll = me == self.polls_itself;
            if rung && !place.taken[me] && place.sleepers.is_led() && !had_to_poll {
                place.needless += 1;
            }
            place.sleepers.get_up(&bed);
            if bed.leads() {
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

/// The two threads that wait.
fn begin_waits(world: &Shared<World>) -> [thread::JoinHandle<()>; 2] {
    [0, 1].map(|me| {
        let world = world.clone();
        thread::spawn(move || world.wait(me))
    })
}

#[test]
fn threads__each_get_their_message_whoever_finds_it() {
    explore(2, || {
        let world = World::new(2);
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

/// The thread that leads leaves with its message while the other one's is still to come.
#[test]
fn leader__that_leaves_is_followed_by_another_one() {
    explore(2, || {
        let world = World::new(2);
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

/// As in the first test; one of the messages is a word that no progress finds: its thread has to poll by itself,
/// whoever is awake when it changes.
#[test]
fn word_of_a_peer__is_seen_by_the_thread_that_awaits_it() {
    explore(3, || {
        let world = World::new(1);
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
