//! Messages that arrived before anyone asked for them.

use crate::wire::Rts;

/// What kind of message is stored.
#[derive(Debug, Clone, Copy)]
pub enum Arrived {
    /// A whole message.
    Eager,
    /// A whole message whose sender waits to hear that it was matched; holds the sender's request.
    EagerSync(u32),
    /// The announcement and first bytes of a long message.
    Rendezvous(Rts),
}

/// A stored message.
#[derive(Debug)]
pub struct Unexpected {
    /// World rank of the sender.
    pub peer: u32,
    /// Match key.
    pub key: u64,
    /// Tag.
    pub tag: i32,
    /// What it is.
    pub arrived: Arrived,
    /// Its bytes, or the first ones of a long message.
    pub data: Vec<u8>,
}

impl Unexpected {
    /// The sender's request, where the message was announced by one: it may be taken back.
    pub fn announced_by(&self) -> Option<u32> {
        match self.arrived {
            Arrived::EagerSync(request) => Some(request),
            Arrived::Rendezvous(rts) => rts.announced_by(),
            Arrived::Eager => None,
        }
    }

    /// Length of the whole message in bytes.
    pub fn total(&self) -> u64 {
        match self.arrived {
            Arrived::Rendezvous(rts) => rts.total,
            _ => self.data.len() as u64,
        }
    }
}

/// All stored messages, by token.
#[derive(Default)]
pub struct UnexpectedPool {
    slots: Vec<Option<Unexpected>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
}

/// Buffers up to this size are kept for the next message.
const SPARE_CAPACITY: usize = 4096;
/// How many of them.
const SPARE_COUNT: usize = 64;

impl UnexpectedPool {
    /// An empty buffer for a message of `len` bytes.
    pub fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve(len);
        buffer
    }

    /// Takes back a buffer.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_CAPACITY && self.spare.len() < SPARE_COUNT {
            self.spare.push(buffer);
        }
    }

    /// Stores a message and returns its token.
    pub fn insert(&mut self, message: Unexpected) -> u32 {
        if let Some(token) = self.free.pop() {
            self.slots[token as usize] = Some(message);
            return token;
        }
        self.slots.push(Some(message));
        (self.slots.len() - 1) as u32
    }

    /// A stored message.
    pub fn get(&self, token: u32) -> Option<&Unexpected> {
        self.slots.get(token as usize)?.as_ref()
    }

    /// A stored message, to add to it.
    pub fn get_mut(&mut self, token: u32) -> Option<&mut Unexpected> {
        self.slots.get_mut(token as usize)?.as_mut()
    }

    /// Removes a stored message.
    pub fn remove(&mut self, token: u32) -> Option<Unexpected> {
        let message = self.slots.get_mut(token as usize)?.take()?;
        self.free.push(token);
        Some(message)
    }
}
