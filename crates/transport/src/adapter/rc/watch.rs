//! Detection of changed user memory: the kernel reports memory that is unmapped, moved or discarded.
//!
//! `userfaultfd` reports these changes of registered mappings, whichever call makes them. It blocks the thread that
//! makes a change until the report is read. Therefore a thread of this library reads at once, and stores the report for
//! the sending thread ([`MemoryWatch::take_change`]). The reading thread must not wait for a thread that unmaps memory.
//! Therefore it takes no lock, allocates and frees nothing, and uses only its stack and memory from before its start.
//!
//! Whole mappings are watched: watching a part would split the mapping, and `mremap` of the whole mapping would then
//! fail. `shmat` over other memory causes no report, but leaves an unwatched mapping, which [`MemoryWatch::look`]
//! finds. The kernel may map new memory at unmapped addresses before the report of the unmapping is read. Until the
//! report is read, the kernel refuses `look`'s query.
#![allow(unsafe_code)]

mod changes;
mod children;
mod userfault;

pub(super) use changes::ChangedRange;

use changes::Changes;
use children::ClosedInChild;
use fastpath_base::fd::{CheckedFd, CheckedHandle, open_stop_pipe};
use fastpath_base::maps::{self, MapsEntry};
use fastpath_base::sync::{AtomicBool, AtomicU64, Ordering};
use fastpath_base::thread::without_signals;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};
use userfault::{Userfault, UserfaultMessage, WatchOutcome, is_one_mapping};

const BATCH: usize = 16;
const BATCHES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchResult {
    Held,
    Lost,
    Unsure,
}

struct WatchState {
    kernel: Userfault,
    changes: Changes,
    reports: AtomicU64,
    uses: AtomicU64,
    free: u64,
    /// Whether the watch ended after too many reports.
    ended: AtomicBool,
    page: usize,
}

pub(super) struct MemoryWatch {
    /// Must be the first field: fields are dropped in order, and this one names descriptors of later fields.
    _held: ClosedInChild,
    shared: Arc<WatchState>,
    maps: CheckedHandle<File>,
    /// Process that started the watch. A forked child has a copy of this structure, but no watching thread.
    process: libc::pid_t,
    stop: CheckedFd,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts a watch without ranges. A report costs two thread switches, so the watch ends when the reports outnumber
    /// the [`WatchResult::Held`] results by `free`. Fails if the kernel refuses, or the process has too many threads or
    /// open files.
    pub(super) fn start(free: u64) -> io::Result<Self> {
        let kernel = Userfault::open()?;
        let maps =
            CheckedHandle::keep(File::open("/proc/self/maps")?, "reading its own memory map");
        // SAFETY: `sysconf` takes a plain integer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let (ends, stop) = open_stop_pipe("watching registered memory")?;
        let ends = Arc::new(ends);
        let shared = Arc::new(WatchState {
            kernel,
            changes: Changes::default(),
            reports: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            free,
            ended: AtomicBool::new(false),
            page: usize::try_from(page).unwrap_or(4096),
        });
        let held = ClosedInChild::new(shared.kernel.fd(), ends.number_unchecked())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        // Wait until the thread runs. Its startup code may allocate, which is forbidden once memory is watched.
        let begun = Arc::new(Barrier::new(2));
        let theirs = (shared.clone(), ends, begun.clone());
        let thread = without_signals(|| {
            let builder = Builder::new().name("fastpath-memory".to_owned()).stack_size(1 << 17);
            builder.spawn(move || {
                theirs.2.wait();
                theirs.0.run(&theirs.1);
            })
        })?;
        begun.wait();
        Ok(MemoryWatch {
            _held: held,
            shared,
            maps,
            // SAFETY: `getpid` takes no arguments.
            process: unsafe { libc::getpid() },
            stop,
            thread: Some(thread),
        })
    }

