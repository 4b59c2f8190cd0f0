//! Reports at `MPI_Finalize`: requests never completed, and messages never received.
#![allow(unsafe_code)]

use crate::check::{Checks, RECORD_BYTES, Record, name_call};
use crate::common::consts::MPI_ANY_TAG;
use crate::process::Process;
use fastpath_protocol::Worker;
use fastpath_protocol::request::{Request, RequestKind, RequestState};
use fastpath_protocol::tag::{collective_key, key_context, key_source};
use fastpath_protocol::unexpected::UnexpectedEntry;

impl Checks {
    /// Reports requests that the program has neither completed nor freed (MPI 5.0, section 11.2.2).
    pub(crate) fn tell_pending(&self, p: &Process, worker: &Worker) {
        let watched = self.watched.borrow();
        let requests = worker.requests.in_use().filter(|r| !r.detached);
        for request in requests {
            let Some(own) = watched.get(&request.id()) else {
                continue;
            };
            let call = name_call(own.call, &own.place);
            let what = describe_request(p, request);
            self.tell(&format!("{call} was never completed: {what}"));
        }
        for (call, what) in crate::p2p::request::list_pending(p) {
            self.tell(&format!("{call} was never completed: {what}"));
        }
    }

    /// Reports messages that arrived but were not received, once for each call that sent them.
    pub(crate) fn tell_unreceived(&self, p: &Process, worker: &Worker) {
        let mut groups: Vec<(String, Vec<&UnexpectedEntry>)> = Vec::new();
        for message in worker.unexpected_messages() {
            let Some(comm) = title_of(p, message.key).filter(|_| message.tag >= 0) else {
                continue; // a message of a collective call that failed
            };
            let sender = match Record::parse(message.data()) {
                Some(record) => format!("sent by {}", record.title()),
                None => "and the sender still waits for a receive".to_string(),
            };
            let source = key_source(message.key);
            let origin = format!("from rank {source} in {comm}, {sender}");
            match groups.iter_mut().find(|(known, _)| *known == origin) {
                Some((_, messages)) => messages.push(message),
                None => groups.push((origin, vec![message])),
            }
        }
        for message in crate::p2p::probe::list_messages(p) {
            let what = message.describe(p);
            self.tell(&format!("no MPI_Mrecv followed the probe of {what}"));
        }
        for (origin, messages) in groups {
            let first = messages[0];
            let bytes = first.total().saturating_sub(RECORD_BYTES);
            let which = match messages.len() {
                1 => format!("a message (tag {}, {bytes} bytes)", first.tag),
                n => format!("{n} messages (the first: tag {}, {bytes} bytes)", first.tag),
            };
            self.tell(&format!("never received: {which} {origin}"));
        }
    }
}

fn describe_request(p: &Process, request: &Request) -> String {
    let comm = p.comm_of_request(request.user);
    let title = comm.as_ref().map_or_else(String::new, |comm| format!(" in {}", comm.title()));
    let bytes = request.bytes.saturating_sub(RECORD_BYTES);
    let tag = match request.tag {
        MPI_ANY_TAG => "any tag".to_string(),
        tag => format!("tag {tag}"),
    };
    let peer = match crate::p2p::request::peer_of(p, request) {
        peer if peer >= 0 => format!("rank {peer}"),
        _ => "any rank".to_string(),
    };
    match (request.kind, request.state) {
        (RequestKind::Send, _) => format!("the send of {bytes} bytes to {peer} with {tag}{title}"),
        (_, RequestState::Complete) => {
            format!(
                "the message has arrived, but the program has not waited for or tested the \
                 request{title}"
            )
        }
        _ => format!("the receive waits for up to {bytes} bytes from {peer} with {tag}{title}"),
    }
}

fn title_of(p: &Process, key: u64) -> Option<String> {
    if key_context(key) != collective_key(key_context(key)) {
        let handles = p.comms.handles().into_iter();
        let predefined =
            [crate::common::consts::MPI_COMM_WORLD, crate::common::consts::MPI_COMM_SELF];
        let mut comms =
            predefined.into_iter().chain(handles).filter_map(|handle| p.comms.get(handle));
        let found = comms.find(|comm| comm.context.key(0) == key_context(key));
        return Some(
            found.map_or_else(|| "a communicator that was freed".into(), |comm| comm.title()),
        );
    }
    None
}
