//! The short way of an arrival to the receive that waits for it: a message in its slot, for the first receive posted to
//! its source, with room for it in a contiguous buffer. Everything else goes the long way (`progress`).
#![allow(unsafe_code)]

use crate::request::State;
use crate::tag::key_source;
use crate::wire;
use crate::worker::Worker;
use fastpath_base::copy::copy_small;

impl Worker {
    /// Takes the next arrival of `peer` if it can go the short way, or does nothing.
    #[inline(always)] // `fastpath bench rate`: windows of nonblocking receives
    pub(crate) fn drain_one(&mut self, peer: u32) -> bool {
        let endpoint = self.endpoint(peer);
        let Some(arrival) = endpoint.lane.look_short(wire::EAGER) else {
            return false;
        };
        let (header, from, len) = (arrival.header, arrival.data(), arrival.len());
        let Some(request) = self.matcher.first_posted(peer) else {
            return false;
        };
        // SAFETY: posted, so it is valid; nobody else uses it meanwhile.
        let found = unsafe { &mut *request };
        let tag = header.imm as i32;
        let plain = found.key == header.key
            && crate::tag::tag_matches(found.tag, tag)
            && len as u64 <= found.bytes
            && found.is_contiguous()
            && !found.detached;
        if !plain {
            return false;
        }
        // SAFETY: the buffer has room for `len` bytes, by its owner's promise; the arrival was just shown, and the
        // request is the first of its list.
        unsafe {
            copy_small(found.ptr, from, len);
            found.source = key_source(header.key) as i32;
            found.received_tag = tag;
            found.received = len as u64;
            found.state = State::Complete;
            self.matcher.unpost_first(peer);
            self.endpoint(peer).lane.take_short();
        }
        true
    }
}
