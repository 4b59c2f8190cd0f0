#![allow(unsafe_code)]
//! Watch over the ranks of a node after the death of their leader, in a job that tolerates failures. Every rank of the
//! node watches the processes of all others, because any of them may be the next to die.

use super::death::{OwnRank, tell_death};
use crate::engine::Aborter;
use crate::poll::{poll_entry, poll_for};
use fastpath_base::sync::Ordering;
use fastpath_segment::{RankPhase, STATE_DEAD};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Interval at which ranks that have joined meanwhile are added.
const ADD_AFTER: Duration = Duration::from_secs(1);

/// Waits for the ends of the other ranks of the node, and reports those that are deaths. Returns when this rank has
/// finalized MPI.
pub fn watch(own: OwnRank, aborter: &Aborter) {
    let mut others: Vec<(usize, OwnedFd)> = Vec::new();
    while own.page().phase() != RankPhase::Finalized {
        let is_known = |rank: usize| others.iter().any(|(known, _)| *known == rank);
        let new = list_others(own, is_known);
        others.extend(new);
        let entry = |(_, fd): &(usize, OwnedFd)| poll_entry(fd.as_raw_fd(), libc::POLLIN);
        let mut entries: Vec<libc::pollfd> = others.iter().map(entry).collect();
        poll_for(&mut entries, Some(ADD_AFTER));
        let mut ended = entries.iter().map(|entry| entry.revents != 0);
        others.retain(|(rank, _)| {
            let has_ended = ended.next() == Some(true);
            if has_ended {
                tell_death(own, aborter, *rank);
            }
            !has_ended
        });
    }
}

/// Returns the other ranks of the node that have joined, have not finished and are not known. Each rank has a
/// descriptor of its process. A rank whose process has already ended is marked as dead instead of being returned.
fn list_others(own: OwnRank, is_known: impl Fn(usize) -> bool) -> Vec<(usize, OwnedFd)> {
    let ranks = own.segment.node_ranks().filter(|&rank| rank != own.rank && !is_known(rank));
    let open = |rank: usize| {
        let page = own.segment.page(rank)?;
        let pid = page.owner_pid.load(Ordering::Relaxed);
        // ORDERING: acquire, partner is the release of the rank that has marked the death.
        let is_dead = page.state.load(Ordering::Acquire) == STATE_DEAD;
        if pid == 0 || is_dead || page.phase() == RankPhase::Finalized {
            return None;
        }
        // SAFETY: pidfd_open takes integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if fd < 0 {
            let is_gone = std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            if is_gone {
                own.segment.mark_dead(rank);
                own.segment.signal_ends_to_all();
                own.segment.wake_all();
            }
            return None;
        }
        // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
        Some((rank, unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    ranks.filter_map(open).collect()
}
