//! Point-to-point communication: the immediate path of send, receive and sendrecv.
//!
//! Each function first tries the whole operation with only the hot tables, one endpoint and the matcher's counters (see
//! `hot`). Other cases go to `slow`, which checks every argument and reports errors.
//!
//! **USER'S BUFFER.** A buffer is readable for a send and writable for a receive, for its count and datatype. It stays
//! so until the call returns, or until the request of a started operation completes. `status` and `request` are null or
//! variables of their type. The caller of an MPI entry point promises this, and so does the caller of each function
//! here.
//!
//! **TABLES.** If the key of an entry matches a handle, MPI runs and the entry's worker lives. The entry then has an
//! endpoint and a world rank for each rank, and the calling thread is alone inside that worker. Below
//! MPI_THREAD_MULTIPLE a calling thread is always alone. At MPI_THREAD_MULTIPLE entries are hidden from threads without
//! the worker's lock.
#![allow(unsafe_code)]

pub mod buffered;
pub mod channel;
pub(crate) mod fault;
pub mod partitioned;
pub mod probe;
pub mod request;
pub mod slow;
pub(crate) mod staged;
pub(crate) mod word_exchange;

use crate::common::consts::*;
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::objects::datatype::is_memory;
use crate::objects::hot;
use fastpath_base::hint::hide;
use fastpath_protocol::matching::{ANY_PEER, MatchCriteria};
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::wire::SHORT_LIMIT;
use fastpath_protocol::{Endpoint, Fault, Request};
use fastpath_transport::Post;

const _: () = assert!(ANY_TAG == MPI_ANY_TAG);

/// Handle of the request of every send that completed immediately: the first of the pool, never freed.
pub const DONE_HANDLE: usize = 1 << 30 | 4096;

/// Outcome of an immediate operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    /// The operation is complete.
    Done,
    /// The operation is complete, but the peer sleeps and must be woken. The value is the bytes of the message, so the
    /// wake-up needs no argument of the call. Such arguments would occupy registers until then.
    Wake(u64),
    /// Nothing was done; the caller tries another path.
    Declined,
}

