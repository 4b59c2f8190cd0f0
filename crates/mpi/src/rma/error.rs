//! What errors of one-sided communication say.

use super::epoch::{Epoch, Refusal};
use super::window::Window;
use crate::common::consts::*;
use crate::common::error::Error;
use fastpath_protocol::rma::RmaError;

#[cold]
#[inline(never)]
pub(super) fn refuse_rank(window: &Window, rank: i32) -> Error {
    let last = window.size() - 1;
    Error::new(
        MPI_ERR_RANK,
        format!("rank {rank} is not in the window's group: ranks go from 0 to {last}"),
    )
}

/// A call that does not fit the epochs.
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

/// A window that cannot be freed yet.
#[cold]
#[inline(never)]
pub(super) fn refuse_free(window: &Window, refusal: Refusal) -> Error {
    let (what, advice) = refusal.explain();
    let ranks = name_targets(&window.epoch.borrow(), refusal);
    let text = format!("the window ({}) is freed while {what}{ranks}", window.title());
    Error::new(MPI_ERR_RMA_SYNC, text).with_advice(Some(advice))
}

/// Ranks that are named of an epoch at most.
const NAMED_MOST: usize = 16;

/// The ranks of an epoch that is in the way of the window's end, where it is not to all.
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

/// A rank that says of its memory what cannot be.
#[cold]
#[inline(never)]
pub(super) fn refuse_part(window: &Window, rank: u32) -> Error {
    let text = format!("rank {rank} describes its part of the window ({}) wrongly", window.title());
    Error::new(MPI_ERR_INTERN, text)
}

/// Bytes that are not all inside of a rank's part.
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
        .with_advice(Some("pass a displacement from the start of the target's memory"));
    }
    let from = i128::from(disp) * i128::from(unit) + i128::from(low);
    Error::new(
        MPI_ERR_RMA_RANGE,
        format!(
            "{bytes} bytes are asked for at byte {from} (displacement {disp} of {unit} bytes \
             each), and rank {rank} has \
             {size} bytes in the window ({})",
            window.title()
        ),
    )
    .with_advice(Some(
        "compare displacement, its unit, count and datatype with what the target gave the window",
    ))
}

/// What the layer below says.
#[cold]
#[inline(never)]
pub(super) fn explain(window: &Window, rank: u32, error: RmaError) -> Error {
    let class = match error {
        RmaError::OutOfBounds { .. } | RmaError::Withdrawn => MPI_ERR_RMA_RANGE,
        RmaError::NoMemory => MPI_ERR_NO_MEM,
        RmaError::PeerGone => MPI_ERR_PROC_ABORTED,
        RmaError::Misaligned | RmaError::BadKey(_) => MPI_ERR_INTERN,
    };
    let why = match error {
        RmaError::Withdrawn => {
            "the memory cannot be reached: it was unmapped, detached or freed, or it may not be \
                                written"
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
