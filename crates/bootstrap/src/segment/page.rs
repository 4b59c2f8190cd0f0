//! One rank's page: how it is woken, which peers want to talk to it, what it is doing.

use super::call::Call;
use super::card::Card;
use super::layout::FURTHER;
use super::text::SharedText;
use super::unexpected::Shown;
use super::wait_note::{Status, WaitNote, WaitNoteRef};
use crate::control::{Knocked, Visit};
use fastpath_base::sync::{AtomicU32, AtomicU64, CacheLine, Ordering};
use fastpath_base::wait::futex_wake;
use std::ops::Deref;

/// The rank runs.
pub const STATE_AWAKE: u32 = 0;
/// The rank sleeps on its state word, or is about to.
pub const STATE_SLEEPING: u32 = 1;
/// The rank has finalized MPI: it reads no messages any more.
pub const STATE_FINALIZED: u32 = 2;
/// The rank's process is gone.
pub const STATE_DEAD: u32 = 3;

/// The rank runs on another node: its page in this memory stands for all such ranks.
pub const STATE_ABSENT: u32 = 4;

/// From here on: a worker of the rank for which a thread looks that sleeps on the state word of another one, whose
/// place is added.
pub const STATE_COVERED: u32 = 16;

/// Whether a rank in such a state takes nothing any more: it has finalized MPI, or its process is gone.
#[inline]
pub const fn has_left(state: u32) -> bool {
    matches!(state, STATE_FINALIZED | STATE_DEAD)
}

/// The phase of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// Its process was started (or not even that).
    Launched = 0,
    /// It has found its job.
    Attached = 1,
    /// MPI is initialised.
    Initialized = 2,
    /// It is in `MPI_Finalize` and begins no message any more.
    Silent = 3,
    /// No receive of it waits for a message any more either, and it has answered whatever matched.
    Settled = 4,
    /// MPI is finalized.
    Finalized = 5,
}

/// The words by which peers wake a rank.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Wakes {
    /// One of the `STATE_` constants; also the word the rank sleeps on. Written by its owner,
    /// and by the launcher for [`STATE_DEAD`]. Senders read it after each message they publish.
    pub state: CacheLine<AtomicU32>,
    /// Grows by one each time a peer has opened a ring to this rank and set its bit in the
    /// incoming bitmap.
    pub incoming_generation: CacheLine<AtomicU32>,
    /// Calls the rank's progress thread, where it has one.
    pub call: CacheLine<Call>,
    /// As `state`, of the rank's further workers. A rank that leaves the job says so in all of them.
    further: [CacheLine<AtomicU32>; FURTHER],
}

impl Wakes {
    /// The state word of one of the rank's workers: of the first one where there is no such place.
    #[inline]
    pub fn state_of(&self, place: usize) -> &AtomicU32 {
        match place.checked_sub(1).and_then(|i| self.further.get(i)) {
            Some(state) => state,
            None => &self.state,
        }
    }

    /// Writes the state of a rank that leaves the job into the words of all its workers.
    pub fn set_left(&self, state: u32) {
        for place in 0..=FURTHER {
            // ORDERING: release pairs with the acquires in the transport's `peer_has_left` and `wake_peer`: what the
            // rank sent and took before is seen by a peer that finds it gone.
            self.state_of(place).store(state, Ordering::Release);
        }
    }

