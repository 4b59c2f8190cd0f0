//! An adapter inside the thread of a test, behind the same table of functions as the real library.
//!
//! It is strict where real ones are lenient: a payload that did not go inline is read when the send is
//! carried out, not when it is posted; queue space comes back only when a later completion is taken; every
//! key, length and depth is checked. It carries out what was posted when a completion queue is polled.
//! [`Conditions`] say what it grants and what goes wrong.
#![allow(unsafe_code)]

mod carry;
mod objects;
mod windows;

use super::abi::*;
use super::device::DeviceContext;
use super::library::Library;
use fastpath_base::random::Random;
use objects::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What the adapter grants and what goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    /// Inline data comes in multiples of this; 0: none is granted.
    pub inline_step: u32,
    /// Most inline data; more is refused.
    pub inline_most: u32,
    /// Whether the port is active. While it is not, no datagram can leave, and a queue pair that tries stops.
    pub active: bool,
    /// Whether the GID table has rows.
    pub addresses: bool,
    /// Operations carried out at each poll at most.
    pub pace: usize,
    /// Polls that the answer of a read or an atomic is on its way.
    pub read_delay: u32,
    /// Whether memory windows can be made.
    pub windows: bool,
    /// Bytes that may be registered in all.
    pub lockable: usize,
    /// Whether a send that fails on a queue pair for datagrams stops its sends alone, as real adapters do; Soft-RoCE
    /// stops it whole.
    pub sends_stop_alone: bool,
    /// What happens to datagrams on the way.
    pub faults: Faults,
}

/// Probabilities, for each datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Faults {
    /// It is lost.
    pub drop: f64,
    /// It arrives twice.
    pub double: f64,
    /// It is overtaken by others.
    pub late: f64,
}

/// A datagram on the way.
#[derive(Clone)]
struct Datagram {
    from: u32,
    to: u32,
    qkey: u32,
    immediate: Option<u32>,
    bytes: Vec<u8>,
}

impl Default for Conditions {
    fn default() -> Self {
        Conditions {
            inline_step: 64,
            inline_most: 512,
            active: true,
            addresses: true,
            pace: usize::MAX,
            read_delay: 0,
            windows: true,
            lockable: usize::MAX,
            sends_stop_alone: false,
            faults: Faults::default(),
        }
    }
}

struct Fabric {
    conditions: Conditions,
    pairs: BTreeMap<u32, *mut FakeQp>,
    regions: BTreeMap<u32, *mut Mr>,
    access: BTreeMap<u32, i32>,
    /// Memory windows that are bound, by key.
    windows: BTreeMap<u32, windows::Bound>,
    next_number: u32,
    /// Whether the device has been removed.
    removed: bool,
    /// What has happened and nobody was told of, by the codes of the verbs interface.
    events: VecDeque<i32>,
    /// Of those that somebody was told of: how many were not acknowledged.
    unacknowledged: u64,
    /// Requests as they were posted: opcode and flags.
    posted: Vec<(i32, u32)>,
    /// Calls that posted receive buffers.
    receive_posts: u64,
    /// After so many more of them, so many are refused.
    receive_refusals: (u64, u64),
    /// Address handles that are alive.
    handles: BTreeSet<usize>,
    /// Datagrams on the way, each with how many polls it is late.
    flying: Vec<(u64, Datagram)>,
    random: Random,
    /// Datagrams lost on the way, and for want of a receive buffer.
    dropped: u64,
    without_buffer: u64,
}

impl Default for Fabric {
    fn default() -> Self {
        Fabric {
            conditions: Conditions::default(),
            pairs: BTreeMap::new(),
            regions: BTreeMap::new(),
            access: BTreeMap::new(),
            windows: BTreeMap::new(),
            next_number: 0,
            removed: false,
            events: VecDeque::new(),
            unacknowledged: 0,
            posted: Vec::new(),
            receive_posts: 0,
            receive_refusals: (0, 0),
            handles: BTreeSet::new(),
            flying: Vec::new(),
            random: Random::new(1),
            dropped: 0,
            without_buffer: 0,
        }
    }
}

impl Fabric {
    /// Bytes of memory that are registered.
    fn registered(&self) -> usize {
        // SAFETY: what is registered is alive.
        self.regions.values().map(|&mr| unsafe { (*mr).length }).sum()
    }

    /// Counts a call that posts receive buffers; whether it is refused, or finds no device.
    fn count_receive_post(&mut self) -> bool {
        self.receive_posts += 1;
        match &mut self.receive_refusals {
            (0, 0) => self.removed,
            (0, left) => {
                *left -= 1;
                true
            }
            (before, _) => {
                *before -= 1;
                self.removed
            }
        }
    }
}

thread_local! {
    static FABRIC: RefCell<Fabric> = RefCell::default();
    static NOW_NS: Cell<u64> = const { Cell::new(1) };
}

fn with<T>(act: impl FnOnce(&mut Fabric) -> T) -> T {
    FABRIC.with_borrow_mut(act)
}

/// Sets what the adapter of this thread does from now on.
pub(crate) fn set_conditions(conditions: Conditions) {
    with(|fabric| {
        if fabric.conditions.active != conditions.active {
            fabric.events.push_back(match conditions.active {
                true => EVENT_PORT_ACTIVE,
                false => EVENT_PORT_ERR,
            });
        }
        fabric.conditions = conditions;
    });
}

/// From now on so many bytes more may be registered than are.
pub(crate) fn lock_no_more_than(more: usize) {
    with(|fabric| fabric.conditions.lockable = fabric.registered() + more);
}

