// Tests compare lists of ranges, and some of these lists have one range.
#![allow(clippy::single_range_in_vec_init, clippy::cloned_ref_to_slice_refs)]

use super::*;
use fastpath_base::sync::{StaticOrdering, StaticU64};
use std::ptr::null_mut;

pub(in crate::adapter::rc) const PAGE: usize = 4096;
pub(in crate::adapter::rc) const LEN: usize = 64 * PAGE;
pub(in crate::adapter::rc) const RIGHTS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
pub(in crate::adapter::rc) const OWN: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Starts a watch; `None` if the kernel refuses, which it does not in the virtual machine.
pub(in crate::adapter::rc) fn start() -> Option<MemoryWatch> {
    match MemoryWatch::start(u64::MAX / 2) {
        Ok(watch) => Some(watch),
        Err(error) => {
            let required = std::env::var_os("FASTPATH_TEST_DEVICE").is_some();
            assert!(!required, "userfaultfd: {error}");
            eprintln!("NOT RUN: userfaultfd: {error}");
            None
        }
    }
}

pub(in crate::adapter::rc) fn map_at(
    at: usize, len: usize, rights: libc::c_int, flags: libc::c_int,
) -> usize {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the call maps unused addresses, or replaces memory of a test.
    let got = unsafe { libc::mmap(at, len, rights, flags, -1, 0) };
    assert_ne!(got, libc::MAP_FAILED);
    got.expose_provenance()
}

pub(in crate::adapter::rc) fn pointer(at: usize) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(at)
}

pub(in crate::adapter::rc) fn unmap(at: usize, len: usize) {
    // SAFETY: the range is memory of a test, without other users.
    assert_eq!(unsafe { libc::munmap(pointer(at), len) }, 0);
}

pub(in crate::adapter::rc) fn advise(at: usize, len: usize, advice: libc::c_int) {
    // SAFETY: the range is memory of a test, without other users.
    assert_eq!(unsafe { libc::madvise(pointer(at), len, advice) }, 0);
}

/// Maps memory outside of any larger mapping, at addresses that the kernel never chooses itself. Other tests therefore
/// do not map memory there while a test unmaps and maps it.
pub(in crate::adapter::rc) fn map() -> Range<usize> {
    static NEXT: StaticU64 = StaticU64::new(0x1000_0000_0000);
    let around = NEXT.fetch_add(8 * LEN as u64, StaticOrdering::Relaxed) as usize;
    let flags = OWN | libc::MAP_FIXED_NOREPLACE;
    map_at(around, LEN + 2 * PAGE, libc::PROT_NONE, flags);
    let at = map_at(around + PAGE, LEN, RIGHTS, OWN | libc::MAP_FIXED);
    // SAFETY: the range was just mapped.
    unsafe { pointer(at).write_bytes(1, LEN) };
    at..at + LEN
}

fn part(of: &Range<usize>, from: usize, to: usize) -> Range<usize> {
    of.start + from * PAGE..of.start + to * PAGE
}

/// Takes the changes of a range. Other tests of the process may change other memory.
fn changes(watch: &MemoryWatch, of: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    while let Some(change) = watch.take_change() {
        let range = match change {
            ChangedRange::Range(range) => range,
            ChangedRange::All => of.clone(),
        };
        if range.start < of.end && of.start < range.end {
            found.push(range);
        }
    }
    found
}

/// State of a range after the watching thread has stored all reports it has read.
fn look(watch: &MemoryWatch, range: &Range<usize>) -> WatchResult {
    loop {
        match watch.look(range) {
            WatchResult::Unsure => {
                changes(watch, range);
                fastpath_base::wait::yield_now();
            }
            known => return known,
        }
    }
}

fn covered() -> Option<(MemoryWatch, Range<usize>)> {
    let (watch, range) = (start()?, map());
    let mut renewed = Vec::new();
    assert!(watch.cover(&part(&range, 3, 5), |range| renewed.push(range.clone())));
    assert_eq!(renewed, [range.clone()], "the whole mapping");
    assert!(watch.cover(&range, |_| panic!("it was watched")));
    assert_eq!(look(&watch, &range), WatchResult::Held);
    assert!(changes(&watch, &range).is_empty());
    Some((watch, range))
}

/// Takes changes of a range until there is one.
fn wait_for_change(watch: &MemoryWatch, of: &Range<usize>) -> Vec<Range<usize>> {
    loop {
        match changes(watch, of) {
            none if none.is_empty() => fastpath_base::wait::yield_now(),
            found => return found,
        }
    }
}

