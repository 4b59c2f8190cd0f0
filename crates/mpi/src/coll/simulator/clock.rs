//! Virtual clock for hundreds of thousands of ranks on a network of hosts. It moves no data.
//!
//! Each rank is a state machine of the real algorithm. The rank with the earliest clock runs next. A message occupies
//! the adapters of both hosts, and each adapter serves one message at a time. All ranks share one memory, whose
//! contents do not matter.
#![allow(unsafe_code)]

use super::super::choose::{JobProcessors, NetworkCosts};
use super::super::fabric::Fabric;
use super::super::scratch::OnStack;
use super::suspend;
use crate::coll_choice::NodeMap;
use crate::common::error::Result;
use fastpath_protocol::buffer::Buffer;
use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ffi::c_void;
use std::future::poll_fn;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

/// Maximum bytes of a message whose sender does not wait until the message has left the host.
const EAGER_BYTES: u64 = 64 << 10;

/// Number of consecutive allocations of a rank that do not overlap. The next allocation reuses the memory of the first.
const APART: usize = 4;

/// Time in nanoseconds, an integer, because floating-point numbers are not totally ordered.
type Time = u64;

#[derive(Default)]
struct ClockState {
    clocks: Vec<Time>,
    allocated: Vec<u8>,
    /// Times from which the adapter of each host is free to send, and to receive.
    out_free: Vec<Time>,
    in_free: Vec<Time>,
    /// Messages and receives without a match, by sender and receiver.
    arrived: HashMap<(u32, u32), VecDeque<Time>>,
    wanted: HashMap<(u32, u32), VecDeque<u64>>,
    next_id: u64,
    /// End times of completed receives, and the rank that waits for each outstanding one.
    ended: HashMap<u64, Time>,
    waiting: HashMap<u64, u32>,
    ready: BinaryHeap<Reverse<(Time, u32)>>,
}

pub(in super::super) struct Hosts<'n> {
    network: &'n NetworkCosts,
    of: Vec<u32>,
    nodes: Option<NodeMap>,
    /// Memory of every rank's buffers, and of allocations.
    memory: RefCell<Vec<u64>>,
    scratch: RefCell<Vec<u64>>,
    state: RefCell<ClockState>,
}

thread_local! {
    /// Bytes of arithmetic of the running rank since its clock was last set.
    static FOLDED: Cell<u64> = const { Cell::new(0) };
}

/// Operation for the simulated reductions: it counts bytes of arithmetic, and reads no operand.
pub(in super::super) unsafe extern "C" fn fold(
    _: *mut c_void, _: *mut c_void, len: *mut i32, _: *mut usize,
) {
    // SAFETY: a reducer passes a valid count.
    let bytes = unsafe { *len } as u64;
    FOLDED.set(FOLDED.get() + bytes);
}

pub(in super::super) struct Rank<'w> {
    hosts: &'w Hosts<'w>,
    rank: u32,
}

