//! Send buffers for packets. A packet is sent and retransmitted from its buffer. The buffer is free when the receiver
//! has taken the packet, and the adapter has completed all its sends.
//!
//! ```text
//! small   head, stream of one packet
//! large   heads of all packets, stream of a whole message
//! ```
#![allow(unsafe_code)]

use super::super::port::AdapterPort;
use super::super::send_buffers::{BufferSlot, ClassSettings, SendBuffers};
use super::super::send_queue::is_before;
use super::Settings;
use super::wire::{HEAD, PACKETS_MOST, STREAM};
use crate::verbs::{Access, Sge, VerbsError};

const HEADS: usize = (PACKETS_MOST * HEAD).next_multiple_of(64);
const FEW: [u32; 2] = [16, 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub slot: BufferSlot,
    pub part: u16,
    pub offset: u32,
    pub bytes: u32,
}

impl Packet {
    pub fn alone(slot: BufferSlot, bytes: usize) -> Self {
        Packet { slot, part: 0, offset: 0, bytes: bytes as u32 }
    }
}

pub(super) struct Pool {
    pub buffers: SendBuffers,
    uses: [Vec<Use>; 2],
    lingering: Vec<BufferSlot>,
}

#[derive(Clone, Copy, Default)]
struct Use {
    left: u32,
    /// Send number of the last send from this buffer.
    last: u32,
}

impl Pool {
    pub fn new(port: &AdapterPort, settings: &Settings, mtu: usize) -> Result<Self, VerbsError> {
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

    pub fn grow(&mut self, port: &mut AdapterPort, large: bool) -> bool {
        let make = |bytes| port.more_buffer(bytes, Access::Read);
        let made = self.buffers.grow(large, make);
        self.note_made();
        port.note(made).unwrap_or(false)
    }

    #[inline]
    pub fn take(&mut self, large: bool, packets: u32) -> Option<BufferSlot> {
        let slot = self.buffers.take(large)?;
        self.of(slot).left = packets;
        Some(slot)
    }

    #[inline]
    fn of(&mut self, slot: BufferSlot) -> &mut Use {
        let (class, index) = slot.place();
        &mut self.uses[class][index]
    }

    #[inline]
    pub fn note_post(&mut self, slot: BufferSlot, number: u32) {
        self.of(slot).last = number;
    }

    #[inline]
    pub fn release(&mut self, slot: BufferSlot, done: u32) {
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

    #[inline]
    pub fn stream(&self, slot: BufferSlot) -> *mut u8 {
        let before = if slot.is_large() { HEADS } else { HEAD };
        self.buffers.locate(slot).0.wrapping_add(before)
    }

    #[inline]
    pub fn write_head(&mut self, packet: &Packet, head: &[u8; HEAD]) {
        let to = self.buffers.locate(packet.slot).0.wrapping_add(packet.part as usize * HEAD);
        // SAFETY: a buffer has room for the heads of all its packets, and the adapter does not read this one now.
        unsafe { to.cast::<[u8; HEAD]>().write_unaligned(*head) };
    }

    /// Writes a wireup datagram, of at least a head's length, in place of a packet; returns its segments.
    pub fn write_wireup_datagram(&mut self, at: &Packet, bytes: &[u8]) -> ([Sge; 2], usize) {
        if let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            self.write_head(at, head);
            let to = self.stream(at.slot);
            // SAFETY: a buffer has room for a packet, which is longer than any wireup datagram, and has no other user
            // now.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to, rest.len()) };
        }
        self.segments(at)
    }

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
