//! `MPIX_Comm_agree`, and the agreements of all communicators: connects [`crate::ft`], which decides, with notices.
#![allow(unsafe_code)]

use crate::common::consts::{MPI_ERR_INTERN, MPIX_ERR_PROC_FAILED};
use crate::common::error::{Error, Result};
use crate::ft::agreement::Guarantee;
use crate::ft::failed_set::FailedSet;
use crate::ft::history::{AgreementEnvelope, AgreementHistory};
use crate::ft::message::{AgreementMessage, Decision};
use crate::objects::comm::Comm;
use crate::p2p::slow;
use crate::process::failures;
use crate::process::{Process, ProcessPart};
use fastpath_protocol::Worker;
use fastpath_protocol::notices::NOTICE_MAX;
use fastpath_protocol::tag::Context;
use fastpath_segment::AwaitedRanks;
use std::cell::RefCell;
use std::rc::Rc;

/// Kind of the messages of agreements. The number is the context.
pub(super) const AGREEMENT: u32 = 2;

/// Agreements of one communicator. They outlive the communicator, because other members may need a decision later.
struct CommAgreements {
    context: Context,
    /// World ranks of the members, in the order that all members use.
    members: Rc<[u32]>,
    history: AgreementHistory,
}

/// Number of communicators from which on the agreements of freed ones are dropped, the oldest first.
const MOST_KEPT: usize = 64;

/// Memory for an encoded message that lists few failed members, in bytes.
const USUAL_MESSAGE: usize = 128;

static AGREEMENTS: ProcessPart<RefCell<Vec<CommAgreements>>> =
    ProcessPart::new(RefCell::new(Vec::new()));

pub(super) fn drop_all(p: &Process) {
    AGREEMENTS.of(p).take();
}

/// An agreement that this member has started.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartedAgreement {
    context: Context,
    sequence: u64,
}

/// Returns the world ranks of a communicator's members. Members of both groups of an intercommunicator get one order.
pub(super) fn list_members(p: &Process, comm: &Comm) -> Vec<u32> {
    let own = comm.group.world_ranks();
    let Some(remote) = &comm.remote_group else {
        return own.to_vec();
    };
    let remote = remote.world_ranks();
    match is_first_group(p, comm) {
        true => [own, remote].concat(),
        false => [remote, own].concat(),
    }
}

/// Returns whether `members` are those that [`list_members`] returns.
fn has_members(p: &Process, comm: &Comm, members: &[u32]) -> bool {
    match comm.remote_group {
        None => comm.group.world_ranks() == members,
        Some(_) => list_members(p, comm) == members,
    }
}

/// Returns whether the local group comes first in the order of an intercommunicator's members.
pub(super) fn is_first_group(p: &Process, comm: &Comm) -> bool {
    let Some(remote) = &comm.remote_group else { return true };
    let origin = |ranks: &[u32]| {
        let job = p.engine().map(|engine| engine.job);
        job.zip(ranks.first()).map(|(job, &rank)| job.origin(rank as usize))
    };
    origin(comm.group.world_ranks()) <= origin(remote.world_ranks())
}

/// Calls `use_it` with the agreements of a communicator, which are made if there are none.
fn with_agreements<T>(
    p: &Process, comm: &Comm,
    use_it: impl FnOnce(&mut CommAgreements, &mut Vec<AgreementEnvelope>) -> T,
) -> (T, Vec<AgreementEnvelope>, Rc<[u32]>) {
    let mut all = AGREEMENTS.of(p).borrow_mut();
    let (mut out, context) = (Vec::new(), comm.context);
    let mut found = all.iter().position(|known| known.context == context);
    // A context is used again after very many others; its former members are no longer of interest.
    if let Some(at) = found
        && !has_members(p, comm, &all[at].members)
    {
        all.remove(at);
        found = None;
    }
    let at = found.unwrap_or_else(|| {
        let members = list_members(p, comm);
        let me = members.iter().position(|&rank| rank == comm.my_world_rank()).unwrap_or(0);
        let mut history = AgreementHistory::new(members.len(), me, Guarantee::Survivors);
        for &rank in comm.faults.failed().iter() {
            let member = members.iter().position(|&member| member == rank);
            member.into_iter().for_each(|member| history.report_failed(member, &mut out));
        }
        if all.len() >= MOST_KEPT
            && let Some(oldest) =
                all.iter().position(|known| failures::find_comm(p, known.context).is_none())
        {
            all.remove(oldest);
        }
        all.push(CommAgreements { context, members: members.into(), history });
        all.len() - 1
    });
    let result = use_it(&mut all[at], &mut out);
    (result, out, all[at].members.clone())
}

