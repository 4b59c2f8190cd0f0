//! Direct access: parts of peers' arenas, mapped into this process in windows.
//!
//! A window stays mapped for later messages. If its owner frees and reallocates the memory, the memory keeps its offset
//! in the same file. An open window therefore always shows the current contents.
#![allow(unsafe_code)]

use super::arena::KEY_ARENA;
use super::domain::Domain;
use crate::contract::{Remote, RemoteError};
use fastpath_segment::Mapping;

const WINDOW_BYTES: u64 = 256 << 20;
const WINDOWS_MAX: usize = 16;

/// Open windows of an endpoint; the most recently used one is last.
#[derive(Default)]
pub struct Windows {
    open: Vec<Window>,
}

struct Window {
    rank: u32,
    index: u64,
    mapping: Mapping,
}

fn check(domain: &Domain, remote: Remote, len: usize) -> Result<(u32, u64), RemoteError> {
    let rank = remote.rkey & !KEY_ARENA;
    let end = remote.addr.checked_add(len as u64);
    let inside = end.is_some_and(|end| end <= domain.arena_bytes());
    if !inside || rank >= domain.job.present() as u64 {
        return Err(RemoteError::Fault);
    }
    Ok((rank as u32, remote.addr))
}

/// Calls `visit`, in order, with address and length of each contiguous part of a peer's memory. Other processes may
/// write there.
///
/// # Errors
/// `Unsupported` if the key names no arena or there is no address space for a window. `Fault` if the range is outside
/// of the arena. `visit` may have been called for some parts.
pub fn visit_stretches(
    domain: &Domain, windows: &mut Windows, remote: Remote, len: usize,
    mut visit: impl FnMut(*mut u8, usize),
) -> Result<(), RemoteError> {
    if remote.rkey & KEY_ARENA == 0 {
        return Err(RemoteError::Unsupported);
    }
    let (rank, offset) = check(domain, remote, len)?;
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let skip = (at % WINDOW_BYTES) as usize;
        let stretch = (len - done).min(WINDOW_BYTES as usize - skip);
        let base = windows.find_or_open(domain, rank, at / WINDOW_BYTES)?;
        // SAFETY: the stretch, which starts at `skip`, lies inside the window.
        visit(unsafe { base.add(skip) }, stretch);
        done += stretch;
    }
    Ok(())
}

impl Windows {
    fn find_or_open(
        &mut self, domain: &Domain, rank: u32, index: u64,
    ) -> Result<*mut u8, RemoteError> {
        let wanted = |window: &Window| window.rank == rank && window.index == index;
        match self.open.iter().rposition(wanted) {
            Some(place) => self.open[place..].rotate_left(1),
            None => {
                let start = domain.arena_start(rank).ok_or(RemoteError::Fault)?;
                let offset = start + index * WINDOW_BYTES;
                // The sizes of windows and arenas are powers of two, so no window extends beyond the arena.
                let bytes = WINDOW_BYTES.min(domain.arena_bytes());
                let mapping = domain.job.map_range(offset, bytes as usize);
                let mapping = mapping.map_err(|_| RemoteError::Unsupported)?;
                if self.open.len() == WINDOWS_MAX {
                    self.open.remove(0);
                }
                self.open.push(Window { rank, index, mapping });
            }
        }
        match self.open.last() {
            Some(window) => Ok(window.mapping.base().as_ptr()),
            None => Err(RemoteError::Unsupported),
        }
    }
}

const _: () = assert!(WINDOW_BYTES.is_power_of_two());
