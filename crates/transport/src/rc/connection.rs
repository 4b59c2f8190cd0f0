//! What an interface keeps for each peer, and the send buffers that connections share.

use super::wire::{HEADER, Kind, Tag};
use crate::contract::{Header, Post};
use crate::verbs::{
    Access, Buffer, Failure, MemoryRegion, Operation, QueuePair, VerbsError, fewer,
};
use fastpath_base::sync::{AtomicU32, Ordering};
use fastpath_bootstrap::segment::has_left;
use std::collections::VecDeque;
use std::sync::Arc;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The queue pair is there; the peer is unknown.
    Made,
    /// What the peer sends is taken.
    Open,
    /// The peer takes what is sent.
    Ready,
    /// It works no more.
    Failed(Failure),
}

/// A message that has arrived and not been taken. Plain numbers: it is copied out when it is shown and when it is
/// taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inbound {
    pub header: Header,
    /// Its payload, in the receive buffer or in its turn of [`Connection::wholes`].
    pub data: *const u8,
    pub len: u32,
    /// Number of the receive buffer, or [`ASSEMBLED`].
    pub number: u32,
    /// Packets it came in.
    pub packets: u32,
}

/// In place of a receive buffer's number: the message was put together from several.
pub(super) const ASSEMBLED: u32 = u32::MAX;

/// A message of which a part has arrived.
pub(super) struct Assembly {
    pub header: Header,
    pub data: Vec<u8>,
    pub total: usize,
    pub packets: u32,
}

/// Somebody waits for the completion of an operation.
pub(super) struct Ticket {
    /// What the user knows it by.
    pub cookie: u64,
    /// Where the answer of an atomic comes to.
    pub answer: Option<Slot>,
    /// Where the user wants it.
    pub landing: Option<Landing>,
    /// Memory of the user that must stay registered meanwhile.
    pub _region: Option<Arc<MemoryRegion>>,
}

/// Memory of the user that an answer is copied to.
pub(super) struct Landing {
    pub to: *mut u8,
    pub len: usize,
}

/// One peer.
pub(super) struct Connection {
    pub pair: QueuePair,
    pub stage: Stage,
    /// Sequence number of the first packet, 24 bits.
    pub psn: u32,
    /// Bytes that may go inline, and sends under way.
    pub inline: usize,
    pub depth: u32,
    /// Sends posted and sends known to be done, both counted from the same start.
    pub posted: u32,
    pub done: u32,
    /// How many had been posted after the last one whose success is reported.
    pub signaled: u32,
    /// Completions to come for those.
    pub expected: u32,
    /// Send buffers in use: each is free again when `done` has passed its number.
    pub slots: VecDeque<(u32, Slot)>,
    /// Operations somebody waits for, in order.
    pub tickets: VecDeque<(u32, Ticket)>,
    /// Memory that the peer may read, one for each message that it has been told of.
    pub exposed: Vec<Arc<MemoryRegion>>,
    /// Headers of the last message in one packet, each way: another one with the same goes without.
    pub last_header: Option<Header>,
    pub heard: Option<Header>,
    /// Packets that the peer has room for.
    pub credits: u32,
    /// Packets taken of which the peer has not been told.
    pub owed: u32,
    /// Packets that the peer may have here.
    pub window: u32,
    pub inbox: VecDeque<Inbound>,
    /// The payloads of the assembled ones among them, in order.
    pub wholes: VecDeque<Vec<u8>>,
    pub assembly: Option<Assembly>,
    /// Which of the interface's send queues it completes on.
    pub queue: usize,
    /// Says whether the peer has left the job, where there is such a word.
    pub state: Option<&'static AtomicU32>,
}

impl Connection {
    /// Room in the send queue, but for the one place kept for what the transport itself must say.
    #[inline]
    pub fn room(&self) -> u32 {
        (self.depth - 1).saturating_sub(self.posted.wrapping_sub(self.done))
    }

    /// Whether a message of so many packets could be sent now; `PeerGone` where never again.
    #[inline]
    pub fn admit(&self, packets: u32) -> Post {
        match self.stage {
            Stage::Ready if self.credits >= packets && self.room() >= packets => Post::Done,
            Stage::Failed(_) => Post::PeerGone,
            _ => Post::NoResource,
        }
    }

    /// What a packet is posted as: its immediate data tells the peer what is owed to it.
    #[inline]
    pub fn tag(&mut self, kind: Kind, total: usize) -> Operation<'static> {
        let (credits, total) = (std::mem::take(&mut self.owed), total as u32);
        let tag = Tag {
            kind,
            credits,
            total,
        };
        Operation::SendImmediate(tag.encode())
    }

    /// Packets taken that are worth a packet to the peer, where nothing else is to be told.
    #[inline]
    pub fn worth_telling(&self) -> u32 {
        self.window / 4
    }

    /// Whether the peer's own word says that it has left; what it sent may still be on its way.
    pub fn is_said_to_have_left(&self) -> bool {
        self.state
            .is_some_and(|state| has_left(state.load(Ordering::Relaxed)))
    }

    /// Whether sends are under way.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.posted != self.done
    }

    /// Whether the success of what is posted next must be reported: so many have been silent.
    #[inline]
    pub fn owes_signal(&self) -> bool {
        self.posted.wrapping_sub(self.signaled) + 1 >= self.depth / 4
    }
}

