//! Point-to-point communication: the immediate path of send, receive and sendrecv.
//!
//! Each function first tries the whole operation with nothing but the hot tables, one endpoint and
//! the matcher's counters (see `hot`); whatever does not fit goes to `p2p_slow`, which checks every
//! argument and explains what is wrong.
#![allow(unsafe_code)]

use crate::consts::*;
use crate::error::Result;
use crate::hot;
use crate::p2p_slow as slow;
use crate::status::Status;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::worker::SHORT_LIMIT;
use fastpath_transport::Post;

const _: () = assert!(ANY_TAG == MPI_ANY_TAG);

/// Largest message that goes by the immediate path through one transport buffer, in bytes.
const BUFFERED_LIMIT: u64 = 8 * 1024;

/// How a send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When the buffer may be reused.
    Standard,
    /// When the receive has matched.
    Synchronous,
    /// As standard; the program promises that the receive is posted.
    Ready,
    /// At once: the library copies the message into the attached buffer.
    Buffered,
}

/// The arguments of a send or a receive as the program gave them. `peer` is destination or source.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// First element's address.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Handle of the datatype.
    pub datatype: usize,
    /// Rank of the other side.
    pub peer: i32,
    /// Tag.
    pub tag: i32,
    /// Handle of the communicator.
    pub comm: usize,
}

/// Sends a short contiguous message at once, or does nothing and returns false.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline]
pub(crate) unsafe fn try_send(args: &Args) -> bool {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let bytes = (args.count as u64).wrapping_mul(datatype.size);
    let fits = args.count as u64 <= BUFFERED_LIMIT && bytes <= BUFFERED_LIMIT;
    if comm.send_key == args.comm as u64
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && fits
        && args.tag >= 0
        && !args.buf.is_null()
    {
        // SAFETY: the table has an endpoint for each rank; below MPI_THREAD_MULTIPLE this is the
        // only thread inside MPI.
        unsafe {
            let endpoint = &mut **comm.endpoints.add(args.peer as usize);
            if bytes <= SHORT_LIMIT as u64 {
                endpoint.send_immediate(comm.own_key, args.tag, args.buf, bytes as usize) == Post::Done
            } else {
                send_buffered(endpoint, comm.own_key, args, bytes)
            }
        }
    } else {
        false
    }
}

#[inline(never)]
unsafe fn send_buffered(endpoint: &mut fastpath_protocol::Endpoint, key: u64, args: &Args, bytes: u64) -> bool {
    // SAFETY: the caller's.
    unsafe { endpoint.send_buffered(key, args.tag, args.buf, bytes as usize) == Post::Done }
}

/// Receives a message that is there already, or does nothing and returns false.
///
/// # Safety
/// The buffer is writable as count and datatype say; `status` is null or a status.
#[inline]
pub(crate) unsafe fn try_recv(args: &Args, status: *mut Status) -> bool {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let room = (args.count as u64).wrapping_mul(datatype.size);
    if comm.recv_key == args.comm as u64
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count as u64 <= i32::MAX as u64
        && (args.tag >= 0 || args.tag == ANY_TAG)
        && !args.buf.is_null()
    {
        // SAFETY: as in `try_send`; the tables have an entry for each rank.
        unsafe {
            let rank = args.peer as usize;
            let worker = &mut *hot::worker();
            if !worker.matcher.is_quiet(*comm.world.add(rank)) {
                return false;
            }
            let endpoint = &mut **comm.endpoints.add(rank);
            let key = comm.from_key + rank as u64;
            match endpoint.recv_immediate(key, args.tag, args.buf, room as usize) {
                Some(taken) => {
                    fill_status(status, args.peer, taken.tag, taken.len as i64);
                    true
                }
                None => false,
            }
        }
    } else {
        false
    }
}

