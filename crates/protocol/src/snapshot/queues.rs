//! Message queues of a process, read from its memory by a debugger's library (crate `queues`).
//!
//! The process exports a [`QueueTable`] by name. The table's `layout` is a hash of the sizes and offsets that this file
//! uses, so that a library of another build refuses the process.

use super::{Addresses, Read, byte, half};
use crate::request::{MessagePhase, Request, RequestKind, RequestState};
use crate::tag::{ANY_PEER, ANY_TAG, Context, key_context, key_source};
use crate::unexpected::{ENTRY_BYTES, EntryPieces, LONG, UnexpectedEntry};
use fastpath_base::sync::StaticU64;
use std::collections::HashSet;
use std::mem::offset_of;

/// Name of the exported [`QueueTable`].
pub const TABLE_NAME: &std::ffi::CStr = c"fastpath_queues";

/// Entry point of a debugger to the queues of a process.
#[repr(C)]
#[derive(Debug)]
pub struct QueueTable {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`LAYOUT`].
    pub layout: u64,
    /// Address of the worker's [`Addresses`]; 0 before `MPI_Init` and after `MPI_Finalize`.
    pub addresses: StaticU64,
    /// Address of the first [`CommunicatorCard`]; 0 without one.
    pub communicators: StaticU64,
}

/// First word of a [`QueueTable`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"FASTPATH");

impl QueueTable {
    /// Makes the table of a process that has not initialized MPI.
    pub const fn new() -> Self {
        let (addresses, communicators) = (StaticU64::new(0), StaticU64::new(0));
        QueueTable { magic: MAGIC, layout: LAYOUT, addresses, communicators }
    }
}

impl Default for QueueTable {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of a communicator's name, with the zero byte at its end.
pub const NAME_BYTES: usize = 64;

/// A communicator with a handle, in the list of a process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CommunicatorCard {
    /// Address of the next card; 0 at the end.
    pub next: u64,
    /// [`Context::to_wire`].
    pub context: u64,
    /// Address of the world ranks that messages are sent to, as 32-bit numbers.
    pub peers: u64,
    /// Number of these ranks.
    pub peer_count: u32,
    /// The process's rank in its own group.
    pub rank: u32,
    /// Name, cut off and ended by a zero byte.
    pub name: [u8; NAME_BYTES],
}

const CARD_WORDS: usize = size_of::<CommunicatorCard>() / 8;
/// Largest number of communicators, of their ranks, and of unexpected messages that are read.
const MOST: usize = 1 << 20;

/// Hash of the sizes and offsets that [`QueueContents::read`] uses.
pub const LAYOUT: u64 = hash(&[
    size_of::<Addresses>(),
    size_of::<CommunicatorCard>(),
    size_of::<Request>(),
    offset_of!(Request, peer),
    offset_of!(Request, kind),
    offset_of!(Request, state),
    offset_of!(Request, phase),
    offset_of!(Request, owned),
    offset_of!(Request, key),
    offset_of!(Request, ptr),
    offset_of!(Request, bytes),
    offset_of!(Request, tag),
    offset_of!(Request, moved),
    ENTRY_BYTES as usize,
    EntryPieces::PIECE,
    UnexpectedEntry::OFFSETS[0],
    UnexpectedEntry::OFFSETS[1],
    UnexpectedEntry::OFFSETS[2],
    UnexpectedEntry::OFFSETS[3],
    UnexpectedEntry::OFFSETS[4],
    UnexpectedEntry::OFFSETS[5],
    RequestKind::Recv as usize,
    RequestState::Active as usize,
    MessagePhase::Posted as usize,
]);

