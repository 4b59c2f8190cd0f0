//! Sends and completions.
#![allow(unsafe_code)]

use super::abi::{self, BindTo, SendWr, SendWrTo, Sge, Wc};
use super::error::{VerbsCall, VerbsError};
use super::inline::{InlineChoice, InlineError, decide};
use super::qp::{AddressHandle, QueuePair};
use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Operation of a send. At the receiver, [`immediate`] returns the immediate data.
#[derive(Clone, Copy)]
pub enum SendOperation<'a> {
    /// Sends to the peer's next receive buffer.
    Send,
    /// Sends with immediate data.
    SendImmediate(u32),
    /// Sends and invalidates this key of the peer.
    SendInvalidate(u32),
    /// Sends a datagram to a queue pair, with optional immediate data.
    Datagram {
        /// Address handle of the path.
        ah: &'a AddressHandle,
        /// Queue pair number.
        qpn: u32,
        /// Q_Key of the queue pair.
        qkey: u32,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// Writes to the peer's memory.
    Write {
        /// Remote address.
        address: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Reads the peer's memory into the segments.
    Read {
        /// Remote address.
        address: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Adds to 8 bytes of the peer's memory; the segment gets the old value.
    FetchAdd {
        /// Remote address, a multiple of 8.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Addend.
        add: u64,
    },
    /// Replaces 8 bytes of the peer's memory if they are equal to `compare`; the segment gets the old value.
    CompareSwap {
        /// Remote address, a multiple of 8.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Binds a memory window; created by [`super::MemoryWindow::bind`].
    Bind(Binding<'a>),
}

/// Binding of a memory window to memory. Window and region outlive the binding.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    to: BindTo,
    _of: PhantomData<&'a ()>,
}

impl Binding<'_> {
    pub(super) fn new(to: BindTo) -> Self {
        Binding { to, _of: PhantomData }
    }
}

impl SendOperation<'_> {
    /// Whether the segments are sent to the peer.
    #[inline]
    pub fn has_payload(&self) -> bool {
        !matches!(
            self,
            SendOperation::Read { .. }
                | SendOperation::FetchAdd { .. }
                | SendOperation::CompareSwap { .. }
                | SendOperation::Bind(_)
        )
    }
}

/// Flags of a send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// Whether success is reported by a completion. A failure is always reported.
    pub signaled: bool,
    /// Whether the send waits for earlier reads and atomics.
    pub fenced: bool,
    /// Whether the send raises a solicited event at the peer.
    pub solicited: bool,
    /// Inline choice of the payload.
    pub inline: InlineChoice,
}

/// Result of a successful post.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostedSend {
    /// Whether the payload went inline, so that its memory may be reused at once.
    pub inline: bool,
}

/// Reason why a send was not posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostError {
    /// The send queue is full: poll for completions first.
    Full,
    /// The payload must go inline and does not fit.
    Inline(InlineError),
    /// The queue pair or the device has failed.
    Failed(VerbsError),
}

/// Work request that is built once, and patched for each send.
pub struct SendRequest(SendWr);

impl Default for SendRequest {
    fn default() -> Self {
        SendRequest(SendWr {
            wr_id: 0,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: 0,
            opcode: abi::WR_SEND,
            send_flags: 0,
            imm_data: 0,
            wr: SendWrTo { atomic: abi::AtomicTo::default() },
            xrc_remote_srqn: 0,
            bind: BindTo::NOTHING,
        })
    }
}