#[test]
fn look__finds_memory_that_was_unmapped_and_mapped_again() {
    let Some((watch, range)) = covered() else {
        return;
    };
    unmap(range.start, LEN);
    assert_eq!(wait_for_change(&watch, &range), [range.clone()]);
    assert_eq!(look(&watch, &range), WatchResult::Lost);
    map_at(range.start, LEN, RIGHTS, OWN | libc::MAP_FIXED);
    assert_eq!(look(&watch, &range), WatchResult::Lost);
    assert!(watch.cover(&range, |_| {}));
    assert_eq!(look(&watch, &range), WatchResult::Held);
    // One call replaces the mapping.
    map_at(range.start, LEN, RIGHTS, OWN | libc::MAP_FIXED);
    assert_eq!(wait_for_change(&watch, &range), [range.clone()]);
    assert_eq!(look(&watch, &range), WatchResult::Lost);
}

#[test]
fn look__finds_that_a_part_was_unmapped() {
    let Some((watch, range)) = covered() else {
        return;
    };
    let hole = part(&range, 10, 11);
    unmap(hole.start, PAGE);
    assert_eq!(wait_for_change(&watch, &range), [hole.clone()]);
    map_at(hole.start, PAGE, RIGHTS, OWN | libc::MAP_FIXED);
    assert_eq!(look(&watch, &range), WatchResult::Lost);
    assert_eq!(look(&watch, &part(&range, 9, 11)), WatchResult::Lost);
    for rest in [part(&range, 0, 10), part(&range, 11, 64)] {
        assert_eq!(look(&watch, &rest), WatchResult::Held);
    }
}

#[test]
fn change__is_said_of_discarded_pages() {
    let Some((watch, range)) = covered() else {
        return;
    };
    for advice in [libc::MADV_DONTNEED, libc::MADV_FREE] {
        advise(range.start + PAGE, PAGE, advice);
        assert_eq!(wait_for_change(&watch, &range), [part(&range, 1, 2)]);
        assert_eq!(look(&watch, &range), WatchResult::Held, "it is watched as before");
    }
}

#[test]
fn change__is_said_of_moved_pages() {
    let Some((watch, range)) = covered() else {
        return;
    };
    // SAFETY: the range is memory of this test, without other users.
    let moved = |to: libc::c_int| unsafe {
        let to = libc::mremap(pointer(range.start), LEN, 2 * LEN, to);
        assert_ne!(to, libc::MAP_FAILED);
        to.expose_provenance()
    };
    let to = moved(libc::MREMAP_MAYMOVE);
    assert_ne!(to, range.start);
    assert!(wait_for_change(&watch, &range).contains(&range));
    assert_eq!(look(&watch, &range), WatchResult::Lost);
    assert_eq!(look(&watch, &(to..to + 2 * LEN)), WatchResult::Held);
    let whole = to..to + 2 * LEN;
    // SAFETY: the range is memory of this test, without other users.
    let same = unsafe { libc::mremap(pointer(to), 2 * LEN, LEN, 0) };
    assert_eq!(same.addr(), to);
    assert_eq!(wait_for_change(&watch, &whole), [to + LEN..to + 2 * LEN]);
    assert_eq!(look(&watch, &(to..to + LEN)), WatchResult::Held);
}

#[test]
fn change__is_said_of_pages_that_move_and_leave_their_addresses() {
    const DONTUNMAP: libc::c_int = 4;
    let Some((watch, range)) = covered() else {
        return;
    };
    let how = libc::MREMAP_MAYMOVE | DONTUNMAP;
    // SAFETY: the range is memory of this test, without other users.
    let to = unsafe { libc::mremap(pointer(range.start), LEN, LEN, how, null_mut::<u8>()) };
    assert_ne!(to, libc::MAP_FAILED);
    assert!(wait_for_change(&watch, &range).contains(&range));
}

#[test]
fn look__finds_shared_memory_attached_over_the_programs() {
    let Some((watch, range)) = covered() else {
        return;
    };
    // SAFETY: the range is memory of this test; the segment is removed with its last user.
    unsafe {
        let segment = libc::shmget(libc::IPC_PRIVATE, LEN / 2, 0o600);
        assert!(segment >= 0);
        let at = libc::shmat(segment, pointer(range.start + LEN / 4), libc::SHM_REMAP);
        libc::shmctl(segment, libc::IPC_RMID, null_mut());
        assert_eq!(at.addr(), range.start + LEN / 4);
        assert_eq!(look(&watch, &range), WatchResult::Lost);
        assert_eq!(libc::shmdt(at), 0);
    }
    // The kernel does not report this second mapping.
    map_at(range.start + LEN / 4, LEN / 2, RIGHTS, OWN | libc::MAP_FIXED);
    assert_eq!(look(&watch, &range), WatchResult::Lost);
    let mut renewed = Vec::new();
    assert!(watch.cover(&range, |range| renewed.push(range.clone())));
    assert_eq!(renewed, [part(&range, 16, 48)], "what is known of it does not count");
}

