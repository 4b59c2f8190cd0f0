//! The ring and the sleep handshake under the model checker (`make test-loom`). The checker tries every interleaving of
//! two threads that the memory model allows, up to a number of preemptions.
#![allow(unsafe_code, non_snake_case)]

use super::data_area::LocalDataArea;
use super::datapath::{Rx, Tx};
use super::recall::Recalls;
use super::ring::{SharedRing, close, post, take};
use super::wire::SLOTS;
use ::loom::sync::Arc;
use ::loom::thread;
use fastpath_base::sync::{AtomicU32, Ordering, explore};
use fastpath_base::wait;
use fastpath_segment::{STATE_AWAKE, STATE_SLEEPING};

fn wait_for(shared: &SharedRing, rx: &mut Rx, number: u32) {
    while !take(rx, number) {
        if rx.owes_credits() {
            rx.publish_to(rx.head);
        }
        shared.receiver_state.store(STATE_SLEEPING, Ordering::Relaxed);
        wait::fence_others();
        if !rx.has_arrival() {
            wait::futex_wait(&shared.receiver_state, STATE_SLEEPING, None);
        }
        shared.receiver_state.store(STATE_AWAKE, Ordering::Relaxed);
    }
}

/// Posts a message. The producer waits for room as in `ShmEndpoint::await_room` and a worker's sleep.
fn post_surely(shared: &SharedRing, tx: &mut Tx, number: u32) {
    while !post(tx, number) {
        // SAFETY: the ring outlives the threads.
        let control = unsafe { &(*shared.pair).control };
        control.producer_waits.store(1, Ordering::Relaxed);
        shared.sender.state.store(STATE_SLEEPING, Ordering::Relaxed);
        wait::fence_others();
        if !tx.refresh_credits() {
            wait::futex_wait(&shared.sender.state, STATE_SLEEPING, None);
        }
        shared.sender.state.store(STATE_AWAKE, Ordering::Relaxed);
    }
}

fn sleeper(start: u32, messages: u32) {
    let shared = Arc::new(SharedRing::new(start));
    let other = shared.clone();
    let producer = thread::spawn(move || {
        let mut tx = other.tx(start);
        (0..messages).for_each(|number| assert!(post(&mut tx, number)));
        close(tx);
    });
    let mut rx = shared.rx(start);
    (0..messages).for_each(|number| wait_for(&shared, &mut rx, number));
    assert!(rx.look(LocalDataArea::NOTHING).is_none());
    producer.join().unwrap();
}

#[test]
fn sleeper__misses_no_message() {
    explore(3, || sleeper(0, SLOTS));
}

#[test]
fn sleeper__misses_no_message_where_positions_wrap() {
    explore(2, || sleeper(u32::MAX - 1, SLOTS));
}

#[test]
fn full_ring__is_written_again_only_after_it_was_read() {
    explore(3, || {
        let shared = Arc::new(SharedRing::new(0));
        let other = shared.clone();
        let messages = SLOTS + 1;
        let producer = thread::spawn(move || {
            let mut tx = other.tx(0);
            let mut sent = 0;
            // Run one more round than messages: the ring may accept or refuse a post, and neither may cause a fault.
            for _ in 0..messages + 1 {
                if sent < messages && post(&mut tx, sent) {
                    sent += 1;
                }
            }
            close(tx);
            sent
        });
        let mut rx = shared.rx(0);
        let mut taken = 0;
        for _ in 0..messages {
            if take(&mut rx, taken) {
                taken += 1;
            }
        }
        let sent = producer.join().unwrap();
        while taken < sent {
            assert!(take(&mut rx, taken), "message {taken} of {sent} is lost");
            taken += 1;
        }
        assert!(rx.look(LocalDataArea::NOTHING).is_none());
    });
}

#[test]
fn producer__that_sleeps_for_room_is_woken() {
    explore(3, || {
        let shared = Arc::new(SharedRing::new(0));
        let other = shared.clone();
        let messages = SLOTS + 1;
        let producer = thread::spawn(move || {
            let mut tx = other.tx(0);
            (0..messages).for_each(|number| post_surely(&other, &mut tx, number));
            close(tx);
        });
        let mut rx = shared.rx(0);
        (0..messages).for_each(|number| wait_for(&shared, &mut rx, number));
        producer.join().unwrap();
    });
}

/// A sender recalls its message while a receiver, after an earlier match, matches it. Exactly one side must win.
#[test]
fn recall__is_won_by_one_side() {
    const REQUEST: u32 = 1 << 30 | 5000;
    explore(3, || {
        let recalls = Arc::new(Recalls::fresh());
        let answered = Arc::new(AtomicU32::new(0));
        let (theirs, answer) = (recalls.clone(), answered.clone());
        let receiver = thread::spawn(move || {
            let claimed = theirs.claim(REQUEST, true);
            if claimed {
                answer.store(1, Ordering::Relaxed);
            }
            // The next claim overwrites the claimed request.
            assert!(theirs.claim(REQUEST + 1, true));
            claimed
        });
        let taken_back = recalls.ask(REQUEST).is_some_and(|index| {
            let is_matched = answered.load(Ordering::Relaxed) != 0;
            recalls.decide(index, REQUEST, !is_matched)
        });
        let claimed = receiver.join().unwrap();
        assert!(claimed != taken_back, "claimed: {claimed}, taken back: {taken_back}");
        assert_eq!(recalls.claim(REQUEST, true), !taken_back);
    });
}