impl SendRequest {
    /// Sets the fields of one send; returns whether the payload goes inline. Makes no call, so that tests need no
    /// device.
    #[inline(always)] // `fastpath bench instructions --transport rc` counts a send
    fn patch(
        &mut self, id: u64, operation: &SendOperation<'_>, segments: &[Sge], flags: SendFlags,
        granted_inline: u32,
    ) -> Result<bool, InlineError> {
        let bytes = segments.iter().map(|segment| segment.length as u64).sum();
        let inline = decide(operation.has_payload(), bytes, granted_inline, flags.inline)?;
        let request = &mut self.0;
        request.wr_id = id;
        request.sg_list = segments.as_ptr().cast_mut();
        request.num_sge = segments.len() as i32;
        // Flags are computed independently, so that none replaces another.
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        request.send_flags = flag(flags.signaled, abi::SEND_SIGNALED)
            | flag(flags.fenced, abi::SEND_FENCE)
            | flag(flags.solicited, abi::SEND_SOLICITED)
            | flag(inline, abi::SEND_INLINE);
        let rdma = |remote_addr, rkey| SendWrTo { rdma: abi::RdmaTo { remote_addr, rkey } };
        match *operation {
            SendOperation::Send => request.opcode = abi::WR_SEND,
            SendOperation::SendImmediate(value) => {
                request.opcode = abi::WR_SEND_WITH_IMM;
                request.imm_data = value.to_be();
            }
            SendOperation::SendInvalidate(rkey) => {
                request.opcode = abi::WR_SEND_WITH_INV;
                request.imm_data = rkey;
            }
            SendOperation::Datagram { ah, qpn, qkey, immediate } => {
                request.opcode = match immediate {
                    Some(_) => abi::WR_SEND_WITH_IMM,
                    None => abi::WR_SEND,
                };
                request.imm_data = immediate.unwrap_or(0).to_be();
                request.wr.ud = abi::UdTo { ah: ah.raw(), remote_qpn: qpn, remote_qkey: qkey };
            }
            SendOperation::Write { address, rkey } => {
                request.opcode = abi::WR_RDMA_WRITE;
                request.wr = rdma(address, rkey);
            }
            SendOperation::Read { address, rkey } => {
                request.opcode = abi::WR_RDMA_READ;
                request.wr = rdma(address, rkey);
            }
            SendOperation::FetchAdd { address, rkey, add } => {
                request.opcode = abi::WR_ATOMIC_FETCH_AND_ADD;
                request.wr.atomic =
                    abi::AtomicTo { remote_addr: address, compare_add: add, swap: 0, rkey };
            }
            SendOperation::CompareSwap { address, rkey, compare, swap } => {
                request.opcode = abi::WR_ATOMIC_CMP_AND_SWP;
                request.wr.atomic =
                    abi::AtomicTo { remote_addr: address, compare_add: compare, swap, rkey };
            }
            SendOperation::Bind(ref binding) => {
                request.opcode = abi::WR_BIND_MW;
                request.bind = binding.to;
            }
        }
        Ok(inline)
    }
}

#[inline(always)] // `fastpath bench instructions --transport rc` counts a send
pub(super) fn build_request(
    id: u64, operation: &SendOperation<'_>, segments: &[Sge], flags: SendFlags, granted_inline: u32,
) -> Result<(SendWr, bool), InlineError> {
    let mut request = SendRequest::default();
    let inline = request.patch(id, operation, segments, flags, granted_inline)?;
    Ok((request.0, inline))
}

impl QueuePair {
    /// Posts one send. Its completion, if any, has `wr_id` equal to `id`.
    ///
    /// # Safety
    /// See [`QueuePair::post_patched`].
    ///
    /// # Errors
    /// Nothing was posted.
    #[inline(always)] // `fastpath bench instructions --transport rc` counts a send
    pub unsafe fn post_send(
        &self, id: u64, operation: &SendOperation<'_>, segments: &[Sge], flags: SendFlags,
    ) -> Result<PostedSend, PostError> {
        let mut request = SendRequest::default();
        // SAFETY: this function's contract is that of `post_patched`.
        unsafe { self.post_patched(&mut request, id, operation, segments, flags) }
    }

