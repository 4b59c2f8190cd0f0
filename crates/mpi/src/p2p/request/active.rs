//! The operations of this layer that go on in whatever call makes progress.
#![allow(unsafe_code)]

use super::{Extra, Watch, poll_operation};
use crate::process::{self, Process};
use fastpath_bootstrap::segment::Awaited;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::{State, Worker};

/// Notes that an operation is watched in another way now.
pub(super) fn note(p: &Process, index: usize, before: Watch, now: Watch) {
    if before == now {
        return;
    }
    let Ok(worker) = p.worker() else { return };
    // Threads that sleep have said on the status page whom the operations wait for.
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*worker).wake_sleepers() };
    if (before == Watch::Named) == (now == Watch::Named) {
        return;
    }
    let mut indices = p.extras.active.indices.take();
    if now != Watch::Named {
        indices.push(index);
    } else if let Some(at) = indices.iter().rposition(|&other| other == index) {
        indices.swap_remove(at);
    }
    let any = !indices.is_empty();
    p.extras.active.indices.set(indices);
    // SAFETY: the worker lives while MPI runs, and the caller is inside.
    unsafe { (*worker).on_progress = any.then_some(go_on) };
}

/// Who could make any of the operations go on; unknown where one wants to be asked. Called inside the first worker.
pub(crate) fn moved_by(worker: &Worker) -> Awaited {
    // SAFETY: the caller is inside MPI.
    let p = unsafe { process::get_unlocked() };
    let mut awaited = Awaited::UNKNOWN;
    for extra in p.extras.slots().iter().flatten() {
        let Extra::Operation { watch, .. } = extra else {
            continue;
        };
        match *watch {
            Watch::Named => {}
            Watch::Request(id) if worker.requests.get(id).peer != ANY_PEER => {
                awaited.add(Awaited::of(&[worker.requests.get(id).peer]));
            }
            _ => return Awaited::UNKNOWN,
        }
    }
    awaited
}

/// Polls the operations whose requests have completed, and those that want to be asked; says whether any went on.
/// Called after a round of progress, inside the first worker.
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
                    Watch::Request(id) => worker.requests.get(id).state == State::Complete,
                    Watch::Always => true,
                    Watch::Named => false,
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
        moved |= ended || watch != Watch::Always;
        // Where it has ended another one has its place in the list.
        at += usize::from(!ended);
    }
    active.is_polling.set(false);
    if moved {
        worker.wake_sleepers();
    }
    moved
}
