//! Creation and destruction of objects.
//!
//! **OBJECTS.** This is the contract of the replaced library. Arguments were made here and are not destroyed, lists and
//! structures are complete, and buffers have their stated length. Each function requires this of its caller.
#![allow(unsafe_code)]

use super::carry::{complete, poll_cq, post_recv, post_send, post_srq_recv};
use super::*;
use libc::{c_char, c_int, c_void, size_t};
use std::ptr::{null, null_mut};

unsafe fn zeroed<T>() -> *mut T {
    // SAFETY: callers use plain C structures, for which zeros are valid.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed::<T>() }))
}

pub(super) unsafe fn free<T>(at: *mut T) -> c_int {
    // SAFETY: OBJECTS: `at` was made by `Box::into_raw`.
    drop(unsafe { Box::from_raw(at) });
    0
}

pub(super) fn fail<T>(errno: c_int) -> *mut T {
    // SAFETY: the variable belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    null_mut()
}

pub(super) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut Device {
    // SAFETY: OBJECTS: `count` is writable; zeros are a valid device, because it is a plain structure.
    unsafe {
        let device = zeroed::<Device>();
        for (to, from) in (*device).name.iter_mut().zip(b"fake0") {
            *to = *from as c_char;
        }
        *count = 1;
        Box::into_raw(Box::new([device, null_mut()])).cast()
    }
}

pub(super) unsafe extern "C" fn free_device_list(list: *mut *mut Device) {
    // SAFETY: OBJECTS: `get_device_list` made the list and its device.
    unsafe {
        free(*list);
        free(list.cast::<[*mut Device; 2]>());
    }
}

pub(super) unsafe extern "C" fn open_device(device: *mut Device) -> *mut Context {
    let _ = device;
    // SAFETY: a context is a plain structure, for which zeros are valid.
    unsafe {
        let context = zeroed::<Context>();
        (*context).async_fd = -1;
        (*context).ops.alloc_mw = Some(windows::alloc_mw);
        (*context).ops.dealloc_mw = Some(windows::dealloc_mw);
        (*context).ops.poll_cq = Some(poll_cq);
        (*context).ops.req_notify_cq = Some(req_notify_cq);
        (*context).ops.post_send = Some(post_send);
        (*context).ops.post_recv = Some(post_recv);
        (*context).ops.post_srq_recv = Some(post_srq_recv);
        context
    }
}

pub(super) unsafe extern "C" fn close_device(context: *mut Context) -> c_int {
    // SAFETY: OBJECTS: `open_device` made the context.
    unsafe { free(context) }
}

pub(super) unsafe extern "C" fn query_device(_: *mut Context, to: *mut DeviceAttr) -> c_int {
    // SAFETY: OBJECTS: `to` is writable.
    let to = unsafe { &mut *to };
    to.phys_port_cnt = 1;
    to.max_qp_wr = 4096;
    to.max_cqe = 1 << 16;
    to.max_srq_wr = 1 << 14;
    to.max_sge = 4;
    to.max_qp_rd_atom = 16;
    to.max_qp_init_rd_atom = 16;
    to.atomic_cap = 1;
    0
}

pub(super) unsafe extern "C" fn query_port(_: *mut Context, port: u8, to: *mut PortAttr) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: OBJECTS: `to` is writable.
    let to = unsafe { &mut *to };
    to.state = if with(|f| f.conditions.active) { PORT_ACTIVE } else { 1 };
    to.active_mtu = MTU_1024;
    to.max_mtu = MTU_4096;
    to.gid_tbl_len = 4;
    to.link_layer = LINK_LAYER_ETHERNET;
    0
}

pub(super) const OWN_GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];

pub(super) unsafe extern "C" fn query_gid(
    _: *mut Context, _: u8, index: c_int, to: *mut Gid,
) -> c_int {
    let raw = OWN_GID;
    let filled = index == 1 && with(|f| f.conditions.addresses);
    // SAFETY: OBJECTS: `to` is writable.
    unsafe { (*to).raw = if filled { raw } else { [0; 16] } };
    0
}

