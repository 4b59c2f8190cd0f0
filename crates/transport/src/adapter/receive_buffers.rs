//! Receive buffers that all connections of an interface share, allocated in groups.

use crate::verbs::queue::BATCH;
use crate::verbs::{Buffer, RecvEntry, Sge, VerbsError};

struct BufferGroup {
    buffer: Buffer,
    first: u32,
}

pub(super) struct ReceiveBuffers {
    groups: Vec<BufferGroup>,
    len: usize,
    stride: usize,
    count: u32,
    posted: u32,
    idle: Vec<u32>,
}

impl ReceiveBuffers {
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

    pub fn bytes(&self, count: u32) -> usize {
        count as usize * self.stride
    }

    pub fn add(&mut self, buffer: Buffer, count: u32) {
        let first = self.count;
        self.groups.push(BufferGroup { buffer, first });
        self.count += count;
        self.idle.extend(first..first + count);
    }

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

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    pub fn posted(&self) -> u32 {
        self.posted
    }

    #[inline]
    pub fn available(&self) -> u32 {
        self.posted + self.idle.len() as u32
    }

    #[inline]
    pub fn note_received(&mut self, count: usize) {
        self.posted = self.posted.saturating_sub(count as u32);
    }

    #[inline]
    pub fn give(&mut self, number: u32) {
        self.idle.push(number);
    }

    /// Whether a post pays: `BATCH` buffers are empty, or at least one buffer is empty and fewer than `low` are posted.
    #[inline]
    pub fn is_worth_posting(&self, low: u32) -> bool {
        self.idle.len() >= BATCH || (self.posted < low && !self.idle.is_empty())
    }

    /// Posts all empty buffers by `post`. Returns its first error. Buffers accepted before the error count as posted.
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