/// FNV-1a over the numbers, each below 65536.
const fn hash(numbers: &[usize]) -> u64 {
    let (mut sum, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < numbers.len() {
        assert!(numbers[at] < 1 << 16);
        sum = (sum ^ numbers[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    sum
}

/// A communicator of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommunicatorEntry {
    /// Context of its messages.
    pub context: u64,
    /// The process's rank in its own group.
    pub rank: u32,
    /// World ranks that messages are sent to.
    pub peers: Vec<u32>,
    /// Name, cut off.
    pub name: String,
}

/// Queue of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Sends that are not complete.
    Sends,
    /// Receives that are not complete.
    Receives,
    /// Messages that no receive has matched.
    Unexpected,
}

/// A send, a receive or an unexpected message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedOperation {
    /// Queue.
    pub queue: Queue,
    /// Context of the communicator, without the bit of collective traffic.
    pub context: u64,
    /// Whether a collective call has started the operation.
    pub is_collective: bool,
    /// World rank of the other side; `None` for a receive from any source.
    pub peer: Option<u32>,
    /// Rank of the other side in the communicator, if the message's key has it.
    pub source: Option<u32>,
    /// Tag; `None` for a receive of any tag.
    pub tag: Option<i32>,
    /// Length of the message or of the receive buffer, in bytes.
    pub bytes: u64,
    /// Bytes moved so far.
    pub moved: u64,
    /// Address of the buffer; 0 if the library holds the message.
    pub buffer: u64,
    /// Whether the library has its own copy of the message.
    pub is_copied: bool,
    /// Whether a receive has been matched with a message.
    pub is_matched: bool,
}

/// Communicators and queues of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueContents {
    /// Communicators, the last made first.
    pub communicators: Vec<CommunicatorEntry>,
    /// Operations, by queue.
    pub operations: Vec<QueuedOperation>,
}

/// Reason why queues cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueError {
    /// The memory cannot be read.
    Unreadable,
    /// The process uses another build of the library.
    OtherBuild,
    /// The process is not between `MPI_Init` and `MPI_Finalize`.
    NotRunning,
}

impl QueueContents {
    /// Reads the queues of the process whose [`QueueTable`] is at `table`.
    ///
    /// # Errors
    /// The queues cannot be read.
    pub fn read(read: Read<'_>, table: u64) -> Result<Self, QueueError> {
        let words = read(table, size_of::<QueueTable>() / 8).ok_or(QueueError::Unreadable)?;
        let [magic, layout, addresses, cards] = words[..] else {
            return Err(QueueError::Unreadable);
        };
        if (magic, layout) != (MAGIC, LAYOUT) {
            return Err(QueueError::OtherBuild);
        }
        if addresses == 0 {
            return Err(QueueError::NotRunning);
        }
        let contents = || {
            let addresses = Addresses::read(read, addresses)?;
            let mut operations = read_requests(read, &addresses)?;
            operations.extend(read_unexpected(read, &addresses)?);
            Some(QueueContents { communicators: read_cards(read, cards)?, operations })
        };
        contents().ok_or(QueueError::Unreadable)
    }
}

fn read_cards(read: Read<'_>, mut at: u64) -> Option<Vec<CommunicatorEntry>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    while at != 0 && found.len() < MOST {
        if !seen.insert(at) {
            return None; // a damaged list that never ends
        }
        let words = read(at, CARD_WORDS)?;
        let count = half(&words, offset_of!(CommunicatorCard, peer_count)) as usize;
        let peers = read_halves(read, words[offset_of!(CommunicatorCard, peers) / 8], count)?;
        let name = words[offset_of!(CommunicatorCard, name) / 8..].iter();
        let name: Vec<u8> = name.flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
        found.push(CommunicatorEntry {
            context: words[offset_of!(CommunicatorCard, context) / 8],
            rank: half(&words, offset_of!(CommunicatorCard, rank)),
            peers,
            name: String::from_utf8_lossy(&name).into_owned(),
        });
        at = words[offset_of!(CommunicatorCard, next) / 8];
    }
    Some(found)
}

/// Reads 32-bit numbers at an address that is a multiple of 4.
fn read_halves(read: Read<'_>, at: u64, count: usize) -> Option<Vec<u32>> {
    if count == 0 || count > MOST {
        return Some(Vec::new());
    }
    // The first number may be the upper half of a word, and the last one the lower half.
    let skipped = (at % 8 / 4) as usize;
    let words = read(at & !7, (skipped + count).div_ceil(2))?;
    let halves = words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    Some(halves.skip(skipped).take(count).collect())
}

fn read_requests(read: Read<'_>, addresses: &Addresses) -> Option<Vec<QueuedOperation>> {
    let mut found = Vec::new();
    super::read_requests(read, addresses, MOST, |request| found.extend(decode_request(request)))?;
    // Receives after sends; the order within a queue stays.
    found.sort_by_key(|operation| operation.queue == Queue::Receives);
    Some(found)
}

