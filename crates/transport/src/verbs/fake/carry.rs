//! Posts, execution and polls. `objects` defines **OBJECTS**.
#![allow(unsafe_code)]

use super::*;
use libc::c_int;

const GRH: u32 = 40;
const DATAGRAM_MOST: usize = 1024;

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut Qp, list: *mut RecvWr, bad: *mut *mut RecvWr,
) -> c_int {
    // SAFETY: OBJECTS: `qp` and the list are valid.
    unsafe {
        let qp = &mut *qp.cast::<FakeQp>();
        if qp.attr.qp_state == QPS_RESET {
            *bad = list;
            return libc::EINVAL;
        }
        take_list(&mut qp.receives, qp.cap.max_recv_wr, list, bad)
    }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut Srq, list: *mut RecvWr, bad: *mut *mut RecvWr,
) -> c_int {
    // SAFETY: OBJECTS: `srq` and the list are valid.
    unsafe {
        let srq = &mut *srq.cast::<FakeSrq>();
        take_list(&mut srq.receives, srq.depth, list, bad)
    }
}

unsafe fn take_list(
    receives: &mut VecDeque<FakeReceive>, depth: u32, mut list: *mut RecvWr, bad: *mut *mut RecvWr,
) -> c_int {
    if with(FakeFabric::count_receive_post) {
        // SAFETY: OBJECTS: `bad` is writable.
        unsafe { *bad = list };
        return libc::EIO;
    }
    while !list.is_null() {
        // SAFETY: OBJECTS: the list is complete, so `list` is a request.
        let request = unsafe { *list };
        if receives.len() >= depth as usize {
            // SAFETY: OBJECTS: `bad` is writable.
            unsafe { *bad = list };
            return libc::ENOMEM;
        }
        assert_eq!(request.num_sge, 1);
        receives.push_back(FakeReceive {
            id: request.wr_id,
            // SAFETY: OBJECTS: a request has its one segment.
            segment: unsafe { *request.sg_list },
        });
        list = request.next;
    }
    0
}

pub(super) unsafe extern "C" fn post_send(
    qp: *mut Qp, mut list: *mut SendWr, bad: *mut *mut SendWr,
) -> c_int {
    while !list.is_null() {
        // SAFETY: OBJECTS: `qp` is alive, the list is complete, and its segments are valid.
        let (answer, next) = unsafe { (post_one(&mut *qp.cast(), *list), (*list).next) };
        if answer != 0 {
            // SAFETY: OBJECTS: `bad` is writable.
            unsafe { *bad = list };
            return answer;
        }
        list = next;
    }
    0
}

/// # Safety
/// The request's segments are valid.
unsafe fn post_one(qp: &mut FakeQp, request: SendWr) -> c_int {
    if with(|fabric| fabric.removed) {
        return libc::EIO;
    }
    if qp.attr.qp_state < QPS_RTS || request.num_sge as u32 > qp.cap.max_send_sge {
        return libc::EINVAL;
    }
    if qp.used >= qp.cap.max_send_wr {
        return libc::ENOMEM;
    }
    let segments = match request.num_sge {
        0 => Vec::new(),
        // SAFETY: OBJECTS: the request has `len` segments.
        len => unsafe { std::slice::from_raw_parts(request.sg_list, len as usize) }.to_vec(),
    };
    let mut inline = None;
    if request.send_flags & SEND_INLINE != 0 {
        let bytes: u64 = segments.iter().map(|s| s.length as u64).sum();
        let outbound =
            [WR_SEND, WR_SEND_WITH_IMM, WR_SEND_WITH_INV, WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM];
        if bytes > qp.cap.max_inline_data as u64 || !outbound.contains(&request.opcode) {
            return libc::EINVAL;
        }
        // SAFETY: OBJECTS: the caller's inline data is readable during the call.
        inline = Some(unsafe { gather(&segments) });
    }
    qp.used += 1;
    let delay = with(|fabric| {
        fabric.posted.push((request.opcode, request.send_flags));
        fabric.conditions.read_delay
    });
    let mut job = FakeSend { request, segments, inline, tries: 0, held: 0, outcome: None };
    job.held = if job.is_read() { delay } else { 0 };
    qp.jobs.push_back(job);
    0
}

unsafe fn gather(segments: &[Sge]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments.iter().filter(|segment| segment.length > 0) {
        let at = std::ptr::with_exposed_provenance(segment.addr as usize);
        // SAFETY: OBJECTS: the caller keeps the segments readable.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, segment.length as usize) });
    }
    bytes
}