/// Sends a message if it fits a slot; otherwise returns [`Immediate::Declined`]. Calls no other function. With `MORE`,
/// further messages are expected immediately, as with nonblocking sends. `WAY` selects the key that the communicator's
/// entry in the tables must have (see `hot::OPEN`). With `hot::SEEN`, the caller has already compared the key.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(always)] // `fastpath bench instructions` counts MPI_Send
pub unsafe fn try_send<const MORE: bool, const WAY: u8>(args: Args) -> Immediate {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let bytes = (args.count as u64).wrapping_mul(datatype.size);
    if (WAY == hot::SEEN || comm.send_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        // Elements have 1 to 2^31 - 1 bytes. For an int count the product is exact, and for a negative one it exceeds
        // every limit. If the compiler knows that the count is an int, the first form of the comparison takes no
        // instruction. Otherwise the second form is shorter.
        && match WAY {
            hot::OPEN | hot::SEEN => args.count == args.count as i32 as i64,
            _ => args.count as u64 <= SHORT_LIMIT as u64,
        }
        && bytes <= SHORT_LIMIT as u64
        && args.tag >= 0
        && is_memory(args.buf)
    {
        // SAFETY: TABLES and USER'S BUFFER; the rank is below the entry's size.
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

/// Short message that was copied from its slot, which must still be freed.
#[derive(Clone, Copy)]
pub struct CopiedSlot(*mut Endpoint);

impl CopiedSlot {
    /// Frees the slot.
    ///
    /// # Safety
    /// The message has just been copied, and `self` has not been used.
    pub unsafe fn take(self) {
        // SAFETY: the message has just been copied, by contract. The endpoint lives as long as its communicator.
        unsafe { (*self.0).take_short() };
    }

    /// Frees the slot without publishing that to the sender. Returns whether [`CopiedSlot::tell`] must follow.
    ///
    /// # Safety
    /// See [`CopiedSlot::take`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    #[must_use]
    pub unsafe fn advance(self) -> bool {
        // SAFETY: the message has just been copied, by contract. The endpoint lives as long as its communicator.
        unsafe { (*self.0).advance_short() }
    }

    /// Publishes the number of freed slots to the sender.
    ///
    /// # Safety
    /// [`CopiedSlot::advance`] has just returned true.
    pub unsafe fn tell(self) {
        // SAFETY: the endpoint lives as long as its communicator, which the caller is using.
        unsafe { (*self.0).tell_taken() };
    }
}

/// Copies a message that has arrived and fits a slot, and returns the slot, which must be freed; otherwise `None`.
///
/// # Safety
/// See USER'S BUFFER.
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv
pub unsafe fn try_copy<const WAY: u8>(args: Args, status: *mut Status) -> Option<CopiedSlot> {
    // SAFETY: USER'S BUFFER and TABLES: the endpoint is from the table.
    unsafe {
        let (endpoint, key, room) = find_source::<WAY>(&args)?;
        let taken = (*endpoint).copy_short(key, args.tag, args.buf, room)?;
        fill_status(status, args.peer, taken.tag, taken.len as i64);
        Some(CopiedSlot(endpoint))
    }
}

/// Receives a short message from a named source, even if earlier messages of this source or receives from it wait.
/// [`try_copy`] declines such a source. Returns false if nothing was done.
///
/// # Safety
/// See [`try_copy`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
pub unsafe fn try_recv_queued<const WAY: u8>(args: Args, status: *mut Status) -> bool {
    let Some((want, room)) = named_want::<WAY>(&args) else {
        return false;
    };
    // SAFETY: USER'S BUFFER, and TABLES: `named_want` has compared the key.
    unsafe {
        match (*hot::worker_of::<WAY>()).recv_queued(want, args.buf, room) {
            Some(taken) => {
                fill_status(status, args.peer, taken.tag, taken.len as i64);
                true
            }
            None => false,
        }
    }
}

/// Completes or posts a receive that [`try_irecv`] declines because earlier messages or receives of its source wait.
/// Returns false, without effect, if the hot tables do not suffice.
///
/// # Safety
/// See [`try_irecv`].
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_unexpected
pub unsafe fn try_irecv_queued<const WAY: u8>(args: Args, request: *mut usize) -> bool {
    let Some((want, room)) = named_want::<WAY>(&args) else {
        return false;
    };
    // SAFETY: USER'S BUFFER, and TABLES: `named_want` has compared the key.
    unsafe {
        let worker = &mut *hot::worker_of::<WAY>();
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

/// Returns match data and buffer size of a receive with a named source; `None` if the hot tables do not suffice.
#[inline(always)] // see `try_recv_queued`
pub(crate) fn named_want<const WAY: u8>(args: &Args) -> Option<(MatchCriteria, usize)> {
    let comm = hot::comm(args.comm);
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
    let want = MatchCriteria {
        // SAFETY: TABLES; the key was compared, and the rank is below the entry's size.
        peer: unsafe { *comm.world.add(rank) },
        tag: args.tag,
        key: comm.from_key + rank as u64,
    };
    Some((want, (args.count as u64 * datatype.size) as usize))
}

/// Returns whether a receive may have `tag`: 0 and above, or `MPI_ANY_TAG`.
#[inline(always)] // see `try_copy`
fn is_wanted_tag(tag: i32) -> bool {
    // `hide` stops the compiler from merging the tests. The first test nearly always suffices.
    tag >= 0 || hide(tag) == ANY_TAG
}

/// Returns endpoint, match key and buffer size of a receive with a named source; `None` if a message or receive
/// precedes it. The size is negative (as an `isize`) if the count is negative.
#[inline(always)] // see `try_copy`
pub(crate) fn find_source<const WAY: u8>(args: &Args) -> Option<(*mut Endpoint, u64, usize)> {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let plain = (WAY == hot::SEEN || comm.recv_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        // For an int count the size is exact. A negative count gives a negative size, into which nothing fits.
        && args.count == args.count as i32 as i64
        && is_wanted_tag(args.tag)
        && is_memory(args.buf);
    if !plain {
        return None;
    }
    let rank = args.peer as usize;
    // SAFETY: TABLES; the key was compared, and the rank is below the entry's size.
    unsafe {
        let endpoint = *comm.endpoints.add(rank);
        if !(*hot::worker_of::<WAY>()).matcher.is_quiet_beside(endpoint) {
            return None;
        }
        let room = (args.count as u64).wrapping_mul(datatype.size);
        Some((endpoint, comm.from_key + rank as u64, room as usize))
    }
}

/// Writes source, tag and bytes to a status. Only calls that complete several operations also write `MPI_ERROR`.
/// Safety: `status` is null (`MPI_STATUS_IGNORE`) or a status.
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

/// Outcome of an immediate receive.
pub enum ImmediateRecv<P = Posting> {
    /// The message has arrived, and the receive is complete. The slot must still be freed.
    Done(CopiedSlot),
    /// The receive must be posted, by [`post_irecv`].
    Post(P),
    /// Nothing was done; the caller tries another path.
    Declined,
}

/// Receive that can be posted: its message has not arrived, and no earlier message or receive waits.
#[derive(Clone, Copy)]
pub struct Posting {
    /// Size of the buffer, in bytes.
    pub room: u64,
    /// Match key.
    pub key: u64,
}

/// Completes a receive from a named source if the message has arrived. Otherwise tells whether it can be posted.
///
/// # Safety
/// See [`try_copy`]. The buffer is in use until the request completes.
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
pub unsafe fn try_irecv<const WAY: u8>(args: Args, request: *mut usize) -> ImmediateRecv {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let plain = (WAY == hot::SEEN || comm.recv_key == hot::key::<WAY>(args.comm))
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count == args.count as i32 as i64
        && is_wanted_tag(args.tag)
        // `&` instead of `&&`: a declined call must pass on `request` itself. If the compiler knew that `request` is
        // null, the jump to the declined path would become a call.
        && (is_memory(args.buf) & !request.is_null());
    if !plain {
        return ImmediateRecv::Declined;
    }
    // SAFETY: USER'S BUFFER, and TABLES: the key was compared, and the rank is below the entry's size.
    unsafe {
        let rank = args.peer as usize;
        let endpoint = *comm.endpoints.add(rank);
        let Some(look) = (*hot::worker_of::<WAY>()).may_recv(endpoint) else {
            return ImmediateRecv::Declined;
        };
        let posting = Posting {
            room: (args.count as u64).wrapping_mul(datatype.size),
            key: comm.from_key + rank as u64,
        };
        if (posting.room as i64) < 0 {
            return ImmediateRecv::Declined; // the count is negative
        }
        if look {
            let taken =
                (*endpoint).copy_short(posting.key, args.tag, args.buf, posting.room as usize);
            if let Some(taken) = taken {
                *request = (*hot::worker_of::<WAY>()).finished_recv(args.peer, taken);
                return ImmediateRecv::Done(CopiedSlot(endpoint));
            }
        }
        ImmediateRecv::Post(posting)
    }
}

/// Posts the receive for which [`try_irecv`] returned `posting`, and returns the request's handle.
///
/// # Safety
/// See [`try_irecv`], which has just been called with equal arguments.
#[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
pub unsafe fn post_irecv<const WAY: u8>(
    posting: Posting, buf: *mut u8, tag: i32, comm: usize,
) -> usize {
    // SAFETY: USER'S BUFFER, and TABLES: `try_irecv` has compared the key.
    unsafe {
        let rank = posting.key - hot::comm(comm).from_key;
        let want = MatchCriteria {
            peer: *hot::comm(comm).world.add(rank as usize),
            tag,
            key: posting.key,
        };
        (*hot::worker_of::<WAY>()).post_recv(want, buf, posting.room, comm)
    }
}

/// Returns the source of a receive that has ended, as a rank of its communicator.
pub(crate) fn source_of(request: &Request) -> i32 {
    match request.peer {
        // All possible senders have left, so the receive has no message and no source.
        ANY_PEER if request.fault == Fault::SourceGone => MPI_ANY_SOURCE,
        _ => request.source,
    }
}
