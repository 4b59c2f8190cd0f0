//! What travels.

use crate::contract::{Address, Header};
use crate::reliable::Ack;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// An active message.
pub(super) struct Message {
    pub header: Header,
    pub data: Vec<u8>,
}

impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Header { id, imm, key, aux } = self.header;
        (id, imm, key, aux, &self.data).hash(state);
    }
}

/// A packet between two unreliable ends.
#[derive(Clone, Hash)]
pub(super) enum Packet {
    /// A message with its sequence number.
    Data(u32, Rc<Message>),
    /// What the receiver has.
    Ack(Ack),
}

/// A message of the wire-up.
#[derive(Clone, Hash)]
pub(super) struct Datagram {
    pub step: u8,
    pub address: Address,
}
