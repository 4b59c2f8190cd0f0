//! Error texts of messages that failed.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, SAME_ON_ALL_RANKS};
use crate::objects::arguments::Args;
use crate::objects::comm::{self, Comm};
use crate::process::errhandler::{abort, report};
use crate::process::{self, failures};
use fastpath_base::sync::Ordering;
use fastpath_protocol::Fault;
use fastpath_segment::RankPhase;

#[cold]
pub(crate) fn explain(fault: Fault, args: &Args, bytes: u64, sent: u64) -> Error {
    let Args { peer, tag, .. } = *args;
    let collective = tag <= comm::FIRST_TAG;
    let error = match fault {
        Fault::Truncated if collective => {
            return explain_disagreement(MPI_ERR_TRUNCATE, args, bytes, sent);
        }
        Fault::MemberDied => explain_comm(args, failures::describe_deaths),
        Fault::Revoked => explain_comm(args, failures::describe_revocation),
        Fault::PeerGone | Fault::SourceGone if collective => Error::new(
            departure_class(args),
            format!(
                "{} and takes no part in this collective call{}",
                describe_departure(args),
                explain_loss()
            ),
        )
        .with_advice(Some(
            "make the same collective calls on all ranks, in the same order and with the same root",
        )),
        Fault::Truncated => Error::new(
            MPI_ERR_TRUNCATE,
            format!(
                "the message from rank {peer}{} has {sent} bytes, but the receive buffer has \
                 {bytes}: make the buffer larger",
                name_tag(tag)
            ),
        ),
        Fault::PeerGone => Error::new(
            departure_class(args),
            format!(
                "{} and cannot receive the message{} of {bytes} bytes{}",
                describe_departure(args),
                name_tag(tag),
                explain_loss()
            ),
        ),
        Fault::SourceGone => Error::new(departure_class(args), explain_silence(args)),
        Fault::NoMemory => {
            Error::new(MPI_ERR_NO_MEM, format!("no memory for a message: {}", last_note()))
        }
        Fault::Protocol | Fault::None => {
            Error::new(MPI_ERR_INTERN, "the peer sent a message that violates Fastpath's protocol")
        }
    };
    let length = if fault == Fault::Truncated { sent } else { bytes };
    error.about_message(peer, tag, length)
}

/// Returns the error class of an operation whose peer has left the job.
fn departure_class(args: &Args) -> i32 {
    // SAFETY: this function is called inside MPI.
    let p = unsafe { process::get_unlocked() };
    let Ok(worker) = p.worker() else { return MPI_ERR_OTHER };
    if !failures::is_on() {
        return MPI_ERR_OTHER;
    }
    // SAFETY: the worker lives while MPI runs, and no reference to it is used meanwhile.
    failures::note_failures(p, unsafe { &mut *worker });
    if args.tag <= comm::FIRST_TAG {
        // The peer may have left the collective call, and the job, because of a death that is not known here yet.
        return MPIX_ERR_PROC_FAILED;
    }
    let has_died = p.comm_of_request(args.comm).is_none_or(|of| {
        let failed = of.faults.failed();
        let named = usize::try_from(args.peer).ok();
        match named.and_then(|peer| of.peer_group().world_ranks().get(peer).copied()) {
            Some(world) => failed.contains(&world),
            None => !failed.is_empty(),
        }
    });
    if has_died { MPIX_ERR_PROC_FAILED } else { MPI_ERR_OTHER }
}

/// Returns the error of an operation on a broken communicator.
fn explain_comm(args: &Args, describe: fn(&Comm) -> Error) -> Error {
    // SAFETY: this function is called inside MPI.
    let p = unsafe { process::get_unlocked() };
    match p.comm_of_request(args.comm) {
        Some(comm) => describe(&comm),
        None => {
            Error::new(MPIX_ERR_PROC_FAILED, "a rank has died, or the communicator was revoked")
        }
    }
}

/// Returns the error of a collective call's message that is longer or shorter than expected.
#[cold]
pub(crate) fn explain_disagreement(class: i32, args: &Args, expected: u64, sent: u64) -> Error {
    let Args { peer, tag, .. } = *args;
    Error::new(
        class,
        format!(
            "rank {peer} passes {sent} bytes to this collective call, but this rank expects \
             {expected}: the ranks differ in count, datatype or root, or in the order of their \
             collective calls"
        ),
    )
    .with_advice(Some(SAME_ON_ALL_RANKS))
    .about_message(peer, tag, expected)
}

