//! Message formats of the simulated network.

use crate::contract::{Address, Header};
use crate::reliable::Ack;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

pub(super) struct SimMessage {
    pub header: Header,
    pub data: Vec<u8>,
}

impl Hash for SimMessage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Header { id, imm, key, aux } = self.header;
        (id, imm, key, aux, &self.data).hash(state);
    }
}

#[derive(Clone, Hash)]
pub(super) enum Packet {
    Data(u32, Rc<SimMessage>),
    Ack(Ack),
}

#[derive(Clone, Hash)]
pub(super) struct Datagram {
    pub step: u8,
    pub address: Address,
}
