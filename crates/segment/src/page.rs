//! One rank's page: its wake-up words, the peers that opened rings to it, and its state.

use crate::call::CallWord;
use crate::card::Card;
use crate::port::{CallOutcome, PortRequest};
use crate::text::SharedText;
use crate::unexpected::{UnexpectedMessage, UnexpectedMessages, UnexpectedSnapshot};
use crate::wait_note::{Status, WaitNote, WaitNoteRef};
use fastpath_base::host_topology::RankDomains;
use fastpath_base::sync::{AtomicU32, AtomicU64, CacheLine, Ordering};
use fastpath_base::wait::futex_wake;
use std::ops::Deref;

/// The rank runs.
pub const STATE_AWAKE: u32 = 0;
/// The rank sleeps on its state word, or is about to.
pub const STATE_SLEEPING: u32 = 1;
/// The rank has finalized MPI and reads no more messages.
pub const STATE_FINALIZED: u32 = 2;
/// The rank's process has ended.
pub const STATE_DEAD: u32 = 3;

/// The rank runs on another node; one page represents all such ranks.
pub const STATE_ABSENT: u32 = 4;

/// Returns whether a rank in this state takes no more messages: it has finalized MPI, or its process has ended.
#[inline]
pub const fn has_left(state: u32) -> bool {
    matches!(state, STATE_FINALIZED | STATE_DEAD)
}

/// Phase of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum RankPhase {
    /// The process has not found its job yet. It may not even have been started.
    Launched = 0,
    /// The process has found its job.
    Attached = 1,
    /// MPI is initialised.
    Initialized = 2,
    /// The rank is in `MPI_Finalize` and starts no more messages.
    Silent = 3,
    /// The rank is in `MPI_Finalize`, no receive of it waits, and it has answered every matched message.
    Settled = 4,
    /// MPI is finalized.
    Finalized = 5,
}

/// Words by which peers wake a rank.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Wakes {
    /// One of the `STATE_` constants, and the word on which the rank sleeps. Written by its owner, and by the launcher
    /// for [`STATE_DEAD`]. Senders read this word after each message they publish.
    pub state: CacheLine<AtomicU32>,
    /// Incremented when a peer has opened a ring to this rank and set its bit in the incoming bitmap.
    pub incoming_generation: CacheLine<AtomicU32>,
    /// Call word of the rank's progress thread.
    pub call: CacheLine<CallWord>,
}

impl Wakes {
    /// Stores the state of a rank that leaves the job.
    pub fn set_left(&self, state: u32) {
        // ORDERING: release pairs with the acquires in the transport's `peer_has_left` and `wake_peer`. A peer that
        // finds the rank gone sees what the rank sent and took before.
        self.state.store(state, Ordering::Release);
    }

    /// Wakes the threads that sleep on the rank's state word.
    pub fn wake(&self) {
        if self.state.load(Ordering::Relaxed) != STATE_SLEEPING {
            return;
        }
        // ORDERING: release: a woken thread sees what the caller wrote before, such as the mark of a dead rank.
        // Messages and credits have their own publishing stores.
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        let changed = self.state.compare_exchange(STATE_SLEEPING, STATE_AWAKE, release, relaxed);
        if changed.is_ok() {
            futex_wake(&self.state, u32::MAX);
        }
    }
}

