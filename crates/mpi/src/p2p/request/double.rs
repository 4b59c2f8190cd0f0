//! Send and receive under one request (MPI-5.0 section 3.11).
#![allow(unsafe_code)]

use super::{Operation, cancel, check_complete, collect, end_if_hopeless, make_operation, resolve};
use crate::common::consts::{MPI_PACKED, MPIX_ERR_PROC_FAILED, MPIX_ERR_PROC_FAILED_PENDING};
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::arguments::{Args, Mode};
use crate::p2p::slow;
use crate::process::Process;

/// `MPI_Isendrecv`: two requests that complete as one, with the status of the receive.
struct SendrecvRequest {
    send: usize,
    recv: usize,
    /// Send buffer of `MPI_Isendrecv_replace`; `None` for `MPI_Isendrecv`.
    _copy: Option<Box<[u8]>>,
}

impl Operation<Process> for SendrecvRequest {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        let both = [self.send, self.recv].into_iter().map(|handle| {
            let named = resolve(p, handle)?;
            end_if_hopeless(p, &named)?;
            check_complete(p, &named)
        });
        match both.collect::<Result<Vec<bool>>>() {
            Ok(done) if done == [true, true] => {}
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        }
        // SAFETY: both requests are in fields of `self`, so the pointers are to variables.
        let (sent, mut received) =
            unsafe { (collect(p, &mut self.send), collect(p, &mut self.recv)) };
        if let Err(error) = &received
            && error.code() == MPIX_ERR_PROC_FAILED_PENDING
            && cancel(p, self.recv).is_ok()
        {
            // The receive would remain active, but its request ends with this operation.
            // SAFETY: as above.
            let cancelled = unsafe { collect(p, &mut self.recv) };
            let error = Error::new(MPIX_ERR_PROC_FAILED, error.message());
            received = cancelled.and(Err(error));
        }
        Some(match (sent, received) {
            (Ok((_, None)), Ok((status, None))) => Ok(status),
            (Ok((_, Some(error))), _)
            | (_, Ok((_, Some(error))))
            | (Err(error), _)
            | (_, Err(error)) => Err(error),
        })
    }

    fn is_composed(&self) -> bool {
        true
    }

    fn cancel(&mut self, p: &Process) -> Result {
        cancel(p, self.recv)
    }
}

/// `MPI_Isendrecv`, or `MPI_Isendrecv_replace` with a `copy` to send from. Returns the request's handle.
///
/// # Safety
/// The buffers must be valid until the request completes.
pub unsafe fn isendrecv(
    p: &Process, out: Args, into: Args, copy: Option<Box<[u8]>>,
) -> Result<usize> {
    drop(slow::check_send(p, &out)?);
    if out.buf == into.buf {
        slow::refuse_alias(p, &out, &into)?;
    }
    // SAFETY: the buffers are valid until the request completes, by this function's contract.
    unsafe {
        let recv = slow::irecv_checked(p, &into)?;
        let send = slow::isend_checked(p, &out, Mode::Standard)?;
        make_operation(p, Box::new(SendrecvRequest { send, recv, _copy: copy }))
    }
}

/// `MPI_Isendrecv_replace`: see [`slow::sendrecv_replace`]. Returns the request's handle.
///
/// # Safety
/// See [`slow::sendrecv_replace`]. The buffer is in use until the request completes.
pub unsafe fn isendrecv_replace(p: &Process, out: Args, into: Args) -> Result<usize> {
    // SAFETY: the buffers are valid by contract. The copy moves into the request, but its bytes do not move.
    unsafe {
        let (mut copy, bytes) = slow::pack_copy(p, &out)?;
        let out = Args { buf: copy.as_mut_ptr(), count: bytes, datatype: MPI_PACKED, ..out };
        isendrecv(p, out, into, Some(copy))
    }
}