pub(super) fn allows(fabric: &FakeFabric, key: u32, address: u64, len: u64, access: i32) -> bool {
    let Some(&region) = fabric.regions.get(&key) else {
        return false;
    };
    // SAFETY: a region in the table is alive.
    let (start, size) = unsafe { ((*region).addr as u64, (*region).length as u64) };
    let inside = address >= start && address.saturating_add(len) <= start + size;
    inside && fabric.access[&key] & access == access
}

/// Index of the first job that may be executed now. An unanswered read delays later reads and fenced sends; other sends
/// overtake it.
fn find_next(qp: &FakeQp) -> Option<usize> {
    let stopped = qp.attr.qp_state == QPS_ERR;
    let mut reading = false;
    for (at, job) in qp.jobs.iter().enumerate() {
        let fenced = job.request.send_flags & SEND_FENCE != 0 || job.is_read();
        if job.outcome.is_some() {
            continue;
        }
        if reading && fenced {
            return None;
        }
        if job.held == 0 || stopped {
            return Some(at);
        }
        reading = true;
    }
    None
}

pub(super) enum CarryResult {
    Done { opcode: c_int, bytes: u32 },
    Again,
    Failed(c_int),
}

impl FakeFabric {
    fn pump(&mut self) {
        let mut left = self.conditions.pace;
        let numbers: Vec<u32> = self.pairs.keys().copied().collect();
        for number in numbers {
            // SAFETY: pairs in the table are alive.
            let jobs = unsafe { &mut (*self.pairs[&number]).jobs };
            jobs.iter_mut().for_each(|job| job.held = job.held.saturating_sub(1));
            while left > 0 && self.carry_one(number) {
                left -= 1;
            }
        }
        self.land();
    }

    fn carry_one(&mut self, number: u32) -> bool {
        // SAFETY: pairs in the table are alive.
        let qp = unsafe { &mut *self.pairs[&number] };
        let Some(at) = find_next(qp) else {
            return false;
        };
        let mut job = qp.jobs.remove(at).unwrap();
        let outcome = match qp.attr.qp_state {
            QPS_SQE | QPS_ERR => CarryResult::Failed(WC_WR_FLUSH_ERR),
            _ if self.removed => CarryResult::Failed(WC_FATAL_ERR),
            // SAFETY: OBJECTS: a poster keeps the segments of its jobs valid.
            _ => unsafe { self.carry(qp, &job) },
        };
        let waits = matches!(outcome, CarryResult::Again)
            && (job.tries < qp.attr.rnr_retry as u32 || qp.attr.rnr_retry == 7);
        match waits {
            true => job.tries += 1,
            false => job.outcome = Some(outcome),
        }
        qp.jobs.insert(at, job);
        while qp.jobs.front().is_some_and(|job| job.outcome.is_some()) {
            let done = qp.jobs.pop_front().unwrap();
            self.finish(qp, done);
        }
        !waits
    }

    fn finish(&mut self, qp: &mut FakeQp, mut job: FakeSend) {
        match job.outcome.take() {
            None => {}
            Some(CarryResult::Again) => self.report(qp, &job, WC_RNR_RETRY_EXC_ERR, 0, 0),
            Some(CarryResult::Failed(status)) => self.report(qp, &job, status, 0, 0),
            Some(CarryResult::Done { opcode, bytes }) => {
                qp.silent += 1;
                if job.request.send_flags & SEND_SIGNALED != 0 || qp.signal_all {
                    self.report(qp, &job, WC_SUCCESS, opcode, bytes);
                }
            }
        }
    }

    fn report(
        &mut self, qp: &mut FakeQp, job: &FakeSend, status: c_int, opcode: c_int, bytes: u32,
    ) {
        if status != WC_SUCCESS {
            qp.silent += 1;
            let alone = self.conditions.sends_stop_alone && qp.base.qp_type == QPT_UD;
            if !alone {
                qp.attr.qp_state = QPS_ERR;
                qp.flush_receives();
            } else if qp.attr.qp_state == QPS_RTS {
                qp.attr.qp_state = QPS_SQE;
            }
        }
        let completion = Wc {
            wr_id: job.request.wr_id,
            status,
            opcode,
            byte_len: bytes,
            qp_num: qp.base.qp_num,
            ..Wc::default()
        };
        let freed = std::mem::take(&mut qp.silent);
        // SAFETY: the completion queue of a pair in the table is alive.
        unsafe { complete(qp.base.send_cq, completion, qp.base.qp_num, freed) };
    }

