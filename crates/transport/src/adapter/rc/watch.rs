//! Whether memory of the program still is what it was: the kernel tells of what is unmapped, moved or discarded.
//!
//! The kernel's `userfaultfd` reports such changes of the mappings that it was told of, whoever makes them and however.
//! It holds back the thread that makes one until its report has been read. So a thread of ours reads at once, and takes
//! down what it read for the thread that sends ([`Watch::take_change`]). It must do nothing that waits for a thread
//! that unmaps: it takes no lock, allocates and frees nothing, and uses no memory but its stack and what was there
//! before it began.
//!
//! Whole mappings are watched, as watching a part of one would split it, and `mremap` of all of it would fail then. A
//! change that no report tells of (memory attached over others by `shmat`) leaves a mapping that is not watched, which
//! [`Watch::look`] finds. A change that is under way (the kernel has given the addresses to another thread already, and
//! the report is not read) makes the kernel's answer to `look` a refusal.
#![allow(unsafe_code)]

mod changes;
mod children;
mod userfault;

pub(super) use changes::Changed;

use changes::Changes;
use children::ClosedInChild;
use fastpath_base::fd::{CheckedFd, CheckedHandle, open_stop_pipe};
use fastpath_base::maps::{self, Mapping};
use fastpath_base::sync::{AtomicBool, AtomicU64, Ordering};
use fastpath_base::thread::without_signals;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};
use userfault::{Answer, Message, Userfault, is_one_mapping};

/// Reports taken by one read.
const BATCH: usize = 16;
/// Reads between two looks whether all is to end.
const BATCHES: usize = 16;

/// What is known of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It is watched, and every change of it so far has been taken.
    Held,
    /// Some of it is not watched: it is other memory than before.
    Lost,
    /// Something is just changing.
    Unsure,
}

struct Shared {
    kernel: Userfault,
    changes: Changes,
    reports: AtomicU64,
    uses: AtomicU64,
    free: u64,
    /// Reports have become too many: nothing is watched any more.
    ended: AtomicBool,
    page: usize,
}

/// A watch of this process's memory.
pub(super) struct Watch {
    /// Before the descriptors that it names: fields are dropped in this order.
    _held: ClosedInChild,
    shared: Arc<Shared>,
    maps: CheckedHandle<File>,
    /// A child of the process has a copy of this, and no thread.
    process: libc::pid_t,
    stop: CheckedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins, with nothing watched. It ends by itself when there have been so many reports more than uses: one costs
    /// two switches of threads.
    ///
    /// # Errors
    /// The kernel has no such thing, or does not allow it; or the process has too many threads or open files.
    pub(super) fn start(free: u64) -> io::Result<Self> {
        let kernel = Userfault::open()?;
        let maps =
            CheckedHandle::keep(File::open("/proc/self/maps")?, "reading its own memory map");
        // SAFETY: a plain integer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let (ends, stop) = open_stop_pipe("watching registered memory")?;
        let ends = Arc::new(ends);
        let shared = Arc::new(Shared {
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
        // What a thread does before its first own instruction may allocate.
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
        Ok(Watch {
            _held: held,
            shared,
            maps,
            // SAFETY: no arguments.
            process: unsafe { libc::getpid() },
            stop,
            thread: Some(thread),
        })
    }

    /// The mappings around a range are watched from now on, if the process alone writes them and they are of no file.
    /// `renewed` is told of those that were not yet: what was known of them before does not count. False where not all
    /// of the range is watched.
    pub(super) fn cover(
        &self, range: &Range<usize>, mut renewed: impl FnMut(&Range<usize>),
    ) -> bool {
        if !self.is_ours() || self.has_ended() {
            return false;
        }
        let (pages, kernel) = (self.shared.pages(range), &self.shared.kernel);
        let mut at = pages.start;
        let visited = maps::visit(|Mapping { range: mapping, is_own, .. }| {
            if !is_own || mapping.end <= at {
                return ControlFlow::Continue(());
            }
            let first = mapping.start..mapping.start + self.shared.page;
            let known = kernel.ask(&first) == Answer::Watched;
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

    /// What is known of a range that was covered once. Every change that had been made before this call is either taken
    /// already or leads to another answer than [`Look::Held`].
    pub(super) fn look(&self, range: &Range<usize>) -> Look {
        if !self.is_ours() || self.has_ended() {
            return Look::Unsure;
        }
        let shared = &*self.shared;
        let pages = shared.pages(range);
        // A mapping is watched as a whole, and asking costs by the page.
        let part = match is_one_mapping(&self.maps, &pages) {
            true => pages.start..pages.start + shared.page,
            false => pages,
        };
        match shared.kernel.ask(&part) {
            Answer::Foreign => Look::Lost,
            Answer::Changing => Look::Unsure,
            Answer::Watched if !shared.changes.are_none() => Look::Unsure,
            Answer::Watched => {
                shared.uses.fetch_add(1, Ordering::Relaxed);
                Look::Held
            }
        }
    }

    /// The next change that was reported.
    pub(super) fn take_change(&self) -> Option<Changed> {
        self.shared.changes.take()
    }

    /// Whether nothing is watched any more, as that has cost more than it gave.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Changes reported so far.
    #[cfg(test)]
    pub(super) fn reports(&self) -> u64 {
        self.shared.reports.load(Ordering::Relaxed)
    }

    fn is_ours(&self) -> bool {
        // SAFETY: no arguments.
        self.process == unsafe { libc::getpid() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.is_ours() {
            return std::mem::forget(thread); // the parent's
        }
        // A thread that cannot be told sleeps until the process ends.
        if self.stop.write_byte() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The pages of a range.
    fn pages(&self, range: &Range<usize>) -> Range<usize> {
        range.start & !(self.page - 1)..range.end.next_multiple_of(self.page)
    }

    /// What the thread does: see the head of this file for what it must not.
    fn run(&self, stop: &CheckedFd) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(self.kernel.fd()), entry(stop.number_unchecked())];
        loop {
            // SAFETY: an array of two entries.
            unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
            if entries[1].revents != 0 {
                // Before the thread gives back its own memory.
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
        let mut messages = [Message::default(); BATCH];
        // What comes meanwhile is found by the next poll: somebody may want this thread to end.
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
