//! Fake adapter in the thread of a test, behind the real library's table of functions.
//!
//! The fake adapter executes jobs when a completion queue is polled. It is stricter than real adapters: it reads a
//! payload that is not inline when it executes the send, not at the post. Queue entries return only when a later
//! completion is taken. Every key, length and depth is checked. [`Conditions`] determine the limits that are granted
//! and the faults that occur.
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

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    pub inline_step: u32,
    pub inline_most: u32,
    pub active: bool,
    pub addresses: bool,
    pub pace: usize,
    pub read_delay: u32,
    pub windows: bool,
    pub lockable: usize,
    /// Whether a failed send on a datagram pair stops only the pair's sends, as on real adapters, or also its receives,
    /// as on Soft-RoCE.
    pub sends_stop_alone: bool,
    pub faults: Faults,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Faults {
    pub drop: f64,
    pub double: f64,
    pub late: f64,
}

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

struct FakeFabric {
    conditions: Conditions,
    pairs: BTreeMap<u32, *mut FakeQp>,
    regions: BTreeMap<u32, *mut Mr>,
    access: BTreeMap<u32, i32>,
    windows: BTreeMap<u32, windows::Bound>,
    next_number: u32,
    removed: bool,
    events: VecDeque<i32>,
    unacknowledged: u64,
    posted: Vec<(i32, u32)>,
    receive_posts: u64,
    /// Number of posts of receives that succeed before the refusals, and number of refusals.
    receive_refusals: (u64, u64),
    handles: BTreeSet<usize>,
    flying: Vec<(u64, Datagram)>,
    random: Random,
    dropped: u64,
    without_buffer: u64,
}

impl Default for FakeFabric {
    fn default() -> Self {
        FakeFabric {
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

impl FakeFabric {
    fn registered(&self) -> usize {
        // SAFETY: a region in the table is alive.
        self.regions.values().map(|&mr| unsafe { (*mr).length }).sum()
    }

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
    static FABRIC: RefCell<FakeFabric> = RefCell::default();
    static NOW_NS: Cell<u64> = const { Cell::new(1) };
}

fn with<T>(act: impl FnOnce(&mut FakeFabric) -> T) -> T {
    FABRIC.with_borrow_mut(act)
}

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

pub(crate) fn lock_no_more_than(more: usize) {
    with(|fabric| fabric.conditions.lockable = fabric.registered() + more);
}

pub(crate) fn set_bad_network() {
    set_conditions(Conditions {
        faults: Faults { drop: 0.1, double: 0.1, late: 0.2 },
        ..Conditions::default()
    });
}

pub(crate) fn now_ns() -> u64 {
    NOW_NS.get()
}

pub(crate) fn advance(ns: u64) {
    NOW_NS.set(NOW_NS.get() + ns);
}

/// Advances the fake time towards `ns`, by at least 1 ns and at most 1 s.
pub(crate) fn advance_to(ns: u64) {
    advance(ns.saturating_sub(now_ns()).clamp(1, 1_000_000_000));
}

pub(crate) fn losses() -> (u64, u64) {
    with(|fabric| (fabric.dropped, fabric.without_buffer))
}

pub(crate) fn inject(from: u32, to: u32, qkey: u32, bytes: &[u8]) {
    let datagram = Datagram { from, to, qkey, immediate: None, bytes: bytes.to_vec() };
    with(|fabric| fabric.deliver(&datagram));
}

/// Codes of events that report no change: communication established, send queue drained, path migrated and not
/// migrated, subnet manager changed, limit of a receive queue, last receive of a stopped queue pair, reregister.
pub(crate) const QUIET_EVENTS: [i32; 8] = [4, 5, 6, 7, 13, 15, 16, 17];

pub(crate) fn report(event: i32) {
    with(|fabric| fabric.events.push_back(event));
}

pub(crate) fn unacknowledged() -> u64 {
    with(|fabric| fabric.unacknowledged)
}

pub(crate) fn remove_device() {
    with(|fabric| {
        fabric.removed = true;
        fabric.events.push_back(EVENT_DEVICE_FATAL);
    });
}

pub(crate) fn take_posted() -> Vec<(i32, u32)> {
    with(|fabric| std::mem::take(&mut fabric.posted))
}

pub(crate) fn take_receive_posts() -> u64 {
    with(|fabric| std::mem::take(&mut fabric.receive_posts))
}

/// Refuses `count` posts of receive buffers, after `before` further calls. Returns how many earlier refusals were left.
pub(crate) fn refuse_receive_posts(before: u64, count: u64) -> u64 {
    with(|fabric| std::mem::replace(&mut fabric.receive_refusals, (before, count)).1)
}

pub(crate) fn open() -> Arc<DeviceContext> {
    DeviceContext::open(&LIBRARY, "fake0").expect("the fake device opens")
}

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

struct FakeSend {
    request: SendWr,
    segments: Vec<Sge>,
    inline: Option<Vec<u8>>,
    tries: u32,
    held: u32,
    /// Outcome of a job that was executed before an earlier one. It is kept, because completions come in order.
    outcome: Option<carry::CarryResult>,
}

impl FakeSend {
    fn is_read(&self) -> bool {
        matches!(
            self.request.opcode,
            WR_RDMA_READ | WR_ATOMIC_CMP_AND_SWP | WR_ATOMIC_FETCH_AND_ADD
        )
    }
}

struct FakeReceive {
    id: u64,
    segment: Sge,
}

#[repr(C)]
struct FakeQp {
    base: Qp,
    cap: QpCap,
    attr: QpAttr,
    signal_all: bool,
    jobs: VecDeque<FakeSend>,
    used: u32,
    silent: u32,
    receives: VecDeque<FakeReceive>,
}

#[repr(C)]
struct FakeCq {
    base: Cq,
    /// Completions. Each has its queue pair, and the number of send queue entries that are free once it is taken.
    ready: VecDeque<(Wc, u32, u32)>,
    armed: bool,
}

/// Completion channel, the only object that a second thread uses.
#[repr(C)]
struct FakeChannel {
    base: CompChannel,
    events: std::sync::Mutex<VecDeque<usize>>,
}

#[repr(C)]
struct FakeSrq {
    base: Srq,
    depth: u32,
    receives: VecDeque<FakeReceive>,
}