    /// Wakes the threads that sleep on the state word of a worker, or on that of another one in its place.
    pub fn wake(&self, place: usize) {
        let mut place = place;
        // From word to word, as long as a rank may have them.
        for _ in 0..=FURTHER {
            let word = self.state_of(place);
            let state = word.load(Ordering::Relaxed);
            if state != STATE_SLEEPING && state < STATE_COVERED {
                return;
            }
            // ORDERING: release: who is woken sees what the caller wrote before (a rank marked as dead); messages and
            // credits are published by stores of their own.
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            let changed = word.compare_exchange(state, STATE_AWAKE, release, relaxed);
            if changed.is_err() {
                return;
            }
            if state == STATE_SLEEPING {
                futex_wake(word, u32::MAX);
                return;
            }
            place = (state - STATE_COVERED) as usize;
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
    /// Process that took this rank: the same one, or a descendant of it.
    pub owner_pid: AtomicU32,
    /// Number of the program in the command line (`MPI_APPNUM`).
    pub app: AtomicU32,
    /// How many ranks run that program.
    pub app_ranks: AtomicU32,
    /// 1 when the rank is bound to processors of its own.
    pub bound: AtomicU32,
    /// Processor that the rank waits on, plus 1; 0 where it has not waited. Noted by waits that last.
    pub processor: AtomicU32,
    /// Address of two words in the rank's own memory, and what they hold: who reads them there by the
    /// process number has found the right process. 0 until they are there.
    pub witness_address: AtomicU64,
    /// See `witness_address`.
    pub witness: [AtomicU64; 2],
    /// Number of the host that the rank counts as being on. Only the launcher writes it, before any rank starts.
    pub host: AtomicU32,
    /// Waits for a message, awake, on a node with more ranks awake than processors: one more at the beginning and at
    /// the end of each, so that an odd number says that the rank waits.
    pub waits: AtomicU32,
    /// What threads of the rank wait for: each has one of them while it waits.
    waits_for: [Status; NOTES],
    /// Threads that wait without one, since there are too many.
    unnoted: AtomicU32,
    /// The rank's last error message, for the launcher's report.
    pub message: SharedText<120>,
    /// The transports that the rank was asked to use, as they were written.
    pub transports: SharedText<16>,
    /// Where the rank takes datagrams, as the transport writes it.
    pub iface_address: Card<8>,
    /// Counts the polls for datagrams that found none. Only its owner writes it; peers read it now and then: a rank
    /// that polls would answer.
    pub polls: AtomicU32,
    /// 1 where the rank reaches peers by an adapter or over the network: what it waits for may be on its way though all
    /// ranks sleep.
    pub by_adapter: AtomicU32,
    /// Threads of the rank that sleep without a limit, each after a look that came after its announcement on `state`
    /// and found nothing to do; 0 while one sleeps with a limit. Only the rank writes it; [`RankPage::sleepers`] reads
    /// it.
    pub asleep: AtomicU32,
    /// The workers on whose state words threads sleep, one bit for each place; 0 if there is only the first.
    leaders: AtomicU32,
    /// Workers that the rank offers to peers, at least 1; 0 while that is not known.
    pub offers: AtomicU32,
    /// 1 where this page stands for ranks whose own memory is another file, on another node: of those the table alone
    /// tells something ([`super::Segment::host`], [`super::Segment::network`]). Written before any rank starts.
    pub elsewhere: AtomicU32,
    /// Where the rank is reached over the network ([`crate::network::NetworkCard`]); of ranks of other nodes the table
    /// has it.
    pub network: Card<24>,
    /// Exit code of the rank's process plus 1, once it has begun to exit; 0 if it was not noted.
    pub exit_status: AtomicU32,
    /// 1 where the rank watches the others of its node, in place of a launcher.
    pub leads: AtomicU32,
    /// Threads of the rank that belong to this library and never call MPI.
    pub helpers: AtomicU32,
    /// The first rank of the rank's own `MPI_COMM_WORLD`, and how many it has; 0: all that the job began with. Only the
    /// launcher writes them, before the rank starts.
    pub world_first: AtomicU32,
    /// See `world_first`.
    pub world_ranks: AtomicU32,
    /// Locks of windows that the rank holds. Only its owner writes this and the next two.
    window_locks: AtomicU32,
    /// The rank of the job whose memory it locked last.
    window_owner: AtomicU32,
    /// The number of the window that it locked last; 0 where it has given that lock back.
    window_locked: AtomicU32,
    /// What windows of the rank are called.
    window_titles: [WindowTitle; WINDOWS_NAMED],
    /// The rank that spawned this one as root, plus 1; 0 for one that the command line has started.
    pub parent: AtomicU32,
    /// Ports that are open: the port's number in the upper half (0: none), and in the lower one the caller that was not
    /// accepted yet (0: none).
    pub ports: [AtomicU64; PORTS],
    /// The rank's number in the job, where that is not its place in this memory. Written before anybody sees the rank.
    pub(super) rank: AtomicU32,
    /// Sleeps with a limit that ended with nothing to do, of a rank with one worker. Only its owner writes it.
    pub naps: AtomicU32,
    /// Address in its process at which each of the rank's workers publishes its snapshot; 0: none. Only its owner
    /// writes them.
    pub snapshots: [AtomicU64; FURTHER + 1],
    /// Communicators that the rank holds, by itself or for a window or a file, with ranks of other worlds of its job.
    /// Its owner counts; the launcher counts one for a spawned rank before it starts. It stays when the rank ends.
    pub links: AtomicU32,
    /// 1 where the launcher ends the rank, though not the whole job, since another one has failed.
    pub is_ended: AtomicU32,
    /// 1 while the rank is counted in [`super::JobHeader::awake`]. See [`super::Segment::count_awake`].
    pub(super) is_counted: AtomicU32,
    /// Unexpected messages of the first worker.
    pub(super) unexpected: Shown,
}

/// Ports that a rank can have open at the same time.
pub const PORTS: usize = 32;

/// Threads of a rank that can say at the same time what they wait for.
pub const NOTES: usize = 4;

#[cfg(not(feature = "loom"))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<RankPage>() == super::PAGE_BYTES);
    assert!(align_of::<RankPage>() == super::PAGE_BYTES);
    assert!(offset_of!(RankPage, wakes) == 0);
    assert!(offset_of!(Wakes, state) == 0);
    assert!(offset_of!(Wakes, incoming_generation) == 64);
    assert!(offset_of!(Wakes, call) == 128);
    assert!(offset_of!(Wakes, further) == 192);
    assert!(offset_of!(RankPage, phase) == 192 + 64 * FURTHER);
    assert!(offset_of!(RankPage, waits_for) == 704);
    // Read by tests/jobs/verdicts.py.
    assert!(offset_of!(RankPage, asleep) == 2920);
};

/// Windows of a rank that can be called by their titles at the same time; one is kept in the place of its number.
const WINDOWS_NAMED: usize = 8;

/// A window's number (`MPI_Win_toint`), and what a person would call it.
#[repr(C)]
#[derive(Debug)]
struct WindowTitle {
    number: AtomicU32,
    text: SharedText<4>,
}

/// Locks of windows (MPI 5.0, section 12.5.3) that a rank holds: others may wait for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowLocks {
    /// How many.
    pub count: u32,
    /// The rank of the job whose memory was locked last, and the window; none where that lock was given back.
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
                "{many} locks of window memory, the last one rank {owner}'s (window {window})"
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
    /// Whether the rank waits for a message, awake, on a node with more ranks awake than processors.
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Relaxed) & 1 != 0
    }

    /// Calls at the port of that number, checks what became of a call, or withdraws it; `None` if the port is not open.
    /// A port is a word: its number, and below it the caller that is there.
    pub fn knock(&self, number: u32, caller: u32, visit: Visit) -> Option<Knocked> {
        let is_open = |word: u64| (word >> 32) as u32 == number;
        let loads = || self.ports.iter().map(|at| (at, at.load(Ordering::Relaxed)));
        let (at, seen) = loads().find(|&(_, word)| is_open(word))?;
        let change = |to| {
            // ORDERING: release: partner is the acquire of who accepts; acquire: of the one that was let in before.
            at.compare_exchange(seen, to, Ordering::AcqRel, Ordering::Relaxed)
        };
        let is_there = seen as u32 == caller;
        Some(match (visit, seen as u32) {
            (Visit::Comes, 0) => {
                let taken = change(seen | u64::from(caller));
                taken.map_or(Knocked::Waits, |_| Knocked::Stands)
            }
            (Visit::Comes, _) => Knocked::Waits,
            (Visit::Asks, _) if is_there => Knocked::Stands,
            (Visit::Leaves, _) if is_there => {
                match change(u64::from(number) << 32) {
                    Ok(_) => Knocked::Waits,
                    // Whoever is not there any more at this moment was let in, unless the port was closed.
                    Err(now) if is_open(now) => Knocked::LetIn,
                    Err(_) => return None,
                }
            }
            (Visit::Asks | Visit::Leaves, _) => Knocked::LetIn,
        })
    }

    /// A page as it is when the ranks start, for the model checker.
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
            leaders: word(),
            offers: word(),
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
            snapshots: std::array::from_fn(|_| long()),
            links: word(),
            is_ended: word(),
            is_counted: word(),
            unexpected: Shown::default(),
        }
    }

    /// The rank's phase. A value that no rank writes counts as the start.
    pub fn phase(&self) -> Phase {
        // ORDERING: partner is the release store in `set_phase`.
        match self.phase.load(Ordering::Acquire) {
            1 => Phase::Attached,
            2 => Phase::Initialized,
            3 => Phase::Silent,
            4 => Phase::Settled,
            5 => Phase::Finalized,
            _ => Phase::Launched,
        }
    }

    /// Notes the rank's phase; only the owner calls it.
    pub fn set_phase(&self, phase: Phase) {
        // ORDERING: what the rank wrote before is seen by who sees the phase (`phase`).
        self.phase.store(phase as u32, Ordering::Release);
    }

    /// Notes what a thread of this rank is about to wait for, at a place below [`NOTES`] that is the thread's own until
    /// it waits no more. Only the rank calls it.
    pub fn note_waiting(&self, place: usize, note: WaitNoteRef<'_>) {
        if let Some(status) = self.waits_for.get(place) {
            status.store(note);
        }
    }

    /// The wait at this place is over, or something has arrived.
    pub fn clear_waiting(&self, place: usize) {
        if let Some(status) = self.waits_for.get(place) {
            status.clear();
        }
    }

    /// The notes of the rank's waiting threads; a note that is being written is left out.
    pub fn wait_notes(&self) -> Vec<WaitNote> {
        let notes = self.waits_for.iter().enumerate();
        notes.filter_map(|(place, status)| status.load(place)).collect()
    }

    /// Notes that this rank has taken, or given back, a lock of the window of a number, of memory of `owner`; only the
    /// rank calls it.
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

    /// Notes the title of the window of a number; only the rank calls it.
    pub fn set_window_title(&self, window: u32, title: &str) {
        let place = &self.window_titles[window as usize % WINDOWS_NAMED];
        place.number.store(window, Ordering::Relaxed);
        place.text.store(title);
    }

    /// Locks of windows that the rank holds; none where it holds none.
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

    /// Notes how many threads wait without a note.
    pub fn set_unnoted(&self, threads: u32) {
        self.unnoted.store(threads, Ordering::Relaxed);
    }

    /// Threads that wait and have no place to say for what.
    pub fn unnoted(&self) -> u32 {
        self.unnoted.load(Ordering::Relaxed)
    }

    /// Notes how many threads of this rank sleep without a limit; only its owner calls it.
    pub fn set_asleep(&self, threads: u32) {
        // ORDERING: who sees that a rank sleeps sees also whom it has woken before; partner is the acquire load in
        // `sleepers`.
        self.asleep.store(threads, Ordering::Release);
    }

    /// How many threads of this rank sleep without a limit, where all that sleep do, have found nothing to do after one
    /// of them had announced that, and were not woken since; else 0. Read before the notes.
    pub fn sleepers(&self) -> u32 {
        // ORDERING: partner is the release store in `set_asleep`.
        let asleep = self.asleep.load(Ordering::Acquire);
        let leaders = self.leaders.load(Ordering::Relaxed).max(1);
        let mut places = (0..=FURTHER).filter(|place| leaders & 1 << place != 0);
        // ORDERING: partner is the release store of a rank that announces a later sleep: its note was changed before.
        let sleeps = |place| self.state_of(place).load(Ordering::Acquire) == STATE_SLEEPING;
        match places.all(sleeps) {
            true => asleep,
            false => 0,
        }
    }

    /// Notes which workers' state words threads of this rank sleep on; only its owner calls it.
    pub fn set_leaders(&self, places: u32) {
        self.leaders.store(places, Ordering::Relaxed);
    }
}