/// A rank's page. All zeros when the ranks start.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RankPage {
    wakes: Wakes,
    phase: AtomicU32,
    /// Process that the launcher started for this rank.
    pub launched_pid: AtomicU32,
    /// Process that attached as this rank: the launched one, or a descendant of it.
    pub owner_pid: AtomicU32,
    /// Number of the program in the command line (`MPI_APPNUM`).
    pub app: AtomicU32,
    /// Number of ranks that run that program.
    pub app_ranks: AtomicU32,
    /// 1 if the rank is bound to its own processors.
    pub bound: AtomicU32,
    /// Processor on which the rank waits, plus 1; 0 until its first long wait.
    pub processor: AtomicU32,
    /// Address of two words in the rank's own memory; 0 until it is set. If a reader finds the values of `witness`
    /// there, the process is the rank's own, and not a later process with the same process number.
    pub witness_address: AtomicU64,
    /// Values of the two words at `witness_address`.
    pub witness: [AtomicU64; 2],
    /// Number of the rank's host. Only the launcher writes it, before any rank starts.
    pub host: AtomicU32,
    /// Incremented at the start and at the end of each wait for a message in which the rank stays awake. Counted only
    /// on a node with more awake ranks than processors. An odd number means that the rank waits.
    pub waits: AtomicU32,
    /// Notes of waiting threads, one for each while it waits.
    waits_for: [Status; NOTES],
    /// Number of threads that wait without a note, because there are too many.
    unnoted: AtomicU32,
    /// Last error message of the rank, for the launcher's report. If a spawned rank never called `MPI_Init`, the
    /// launcher writes here how the rank ended, for its parents.
    pub message: SharedText<120>,
    /// Transports requested for the rank, as written.
    pub transports: SharedText<16>,
    /// Address for datagrams to the rank, in the transport's format.
    pub iface_address: Card<8>,
    /// Number of polls for datagrams that found none. Only the owner writes it. Peers read it to tell a rank that
    /// polls, and would answer, from one that computes.
    pub polls: AtomicU32,
    /// 1 if the rank uses an adapter or the network. Its messages may then be in flight although all ranks sleep.
    pub by_adapter: AtomicU32,
    /// Number of threads that sleep without a time limit. Each announced its sleep on `state`, and then polled without
    /// success. 0 while any thread sleeps with a time limit. Only the rank writes it; [`RankPage::sleepers`] reads it.
    pub asleep: AtomicU32,
    /// 1 if this page represents ranks of other nodes. Data of those ranks is only in the table
    /// ([`crate::Segment::host`], [`crate::Segment::network`]). Written before any rank starts.
    pub elsewhere: AtomicU32,
    /// Network address of the rank ([`crate::NetworkCard`]). For ranks of other nodes the table has the address.
    pub network: Card<24>,
    /// Exit code of the rank's process plus 1, once it has begun to exit; 0 if it was not recorded.
    pub exit_status: AtomicU32,
    /// 1 if the rank watches the other ranks of its node, in place of a launcher.
    pub leads: AtomicU32,
    /// Number of threads of the rank that belong to this library and never call MPI.
    pub helpers: AtomicU32,
    /// First rank of the rank's `MPI_COMM_WORLD`. Only the launcher writes it, before the rank starts.
    pub world_first: AtomicU32,
    /// Number of ranks of the rank's `MPI_COMM_WORLD`; 0 stands for all ranks with which the job began.
    pub world_ranks: AtomicU32,
    /// Number of window locks that the rank holds. Only its owner writes this and the next two fields.
    window_locks: AtomicU32,
    /// Rank, in the job, whose window memory this rank locked last.
    window_owner: AtomicU32,
    /// Number of the window locked last; 0 after that lock was released.
    window_locked: AtomicU32,
    /// Titles of the rank's windows.
    window_titles: [WindowTitle; WINDOWS_NAMED],
    /// Rank that spawned this rank as root, plus 1; 0 for a rank of the command line.
    pub parent: AtomicU32,
    /// Open ports, one word each: the port's number in the upper half, and in the lower half the caller that was not
    /// yet accepted (0: no caller). A word of 0 is no port.
    pub ports: [AtomicU64; PORTS],
    /// The rank's number in the job, if that is not its place in this memory. Written before the rank is visible.
    pub(crate) rank: AtomicU32,
    /// Number of sleeps with a time limit that ended without work. Only the owner writes it.
    pub naps: AtomicU32,
    /// Address, in the rank's process, of the addresses of its counters and queues; 0 if unset. Only the owner writes
    /// it.
    pub snapshot: AtomicU64,
    /// Number of communicators, windows and files that this rank shares with ranks of other worlds of the job. The rank
    /// counts the objects that it makes. The launcher counts one object for a spawned rank before the rank starts. The
    /// number stays when the rank ends.
    pub links: AtomicU32,
    /// 1 if the launcher ends the rank because another one failed, without ending the whole job.
    pub is_ended: AtomicU32,
    /// 1 while the rank is counted in [`crate::JobHeader::awake`]; see [`crate::Segment::count_awake`].
    pub(crate) is_counted: AtomicU32,
    unexpected: UnexpectedMessages,
    /// Core, L3 cache, NUMA node and socket of the rank, by [`RankDomains::to_words`]. Written before the rank starts,
    /// so ranks of the node always read equal values.
    domains: [AtomicU32; 4],
    /// Counters of the rank when it finalized MPI. Only the owner writes them.
    pub final_counters: [AtomicU64; FINAL_COUNTERS],
}

