//! State of a waiting rank as other processes see it.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::policy;
use fastpath_base::config::WaitMode;
use fastpath_base::sync::{AtomicBool, Ordering};
use fastpath_base::wait::{futex_wake, register_membarrier, yield_now};
use fastpath_job::Job;
use fastpath_protocol::Worker;
use fastpath_protocol::waiting::{Note, WaitPolicy};
use fastpath_segment::{AwaitedRanks, STATE_AWAKE, STATE_SLEEPING, WaitNote};
use fastpath_transport::Interfaces;
use fastpath_transport::sim::{Conditions, Network};
use std::sync::Barrier;
use std::time::Duration;

/// Number of sleeps after which the observed wait ends.
const SLEEPS: u64 = 4;

const NOTE: Note = Note {
    call: "MPI_Recv",
    peer: 1,
    tag: 7,
    comm: 0,
    bytes: 8,
    awaited: AwaitedRanks::UNKNOWN,
    naps: false,
};

/// Creates a worker that sleeps in every wait, for at most `nap` at a time.
fn worker(job: &'static Job, nap: Option<Duration>) -> Worker {
    let conditions = Conditions { nap, ..Conditions::default() };
    let interfaces = Interfaces::simulate(job, &Network::new(1, conditions));
    let sleeps = WaitPolicy { mode: WaitMode::Sleep, ..policy() };
    Worker::with_interfaces(job, sleeps, interfaces).unwrap()
}

/// Returns the rank's note at each poll after its first sleep, in a wait without events. The second value is whether a
/// note is left after the wait.
fn watch_notes(job: &'static Job, nap: Option<Duration>) -> (Vec<Option<WaitNote>>, bool) {
    let mut worker = worker(job, nap);
    let note = Note { awaited: AwaitedRanks::of(&[0]), ..NOTE };
    let page = job.own_page();
    let mut notes = Vec::new();
    let done = |worker: &mut Worker| {
        let over = worker.counters.sleeps > SLEEPS;
        if worker.counters.sleeps > 0 && !over {
            notes.push(page.wait_notes().pop());
        }
        over
    };
    // SAFETY: the worker is valid, and nothing else refers to it.
    unsafe { Worker::wait_until(&raw mut worker, None, &note, done) };
    (notes, page.wait_notes().pop().is_some())
}

fn job() -> &'static Job {
    &Job::in_process(1).unwrap().leak()[0]
}

#[test]
fn note__stays_while_a_rank_is_awake_because_its_time_was_up() {
    let (notes, after) = watch_notes(job(), Some(Duration::from_millis(1)));
    let first = notes[0].clone().expect("a rank that sleeps says so");
    assert_eq!(first.awaited.named(), [0]);
    assert_eq!((&*first.call, first.peer, first.tag), ("MPI_Recv", 1, 7));
    for later in notes {
        assert_eq!(later.as_ref(), Some(&first));
    }
    assert!(!after, "the wait is over");
}

/// The first true result of `done` may consume the awaited state, so a second call could return false.
#[test]
fn done__after_it_has_returned_true__is_not_called_again() {
    let mut worker = worker(job(), Some(Duration::from_millis(1)));
    let mut answers = Vec::new();
    // A sleep is counted before the poll that precedes it.
    let done = |worker: &mut Worker| {
        answers.push(worker.counters.sleeps != 0);
        worker.counters.sleeps != 0
    };
    // SAFETY: the worker is valid, and nothing else refers to it.
    unsafe { Worker::wait_until(&raw mut worker, None, &NOTE, done) };
    assert_eq!(answers.iter().filter(|over| **over).count(), 1);
}

/// A sleep with a limit may end without a peer. Tools must not take it for a sleep that only a peer can end.
#[test]
fn sleep__with_a_limit_is_told_from_one_without() {
    let job = job();
    let (begun, over) = (Barrier::new(2), AtomicBool::new(false));
    let (slept, settled) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let page = job.own_page();
            let (mut slept, mut settled) = (0, 0);
            begun.wait();
            while !over.load(Ordering::Relaxed) {
                slept += u32::from(page.state.load(Ordering::Relaxed) == STATE_SLEEPING);
                settled += u32::from(page.sleepers() != 0);
                yield_now();
            }
            (slept, settled)
        });
        begun.wait();
        watch_notes(job, Some(Duration::from_millis(20)));
        over.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(slept > 0 && settled == 0, "{settled} of {slept}");
}

/// The message that wakes a rank may take long to copy. Meanwhile the rank must not look deadlocked.
#[test]
fn note__goes_when_a_rank_is_woken() {
    let job = job();
    let over = AtomicBool::new(false);
    let (notes, after) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let page = job.own_page();
            let state = &page.state;
            // Without an expedited membarrier, the rank sleeps in short naps.
            let fenced = register_membarrier();
            while !over.load(Ordering::Relaxed) {
                let asleep = match fenced {
                    true => page.sleepers() != 0,
                    false => state.load(Ordering::Relaxed) == STATE_SLEEPING,
                };
                if asleep {
                    state.store(STATE_AWAKE, Ordering::Relaxed);
                    futex_wake(state, 1);
                }
                yield_now();
            }
        });
        let watched = watch_notes(job, None);
        over.store(true, Ordering::Relaxed);
        watched
    });
    let shown = notes.iter().filter(|note| note.is_some()).count();
    assert!(shown > 0, "a rank that sleeps says so");
    assert!(notes.len() - shown >= SLEEPS as usize - 1, "{notes:?}");
    assert!(!after, "the wait is over");
}
