//! Error texts of one-sided communication.

use super::epoch::{Epoch, Refusal};
use super::window::Window;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::failures;
use fastpath_protocol::rma::RmaError;

/// Remedy for an operation whose sides differ in length.
pub(super) const SAME_DATA: &str =
    "pass counts and datatypes of the same length for origin, result and target";

#[cold]
#[inline(never)]
pub(super) fn refuse_rank(window: &Window, rank: i32) -> Error {
    let last = window.size() - 1;
    Error::new(
        MPI_ERR_RANK,
        format!("rank {rank} is not in the window's group: ranks go from 0 to {last}"),
    )
    .with_advice(Some("pass a rank of the window's group"))
}

#[cold]
#[inline(never)]
pub(super) fn refuse_epoch(window: &Window, rank: Option<u32>, refusal: Refusal) -> Error {
    let (what, advice) = refusal.explain();
    let title = window.title();
    let text = match rank {
        Some(rank) => format!("{what} (rank {rank}, window {title})"),
        None => format!("{what} (window {title})"),
    };
    Error::new(MPI_ERR_RMA_SYNC, text).with_advice(Some(advice))
}

/// Refuses a new epoch on a window with a dead rank.
pub(super) fn refuse_broken(window: &Window) -> Result {
    match window.comm.faults.is_broken() {
        true => Err(failures::describe_deaths(&window.comm)),
        false => Ok(()),
    }
}

#[cold]
#[inline(never)]
pub(super) fn refuse_free(window: &Window, refusal: Refusal) -> Error {
    let (what, advice) = refusal.explain();
    let ranks = name_targets(&window.epoch.borrow(), refusal);
    let text = format!("the window ({}) is freed while {what}{ranks}", window.title());
    Error::new(MPI_ERR_RMA_SYNC, text).with_advice(Some(advice))
}

/// Maximum number of ranks of an epoch that a message names.
const NAMED_MOST: usize = 16;

/// Returns the ranks of the epoch that prevents freeing the window; empty for an epoch to all ranks.
pub(super) fn name_targets(epoch: &Epoch, refusal: Refusal) -> String {
    let (what, ranks) = match refusal {
        Refusal::InLock => ("locked", epoch.locked()),
        Refusal::InStart => ("started", epoch.may_complete().map_or(Vec::new(), |r| r.to_vec())),
        Refusal::InPost => ("posted for", epoch.posted().map_or(Vec::new(), |r| r.to_vec())),
        _ => return String::new(),
    };
    let named: Vec<String> = ranks.iter().take(NAMED_MOST).map(u32::to_string).collect();
    let more = match ranks.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(" ({what}: {}{more})", named.join(", "))
}

#[cold]
#[inline(never)]
pub(super) fn refuse_part(window: &Window, rank: u32) -> Error {
    let text = format!(
        "rank {rank} sent an invalid description of its part of the window ({})",
        window.title()
    );
    Error::new(MPI_ERR_INTERN, text)
}

#[cold]
#[inline(never)]
pub(super) fn refuse_range(window: &Window, rank: u32, disp: i64, low: i64, bytes: u64) -> Error {
    let part = &window.peers[rank as usize].part;
    let (size, unit) = (part.size, part.unit);
    if disp < 0 {
        return Error::new(
            MPI_ERR_DISP,
            format!("the displacement {disp} is negative (window {}, rank {rank})", window.title()),
        )
        .with_advice(Some(
            "pass a displacement of 0 or more, from the start of the target's memory",
        ));
    }
    let from = i128::from(disp) * i128::from(unit) + i128::from(low);
    Error::new(
        MPI_ERR_RMA_RANGE,
        format!(
            "the call accesses {bytes} bytes at byte {from} (displacement {disp} in units of \
             {unit} bytes), but rank {rank} has {size} bytes in the window ({})",
            window.title()
        ),
    )
    .with_advice(Some(
        "check displacement, displacement unit, count and datatype against the target's memory in \
         the window",
    ))
}

#[cold]
#[inline(never)]
pub(super) fn explain(window: &Window, rank: u32, error: RmaError) -> Error {
    let class = match error {
        RmaError::OutOfBounds { .. } | RmaError::Withdrawn => MPI_ERR_RMA_RANGE,
        RmaError::NoMemory => MPI_ERR_NO_MEM,
        RmaError::PeerGone if failures::is_on() => MPIX_ERR_PROC_FAILED,
        RmaError::PeerGone => MPI_ERR_PROC_ABORTED,
        RmaError::Misaligned | RmaError::BadKey(_) => MPI_ERR_INTERN,
    };
    let why = match error {
        RmaError::Withdrawn => {
            "the target's memory cannot be accessed: that memory was unmapped, detached or freed, \
             or is read-only, or a driver could not copy it"
                .to_string()
        }
        other => other.to_string(),
    };
    Error::new(class, format!("{why} (window {}, rank {rank})", window.title()))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::epoch::{HeldLock, Sharing};
    use super::*;

    #[test]
    fn targets__are_those_of_the_epoch_that_is_open() {
        let mut epoch = Epoch::new(40);
        epoch.lock(3, HeldLock::Shared);
        epoch.lock(7, HeldLock::Exclusive);
        assert_eq!(name_targets(&epoch, Refusal::InLock), " (locked: 3, 7)");
        epoch.unlock(3);
        epoch.unlock(7);
        epoch.start([1, 2].into());
        assert_eq!(name_targets(&epoch, Refusal::InStart), " (started: 1, 2)");
        epoch.complete();
        epoch.lock_all(Sharing::Counted);
        assert_eq!(name_targets(&epoch, Refusal::InLockAll), "");
        epoch.post((0..18).collect());
        let text = name_targets(&epoch, Refusal::InPost);
        assert!(text.starts_with(" (posted for: 0, 1, "), "{text}");
        assert!(text.ends_with(", 15 and 2 more)"), "{text}");
    }
}
