//! Point-to-point communication (MPI-5.0 chapter 3).
#![allow(unsafe_code)]

use super::p2p_inside::{irecv_inside, isend_inside, recv_inside, send_inside};
use super::{clear, store};
use core::ffi::{c_int, c_void};
use fastpath_base::hint::hide;
use fastpath_mpi::buffered::{Owner, attach, flush};
use fastpath_mpi::consts::*;
use fastpath_mpi::errhandler::{Scope, raise};
use fastpath_mpi::hot::{self, OPEN};
use fastpath_mpi::p2p::{self, Args, Immediate, Irecv, Mode, Posting};
use fastpath_mpi::status::Status;
use fastpath_mpi::{Process, Result, p2p_slow as slow, request, traced};

#[inline]
pub(super) fn args(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    peer: c_int,
    tag: c_int,
    comm: usize,
) -> Args {
    Args {
        buf: buf.cast_mut().cast(),
        count,
        datatype,
        peer,
        tag,
        comm,
    }
}

/// The code of a result; an error goes to the communicator's handler.
pub(super) fn finish(result: Result<()>, name: &'static str, comm: usize) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::Comm(comm), name, error),
    }
}

/// As [`finish`]; a call that fails gives no request.
///
/// # Safety
/// `request` is null or a variable.
pub(super) unsafe fn finish_request(
    result: Result<()>,
    name: &'static str,
    comm: usize,
    request: *mut usize,
) -> c_int {
    if result.is_err() {
        // SAFETY: by the contract of this function.
        unsafe { clear(request, MPI_REQUEST_NULL) };
    }
    finish(result, name, comm)
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn send(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> c_int {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        if !hot::sends_openly(comm) {
            return send_inside(buf, count, datatype, dest, tag, comm);
        }
        match p2p::try_send::<false, OPEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => MPI_SUCCESS,
            Immediate::Declined => send_slow(buf, count, datatype, dest, tag, comm),
            Immediate::Wake(bytes) => send_wake(comm, dest, tag, bytes),
        }
    }
}

/// What the immediate path declined; the same arguments, so that it is a jump and not a call.
#[cold]
#[inline(never)]
pub(super) unsafe fn send_slow(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: as the caller.
    let result = unsafe {
        if slow::try_send_eager::<OPEN>(args) {
            return MPI_SUCCESS;
        }
        traced::send("MPI_Send", args)
            .unwrap_or_else(|| slow::send("MPI_Send", args, Mode::Standard))
    };
    finish(result, "MPI_Send", comm)
}

/// The message has left; its receiver must be woken.
#[cold]
#[inline(never)]
fn send_wake(comm: usize, dest: c_int, tag: c_int, bytes: u64) -> c_int {
    finish(slow::wake(comm, dest, tag, bytes), "MPI_Send", comm)
}

/// # Safety
/// The standard's.
pub unsafe fn ssend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::send(
            "MPI_Ssend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Synchronous,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn bsend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::send(
            "MPI_Bsend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Buffered,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn rsend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::send(
            "MPI_Rsend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Ready,
        )
    }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn recv(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    status: *mut Status,
) -> c_int {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        if !hot::receives_openly(comm) {
            return recv_inside(buf, count, datatype, source, tag, comm, status);
        }
        if p2p::try_recv::<OPEN>(args(buf, count, datatype, source, tag, comm), status) {
            return MPI_SUCCESS;
        }
        recv_queued(buf, count, datatype, source, tag, comm, status)
    }
}

/// What the immediate path declined, where the message waits in the unexpected queue; the same arguments, so that it is
/// a jump and not a call.
#[cold]
#[inline(never)]
unsafe fn recv_queued(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    status: *mut Status,
) -> c_int {
    // SAFETY: as the caller.
    unsafe {
        if p2p::try_recv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm), status) {
            return MPI_SUCCESS;
        }
        recv_slow(buf, count, datatype, source, tag, comm, status)
    }
}

/// What the short ways declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn recv_slow(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    status: *mut Status,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: as the caller.
    let result = unsafe {
        match traced::recv("MPI_Recv", args, status) {
            true => Ok(()),
            false => slow::recv("MPI_Recv", args, status),
        }
    };
    finish(result, "MPI_Recv", comm)
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn isend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        if request.is_null() {
            return isend_slow(buf, count, datatype, dest, tag, comm, request);
        }
        if !hot::sends_openly(comm) {
            return isend_inside(buf, count, datatype, dest, tag, comm, request);
        }
        match p2p::try_send::<true, OPEN>(args(buf, count, datatype, dest, tag, comm)) {
            Immediate::Done => {
                *request = request::DONE_HANDLE;
                MPI_SUCCESS
            }
            Immediate::Declined => isend_slow(buf, count, datatype, dest, tag, comm, request),
            Immediate::Wake(bytes) => isend_wake(comm, dest, tag, bytes, request),
        }
    }
}

/// What the immediate path declined; the same arguments, so that it is a jump and not a call.
#[cold]
#[inline(never)]
pub(super) unsafe fn isend_slow(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, dest, tag, comm);
    // SAFETY: as the caller.
    let result = unsafe {
        if !request.is_null() && slow::try_send_eager::<OPEN>(args) {
            *request = request::DONE_HANDLE;
            return MPI_SUCCESS;
        }
        let sent = match request.is_null() {
            false => traced::send("MPI_Isend", args),
            true => None,
        };
        match sent {
            Some(result) => {
                *request = request::DONE_HANDLE;
                result
            }
            None => slow::isend("MPI_Isend", args, Mode::Standard, request),
        }
    };
    // SAFETY: as the caller.
    unsafe { finish_request(result, "MPI_Isend", comm, request) }
}

