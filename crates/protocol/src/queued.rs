//! Fast path of a receive that names its source, if that source has unexpected messages or posted receives
//! (`Matcher::is_quiet`). The path copies from the unexpected queue without a request.
#![allow(unsafe_code)]

use crate::endpoint::ImmediateReceive;
use crate::matching::MatchCriteria;
use crate::worker::Worker;

impl Worker {
    /// Receives a short unexpected message or, if none matches, the next arrival. `None` if nothing was received.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub unsafe fn recv_queued(
        &mut self, want: MatchCriteria, to: *mut u8, room: usize,
    ) -> Option<ImmediateReceive> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract.
        match unsafe { self.matcher.take_short(&want, to, room) } {
            Some(taken) => taken.ok(),
            // SAFETY: `to` is writable by the contract; no posted receive or matching message comes first.
            None if self.matcher.has_no_receive(want.peer) => unsafe {
                self.recv_next(want, to, room)
            },
            None => None,
        }
    }

    /// # Safety
    /// See [`Worker::recv_queued`].
    #[inline(never)]
    unsafe fn recv_next(
        &mut self, want: MatchCriteria, to: *mut u8, room: usize,
    ) -> Option<ImmediateReceive> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract, and nothing comes before the arrival.
        unsafe { self.endpoints[want.peer].recv_short(want.key, want.tag, to, room) }
    }

    /// Returns whether a receive must be posted and can be: no message matches, and a request is free.
    #[inline]
    pub fn must_post(&mut self, want: &MatchCriteria) -> bool {
        self.requests.has_free() && self.matcher.find_unexpected(want).is_none()
    }
}