    unsafe fn carry(&mut self, qp: &mut FakeQp, job: &FakeSend) -> CarryResult {
        let request = &job.request;
        let outbound = !matches!(
            request.opcode,
            WR_RDMA_READ | WR_ATOMIC_CMP_AND_SWP | WR_ATOMIC_FETCH_AND_ADD
        );
        let access = if outbound { 0 } else { ACCESS_LOCAL_WRITE };
        if job.inline.is_none() {
            for s in job.segments.iter().filter(|s| s.length > 0) {
                if !allows(self, s.lkey, s.addr, s.length as u64, access) {
                    return CarryResult::Failed(WC_LOC_PROT_ERR);
                }
            }
        }
        if qp.base.qp_type == QPT_UD {
            // SAFETY: OBJECTS: the payload was checked above.
            return unsafe { self.carry_datagram(qp, job) };
        }
        if qp.attr.ah_attr.grh.dgid.raw != OWN_GID {
            return CarryResult::Failed(WC_RETRY_EXC_ERR); // no such address
        }
        let other = qp.attr.dest_qp_num;
        let Some(&peer) = self.pairs.get(&other) else {
            return CarryResult::Failed(WC_RETRY_EXC_ERR);
        };
        // SAFETY: pairs in the table are alive; no pair is connected to itself here.
        let peer = unsafe { &mut *peer };
        let connected = peer.attr.qp_state >= QPS_RTR && peer.attr.qp_state != QPS_ERR;
        if !connected || peer.attr.dest_qp_num != qp.base.qp_num {
            return CarryResult::Failed(WC_RETRY_EXC_ERR);
        }
        // SAFETY: OBJECTS: the segments were checked above.
        unsafe {
            match request.opcode {
                WR_SEND | WR_SEND_WITH_IMM | WR_SEND_WITH_INV => self.carry_send(peer, job),
                WR_RDMA_WRITE => self.carry_write(peer.base.qp_num, job),
                WR_RDMA_READ => self.carry_read(peer.base.qp_num, job),
                WR_BIND_MW => self.carry_bind(qp.base.qp_num, job),
                _ => self.carry_atomic(peer.base.qp_num, job),
            }
        }
    }

    unsafe fn carry_send(&mut self, peer: &mut FakeQp, job: &FakeSend) -> CarryResult {
        let rooms = match peer.base.srq.is_null() {
            true => &mut peer.receives,
            // SAFETY: the receive queue of a pair in the table is alive.
            false => unsafe { &mut (*peer.base.srq.cast::<FakeSrq>()).receives },
        };
        let Some(room) = rooms.pop_front() else {
            return CarryResult::Again;
        };
        // SAFETY: OBJECTS: the poster keeps the segments valid, and `carry` checked their keys.
        let bytes = unsafe { payload(job) };
        let to = room.segment;
        if bytes.len() > to.length as usize {
            let completion = Wc {
                wr_id: room.id,
                status: WC_LOC_LEN_ERR,
                qp_num: peer.base.qp_num,
                ..Wc::default()
            };
            peer.attr.qp_state = QPS_ERR;
            // SAFETY: the completion queue of a pair in the table is alive.
            unsafe { complete(peer.base.recv_cq, completion, 0, 0) };
            return CarryResult::Failed(WC_REM_INV_REQ_ERR);
        }
        let invalidates = job.request.opcode == WR_SEND_WITH_INV;
        if invalidates && !self.invalidate(peer.base.qp_num, job.request.imm_data) {
            return CarryResult::Failed(WC_REM_OP_ERR);
        }
        assert!(
            bytes.is_empty()
                || allows(self, to.lkey, to.addr, bytes.len() as u64, ACCESS_LOCAL_WRITE),
            "a receive buffer is not registered"
        );
        let has_immediate = job.request.opcode == WR_SEND_WITH_IMM;
        let completion = Wc {
            wr_id: room.id,
            opcode: WC_OP_RECV,
            byte_len: bytes.len() as u32,
            imm_data: job.request.imm_data,
            wc_flags: match has_immediate {
                true => WC_WITH_IMM,
                false if invalidates => WC_WITH_INV,
                false => 0,
            },
            qp_num: peer.base.qp_num,
            ..Wc::default()
        };
        // SAFETY: the room is registered memory, and the completion queue is alive.
        unsafe {
            write(to.addr, &bytes);
            complete(peer.base.recv_cq, completion, 0, 0);
        }
        let bytes = bytes.len() as u32;
        CarryResult::Done { opcode: WC_OP_SEND, bytes }
    }