/// Decodes a request; `None` if it is no active send or receive.
fn decode_request(words: &[u64]) -> Option<QueuedOperation> {
    if byte(words, offset_of!(Request, state)) != RequestState::Active as u8 {
        return None;
    }
    let queue = match byte(words, offset_of!(Request, kind)) {
        kind if kind == RequestKind::Send as u8 => Queue::Sends,
        kind if kind == RequestKind::Recv as u8 => Queue::Receives,
        _ => return None,
    };
    let peer = half(words, offset_of!(Request, peer));
    let tag = half(words, offset_of!(Request, tag)) as i32;
    let is_copied = byte(words, offset_of!(Request, owned)) != 0;
    let (context, is_collective) = split_context(words[offset_of!(Request, key) / 8]);
    Some(QueuedOperation {
        queue,
        context,
        is_collective,
        peer: (peer != ANY_PEER).then_some(peer),
        source: None,
        tag: (queue == Queue::Sends || tag != ANY_TAG).then_some(tag),
        bytes: words[offset_of!(Request, bytes) / 8],
        moved: words[offset_of!(Request, moved) / 8],
        buffer: words[offset_of!(Request, ptr) / 8],
        is_copied,
        is_matched: queue == Queue::Receives
            && byte(words, offset_of!(Request, phase)) != MessagePhase::Posted as u8,
    })
}

fn read_unexpected(read: Read<'_>, addresses: &Addresses) -> Option<Vec<QueuedOperation>> {
    let [pieces, count] = read(addresses.pieces, 2)?[..] else { return None };
    let mut id = *read_halves(read, addresses.first_unexpected, 1)?.first()?;
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    while id != 0 && found.len() < MOST {
        if !seen.insert(id) {
            return None; // see `read_cards`
        }
        let (piece, place) = EntryPieces::place(id);
        if piece as u64 >= count {
            return None;
        }
        let piece = *read(pieces.wrapping_add(8 * piece as u64), 1)?.first()?;
        let at = piece.wrapping_add(place as u64 * ENTRY_BYTES);
        let words = read(at, ENTRY_BYTES as usize / 8)?;
        let [next, key, tag, peer, len, total] = UnexpectedEntry::OFFSETS;
        let (context, is_collective) = split_context(words[key / 8]);
        let bytes = match byte(&words, len) {
            LONG => words[total / 8],
            short => u64::from(short),
        };
        found.push(QueuedOperation {
            queue: Queue::Unexpected,
            context,
            is_collective,
            peer: Some(half(&words, peer)),
            source: Some(key_source(words[key / 8])),
            tag: Some(half(&words, tag) as i32),
            bytes,
            moved: 0,
            buffer: 0,
            is_copied: true,
            is_matched: false,
        });
        id = half(&words, next);
    }
    Some(found)
}

