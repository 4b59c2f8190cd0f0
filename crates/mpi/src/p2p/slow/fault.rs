//! What is said of a message that failed on its way.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::Error;
use crate::objects::arguments::Args;
use crate::objects::comm;
use crate::process;
use crate::process::errhandler::{abort, report};
use fastpath_protocol::Fault;

/// Explains a failure of the protocol layer.
#[cold]
pub(crate) fn explain(fault: Fault, args: &Args, bytes: u64, sent: u64) -> Error {
    let Args { peer, tag, .. } = *args;
    let collective = tag <= comm::FIRST_TAG;
    let error = match fault {
        Fault::Truncated if collective => {
            return explain_disagreement(MPI_ERR_TRUNCATE, args, bytes, sent);
        }
        Fault::PeerGone | Fault::SourceGone if collective => Error::new(
            MPI_ERR_OTHER,
            format!(
                "rank {peer} has left the job (finalized or dead) without taking part: all ranks \
                 make the same collective calls, in the same order and with the same root{}",
                explain_loss()
            ),
        ),
        Fault::Truncated => Error::new(
            MPI_ERR_TRUNCATE,
            format!(
                "the message from rank {peer}{} has {sent} bytes, the receive buffer {bytes}: make \
                 it larger",
                name_tag(tag)
            ),
        ),
        Fault::PeerGone => Error::new(
            MPI_ERR_OTHER,
            format!(
                "rank {peer} has left the job (finalized or dead): it cannot receive the \
                 message{} of {bytes} bytes{}",
                name_tag(tag),
                explain_loss()
            ),
        ),
        Fault::SourceGone => Error::new(MPI_ERR_OTHER, explain_silence(peer, tag)),
        Fault::NoMemory => {
            Error::new(MPI_ERR_NO_MEM, format!("no memory for a message: {}", last_note()))
        }
        Fault::Protocol | Fault::None => Error::new(MPI_ERR_INTERN, "the peer broke the protocol"),
    };
    error.about_message(peer, tag, bytes)
}

/// A message of a collective call that is longer or shorter than this rank expects.
#[cold]
pub(crate) fn explain_disagreement(class: i32, args: &Args, expected: u64, sent: u64) -> Error {
    let Args { peer, tag, .. } = *args;
    Error::new(
        class,
        format!(
            "rank {peer} passes {sent} bytes to this collective call, this rank expects \
             {expected}: the ranks differ in count, datatype or root, or in the order of their \
             collective calls"
        ),
    )
    .with_advice(Some(
        "pass counts and datatypes of the same length on all ranks, and make the collective calls \
         in the same order",
    ))
    .about_message(peer, tag, expected)
}

/// The tag of a program's message; those of the library, and `MPI_ANY_TAG`, say nothing to anybody.
fn name_tag(tag: i32) -> String {
    match tag {
        0.. => format!(" with tag {tag}"),
        _ => String::new(),
    }
}

fn explain_silence(peer: i32, tag: i32) -> String {
    let tag = name_tag(tag);
    let lost = explain_loss();
    match peer {
        MPI_ANY_SOURCE => format!(
            "every other rank of the communicator has left the job (finalized or dead): no \
             message{tag} can come any more{lost}"
        ),
        _ => format!(
            "rank {peer} has left the job (finalized or dead): no message{tag} can come from it \
             any more{lost}"
        ),
    }
}

/// What an adapter or a connection has to say to it: who cannot be reached may live.
fn explain_loss() -> String {
    // SAFETY: called inside MPI.
    let p = unsafe { process::get_unlocked() };
    // SAFETY: the worker lives as long as the engine.
    let lost = p.engine().and_then(|engine| unsafe { (*engine.worker()).lost_peer() });
    lost.map_or_else(String::new, |why| format!("; or cannot be reached: {why}"))
}

/// Ends the job where this rank has no memory to answer a peer: no call would ever say so.
#[cold]
pub(crate) fn end_without_answer(peer: u32) {
    // SAFETY: called inside MPI.
    let p = unsafe { process::get_unlocked() };
    let why = format!("no memory to answer rank {peer}: {}", last_note());
    let error = Error::new(MPI_ERR_NO_MEM, why);
    let report = report::describe(p, "an MPI call", &error, None);
    abort::abort_after_error(p, MPI_ERR_NO_MEM, &report)
}

fn last_note() -> String {
    // SAFETY: called inside MPI.
    let p = unsafe { process::get_unlocked() };
    p.engine().map(|engine| engine.job.own_page().message.load_lines()).unwrap_or_default()
}
