//! Receive buffers that all connections of an interface share, made in groups as connections are.

use crate::verbs::queue::BATCH;
use crate::verbs::{Buffer, RecvEntry, Sge, VerbsError};

/// Buffers that were made together.
struct Group {
    buffer: Buffer,
    /// Number of the first.
    first: u32,
}

/// The receive buffers of an interface.
pub(super) struct ReceiveBuffers {
    groups: Vec<Group>,
    /// Bytes of one, and from one to the next.
    len: usize,
    stride: usize,
    /// How many there are, and how many are posted.
    count: u32,
    posted: u32,
    /// Those that hold nothing and are not posted.
    idle: Vec<u32>,
}

impl ReceiveBuffers {
    /// None yet, of so many bytes each.
    pub fn new(len: usize) -> Self {
        ReceiveBuffers {
            groups: Vec::new(),
            len,
            stride: len.next_multiple_of(64),
            count: 0,
            posted: 0,
            idle: Vec::new(),
        }
    }

    /// Bytes of memory that so many need.
    pub fn bytes(&self, count: u32) -> usize {
        count as usize * self.stride
    }

    /// So many more, in memory that was made for them. They are not posted.
    pub fn add(&mut self, buffer: Buffer, count: u32) {
        let first = self.count;
        self.groups.push(Group { buffer, first });
        self.count += count;
        self.idle.extend(first..first + count);
    }

    /// Where one lies, and the key of its memory.
    #[inline]
    pub fn locate(&self, number: u32) -> (*mut u8, u32) {
        let group = match &self.groups[..] {
            [only] => only,
            many => &many[many.partition_point(|group| group.first <= number) - 1],
        };
        let offset = (number - group.first) as usize * self.stride;
        let at = group.buffer.address().wrapping_add(offset);
        (at, group.buffer.region().lkey())
    }

    /// Bytes of one that the adapter may write.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many are posted.
    #[inline]
    pub fn posted(&self) -> u32 {
        self.posted
    }

    /// How many are posted, or about to be.
    #[inline]
    pub fn available(&self) -> u32 {
        self.posted + self.idle.len() as u32
    }

    /// So many have come back from the adapter.
    #[inline]
    pub fn note_received(&mut self, count: usize) {
        self.posted = self.posted.saturating_sub(count as u32);
    }

    /// One holds nothing any more.
    #[inline]
    pub fn give(&mut self, number: u32) {
        self.idle.push(number);
    }

    /// Whether posting is worth a call: a batch is there, or something where fewer than `low` are posted.
    #[inline]
    pub fn is_worth_posting(&self, low: u32) -> bool {
        self.idle.len() >= BATCH || (self.posted < low && !self.idle.is_empty())
    }

    /// Posts those that hold nothing and are not posted, by calls of `post` with some of them.
    ///
    /// # Errors
    /// The first that `post` had; what was accepted before counts.
    pub fn post(
        &mut self, mut post: impl FnMut(&[RecvEntry]) -> Result<(), (usize, VerbsError)>,
    ) -> Result<(), VerbsError> {
        while !self.idle.is_empty() {
            let start = self.idle.len().saturating_sub(BATCH);
            let mut entries = [RecvEntry::default(); BATCH];
            let numbers = &self.idle[start..];
            for (entry, &number) in entries.iter_mut().zip(numbers) {
                let (at, lkey) = self.locate(number);
                let segment = Sge::over(at, self.len, lkey);
                *entry = RecvEntry { id: u64::from(number), segment };
            }
            let (accepted, outcome) = match post(&entries[..numbers.len()]) {
                Ok(()) => (numbers.len(), Ok(())),
                Err((accepted, error)) => (accepted, Err(error)),
            };
            self.idle.drain(start..start + accepted);
            self.posted += accepted as u32;
            outcome?;
        }
        Ok(())
    }
}