    /// Delivers a datagram. If there is no buffer or the key is wrong, drops it without an error.
    unsafe fn carry_datagram(&mut self, qp: &FakeQp, job: &FakeSend) -> CarryResult {
        // SAFETY: a datagram uses this union member; `carry` checked the payload.
        let (to, bytes) = unsafe { (job.request.wr.ud, payload(job)) };
        assert!(
            self.handles.contains(&(to.ah as usize)),
            "a send by an address handle that is gone"
        );
        if bytes.len() > DATAGRAM_MOST {
            return CarryResult::Failed(WC_LOC_LEN_ERR);
        }
        if !self.conditions.active {
            return CarryResult::Failed(WC_LOC_QP_OP_ERR);
        }
        let len = bytes.len() as u32;
        let immediate = (job.request.opcode == WR_SEND_WITH_IMM).then_some(job.request.imm_data);
        self.throw(Datagram {
            from: qp.base.qp_num,
            to: to.remote_qpn,
            qkey: to.remote_qkey,
            immediate,
            bytes,
        });
        CarryResult::Done { opcode: WC_OP_SEND, bytes: len }
    }

    fn throw(&mut self, datagram: Datagram) {
        let faults = self.conditions.faults;
        let mut copies = 1;
        if self.random.chance(faults.drop) {
            copies = 0;
            self.dropped += 1;
        } else if self.random.chance(faults.double) {
            copies = 2;
        }
        for _ in 0..copies {
            let late = self.random.chance(faults.late);
            let behind = if late { 1 + self.random.below(8) } else { 0 };
            self.flying.push((behind, datagram.clone()));
        }
    }

    pub(super) fn land(&mut self) {
        for (behind, datagram) in std::mem::take(&mut self.flying) {
            match behind {
                0 => self.deliver(&datagram),
                _ => self.flying.push((behind - 1, datagram)),
            }
        }
    }

    pub(super) fn deliver(&mut self, datagram: &Datagram) {
        let Some(&peer) = self.pairs.get(&datagram.to) else {
            return;
        };
        // SAFETY: pairs in the table are alive.
        let peer = unsafe { &mut *peer };
        let state = peer.attr.qp_state;
        let ready = [QPS_RTR, QPS_RTS, QPS_SQE].contains(&state);
        if !ready || peer.attr.qkey != datagram.qkey || peer.base.qp_type != QPT_UD {
            return;
        }
        let Some(room) = peer.receives.pop_front() else {
            self.without_buffer += 1;
            return;
        };
        let len = datagram.bytes.len() as u32 + GRH;
        let to = room.segment;
        assert!(
            to.length >= len && allows(self, to.lkey, to.addr, len as u64, ACCESS_LOCAL_WRITE),
            "a receive buffer is too short or not registered"
        );
        let completion = Wc {
            wr_id: room.id,
            opcode: WC_OP_RECV,
            byte_len: len,
            imm_data: datagram.immediate.unwrap_or(0),
            wc_flags: WC_GRH | datagram.immediate.map_or(0, |_| WC_WITH_IMM),
            qp_num: peer.base.qp_num,
            src_qp: datagram.from,
            ..Wc::default()
        };
        // SAFETY: the room is registered memory, and the completion queue is alive.
        unsafe {
            write(to.addr, &[0xa5; GRH as usize]); // undefined on real adapters
            write(to.addr + GRH as u64, &datagram.bytes);
            complete(peer.base.recv_cq, completion, 0, 0);
        }
    }

    unsafe fn carry_write(&mut self, at: u32, job: &FakeSend) -> CarryResult {
        // SAFETY: the opcode selects this union member; `carry` checked the payload.
        let (to, bytes) = unsafe { (job.request.wr.rdma, payload(job)) };
        let len = bytes.len() as u64;
        if len > 0 && !self.reaches(at, to.rkey, to.remote_addr, len, ACCESS_REMOTE_WRITE) {
            return CarryResult::Failed(WC_REM_ACCESS_ERR);
        }
        // SAFETY: `reaches` checked that the memory is registered for writes.
        unsafe { write(to.remote_addr, &bytes) };
        CarryResult::Done { opcode: WC_OP_RDMA_WRITE, bytes: len as u32 }
    }

