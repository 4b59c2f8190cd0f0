//! Queue pairs: creation, granted limits, connection. After a failure, drop the queue pair, which frees everything.
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
    /// One peer, in order and exactly once.
    Reliable,
    /// Datagrams from and to any queue pair.
    Datagram,
}

/// Settings of a queue pair.
#[derive(Clone)]
pub struct PairSettings<'a> {
    /// Service of the queue pair.
    pub service: Service,
    /// Completion queue of sends.
    pub send_cq: &'a Arc<CompletionQueue>,
    /// Completion queue of receives.
    pub recv_cq: &'a Arc<CompletionQueue>,
    /// Shared receive queue; `None` for a receive queue of its own.
    pub shared: Option<&'a Arc<SharedReceiveQueue>>,
    /// Maximum number of outstanding sends.
    pub send_depth: u32,
    /// Maximum number of posted receives, if the pair has a receive queue of its own.
    pub recv_depth: u32,
    /// Maximum number of segments of a send.
    pub send_segments: u32,
    /// Requested inline bytes.
    pub inline: u32,
    /// Port number.
    pub port: u8,
    /// Q_Key that datagrams must carry.
    pub qkey: u32,
}

/// Retry settings of a reliable connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryConfig {
    /// Time until a packet is resent: 4.096 us * 2^timeout, for values 1 to 31; 0 waits forever.
    pub timeout: u8,
    /// Number of resends before the peer has failed, 0 to 7; Soft-RoCE takes 7 as unlimited.
    pub retries: u8,
    /// Number of retries to a peer without a receive buffer, 0 to 6; 7 is unlimited.
    pub rnr_retries: u8,
    /// Time before a retry to a peer without a receive buffer, by verbs code (12: 0.64 ms).
    pub rnr_timer: u8,
    /// Maximum number of outstanding reads and atomics.
    pub reads: u8,
}

impl Default for RetryConfig {
    fn default() -> Self {
        // A packet is sent up to 7 times, with 0.27 s each for its acknowledgement. That is enough time on a loaded
        // network, and a dead peer is detected within seconds. Retries to a peer without a buffer are unlimited,
        // because the peer may compute for hours.
        RetryConfig { timeout: 16, retries: 6, rnr_retries: 7, rnr_timer: 12, reads: 4 }
    }
}

/// Other end of a reliable connection.
#[derive(Debug, Clone, Copy)]
pub struct RemoteQp {
    /// Path to the peer's port.
    pub path: Path,
    /// Number of the peer's queue pair.
    pub qpn: u32,
    /// Sequence number of the peer's first packet, 24 bits.
    pub psn: u32,
}