#[test]
fn cover__refuses_what_others_may_change() {
    let Some(watch) = start() else { return };
    let none = |_: &Range<usize>| {};
    let shared = map_at(0, LEN, RIGHTS, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    assert!(!watch.cover(&(shared..shared + LEN), none));
    let readable = map_at(0, LEN, libc::PROT_READ, OWN);
    assert!(!watch.cover(&(readable..readable + LEN), none));
    unmap(readable, LEN);
    assert!(!watch.cover(&(readable..readable + LEN), none), "nothing");
    let code = change__is_said_of_moved_pages as fn();
    let code = (code as *const ()).addr();
    assert!(!watch.cover(&(code..code + 1), none));
    // Part of this range is replaced by memory that is not watched.
    let range = map();
    map_at(range.start + PAGE, PAGE, libc::PROT_READ, OWN | libc::MAP_FIXED);
    assert!(!watch.cover(&range, none));
    assert!(watch.cover(&part(&range, 2, 64), none));
    // The program watches the range itself.
    let (theirs, range) = (Userfault::open().unwrap(), map());
    theirs.watch(&range).unwrap();
    assert!(!watch.cover(&range, none));
}

#[test]
fn change__is_said_of_blocks_that_are_freed_and_resized() {
    let Some(watch) = start() else { return };
    // Larger than the allocator's arenas: a mapping of its own, which free unmaps.
    const BLOCK: usize = 80 << 20;
    let mut block = vec![0_u8; BLOCK];
    for round in 1..20 {
        let range = block.as_ptr().addr()..block.as_ptr().addr() + BLOCK;
        assert!(watch.cover(&range, |_| {}));
        changes(&watch, &range);
        match round % 2 {
            0 => drop(std::mem::take(&mut block)),
            _ => block.reserve_exact(BLOCK + (round << 20)),
        }
        if block.as_ptr().addr() != range.start {
            // Another thread's block may be at the old addresses now, in memory that belonged to the same mapping.
            while changes(&watch, &range).is_empty() && watch.look(&range) != WatchResult::Lost {
                assert_ne!(watch.look(&range), WatchResult::Held, "round {round}");
                fastpath_base::wait::yield_now();
            }
        }
        if block.is_empty() {
            block = vec![0; BLOCK];
        }
    }
}

/// Ends the other thread of a test, which waits for this word, if the first thread panics.
struct EndGuard<'a>(&'a AtomicU64);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// One thread unmaps memory. Before its call returns, another thread maps other memory there. The first `look` must not
/// find the old memory: the kernel reports that the new memory is not watched.
#[test]
fn look__finds_memory_that_another_thread_is_unmapping() {
    let Some((watch, range)) = covered() else {
        return;
    };
    // Other threads unmap other watched memory meanwhile.
    let others = map();
    assert!(watch.cover(&others, |_| {}));
    let turn = AtomicU64::new(0);
    let rounds = 300;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                loop {
                    // ORDERING: acquires the turn; partner: the store of the thread that calls `look`.
                    match turn.load(Ordering::Acquire) {
                        u64::MAX => return,
                        now if now == 2 * round + 1 => break,
                        _ => fastpath_base::wait::yield_now(),
                    }
                }
                unmap(range.start, LEN);
            }
        });
        scope.spawn(|| {
            for round in 0..rounds as usize {
                advise(others.start + round % 64 * PAGE, PAGE, libc::MADV_DONTNEED);
            }
        });
        let _end = EndGuard(&turn);
        let mut seen = [0; 3];
        for round in 0..rounds {
            // ORDERING: publishes the turn; partner: the unmapping thread's load.
            turn.store(2 * round + 1, Ordering::Release);
            let flags = OWN | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: with this flag, the call maps only unused addresses.
            while unsafe { libc::mmap(pointer(range.start), LEN, RIGHTS, flags, -1, 0) }
                == libc::MAP_FAILED
            {
                fastpath_base::sync::spin_loop();
            }
            // A sender queries the watch like this before it reuses a registration of the old memory.
            let dropped = !changes(&watch, &range).is_empty();
            let answer = watch.look(&range);
            assert!(dropped || answer != WatchResult::Held, "round {round}");
            seen[answer as usize] += 1;
            while !watch.cover(&range, |_| {}) {
                fastpath_base::wait::yield_now();
            }
            changes(&watch, &range);
        }
        assert_eq!(seen[WatchResult::Held as usize], 0, "it was not watched yet: {seen:?}");
    });
}

