//! Several sends posted by one call, with one doorbell.
#![allow(unsafe_code)]

use super::abi::{SendWr, Sge};
use super::inline::InlineError;
use super::post::{PostError, SendFlags, SendOperation, build_request};
use super::qp::QueuePair;
use std::ptr::null_mut;

/// Sends to be posted together, in order.
#[derive(Default)]
pub struct SendList {
    requests: Vec<SendWr>,
}

impl SendList {
    /// Creates an empty list.
    pub fn new() -> Self {
        SendList::default()
    }

    /// Number of sends.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes all sends; the list keeps its memory.
    pub fn clear(&mut self) {
        self.requests.clear();
    }

    /// Adds a send for `pair`; returns whether its payload goes inline. The segments are read when the list is posted.
    ///
    /// # Errors
    /// The payload must go inline and does not fit. Nothing was added.
    #[inline]
    pub fn push(
        &mut self, pair: &QueuePair, id: u64, operation: &SendOperation<'_>, segments: &[Sge],
        flags: SendFlags,
    ) -> Result<bool, InlineError> {
        let built = build_request(id, operation, segments, flags, pair.granted_inline());
        let (request, inline) = built?;
        self.requests.push(request);
        Ok(inline)
    }

    fn link(&mut self) -> *mut SendWr {
        let (first, len) = (self.requests.as_mut_ptr(), self.requests.len());
        for (index, request) in self.requests.iter_mut().enumerate() {
            request.next = match index + 1 < len {
                true => first.wrapping_add(index + 1),
                false => null_mut(),
            };
        }
        first
    }
}

impl QueuePair {
    /// Posts the sends of a list by one call.
    ///
    /// # Safety
    /// See [`QueuePair::post_send`], for each send. Segments and address handles of [`SendList::push`] still exist.
    ///
    /// # Errors
    /// The number of posted sends, and the reason why the next send was not posted.
    #[inline]
    pub unsafe fn post_list(&self, list: &mut SendList) -> Result<(), (usize, PostError)> {
        if list.is_empty() {
            return Ok(());
        }
        let first = list.link();
        let mut bad = null_mut();
        // SAFETY: the pair is alive. `link` has chained the requests, and the last has no successor. The segments are
        // in place, by this function's contract.
        match unsafe { (self.post_send)(self.raw.as_ptr(), first, &mut bad) } {
            0 => Ok(()),
            errno => {
                let accepted = match bad.is_null() {
                    true => 0,
                    // SAFETY: on failure, the library sets `bad` to a request of the list (ibv_post_send).
                    false => unsafe { bad.offset_from(first) },
                };
                let accepted = accepted.clamp(0, list.len() as isize) as usize;
                Err((accepted, self.post_error_slow(errno)))
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::verbs::{
        Access, Buffer, CompletionQueue, LocalPort, PairSettings, ProtectionDomain, RecvEntry,
        RemoteQp, RetryConfig, Service, Wc, fake,
    };
    use std::sync::Arc;

    struct QueueEnd {
        pair: QueuePair,
        cq: Arc<CompletionQueue>,
        buffer: Buffer,
        port: LocalPort,
    }

    fn make_end() -> QueueEnd {
        let context = fake::open();
        let domain = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64, None).unwrap();
        let port = LocalPort::choose(&context, None).unwrap();
        let settings = PairSettings {
            service: Service::Reliable,
            send_cq: &cq,
            recv_cq: &cq,
            shared: None,
            send_depth: 4,
            recv_depth: 8,
            send_segments: 1,
            inline: 64,
            port: port.number(),
            qkey: 0,
        };
        QueueEnd {
            pair: QueuePair::new(&domain, &settings).unwrap(),
            buffer: Buffer::new(&domain, 64, Access::Remote).unwrap(),
            cq,
            port,
        }
    }

    fn make_pair() -> [QueueEnd; 2] {
        fake::set_conditions(fake::Conditions::default());
        let ends = [make_end(), make_end()];
        for (own, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let path = own.port.path_to(&other.port.address()).unwrap();
            let (number, psn) = (other.pair.qpn(), 7);
            let peer = RemoteQp { path, qpn: number, psn };
            own.pair.connect(&peer, 7, &RetryConfig::default()).unwrap();
        }
        ends
    }

    fn poll_all(cq: &CompletionQueue) -> Vec<Wc> {
        let mut found = Vec::new();
        let mut batch = [Wc::default(); 4];
        loop {
            match cq.poll(&mut batch).unwrap() {
                0 => return found,
                n => found.extend_from_slice(&batch[..n]),
            }
        }
    }

    #[test]
    fn list__is_carried_out_in_order_and_reports_what_is_signaled() {
        let [from, to] = make_pair();
        let room = Sge::over(to.buffer.address(), 8, to.buffer.region().lkey());
        let rooms: Vec<_> = (0..3).map(|id| RecvEntry { id, segment: room }).collect();
        // SAFETY: the buffer is dropped after the pair.
        unsafe { to.pair.post_recv(&rooms) }.unwrap();
        let bytes = *b"fastpath";
        let segments = [Sge::over(bytes.as_ptr(), 8, 0)];
        let mut list = SendList::new();
        for id in 1..=3 {
            let flags = SendFlags { signaled: id == 3, ..SendFlags::default() };
            let added = list.push(&from.pair, id, &SendOperation::Send, &segments, flags);
            assert_eq!(added, Ok(true));
        }
        // SAFETY: all sends go inline, so `bytes` is read before the call returns. `segments` lives until then.
        unsafe { from.pair.post_list(&mut list) }.unwrap();
        let sent: Vec<u64> = poll_all(&from.cq).iter().map(|c| c.wr_id).collect();
        let arrived: Vec<u64> = poll_all(&to.cq).iter().map(|c| c.wr_id).collect();
        assert_eq!((sent, arrived), (vec![3], vec![0, 1, 2]));
        list.clear();
        // SAFETY: the list is empty, so that nothing is posted.
        assert!(list.is_empty() && unsafe { from.pair.post_list(&mut list) }.is_ok());
    }

    #[test]
    fn list__that_does_not_fit_says_how_much_of_it_was_posted() {
        let [from, _to] = make_pair();
        let mut list = SendList::new();
        for id in 0..6 {
            let added = list.push(&from.pair, id, &SendOperation::Send, &[], SendFlags::default());
            added.unwrap();
        }
        // SAFETY: the sends have no segments.
        let refused = unsafe { from.pair.post_list(&mut list) };
        assert_eq!(refused, Err((4, PostError::Full)));
    }
}
