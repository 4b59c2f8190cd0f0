//! Result of a request that has ended: its status, or its error. INSIDE is defined in `request.rs`.
#![allow(unsafe_code)]

use super::{Extra, NamedRequest, is_pending_failure, pool};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::objects::arguments::Args;
use crate::p2p::source_of;
use crate::p2p::{fault, slow};
use crate::process::Process;
use crate::process::failures::list_deaths;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::tag::key_source;
use fastpath_protocol::{Fault, Request, RequestId};

/// Returns the status of a receive without a message.
pub fn empty_status() -> Status {
    Status::new(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_SUCCESS, 0)
}

pub(super) fn status_of(request: &Request) -> Status {
    if request.kind == RequestKind::Send {
        let mut status = empty_status();
        status.set_cancelled(request.cancelled);
        return status;
    }
    if request.cancelled {
        let mut status = empty_status();
        status.set_cancelled(true);
        return status;
    }
    Status::new(request.source, request.received_tag, MPI_SUCCESS, request.received as i64)
}

/// Fault of a request, with the values that explain it.
struct RequestFault {
    fault: Fault,
    args: Args,
    bytes: u64,
    limit: u64,
}

impl RequestFault {
    /// Returns the error. No reference to a request may be alive, because the explanation may look for deaths.
    fn explain(self) -> Error {
        let comm = self.args.comm;
        fault::explain(self.fault, &self.args, self.bytes, self.limit).on_comm(comm)
    }
}

fn fault_of(p: &Process, request: &Request) -> Option<RequestFault> {
    (request.fault != Fault::None).then(|| {
        let (peer, tag) = match request.kind {
            RequestKind::Recv => (source_of(request), request.received_tag),
            _ => (peer_of(p, request), request.tag),
        };
        let args = Args { buf: request.ptr, count: 0, datatype: 0, peer, tag, comm: request.user };
        let (fault, bytes, limit) = (request.fault, request.bytes, request.limit);
        RequestFault { fault, args, bytes, limit }
    })
}

/// Returns the peer of an outstanding request, as a rank of its communicator; `MPI_ANY_SOURCE` if no peer is named.
pub(crate) fn peer_of(p: &Process, request: &Request) -> i32 {
    match request.kind {
        _ if request.peer == ANY_PEER => MPI_ANY_SOURCE,
        RequestKind::Recv if request.is_posted() => key_source(request.key) as i32,
        RequestKind::Recv => request.source,
        _ => match p.comm_of_request(request.user) {
            Some(comm) => comm.peer_rank(request.peer),
            None => request.peer as i32,
        },
    }
}

/// Returns the error of a receive from any source of which a possible source has died.
#[cold]
fn describe_pending(p: &Process, id: RequestId) -> Error {
    // SAFETY: INSIDE.
    let comm = pool(p).map_or(MPI_COMM_WORLD, |pool| unsafe { (*pool).get(id).user });
    let deaths = p.comm_of_request(comm).map_or_else(String::new, |comm| list_deaths(&comm));
    let text = format!("{deaths}; the receive from any source remains active");
    Error::new(MPIX_ERR_PROC_FAILED_PENDING, text).on_comm(comm)
}

/// Returns the status of a completed operation. Its error stays stored for the call that completes the request.
pub(super) fn read_status(p: &Process, named: &NamedRequest) -> Result<Status> {
    let NamedRequest::Operation(index) = *named else {
        return read_result(p, named).map(|(status, _)| status);
    };
    Ok(match p.extras.slots().get(index) {
        Some(Some(Extra::Operation { result: Some(Ok(status)), .. })) => *status,
        _ => empty_status(),
    })
}

/// Takes the result of a completed operation, without freeing its request.
pub(super) fn read_result(p: &Process, named: &NamedRequest) -> Result<(Status, Option<Error>)> {
    match *named {
        NamedRequest::Inactive => Ok((empty_status(), None)),
        NamedRequest::Plain(id) => {
            if is_pending_failure(p, named) {
                return Err(describe_pending(p, id));
            }
            let stored = slow::settle(p, id);
            let (status, fault, comm) = {
                // SAFETY: INSIDE: the look-up of the source's rank also only reads.
                let request = unsafe { (*pool(p)?).get(id) };
                (status_of(request), fault_of(p, request), request.user)
            };
            let failed = || stored.err().map(|error| error.on_comm(comm));
            Ok((status, fault.map(RequestFault::explain).or_else(failed)))
        }
        NamedRequest::Operation(index) => {
            if let Some(Some(Extra::Operation { result, .. })) = p.extras.slots_mut().get_mut(index)
            {
                return match result.take() {
                    Some(Ok(status)) => {
                        *result = Some(Ok(status));
                        Ok((status, None))
                    }
                    Some(Err(error)) => Ok((empty_status(), Some(error))),
                    None => Ok((empty_status(), None)),
                };
            }
            Ok((empty_status(), None))
        }
    }
}