#[cfg(all(test, feature = "loom"))]
#[allow(non_snake_case)]
mod model {
    use super::super::wait_note::Awaited;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Words of a stack with room for a page.
    const STACK_WORDS: usize = 1 << 15;

    fn note(number: i32, call: &'static str) -> WaitNoteRef<'static> {
        WaitNoteRef {
            call,
            peer: number,
            tag: number,
            comm: if number == 1 { "one" } else { "two" },
            bytes: number as u64,
            since_ns: number as u64,
            awaited: Awaited::of(&[number as u32]),
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
            // On its way to its place a page lies on a stack, and the model's words are large.
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
    use super::super::Segment;
    use super::*;

    #[test]
    fn knock__comes_waits_and_leaves_the_port_free() {
        let segment = Segment::create(1, 1).unwrap();
        let page = segment.page(0).unwrap();
        let port = &page.ports[1];
        let empty = 7 << 32;
        port.store(empty, Ordering::Relaxed);
        assert_eq!(page.knock(8, 1, Visit::Comes), None);
        assert_eq!(page.knock(7, 1, Visit::Comes), Some(Knocked::Stands));
        assert_eq!(page.knock(7, 2, Visit::Comes), Some(Knocked::Waits));
        assert_eq!(page.knock(7, 1, Visit::Asks), Some(Knocked::Stands));
        assert_eq!(page.knock(7, 1, Visit::Leaves), Some(Knocked::Waits));
        assert_eq!(port.load(Ordering::Relaxed), empty);
        assert_eq!(page.knock(7, 2, Visit::Comes), Some(Knocked::Stands));
        // Who accepts has taken the second one away, at the moment when it was about to leave.
        port.store(empty, Ordering::Relaxed);
        assert_eq!(page.knock(7, 2, Visit::Leaves), Some(Knocked::LetIn));
        assert_eq!(page.knock(7, 2, Visit::Asks), Some(Knocked::LetIn));
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
        // Another one in the same place has taken its title away.
        page.set_window_title(5 + WINDOWS_NAMED as u32, "made by MPI_Win_create");
        assert_eq!(told().unwrap(), "a lock of rank 3's window memory (window 5)");
        page.note_window_lock(5 + WINDOWS_NAMED as u32, 2, true);
        let last = "the last one rank 2's (window made by MPI_Win_create)";
        assert_eq!(told().unwrap(), format!("2 locks of window memory, {last}"));
        page.note_window_lock(5 + WINDOWS_NAMED as u32, 2, false);
        assert_eq!(told().unwrap(), "a lock of window memory");
        page.note_window_lock(5, 3, false);
        assert_eq!(told(), None);
    }
}
