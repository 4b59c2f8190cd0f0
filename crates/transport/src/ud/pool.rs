//! Send buffers of all connections. A packet is sent from its buffer, again if need be, and leaves it when its receiver
//! has taken it and the adapter is done with every copy it was given.
//!
//! ```text
//! small   head, stream of one packet
//! large   heads of all packets, stream of a whole message
//! ```
#![allow(unsafe_code)]

use super::wire::{HEAD, PACKETS_MOST, STREAM};
use crate::verbs::{Access, Buffer, Sge, VerbsError, fewer};

/// Bytes of heads before the stream of a large buffer.
const HEADS: usize = (PACKETS_MOST * HEAD).next_multiple_of(64);

/// A send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    large: bool,
    index: u32,
}

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

/// The send buffers of an interface, made in groups as they are needed.
pub(super) struct Pool {
    classes: [Class; 2],
    groups: u32,
    /// Given back, but perhaps still being sent.
    lingering: Vec<Slot>,
}

/// Small and large buffers that are there from the start, so that packets leave however little may be locked later.
const FEW: [u32; 2] = [16, 2];

struct Class {
    /// Bytes of one.
    stride: usize,
    /// Buffers of a group; but for the first, which has a few.
    count: u32,
    groups: Vec<Buffer>,
    /// Whether the memory for more was refused.
    complete: bool,
    /// Free buffers that are not given away: one, until it was tried to make more. So it is known by the last send
    /// whether there will be more, or its success must be reported.
    keep: usize,
    slots: Vec<State>,
    free: Vec<u32>,
}

#[derive(Clone, Copy)]
struct State {
    /// First byte, and the key of its memory.
    place: (*mut u8, u32),
    /// Packets in it that have not been taken.
    left: u32,
    /// Number of the send that was posted from it last.
    last: u32,
}

impl Class {
    /// Makes a group of so many more.
    fn grow(
        &mut self,
        count: u32,
        make: &mut impl FnMut(usize, Access) -> Result<Buffer, VerbsError>,
    ) -> Result<(), VerbsError> {
        let first = self.slots.len() as u32;
        let buffer = make(self.stride * count as usize, Access::Read)?;
        let state = |place| State {
            place,
            left: 0,
            last: 0,
        };
        let places = buffer.places(self.stride, count);
        self.slots.extend(places.map(state));
        self.free.extend((first..first + count).rev());
        self.groups.push(buffer);
        Ok(())
    }
}

impl Pool {
    /// Groups of so many small and large ones, so many groups at most; a packet has `mtu` bytes.
    pub fn new(counts: [u32; 2], groups: u32, mtu: usize) -> Self {
        let class = |stride: usize, count| Class {
            stride: stride.next_multiple_of(64),
            count,
            groups: Vec::new(),
            complete: false,
            keep: 0,
            slots: Vec::new(),
            free: Vec::new(),
        };
        Pool {
            classes: [class(mtu, counts[0]), class(HEADS + STREAM, counts[1])],
            groups,
            lingering: Vec::new(),
        }
    }

