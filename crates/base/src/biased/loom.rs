//! The biased lock under the model checker (`make test-loom`).
#![allow(non_snake_case)]

use super::*;
use crate::sync::{AtomicBool, RaceCheck, explore};
use ::loom::sync::Arc;
use ::loom::thread;

struct LockedMemory(Biased, RaceCheck);

/// Enters `times` times, at two levels if `nests`, and writes the watched memory.
fn use_often(shared: &LockedMemory, me: usize, times: u32, nests: bool) {
    for _ in 0..times {
        shared.0.acquire(me);
        shared.1.note_write();
        if nests {
            shared.0.acquire(me);
            shared.1.note_write();
            shared.0.release(me);
        }
        shared.0.release(me);
    }
}

fn compete(needed: u32, times: [u32; 2], nests: bool) {
    let shared = Arc::new(LockedMemory(Biased::model(needed), RaceCheck::default()));
    shared.0.favour(1);
    let other = shared.clone();
    let thread = thread::spawn(move || use_often(&other, 2, times[1], nests));
    use_often(&shared, 1, times[0], nests);
    thread.join().unwrap();
    assert!(!shared.0.is_wanted());
}

#[test]
fn revocation__admits_no_second_thread() {
    explore(4, || compete(u32::MAX / 2, [2, 1], false));
}

#[test]
fn revocation__waits_for_every_level() {
    explore(3, || compete(u32::MAX / 2, [1, 1], true));
}

#[test]
fn bias__goes_to_the_other_thread_and_back() {
    explore(3, || compete(0, [2, 2], false));
}

#[test]
fn breath__lets_the_other_thread_in() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        shared.0.favour(1);
        let other = shared.clone();
        let thread = thread::spawn(move || use_often(&other, 2, 1, false));
        shared.0.acquire(1);
        shared.1.note_write();
        shared.0.release_lock(1, || ());
        shared.1.note_write();
        shared.0.release(1);
        thread.join().unwrap();
    });
}

/// A third thread enters without a bias. Both seats are taken by threads that may be about to enter.
#[test]
fn bias__goes_through_both_seats() {
    // With three threads, a preemption bound of 2 takes two minutes and a larger one hours. The default is 1.
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(1, |asked| asked.min(2)));
    builder.check(|| {
        let shared = Arc::new(LockedMemory(Biased::model(0), RaceCheck::default()));
        shared.0.favour(1);
        let threads = [2, 3].map(|me| {
            let other = shared.clone();
            thread::spawn(move || use_often(&other, me, 4 - me as u32, false))
        });
        use_often(&shared, 1, 1, false);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(!shared.0.is_wanted());
    });
}

/// Borrows the lock `times` times, and writes the watched memory.
fn borrow_often(shared: &LockedMemory, me: usize, times: u32) {
    for _ in 0..times {
        shared.0.borrow(me);
        shared.1.note_write();
        shared.0.give_back();
    }
}

#[test]
fn loan__excludes_and_returns_the_bias() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        shared.0.favour(1);
        let other = shared.clone();
        let thread = thread::spawn(move || borrow_often(&other, 2, 2));
        use_often(&shared, 1, 2, false);
        thread.join().unwrap();
        use_often(&shared, 1, 1, true);
        shared.0.borrow(2);
        shared.1.note_write();
        shared.0.give_back();
        assert!(shared.0.try_enter(1), "the bias is its own again");
        shared.1.note_write();
        assert!(!shared.0.leave::<FIRST_SEAT>(1));
    });
}

#[test]
fn loan__of_ended_thread__is_not_returned() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        shared.0.favour(1);
        let other = shared.clone();
        let thread = thread::spawn(move || borrow_often(&other, 2, 1));
        use_often(&shared, 1, 1, false);
        shared.0.forget(1);
        thread.join().unwrap();
        assert!(!shared.0.try_enter(1));
    });
}

#[test]
fn loan__leaves_a_third_thread_its_turn() {
    explore(2, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        shared.0.favour(1);
        let threads = [1, 2].map(|me| {
            let other = shared.clone();
            thread::spawn(move || match me {
                1 => borrow_often(&other, 3, 1),
                _ => use_often(&other, me, 1, false),
            })
        });
        use_often(&shared, 1, 1, false);
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn ended_thread__leaves_no_bias() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        shared.0.favour(1);
        let other = shared.clone();
        let thread = thread::spawn(move || use_often(&other, 2, 1, false));
        use_often(&shared, 1, 1, false);
        shared.0.forget(1);
        thread.join().unwrap();
    });
}