/// As [`send_wake`], with a request.
#[cold]
#[inline(never)]
unsafe fn isend_wake(
    comm: usize,
    dest: c_int,
    tag: c_int,
    bytes: u64,
    request: *mut usize,
) -> c_int {
    // SAFETY: as the caller, which has seen that `request` is not null.
    unsafe {
        *request = request::DONE_HANDLE;
        let result = slow::wake(comm, dest, tag, bytes);
        finish_request(result, "MPI_Isend", comm, request)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn issend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::isend(
            "MPI_Issend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Synchronous,
            request,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn ibsend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::isend(
            "MPI_Ibsend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Buffered,
            request,
        )
    }
}

/// # Safety
/// The standard's.
pub unsafe fn irsend(
    buf: *const c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        slow::isend(
            "MPI_Irsend",
            args(buf, count, datatype, dest, tag, comm),
            Mode::Ready,
            request,
        )
    }
}

/// # Safety
/// The standard's.
#[inline(always)] // `fastpath bench instructions` counts it
pub unsafe fn irecv(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        match p2p::try_irecv::<OPEN>(args(buf, count, datatype, source, tag, comm), request) {
            Irecv::Done => MPI_SUCCESS,
            Irecv::Post(Posting { key, room }) => {
                irecv_post(buf, room, key, source, tag, comm, request)
            }
            Irecv::Declined => irecv_queued(buf, count, datatype, source, tag, comm, request),
        }
    }
}

/// Posts a receive whose message is not there. As many arguments in the same registers, so that it is a jump and
/// neither half saves registers for the other.
#[inline(never)]
unsafe fn irecv_post(
    buf: *mut c_void,
    room: u64,
    key: u64,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: `try_irecv` has just found the room; buffer and request are the user's, as for `MPI_Irecv`.
    unsafe {
        *request = p2p::post_irecv::<OPEN>(Posting { key, room }, buf.cast(), source, tag, comm);
    }
    // The compiler must not know the value: it would put it in the caller, and the jump would be a call.
    hide(MPI_SUCCESS)
}

/// What the immediate path declined, where messages wait in the unexpected queue; the same arguments, so that it is a
/// jump and not a call.
#[cold]
#[inline(never)]
unsafe fn irecv_queued(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    // SAFETY: as the caller.
    unsafe {
        if !hot::receives_openly(comm) {
            return irecv_inside(buf, count, datatype, source, tag, comm, request);
        }
        if p2p::try_irecv_queued::<OPEN>(args(buf, count, datatype, source, tag, comm), request) {
            return MPI_SUCCESS;
        }
        irecv_slow(buf, count, datatype, source, tag, comm, request)
    }
}

/// What the short ways declined.
#[cold]
#[inline(never)]
pub(super) unsafe fn irecv_slow(
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    source: c_int,
    tag: c_int,
    comm: usize,
    request: *mut usize,
) -> c_int {
    let args = args(buf, count, datatype, source, tag, comm);
    // SAFETY: as the caller.
    let result = unsafe { slow::irecv("MPI_Irecv", args, request) };
    // SAFETY: as the caller.
    unsafe { finish_request(result, "MPI_Irecv", comm, request) }
}

/// # Safety
/// The standard's.
pub unsafe fn sendrecv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    source: c_int,
    recvtag: c_int,
    comm: usize,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        let out = args(sendbuf, sendcount, sendtype, dest, sendtag, comm);
        let into = args(recvbuf, recvcount, recvtype, source, recvtag, comm);
        slow::sendrecv("MPI_Sendrecv", out, into, status)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn sendrecv_replace(
    p: &Process,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: usize,
    status: *mut Status,
) -> Result<()> {
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe {
        let out = args(buf, count, datatype, dest, sendtag, comm);
        let into = args(buf, count, datatype, source, recvtag, comm);
        slow::sendrecv_replace(p, out, into, status)
    }
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_attach(p: &Process, buffer: *mut c_void, size: i64) -> Result<()> {
    attach(p, Owner::Process, buffer as usize, size)
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_detach<C: super::Count>(
    p: &Process,
    buffer_addr: *mut c_void,
    size: *mut C,
) -> Result<()> {
    // SAFETY: the caller's variables.
    unsafe { super::buffer::detach_into(p, Owner::Process, buffer_addr, size) }
}

/// # Safety
/// The standard's.
pub unsafe fn buffer_flush(p: &Process) -> Result<()> {
    flush(p, Owner::Process)
}

/// # Safety
/// The standard's.
pub unsafe fn isendrecv(
    p: &Process,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: usize,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: usize,
    source: c_int,
    recvtag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    let out = args(sendbuf, sendcount, sendtype, dest, sendtag, comm);
    let into = args(recvbuf, recvcount, recvtype, source, recvtag, comm);
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe { store(request, request::isendrecv(p, out, into, None)?) }
}

/// # Safety
/// The standard's.
pub unsafe fn isendrecv_replace(
    p: &Process,
    buf: *mut c_void,
    count: i64,
    datatype: usize,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: usize,
    request: *mut usize,
) -> Result<()> {
    let out = args(buf, count, datatype, dest, sendtag, comm);
    let into = args(buf, count, datatype, source, recvtag, comm);
    // SAFETY: the caller keeps the standard's rules for buffers and variables.
    unsafe { store(request, slow::isendrecv_replace(p, out, into)?) }
}