/// Number of words of [`RankPage::final_counters`].
pub const FINAL_COUNTERS: usize = 18;

/// Largest number of open ports of a rank.
pub const PORTS: usize = 32;

/// Largest number of threads of a rank with a wait note.
pub const NOTES: usize = 4;

#[cfg(not(feature = "loom"))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RankPage>() == crate::layout::PAGE_BYTES);
    assert!(align_of::<RankPage>() == crate::layout::PAGE_BYTES);
    assert!(offset_of!(RankPage, wakes) == 0);
    assert!(offset_of!(Wakes, state) == 0);
    assert!(offset_of!(Wakes, incoming_generation) == 64);
    assert!(offset_of!(Wakes, call) == 128);
    assert!(offset_of!(RankPage, phase) == 192);
    assert!(offset_of!(RankPage, waits_for) == 256);
    // Read by tests/jobs/verdicts.py.
    assert!(offset_of!(RankPage, asleep) == 2472);
};

/// Largest number of titled windows of a rank; a title is stored at the window's number modulo this constant.
const WINDOWS_NAMED: usize = 8;

/// Number of a window (`MPI_Win_toint`), and its title for users.
#[repr(C)]
#[derive(Debug)]
struct WindowTitle {
    number: AtomicU32,
    text: SharedText<4>,
}

/// Window locks (MPI 5.0, section 12.5.3) that a rank holds, and for which other ranks may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLocks {
    /// Number of locks.
    pub count: u32,
    /// Rank of the job whose memory was locked last, and the window; `None` after that lock was released.
    pub last: Option<(u32, String)>,
}

impl std::fmt::Display for WindowLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.count, &self.last) {
            (1, Some((owner, window))) => {
                write!(f, "a lock of rank {owner}'s window memory (window {window})")
            }
            (1, None) => f.write_str("a lock of window memory"),
            (many, Some((owner, window))) => write!(
                f,
                "{many} locks of window memory, the latest one on rank {owner}'s memory (window \
                 {window})"
            ),
            (many, None) => write!(f, "{many} locks of window memory"),
        }
    }
}

impl Deref for RankPage {
    type Target = Wakes;
    fn deref(&self) -> &Wakes {
        &self.wakes
    }
}

