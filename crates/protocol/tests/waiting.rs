//! What others see of a rank that waits.
#![cfg(not(loom))]
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::policy;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::Ordering;
use fastpath_base::wait::{futex_wake, yield_now};
use fastpath_bootstrap::Job;
use fastpath_bootstrap::segment::{STATE_AWAKE, STATE_SLEEPING};
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::{Note, WaitPolicy};
use fastpath_transport::Interfaces;
use std::sync::atomic::AtomicBool;

#[test]
fn note__stays_while_a_waiting_rank_is_awake_for_nothing() {
    let job: &'static Job = &Job::in_process(1).unwrap().leak()[0];
    let sleeps = WaitPolicy {
        mode: WaitMode::Sleep,
        ..policy()
    };
    let mut worker = Worker::with_interfaces(job, sleeps, Interfaces::open(job)).unwrap();
    let note = Note {
        call: "MPI_Recv",
        peer: 1,
        tag: 7,
        comm: 0,
        bytes: 8,
    };
    let page = job.own_page();
    let over = AtomicBool::new(false);
    let mut notes = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if page.state.load(Ordering::Relaxed) == STATE_SLEEPING {
                    page.state.store(STATE_AWAKE, Ordering::Relaxed);
                    futex_wake(&page.state, 1);
                }
                yield_now();
            }
        });
        let done = |worker: &mut Worker| {
            if worker.counters.sleeps > 0 {
                notes.push(page.wait_note());
            }
            notes.len() == 20
        };
        // SAFETY: the worker is valid, and nothing else refers to it.
        unsafe { Worker::wait_until(&raw mut worker, None, &note, done) };
        over.store(true, Ordering::Relaxed);
    });
    let first = notes[0].clone().expect("a rank that has slept says so");
    assert_eq!((&*first.call, first.peer, first.tag), ("MPI_Recv", 1, 7));
    for later in notes {
        assert_eq!(
            later.as_ref(),
            Some(&first),
            "of one wait there is one note"
        );
    }
    assert_eq!(page.wait_note(), None, "the wait is over");
}
