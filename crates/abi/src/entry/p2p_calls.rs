//! Differences between `MPI_Send` and `MPI_Isend`, and between `MPI_Recv` and `MPI_Irecv`. Their common part is in
//! `p2p_immediate`.
//!
//! The type of the last C argument identifies the call: it is absent, the status, or the variable for the request.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::clear;
use core::convert::Infallible;
use core::ffi::c_int;
use fastpath_mpi::Result;
use fastpath_mpi::common::consts::{MPI_REQUEST_NULL, MPI_SUCCESS};
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::arguments::{Args, Mode};
use fastpath_mpi::p2p::request;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::p2p::{self, Immediate, ImmediateRecv, Posting};
use fastpath_mpi::process::errhandler::{Scope, raise};
use fastpath_mpi::tool::traced;

/// Returns the code of a result. An error is raised on the communicator.
fn finish(result: Result<()>, name: &'static str, comm: usize) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(None, Scope::Comm(comm), name, error),
    }
}

/// Returns the code of a result like [`finish`]. An error sets `request` to null.
///
/// # Safety
/// `request` is null or a variable.
unsafe fn finish_request(
    result: Result<()>, name: &'static str, comm: usize, request: *mut usize,
) -> c_int {
    if result.is_err() {
        // SAFETY: ARGUMENTS.
        unsafe { clear(request, MPI_REQUEST_NULL) };
    }
    finish(result, name, comm)
}

#[derive(Clone, Copy)]
pub(super) struct NoRequest;

/// Last argument of a send. ARGUMENTS holds for every function.
pub(super) trait SendCall: Copy {
    const NAME: &'static str;

    /// Returns whether the variable for the result exists, so that the immediate path may store it.
    fn is_given(self) -> bool;

    /// Sends by [`p2p::try_send`]. Declines, which sends nothing, if there is no variable for the result.
    unsafe fn try_send<const WAY: u8>(self, args: Args) -> Immediate;

    /// Sends by [`slow::send_with_lock`]. Returns `None`, and sends nothing, if there is no variable for the result.
    unsafe fn send_with_lock(self, args: Args) -> Option<Result<()>>;

    unsafe fn complete(self);

    unsafe fn start(self, args: Args) -> Result<()>;

    /// Returns the code of a result. An error is raised on the communicator.
    unsafe fn finish(self, result: Result<()>, comm: usize) -> c_int;
}

