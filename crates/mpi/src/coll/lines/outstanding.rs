//! Shared lines in a nonblocking or persistent call, which is polled and never waits.
//!
//! The nonblocking calls of a communicator use its lines one after another, in the order of their starts. The order is
//! equal on all members, so each member waits only for calls that all others have started or will start before. Each
//! persistent call has its own lines, because members may start several of them in different orders.
#![allow(unsafe_code)]

use super::Lines;
use super::member::take_found;
use crate::coll_choice::line_plan::{LinePlan, Readers};
use crate::common::error::Result;
use crate::objects::operation::AWAITS_MEMORY;
use crate::objects::shared_lines::{OutstandingLines, SharedLines};
use crate::p2p::channel::Channel;
use crate::p2p::fault;
use crate::process::failures;
use fastpath_base::sync::{Ordering, compiler_fence};
use fastpath_protocol::Fault;
use fastpath_protocol::buffer::Buffer;
use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

/// Call of one member. It ends when this object drops.
pub(crate) struct OutstandingCall<'l> {
    queue: &'l OutstandingLines,
    channel: &'l Channel<'static>,
    call: u64,
    /// Position in the queue, once the call has used the lines or has waited for them.
    position: Cell<Option<u64>>,
    /// Whether an awaited member had left at the last poll.
    has_left: Cell<bool>,
}

impl Drop for OutstandingCall<'_> {
    fn drop(&mut self) {
        if self.position.get().is_some_and(|position| self.queue.is_turn(position)) {
            self.queue.lines.end(self.call);
            self.queue.leave();
            // ORDERING: the loads of `wake` stay behind the store; partner is the fence of a sleeper (`fence_others`).
            compiler_fence(Ordering::SeqCst);
            // The owner of memory that this member has read may wait for the end of the call.
            self.queue.owners.borrow_mut().drain(..).for_each(|rank| self.wake(rank));
            if !self.queue.is_idle() {
                // The next call of this member may have been polled before this one ended, in a thread about to sleep.
                self.wake(self.lines().plan.rank());
            }
        }
    }
}

impl<'l> OutstandingCall<'l> {
    /// Makes the object of a call with the number `call`, which is equal on all members.
    pub(crate) fn new(
        queue: &'l OutstandingLines, channel: &'l Channel<'static>, call: u64,
    ) -> Self {
        OutstandingCall {
            queue,
            channel,
            call,
            position: Cell::new(None),
            has_left: Cell::new(false),
        }
    }

    fn lines(&self) -> &'l SharedLines {
        &self.queue.lines
    }

    /// Wakes a member whose threads sleep.
    fn wake(&self, rank: u32) {
        let Ok(worker) = self.channel.process.worker() else { return };
        let world = self.channel.world_rank(rank);
        // SAFETY: the worker lives while MPI runs, and the lock is held.
        unsafe {
            (*worker).wake_rank(world);
            (*worker).call_peer(world);
        }
    }

    /// Waits until the calls before have ended.
    async fn wait_for_turn(&self) {
        let position = self.position.get().unwrap_or_else(|| self.queue.join());
        if self.position.replace(Some(position)).is_some() {
            return;
        }
        poll_fn(|_| match self.queue.is_turn(position) {
            true => Poll::Ready(()),
            false => self.suspend(),
        })
        .await;
    }

    fn suspend<T>(&self) -> Poll<T> {
        self.channel.process.extras.note_awaited(AWAITS_MEMORY);
        Poll::Pending
    }

    /// Suspends the call until member `rank` acts. Errors: the member has left, also at the poll before; a member has
    /// died, or the communicator was revoked.
    fn suspend_for(&self, rank: u32) -> Poll<Result> {
        if self.channel.comm.faults.is_broken() {
            return Poll::Ready(Err(failures::describe_broken(self.channel.comm)));
        }
        let worker = self.channel.process.worker()?;
        // SAFETY: the worker lives while MPI runs, and the lock is held.
        let has_left = unsafe { (*worker).peer_has_left(self.channel.world_rank(rank)) };
        // The member may have published its line between the poll and its end, so poll once more.
        if self.has_left.replace(has_left) && has_left {
            let args = self.channel.args(rank, &Buffer::empty());
            return Poll::Ready(Err(fault::explain(Fault::PeerGone, &args, 0, 0)));
        }
        self.suspend()
    }
}

impl Lines for OutstandingCall<'_> {
    fn plan(&self) -> &LinePlan {
        &self.lines().plan
    }

    fn number(&self) -> u64 {
        self.call
    }

    async fn wait_for_end(&self, call: u64, readers: Readers) -> Result {
        self.wait_for_turn().await;
        poll_fn(|_| {
            let mut late = None;
            self.plan().each_reader(readers, |rank| {
                if late.is_none() && !self.lines().has_ended(rank, call) {
                    late = Some(rank);
                }
            });
            late.map_or(Poll::Ready(Ok(())), |late| self.suspend_for(late))
        })
        .await
    }

    fn note_all_began(&self) {
        self.lines().note_all_began(self.call);
    }

    fn note_began(&self, rank: u32) {
        self.lines().note_began(rank, self.call);
    }

    /// The next call may have begun already, and so waits itself.
    fn look_ahead(&self) {}

    async unsafe fn publish(
        &self, step: u32, bytes: usize, fill: impl FnOnce(*mut u8), readers: Readers,
    ) -> Result {
        self.wait_for_turn().await;
        poll_fn(|_| match self.lines().find_late_reader(self.call, step, bytes) {
            None => Poll::Ready(Ok(())),
            Some(late) => self.suspend_for(late),
        })
        .await?;
        // SAFETY: the memory of the step is free, and the caller promises that the data fits.
        unsafe { self.lines().publish(self.call, step, bytes, fill, readers) };
        // ORDERING: the loads of `wake` stay behind the store; partner is the fence of a sleeper (`fence_others`).
        compiler_fence(Ordering::SeqCst);
        self.plan().each_reader(readers, |rank| self.wake(rank));
        Ok(())
    }

    async fn collect(
        &self, from: &[u32], step: u32, bytes: impl Fn(usize) -> usize,
        mut take: impl FnMut(usize, *const u8),
    ) -> Result {
        self.wait_for_turn().await;
        self.queue.owners.borrow_mut().extend_from_slice(from);
        let pending = Cell::new(u64::MAX >> (64 - from.len()));
        let (wait, step) = (&self.channel, (self.call, step));
        poll_fn(|_| {
            match take_found(self.lines(), wait, (from, step), &pending, &bytes, &mut take) {
                true => Poll::Ready(Ok(())),
                false => self.suspend_for(from[pending.get().trailing_zeros() as usize]),
            }
        })
        .await
    }
}
