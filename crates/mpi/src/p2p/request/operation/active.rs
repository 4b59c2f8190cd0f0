//! Operations of the MPI layer that any progress call advances.
#![allow(unsafe_code)]

use super::{Extra, PollCondition, poll_operation};
use crate::process::{self, Process};
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::{RequestState, Worker};
use fastpath_segment::AwaitedRanks;

/// Records that the [`PollCondition`] of an operation has changed from `before` to `now`.
pub(super) fn note(p: &Process, index: usize, before: PollCondition, now: PollCondition) {
    if before == now {
        return;
    }
    let Ok(worker) = p.worker() else { return };
    // Sleeping threads have published the ranks that operations wait for, and must publish them again after a change.
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*worker).wake_sleepers() };
    if (before == PollCondition::Named) == (now == PollCondition::Named) {
        return;
    }
    let mut indices = p.extras.active.indices.take();
    if now != PollCondition::Named {
        indices.push(index);
    } else if let Some(at) = indices.iter().rposition(|&other| other == index) {
        indices.swap_remove(at);
    }
    let any = !indices.is_empty();
    p.extras.active.indices.set(indices);
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*worker).hooks.on_progress = any.then_some(go_on) };
}

/// Returns the ranks that can advance any of the operations; `UNKNOWN` if an operation has to be polled.
pub(crate) fn moved_by(worker: &Worker) -> AwaitedRanks {
    // SAFETY: the caller is inside MPI.
    let p = unsafe { process::get_unlocked() };
    let mut awaited = AwaitedRanks::UNKNOWN;
    for extra in p.extras.slots().iter().flatten() {
        let Extra::Operation { watch, .. } = extra else {
            continue;
        };
        match *watch {
            PollCondition::Named => {}
            PollCondition::Request(id) if worker.requests.get(id).peer != ANY_PEER => {
                awaited.add(AwaitedRanks::of(&[worker.requests.get(id).peer]));
            }
            _ => return AwaitedRanks::UNKNOWN,
        }
    }
    awaited
}

/// Polls the operations whose awaited requests have completed, and the operations that every progress call polls.
/// Returns whether any of them ended or had a completed request. Called after a round of progress, inside MPI.
pub(crate) fn go_on(worker: &mut Worker) -> bool {
    // SAFETY: the caller is inside MPI.
    let p = unsafe { process::get_unlocked() };
    let active = &p.extras.active;
    if active.is_polling.replace(true) {
        return false;
    }
    let is_served = worker.background.serves;
    let (mut at, mut moved) = (0, false);
    while let Some(index) = active.at(at) {
        let ready = match p.extras.slots().get(index) {
            Some(Some(Extra::Operation { poll: Some(operation), watch, .. })) => {
                let is_due = match *watch {
                    PollCondition::Request(id) => {
                        worker.requests.get(id).state == RequestState::Complete
                    }
                    PollCondition::Always => true,
                    PollCondition::Named => false,
                };
                (is_due && !(is_served && operation.calls_back())).then_some(*watch)
            }
            _ => None,
        };
        let Some(watch) = ready else {
            at += 1;
            continue;
        };
        let ended = poll_operation(p, index);
        moved |= ended || watch != PollCondition::Always;
        // If the operation has ended, another operation now has its position in the list, so the position stays.
        at += usize::from(!ended);
    }
    active.is_polling.set(false);
    if moved {
        worker.wake_sleepers();
    }
    moved
}