impl SendCall for NoRequest {
    const NAME: &'static str = "MPI_Send";

    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    fn is_given(self) -> bool {
        true
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    unsafe fn try_send<const WAY: u8>(self, args: Args) -> Immediate {
        // SAFETY: ARGUMENTS.
        unsafe { p2p::try_send::<false, WAY>(args) }
    }

    unsafe fn send_with_lock(self, args: Args) -> Option<Result<()>> {
        // SAFETY: ARGUMENTS.
        unsafe { slow::send_with_lock::<false>(args, true, || ()) }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Send
    unsafe fn complete(self) {}

    unsafe fn start(self, args: Args) -> Result<()> {
        // SAFETY: ARGUMENTS.
        unsafe { slow::send(Self::NAME, args, Mode::Standard) }
    }

    unsafe fn finish(self, result: Result<()>, comm: usize) -> c_int {
        finish(result, Self::NAME, comm)
    }
}

impl SendCall for *mut usize {
    const NAME: &'static str = "MPI_Isend";

    #[inline(always)] // `fastpath bench instructions` counts MPI_Isend
    fn is_given(self) -> bool {
        !self.is_null()
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Isend
    unsafe fn try_send<const WAY: u8>(self, args: Args) -> Immediate {
        match self.is_given() {
            // SAFETY: ARGUMENTS.
            true => unsafe { p2p::try_send::<true, WAY>(args) },
            false => Immediate::Declined,
        }
    }

    unsafe fn send_with_lock(self, args: Args) -> Option<Result<()>> {
        match self.is_given() {
            // SAFETY: ARGUMENTS.
            true => unsafe { slow::send_with_lock::<true>(args, true, || ()) },
            false => None,
        }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Isend
    unsafe fn complete(self) {
        // SAFETY: ARGUMENTS; `self` is not null, as `is_given` has checked.
        unsafe { *self = request::DONE_HANDLE };
    }

    unsafe fn start(self, args: Args) -> Result<()> {
        // SAFETY: ARGUMENTS.
        unsafe { slow::isend(Self::NAME, args, Mode::Standard, self) }
    }

    unsafe fn finish(self, result: Result<()>, comm: usize) -> c_int {
        // SAFETY: ARGUMENTS.
        unsafe { finish_request(result, Self::NAME, comm, self) }
    }
}

/// Last argument of a receive. ARGUMENTS holds for every function.
pub(super) trait RecvCall: Copy {
    /// Receive that the immediate path is about to post, because its message has not arrived.
    type Posting: Copy;

    /// Receives if the message has arrived and no other message or receive precedes it.
    unsafe fn try_recv<const WAY: u8>(self, args: Args) -> ImmediateRecv<Self::Posting>;

    /// Posts a receive that [`RecvCall::try_recv`] has prepared.
    unsafe fn post<const WAY: u8>(
        self, posting: Self::Posting, buf: *mut u8, tag: c_int, comm: usize,
    );

    /// Receives if messages or receives of the source are queued. Returns false if nothing was received.
    unsafe fn try_recv_queued<const WAY: u8>(self, args: Args) -> bool;

    /// Receives on the ordinary path, with all checks. Returns the code of the result.
    unsafe fn run(self, args: Args) -> c_int;

    /// Receives like [`RecvCall::run`]. A blocking receive first polls its source in the caller's frame.
    #[inline(always)] // `bench/arrival` counts MPI_Recv
    unsafe fn poll(self, args: Args) -> c_int {
        // SAFETY: ARGUMENTS.
        unsafe { self.run(args) }
    }

    /// Receives like [`RecvCall::poll`], and calls `leave`, which leaves the lock.
    #[inline(always)] // `bench/arrival` counts MPI_Recv at MPI_THREAD_MULTIPLE
    unsafe fn poll_inside(self, args: Args, leave: impl FnOnce()) -> c_int {
        leave();
        // SAFETY: ARGUMENTS.
        unsafe { self.run(args) }
    }

    /// Tries all parts of the immediate path in turn. Returns false if all decline.
    #[inline]
    unsafe fn recv_shortly<const WAY: u8>(self, args: Args) -> bool {
        // SAFETY: ARGUMENTS; the message is taken only after its bytes were copied.
        unsafe {
            match self.try_recv::<WAY>(args) {
                ImmediateRecv::Done(copied) => copied.take(),
                ImmediateRecv::Post(posting) => {
                    self.post::<WAY>(posting, args.buf, args.tag, args.comm);
                }
                ImmediateRecv::Declined => return self.try_recv_queued::<WAY>(args),
            }
        }
        true
    }
}

impl RecvCall for *mut Status {
    /// This type has no value, because the immediate path posts no blocking receive.
    type Posting = Infallible;

    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv
    unsafe fn try_recv<const WAY: u8>(self, args: Args) -> ImmediateRecv<Infallible> {
        // SAFETY: ARGUMENTS.
        match unsafe { p2p::try_copy::<WAY>(args, self) } {
            Some(copied) => ImmediateRecv::Done(copied),
            None => ImmediateRecv::Declined,
        }
    }

    unsafe fn post<const WAY: u8>(self, posting: Infallible, _: *mut u8, _: c_int, _: usize) {
        match posting {}
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    unsafe fn try_recv_queued<const WAY: u8>(self, args: Args) -> bool {
        // SAFETY: ARGUMENTS.
        unsafe { p2p::try_recv_queued::<WAY>(args, self) }
    }

    unsafe fn run(self, args: Args) -> c_int {
        // SAFETY: ARGUMENTS.
        let result = unsafe {
            match traced::recv("MPI_Recv", args, self) {
                true => Ok(()),
                false => slow::recv("MPI_Recv", args, self),
            }
        };
        finish(result, "MPI_Recv", args.comm)
    }

    #[inline(always)] // `bench/arrival` counts MPI_Recv
    unsafe fn poll(self, args: Args) -> c_int {
        // SAFETY: ARGUMENTS.
        unsafe {
            if traced::recv("MPI_Recv", args, self) {
                return MPI_SUCCESS;
            }
            finish(slow::poll_recv::<false>("MPI_Recv", args, self), "MPI_Recv", args.comm)
        }
    }

    #[inline(always)] // `bench/arrival` counts MPI_Recv at MPI_THREAD_MULTIPLE
    unsafe fn poll_inside(self, args: Args, leave: impl FnOnce()) -> c_int {
        // SAFETY: ARGUMENTS.
        let received = unsafe { slow::poll_recv_inside("MPI_Recv", args, self, leave) };
        finish(received, "MPI_Recv", args.comm)
    }
}

impl RecvCall for *mut usize {
    type Posting = Posting;

    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    unsafe fn try_recv<const WAY: u8>(self, args: Args) -> ImmediateRecv<Posting> {
        // SAFETY: ARGUMENTS.
        unsafe { p2p::try_irecv::<WAY>(args, self) }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    unsafe fn post<const WAY: u8>(self, posting: Posting, buf: *mut u8, tag: c_int, comm: usize) {
        // SAFETY: ARGUMENTS; `try_recv` has checked that `self` is not null and a receive can be posted.
        unsafe { *self = p2p::post_irecv::<WAY>(posting, buf, tag, comm) };
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv_unexpected
    unsafe fn try_recv_queued<const WAY: u8>(self, args: Args) -> bool {
        // SAFETY: ARGUMENTS.
        unsafe { p2p::try_irecv_queued::<WAY>(args, self) }
    }

    unsafe fn run(self, args: Args) -> c_int {
        // SAFETY: ARGUMENTS.
        unsafe {
            let result = slow::irecv("MPI_Irecv", args, self);
            finish_request(result, "MPI_Irecv", args.comm, self)
        }
    }
}
