//! Point-to-point communication: the immediate path of send, receive and sendrecv.
//!
//! Each function first tries the whole operation with nothing but the hot tables, one endpoint and
//! the matcher's counters (see `hot`); whatever does not fit goes to `slow`, which checks every
//! argument and explains what is wrong.
//!
//! **USER'S BUFFER.** A buffer is readable for a send and writable for a receive, as count and datatype say, until the
//! call returns, or of a started operation until its request completes. `status` and `request` are null or variables of
//! their kind. Whoever calls an entry point of MPI promises this, and each function here asks the same of its caller.
#![allow(unsafe_code)]

pub mod buffered;
pub mod channel;
pub mod partitioned;
pub mod probe;
pub mod request;
pub mod slow;
pub(crate) mod word_exchange;

use crate::common::consts::*;
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::objects::datatype::is_memory;
use crate::objects::hot;
use fastpath_base::hint::hide;
use fastpath_protocol::matching::{ANY_PEER, Want};
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::worker::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, Fault, Request};
use fastpath_transport::Post;

const _: () = assert!(ANY_TAG == MPI_ANY_TAG);

/// Handle of the request of every send that was done at once: the first of the pool, never freed.
pub const DONE_HANDLE: usize = 1 << 30 | 4096;

/// What an immediate operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    /// All of it.
    Done,
    /// All of it, but the peer sleeps and must be woken. With the bytes of the message, so that who wakes it needs no
    /// other argument of the call, which would have to be kept in registers until then.
    Wake(u64),
    /// Nothing.
    Declined,
}

