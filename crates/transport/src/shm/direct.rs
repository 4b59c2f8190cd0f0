//! Direct access: the arenas of peers in the address space of this process, window by window.
//!
//! A window stays mapped for the next message. Memory that its owner frees and takes again is the
//! same file at the same offset, so an open window always shows what is there now.
#![allow(unsafe_code)]

use super::arena::KEY_ARENA;
use super::domain::Domain;
use crate::contract::{Remote, RemoteError};
use fastpath_bootstrap::segment::Mapping;

/// Bytes of a window.
const WINDOW_BYTES: u64 = 256 << 20;
/// Windows that an endpoint keeps.
const WINDOWS_MAX: usize = 16;

/// The windows that an endpoint has opened, the one used last at the end.
#[derive(Default)]
pub struct Windows {
    open: Vec<Window>,
}

struct Window {
    rank: u32,
    index: u64,
    mapping: Mapping,
}

/// Rank and offset that a key names, where it names a stretch of `len` bytes inside an arena.
fn check(domain: &Domain, remote: Remote, len: usize) -> Result<(u32, u64), RemoteError> {
    let rank = remote.rkey & !KEY_ARENA;
    let end = remote.addr.checked_add(len as u64);
    let inside = end.is_some_and(|end| end <= domain.arena_bytes());
    if !inside || rank >= domain.job.present() as u64 {
        return Err(RemoteError::Fault);
    }
    Ok((rank as u32, remote.addr))
}

/// Calls `visit` with address and length of each stretch of a peer's memory, in order. What lies
/// there can be written by others at any time.
///
/// # Errors
/// `Unsupported` where the key names no arena or there is no address space for a window, `Fault`
/// where it names what is outside of one. `visit` may have been called for a part of it.
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
        // SAFETY: `skip` and what follows lie inside the window.
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
                // Both are powers of two.
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
