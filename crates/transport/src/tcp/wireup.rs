//! Messages of the wire-up of adapters' lanes, between ranks that share no memory: they go by the connection of the
//! pair, which also tells how far the peer has come with leaving the job, and when it dies.

use super::iface::TcpIface;
use super::link::Link;
use super::wire::{Frame, WireupHead};
use crate::contract::Address;
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::segment::{STATE_AWAKE, STATE_DEAD, STATE_FINALIZED};

/// A message of the wire-up that has come: of whom, what it says, and the address.
pub(crate) type Received = (u32, WireupHead, Address);

impl Link {
    /// Sends a message of the wire-up, or does so as soon as the connection is there. False where something else is
    /// being said.
    fn send_wireup(&mut self, head: WireupHead, address: Address) -> bool {
        if !self.is_up() {
            self.unsent.retain(|(before, _)| before.step != head.step);
            self.unsent.push((head, address));
            return true;
        }
        self.flush();
        // What a peer does not read must not grow here.
        if self.open.is_some() || !self.outbox.is_empty() {
            return false;
        }
        self.push_wireup(head, address);
        self.flush();
        true
    }

    fn push_wireup(&mut self, head: WireupHead, address: Address) {
        let frame = Frame::Wireup(head, address.as_slice().len());
        self.outbox.push_bytes(&frame.encode());
        self.outbox.push_bytes(address.as_slice());
    }

    /// The connection is there: what waited for it goes.
    pub(super) fn send_unsent(&mut self) {
        for (head, address) in std::mem::take(&mut self.unsent) {
            self.push_wireup(head, address);
        }
        self.flush();
    }

    /// Takes one that has come.
    #[cold]
    pub(super) fn hear_wireup(&mut self, head: WireupHead, len: usize) {
        self.inbox.take_head();
        if let Some(address) = Address::new(self.inbox.drain(len)) {
            let received = (self.peer(), head, address);
            self.lists.borrow_mut().wireups.push_back(received);
        }
    }

    /// A word that says, as that on a rank's page does, whether the peer has left the job. It is there for the rest of
    /// the process, as the page is.
    fn state_word(&mut self) -> &'static AtomicU32 {
        let word =
            *self.word.get_or_insert_with(|| Box::leak(Box::new(AtomicU32::new(STATE_AWAKE))));
        self.tell_state();
        word
    }

    /// Says on the word that the peer has left, once it has.
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
    /// Sends a message of the wire-up to a peer, now or when the connection is there. False where it did not leave, as
    /// it may do soon.
    pub(crate) fn send_wireup(&mut self, peer: u32, head: WireupHead, address: Address) -> bool {
        let mut core = self.core.borrow_mut();
        core.want(peer);
        let link = core.peer(peer).link.clone();
        let mut link = link.borrow_mut();
        link.send_wireup(head, address)
    }

    /// Whether [`TcpIface::receive_wireup`] has one.
    pub(crate) fn has_wireup(&self) -> bool {
        !self.core.borrow().lists.borrow().wireups.is_empty()
    }

    /// A message of the wire-up that has come.
    pub(crate) fn receive_wireup(&mut self) -> Option<Received> {
        self.core.borrow().lists.borrow_mut().wireups.pop_front()
    }

    /// A word that says whether a peer has left the job.
    pub(crate) fn state_word(&self, peer: u32) -> &'static AtomicU32 {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        link.state_word()
    }

    /// Whether a message of a peer lies here. If not, the peer is told of again when something has come.
    pub(crate) fn has_message(&self, peer: u32) -> bool {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        let has_message = link.has_message() || link.awaits_bulk();
        if !has_message {
            link.retire();
        }
        has_message
    }

    /// Nothing goes to or comes from a peer any more, which has said what it cannot.
    pub(crate) fn hang_up(&mut self, peer: u32) {
        let link = self.core.borrow_mut().peer(peer).link.clone();
        let mut link = link.borrow_mut();
        let name = link.name.clone();
        link.fail(format!("{name}: it has sent what is no message"));
    }

    /// Why nothing goes to a peer any more, for people.
    pub(crate) fn failure(&self, peer: u32) -> Option<String> {
        let core = self.core.borrow();
        core.peers.get(&peer)?.link.borrow().describe_failure()
    }
}