    /// Watches the private anonymous mappings around a range; returns whether they cover all of it.
    ///
    /// Calls `renewed` for each newly watched mapping. Earlier registrations of such a mapping are invalid.
    pub(super) fn cover(
        &self, range: &Range<usize>, mut renewed: impl FnMut(&Range<usize>),
    ) -> bool {
        if !self.is_ours() || self.has_ended() {
            return false;
        }
        let (pages, kernel) = (self.shared.pages(range), &self.shared.kernel);
        let mut at = pages.start;
        let visited = maps::visit(|MapsEntry { range: mapping, is_own, .. }| {
            if !is_own || mapping.end <= at {
                return ControlFlow::Continue(());
            }
            let first = mapping.start..mapping.start + self.shared.page;
            let known = kernel.ask(&first) == WatchOutcome::Watched;
            if mapping.start > at || kernel.watch(&mapping).is_err() {
                return ControlFlow::Break(());
            }
            if !known {
                renewed(&mapping);
            }
            at = mapping.end;
            match at >= pages.end {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        visited.is_ok() && at >= pages.end
    }

    /// State of a covered range. The result is [`WatchResult::Held`] only if every change before this call was taken.
    pub(super) fn look(&self, range: &Range<usize>) -> WatchResult {
        if !self.is_ours() || self.has_ended() {
            return WatchResult::Unsure;
        }
        let shared = &*self.shared;
        let pages = shared.pages(range);
        let part = match is_one_mapping(&self.maps, &pages) {
            true => pages.start..pages.start + shared.page,
            false => pages,
        };
        match shared.kernel.ask(&part) {
            WatchOutcome::Foreign => WatchResult::Lost,
            WatchOutcome::Changing => WatchResult::Unsure,
            WatchOutcome::Watched if !shared.changes.are_none() => WatchResult::Unsure,
            WatchOutcome::Watched => {
                shared.uses.fetch_add(1, Ordering::Relaxed);
                WatchResult::Held
            }
        }
    }

    pub(super) fn take_change(&self) -> Option<ChangedRange> {
        self.shared.changes.take()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn reports(&self) -> u64 {
        self.shared.reports.load(Ordering::Relaxed)
    }

    fn is_ours(&self) -> bool {
        // SAFETY: `getpid` takes no arguments.
        self.process == unsafe { libc::getpid() }
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.is_ours() {
            return std::mem::forget(thread); // the parent's thread
        }
        // If this write fails, the thread sleeps until the process ends.
        if self.stop.write_byte() {
            let _ = thread.join();
        }
    }
}

impl WatchState {
    fn pages(&self, range: &Range<usize>) -> Range<usize> {
        range.start & !(self.page - 1)..range.end.next_multiple_of(self.page)
    }

    fn run(&self, stop: &CheckedFd) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(self.kernel.fd()), entry(stop.number_unchecked())];
        loop {
            // SAFETY: `entries` is an array of two entries.
            unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
            if entries[1].revents != 0 {
                // End the watch before the thread frees its own memory.
                return self.kernel.end(stop.number_unchecked());
            }
            self.changes.set_busy(true);
            self.read_reports();
            let reports = self.reports.load(Ordering::Relaxed);
            let earned = self.uses.load(Ordering::Relaxed) + self.free;
            if reports > earned && !self.ended.swap(true, Ordering::Relaxed) {
                self.kernel.end(stop.number_unchecked());
                self.changes.lose();
            }
            self.changes.set_busy(false);
        }
    }

    fn read_reports(&self) {
        let mut messages = [UserfaultMessage::default(); BATCH];
        // Bounded, so that the thread notices a stop; the next poll finds later reports.
        for _ in 0..BATCHES {
            let read = self.kernel.read(&mut messages);
            for message in read {
                match message.range() {
                    Some(range) => self.changes.add(&range),
                    None => self.changes.lose(),
                }
            }
            self.reports.fetch_add(read.len() as u64, Ordering::Relaxed);
            if read.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(super) mod tests;