impl<'n> Hosts<'n> {
    /// Makes a simulation. `of` is the host of each rank, and `bytes` the size of the buffers and of the largest
    /// allocation.
    pub(in super::super) fn new(of: Vec<u32>, network: &'n NetworkCosts, bytes: u64) -> Hosts<'n> {
        Hosts {
            network,
            nodes: NodeMap::new(&of, JobProcessors::Own),
            memory: RefCell::new(vec![0; bytes as usize / 8 + 64]),
            scratch: RefCell::new(vec![0; (bytes as usize / 8 + 64) * APART]),
            of,
            state: RefCell::default(),
        }
    }

    pub(in super::super) fn nodes(&self) -> Option<&NodeMap> {
        self.nodes.as_ref()
    }

    pub(in super::super) fn memory(&self) -> *mut u8 {
        self.memory.borrow_mut().as_mut_ptr().cast()
    }

    /// Runs the algorithm on every rank from time 0; returns the time in nanoseconds at which the last rank ended.
    pub(in super::super) fn run<'s, A>(&'s self, algorithm: impl Fn(Rank<'s>) -> A) -> f64
    where
        A: Future<Output = Result> + 's,
    {
        let hosts = self.of.iter().max().map_or(0, |&last| last as usize + 1);
        let ranks = self.of.len();
        *self.state.borrow_mut() = ClockState {
            clocks: vec![0; ranks],
            allocated: vec![0; ranks],
            out_free: vec![0; hosts],
            in_free: vec![0; hosts],
            ready: (0..ranks as u32).map(|rank| Reverse((0, rank))).collect(),
            ..ClockState::default()
        };
        let mut running: Vec<Option<Pin<Box<A>>>> = (0..ranks as u32)
            .map(|rank| Some(Box::pin(algorithm(Rank { hosts: self, rank }))))
            .collect();
        loop {
            let next = self.state.borrow_mut().ready.pop();
            let Some(Reverse((_, rank))) = next else {
                break;
            };
            let place = &mut running[rank as usize];
            let Some(future) = place else { continue };
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.add_arithmetic(rank);
            if let Poll::Ready(result) = polled {
                result.unwrap();
                *place = None;
            }
        }
        assert!(running.iter().all(Option::is_none), "a deadlock");
        let state = self.state.borrow();
        assert!(state.arrived.values().all(VecDeque::is_empty));
        state.clocks.iter().copied().max().unwrap_or(0) as f64
    }

    fn add_arithmetic(&self, rank: u32) {
        let taken = FOLDED.take() as f64 * self.network.fold_byte;
        self.state.borrow_mut().clocks[rank as usize] += taken as Time;
    }
}

/// Started operation: a send with its end time, or a receive with its number.
pub(in super::super) enum Ticket {
    Sent(Time),
    Wanted(u64),
}

impl Rank<'_> {
    /// Suspends this rank until no other rank has an earlier clock.
    async fn take_turns(&self) {
        self.hosts.add_arithmetic(self.rank);
        {
            let state = &mut *self.hosts.state.borrow_mut();
            let at = state.clocks[self.rank as usize];
            state.ready.push(Reverse((at, self.rank)));
        }
        suspend().await;
    }

    fn post_send(&self, to: u32, bytes: u64) -> Ticket {
        let Hosts { network, of, .. } = self.hosts;
        self.hosts.add_arithmetic(self.rank);
        let mut state = self.hosts.state.borrow_mut();
        let state = &mut *state;
        let (from_host, to_host) = (of[self.rank as usize] as usize, of[to as usize] as usize);
        let clock = &mut state.clocks[self.rank as usize];
        let (arrives, ends) = if from_host == to_host {
            let copied = (bytes as f64 * network.near_byte) as Time;
            *clock += network.near_message as Time / 3 + copied;
            (*clock + network.near_message as Time * 2 / 3, *clock)
        } else {
            let passes = (network.gap + bytes as f64 * network.byte) as Time;
            let leaves = (*clock).max(state.out_free[from_host]);
            state.out_free[from_host] = leaves + passes;
            *clock += network.gap as Time;
            let comes = leaves + (network.message - network.gap) as Time;
            let begins = comes.max(state.in_free[to_host]);
            state.in_free[to_host] = begins + passes;
            let ends = if bytes > EAGER_BYTES { leaves + passes } else { *clock };
            (begins + passes, ends)
        };
        let pair = (self.rank, to);
        match state.wanted.get_mut(&pair).and_then(VecDeque::pop_front) {
            Some(id) => {
                state.ended.insert(id, arrives);
                if let Some(rank) = state.waiting.remove(&id) {
                    let at = arrives.max(state.clocks[rank as usize]);
                    state.ready.push(Reverse((at, rank)));
                }
            }
            None => state.arrived.entry(pair).or_default().push_back(arrives),
        }
        Ticket::Sent(ends)
    }

    fn post_recv(&self, from: u32) -> Ticket {
        let mut state = self.hosts.state.borrow_mut();
        let pair = (from, self.rank);
        let id = state.next_id;
        state.next_id += 1;
        match state.arrived.get_mut(&pair).and_then(VecDeque::pop_front) {
            Some(at) => _ = state.ended.insert(id, at),
            None => state.wanted.entry(pair).or_default().push_back(id),
        }
        Ticket::Wanted(id)
    }

    async fn finish(&self, ticket: Ticket) {
        let end = match ticket {
            Ticket::Sent(end) => end,
            Ticket::Wanted(id) => {
                poll_fn(|_| {
                    let mut state = self.hosts.state.borrow_mut();
                    match state.ended.remove(&id) {
                        Some(end) => Poll::Ready(end),
                        None => {
                            state.waiting.insert(id, self.rank);
                            Poll::Pending
                        }
                    }
                })
                .await
            }
        };
        let clock = &mut self.hosts.state.borrow_mut().clocks[self.rank as usize];
        *clock = end.max(*clock);
    }
}

impl Fabric for Rank<'_> {
    type Ticket = Ticket;
    type Near = OnStack;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.hosts.of.len() as u32
    }

    fn room(&self) -> JobProcessors<'_> {
        match self.hosts.nodes() {
            Some(nodes) => JobProcessors::Hosts(&nodes.placement),
            None => JobProcessors::Own,
        }
    }

    fn nodes(&self) -> Option<&NodeMap> {
        self.hosts.nodes()
    }

    async unsafe fn send(&self, to: u32, data: Buffer) -> Result {
        self.take_turns().await;
        let sent = self.post_send(to, data.bytes);
        self.finish(sent).await;
        Ok(())
    }

    async unsafe fn recv(&self, from: u32, _: Buffer) -> Result {
        self.take_turns().await;
        let wanted = self.post_recv(from);
        self.finish(wanted).await;
        Ok(())
    }

    async unsafe fn exchange(&self, to: u32, out: Buffer, from: u32, _: Buffer) -> Result {
        self.take_turns().await;
        let wanted = self.post_recv(from);
        let sent = self.post_send(to, out.bytes);
        self.finish(wanted).await;
        self.finish(sent).await;
        Ok(())
    }

    unsafe fn start_send(&self, to: u32, data: Buffer) -> Result<Ticket> {
        Ok(self.post_send(to, data.bytes))
    }

    unsafe fn start_recv(&self, from: u32, _: Buffer) -> Result<Ticket> {
        Ok(self.post_recv(from))
    }

    async fn wait(&self, ticket: Ticket) -> Result {
        self.finish(ticket).await;
        // The wait may have set a later clock, so other ranks may have to run first.
        self.take_turns().await;
        Ok(())
    }

    fn apart<T>(&self, algorithm: impl Future<Output = T>) -> impl Future<Output = T> {
        Box::pin(algorithm)
    }

    unsafe fn allocate(&self, layout: Layout) -> *mut u8 {
        let mut scratch = self.hosts.scratch.borrow_mut();
        let (asked, there) = (layout.size(), scratch.len() * 8 / APART);
        assert!(asked <= there, "{asked} bytes asked for");
        let allocated = &mut self.hosts.state.borrow_mut().allocated[self.rank as usize];
        *allocated = (*allocated + 1) % APART as u8;
        let start: *mut u8 = scratch.as_mut_ptr().cast();
        start.wrapping_add(*allocated as usize * there)
    }

    unsafe fn release(&self, _: NonNull<u8>, _: Layout) {}
}