    /// Posts one send, by a request that the next send reuses.
    ///
    /// # Safety
    /// The segments are readable, and for a read or an atomic writable, until this send or a later one completes.
    /// Segments of an inline send need to be readable only until the call returns.
    ///
    /// # Errors
    /// Nothing was posted.
    #[inline(always)] // `fastpath bench instructions --transport rc` counts a send
    pub unsafe fn post_patched(
        &self, request: &mut SendRequest, id: u64, operation: &SendOperation<'_>, segments: &[Sge],
        flags: SendFlags,
    ) -> Result<PostedSend, PostError> {
        let patched = request.patch(id, operation, segments, flags, self.granted_inline());
        let inline = patched.map_err(PostError::Inline)?;
        let mut bad = null_mut();
        // SAFETY: the pair is alive. The request is a list of one: `next` is initialized to null and never written. The
        // segments were set by `patch`, and stay valid by this function's contract.
        match unsafe { (self.post_send)(self.raw.as_ptr(), &mut request.0, &mut bad) } {
            0 => Ok(PostedSend { inline }),
            errno => Err(self.post_error_slow(errno)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn post_error_slow(&self, errno: i32) -> PostError {
        match errno.abs() {
            libc::ENOMEM => PostError::Full,
            errno => PostError::Failed(VerbsError::call(VerbsCall::PostSend, self.device(), errno)),
        }
    }
}

/// Immediate data of a completed receive; `None` if the sender sent none.
#[inline]
pub fn immediate(completion: &Wc) -> Option<u32> {
    match completion.wc_flags & abi::WC_WITH_IMM {
        0 => None,
        _ => Some(u32::from_be(completion.imm_data)),
    }
}

/// Cause of a failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Flushed: the queue pair had stopped. An earlier completion has the cause.
    Flushed,
    /// The peer does not answer: it is dead or unreachable.
    NoAnswer,
    /// The peer had no receive buffer for too long.
    NoBuffer,
    /// Access to the peer's memory was refused: wrong key or address, or no permission.
    RemoteAccess,
    /// The peer's receive buffer is too short, or it refuses the operation.
    RemoteRefused,
    /// Access to this process's memory failed.
    Local,
    /// Any other status.
    Other(i32),
}

impl Failure {
    /// Message about a failed connection to rank `peer`.
    pub fn describe(self, peer: u32) -> String {
        format!("the adapter has lost rank {peer} of MPI_COMM_WORLD ({self})")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Flushed => "the queue pair of the connection has stopped",
            Failure::NoAnswer => "no answer: the peer has ended, or packets do not reach the peer",
            Failure::NoBuffer => "the peer had no free receive buffer for too long",
            Failure::RemoteAccess => {
                "the peer's memory could not be accessed: wrong key or address"
            }
            Failure::RemoteRefused => {
                "the peer refused an operation, or a receive buffer was too short"
            }
            Failure::Local => {
                "this process's own adapter is gone, or could not perform the operation"
            }
            Failure::Other(status) => return write!(f, "the adapter reported status {status}"),
        })
    }
}

/// Cause of a failed operation; `None` if it succeeded.
#[inline]
pub fn failure(completion: &Wc) -> Option<Failure> {
    match completion.status {
        abi::WC_SUCCESS => None,
        status => Some(failure_slow(status)),
    }
}

#[cold]
fn failure_slow(status: i32) -> Failure {
    match status {
        abi::WC_WR_FLUSH_ERR => Failure::Flushed,
        abi::WC_RETRY_EXC_ERR => Failure::NoAnswer,
        abi::WC_RNR_RETRY_EXC_ERR => Failure::NoBuffer,
        abi::WC_REM_ACCESS_ERR => Failure::RemoteAccess,
        abi::WC_REM_INV_REQ_ERR | abi::WC_REM_OP_ERR => Failure::RemoteRefused,
        abi::WC_LOC_LEN_ERR
        | abi::WC_LOC_QP_OP_ERR
        | abi::WC_LOC_PROT_ERR
        | abi::WC_LOC_ACCESS_ERR => Failure::Local,
        other => Failure::Other(other),
    }
}

