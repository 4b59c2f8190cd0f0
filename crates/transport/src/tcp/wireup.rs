//! Wire-up messages of adapters' lanes, between ranks that share no memory. They use the pair's socket, which also
//! carries the peer's phase of leaving the job, and shows the peer's death.

use super::iface::TcpIface;
use super::link::TcpLink;
use super::wire::{ReceivedWireup, TcpFrame, WireupHead};
use crate::contract::Address;
use fastpath_base::exit;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_segment::{STATE_AWAKE, STATE_DEAD, STATE_FINALIZED};

impl TcpLink {
    /// Sends a wire-up message, or stores it until the connection is established. Returns false if the outbox is busy.
    fn send_wireup(&mut self, head: WireupHead, address: Address) -> bool {
        if !self.is_up() {
            self.unsent.retain(|(before, _)| before.step != head.step);
            self.unsent.push((head, address));
            return true;
        }
        self.flush();
        // Store no second message: the outbox must not grow for a peer that does not read.
        if self.open.is_some() || !self.outbox.is_empty() {
            return false;
        }
        self.push_wireup(head, address);
        self.flush();
        true
    }

    fn push_wireup(&mut self, head: WireupHead, address: Address) {
        let frame = TcpFrame::Wireup(head, address.as_slice().len());
        self.outbox.push_bytes(&frame.encode());
        self.outbox.push_bytes(address.as_slice());
    }

    pub(super) fn send_unsent(&mut self) {
        for (head, address) in std::mem::take(&mut self.unsent) {
            self.push_wireup(head, address);
        }
        self.flush();
    }

    #[cold]
    pub(super) fn hear_wireup(&mut self, head: WireupHead, len: usize) {
        self.inbox.take_head();
        if let Some(address) = Address::new(self.inbox.drain(len)) {
            let received = (self.peer(), head, address);
            self.lists.borrow_mut().wireups.push_back(received);
        }
    }

    /// State word of a peer without a page in this process's memory. The word lives until the process exits.
    fn state_word(&mut self) -> &'static AtomicU32 {
        let word = *self.word.get_or_insert_with(|| exit::store(AtomicU32::new(STATE_AWAKE)));
        self.tell_state();
        word
    }

    pub(super) fn tell_state(&self) {
        if let (Some(word), true) = (self.word, self.is_over()) {
            let state = match self.failure {
                Some(_) => STATE_DEAD,
                None => STATE_FINALIZED,
            };
            word.store(state, Ordering::Relaxed);
        }
    }
}

impl TcpIface {
    /// Sends a wire-up message to a peer, now or when it is connected. If it returns false, retry later.
    pub(crate) fn send_wireup(&mut self, peer: u32, head: WireupHead, address: Address) -> bool {
        let mut core = self.core.borrow_mut();
        core.want(peer);
        let link = core.peer(peer).link.clone();
        let mut link = link.borrow_mut();
        link.send_wireup(head, address)
    }

    pub(crate) fn has_wireup(&self) -> bool {
        !self.core.borrow().lists.borrow().wireups.is_empty()
    }

    pub(crate) fn receive_wireup(&mut self) -> Option<ReceivedWireup> {
        self.core.borrow().lists.borrow_mut().wireups.pop_front()
    }

    pub(crate) fn state_word(&self, peer: u32) -> &'static AtomicU32 {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        link.state_word()
    }

    pub(crate) fn has_message(&self, peer: u32) -> bool {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        let has_message = link.has_message() || link.awaits_bulk();
        if !has_message {
            link.retire();
        }
        has_message
    }

    pub(crate) fn hang_up(&mut self, peer: u32) {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        let name = link.name.clone();
        link.fail(format!("{name} has sent an invalid message"));
    }

    pub(crate) fn failure(&self, peer: u32) -> Option<String> {
        let core = self.core.borrow();
        core.peers.get(&peer)?.link.borrow().describe_failure()
    }
}