/// Sends a message that fits a slot, or does nothing. Straight code without a call. With `MORE` others are expected to
/// follow at once, as nonblocking sends do; `WAY` says where the tables show the communicator (`hot::OPEN`).
/// From `hot::FURTHER` on the caller has seen it.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send
pub unsafe fn try_send<const MORE: bool, const WAY: u8>(args: Args) -> Immediate {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
    let datatype = hot::datatype(args.datatype);
    let bytes = (args.count as u64).wrapping_mul(datatype.size);
    if (WAY >= hot::FURTHER || comm.send_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        // Elements have 1 to 2^31 - 1 bytes: of such a count the product is exact, and below zero it is beyond every
        // limit. Where the count came as an int the first is no instruction, where nobody knows the second is shorter.
        && match WAY {
            hot::OPEN | hot::SEEN => args.count == args.count as i32 as i64,
            _ => args.count as u64 <= SHORT_LIMIT as u64,
        }
        && bytes <= SHORT_LIMIT as u64
        && args.tag >= 0
        && is_memory(args.buf)
    {
        // SAFETY: the table has an endpoint for each rank; this is the only thread inside MPI: below
        // MPI_THREAD_MULTIPLE always, and there the tables hide from who has not taken the lock.
        let post = unsafe {
            let endpoint = &mut **comm.endpoints.add(args.peer as usize);
            let post = endpoint.send_immediate(comm.own_key, args.tag, args.buf, bytes as usize);
            if MORE && post == Post::Done {
                endpoint.expect_more();
            }
            post
        };
        return match post {
            Post::Done => Immediate::Done,
            Post::Wake => Immediate::Wake(bytes),
            _ => Immediate::Declined,
        };
    }
    Immediate::Declined
}

/// A short message that was copied out of its slot, which is still to be taken.
#[derive(Clone, Copy)]
pub struct Copied(*mut Endpoint);

impl Copied {
    /// Takes it.
    ///
    /// # Safety
    /// It has just been copied, and not been taken.
    pub unsafe fn take(self) {
        // SAFETY: it has just been copied, by this function's contract; the endpoint of a communicator lives as long
        // as that.
        unsafe { (*self.0).take_short() };
    }

    /// Takes it, but for telling its sender; says whether [`Copied::tell`] must follow.
    ///
    /// # Safety
    /// As [`Copied::take`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    #[must_use]
    pub unsafe fn advance(self) -> bool {
        // SAFETY: as in `take`.
        unsafe { (*self.0).advance_short() }
    }

    /// Tells the sender how far its messages have been taken.
    ///
    /// # Safety
    /// [`Copied::advance`] has just asked for it.
    pub unsafe fn tell(self) {
        // SAFETY: as in `take`.
        unsafe { (*self.0).tell_taken() };
    }
}

/// Receives a message that is there already and fits a slot, but for the end: it is still to be taken. Or does nothing.
/// Straight code without a call.
///
/// # Safety
/// The buffer is writable as count and datatype say; `status` is null or a status.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv
pub unsafe fn try_copy<const WAY: u8>(args: Args, status: *mut Status) -> Option<Copied> {
    // SAFETY: USER'S BUFFER.
    unsafe {
        let (endpoint, key, room) = find_source::<WAY>(&args)?;
        let taken = (*endpoint).copy_short(key, args.tag, args.buf, room)?;
        fill_status(status, args.peer, taken.tag, taken.len as i64);
        Some(Copied(endpoint))
    }
}

/// Receives a short message where messages or receives of its source wait already, or does nothing: what [`try_copy`]
/// has declined because the source is not quiet.
///
/// # Safety
/// As [`try_copy`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
pub unsafe fn try_recv_queued<const WAY: u8>(args: Args, status: *mut Status) -> bool {
    let Some((want, room)) = named_want::<WAY>(&args) else {
        return false;
    };
    // SAFETY: USER'S BUFFER; as in `find_source`.
    unsafe {
        let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
        match (*hot::worker_of::<WAY>(comm)).recv_queued(want, args.buf, room) {
            Some(taken) => {
                fill_status(status, args.peer, taken.tag, taken.len as i64);
                true
            }
            None => false,
        }
    }
}

/// The same of [`try_irecv`]: completes or posts a receive.
///
/// # Safety
/// As [`try_irecv`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_unexpected
pub unsafe fn try_irecv_queued<const WAY: u8>(args: Args, request: *mut usize) -> bool {
    let Some((want, room)) = named_want::<WAY>(&args) else {
        return false;
    };
    // SAFETY: USER'S BUFFER; as in `find_source`.
    unsafe {
        let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
        let worker = &mut *hot::worker_of::<WAY>(comm);
        if request.is_null() || !worker.requests.has_free() {
            return false;
        }
        *request = match worker.recv_queued(want, args.buf, room) {
            Some(taken) => worker.finished_recv(args.peer, taken),
            None if worker.must_post(&want) => {
                worker.post_recv(want, args.buf, room as u64, args.comm)
            }
            None => return false,
        };
        true
    }
}

/// What a receive that names its source asks for, and its room, where the hot tables are enough for it.
#[inline(always)] // as `try_recv_queued`
pub(crate) fn named_want<const WAY: u8>(args: &Args) -> Option<(Want, usize)> {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
    let datatype = hot::datatype(args.datatype);
    let plain = comm.recv_key == hot::key::<WAY>(args.comm)
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count as u64 <= i32::MAX as u64
        && is_wanted_tag(args.tag)
        && is_memory(args.buf);
    if !plain {
        return None;
    }
    let rank = args.peer as usize;
    let want = Want {
        // SAFETY: the table has an entry for each rank.
        peer: unsafe { *comm.world.add(rank) },
        tag: args.tag,
        key: comm.from_key + rank as u64,
    };
    Some((want, (args.count as u64 * datatype.size) as usize))
}

/// Whether a receive may ask for a tag: one of 0 and above, or any.
#[inline(always)] // see `try_copy`
fn is_wanted_tag(tag: i32) -> bool {
    // Hidden: the second test stays behind the first one, which is enough for nearly all.
    tag >= 0 || hide(tag) == ANY_TAG
}

/// Endpoint, match key and room of a receive that names its source, if nothing stands before it. The room is below zero
/// (as an `isize`) where the count is.
#[inline(always)] // see `try_copy`
pub(crate) fn find_source<const WAY: u8>(args: &Args) -> Option<(*mut Endpoint, u64, usize)> {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
    let datatype = hot::datatype(args.datatype);
    let plain = (WAY >= hot::FURTHER || comm.recv_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        // As in `try_send`; below zero the room is too, and nothing fits.
        && args.count == args.count as i32 as i64
        && is_wanted_tag(args.tag)
        && is_memory(args.buf);
    if !plain {
        return None;
    }
    let rank = args.peer as usize;
    // SAFETY: the key matches, so MPI runs and there is a worker; the tables have an entry for each rank.
    unsafe {
        let endpoint = *comm.endpoints.add(rank);
        if !(*hot::worker_of::<WAY>(comm)).matcher.is_quiet_beside(endpoint) {
            return None;
        }
        let room = (args.count as u64).wrapping_mul(datatype.size);
        Some((endpoint, comm.from_key + rank as u64, room as usize))
    }
}

/// Writes source, tag and count; `MPI_ERROR` belongs to calls that complete several operations.
///
/// # Safety
/// `status` is null (`MPI_STATUS_IGNORE`) or a status.
#[inline(always)] // see `try_copy`
pub(crate) unsafe fn fill_status(status: *mut Status, source: i32, tag: i32, bytes: i64) {
    // SAFETY: USER'S BUFFER.
    if let Some(status) = unsafe { status.as_mut() } {
        status.source = source;
        status.tag = tag;
        status.set_bytes(bytes);
        status.set_cancelled(false);
    }
}

/// What became of an immediate receive.
pub enum ImmediateRecv<P = Posting> {
    /// The message was there, and the receive has completed. It is still to be taken.
    Done(Copied),
    /// It must be posted, by [`post_irecv`].
    Post(P),
    /// Nothing has happened.
    Declined,
}

/// A receive that nothing stands against but that its message is not there.
#[derive(Clone, Copy)]
pub struct Posting {
    /// Bytes of the buffer.
    pub room: u64,
    /// Match key.
    pub key: u64,
}

/// Completes a receive from a named source if its message is there.
///
/// # Safety
/// As [`try_copy`], until the request completes; `request` is null or a variable.
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
pub unsafe fn try_irecv<const WAY: u8>(args: Args, request: *mut usize) -> ImmediateRecv {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
    let datatype = hot::datatype(args.datatype);
    let plain = (WAY >= hot::FURTHER || comm.recv_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count == args.count as i32 as i64
        && is_wanted_tag(args.tag)
        // Not `&&`: what declines must pass on the pointer itself, not a null that the compiler has learnt of, or the
        // jump to it would be a call.
        && (is_memory(args.buf) & !request.is_null());
    if !plain {
        return ImmediateRecv::Declined;
    }
    // SAFETY: as in `find_source`.
    unsafe {
        let rank = args.peer as usize;
        let endpoint = *comm.endpoints.add(rank);
        let Some(look) = (*hot::worker_of::<WAY>(comm)).may_recv(endpoint) else {
            return ImmediateRecv::Declined;
        };
        let posting = Posting {
            room: (args.count as u64).wrapping_mul(datatype.size),
            key: comm.from_key + rank as u64,
        };
        if (posting.room as i64) < 0 {
            return ImmediateRecv::Declined; // as the count is
        }
        if look {
            let taken =
                (*endpoint).copy_short(posting.key, args.tag, args.buf, posting.room as usize);
            if let Some(taken) = taken {
                *request = (*hot::worker_of::<WAY>(comm)).finished_recv(args.peer, taken);
                return ImmediateRecv::Done(Copied(endpoint));
            }
        }
        ImmediateRecv::Post(posting)
    }
}

/// Posts what [`try_irecv`] has found to be posted, and returns the request's handle.
///
/// # Safety
/// As [`try_irecv`], which has just been called with the same arguments.
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
pub unsafe fn post_irecv<const WAY: u8>(
    posting: Posting, buf: *mut u8, tag: i32, comm: usize,
) -> usize {
    // SAFETY: as in `find_source`.
    unsafe {
        let rank = posting.key - hot::comm(comm).from_key;
        let want = Want { peer: *hot::comm(comm).world.add(rank as usize), tag, key: posting.key };
        let entry = hot::entry::<WAY>(comm, rank as i32, tag);
        (*hot::worker_of::<WAY>(entry)).post_recv(want, buf, posting.room, comm)
    }
}

/// Source of a receive that has ended, as a rank of its communicator.
pub(crate) fn source_of(request: &Request) -> i32 {
    match request.peer {
        // No message has matched it.
        ANY_PEER if request.fault == Fault::SourceGone => MPI_ANY_SOURCE,
        _ => request.source,
    }
}
