//! Queue pairs: made, asked for what they were granted, connected. What a failure leaves behind is
//! taken back by dropping.
#![allow(unsafe_code)]

use super::abi::{self, QpAttr, QpCap, RecvWr, SendWr};
use super::call::{check, make, unmake};
use super::error::{VerbsCall, VerbsError};
use super::memory::ProtectionDomain;
use super::path::Path;
use super::queue::{CompletionQueue, RecvEntry, SharedReceiveQueue, post_receives};
use libc::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// The service of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One peer, in order and once.
    Reliable,
    /// Datagrams from and to everyone.
    Datagram,
}

/// What a queue pair is made with.
#[derive(Clone)]
pub struct PairSettings<'a> {
    /// Its service.
    pub service: Service,
    /// Where its sends complete.
    pub send_cq: &'a Arc<CompletionQueue>,
    /// Where its receives complete.
    pub recv_cq: &'a Arc<CompletionQueue>,
    /// Where its receive buffers come from; its own queue without one.
    pub shared: Option<&'a Arc<SharedReceiveQueue>>,
    /// Sends that may be under way.
    pub send_depth: u32,
    /// Receives that may be posted to its own queue.
    pub recv_depth: u32,
    /// Segments of a send at most.
    pub send_segments: u32,
    /// Bytes of inline data asked for.
    pub inline: u32,
    /// The port.
    pub port: u8,
    /// The key that datagrams must carry.
    pub qkey: u32,
}

/// How long a reliable connection tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryConfig {
    /// Time until a packet is sent again: 4.096 us * 2^timeout, 0 to 31; 0 waits for ever.
    pub timeout: u8,
    /// How often it is sent again before the peer counts as gone, 0 to 7; Soft-RoCE takes 7 for without end.
    pub retries: u8,
    /// How often a peer without a receive buffer is asked again, 0 to 6; 7: without end.
    pub rnr_retries: u8,
    /// How long to wait before that, in the code of the verbs interface (12: 0.64 ms).
    pub rnr_timer: u8,
    /// Reads and atomics under way at most.
    pub reads: u8,
}

impl Default for RetryConfig {
    fn default() -> Self {
        // 0.27 s each, 7 times: long enough for a loaded network, and a dead peer is found within seconds.
        // A peer without buffers computes, perhaps for hours.
        RetryConfig { timeout: 16, retries: 6, rnr_retries: 7, rnr_timer: 12, reads: 4 }
    }
}

/// The other end of a reliable connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The way to its port.
    pub path: Path,
    /// Its queue pair's number.
    pub qpn: u32,
    /// The sequence number with which it begins, 24 bits.
    pub psn: u32,
}

