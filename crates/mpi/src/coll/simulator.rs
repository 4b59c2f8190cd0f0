//! Simulator for tests of the algorithms: any number of ranks in one process, each a thread.
//!
//! A message is copied when send and receive are both posted. In `Mode::Rendezvous` a send ends only when its message
//! has been copied, so that a schedule that relies on buffering deadlocks. Deadlocks, unreceived messages and wrong
//! lengths are failures. VECTORS is defined in `coll.rs`.
#![allow(unsafe_code)]

pub(super) mod clock;
pub(super) mod lines;
pub(super) mod machine;

use super::choose::JobProcessors;
use super::choose::NodeMap;
use super::fabric::Fabric;
use super::lines::Lines;
use super::lines::member::{LineCall, LineWait};
use super::scratch::OnStack;
use super::shared::SharedBuffers;
use crate::coll_choice::line_plan::{CachePlace, LineCosts, LinePlan};
use crate::common::error::Result;
use crate::objects::shared_lines::{self, SharedLines};
use fastpath_protocol::buffer::Buffer;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::Poll;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Eager,
    Rendezvous,
}

#[derive(Default)]
struct SimState {
    sends: Vec<VecDeque<(u64, Payload)>>,
    recvs: Vec<VecDeque<(u64, Buffer)>>,
    next_id: u64,
    done: HashSet<u64>,
    waited: HashSet<u64>,
    alive: usize,
    failure: Option<String>,
}

enum Payload {
    Copied(Vec<u8>),
    Lent(Buffer),
}

// SAFETY: the buffers belong to ranks that wait, or that by contract do not use them until the message is copied.
unsafe impl Send for SimState {}

struct SimWorld {
    ranks: u32,
    mode: Mode,
    state: Mutex<SimState>,
    changed: Condvar,
}

pub(crate) struct SimRank<'w> {
    world: &'w SimWorld,
    rank: u32,
    nodes: Option<NodeMap>,
    shared: SharedBuffers,
    lines: Option<SharedLines>,
}

/// Bytes of a shared buffer: one and a half elements of the reductions in the tests.
const SHARED_BYTES: usize = 40;

