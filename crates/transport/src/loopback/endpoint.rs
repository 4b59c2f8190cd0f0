//! Endpoint of a rank to itself. Only memory limits its room.
#![allow(unsafe_code)]

use crate::contract::*;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_base::wait;
use fastpath_segment::{STATE_AWAKE, STATE_SLEEPING};
use std::collections::VecDeque;

const MESSAGE_MAX: usize = 32 * 1024;

struct LoopbackMessage {
    header: Header,
    data: Vec<u8>,
}

/// Connection of a rank to itself.
#[derive(Default)]
pub struct LoopbackEndpoint {
    queue: VecDeque<LoopbackMessage>,
    spare: Vec<Vec<u8>>,
    /// State word of the rank, if another of its threads may sleep until a message arrives here.
    owner: Option<&'static AtomicU32>,
}

impl LoopbackEndpoint {
    /// Creates an empty endpoint of a rank that never sleeps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty endpoint of the rank with this state word.
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
            // SAFETY: `data` is readable for `len` bytes, by the contract, and `to` has room for them.
            unsafe { std::ptr::copy_nonoverlapping(data, to, len) }
        })
    }

    fn am_bcopy(&mut self, header: Header, len: usize, pack: impl FnOnce(*mut u8)) -> Post {
        let mut data = self.buffer(len);
        pack(data.as_mut_ptr());
        // SAFETY: `buffer` reserved `len` bytes and `pack` wrote them.
        unsafe { data.set_len(len) };
        self.queue.push_back(LoopbackMessage { header, data });
        match self.owner {
            Some(state) if state.load(Ordering::Relaxed) != STATE_AWAKE => Post::Wake,
            _ => Post::Done,
        }
    }

    fn wake(&mut self) -> Post {
        // Relaxed suffices: sleeper and caller are threads of one process, under one lock.
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
        // SAFETY: the address comes from this process, whose pending send keeps it readable. Only an erroneous program
        // sends from its own receive buffer, which `copy` tolerates, unlike `copy_nonoverlapping`.
        unsafe { std::ptr::copy(from.addr as *const u8, to, len) };
        Ok(())
    }

    unsafe fn put(&mut self, from: *const u8, len: usize, to: Remote) -> Result<(), RemoteError> {
        // SAFETY: the address comes from this process, whose pending receive keeps it writable; `copy` tolerates
        // overlap.
        unsafe { std::ptr::copy(from, to.addr as *mut u8, len) };
        Ok(())
    }
}
