//! Probes: queries for the message that a receive would match.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::status::Status;
use crate::common::table::{HandleKind, HandleTable};
use crate::objects::arguments::Args;
use crate::p2p::channel::deadlock;
use crate::p2p::fault;
use crate::p2p::slow::{self, Senders};
use crate::p2p::staged;
use crate::process::{Process, ProcessPart, Runtime, failures};
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::recv::ProbedMessage;
use fastpath_protocol::request::RequestKind;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{Fault, Worker};
use std::cell::Cell;
use std::rc::Rc;

/// Message that a matched probe has removed from matching.
pub struct Message {
    token: Cell<Option<u32>>,
    found: ProbedMessage,
    comm: usize,
}

/// Messages removed from matching by a matched probe.
static MESSAGES: ProcessPart<HandleTable<Message>> = ProcessPart::new(HandleTable::new());

/// Drops all messages of an exiting process.
pub(crate) fn drop_all(p: &Process) {
    MESSAGES.of(p).clear();
}

/// Returns the messages that matched probes have removed and the program has not received.
pub(crate) fn list_messages(p: &Process) -> Vec<Rc<Message>> {
    let messages = MESSAGES.of(p);
    let handles = messages.handles().into_iter();
    handles.filter_map(|handle| messages.get(handle)).collect()
}

impl HandleKind for Message {
    const NOUN: &'static str = "message";
    const NULL: (usize, &'static str) = (MPI_MESSAGE_NULL, "MPI_MESSAGE_NULL");
    const CLASS: i32 = MPI_ERR_ARG;
}

impl Message {
    pub(crate) fn describe(&self, p: &Process) -> String {
        let status = status_of(p, &self.found);
        let comm = p.comm_of_request(self.comm);
        format!(
            "the message from rank {} with tag {} in {}, {} bytes",
            status.source,
            status.tag,
            comm.map_or_else(|| "a communicator that was freed".into(), |comm| comm.title()),
            status.bytes()
        )
    }
}

/// Result of a probe.
#[derive(Debug, Clone, Copy)]
pub struct ProbeResult {
    /// Handle of the message; `MPI_MESSAGE_NULL` for a plain probe.
    pub message: usize,
    /// Source, tag and size.
    pub status: Status,
}

fn status_of(p: &Process, found: &ProbedMessage) -> Status {
    let record = p.engine().map_or(0, Runtime::record_bytes);
    let bytes = found.bytes.saturating_sub(record);
    Status::new(found.source as i32, found.tag, MPI_SUCCESS, bytes as i64)
}

/// Probes for a message; `None` if there is none. With `wait`, waits for one. With `take`, removes it from matching.
pub fn probe(
    p: &Process, call: &'static str, source: i32, tag: i32, comm: usize, wait: bool, take: bool,
) -> Result<Option<ProbeResult>> {
    let args =
        Args { buf: std::ptr::null_mut(), count: 0, datatype: MPI_BYTE, peer: source, tag, comm };
    let Some(checked) = slow::check_recv(p, &args)? else {
        let message = if take { MPI_MESSAGE_NO_PROC } else { MPI_MESSAGE_NULL };
        return Ok(Some(ProbeResult {
            message,
            status: Status::new(MPI_PROC_NULL, MPI_ANY_TAG, MPI_SUCCESS, 0),
        }));
    };
    let want = slow::want(&checked.comm, source, tag);
    let worker = p.worker()?;
    let mut found = None;
    // A message that `look` has removed cannot be found again, so a second call of `look` must return the first result.
    let mut look = |w: &mut Worker| {
        if found.is_none() {
            found = match take {
                true => w.probe_matched(&want).map(|(token, found)| (Some(token), found)),
                false => w.probe(&want).map(|found| (None, found)),
            };
        }
        found.is_some()
    };
    let senders = Senders::of_source(p, &checked.comm, source, want.peer);
    // SAFETY: the worker lives while MPI runs.
    unsafe {
        (*worker).progress_all();
        if !look(&mut *worker) && wait {
            let note =
                Note { awaited: senders.awaited(), ..slow::note(call, &checked.comm, &args, 0) };
            let named = (want.peer != ANY_PEER).then_some(want.peer);
            deadlock::wait_until(p, worker, named, &note, |w| {
                if look(w) {
                    return true;
                }
                let gone = senders.have_left(w);
                if gone {
                    w.take_arrivals();
                    look(w);
                }
                gone
            });
        }
    }
    let Some((token, found)) = found else {
        return match wait {
            true => Err(fault::explain(Fault::SourceGone, &args, 0, 0)),
            // SAFETY: the worker lives while MPI runs.
            false if failures::is_on() && senders.have_left(unsafe { &*worker }) => {
                Err(fault::explain(Fault::SourceGone, &args, 0, 0))
            }
            false => {
                crate::p2p::request::note_miss(p)?;
                Ok(None)
            }
        };
    };
    let message = match token {
        None => MPI_MESSAGE_NULL,
        Some(token) => {
            MESSAGES.of(p).publish(Message { token: Cell::new(Some(token)), found, comm })?
        }
    };
    Ok(Some(ProbeResult { message, status: status_of(p, &found) }))
}

/// `MPI_Imrecv`: receives a message of a matched probe, and returns the request's handle.
///
/// # Safety
/// The buffer must be writable until the request completes.
pub unsafe fn imrecv(
    p: &Process, buf: *mut u8, count: i64, datatype: usize, message: usize,
) -> Result<usize> {
    if message == MPI_MESSAGE_NO_PROC {
        return slow::make_proc_null(p);
    }
    let found = MESSAGES.of(p).find(message)?;
    let args =
        Args { buf, count, datatype, peer: MPI_ANY_SOURCE, tag: found.found.tag, comm: found.comm };
    let checked = slow::check_matched(p, &args)?;
    MESSAGES.of(p).remove(message);
    let Some(token) = found.token.take() else {
        return Err(Error::new(
            MPI_ERR_ARG,
            "the message has been received already: receive each message once",
        ));
    };
    let worker = p.worker()?;
    // SAFETY: the buffer is writable until the request completes, by contract; the worker lives while MPI runs.
    unsafe {
        let (watched, buffer) = slow::watch(p, &args, RequestKind::Recv, &checked)?;
        let id = (*worker)
            .recv_matched(token, buffer)
            .map_err(|fault| fault::explain(fault, &args, 0, 0))?;
        slow::keep(p, id, watched);
        staged::keep(p, id, &checked);
        let request = (*worker).requests.get_mut(id);
        request.user = found.comm;
        Ok(request.handle as usize)
    }
}