/// The library's text for a completion's status.
pub fn status_text(library: &super::Library, status: i32) -> String {
    // SAFETY: any number may be passed; the text is constant.
    let text = unsafe { (library.wc_status_str)(status) };
    if text.is_null() {
        return format!("status {status}");
    }
    // SAFETY: the text is not null and ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const WRITE: SendOperation<'_> = SendOperation::Write { address: 0x1000, rkey: 7 };
    const READ: SendOperation<'_> = SendOperation::Read { address: 0x1000, rkey: 7 };
    const ADD: SendOperation<'_> = SendOperation::FetchAdd { address: 0x1000, rkey: 7, add: 1 };
    const SWAP: SendOperation<'_> =
        SendOperation::CompareSwap { address: 0x1000, rkey: 7, compare: 1, swap: 2 };

    fn segments(lengths: &[u32]) -> Vec<Sge> {
        let segment = |&length| Sge { length, ..Sge::default() };
        lengths.iter().map(segment).collect()
    }

    fn flags_of(
        operation: &SendOperation<'_>, lengths: &[u32], granted: u32, flags: SendFlags,
    ) -> u32 {
        let segments = segments(lengths);
        let (request, inline) = build_request(9, operation, &segments, flags, granted).unwrap();
        assert_eq!(inline, request.send_flags & abi::SEND_INLINE != 0);
        request.send_flags
    }

    #[test]
    fn inline__each_operation_with_a_payload_goes_inline_when_all_fits() {
        let flags = SendFlags::default();
        for operation in [
            SendOperation::Send,
            SendOperation::SendImmediate(1),
            SendOperation::SendInvalidate(7),
            WRITE,
        ] {
            for (lengths, granted, inline) in [
                (&[][..], 0, true),
                (&[0], 0, true),
                (&[1], 0, false),
                (&[100], 100, true),
                (&[101], 100, false),
                (&[16, 84], 100, true),
                (&[16, 85], 100, false),
                (&[50, 0, 50], 100, true),
                // The sum of the lengths exceeds 32 bits.
                (&[u32::MAX, 1], 100, false),
            ] {
                let expected = if inline { abi::SEND_INLINE } else { 0 };
                assert_eq!(
                    flags_of(&operation, lengths, granted, flags),
                    expected,
                    "{lengths:?} of {granted}"
                );
            }
        }
    }

    #[test]
    fn inline__reads_and_atomics_never_do() {
        for operation in [READ, ADD, SWAP] {
            for inline in [InlineChoice::Auto, InlineChoice::Forbid] {
                let flags = SendFlags { inline, signaled: true, ..SendFlags::default() };
                assert_eq!(flags_of(&operation, &[8], 400, flags), abi::SEND_SIGNALED);
            }
            let forced = SendFlags { inline: InlineChoice::Force, ..SendFlags::default() };
            let refused = build_request(9, &operation, &segments(&[8]), forced, 400).err();
            assert_eq!(refused, Some(InlineError::NoPayload));
        }
    }

    #[test]
    fn inline__can_be_forced_and_forbidden() {
        let with = |inline| SendFlags { inline, ..SendFlags::default() };
        assert_eq!(flags_of(&WRITE, &[8], 400, with(InlineChoice::Forbid)), 0);
        assert_eq!(flags_of(&WRITE, &[8], 400, with(InlineChoice::Force)), abi::SEND_INLINE);
        let refused =
            build_request(9, &WRITE, &segments(&[400, 1]), with(InlineChoice::Force), 400);
        let (bytes, granted) = (401, 400);
        assert_eq!(refused.err(), Some(InlineError::TooLong { bytes, granted }));
    }

    #[test]
    fn flags__come_together_and_none_replaces_another() {
        for bits in 0..8 {
            let flags = SendFlags {
                signaled: bits & 1 != 0,
                fenced: bits & 2 != 0,
                solicited: bits & 4 != 0,
                inline: InlineChoice::Auto,
            };
            let mut expected = abi::SEND_INLINE;
            expected |= if flags.signaled { abi::SEND_SIGNALED } else { 0 };
            expected |= if flags.fenced { abi::SEND_FENCE } else { 0 };
            expected |= if flags.solicited { abi::SEND_SOLICITED } else { 0 };
            // Immediate data and invalidation must keep the other flags, including inline.
            for operation in
                [SendOperation::SendImmediate(3), SendOperation::SendInvalidate(3), WRITE]
            {
                assert_eq!(flags_of(&operation, &[8], 64, flags), expected);
            }
        }
    }

    #[test]
    fn request__carries_the_operation() {
        let list = segments(&[8]);
        let build = |operation: &SendOperation<'_>| {
            build_request(9, operation, &list, SendFlags::default(), 0).unwrap().0
        };
        let request = build(&SendOperation::SendImmediate(0x0102_0304));
        assert_eq!(request.opcode, abi::WR_SEND_WITH_IMM);
        assert_eq!(request.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        let request = build(&SendOperation::SendInvalidate(0x55));
        assert_eq!((request.opcode, request.imm_data), (abi::WR_SEND_WITH_INV, 0x55));
        for (operation, opcode) in [(WRITE, abi::WR_RDMA_WRITE), (READ, abi::WR_RDMA_READ)] {
            let request = build(&operation);
            // SAFETY: the opcode selects this union member.
            let to = unsafe { request.wr.rdma };
            assert_eq!((request.opcode, to.remote_addr, to.rkey), (opcode, 0x1000, 7));
        }
        let request = build(&SWAP);
        // SAFETY: the opcode selects this union member.
        let to = unsafe { request.wr.atomic };
        assert_eq!(request.opcode, abi::WR_ATOMIC_CMP_AND_SWP);
        assert_eq!((to.remote_addr, to.rkey, to.compare_add, to.swap), (0x1000, 7, 1, 2));
        assert_eq!((request.wr_id, request.num_sge), (9, 1));
    }

    #[test]
    fn failure__tells_the_causes_apart() {
        let of = |status| failure(&Wc { status, ..Wc::default() });
        assert_eq!(of(0), None);
        assert_eq!(of(abi::WC_RETRY_EXC_ERR), Some(Failure::NoAnswer));
        assert_eq!(of(abi::WC_RNR_RETRY_EXC_ERR), Some(Failure::NoBuffer));
        assert_eq!(of(abi::WC_WR_FLUSH_ERR), Some(Failure::Flushed));
        assert_eq!(of(1000), Some(Failure::Other(1000)));
    }
}