/// Describes the tag of a program's message. Internal tags and `MPI_ANY_TAG` are omitted.
fn name_tag(tag: i32) -> String {
    match tag {
        0.. => format!(" with tag {tag}"),
        _ => String::new(),
    }
}

fn explain_silence(args: &Args) -> String {
    let (tag, lost) = (name_tag(args.tag), explain_loss());
    match args.peer {
        MPI_ANY_SOURCE => {
            let absent = find_absent(args);
            let absent = absent.map(|(rank, why)| format!(" (rank {rank}: {why})"));
            format!(
                "every other rank of the communicator has left the job (finalized or dead){}: no \
                 message{tag} can arrive any more{lost}",
                absent.unwrap_or_default()
            )
        }
        _ => {
            let left = describe_departure(args);
            format!("{left}: no message{tag} can arrive from that rank any more{lost}")
        }
    }
}

/// Describes how the peer of a message left the job.
fn describe_departure(args: &Args) -> String {
    let peer = args.peer;
    match find_absent(args) {
        Some((_, why)) => format!("rank {peer} has left the job ({why})"),
        None => format!("rank {peer} has left the job (finalized or dead)"),
    }
}

/// Finds the first rank that may be a message's peer, and that was spawned and exited before `MPI_Init`. Returns its
/// rank in the communicator, and the launcher's description of the exit.
fn find_absent(args: &Args) -> Option<(usize, String)> {
    // SAFETY: this function is called inside MPI.
    let p = unsafe { process::get_unlocked() };
    let (comm, engine) = (p.comm_of_request(args.comm)?, p.engine()?);
    let is_possible = |rank: usize| args.peer == MPI_ANY_SOURCE || args.peer == rank as i32;
    let peers = comm.peer_group().world_ranks().iter().enumerate();
    peers.filter(|&(rank, _)| is_possible(rank)).find_map(|(rank, &world)| {
        let page = engine.job.rank_page(world as usize)?;
        let is_spawned = page.parent.load(Ordering::Relaxed) != 0;
        let why = page.message.load();
        (is_spawned && page.phase() < RankPhase::Initialized && !why.is_empty())
            .then_some((rank, why))
    })
}

/// Returns text about a failed adapter or connection, for an error about a peer that has left. The peer may be alive,
/// and only unreachable. The text is empty without a failure.
fn explain_loss() -> String {
    // SAFETY: all callers are inside MPI.
    let p = unsafe { process::get_unlocked() };
    // SAFETY: the worker lives as long as the engine.
    let lost = p.engine().and_then(|engine| unsafe { (*engine.worker()).lost_peer() });
    lost.map_or_else(String::new, |why| {
        format!("; another possible cause is that a rank cannot be reached: {why}")
    })
}

/// Ends the job because this rank lacks memory to answer `peer`. No MPI call would report the shortage.
#[cold]
pub(crate) fn end_without_answer(peer: u32) {
    // SAFETY: all callers are inside MPI.
    let p = unsafe { process::get_unlocked() };
    let why = format!("no memory to answer rank {peer}: {}", last_note());
    let error = Error::new(MPI_ERR_NO_MEM, why);
    let report = report::describe(p, "an MPI call", &error, None);
    abort::abort_after_error(p, MPI_ERR_NO_MEM, &report)
}

fn last_note() -> String {
    // SAFETY: all callers are inside MPI.
    let p = unsafe { process::get_unlocked() };
    p.engine().map(|engine| engine.job.own_page().message.load_lines()).unwrap_or_default()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn truncation__is_reported_with_the_length_of_the_message() {
        let args = Args {
            buf: null_mut(),
            count: 1,
            datatype: MPI_INT,
            peer: 2,
            tag: 7,
            comm: MPI_COMM_WORLD,
        };
        let error = explain(Fault::Truncated, &args, 4, 16);
        assert_eq!(error.about(), Some((2, 7, 16)));
        assert!(error.message().contains("has 16 bytes, but the receive buffer has 4"), "{error}");
    }
}