pub(crate) fn run<R: Send>(
    ranks: u32, mode: Mode, body: impl Fn(&SimRank<'_>) -> R + Sync,
) -> Vec<R> {
    run_on(&vec![0; ranks as usize], mode, body)
}

/// Runs `body` on every rank. `hosts` is the host of each rank.
pub(crate) fn run_on<R: Send>(
    hosts: &[u32], mode: Mode, body: impl Fn(&SimRank<'_>) -> R + Sync,
) -> Vec<R> {
    let ranks = hosts.len() as u32;
    let pairs = (ranks * ranks) as usize;
    let state = SimState {
        sends: (0..pairs).map(|_| VecDeque::new()).collect(),
        recvs: (0..pairs).map(|_| VecDeque::new()).collect(),
        alive: ranks as usize,
        ..SimState::default()
    };
    let world = SimWorld { ranks, mode, state: Mutex::new(state), changed: Condvar::new() };
    let mut memory = vec![[0u64; 2 * SHARED_BYTES / 8]; ranks as usize];
    let firsts = memory.iter_mut().map(|m| m.as_mut_ptr().expose_provenance());
    let firsts: Vec<usize> = firsts.collect();
    let mut line_memory = vec![LineMemory([0; shared_lines::BYTES]); ranks as usize];
    let line_firsts = line_memory.iter_mut().map(|m| m.0.as_mut_ptr().expose_provenance());
    let line_firsts: Vec<usize> = line_firsts.collect();
    let places: Vec<CachePlace> =
        (0..ranks).map(|rank| CachePlace { socket: rank / 6, l3: rank / 3 }).collect();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let (world, body, firsts) = (&world, &body, &firsts);
                let (line_firsts, places) = (&line_firsts, &places);
                scope.spawn(move || {
                    let pointers = |to: &[usize]| -> Box<[*mut u8]> {
                        to.iter().map(|&at| with_exposed_provenance_mut(at)).collect()
                    };
                    let plan = LinePlan::new(rank, places, &LineCosts::USUAL);
                    body(&SimRank {
                        world,
                        rank,
                        nodes: NodeMap::new(hosts, JobProcessors::Own),
                        shared: SharedBuffers::new(pointers(firsts), SHARED_BYTES),
                        lines: plan
                            .map(|plan| SharedLines::new(pointers(line_firsts), plan.into())),
                    })
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join()).collect::<Vec<_>>()
    });
    let state = world.lock();
    assert_eq!(state.failure, None);
    assert!(state.sends.iter().all(VecDeque::is_empty), "a message was never received");
    assert!(state.recvs.iter().all(VecDeque::is_empty), "a receive was never matched");
    results.into_iter().map(|r| r.unwrap()).collect()
}

impl SimWorld {
    fn lock(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn fail(&self, state: &mut SimState, why: String) {
        state.failure.get_or_insert(why);
        self.changed.notify_all();
    }

    fn check_deadlock(&self, state: &mut SimState) {
        if state.alive > 0 && state.waited.len() == state.alive {
            self.fail(state, format!("deadlock of {} ranks", state.alive));
        }
    }

    fn transfer(&self, state: &mut SimState, pair: usize) {
        while !state.sends[pair].is_empty() && !state.recvs[pair].is_empty() {
            let (send, payload) = state.sends[pair].pop_front().unwrap();
            let (recv, into) = state.recvs[pair].pop_front().unwrap();
            let bytes = match payload {
                Payload::Copied(bytes) => bytes,
                // SAFETY: the buffer is lent until the send has ended.
                Payload::Lent(buffer) => unsafe { pack(&buffer) },
            };
            if bytes.len() as u64 != into.bytes {
                self.fail(state, format!("{} bytes sent, {} asked for", bytes.len(), into.bytes));
            } else {
                // SAFETY: the receive has not ended, so its buffer is writable.
                unsafe { unpack(&into, &bytes) };
            }
            for id in [send, recv] {
                state.done.insert(id);
                state.waited.remove(&id);
            }
            self.changed.notify_all();
        }
    }

    fn post_send(&self, from: u32, to: u32, data: Buffer) -> u64 {
        assert!(to < self.ranks && to != from, "send from {from} to {to}");
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let payload = match self.mode {
            // SAFETY: the contract of `Fabric::send` gives a readable buffer.
            Mode::Eager => Payload::Copied(unsafe { pack(&data) }),
            Mode::Rendezvous => Payload::Lent(data),
        };
        let pair = (from * self.ranks + to) as usize;
        state.sends[pair].push_back((id, payload));
        if self.mode == Mode::Eager {
            // In this mode a send ends for the sender at once, even if the message is never received.
            state.done.insert(id);
        }
        self.transfer(&mut state, pair);
        id
    }

    fn post_recv(&self, from: u32, to: u32, data: Buffer) -> u64 {
        assert!(from < self.ranks && to != from, "receive at {to} from {from}");
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let pair = (from * self.ranks + to) as usize;
        state.recvs[pair].push_back((id, data));
        self.transfer(&mut state, pair);
        id
    }

    fn wait(&self, id: u64) {
        let mut state = self.lock();
        if !state.done.contains(&id) {
            state.waited.insert(id);
            self.check_deadlock(&mut state);
        }
        while !state.done.contains(&id) && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        if let Some(why) = &state.failure {
            let why = why.clone();
            drop(state);
            panic!("{why}");
        }
    }
}

/// Suspends the running task once.
async fn suspend() {
    let mut has_waited = false;
    poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Packs the data of a buffer. Safety: the buffer is readable.
unsafe fn pack(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes as usize];
    // SAFETY: VECTORS.
    unsafe {
        match &buffer.layout {
            Some(layout) => _ = layout.pack(buffer.ptr, buffer.count, 0, &mut bytes),
            None => std::ptr::copy_nonoverlapping(buffer.ptr, bytes.as_mut_ptr(), bytes.len()),
        }
    }
    bytes
}

/// Unpacks bytes into a buffer. Safety: the buffer is writable.
unsafe fn unpack(buffer: &Buffer, bytes: &[u8]) {
    // SAFETY: VECTORS.
    unsafe {
        match &buffer.layout {
            Some(layout) => _ = layout.unpack(buffer.ptr, buffer.count, 0, bytes),
            None => std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.ptr, bytes.len()),
        }
    }
}

/// Memory of a member for shared lines.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct LineMemory(pub(super) [u8; shared_lines::BYTES]);

impl LineWait for &SimRank<'_> {
    fn wait(
        &self, _: &[u32], _: &Cell<u64>, poll: &mut dyn FnMut() -> bool, _: &dyn Fn(u32) -> bool,
    ) -> Result {
        while !poll() {
            let failure = self.world.lock().failure.clone();
            assert_eq!(failure, None);
            std::thread::yield_now();
        }
        Ok(())
    }

    fn wake(&self, _: u32) {}

    fn defer_length(&self, from: u32, expected: usize, found: usize) {
        let why = format!("{found} bytes from rank {from}, {expected} asked for");
        self.world.fail(&mut self.world.lock(), why);
    }
}