/// Sends the messages of an agreement. Errors: `MPI_ERR_INTERN` if a message is longer than a notice.
fn send(
    worker: &mut Worker, context: Context, members: &[u32], envelopes: Vec<AgreementEnvelope>,
) -> Result {
    let mut bytes = Vec::with_capacity(if envelopes.is_empty() { 0 } else { USUAL_MESSAGE });
    for AgreementEnvelope { sequence, to, message } in envelopes {
        bytes.clear();
        bytes.extend_from_slice(&sequence.to_le_bytes());
        message.encode(&mut bytes);
        if bytes.len() > NOTICE_MAX {
            let text = "too many ranks have died: their list does not fit a message";
            return Err(Error::new(MPI_ERR_INTERN, text));
        }
        // Without memory for a connection the member counts as unreachable, and the others report it.
        _ = worker.send_notice(members[to], AGREEMENT, context.to_wire(), &bytes);
    }
    Ok(())
}

/// Starts the next agreement of a communicator. `flag` is combined by AND. The decision has the `offer` of the lowest
/// living member.
pub(super) fn start(p: &Process, comm: &Comm, flag: i64, offer: u64) -> Result<StartedAgreement> {
    // SAFETY: the worker lives while MPI runs, and no other reference to it exists.
    let worker = unsafe { &mut *p.worker()? };
    failures::note_failures(p, worker);
    let acknowledged = comm.faults.acknowledged();
    let (sequence, out, members) = with_agreements(p, comm, |agreements, out| {
        let position = |rank: &u32| agreements.members.iter().position(|member| member == rank);
        let acknowledged: FailedSet = acknowledged.iter().filter_map(position).collect();
        agreements.history.start(flag, offer, acknowledged, out)
    });
    let context = comm.context;
    send(worker, context, &members, out)?;
    Ok(StartedAgreement { context, sequence })
}

/// Takes the decision of an agreement, if it has one, with the world ranks of the members that it counts as dead.
pub(super) fn take(p: &Process, started: StartedAgreement) -> Option<(Decision, Vec<u32>)> {
    let mut all = AGREEMENTS.of(p).borrow_mut();
    let agreements = all.iter_mut().find(|known| known.context == started.context)?;
    let decision = agreements.history.take_decision(started.sequence)?;
    let dead = decision.failed.iter().filter_map(|member| agreements.members.get(member).copied());
    let dead = dead.collect();
    Some((decision, dead))
}

/// Waits for the decision of an agreement.
pub(super) fn wait(
    p: &Process, comm: &Comm, started: StartedAgreement,
) -> Result<(Decision, Vec<u32>)> {
    let mut decided = None;
    slow::wait_until(p, (comm.handle.get(), 0), AwaitedRanks::UNKNOWN, false, |_| {
        decided = take(p, started);
        decided.is_some()
    })?;
    let text = "a wait for an agreement has ended without a decision";
    decided.ok_or_else(|| Error::new(MPI_ERR_INTERN, text))
}

/// Records the deaths that a decision contains, because other members may know more of them than this process.
pub(super) fn learn(p: &Process, dead: &[u32]) -> Result {
    // SAFETY: the worker lives while MPI runs, and no other reference to it exists.
    failures::note_deaths(p, unsafe { &mut *p.worker()? }, dead);
    Ok(())
}

/// Returns the flag that a member contributes. The flags of an intercommunicator's groups are in different halves.
pub(super) fn pack_flag(p: &Process, comm: &Comm, flag: i32) -> i64 {
    let flag = i64::from(flag as u32);
    match is_first_group(p, comm) {
        true => flag | !i64::from(u32::MAX),
        false => flag << 32 | i64::from(u32::MAX),
    }
}

/// Returns the flag that the members of the caller's group get: that of the remote group, on an intercommunicator.
pub(super) fn unpack_flag(p: &Process, comm: &Comm, packed: i64) -> i32 {
    let is_low = is_first_group(p, comm) != comm.is_inter();
    (if is_low { packed } else { packed >> 32 }) as i32
}