/// A tenth of all datagrams is lost, a tenth arrives twice, and a fifth late.
pub(crate) fn set_bad_network() {
    set_conditions(Conditions {
        faults: Faults { drop: 0.1, double: 0.1, late: 0.2 },
        ..Conditions::default()
    });
}

/// The time that tests move, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    NOW_NS.get()
}

/// Lets time pass.
pub(crate) fn advance(ns: u64) {
    NOW_NS.set(NOW_NS.get() + ns);
}

/// Lets time pass until then, but for 1 ns at least and 1 s at most.
pub(crate) fn advance_to(ns: u64) {
    advance(ns.saturating_sub(now_ns()).clamp(1, 1_000_000_000));
}

/// Datagrams lost on the way so far, and those lost for want of a receive buffer.
pub(crate) fn losses() -> (u64, u64) {
    with(|fabric| (fabric.dropped, fabric.without_buffer))
}

/// A datagram of nobody arrives, as it would from queue pair `from` of any machine.
pub(crate) fn inject(from: u32, to: u32, qkey: u32, bytes: &[u8]) {
    let datagram = Datagram { from, to, qkey, immediate: None, bytes: bytes.to_vec() };
    with(|fabric| fabric.deliver(&datagram));
}

/// Codes of events after which everything is as it was: communication established, send queue drained, path migrated
/// and not migrated, subnet manager changed, limit of a receive queue reached, last receive of a stopped queue pair,
/// reregister.
pub(crate) const QUIET_EVENTS: [i32; 8] = [4, 5, 6, 7, 13, 15, 16, 17];

/// The device has something to tell: an event's code.
pub(crate) fn report(event: i32) {
    with(|fabric| fabric.events.push_back(event));
}

/// Events that were got and not acknowledged.
pub(crate) fn unacknowledged() -> u64 {
    with(|fabric| fabric.unacknowledged)
}

/// The device is taken out.
pub(crate) fn remove_device() {
    with(|fabric| {
        fabric.removed = true;
        fabric.events.push_back(EVENT_DEVICE_FATAL);
    });
}

/// Opcode and flags of every send posted since the last call of this.
pub(crate) fn take_posted() -> Vec<(i32, u32)> {
    with(|fabric| std::mem::take(&mut fabric.posted))
}

/// Calls since the last one of this that posted receive buffers.
pub(crate) fn take_receive_posts() -> u64 {
    with(|fabric| std::mem::take(&mut fabric.receive_posts))
}

/// After `before` more calls that post receive buffers, `count` are refused. Says how many were left of the last such
/// order.
pub(crate) fn refuse_receive_posts(before: u64, count: u64) -> u64 {
    with(|fabric| std::mem::replace(&mut fabric.receive_refusals, (before, count)).1)
}

/// Opens the device.
pub(crate) fn open() -> Arc<DeviceContext> {
    DeviceContext::open(&LIBRARY, "fake0").expect("the fake device opens")
}

/// The table.
pub(crate) static LIBRARY: Library = Library {
    get_device_list,
    free_device_list,
    open_device,
    close_device,
    query_device,
    query_port,
    query_gid,
    alloc_pd,
    dealloc_pd,
    reg_mr,
    dereg_mr,
    create_comp_channel,
    destroy_comp_channel,
    create_cq,
    destroy_cq,
    get_cq_event,
    ack_cq_events,
    create_srq,
    destroy_srq,
    create_qp,
    query_qp,
    modify_qp,
    destroy_qp,
    create_ah,
    destroy_ah,
    get_async_event,
    ack_async_event,
    wc_status_str,
    query_gid_ex: Some(query_gid_ex),
    query_gid_table: None,
    path: std::path::PathBuf::new(),
};

/// A send as it waits to be carried out.
struct Job {
    request: SendWr,
    segments: Vec<Sge>,
    /// The payload, where it went inline.
    inline: Option<Vec<u8>>,
    tries: u32,
    /// Polls until its answer is here.
    held: u32,
    /// What became of it, where one before it is not done: completions come in order.
    outcome: Option<carry::CarryResult>,
}

impl Job {
    /// Whether something comes back.
    fn is_read(&self) -> bool {
        matches!(
            self.request.opcode,
            WR_RDMA_READ | WR_ATOMIC_CMP_AND_SWP | WR_ATOMIC_FETCH_AND_ADD
        )
    }
}

/// A posted receive.
struct Room {
    id: u64,
    segment: Sge,
}

#[repr(C)]
struct FakeQp {
    base: Qp,
    cap: QpCap,
    attr: QpAttr,
    signal_all: bool,
    jobs: VecDeque<Job>,
    /// Sends whose queue space has not come back.
    used: u32,
    /// Sends carried out since the last completion that was reported.
    silent: u32,
    receives: VecDeque<Room>,
}

#[repr(C)]
struct FakeCq {
    base: Cq,
    /// Each with the queue pair and the sends whose space comes back when it is taken.
    ready: VecDeque<(Wc, u32, u32)>,
    /// Whether the next completion makes an event.
    armed: bool,
}

/// The only object that a second thread uses.
#[repr(C)]
struct FakeChannel {
    base: CompChannel,
    /// Queues with an event that nobody has taken, by address.
    events: std::sync::Mutex<VecDeque<usize>>,
}

#[repr(C)]
struct FakeSrq {
    base: Srq,
    depth: u32,
    receives: VecDeque<Room>,
}