    /// Makes the few buffers of each class.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn make_few(
        &mut self,
        mut make: impl FnMut(usize, Access) -> Result<Buffer, VerbsError>,
    ) -> Result<(), VerbsError> {
        for (class, few) in self.classes.iter_mut().zip(FEW) {
            class.grow(few.min(class.count), &mut make)?;
            class.keep = (self.groups > 0) as usize;
        }
        Ok(())
    }

    /// Makes another group for such messages, or a smaller one where there is no memory for that; false where there may
    /// be no more. A class for which memory was refused is not asked for again.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn grow(
        &mut self,
        large: bool,
        mut make: impl FnMut(usize, Access) -> Result<Buffer, VerbsError>,
    ) -> Result<bool, VerbsError> {
        let groups = self.groups as usize;
        let mut classes = self.classes[large as usize..].iter_mut();
        let Some(class) = classes.find(|class| !class.complete && class.groups.len() <= groups)
        else {
            return Ok(false);
        };
        let before = class.slots.len();
        let made = fewer(class.count, |count| class.grow(count, &mut make));
        class.complete = class.slots.len() - before < class.count as usize;
        class.keep = 0;
        made
    }

    /// Buffers for such messages that are free.
    #[inline]
    pub fn available(&self, large: bool) -> u32 {
        let classes = self.classes[large as usize..].iter();
        classes.map(|class| class.free.len() as u32).sum()
    }

    /// A free buffer for a message of `packets` packets: a large one where the small ones are in use, so that a
    /// message finds room where a longer one does.
    #[inline]
    pub fn take(&mut self, large: bool, packets: u32) -> Option<Slot> {
        for (class, large) in self
            .classes
            .iter_mut()
            .zip([false, true])
            .skip(large as usize)
        {
            if class.free.len() > class.keep
                && let Some(index) = class.free.pop()
            {
                class.slots[index as usize].left = packets;
                return Some(Slot { large, index });
            }
        }
        None
    }

    #[inline]
    fn state(&mut self, slot: Slot) -> &mut State {
        &mut self.classes[slot.large as usize].slots[slot.index as usize]
    }

    /// Whether few buffers are left: that sends are done must be heard of soon, so that theirs come back.
    #[inline]
    pub fn is_low(&self) -> bool {
        // The first few are soon joined by others, where those can be had.
        let low = |class: &Class| {
            (class.complete || class.groups.len() > 1) && class.free.len() * 4 <= class.slots.len()
        };
        self.classes.iter().any(low)
    }

    /// The send with this number has been posted from a buffer.
    #[inline]
    pub fn note_post(&mut self, slot: Slot, number: u32) {
        self.state(slot).last = number;
    }

    /// A packet has been taken. `done`: sends known to be done.
    #[inline]
    pub fn release(&mut self, slot: Slot, done: u32) {
        let state = self.state(slot);
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        match is_done(state.last, done) {
            true => self.classes[slot.large as usize].free.push(slot.index),
            false => self.lingering.push(slot),
        }
    }

    /// More sends are done.
    pub fn sweep(&mut self, done: u32) {
        let (classes, lingering) = (&mut self.classes, &mut self.lingering);
        lingering.retain(|slot| {
            let class = &mut classes[slot.large as usize];
            let over = is_done(class.slots[slot.index as usize].last, done);
            if over {
                class.free.push(slot.index);
            }
            !over
        });
    }

    /// First byte of a buffer, and the key of its memory.
    #[inline]
    fn locate(&self, slot: Slot) -> (*mut u8, u32) {
        self.classes[slot.large as usize].slots[slot.index as usize].place
    }

    /// Where the stream of a message is to be written.
    #[inline]
    pub fn stream(&self, slot: Slot) -> *mut u8 {
        let before = if slot.large { HEADS } else { HEAD };
        self.locate(slot).0.wrapping_add(before)
    }

    /// Writes the head of a packet that is not being sent.
    #[inline]
    pub fn write_head(&mut self, packet: &Packet, head: &[u8; HEAD]) {
        let to = self
            .locate(packet.slot)
            .0
            .wrapping_add(packet.part as usize * HEAD);
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
        let (at, lkey) = self.locate(packet.slot);
        let bytes = packet.bytes as usize;
        if !packet.slot.large {
            return ([Sge::over(at, HEAD + bytes, lkey), Sge::default()], 1);
        }
        let head = at.wrapping_add(packet.part as usize * HEAD);
        let part = at.wrapping_add(HEADS + packet.offset as usize);
        (
            [Sge::over(head, HEAD, lkey), Sge::over(part, bytes, lkey)],
            2,
        )
    }
}

/// Whether the send with a number is among the first `done`.
#[inline]
pub(super) fn is_done(number: u32, done: u32) -> bool {
    (number.wrapping_sub(done) as i32) < 0
}