type PostSend = unsafe extern "C" fn(*mut abi::Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
type PostRecv = unsafe extern "C" fn(*mut abi::Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// A queue pair. Dropping it destroys the device's object.
pub struct QueuePair {
    pub(super) raw: NonNull<abi::Qp>,
    pub(super) post_send: PostSend,
    post_recv: PostRecv,
    granted: QpCap,
    service: Service,
    port: u8,
    qkey: u32,
    /// Objects that the queue pair uses; held because they must outlive it.
    domain: Arc<ProtectionDomain>,
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates a queue pair, reads its granted limits, and initializes it, so that receives can be posted. If the
    /// device refuses the inline size, requests half of it, and so on down to 0.
    ///
    /// # Errors
    /// The device refuses a step; nothing is left behind.
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
        // SAFETY: a structure of numbers and pointers, for which all zeros is valid.
        let mut first: abi::QpInitAttr = unsafe { std::mem::zeroed() };
        let context = self.domain.context();
        check(VerbsCall::QueryQp, context.name(), || {
            // SAFETY: the pair is alive, and both structures are writable.
            unsafe {
                (context.library.query_qp)(
                    self.raw.as_ptr(),
                    &mut attributes,
                    abi::QP_CAP,
                    &mut first,
                )
            }
        })?;
        // Providers write the limits to one of the two structures.
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

    /// Connects a reliable pair; then it can receive and send. `psn` is the sequence number of its first packet.
    ///
    /// # Errors
    /// The peer's address is unreachable, or the device refuses.
    pub fn connect(
        &self, peer: &RemoteQp, psn: u32, retry_config: &RetryConfig,
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

    /// Makes a datagram pair ready to receive and send.
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

    /// Discards all posted requests; the pair keeps its number. Nothing may be posted until
    /// [`QueuePair::restart_datagrams`] has succeeded.
    ///
    /// # Errors
    /// The device refuses or is gone; the pair is unchanged.
    pub fn reset(&self) -> Result<(), VerbsError> {
        let mut attributes = QpAttr { qp_state: abi::QPS_RESET, ..QpAttr::default() };
        self.modify(VerbsCall::ModifyReset, &mut attributes, abi::QP_STATE)
    }

    /// Makes a reset datagram pair ready to receive and send.
    ///
    /// # Errors
    /// The device refuses or is gone; reset the pair again.
    pub fn restart_datagrams(&self, psn: u32) -> Result<(), VerbsError> {
        self.initialise()?;
        self.start_datagrams(psn)
    }

    /// Stops the pair: all outstanding requests complete, with an error if they were not done.
    ///
    /// # Errors
    /// The pair was reset and not restarted, or the device is gone.
    pub fn stop(&self) -> Result<(), VerbsError> {
        let mut attributes = QpAttr { qp_state: abi::QPS_ERR, ..QpAttr::default() };
        self.modify(VerbsCall::ModifyError, &mut attributes, abi::QP_STATE)
    }

    fn modify(
        &self, step: VerbsCall, attributes: &mut QpAttr, mask: c_int,
    ) -> Result<(), VerbsError> {
        let context = self.domain.context();
        // SAFETY: the pair is alive, and the structure is readable.
        check(step, context.name(), || unsafe {
            (context.library.modify_qp)(self.raw.as_ptr(), attributes, mask)
        })
    }

    /// Queue pair number on the device, 24 bits; part of its address.
    #[inline]
    pub fn qpn(&self) -> u32 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Granted inline bytes.
    #[inline]
    pub fn granted_inline(&self) -> u32 {
        self.granted.max_inline_data
    }

    /// Granted number of outstanding sends.
    pub fn send_depth(&self) -> u32 {
        self.granted.max_send_wr
    }

    /// Granted number of segments of a send.
    pub fn send_segments(&self) -> u32 {
        self.granted.max_send_sge
    }

    /// Service of the pair.
    pub fn service(&self) -> Service {
        self.service
    }

    pub(super) fn device(&self) -> &str {
        self.domain.context().name()
    }

    /// Posts receive buffers to the pair's own queue. On an error, the accepted buffers stay posted.
    ///
    /// # Safety
    /// The buffers are writable until they complete or the pair is dropped.
    ///
    /// # Errors
    /// The queue is full, or the device is gone: the number of accepted buffers, and the cause.
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
        // SAFETY: `create_qp` made it, and it is not used again.
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
        // SAFETY: domain and queues are alive, and the structure is writable.
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

/// Device object for the path to a peer's port, along which datagrams are sent.
pub struct AddressHandle {
    raw: NonNull<abi::Ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for AddressHandle {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// Creates a handle of a path.
    ///
    /// # Errors
    /// The path is invalid, or the device has no more address handles.
    pub fn new(domain: &Arc<ProtectionDomain>, path: &Path) -> Result<Self, VerbsError> {
        let mut route = path.route;
        let context = domain.context();
        // SAFETY: the domain is alive, and the route is readable.
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
        // SAFETY: `create_ah` made it, and it is not used again.
        unmake(unsafe { (self.domain.context().library.destroy_ah)(self.raw.as_ptr()) });
    }
}