/// Another thread discards memory, which stays watched. When its call has returned, the kernel has nothing more to
/// report. Only the watching thread knows of the change, which it has stored or is about to store.
#[test]
fn look__finds_memory_that_another_thread_has_discarded() {
    const ROUNDS: u64 = 4000;
    let Some((watch, range)) = covered() else {
        return;
    };
    let (discarded, looked) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait_for = |word: &AtomicU64, round: u64| {
        let mut polls = 0_u32;
        // ORDERING: acquires the round; partner: the other thread's store.
        while word.load(Ordering::Acquire) < round {
            polls += 1;
            match polls % 1000 {
                0 => fastpath_base::wait::yield_now(),
                _ => fastpath_base::sync::spin_loop(),
            }
        }
    };
    let mut missed = [0; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _end = EndGuard(&discarded);
            for round in 1..=ROUNDS {
                advise(range.start, PAGE, libc::MADV_DONTNEED);
                // ORDERING: publishes the round; partner: the load of the thread that calls `look`.
                discarded.store(round, Ordering::Release);
                wait_for(&looked, round);
            }
        });
        let _end = EndGuard(&looked);
        let mut taken = 0;
        for round in 1..=ROUNDS {
            wait_for(&discarded, round);
            // In even rounds, take the changes before the query of the state, in odd rounds after it.
            let first = round % 2 == 0;
            if first {
                taken += changes(&watch, &range).len() as u64;
            }
            let held = watch.look(&range) == WatchResult::Held;
            missed[first as usize] += (held && taken < round) as u64;
            taken += changes(&watch, &range).len() as u64;
            // ORDERING: publishes the round; partner: the discarding thread's load.
            looked.store(round, Ordering::Release);
        }
    });
    assert_eq!(missed, [0; 2], "of {ROUNDS}");
    assert_eq!(look(&watch, &range), WatchResult::Held, "it is watched as before");
}

#[test]
fn look__doubts_while_a_report_is_not_taken() {
    let Some((watch, range)) = covered() else {
        return;
    };
    watch.shared.changes.set_busy(true);
    assert_eq!(watch.look(&range), WatchResult::Unsure);
    watch.shared.changes.set_busy(false);
    watch.shared.changes.add(&(0..1));
    assert_eq!(watch.look(&range), WatchResult::Unsure);
    assert_eq!(watch.take_change(), Some(ChangedRange::Range(0..1)));
    assert_eq!(watch.look(&range), WatchResult::Held);
}

#[test]
fn child__watches_nothing_and_delays_no_process() {
    let Some((watch, range)) = covered() else {
        return;
    };
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors; the child makes only system calls, except for the tested ones.
    let child = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        match libc::fork() {
            0 => {
                let unsure =
                    watch.look(&range) == WatchResult::Unsure && !watch.cover(&range, |_| {});
                let unmapped = libc::munmap(pointer(range.start), LEN) == 0;
                libc::close(pipe[1]);
                let mut byte = 0_u8;
                libc::read(pipe[0], (&raw mut byte).cast(), 1); // until the parent's end is closed
                libc::_exit(if unsure && unmapped { 0 } else { 1 })
            }
            child => child,
        }
    };
    assert_eq!(look(&watch, &range), WatchResult::Held);
    assert!(changes(&watch, &range).is_empty());
    drop(watch);
    // This would wait forever if the child had kept the descriptor.
    unmap(range.start, LEN);
    let mut status = 0;
    // SAFETY: the calls use the process id of the child, and the pipe's descriptors.
    unsafe {
        libc::close(pipe[1]);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::close(pipe[0]);
    }
    assert_eq!(status, 0);
}

#[test]
fn watch__ends_when_reports_are_too_many() {
    if start().is_none() {
        return;
    }
    let (watch, range) = (MemoryWatch::start(100).unwrap(), map());
    assert!(watch.cover(&range, |_| {}));
    while !watch.has_ended() {
        advise(range.start, PAGE, libc::MADV_DONTNEED);
        fastpath_base::wait::yield_now();
    }
    let mut all = false;
    while !all {
        all = watch.take_change() == Some(ChangedRange::All);
    }
    let before = watch.reports();
    advise(range.start, PAGE, libc::MADV_DONTNEED);
    unmap(range.start, LEN);
    assert_eq!(watch.reports(), before);
    assert!(watch.look(&range) == WatchResult::Unsure && !watch.cover(&range, |_| {}));
    drop(watch);
    map();
}