impl Drop for SimRank<'_> {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.alive -= 1;
        if std::thread::panicking() {
            self.world.fail(&mut state, format!("rank {} panicked", self.rank));
        }
        self.world.check_deadlock(&mut state);
    }
}

impl Fabric for SimRank<'_> {
    type Ticket = u64;
    type Near = OnStack;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.ranks
    }

    fn room(&self) -> JobProcessors<'_> {
        match &self.nodes {
            Some(nodes) => JobProcessors::Hosts(&nodes.placement),
            None => JobProcessors::Own,
        }
    }

    fn nodes(&self) -> Option<&NodeMap> {
        self.nodes.as_ref()
    }

    fn may_share(&self) -> bool {
        true
    }

    fn shared(&self) -> Result<Option<&SharedBuffers>> {
        Ok(Some(&self.shared))
    }

    fn may_line(&self) -> bool {
        true
    }

    fn lines(&self) -> Result<Option<impl Lines>> {
        Ok(self.lines.as_ref().map(|lines| LineCall::new(lines, self, lines.begin_next())))
    }

    async unsafe fn send(&self, to: u32, data: Buffer) -> Result {
        self.world.wait(self.world.post_send(self.rank, to, data));
        Ok(())
    }

    async unsafe fn recv(&self, from: u32, data: Buffer) -> Result {
        self.world.wait(self.world.post_recv(from, self.rank, data));
        Ok(())
    }

    async unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, into: Buffer) -> Result {
        let recv = self.world.post_recv(from, self.rank, into);
        let send = self.world.post_send(self.rank, to, out);
        self.world.wait(recv);
        self.world.wait(send);
        Ok(())
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<u64> {
        Ok(self.world.post_send(self.rank, to, data))
    }

    unsafe fn start_recv(&self, from: u32, data: Buffer) -> Result<u64> {
        Ok(self.world.post_recv(from, self.rank, data))
    }

    async fn wait(&self, ticket: u64) -> Result {
        self.world.wait(ticket);
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::fabric::drive;
    use super::*;

    #[test]
    fn simulator__notices_a_deadlock_that_buffering_hides() {
        let schedule = |mode| {
            std::panic::catch_unwind(|| {
                run(2, mode, |f| {
                    let (out, mut into) = (f.rank() as u8, 9u8);
                    let partner = 1 - f.rank();
                    // SAFETY: both bytes live until the call returns.
                    unsafe {
                        let data = Buffer::contiguous((&raw const out).cast_mut(), 1);
                        drive(f.send(partner, data)).unwrap();
                        let data = Buffer::contiguous(&raw mut into, 1);
                        drive(f.recv(partner, data)).unwrap();
                    }
                    into
                })
            })
        };
        assert_eq!(schedule(Mode::Eager).unwrap(), [1, 0]);
        assert!(schedule(Mode::Rendezvous).is_err());
    }

    #[test]
    fn simulator__reports_an_unreceived_message() {
        let lost = std::panic::catch_unwind(|| {
            run(2, Mode::Eager, |f| {
                if f.rank() == 0 {
                    // SAFETY: messages without bytes touch no memory.
                    unsafe { drive(f.send(1, Buffer::empty())).unwrap() };
                }
            })
        });
        assert!(lost.is_err());
    }
}