pub(super) unsafe extern "C" fn query_gid_ex(
    context: *mut Context, port: u32, index: u32, to: *mut GidEntry, _: u32, _: size_t,
) -> c_int {
    // SAFETY: OBJECTS: `to` is writable, and `query_gid` gets a part of it.
    unsafe {
        (*to).gid_type = GID_TYPE_ROCE_V2;
        query_gid(context, port as u8, index as c_int, &mut (*to).gid)
    }
}

pub(super) unsafe extern "C" fn alloc_pd(context: *mut Context) -> *mut Pd {
    Box::into_raw(Box::new(Pd { context, handle: 0 }))
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    let in_use = with(|fabric| {
        // SAFETY: pairs and regions in the tables are alive.
        fabric.pairs.values().any(|&qp| unsafe { (*qp).base.pd } == pd)
            || fabric.regions.values().any(|&mr| unsafe { (*mr).pd } == pd)
    });
    assert!(!in_use, "a protection domain was freed before what was made of it");
    // SAFETY: OBJECTS: `alloc_pd` made the domain.
    unsafe { free(pd) }
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut Pd, addr: *mut c_void, length: size_t, access: c_int,
) -> *mut Mr {
    let room =
        with(|fabric| fabric.registered().saturating_add(length) <= fabric.conditions.lockable);
    if !room {
        return fail(libc::ENOMEM);
    }
    with(|fabric| {
        fabric.next_number += 0x101;
        let key = fabric.next_number;
        // SAFETY: OBJECTS: the domain is alive.
        let context = unsafe { (*pd).context };
        let mr = Box::into_raw(Box::new(Mr {
            context,
            pd,
            addr,
            length,
            handle: 0,
            lkey: key,
            rkey: key,
        }));
        fabric.regions.insert(key, mr);
        fabric.access.insert(key, access);
        mr
    })
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut Mr) -> c_int {
    // SAFETY: OBJECTS: `reg_mr` made the region.
    unsafe {
        with(|fabric| fabric.regions.remove(&(*mr).lkey));
        free(mr)
    }
}

pub(super) unsafe extern "C" fn create_comp_channel(context: *mut Context) -> *mut CompChannel {
    let base = CompChannel {
        context,
        // SAFETY: the call takes plain integers.
        fd: unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) },
        refcnt: 0,
    };
    let events = std::sync::Mutex::default();
    Box::into_raw(Box::new(FakeChannel { base, events })).cast()
}

pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    // SAFETY: OBJECTS: `create_comp_channel` made the channel, which has no other user.
    unsafe {
        libc::close((*channel).fd);
        free(channel.cast::<FakeChannel>())
    }
}

pub(super) unsafe extern "C" fn create_cq(
    context: *mut Context, cqe: c_int, _: *mut c_void, channel: *mut CompChannel, _: c_int,
) -> *mut Cq {
    // SAFETY: a completion queue is a plain structure, for which zeros are valid.
    let base = unsafe { Cq { context, channel, cqe, ..std::mem::zeroed() } };
    let ready = VecDeque::new();
    let armed = false;
    Box::into_raw(Box::new(FakeCq { base, ready, armed })).cast()
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    let in_use = with(|fabric| {
        // SAFETY: pairs in the table are alive.
        fabric
            .pairs
            .values()
            .any(|&qp| unsafe { (*qp).base.send_cq == cq || (*qp).base.recv_cq == cq })
    });
    assert!(!in_use, "a completion queue was freed before its queue pairs");
    // SAFETY: OBJECTS: `create_cq` made the queue.
    unsafe { free(cq.cast::<FakeCq>()) }
}

