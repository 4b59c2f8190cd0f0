//! Send buffers as packets need them. A packet is sent from its buffer, again if need be, and leaves it when its
//! receiver has taken it and the adapter is done with every copy it was given.
//!
//! ```text
//! small   head, stream of one packet
//! large   heads of all packets, stream of a whole message
//! ```
#![allow(unsafe_code)]

use super::super::port::Port;
use super::super::send_buffers::{ClassSettings, SendBuffers, Slot};
use super::super::send_queue::is_before;
use super::Settings;
use super::wire::{HEAD, PACKETS_MOST, STREAM};
use crate::verbs::{Access, Sge, VerbsError};

/// Bytes of heads before the stream of a large buffer.
const HEADS: usize = (PACKETS_MOST * HEAD).next_multiple_of(64);
/// Small and large buffers that are there from the start.
const FEW: [u32; 2] = [16, 2];

/// A packet where it is sent from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub slot: Slot,
    /// Which of the message's.
    pub part: u16,
    /// Bytes of the stream before it.
    pub offset: u32,
    /// Bytes of the stream in it.
    pub bytes: u32,
}

impl Packet {
    /// What is alone in a buffer, with so many bytes after its head.
    pub fn alone(slot: Slot, bytes: usize) -> Self {
        Packet { slot, part: 0, offset: 0, bytes: bytes as u32 }
    }
}

/// The send buffers of an interface.
pub(super) struct Pool {
    pub buffers: SendBuffers,
    /// What each of the small and of the large ones holds.
    uses: [Vec<Use>; 2],
    /// Given back, but perhaps still being sent.
    lingering: Vec<Slot>,
}

#[derive(Clone, Copy, Default)]
struct Use {
    /// Packets in it that have not been taken.
    left: u32,
    /// Number of the send that was posted from it last.
    last: u32,
}

impl Pool {
    /// Those that are there from the start; a packet has `mtu` bytes.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn new(port: &Port, settings: &Settings, mtu: usize) -> Result<Self, VerbsError> {
        let class = |class: usize, bytes: usize| ClassSettings {
            bytes,
            few: FEW[class].min(settings.buffers[class]),
            group: settings.buffers[class],
            groups: settings.groups,
            kept: 1,
        };
        let make = |bytes| port.buffer(bytes, Access::Read);
        let buffers = SendBuffers::new([class(0, mtu), class(1, HEADS + STREAM)], make)?;
        let mut pool = Pool { buffers, uses: [Vec::new(), Vec::new()], lingering: Vec::new() };
        pool.note_made();
        Ok(pool)
    }

    fn note_made(&mut self) {
        for (uses, made) in self.uses.iter_mut().zip(self.buffers.made()) {
            uses.resize(made, Use::default());
        }
    }

    /// Makes more for such messages; false where there are no more to come.
    pub fn grow(&mut self, port: &mut Port, large: bool) -> bool {
        let make = |bytes| port.more_buffer(bytes, Access::Read);
        let made = self.buffers.grow(large, make);
        self.note_made();
        port.note(made).unwrap_or(false)
    }

    /// A free buffer for a message of `packets` packets.
    #[inline]
    pub fn take(&mut self, large: bool, packets: u32) -> Option<Slot> {
        let slot = self.buffers.take(large)?;
        self.of(slot).left = packets;
        Some(slot)
    }

    #[inline]
    fn of(&mut self, slot: Slot) -> &mut Use {
        let (class, index) = slot.place();
        &mut self.uses[class][index]
    }

    /// The send with this number has been posted from a buffer.
    #[inline]
    pub fn note_post(&mut self, slot: Slot, number: u32) {
        self.of(slot).last = number;
    }

    /// A packet has been taken. `done`: sends known to be done.
    #[inline]
    pub fn release(&mut self, slot: Slot, done: u32) {
        let use_of = self.of(slot);
        use_of.left -= 1;
        if use_of.left > 0 {
            return;
        }
        match is_before(use_of.last, done) {
            true => self.buffers.give(slot),
            false => self.lingering.push(slot),
        }
    }

    /// More sends are done.
    pub fn sweep(&mut self, done: u32) {
        let (buffers, uses) = (&mut self.buffers, &self.uses);
        self.lingering.retain(|&slot| {
            let (class, index) = slot.place();
            let over = is_before(uses[class][index].last, done);
            if over {
                buffers.give(slot);
            }
            !over
        });
    }

    /// Where the stream of a message is to be written.
    #[inline]
    pub fn stream(&self, slot: Slot) -> *mut u8 {
        let before = if slot.is_large() { HEADS } else { HEAD };
        self.buffers.locate(slot).0.wrapping_add(before)
    }

    /// Writes the head of a packet that is not being sent.
    #[inline]
    pub fn write_head(&mut self, packet: &Packet, head: &[u8; HEAD]) {
        let to = self.buffers.locate(packet.slot).0.wrapping_add(packet.part as usize * HEAD);
        // SAFETY: a buffer has room for the heads of all its packets, and nobody else reads them now.
        unsafe { to.cast::<[u8; HEAD]>().write_unaligned(*head) };
    }

    /// Writes what is no packet, at least a head long, where a packet would lie; returns as [`Pool::segments`].
    pub fn write_wireup_datagram(&mut self, at: &Packet, bytes: &[u8]) -> ([Sge; 2], usize) {
        if let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            self.write_head(at, head);
            let to = self.stream(at.slot);
            // SAFETY: a buffer has room for a packet, which is longer than any wireup datagram, and nobody else uses
            // it.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to, rest.len()) };
        }
        self.segments(at)
    }

    /// What a send of a packet is to read: one segment or two.
    #[inline]
    pub fn segments(&self, packet: &Packet) -> ([Sge; 2], usize) {
        let (at, lkey) = self.buffers.locate(packet.slot);
        let bytes = packet.bytes as usize;
        if !packet.slot.is_large() {
            return ([Sge::over(at, HEAD + bytes, lkey), Sge::default()], 1);
        }
        let head = at.wrapping_add(packet.part as usize * HEAD);
        let part = at.wrapping_add(HEADS + packet.offset as usize);
        ([Sge::over(head, HEAD, lkey), Sge::over(part, bytes, lkey)], 2)
    }
}
