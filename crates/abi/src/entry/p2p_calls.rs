//! What `MPI_Send` and `MPI_Isend` differ in, and `MPI_Recv` and `MPI_Irecv`: all else is written once for both.
//!
//! A call is named by its last argument: nothing, the status, or the variable for the request.
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::p2p::{finish, finish_request};
use core::convert::Infallible;
use core::ffi::c_int;
use fastpath_mpi::Result;
use fastpath_mpi::common::status::Status;
use fastpath_mpi::objects::arguments::{Args, Mode};
use fastpath_mpi::p2p::request;
use fastpath_mpi::p2p::slow;
use fastpath_mpi::p2p::{self, Immediate, ImmediateRecv, Posting};
use fastpath_mpi::tool::traced;

/// The last argument of `MPI_Send`.
#[derive(Clone, Copy)]
pub(super) struct NoRequest;

/// The last argument of a send. Each function asks of its caller what the standard asks of the program.
pub(super) trait SendCall: Copy {
    const NAME: &'static str;

    /// Whether the immediate path may store through it.
    fn is_given(self) -> bool;

    /// [`p2p::try_send`], which declines where nothing may be stored.
    unsafe fn try_send<const WAY: u8>(self, args: Args) -> Immediate;

    /// [`slow::send_with_lock`], which declines there too.
    unsafe fn send_with_lock(self, args: Args) -> Option<Result<()>>;

    /// Stores what a send gives that is complete.
    unsafe fn complete(self);

    /// The send as the arguments say, with all checks.
    unsafe fn start(self, args: Args) -> Result<()>;

    /// The code of a result; an error goes to the communicator's handler.
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
        unsafe { slow::send_with_lock::<false>(args, true) }
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
            true => unsafe { slow::send_with_lock::<true>(args, true) },
            false => None,
        }
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Isend
    unsafe fn complete(self) {
        // SAFETY: ARGUMENTS; `is_given` has seen that it is not null.
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

/// The last argument of a receive. Each function asks of its caller what the standard asks of the program.
pub(super) trait RecvCall: Copy {
    /// A receive whose message is not there, as far as the immediate path has come with it.
    type Posting: Copy;

    /// The receive where its message is there and nothing stands before it.
    unsafe fn try_recv<const WAY: u8>(self, args: Args) -> ImmediateRecv<Self::Posting>;

    /// Posts what [`RecvCall::try_recv`] has found to be posted.
    unsafe fn post<const WAY: u8>(
        self, posting: Self::Posting, buf: *mut u8, tag: c_int, comm: usize,
    );

    /// The receive where messages or receives of its source wait already; false where it is declined.
    unsafe fn try_recv_queued<const WAY: u8>(self, args: Args) -> bool;

    /// The receive as the arguments say, with all checks; the code of its result.
    unsafe fn run(self, args: Args) -> c_int;

    /// All short ways, one after the other; false where they decline.
    #[inline]
    unsafe fn recv_shortly<const WAY: u8>(self, args: Args) -> bool {
        // SAFETY: ARGUMENTS; taken is what was copied.
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
    /// What blocks is not posted by the immediate path.
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
        // SAFETY: ARGUMENTS; `try_recv` has just found the room, and that this is not null.
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