    unsafe fn carry_read(&mut self, at: u32, job: &FakeSend) -> CarryResult {
        // SAFETY: the opcode selects this union member.
        let from = unsafe { job.request.wr.rdma };
        let len: u64 = job.segments.iter().map(|s| s.length as u64).sum();
        if len > 0 && !self.reaches(at, from.rkey, from.remote_addr, len, ACCESS_REMOTE_READ) {
            return CarryResult::Failed(WC_REM_ACCESS_ERR);
        }
        let mut next = from.remote_addr;
        for segment in job.segments.iter().filter(|s| s.length > 0) {
            let part = Sge { addr: next, ..*segment };
            // SAFETY: `reaches` and `carry` checked that both are registered for this.
            unsafe { write(segment.addr, &gather(&[part])) };
            next += segment.length as u64;
        }
        CarryResult::Done { opcode: WC_OP_RDMA_READ, bytes: len as u32 }
    }

    unsafe fn carry_atomic(&mut self, at: u32, job: &FakeSend) -> CarryResult {
        // SAFETY: the opcode selects this union member.
        let to = unsafe { job.request.wr.atomic };
        if job.segments.len() != 1 || job.segments[0].length != 8 {
            return CarryResult::Failed(WC_LOC_LEN_ERR);
        }
        let aligned = to.remote_addr.is_multiple_of(8);
        if !aligned || !self.reaches(at, to.rkey, to.remote_addr, 8, ACCESS_REMOTE_ATOMIC) {
            return CarryResult::Failed(WC_REM_ACCESS_ERR);
        }
        let word = std::ptr::with_exposed_provenance_mut::<u64>(to.remote_addr as usize);
        // SAFETY: `reaches` checked that the memory is registered for atomics; it is aligned.
        let before = unsafe { word.read() };
        let opcode = match job.request.opcode {
            WR_ATOMIC_FETCH_AND_ADD => {
                // SAFETY: the word was checked above.
                unsafe { word.write(before.wrapping_add(to.compare_add)) };
                WC_OP_FETCH_ADD
            }
            WR_ATOMIC_CMP_AND_SWP => {
                if before == to.compare_add {
                    // SAFETY: the word was checked above.
                    unsafe { word.write(to.swap) };
                }
                WC_OP_COMP_SWAP
            }
            _ => return CarryResult::Failed(WC_LOC_QP_OP_ERR),
        };
        // SAFETY: OBJECTS: the poster keeps the segments valid, and `carry` checked their keys.
        unsafe { write(job.segments[0].addr, &before.to_ne_bytes()) };
        CarryResult::Done { opcode, bytes: 8 }
    }
}

unsafe fn payload(job: &FakeSend) -> Vec<u8> {
    match &job.inline {
        Some(bytes) => bytes.clone(),
        // SAFETY: OBJECTS: a poster keeps the segments of its jobs valid.
        None => unsafe { gather(&job.segments) },
    }
}

unsafe fn write(to: u64, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: the caller has checked that the bytes at `to` are writable.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

pub(super) unsafe fn complete(cq: *mut Cq, completion: Wc, number: u32, freed: u32) {
    // SAFETY: OBJECTS: `create_cq` made the queue, which is alive.
    let cq = unsafe { &mut *cq.cast::<FakeCq>() };
    assert!(cq.ready.len() < cq.base.cqe as usize, "a completion queue ran over");
    cq.ready.push_back((completion, number, freed));
    if std::mem::take(&mut cq.armed) {
        let (channel, one) = (cq.base.channel.cast::<FakeChannel>(), 1_u64);
        let cq = (&raw mut *cq).expose_provenance();
        // SAFETY: an armed queue has a channel, and the call reads the eight bytes of `one`.
        unsafe {
            let mut events = (*channel).events.lock().unwrap();
            events.push_back(cq);
            libc::write((*channel).base.fd, (&raw const one).cast(), 8);
        }
    }
}

pub(super) unsafe extern "C" fn poll_cq(cq: *mut Cq, len: c_int, to: *mut Wc) -> c_int {
    with(|fabric| {
        fabric.pump();
        // SAFETY: OBJECTS: `create_cq` made the queue, which is alive.
        let cq = unsafe { &mut *cq.cast::<FakeCq>() };
        let count = cq.ready.len().min(len as usize);
        for (index, (completion, number, freed)) in cq.ready.drain(..count).enumerate() {
            if let Some(&qp) = fabric.pairs.get(&number) {
                // SAFETY: pairs in the table are alive.
                unsafe { (*qp).used -= freed };
            }
            // SAFETY: OBJECTS: `to` has room for `len` completions.
            unsafe { *to.add(index) = completion };
        }
        count as c_int
    })
}
