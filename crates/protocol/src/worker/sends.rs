//! Sends under way: blocked, pushed and recalled.

use crate::request::{Fault, RequestId};

/// Handle of a request ([`crate::Request::handle`]), which no later request has soon.
type RequestHandle = u32;

/// Cancelled send whose message the receiver may still hold. The send's request must not be reused yet.
pub(crate) struct RecalledSend {
    pub id: RequestId,
    /// Index of the entry in shared memory.
    pub entry: usize,
    /// Whether the owner has freed the request.
    pub released: bool,
}

#[derive(Default)]
pub(crate) struct Sends {
    /// Sends of long messages that progress continues after the receiver's answer, and receives with a deferred copy.
    pub pushing: Vec<RequestId>,
    pub recalled: Vec<RecalledSend>,
    /// Sends that end with a fault if their receivers have not matched them ([`crate::Worker::fail_request`]).
    pub failing: Vec<(RequestHandle, Fault)>,
    /// Peers with pending messages, in the order in which they became blocked.
    pub blocked: Vec<u32>,
    /// Number of blocked peers plus number of peers with queued one-sided operations.
    pub blocked_peers: u32,
}

impl Sends {
    /// Returns whether no send needs progress.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pushing.is_empty() && self.blocked_peers == 0
    }

    pub fn block(&mut self, peer: u32) {
        self.blocked.push(peer);
        self.blocked_peers += 1;
    }

    pub fn unblock(&mut self, peer: u32) {
        self.blocked.retain(|&blocked| blocked != peer);
        self.blocked_peers -= 1;
    }
}
