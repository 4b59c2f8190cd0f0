//! Notices: short messages of the layer above to a process, outside of matching. A notice needs no receive. Progress
//! stores it and, in its next round, calls [`Hooks::on_notice`](crate::worker::hooks::Hooks::on_notice), which may use
//! the worker freely. Notices of a pair are delivered in order.
#![allow(unsafe_code)]

use crate::endpoint::{PendingNotice, PendingPost};
use crate::request::Fault;
use crate::wire::{EAGER_LIMIT, NOTICE, SHORT_LIMIT};
use crate::worker::Worker;
use crate::worker::hooks::ReceivedNotice;
use fastpath_base::sync::Ordering;
use fastpath_transport::{Header, Post};

/// Largest notice, in bytes.
pub const NOTICE_MAX: usize = EAGER_LIMIT / 2;

impl Worker {
    /// Sends a notice of at most [`NOTICE_MAX`] bytes to a process by world rank. A notice to a process that has left
    /// is dropped.
    ///
    /// # Errors
    /// [`Fault::NoMemory`]: there is no memory for a connection.
    pub fn send_notice(
        &mut self, peer: u32, kind: u32, number: u64, bytes: &[u8],
    ) -> Result<(), Fault> {
        debug_assert!(bytes.len() <= NOTICE_MAX);
        match self.connect(peer) {
            Ok(()) => {}
            Err(Fault::PeerGone) => return Ok(()),
            Err(fault) => return Err(fault),
        }
        let header = Header::new(NOTICE, kind, number);
        // A notice must not overtake an earlier one that waits for space.
        let is_waiting = self.endpoints[peer].blocked != 0;
        if is_waiting || self.post_notice(peer, header, bytes) == Post::NoResource {
            let notice = PendingNotice { header, bytes: bytes.into() };
            self.enqueue(peer, PendingPost::Notice(Box::new(notice)));
        } else {
            self.ring_for(peer, NOTICE);
        }
        Ok(())
    }

    /// Posts a notice, if there is space for it.
    pub(crate) fn post_notice(&mut self, peer: u32, header: Header, bytes: &[u8]) -> Post {
        let endpoint = &mut self.endpoints[peer];
        if bytes.len() <= SHORT_LIMIT {
            // SAFETY: pointer and length are those of the slice.
            return unsafe { endpoint.post_short(header, bytes.as_ptr(), bytes.len()) };
        }
        endpoint.post_bcopy(header, bytes.len(), |to| {
            // SAFETY: `to` has space for the length passed, and does not overlap the caller's bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        })
    }

    /// Stores an arrival, and lets the next round of progress deliver it.
    #[cold]
    pub(crate) fn handle_notice(&mut self, peer: u32, header: Header, data: *const u8, len: usize) {
        if len > NOTICE_MAX {
            return self.violation();
        }
        let mut bytes = vec![0; len].into_boxed_slice();
        // SAFETY: the arrival holds `len` bytes. The peer may write them meanwhile, so they are copied first.
        unsafe { std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), len) };
        self.notices.push_back(ReceivedNotice {
            sender: peer,
            kind: header.imm,
            number: header.key,
            bytes,
        });
        // ORDERING: release; partner is the acquire in `Iface::accept`. The signal makes progress poll the interfaces.
        self.job.own_page().incoming_generation.fetch_add(1, Ordering::Release);
    }

    /// Delivers the stored notices. Returns whether there were any. A callback may make progress, which delivers the
    /// notices that follow.
    pub(crate) fn deliver_notices(&mut self) -> bool {
        let any = !self.notices.is_empty();
        while let Some(notice) = self.notices.pop_front() {
            if let Some(call) = self.hooks.on_notice {
                call(self, &notice);
            }
        }
        any
    }
}
