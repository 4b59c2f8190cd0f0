//! The short way of a receive that names its source while messages or receives of that source wait: from the unexpected
//! queue straight into the buffer, without a request. The immediate path has found that the source is not quiet.
#![allow(unsafe_code)]

use crate::endpoint::Taken;
use crate::matching::Want;
use crate::worker::Worker;

impl Worker {
    /// Receives a short message that waits in the unexpected queue, or, where none there is the wanted one, the next
    /// arrival; or does nothing.
    ///
    /// # Safety
    /// `to` is writable for `room` bytes.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Recv_unexpected
    pub unsafe fn recv_queued(&mut self, want: Want, to: *mut u8, room: usize) -> Option<Taken> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract.
        match unsafe { self.matcher.take_short(&want, to, room) } {
            Some(taken) => taken.ok(),
            // SAFETY: `to` is writable for `room` bytes. No receive is posted and no message waits: nothing stands
            // before the next arrival.
            None if self.matcher.has_no_receive(want.peer) => unsafe {
                self.recv_next(want, to, room)
            },
            None => None,
        }
    }

    /// # Safety
    /// As [`Worker::recv_queued`].
    #[inline(never)]
    unsafe fn recv_next(&mut self, want: Want, to: *mut u8, room: usize) -> Option<Taken> {
        // SAFETY: `to` is writable for `room` bytes, by this function's contract; nothing stands before the arrival.
        unsafe { self.endpoints[want.peer].recv_short(want.key, want.tag, to, room) }
    }

    /// Whether a receive must be posted, and can be at once: no message in the unexpected queue satisfies it.
    #[inline]
    pub fn must_post(&mut self, want: &Want) -> bool {
        self.requests.has_free() && self.matcher.find_unexpected(want).is_none()
    }
}
