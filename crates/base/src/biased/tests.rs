#![allow(non_snake_case)]

use super::*;
use std::cell::UnsafeCell;
use std::sync::Arc;

struct LockedCounter(Biased, UnsafeCell<u64>);
// SAFETY: the counter is read and written only under the lock, or after all threads have ended.
unsafe impl Sync for LockedCounter {}
// SAFETY: the counter moves between threads only under the lock, or after all threads have ended.
unsafe impl Send for LockedCounter {}

fn make() -> Arc<LockedCounter> {
    Arc::new(LockedCounter(Biased::new(|| true), UnsafeCell::new(0)))
}

/// Counts at two levels of nesting. Releases the lock in between.
fn use_often(shared: &LockedCounter, me: usize, times: u32) {
    for _ in 0..times {
        shared.0.acquire(me);
        shared.0.acquire(me);
        // SAFETY: this thread holds the lock.
        unsafe { *shared.1.get() += 1 };
        shared.0.release_lock(me, || ());
        // SAFETY: `release_lock` has acquired the lock again.
        unsafe { *shared.1.get() += 1 };
        shared.0.release(me);
        shared.0.release(me);
    }
}

#[test]
fn biased__excludes_and_nests() {
    let shared = make();
    shared.0.favour(1);
    let threads: Vec<_> = (1..5)
        .map(|me| {
            let shared = shared.clone();
            std::thread::spawn(move || use_often(&shared, me, 5_000))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    // SAFETY: no other thread is left: all were joined.
    assert_eq!(unsafe { *shared.1.get() }, 40_000);
    assert!(!shared.0.is_wanted());
}

#[test]
fn biased__goes_to_a_thread_that_is_alone_for_long() {
    let lock = Biased::new(|| true);
    lock.favour(1);
    let fenced = wait::register_own_membarrier();
    assert_eq!(lock.try_enter(1), fenced);
    if !fenced {
        return;
    }
    assert!(!lock.leave::<FIRST_SEAT>(1));
    let has_bias = |me, mark| lock.bias.load(Ordering::Relaxed) == me | mark;
    let enter_often = |me, times| {
        (0..times).for_each(|_| {
            lock.acquire(me);
            lock.release(me);
        });
        has_bias(me, 0) || has_bias(me, SECOND)
    };
    let revoke = |me, fence_ns| {
        assert!(!enter_often(me, 1));
        lock.note_fence(fence_ns);
    };
    revoke(2, u64::from(2 * ALONE) * FENCE_NS_PER_ENTRY);
    assert!(!enter_often(2, 2 * ALONE - 1), "a long fence makes it harder");
    assert!(enter_often(2, 1));
    assert!(has_bias(2, SECOND), "the first may be about to enter");
    assert_eq!(lock.counts(), (1, 0));
    revoke(3, 0);
    assert!(!enter_often(3, 9 * ALONE), "both may be about to enter");
    assert!(!enter_often(1, 1));
    assert!(!enter_often(3, ALONE));
    assert!(enter_often(3, 1));
    assert!(has_bias(3, 0), "the first has seen that its bias is gone");
    lock.forget(3);
    assert!(!enter_often(4, ALONE));
    assert!(enter_often(4, 1), "the one before has ended");
    revoke(5, u64::MAX);
    assert_eq!(lock.needed.load(Ordering::Relaxed), ALONE_MOST);
}

#[test]
fn biased__to_one_thread_stays_so_however_often_it_is_borrowed() {
    let lock = Biased::new(|| true);
    lock.favour(1);
    let fenced = wait::register_own_membarrier();
    for _ in 0..99 {
        lock.borrow(2);
        assert!(!lock.try_enter(1));
        lock.give_back();
        assert_eq!(lock.try_enter(1), fenced);
        if fenced {
            assert!(!lock.leave::<FIRST_SEAT>(1));
        }
    }
    assert_eq!(lock.counts().0, 0, "a loan is no revocation");
    lock.borrow(2);
    lock.forget(1);
    lock.give_back();
    assert!(!lock.try_enter(1));
    let needed = lock.needed.load(Ordering::Relaxed);
    assert_eq!(needed, ALONE);
}

#[test]
fn biased__lends_and_excludes() {
    let shared = make();
    shared.0.favour(1);
    let borrower = {
        let shared = shared.clone();
        std::thread::spawn(move || {
            for _ in 0..5_000 {
                shared.0.borrow(9);
                // SAFETY: this thread has borrowed the lock.
                unsafe { *shared.1.get() += 2 };
                shared.0.give_back();
            }
        })
    };
    let other = {
        let shared = shared.clone();
        std::thread::spawn(move || use_often(&shared, 2, 100))
    };
    use_often(&shared, 1, 20_000);
    borrower.join().unwrap();
    other.join().unwrap();
    // SAFETY: no other thread is left: all were joined.
    assert_eq!(unsafe { *shared.1.get() }, 50_200);
}

#[test]
fn biased__to_an_ended_thread__has_no_owner() {
    let lock = Biased::new(|| true);
    lock.favour(1);
    lock.acquire(1);
    lock.release(1);
    lock.forget(1);
    assert!(!lock.try_enter(1));
    lock.acquire(2);
    lock.release(2);
    assert_eq!(lock.counts(), (0, 0));
}

#[test]
fn biased__is_an_ordinary_lock_where_no_thread_may_have_the_bias() {
    let lock = Biased::new(|| false);
    lock.favour(1);
    assert!(!lock.try_enter(1));
    for _ in 0..2 * ALONE {
        lock.acquire(1);
        lock.acquire(1);
        lock.release(1);
        lock.release(1);
    }
    assert!(!lock.try_enter(1));
    lock.release(1);
    assert_eq!(lock.word.load(Ordering::Relaxed), FREE);
}

#[test]
fn biased__is_left_by_the_word_as_it_was_entered() {
    let shared = make();
    let use_by_word = |shared: &LockedCounter, me| {
        for _ in 0..20_000 {
            match shared.0.step_in::<BY_WORD>(me) {
                true => {
                    shared.0.acquire(me);
                    // SAFETY: this thread holds the lock.
                    unsafe { *shared.1.get() += 2 };
                    shared.0.release(me);
                    if shared.0.leave::<BY_WORD>(me) {
                        shared.0.wake_others::<BY_WORD>();
                    }
                }
                false => use_often(shared, me, 1),
            }
        }
    };
    let threads: Vec<_> = (1..4)
        .map(|me| {
            let shared = shared.clone();
            std::thread::spawn(move || use_by_word(&shared, me))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    // SAFETY: no other thread is left: all were joined.
    assert_eq!(unsafe { *shared.1.get() }, 120_000);
    assert!(!shared.0.is_wanted());
    assert_eq!(shared.0.word.load(Ordering::Relaxed), FREE);
}

#[test]
fn way_in__follows_what_the_kernel_offers() {
    let lock = Biased::new(|| true);
    lock.favour(1);
    let by_word = lock.last_seat() == usize::from(BY_WORD);
    assert_eq!(by_word, !wait::register_own_membarrier());
    assert_eq!(lock.try_enter(1), !by_word);
}