/// Returns the result of a decision for `MPIX_Comm_agree`: the flag, and the error that all members get if one of them
/// has not acknowledged the death of a member that did not contribute.
pub(super) fn conclude(
    p: &Process, comm: &Comm, decision: &Decision, dead: &[u32],
) -> Result<(i32, Result)> {
    learn(p, dead)?;
    let flag = unpack_flag(p, comm, decision.flag);
    let outcome = match decision.unacknowledged {
        false => Ok(()),
        true => {
            let text = format!(
                "{}, and not every rank has acknowledged it; the flag is valid",
                failures::list_deaths(comm)
            );
            let error = Error::new(MPIX_ERR_PROC_FAILED, text);
            Err(error
                .on_comm(comm.handle.get())
                .with_advice(Some("call MPIX_Comm_ack_failed on all ranks before MPIX_Comm_agree")))
        }
    };
    Ok((flag, outcome))
}

/// `MPIX_Comm_agree`. Returns the AND of the flags of the contributors, and the error that all members return.
pub fn agree(p: &Process, comm: &Comm, flag: i32) -> Result<(i32, Result)> {
    let started = start(p, comm, pack_flag(p, comm, flag), 0)?;
    let (decision, dead) = wait(p, comm, started)?;
    conclude(p, comm, &decision, &dead)
}

/// Handles a message of an agreement.
pub(super) fn receive(
    p: &Process, worker: &mut Worker, comm: &Rc<Comm>, sender: u32, bytes: &[u8],
) {
    with_agreements(p, comm, |_, _| {});
    receive_known(p, worker, comm.context, sender, bytes);
}

/// Handles a message of an agreement on a communicator that has agreements here, also after it was freed. Returns false
/// if it has none.
pub(super) fn receive_known(
    p: &Process, worker: &mut Worker, context: Context, sender: u32, bytes: &[u8],
) -> bool {
    let (out, members) = {
        let mut all = AGREEMENTS.of(p).borrow_mut();
        let Some(agreements) = all.iter_mut().find(|known| known.context == context) else {
            return false;
        };
        let mut out = Vec::new();
        let from = agreements.members.iter().position(|&member| member == sender);
        if let (Some(from), Some((sequence, bytes))) = (from, bytes.split_first_chunk())
            && let Some(message) = AgreementMessage::decode(bytes, agreements.members.len())
        {
            let sequence = u64::from_le_bytes(*sequence);
            agreements.history.receive(sequence, from, message, &mut out);
        }
        (out, agreements.members.clone())
    };
    // A list of the dead that fits no message is an error of the call that waits for the agreement.
    _ = send(worker, context, &members, out);
    worker.wake_sleepers();
    true
}

/// Drops the agreements of a communicator from which all members have disconnected: none needs a decision any more.
pub(super) fn drop_of_comm(p: &Process, context: Context) {
    AGREEMENTS.of(p).borrow_mut().retain(|known| known.context != context);
}

/// Returns whether another member of an agreement may still need the decision from this process: it lives, has not
/// begun to leave MPI, and may learn of a death only later.
pub(crate) fn is_needed(p: &Process, worker: &Worker) -> bool {
    if !failures::is_on() {
        return false;
    }
    let dead = failures::list_dead(p);
    let may_ask =
        |rank: u32| rank != worker.rank && !dead.contains(&rank) && !worker.is_silent(rank);
    let all = AGREEMENTS.of(p).borrow();
    all.iter().any(|agreements| agreements.members.iter().any(|&rank| may_ask(rank)))
}

/// Passes deaths to all agreements.
pub(super) fn report_deaths(p: &Process, worker: &mut Worker, ranks: &[u32]) {
    let mut to_send = Vec::new();
    for agreements in AGREEMENTS.of(p).borrow_mut().iter_mut() {
        let mut out = Vec::new();
        for rank in ranks {
            if let Some(member) = agreements.members.iter().position(|member| member == rank) {
                agreements.history.report_failed(member, &mut out);
            }
        }
        if !out.is_empty() {
            to_send.push((agreements.context, agreements.members.clone(), out));
        }
    }
    for (context, members, out) in to_send {
        _ = send(worker, context, &members, out);
    }
}
