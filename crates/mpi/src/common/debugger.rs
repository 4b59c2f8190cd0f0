#![allow(unsafe_code)]
//! Symbols that debuggers read in a rank: the table of message queues, and the name of the library that reads it
//! (MPIR message queue interface 1.0, 2013). The library is crate `queues`.

use fastpath_base::code;
use fastpath_base::sync::StaticOrdering as Ordering;
use fastpath_protocol::snapshot::queues::{CommunicatorCard, NAME_BYTES, QueueTable};
use fastpath_protocol::tag::Context;
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Table of the process's message queues.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static fastpath_queues: QueueTable = QueueTable::new();

/// Path of the library that reads the queues, as a C string; its name alone before `MPI_Init`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static MPIR_dll_name: LibraryName = LibraryName::new(LIBRARY.to_bytes());

const LIBRARY: &CStr = c"libfastpath_dbg.so";
const PATH_BYTES: usize = 1024;

/// A C string that only `MPI_Init` changes.
#[repr(transparent)]
pub struct LibraryName(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: one thread writes the name, in `publish_library`, and only other processes read it.
unsafe impl Sync for LibraryName {}

impl LibraryName {
    const fn new(name: &[u8]) -> Self {
        let (mut bytes, mut at) = ([0; PATH_BYTES], 0);
        while at < name.len() {
            bytes[at] = name[at];
            at += 1;
        }
        LibraryName(UnsafeCell::new(bytes))
    }
}

/// Completes `MPIR_dll_name` to the path beside this library. The thread that initializes MPI calls it before the
/// launcher holds the rank for a debugger.
pub fn publish_library() {
    let Some(path) = find_library() else { return };
    let path = path.as_os_str().as_bytes();
    if path.len() < PATH_BYTES {
        // SAFETY: no other thread of this process accesses the name. The path ends in the old name, so it covers every
        // byte of the old name, and a zero byte follows it.
        let name = unsafe { &mut *MPIR_dll_name.0.get() };
        name[..path.len()].copy_from_slice(path);
    }
}

/// Returns the path of the debuggers' library if it is beside the file that holds this code.
fn find_library() -> Option<PathBuf> {
    let beside = code::own_file()?.with_file_name(OsStr::from_bytes(LIBRARY.to_bytes()));
    std::path::absolute(beside).ok().filter(|path| path.exists())
}

/// Publishes the address of the worker's queues; 0 withdraws it.
pub fn publish_queues(addresses: u64) {
    // ORDERING: release, after the data; a debugger reads both in a stopped process.
    fastpath_queues.addresses.store(addresses, Ordering::Release);
}

/// Cards in the order of creation. Each card links to the one before it, and the table to the last one.
#[allow(clippy::vec_box)] // The addresses are published.
static CARDS: Mutex<Vec<Box<CommunicatorCard>>> = Mutex::new(Vec::new());

/// Entry of a communicator in the list for debuggers. Dropping it removes it from the list.
#[derive(Debug)]
pub struct ListedCommunicator {
    card: u64,
}

impl ListedCommunicator {
    /// Adds a communicator. `peers` are the world ranks that messages are sent to, and must live as long as the result.
    pub fn new(context: Context, peers: &[u32], rank: u32, name: &str) -> Self {
        let card = Box::new(CommunicatorCard {
            next: 0,
            context: context.to_wire(),
            peers: peers.as_ptr().addr() as u64,
            peer_count: peers.len() as u32,
            rank,
            name: cut_name(name),
        });
        let address = address_of(&card);
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        cards.push(card);
        let last = cards.len() - 1;
        link(&mut cards, last);
        ListedCommunicator { card: address }
    }

    /// Changes the name of the communicator.
    pub fn rename(&self, name: &str) {
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(card) = cards.iter_mut().find(|card| address_of(card) == self.card) {
            card.name = cut_name(name);
        }
    }
}

impl Drop for ListedCommunicator {
    fn drop(&mut self) {
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = cards.iter().rposition(|card| address_of(card) == self.card) {
            let card = cards.remove(at);
            link(&mut cards, at);
            drop(card);
            if cards.is_empty() {
                // Frees the list's memory too.
                *cards = Vec::new();
            }
        }
    }
}

fn address_of(card: &CommunicatorCard) -> u64 {
    (&raw const *card).addr() as u64
}

/// Links the card at `at`, if there is one, to the card before it, and the table to the last card.
fn link(cards: &mut [Box<CommunicatorCard>], at: usize) {
    let before = at.checked_sub(1).map_or(0, |at| address_of(&cards[at]));
    if let Some(card) = cards.get_mut(at) {
        card.next = before;
    }
    let last = cards.last().map_or(0, |card| address_of(card));
    // ORDERING: release, after the cards; a debugger reads both in a stopped process.
    fastpath_queues.communicators.store(last, Ordering::Release);
}

/// Copies as much of a name as fits before a zero byte, in whole characters.
fn cut_name(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let longest = name.len().min(NAME_BYTES - 1);
    let end = (0..=longest).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    bytes
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cards__of_freed_communicators_leave_the_list() {
        let peers = [3, 4];
        let make = |counter| {
            ListedCommunicator::new(Context::from_leader(900, counter), &peers, 1, "name")
        };
        let mut made: Vec<ListedCommunicator> = (10..14).map(make).collect();
        // Other tests list communicators too, so only those of this one count.
        let listed = || {
            let cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
            let head = fastpath_queues.communicators.load(Ordering::Relaxed);
            let mut wanted = head;
            let mut found = Vec::new();
            for card in cards.iter().rev() {
                assert_eq!(address_of(card), wanted);
                wanted = card.next;
                found.push(Context::from_wire(card.context).origin());
            }
            assert_eq!(wanted, 0);
            found.retain(|origin| origin.0 == 900);
            found.into_iter().map(|origin| origin.1).collect::<Vec<_>>()
        };
        assert_eq!(listed(), [13, 12, 11, 10]);
        made.remove(1);
        made.pop();
        assert_eq!(listed(), [12, 10]);
        drop(made);
        assert!(listed().is_empty());
    }

    #[test]
    fn name__is_cut_between_characters() {
        let name = cut_name(&"\u{e4}".repeat(40));
        assert_eq!(&name[60..], [0xc3, 0xa4, 0, 0]);
        assert_eq!(cut_name("ab")[..3], *b"ab\0");
    }
}