/// Returns the context of a match key without the bit of collective traffic, and whether this bit is set.
fn split_context(key: u64) -> (u64, bool) {
    let wire = Context::of_key(key_context(key)).to_wire();
    (wire & !1, wire & 1 != 0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::request::RequestPool;
    use crate::snapshot::tests::own_memory;
    use crate::unexpected::{Body, MessageList, UnexpectedKind, UnexpectedStore};
    use fastpath_base::sync::StaticOrdering;

    fn expose<T>(value: &T) -> u64 {
        (&raw const *value).expose_provenance() as u64
    }

    #[test]
    fn queues__hold_active_requests_and_unexpected_messages_in_order() {
        let context = Context::from_leader(3, 7);
        let mut pool = RequestPool::new().unwrap();
        let mut add = |kind, peer, tag, context: Context, bytes| {
            let id = pool.allocate(kind).unwrap();
            let request = pool.get_mut(id);
            (request.peer, request.tag, request.key) = (peer, tag, context.key(0));
            (request.bytes, request.phase) = (bytes, MessagePhase::Posted);
            id
        };
        add(RequestKind::Recv, ANY_PEER, ANY_TAG, context, 10);
        add(RequestKind::Send, 5, 8, context.collective(), 11);
        let matched = add(RequestKind::Recv, 4, 9, context, 12);
        let complete = add(RequestKind::Recv, 4, 9, context, 13);
        pool.get_mut(matched).phase = MessagePhase::Begun;
        pool.get_mut(complete).state = RequestState::Complete;

        let (mut store, mut list) = (UnexpectedStore::default(), MessageList::default());
        let key = context.key(6);
        // An entry that was used for a long message before.
        let long = |bytes: usize| Body::Long(UnexpectedKind::Eager, vec![0; bytes]);
        let used = store.add(&mut list, 2, key, 1, long(60));
        store.unlink(&mut list, used);
        store.free(used);
        store.add_short(&mut list, (2, key, 20), 5, |_| {});
        store.add(&mut list, 2, key, 21, long(600));

        let (requests, fresh) = pool.shown();
        let (first, pieces) = store.shown_entries();
        let addresses = Addresses {
            counters: 0,
            unexpected: 0,
            requests: requests.expose_provenance() as u64,
            fresh: fresh.expose_provenance() as u64,
            first_unexpected: first.expose_provenance() as u64,
            pieces: pieces.expose_provenance() as u64,
        };
        let peers = [9_u32, 8, 7];
        let mut card = CommunicatorCard {
            next: 0,
            context: context.to_wire(),
            // The second rank on, at the upper half of a word or at the lower half.
            peers: expose(&peers) + 4,
            peer_count: 2,
            rank: 1,
            name: [0; NAME_BYTES],
        };
        card.name[..4].copy_from_slice(b"halo");
        let table = QueueTable::new();
        let at = expose(&table);
        assert_eq!(QueueContents::read(&own_memory, at), Err(QueueError::NotRunning));
        table.addresses.store(expose(&addresses), StaticOrdering::Relaxed);
        table.communicators.store(expose(&card), StaticOrdering::Relaxed);
        let found = QueueContents::read(&own_memory, at).unwrap();
        let entry = CommunicatorEntry {
            context: context.to_wire(),
            rank: 1,
            peers: vec![8, 7],
            name: "halo".to_owned(),
        };
        assert_eq!(found.communicators, [entry]);
        assert!(found.operations.iter().all(|o| o.context == context.to_wire()));
        let rows: Vec<_> = found
            .operations
            .iter()
            .map(|o| (o.queue, o.peer, o.source, o.tag, o.bytes, o.is_collective, o.is_matched))
            .collect();
        assert_eq!(
            rows,
            [
                (Queue::Sends, Some(5), None, Some(8), 11, true, false),
                (Queue::Receives, None, None, None, 10, false, false),
                (Queue::Receives, Some(4), None, Some(9), 12, false, true),
                (Queue::Unexpected, Some(2), Some(6), Some(20), 5, false, false),
                (Queue::Unexpected, Some(2), Some(6), Some(21), 600, false, false),
            ]
        );
        let other = QueueTable { layout: LAYOUT + 1, ..QueueTable::new() };
        let read = |table| QueueContents::read(&own_memory, expose(table));
        assert_eq!(read(&other), Err(QueueError::OtherBuild));
        assert_eq!(QueueContents::read(&own_memory, 0), Err(QueueError::Unreadable));
    }

    #[test]
    fn queues__with_lists_that_never_end_are_unreadable() {
        let mut card = CommunicatorCard {
            next: 0,
            context: 0,
            peers: 0,
            peer_count: 0,
            rank: 0,
            name: [0; NAME_BYTES],
        };
        card.next = expose(&card);
        assert_eq!(read_cards(&own_memory, card.next), None);

        // Entry 1 follows itself.
        let mut piece = vec![0_u64; 2 * ENTRY_BYTES as usize / 8];
        let next = ENTRY_BYTES as usize + UnexpectedEntry::OFFSETS[0];
        piece[next / 8] = 1 << (next % 8 * 8);
        let first = 1_u64;
        let pieces = piece.as_ptr().expose_provenance() as u64;
        let words = [expose(&pieces), 1];
        let addresses = Addresses {
            counters: 0,
            unexpected: 0,
            requests: 0,
            fresh: 0,
            first_unexpected: expose(&first),
            pieces: expose(&words),
        };
        assert_eq!(read_unexpected(&own_memory, &addresses), None);
    }
}