/// A send buffer: its class and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    class: u8,
    index: u32,
}

/// Payload of a small send buffer: 1 KiB, and what the layer above puts before it.
pub(super) const SMALL: usize = (1024 + 64 + HEADER).next_multiple_of(64) - HEADER;
const _: () = assert!(SMALL >= 1024 + 64, "sends of 1 KiB are silent");

/// Small and large send buffers that are there from the start, so that messages leave however little may be locked
/// later.
const FEW: [u32; 2] = [8, 2];

/// The send buffers of an interface: small and large ones, a few of each from the start, the others at first need.
pub(super) struct Pool {
    classes: [Class; 2],
}

struct Class {
    /// Bytes of one, header included.
    stride: usize,
    count: u32,
    /// Of those that are there from the start, and of the others.
    buffers: Vec<Buffer>,
    few: u32,
    /// Where each lies in those, and the key of its memory.
    places: Vec<(*mut u8, u32)>,
    /// Whether no more are made: all are there, or the memory for more was refused.
    complete: bool,
    free: Vec<u32>,
    /// Bits of the number of free ones that are zero where one is marked: about four of all are.
    marks: usize,
}

impl Pool {
    /// So many small and large ones, the latter for `largest` bytes of payload.
    pub fn new(counts: [u32; 2], largest: usize) -> Self {
        let class = |stride: usize, count: u32, few: u32| Class {
            stride,
            count,
            buffers: Vec::new(),
            few: few.min(count),
            places: Vec::new(),
            complete: few >= count,
            free: Vec::new(),
            marks: (count / 4).max(1).next_power_of_two() as usize - 1,
        };
        Pool {
            classes: [
                class(HEADER + SMALL, counts[0], FEW[0]),
                class((HEADER + largest).next_multiple_of(64), counts[1], FEW[1]),
            ],
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
        for class in &mut self.classes {
            class.make(class.few, &mut make)?;
        }
        Ok(())
    }

    fn class_of(payload: usize) -> usize {
        (payload > SMALL) as usize
    }

    /// Makes the other buffers of the first class for such payloads that has but a few, or as many of them as there is
    /// memory for; false where all are there. It is asked once: a class that has got fewer goes on with those.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn prepare(
        &mut self,
        payload: usize,
        mut make: impl FnMut(usize, Access) -> Result<Buffer, VerbsError>,
    ) -> Result<bool, VerbsError> {
        let mut classes = self.classes[Self::class_of(payload)..].iter_mut();
        let Some(class) = classes.find(|class| !class.complete) else {
            return Ok(false);
        };
        class.complete = true;
        fewer(class.count - class.few, |count| {
            class.make(count, &mut make)
        })
    }

    /// Free buffers for such payloads, of those that are made.
    #[inline]
    pub fn available(&self, payload: usize) -> u32 {
        let classes = self.classes[Self::class_of(payload)..].iter();
        classes.map(|class| class.free.len() as u32).sum()
    }

    /// A free buffer: a large one where the small ones are in use, so that a message finds room where a longer
    /// one does.
    #[inline]
    pub fn take(&mut self, payload: usize) -> Option<Slot> {
        let first = Self::class_of(payload);
        let classes = self.classes[first..].iter_mut();
        let mut free = classes
            .zip(first as u8..)
            .map(|(class, number)| (class.free.pop(), number));
        free.find_map(|(index, class)| index.map(|index| Slot { class, index }))
    }

    /// Gives one back.
    #[inline]
    pub fn give(&mut self, slot: Slot) {
        self.classes[slot.class as usize].free.push(slot.index);
    }

    /// Whether it is worth knowing when this large buffer, just taken, is free again: one of a few is.
    #[inline]
    pub fn is_mark(&self, slot: Slot) -> bool {
        let class = &self.classes[slot.class as usize];
        slot.class > 0 && class.free.len() & class.marks == 0
    }

    /// Where a buffer lies, and the key of its memory.
    #[inline]
    pub fn locate(&self, slot: Slot) -> (*mut u8, u32) {
        self.classes[slot.class as usize].places[slot.index as usize]
    }
}

impl Class {
    /// Makes so many more.
    fn make(
        &mut self,
        count: u32,
        make: &mut impl FnMut(usize, Access) -> Result<Buffer, VerbsError>,
    ) -> Result<(), VerbsError> {
        // Atomics answer into them.
        let buffer = make(self.stride * count as usize, Access::Write)?;
        let first = self.places.len() as u32;
        self.places.extend(buffer.places(self.stride, count));
        self.free.extend((first..first + count).rev());
        self.buffers.push(buffer);
        Ok(())
    }
}