impl RankPage {
    /// Returns whether the rank waits for a message, awake, on a node with more awake ranks than processors.
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Relaxed) & 1 != 0
    }

    /// Performs action `visit` of `caller` at the port `number`. Returns `None` if the port is not open. A port is one
    /// word, with the port's number in the upper half and the present caller in the lower half.
    pub fn knock(&self, number: u32, caller: u32, visit: PortRequest) -> Option<CallOutcome> {
        let is_open = |word: u64| (word >> 32) as u32 == number;
        let loads = || self.ports.iter().map(|at| (at, at.load(Ordering::Relaxed)));
        let (at, seen) = loads().find(|&(_, word)| is_open(word))?;
        let change = |to| {
            // ORDERING: release: partner is the acquire of the rank that accepts. Acquire: partner is that rank's
            // release of the former caller.
            at.compare_exchange(seen, to, Ordering::AcqRel, Ordering::Relaxed)
        };
        let is_there = seen as u32 == caller;
        Some(match (visit, seen as u32) {
            (PortRequest::Comes, 0) => {
                let taken = change(seen | u64::from(caller));
                taken.map_or(CallOutcome::Waits, |_| CallOutcome::Stands)
            }
            (PortRequest::Comes, _) => CallOutcome::Waits,
            (PortRequest::Asks, _) if is_there => CallOutcome::Stands,
            (PortRequest::Leaves, _) if is_there => {
                match change(u64::from(number) << 32) {
                    Ok(_) => CallOutcome::Waits,
                    // The word no longer holds the caller: it was accepted, unless the port was closed.
                    Err(now) if is_open(now) => CallOutcome::LetIn,
                    Err(_) => return None,
                }
            }
            (PortRequest::Asks | PortRequest::Leaves, _) => CallOutcome::LetIn,
        })
    }

    /// Records the number of unexpected messages, whether there may be more, and the first ones. Only the rank calls
    /// it.
    pub fn note_unexpected(&self, count: u64, is_partial: bool, first: &[UnexpectedMessage]) {
        self.unexpected.note(count, is_partial, first);
    }

    /// Returns the unexpected messages of the rank's last note.
    pub fn unexpected(&self) -> UnexpectedSnapshot {
        self.unexpected.read()
    }

    /// Makes a page as it is when the ranks start, for the model checker.
    #[cfg(all(test, feature = "loom"))]
    fn fresh() -> Self {
        let word = || AtomicU32::new(0);
        let long = || AtomicU64::new(0);
        RankPage {
            wakes: Wakes::default(),
            phase: word(),
            launched_pid: word(),
            owner_pid: word(),
            app: word(),
            app_ranks: word(),
            bound: word(),
            processor: word(),
            witness_address: long(),
            witness: [long(), long()],
            host: word(),
            waits: word(),
            waits_for: std::array::from_fn(|_| Status::fresh()),
            unnoted: word(),
            message: SharedText::new(),
            transports: SharedText::new(),
            iface_address: Card::fresh(),
            polls: word(),
            by_adapter: word(),
            asleep: word(),
            elsewhere: word(),
            network: Card::fresh(),
            exit_status: word(),
            leads: word(),
            helpers: word(),
            window_locks: word(),
            window_owner: word(),
            window_locked: word(),
            window_titles: std::array::from_fn(|_| WindowTitle {
                number: word(),
                text: SharedText::new(),
            }),
            world_first: word(),
            world_ranks: word(),
            parent: word(),
            ports: std::array::from_fn(|_| long()),
            rank: word(),
            naps: word(),
            snapshot: long(),
            links: word(),
            is_ended: word(),
            is_counted: word(),
            unexpected: UnexpectedMessages::default(),
            domains: [word(), word(), word(), word()],
            final_counters: std::array::from_fn(|_| long()),
        }
    }

    /// Records the domains in which the rank runs. Called before the rank starts.
    pub fn set_domains(&self, domains: RankDomains) {
        for (word, value) in self.domains.iter().zip(domains.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the domains in which the rank runs.
    pub fn domains(&self) -> RankDomains {
        RankDomains::from_words([0, 1, 2, 3].map(|at| self.domains[at].load(Ordering::Relaxed)))
    }

    /// Returns the rank's phase. A value that no rank writes counts as `Launched`.
    pub fn phase(&self) -> RankPhase {
        // ORDERING: partner is the release store in `set_phase`.
        match self.phase.load(Ordering::Acquire) {
            1 => RankPhase::Attached,
            2 => RankPhase::Initialized,
            3 => RankPhase::Silent,
            4 => RankPhase::Settled,
            5 => RankPhase::Finalized,
            _ => RankPhase::Launched,
        }
    }

    /// Records the rank's phase. Only the owner calls it.
    pub fn set_phase(&self, phase: RankPhase) {
        // ORDERING: release: a process that sees the phase sees earlier writes of the rank; partner is the acquire in
        // `phase`.
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// Records what a thread of this rank is about to wait for. `place`, below [`NOTES`], is the thread's own until its
    /// wait ends. Only the rank calls it.
    pub fn note_waiting(&self, place: usize, note: WaitNoteRef<'_>) {
        if let Some(status) = self.waits_for.get(place) {
            status.store(note);
        }
    }

    /// Clears the note at `place`, after its wait has ended or something has arrived.
    pub fn clear_waiting(&self, place: usize) {
        if let Some(status) = self.waits_for.get(place) {
            status.clear();
        }
    }

    /// Returns the notes of the rank's waiting threads, without any note that is being written.
    pub fn wait_notes(&self) -> Vec<WaitNote> {
        let notes = self.waits_for.iter().enumerate();
        notes.filter_map(|(place, status)| status.load(place)).collect()
    }

    /// Records that this rank has acquired or released a lock of `window` on memory of `owner`. Only the rank calls it.
    pub fn note_window_lock(&self, window: u32, owner: u32, taken: bool) {
        let count = self.window_locks.load(Ordering::Relaxed);
        if taken {
            self.window_locks.store(count.wrapping_add(1), Ordering::Relaxed);
            self.window_owner.store(owner, Ordering::Relaxed);
            self.window_locked.store(window, Ordering::Relaxed);
            return;
        }
        self.window_locks.store(count.wrapping_sub(1), Ordering::Relaxed);
        let last = &self.window_locked;
        if self.window_owner.load(Ordering::Relaxed) == owner
            && last.load(Ordering::Relaxed) == window
        {
            last.store(0, Ordering::Relaxed);
        }
    }

    /// Records the title of a window. Only the rank calls it.
    pub fn set_window_title(&self, window: u32, title: &str) {
        let place = &self.window_titles[window as usize % WINDOWS_NAMED];
        place.number.store(window, Ordering::Relaxed);
        place.text.store(title);
    }

    /// Returns the window locks that the rank holds; `None` without any.
    pub fn window_locks(&self) -> Option<WindowLocks> {
        let count = self.window_locks.load(Ordering::Relaxed);
        let owner = self.window_owner.load(Ordering::Relaxed);
        let window = self.window_locked.load(Ordering::Relaxed);
        let place = &self.window_titles[window as usize % WINDOWS_NAMED];
        let title = match place.number.load(Ordering::Relaxed) == window {
            true => place.text.load(),
            false => window.to_string(),
        };
        let last = (window != 0).then_some((owner, title));
        (count != 0).then_some(WindowLocks { count, last })
    }

    /// Records the number of threads that wait without a note.
    pub fn set_unnoted(&self, threads: u32) {
        self.unnoted.store(threads, Ordering::Relaxed);
    }

    /// Returns the number of threads that wait without a note.
    pub fn unnoted(&self) -> u32 {
        self.unnoted.load(Ordering::Relaxed)
    }

    /// Records the number of threads of this rank that sleep without a time limit. Only the owner calls it.
    pub fn set_asleep(&self, threads: u32) {
        // ORDERING: release: a process that sees the sleep also sees the wake-ups that the rank made earlier; partner
        // is the acquire load in `sleepers`.
        self.asleep.store(threads, Ordering::Release);
    }

    /// Returns the number of threads of this rank that sleep without a time limit. Returns 0 if a sleeping thread has a
    /// limit, or was woken after it announced its sleep. The caller reads the wait notes after this call.
    pub fn sleepers(&self) -> u32 {
        // ORDERING: partner is the release store in `set_asleep`.
        let asleep = self.asleep.load(Ordering::Acquire);
        // ORDERING: partner is the release store of a rank that announces a later sleep. The rank changes its note
        // before that store.
        match self.state.load(Ordering::Acquire) {
            STATE_SLEEPING => asleep,
            _ => 0,
        }
    }
}

#[cfg(all(test, feature = "loom"))]
#[allow(non_snake_case)]
mod model {
    use super::*;
    use crate::wait_note::AwaitedRanks;
    use loom::sync::Arc;
    use loom::thread;

    /// Words of a stack with space for a page.
    const STACK_WORDS: usize = 1 << 15;

    fn note(number: i32, call: &'static str) -> WaitNoteRef<'static> {
        WaitNoteRef {
            call,
            peer: number,
            tag: number,
            comm: if number == 1 { "one" } else { "two" },
            bytes: number as u64,
            since_ns: number as u64,
            awaited: AwaitedRanks::of(&[number as u32]),
            multiple: false,
            thread: number as u32,
        }
    }

    #[test]
    fn note__is_read_whole_or_not_at_all() {
        let mut builder = loom::model::Builder::new();
        if builder.preemption_bound.is_none() {
            builder.preemption_bound = Some(1);
        }
        builder.check(|| {
            // A page is made on the stack, where the model checker's words are larger than plain words.
            let make = thread::Builder::new().stack_size(STACK_WORDS);
            let page = make.spawn(|| Arc::new(RankPage::fresh())).unwrap().join().unwrap();
            page.note_waiting(0, note(1, "MPI_Recv"));
            let rank = {
                let page = page.clone();
                thread::spawn(move || page.note_waiting(0, note(2, "MPI_Barrier")))
            };
            let check = |seen: WaitNote| {
                let call = if seen.peer == 1 { "MPI_Recv" } else { "MPI_Barrier" };
                let expected = note(seen.peer, call);
                assert_eq!(seen.call, call);
                assert_eq!((seen.tag, &*seen.comm), (expected.tag, expected.comm));
                assert_eq!((seen.bytes, seen.since_ns), (expected.bytes, expected.since_ns));
                assert_eq!(seen.awaited, expected.awaited);
                seen.peer
            };
            page.wait_notes().pop().map(check);
            rank.join().unwrap();
            assert_eq!(page.wait_notes().pop().map(check), Some(2));
        });
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::Segment;

    #[test]
    fn knock__comes_waits_and_leaves_the_port_free() {
        let segment = Segment::create(1, 1).unwrap();
        let page = segment.page(0).unwrap();
        let port = &page.ports[1];
        let empty = 7 << 32;
        port.store(empty, Ordering::Relaxed);
        assert_eq!(page.knock(8, 1, PortRequest::Comes), None);
        assert_eq!(page.knock(7, 1, PortRequest::Comes), Some(CallOutcome::Stands));
        assert_eq!(page.knock(7, 2, PortRequest::Comes), Some(CallOutcome::Waits));
        assert_eq!(page.knock(7, 1, PortRequest::Asks), Some(CallOutcome::Stands));
        assert_eq!(page.knock(7, 1, PortRequest::Leaves), Some(CallOutcome::Waits));
        assert_eq!(port.load(Ordering::Relaxed), empty);
        assert_eq!(page.knock(7, 2, PortRequest::Comes), Some(CallOutcome::Stands));
        // The accepting rank takes the second caller just before that caller withdraws its call.
        port.store(empty, Ordering::Relaxed);
        assert_eq!(page.knock(7, 2, PortRequest::Leaves), Some(CallOutcome::LetIn));
        assert_eq!(page.knock(7, 2, PortRequest::Asks), Some(CallOutcome::LetIn));
    }

    #[test]
    fn locks__are_told_with_the_last_window_while_it_is_locked() {
        let segment = Segment::create(1, 1).unwrap();
        let page = segment.page(0).unwrap();
        let told = || page.window_locks().map(|locks| locks.to_string());
        page.set_window_title(5, "ledger");
        assert_eq!(told(), None);
        page.note_window_lock(5, 3, true);
        assert_eq!(told().unwrap(), "a lock of rank 3's window memory (window ledger)");
        // The title was overwritten by that of another window, whose number has the same remainder.
        page.set_window_title(5 + WINDOWS_NAMED as u32, "made by MPI_Win_create");
        assert_eq!(told().unwrap(), "a lock of rank 3's window memory (window 5)");
        page.note_window_lock(5 + WINDOWS_NAMED as u32, 2, true);
        let last = "the latest one on rank 2's memory (window made by MPI_Win_create)";
        assert_eq!(told().unwrap(), format!("2 locks of window memory, {last}"));
        page.note_window_lock(5 + WINDOWS_NAMED as u32, 2, false);
        assert_eq!(told().unwrap(), "a lock of window memory");
        page.note_window_lock(5, 3, false);
        assert_eq!(told(), None);
    }
}