#[test]
fn lock__is_handed_to_a_sleeper_and_stays_available() {
    explore(2, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let other = shared.clone();
        let thread = thread::spawn(move || use_often(&other, 2, 2, false));
        use_often(&shared, 1, PASSES + 2, false);
        thread.join().unwrap();
    });
}

/// Model in which one thread enters repeatedly until a second one, which sleeps for the lock, gets it. The model
/// asserts how often the first thread enters while the second sleeps. Each such entry costs a preemption.
fn turns_beside_a_sleeper(turn: fn(&LockedMemory, &mut dyn FnMut())) -> impl Fn() + Sync + Send {
    move || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let sleeper_was_in = Arc::new(AtomicBool::new(false));
        let (other, was_in) = (shared.clone(), sleeper_was_in.clone());
        let thread = thread::spawn(move || {
            other.0.acquire(2);
            other.1.note_write();
            was_in.store(true, Ordering::Relaxed);
            other.0.release(2);
        });
        let mut turns = 0;
        for _ in 0..PASSES + 3 {
            turn(&shared, &mut || {
                shared.1.note_write();
                let waits = shared.0.word.load(Ordering::Relaxed) == word::CONTENDED;
                turns += u32::from(waits && !sleeper_was_in.load(Ordering::Relaxed));
            });
        }
        thread.join().unwrap();
        assert!(turns <= PASSES + 1, "{turns} turns beside a thread that slept");
    }
}

fn turn_by_lock(shared: &LockedMemory, inside: &mut dyn FnMut()) {
    shared.0.acquire(1);
    inside();
    shared.0.release(1);
}

/// A sleeper gets the lock after at most [`PASSES`] unsuccessful wake-ups.
#[test]
fn lock__is_handed_to_a_sleeper_after_at_most_8_turns() {
    explore(2, turns_beside_a_sleeper(turn_by_lock));
}

/// A thread that waits while the lock is handed to another sleeper is woken when that sleeper leaves.
#[test]
fn lock__that_is_kept_for_one_sleeper_comes_to_the_other() {
    // With three threads, a larger preemption bound would take hours. The default is 1.
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(1, |asked| asked.min(2)));
    builder.check(|| {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let threads = [2, 3].map(|me| {
            let other = shared.clone();
            thread::spawn(move || use_often(&other, me, 1, false))
        });
        use_often(&shared, 1, PASSES + 1, false);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(!shared.0.is_wanted());
    });
}

/// Enters `times` times, as the immediate path does if no thread gets a bias.
fn use_by_word(shared: &LockedMemory, me: usize, times: u32) {
    for _ in 0..times {
        if !shared.0.step_in::<BY_WORD>(me) {
            shared.0.back_out::<BY_WORD>();
            use_often(shared, me, 1, true);
            continue;
        }
        shared.1.note_write();
        shared.0.acquire(me);
        shared.1.note_write();
        shared.0.release(me);
        if shared.0.leave::<BY_WORD>(me) {
            shared.0.wake_others::<BY_WORD>();
        }
    }
}

#[test]
fn word__lets_one_thread_in_and_wakes_the_other() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let other = shared.clone();
        let thread = thread::spawn(move || use_by_word(&other, 2, 1));
        use_by_word(&shared, 1, 2);
        thread.join().unwrap();
        assert!(!shared.0.is_wanted());
    });
}

#[test]
fn word__stays_available() {
    explore(2, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let other = shared.clone();
        let thread = thread::spawn(move || use_often(&other, 2, 2, false));
        use_by_word(&shared, 1, PASSES + 2);
        thread.join().unwrap();
    });
}

/// The bound of [`PASSES`] also holds if no thread gets a bias.
#[test]
fn word__is_handed_to_a_sleeper_after_at_most_8_turns() {
    explore(
        3,
        turns_beside_a_sleeper(|shared, inside| {
            if !shared.0.step_in::<BY_WORD>(1) {
                shared.0.back_out::<BY_WORD>();
                return turn_by_lock(shared, inside);
            }
            inside();
            if shared.0.leave::<BY_WORD>(1) {
                shared.0.wake_others::<BY_WORD>();
            }
        }),
    );
}

#[test]
fn word__is_lent() {
    explore(3, || {
        let shared = Arc::new(LockedMemory(Biased::model(u32::MAX / 2), RaceCheck::default()));
        let other = shared.clone();
        let thread = thread::spawn(move || borrow_often(&other, 2, 2));
        use_by_word(&shared, 1, 2);
        thread.join().unwrap();
    });
}