pub(super) unsafe extern "C" fn get_cq_event(
    channel: *mut CompChannel, to: *mut *mut Cq, _: *mut *mut c_void,
) -> c_int {
    // SAFETY: OBJECTS: `create_comp_channel` made the channel.
    let channel = unsafe { &*channel.cast::<FakeChannel>() };
    let mut events = channel.events.lock().unwrap();
    let mut count = 0_u64;
    // SAFETY: the call writes the eight bytes of `count`; the descriptor does not block.
    unsafe { libc::read(channel.base.fd, (&raw mut count).cast(), 8) };
    let Some(cq) = events.pop_front() else {
        return -1;
    };
    // SAFETY: OBJECTS: `to` is writable.
    unsafe { *to = std::ptr::with_exposed_provenance_mut(cq) };
    0
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, _: c_int) -> c_int {
    if with(|fabric| fabric.removed) {
        return libc::EIO;
    }
    // SAFETY: OBJECTS: `create_cq` made the queue.
    unsafe { (*cq.cast::<FakeCq>()).armed = true };
    0
}

pub(super) unsafe extern "C" fn ack_cq_events(_: *mut Cq, _: u32) {}

pub(super) unsafe extern "C" fn create_srq(pd: *mut Pd, init: *mut SrqInitAttr) -> *mut Srq {
    // SAFETY: OBJECTS: domain and structure are valid, and zeros are a valid receive queue.
    let (base, depth) = unsafe {
        let base = Srq { context: (*pd).context, pd, ..std::mem::zeroed() };
        (base, (*init).attr.max_wr)
    };
    let receives = VecDeque::new();
    Box::into_raw(Box::new(FakeSrq { base, depth, receives })).cast()
}

pub(super) unsafe extern "C" fn destroy_srq(srq: *mut Srq) -> c_int {
    let in_use = with(|fabric| {
        // SAFETY: pairs in the table are alive.
        let uses = |&qp: &*mut FakeQp| unsafe { (*qp).base.srq } == srq;
        fabric.pairs.values().any(uses)
    });
    assert!(!in_use, "a receive queue was freed before its queue pairs");
    // SAFETY: OBJECTS: `create_srq` made the queue.
    unsafe { free(srq.cast::<FakeSrq>()) }
}

pub(super) unsafe extern "C" fn create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: OBJECTS: `init` is a complete structure without other users.
    let init = unsafe { &mut *init };
    let conditions = with(|fabric| fabric.conditions.clone());
    if init.cap.max_inline_data > conditions.inline_most && conditions.inline_step != 0 {
        return fail(libc::EINVAL);
    }
    let mut cap = init.cap;
    cap.max_inline_data = match conditions.inline_step {
        0 => 0,
        step => cap.max_inline_data.next_multiple_of(step).min(conditions.inline_most),
    };
    with(|fabric| {
        fabric.next_number += 1;
        let number = fabric.next_number;
        // SAFETY: OBJECTS: the domain is alive, and zeros are a valid queue pair.
        let base = unsafe {
            Qp {
                context: (*pd).context,
                pd,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                srq: init.srq,
                qp_num: number,
                qp_type: init.qp_type,
                ..std::mem::zeroed()
            }
        };
        let qp = Box::into_raw(Box::new(FakeQp {
            base,
            cap,
            attr: QpAttr::default(),
            signal_all: init.sq_sig_all != 0,
            jobs: VecDeque::new(),
            used: 0,
            silent: 0,
            receives: VecDeque::new(),
        }));
        fabric.pairs.insert(number, qp);
        qp.cast()
    })
}

pub(super) unsafe extern "C" fn query_qp(
    qp: *mut Qp, attr: *mut QpAttr, _: c_int, init: *mut QpInitAttr,
) -> c_int {
    // SAFETY: OBJECTS: `create_qp` made the pair; the structures are writable.
    unsafe {
        let qp = &*qp.cast::<FakeQp>();
        (*attr).qp_state = qp.attr.qp_state;
        (*attr).cap = qp.cap;
        (*init).cap = qp.cap;
    }
    0
}