type PostSend = unsafe extern "C" fn(*mut abi::Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
type PostRecv = unsafe extern "C" fn(*mut abi::Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// A queue pair.
pub struct QueuePair {
    pub(super) raw: NonNull<abi::Qp>,
    pub(super) post_send: PostSend,
    post_recv: PostRecv,
    granted: QpCap,
    service: Service,
    port: u8,
    qkey: u32,
    /// What it needs lives as long as it does.
    domain: Arc<ProtectionDomain>,
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: ANY THREAD.
unsafe impl Send for QueuePair {}
// SAFETY: ANY THREAD.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes a queue pair, reads back what it was granted, and initialises it, so that receives can be posted.
    /// A device that refuses the inline size is asked for half of it, down to none.
    ///
    /// # Errors
    /// The device refuses, at whichever step; nothing is left behind.
    pub fn new(
        domain: &Arc<ProtectionDomain>, settings: &PairSettings<'_>,
    ) -> Result<Self, VerbsError> {
        let context = domain.context();
        let ops = context.ops();
        let (Some(post_send), Some(post_recv)) = (ops.post_send, ops.post_recv) else {
            let name = context.name();
            return Err(VerbsError::call(VerbsCall::CreateQp, name, libc::ENOSYS));
        };
        let raw = create_pair(domain, settings)?;
        let mut pair = QueuePair {
            raw,
            post_send,
            post_recv,
            granted: QpCap::default(),
            service: settings.service,
            port: settings.port,
            qkey: settings.qkey,
            domain: domain.clone(),
            _queues: [settings.send_cq.clone(), settings.recv_cq.clone()],
            _shared: settings.shared.cloned(),
        };
        pair.granted = pair.query_granted()?;
        pair.initialise()?;
        Ok(pair)
    }

    fn query_granted(&self) -> Result<QpCap, VerbsError> {
        let mut attributes = QpAttr::default();
        // SAFETY: numbers and null pointers: all zeros is valid.
        let mut first: abi::QpInitAttr = unsafe { std::mem::zeroed() };
        let context = self.domain.context();
        check(VerbsCall::QueryQp, context.name(), || {
            // SAFETY: the pair is alive, both structures are writable.
            unsafe {
                (context.library.query_qp)(
                    self.raw.as_ptr(),
                    &mut attributes,
                    abi::QP_CAP,
                    &mut first,
                )
            }
        })?;
        // Providers write it to either.
        Ok(match first.cap.max_send_wr {
            0 => attributes.cap,
            _ => first.cap,
        })
    }

    fn initialise(&self) -> Result<(), VerbsError> {
        let mut attributes = QpAttr {
            qp_state: abi::QPS_INIT,
            port_num: self.port,
            qkey: self.qkey,
            qp_access_flags: (abi::ACCESS_LOCAL_WRITE
                | abi::ACCESS_REMOTE_WRITE
                | abi::ACCESS_REMOTE_READ
                | abi::ACCESS_REMOTE_ATOMIC) as u32,
            ..QpAttr::default()
        };
        let of_service = match self.service {
            Service::Reliable => abi::QP_ACCESS_FLAGS,
            Service::Datagram => abi::QP_QKEY,
        };
        let mask = abi::QP_STATE | abi::QP_PKEY_INDEX | abi::QP_PORT | of_service;
        self.modify(VerbsCall::ModifyInit, &mut attributes, mask)
    }

    /// Connects a reliable pair: it receives and sends from now on. `psn` is the number with which
    /// its own packets begin.
    ///
    /// # Errors
    /// The peer's address leads nowhere, or the device refuses.
    pub fn connect(
        &self, peer: &Peer, psn: u32, retry_config: &RetryConfig,
    ) -> Result<(), VerbsError> {
        let limits = self.domain.context().attributes();
        let within = |limit: c_int| retry_config.reads.min(limit.clamp(0, 255) as u8);
        let mut attributes = QpAttr {
            qp_state: abi::QPS_RTR,
            path_mtu: peer.path.mtu_code(),
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn & 0xff_ffff,
            max_dest_rd_atomic: within(limits.max_qp_rd_atom),
            min_rnr_timer: retry_config.rnr_timer,
            ah_attr: peer.path.route,
            ..QpAttr::default()
        };
        let mask = abi::QP_STATE
            | abi::QP_AV
            | abi::QP_PATH_MTU
            | abi::QP_DEST_QPN
            | abi::QP_RQ_PSN
            | abi::QP_MAX_DEST_RD_ATOMIC
            | abi::QP_MIN_RNR_TIMER;
        self.modify(VerbsCall::ModifyRtr, &mut attributes, mask)?;
        let mut attributes = QpAttr {
            qp_state: abi::QPS_RTS,
            sq_psn: psn & 0xff_ffff,
            timeout: retry_config.timeout,
            retry_cnt: retry_config.retries,
            rnr_retry: retry_config.rnr_retries,
            max_rd_atomic: within(limits.max_qp_init_rd_atom),
            ..QpAttr::default()
        };
        let mask = abi::QP_STATE
            | abi::QP_SQ_PSN
            | abi::QP_TIMEOUT
            | abi::QP_RETRY_CNT
            | abi::QP_RNR_RETRY
            | abi::QP_MAX_QP_RD_ATOMIC;
        self.modify(VerbsCall::ModifyRts, &mut attributes, mask)
    }

    /// Makes a pair for datagrams ready to receive and to send.
    ///
    /// # Errors
    /// The device refuses.
    pub fn start_datagrams(&self, psn: u32) -> Result<(), VerbsError> {
        let mut attributes = QpAttr { qp_state: abi::QPS_RTR, ..QpAttr::default() };
        self.modify(VerbsCall::ModifyRtr, &mut attributes, abi::QP_STATE)?;
        let mut attributes =
            QpAttr { qp_state: abi::QPS_RTS, sq_psn: psn & 0xff_ffff, ..QpAttr::default() };
        let mask = abi::QP_STATE | abi::QP_SQ_PSN;
        self.modify(VerbsCall::ModifyRts, &mut attributes, mask)
    }

    /// Lets a pair forget what was posted; its number stays. Nothing may be posted until
    /// [`QueuePair::restart_datagrams`] has gone well.
    ///
    /// # Errors
    /// The device refuses, or is gone: the pair is what it was.
    pub fn reset(&self) -> Result<(), VerbsError> {
        let mut attributes = QpAttr { qp_state: abi::QPS_RESET, ..QpAttr::default() };
        self.modify(VerbsCall::ModifyReset, &mut attributes, abi::QP_STATE)
    }

    /// Makes a pair for datagrams that was reset ready to receive and to send.
    ///
    /// # Errors
    /// The device refuses, or is gone: it must be reset again.
    pub fn restart_datagrams(&self, psn: u32) -> Result<(), VerbsError> {
        self.initialise()?;
        self.start_datagrams(psn)
    }

    /// Stops it: everything posted completes, with an error where it had not been done.
    ///
    /// # Errors
    /// It was reset and not started, or the device is gone.
    pub fn stop(&self) -> Result<(), VerbsError> {
        let mut attributes = QpAttr { qp_state: abi::QPS_ERR, ..QpAttr::default() };
        self.modify(VerbsCall::ModifyError, &mut attributes, abi::QP_STATE)
    }

    fn modify(
        &self, step: VerbsCall, attributes: &mut QpAttr, mask: c_int,
    ) -> Result<(), VerbsError> {
        let context = self.domain.context();
        // SAFETY: the pair is alive, the structure readable.
        check(step, context.name(), || unsafe {
            (context.library.modify_qp)(self.raw.as_ptr(), attributes, mask)
        })
    }

    /// Its number on the device, 24 bits: what peers need to know.
    #[inline]
    pub fn qpn(&self) -> u32 {
        // SAFETY: ALIVE.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Bytes that may go inline, as granted.
    #[inline]
    pub fn granted_inline(&self) -> u32 {
        self.granted.max_inline_data
    }

    /// Sends that may be under way, as granted.
    pub fn send_depth(&self) -> u32 {
        self.granted.max_send_wr
    }

    /// Segments of one send, as granted.
    pub fn send_segments(&self) -> u32 {
        self.granted.max_send_sge
    }

    /// Its service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// The device's name.
    pub(super) fn device(&self) -> &str {
        self.domain.context().name()
    }

    /// Posts receive buffers to its own queue; those that a failed call accepted are posted.
    ///
    /// # Safety
    /// The buffers are writable until they complete or the pair is gone.
    ///
    /// # Errors
    /// The queue is full, or the device is gone: how many were accepted, and the reason.
    pub unsafe fn post_recv(&self, entries: &[RecvEntry]) -> Result<(), (usize, VerbsError)> {
        // SAFETY: the pair is alive; the buffers stay writable until they complete, by this function's contract.
        let (accepted, errno) = unsafe {
            post_receives(entries, |list, bad| (self.post_recv)(self.raw.as_ptr(), list, bad))
        };
        match errno {
            0 => Ok(()),
            errno => {
                let error = VerbsError::call(VerbsCall::PostRecv, self.device(), errno.abs());
                Err((accepted, error))
            }
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `create_qp`, and not used again.
        unmake(unsafe { (self.domain.context().library.destroy_qp)(self.raw.as_ptr()) });
    }
}

fn create_pair(
    domain: &Arc<ProtectionDomain>, settings: &PairSettings<'_>,
) -> Result<NonNull<abi::Qp>, VerbsError> {
    let mut inline = settings.inline;
    loop {
        let mut wanted = abi::QpInitAttr {
            qp_context: null_mut(),
            send_cq: settings.send_cq.raw.as_ptr(),
            recv_cq: settings.recv_cq.raw.as_ptr(),
            srq: settings.shared.map_or(null_mut(), |shared| shared.raw.as_ptr()),
            cap: QpCap {
                max_send_wr: settings.send_depth,
                max_recv_wr: settings.recv_depth,
                max_send_sge: settings.send_segments,
                max_recv_sge: 1,
                max_inline_data: inline,
            },
            qp_type: match settings.service {
                Service::Reliable => abi::QPT_RC,
                Service::Datagram => abi::QPT_UD,
            },
            sq_sig_all: 0,
        };
        let context = domain.context();
        // SAFETY: domain and queues are alive, the structure writable.
        let made = make(VerbsCall::CreateQp, context.name(), || unsafe {
            (context.library.create_qp)(domain.raw.as_ptr(), &mut wanted)
        });
        match made {
            Err(error) if inline > 0 && [libc::EINVAL, libc::ENOMEM].contains(&error.errno()) => {
                inline /= 2;
            }
            made => return made,
        }
    }
}

/// The way to a peer's port, as datagrams need it.
pub struct AddressHandle {
    raw: NonNull<abi::Ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: ANY THREAD.
unsafe impl Send for AddressHandle {}
// SAFETY: ANY THREAD.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// A handle of a way.
    ///
    /// # Errors
    /// The way leads nowhere, or the device has no more.
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> Result<Self, VerbsError> {
        let mut route = path.route;
        let context = domain.context();
        // SAFETY: the domain is alive, the route readable.
        let raw = make(VerbsCall::CreateAh, context.name(), || unsafe {
            (context.library.create_ah)(domain.raw.as_ptr(), &mut route)
        })?;
        Ok(AddressHandle { raw, domain: domain.clone() })
    }

    pub(super) fn raw(&self) -> *mut abi::Ah {
        self.raw.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made by `create_ah`, and not used again.
        unmake(unsafe { (self.domain.context().library.destroy_ah)(self.raw.as_ptr()) });
    }
}
