//! The endpoint of a rank to itself. It never runs out of room but for memory.
#![allow(unsafe_code)]

use crate::contract::*;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::wait;
use fastpath_bootstrap::segment::{STATE_AWAKE, STATE_SLEEPING};
use std::collections::VecDeque;

/// Largest payload of one message.
const MESSAGE_MAX: usize = 32 * 1024;

struct Message {
    header: Header,
    data: Vec<u8>,
}

/// The connection of a rank to itself.
#[derive(Default)]
pub struct LoopbackEndpoint {
    queue: VecDeque<Message>,
    spare: Vec<Vec<u8>>,
    /// The rank's own state word: another thread may sleep until there is something here.
    owner: Option<&'static AtomicU32>,
}

impl LoopbackEndpoint {
    /// An endpoint with nothing under way, of a rank that never sleeps.
    pub fn new() -> Self {
        Self::default()
    }

    /// An endpoint of the rank with this state word.
    pub fn of_rank(state: &'static AtomicU32) -> Self {
        LoopbackEndpoint { owner: Some(state), ..Self::default() }
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut data = self.spare.pop().unwrap_or_default();
        data.clear();
        data.reserve(len);
        data
    }
}

impl Connection for LoopbackEndpoint {}

impl Endpoint for LoopbackEndpoint {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "loopback",
            short: MESSAGE_MAX,
            bcopy: MESSAGE_MAX,
            get_zcopy: usize::MAX,
            put_zcopy: usize::MAX,
            reliable: true,
            needs_wireup: false,
            directed: true,
        }
    }

    unsafe fn am_short(&mut self, header: Header, data: *const u8, len: usize) -> Post {
        self.am_bcopy(header, len, |to| {
            // SAFETY: `data` is readable for `len` bytes, by the contract; `to` has room for as many.
            unsafe { std::ptr::copy_nonoverlapping(data, to, len) }
        })
    }

    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        let mut data = self.buffer(len);
        pack(data.as_mut_ptr());
        // SAFETY: `buffer` reserved `len` bytes and `pack` wrote them.
        unsafe { data.set_len(len) };
        self.queue.push_back(Message { header, data });
        match self.owner {
            Some(state) if state.load(Ordering::Relaxed) != STATE_AWAKE => Post::Wake,
            _ => Post::Done,
        }
    }

    fn wake(&mut self) -> Post {
        // The sleeper and this thread are of one process, and under one lock.
        let relaxed = Ordering::Relaxed;
        if let Some(state) = self.owner
            && state.compare_exchange(STATE_SLEEPING, STATE_AWAKE, relaxed, relaxed).is_ok()
        {
            wait::futex_wake(state, u32::MAX);
        }
        Post::Done
    }

    fn look(&mut self) -> Option<Arrival<'_>> {
        let message = self.queue.front()?;
        Some(Arrival::new(message.header, message.data.as_ptr(), message.data.len()))
    }

    fn take(&mut self) {
        if let Some(message) = self.queue.pop_front()
            && self.spare.len() < 8
        {
            self.spare.push(message.data);
        }
    }

    unsafe fn get(&mut self, to: *mut u8, len: usize, from: Remote) -> Result<(), RemoteError> {
        // SAFETY: the address comes from this very process, whose pending send keeps it readable; a
        // send to oneself may overlap its own receive buffer only in erroneous programs, which
        // `copy` (unlike `copy_nonoverlapping`) survives.
        unsafe { std::ptr::copy(from.addr as *const u8, to, len) };
        Ok(())
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        // SAFETY: as in `get`.
        unsafe { std::ptr::copy(from, to.addr as *mut u8, len) };
        Ok(())
    }
}