pub(super) unsafe extern "C" fn modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    // SAFETY: OBJECTS: `create_qp` made the pair; the structure is readable.
    let (qp, attr) = unsafe { (&mut *qp.cast::<FakeQp>(), &*attr) };
    let (from, to) = (qp.attr.qp_state, attr.qp_state);
    let reliable = qp.base.qp_type == QPT_RC;
    let needs = match to {
        QPS_INIT if reliable => QP_PKEY_INDEX | QP_PORT | QP_ACCESS_FLAGS,
        QPS_INIT => QP_PKEY_INDEX | QP_PORT | QP_QKEY,
        QPS_RTR if reliable => {
            QP_AV | QP_PATH_MTU | QP_DEST_QPN | QP_RQ_PSN | QP_MAX_DEST_RD_ATOMIC | QP_MIN_RNR_TIMER
        }
        QPS_RTS if reliable => {
            QP_SQ_PSN | QP_TIMEOUT | QP_RETRY_CNT | QP_RNR_RETRY | QP_MAX_QP_RD_ATOMIC
        }
        QPS_RTS => QP_SQ_PSN,
        _ => 0,
    };
    // The kernel's state table has no transition from reset to error.
    let allowed = to == QPS_RESET || (to == QPS_ERR && from != QPS_RESET) || from == to - 1;
    if !allowed || mask != needs | QP_STATE || (to == QPS_INIT && attr.port_num != 1) {
        return libc::EINVAL;
    }
    qp.attr.qp_state = to;
    match to {
        QPS_ERR => qp.flush_receives(),
        QPS_RESET => {
            qp.jobs.clear();
            qp.receives.clear();
            (qp.used, qp.silent) = (0, 0);
        }
        QPS_INIT => {
            qp.attr.qkey = attr.qkey;
            qp.attr.qp_access_flags = attr.qp_access_flags;
        }
        QPS_RTR => {
            qp.attr.dest_qp_num = attr.dest_qp_num;
            qp.attr.ah_attr = attr.ah_attr;
        }
        QPS_RTS => qp.attr.rnr_retry = attr.rnr_retry,
        _ => {}
    }
    0
}

impl FakeQp {
    pub(super) fn flush_receives(&mut self) {
        for room in std::mem::take(&mut self.receives) {
            let completion = Wc {
                wr_id: room.id,
                status: WC_WR_FLUSH_ERR,
                qp_num: self.base.qp_num,
                ..Wc::default()
            };
            // SAFETY: the completion queue of a live pair is alive.
            unsafe { complete(self.base.recv_cq, completion, 0, 0) };
        }
    }
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: OBJECTS: `create_qp` made the pair; its queues are alive.
    unsafe {
        let number = (*qp).qp_num;
        with(|fabric| fabric.pairs.remove(&number));
        for cq in [(*qp).send_cq, (*qp).recv_cq] {
            let ready = &mut (*cq.cast::<FakeCq>()).ready;
            ready.retain(|(completion, ..)| completion.qp_num != number);
        }
        free(qp.cast::<FakeQp>())
    }
}

pub(super) unsafe extern "C" fn create_ah(pd: *mut Pd, _: *mut AhAttr) -> *mut Ah {
    // SAFETY: OBJECTS: the domain is alive.
    let context = unsafe { (*pd).context };
    let ah = Box::into_raw(Box::new(Ah { context, pd, handle: 0 }));
    with(|fabric| fabric.handles.insert(ah as usize));
    ah
}

pub(super) unsafe extern "C" fn destroy_ah(ah: *mut Ah) -> c_int {
    with(|fabric| fabric.handles.remove(&(ah as usize)));
    // SAFETY: OBJECTS: `create_ah` made the handle.
    unsafe { free(ah) }
}

pub(super) unsafe extern "C" fn get_async_event(_: *mut Context, to: *mut AsyncEvent) -> c_int {
    let next = |fabric: &mut FakeFabric| {
        let event = fabric.events.pop_front();
        fabric.unacknowledged += event.is_some() as u64;
        event
    };
    match with(next) {
        Some(event_type) => {
            let element = 1; // port number
            // SAFETY: OBJECTS: `to` is writable.
            unsafe { *to = AsyncEvent { element, event_type } };
            0
        }
        None => {
            fail::<()>(libc::EAGAIN);
            -1
        }
    }
}

pub(super) unsafe extern "C" fn ack_async_event(_: *mut AsyncEvent) {
    with(|fabric| fabric.unacknowledged -= 1);
}

pub(super) unsafe extern "C" fn wc_status_str(_: c_int) -> *const c_char {
    null()
}