/// Writes source, tag and count; `MPI_ERROR` belongs to calls that complete several operations.
///
/// # Safety
/// `status` is null (`MPI_STATUS_IGNORE`) or a status.
#[inline]
pub(crate) unsafe fn fill_status(status: *mut Status, source: i32, tag: i32, bytes: i64) {
    if !status.is_null() {
        // SAFETY: the caller's.
        unsafe {
            let error = (*status).error;
            status.write(Status::new(source, tag, error, bytes));
        }
    }
}

/// `MPI_Send`.
///
/// # Safety
/// As [`try_send`].
#[inline]
pub unsafe fn send(args: Args) -> Result {
    // SAFETY: the caller's.
    unsafe {
        if try_send(&args) {
            return Ok(());
        }
        slow::send("MPI_Send", args, Mode::Standard)
    }
}

/// `MPI_Recv`.
///
/// # Safety
/// As [`try_recv`].
#[inline]
pub unsafe fn recv(args: Args, status: *mut Status) -> Result {
    // SAFETY: the caller's.
    unsafe {
        if try_recv(&args, status) {
            return Ok(());
        }
        slow::recv("MPI_Recv", args, status)
    }
}

/// `MPI_Sendrecv`: both halves by the immediate path where they can, both started before either is
/// waited for where they cannot, so that no cycle of full rings can block it.
///
/// # Safety
/// As [`try_send`] and [`try_recv`]; the buffers do not overlap.
#[inline]
pub unsafe fn sendrecv(out: Args, into: Args, status: *mut Status) -> Result {
    // SAFETY: the caller's.
    unsafe {
        if into.comm == out.comm && slow::is_plain_recv(&into) && try_send(&out) {
            if try_recv(&into, status) {
                return Ok(());
            }
            return slow::recv("MPI_Sendrecv", into, status);
        }
        slow::sendrecv("MPI_Sendrecv", out, into, status)
    }
}

/// `MPI_Isend`: a message that leaves at once needs no request of its own.
///
/// # Safety
/// As [`try_send`], until the request completes; `request` is a variable.
#[inline]
pub unsafe fn isend(args: Args, request: *mut usize) -> Result {
    // SAFETY: the caller's.
    unsafe {
        if !request.is_null() && try_send(&args) {
            *request = crate::request::DONE_HANDLE;
            return Ok(());
        }
        slow::isend("MPI_Isend", args, Mode::Standard, request)
    }
}

/// `MPI_Irecv`: a message that is there is received now; its request holds the result.
///
/// # Safety
/// As [`try_recv`], until the request completes; `request` is a variable.
#[inline]
pub unsafe fn irecv(args: Args, request: *mut usize) -> Result {
    // SAFETY: the caller's.
    unsafe {
        if let Some(handle) = try_irecv(&args, request) {
            *request = handle;
            return Ok(());
        }
        slow::irecv("MPI_Irecv", args, request)
    }
}

/// Posts a receive from a named source with nothing but the hot tables, or does nothing.
#[inline]
unsafe fn try_irecv(args: &Args, request: *mut usize) -> Option<usize> {
    use fastpath_protocol::buffer::Buffer;
    use fastpath_protocol::matching::Want;
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let room = (args.count as u64).wrapping_mul(datatype.size);
    let simple = comm.recv_key == args.comm as u64
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count as u64 <= i32::MAX as u64
        && (args.tag >= 0 || args.tag == ANY_TAG)
        && !args.buf.is_null()
        && !request.is_null();
    if !simple {
        return None;
    }
    // SAFETY: as in `try_recv`.
    unsafe {
        let rank = args.peer as usize;
        let worker = &mut *hot::worker();
        let peer = *comm.world.add(rank);
        let key = comm.from_key + rank as u64;
        let want = Want { peer, tag: args.tag, key };
        let buffer = Buffer::contiguous(args.buf, room);
        let id = worker.recv_or_post(want, buffer, &mut **comm.endpoints.add(rank))?;
        let request = worker.requests.get(id);
        request.user = args.comm;
        Some(request.handle as usize)
    }
}
