//! Queues of a process, as lists that a debugger walks.

use crate::interface::*;
use fastpath_protocol::snapshot::Read;
use fastpath_protocol::snapshot::queues::{
    CommunicatorEntry, Queue, QueueContents, QueueError, QueuedOperation,
};
use std::ffi::c_int;

/// Queues as of the last update, with the positions of the debugger's iterators.
#[derive(Default)]
pub struct ProcessQueues {
    contents: QueueContents,
    communicator: usize,
    queue: Option<Queue>,
    operation: usize,
}

impl ProcessQueues {
    /// Reads the queues of the stopped process. Returns a code of the interface.
    pub fn update(&mut self, read: Read<'_>, table: Address) -> c_int {
        *self = ProcessQueues::default();
        match QueueContents::read(read, table) {
            Ok(contents) => {
                self.contents = contents;
                // In the order of creation, which begins with the predefined communicators.
                self.contents.communicators.reverse();
                OK
            }
            Err(QueueError::Unreadable) => UNREADABLE,
            Err(QueueError::OtherBuild) => OTHER_BUILD,
            Err(QueueError::NotRunning) => NOT_RUNNING,
        }
    }

    pub fn begin_communicators(&mut self) -> c_int {
        (self.communicator, self.queue) = (0, None);
        if self.contents.communicators.is_empty() { END_OF_LIST } else { OK }
    }

    pub fn next_communicator(&mut self) -> c_int {
        self.communicator += 1;
        self.queue = None;
        if self.communicator < self.contents.communicators.len() { OK } else { END_OF_LIST }
    }

    fn current(&self) -> Option<&CommunicatorEntry> {
        self.contents.communicators.get(self.communicator)
    }

    pub fn describe_communicator(&self) -> Option<Communicator> {
        let entry = self.current()?;
        Some(Communicator {
            unique_id: entry.context,
            local_rank: Word::from(entry.rank),
            size: entry.peers.len() as Word,
            name: copy_text(&entry.name),
        })
    }

    /// Returns the world ranks of the current communicator; of an intercommunicator, those of the remote group.
    pub fn peers(&self) -> Option<&[u32]> {
        self.current().map(|entry| entry.peers.as_slice())
    }

    pub fn begin_operations(&mut self, queue: c_int) -> c_int {
        self.operation = 0;
        self.queue = match queue {
            PENDING_SENDS => Some(Queue::Sends),
            PENDING_RECEIVES => Some(Queue::Receives),
            UNEXPECTED_MESSAGES => Some(Queue::Unexpected),
            _ => None,
        };
        match self.queue {
            Some(_) if self.current().is_some() => OK,
            _ => NO_INFORMATION,
        }
    }

    pub fn next_operation(&mut self) -> Option<PendingOperation> {
        let (entry, queue) = (self.current()?, self.queue?);
        let is_next = |operation: &QueuedOperation| {
            operation.queue == queue && operation.context == entry.context
        };
        let rest = self.contents.operations.get(self.operation..)?;
        let at = rest.iter().position(is_next)?;
        let found = describe_operation(&rest[at], entry);
        self.operation += at + 1;
        Some(found)
    }
}

fn describe_operation(operation: &QueuedOperation, entry: &CommunicatorEntry) -> PendingOperation {
    let local = operation.source.or_else(|| {
        let position = entry.peers.iter().position(|&peer| Some(peer) == operation.peer);
        position.map(|at| at as u32)
    });
    let (local, global) = (local.map_or(ANY_SOURCE, Word::from), operation.peer);
    let global = global.map_or(ANY_SOURCE, Word::from);
    let tag = operation.tag.map_or(ANY_SOURCE, Word::from);
    let bytes = operation.bytes as Word;
    let mut extra_text = [[0; 64]; 5];
    let collective = operation.is_collective.then(|| "Started by a collective call".to_owned());
    let moved = (operation.moved != 0).then(|| format!("{} bytes moved", operation.moved));
    for (line, text) in extra_text.iter_mut().zip(collective.into_iter().chain(moved)) {
        *line = copy_text(&text);
    }
    PendingOperation {
        status: if operation.is_matched { STATUS_MATCHED } else { STATUS_PENDING },
        desired_local_rank: local,
        desired_global_rank: global,
        tag_wild: c_int::from(operation.tag.is_none()),
        desired_tag: tag,
        desired_length: bytes,
        system_buffer: c_int::from(operation.is_copied),
        buffer: operation.buffer,
        actual_local_rank: local,
        actual_global_rank: global,
        actual_tag: tag,
        actual_length: bytes,
        extra_text,
    }
}

/// Copies as much of a text as fits before a zero byte.
fn copy_text(text: &str) -> [u8; 64] {
    let mut bytes = [0; 64];
    let end = text.len().min(63);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}
