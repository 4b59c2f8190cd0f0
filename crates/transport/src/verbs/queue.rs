//! Completion queues and shared receive queues.
#![allow(unsafe_code)]

use super::abi::{self, RecvWr, Sge, Wc};
use super::call::{check, make, unmake};
use super::device::DeviceContext;
use super::error::{VerbsCall, VerbsError};
use super::memory::ProtectionDomain;
use libc::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Maximum number of work requests posted by one call.
pub const BATCH: usize = 16;

/// File descriptor that becomes readable when an armed completion queue gets a completion.
pub struct CompletionChannel {
    raw: NonNull<abi::CompChannel>,
    context: Arc<DeviceContext>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for CompletionChannel {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Creates a channel with a nonblocking descriptor.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = make(VerbsCall::CreateChannel, context.name(), || unsafe {
            (context.library.create_comp_channel)(context.raw.as_ptr())
        })?;
        let channel = CompletionChannel { raw, context: context.clone() };
        // SAFETY: the calls read and set flags of the channel's own descriptor.
        unsafe {
            let flags = libc::fcntl(channel.fd(), libc::F_GETFL);
            libc::fcntl(channel.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Ok(Arc::new(channel))
    }

    /// File descriptor of the channel.
    pub fn fd(&self) -> i32 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().fd }
    }

    /// Takes all pending events; returns their number. Arm their queues again afterwards.
    pub fn drain(&self) -> u32 {
        let mut taken = 0;
        let (mut queue, mut cookie) = (null_mut(), null_mut());
        // SAFETY: the channel is alive, its descriptor does not block, and both pointers are writable.
        while unsafe {
            (self.context.library.get_cq_event)(self.raw.as_ptr(), &mut queue, &mut cookie)
        } == 0
        {
            // SAFETY: a queue cannot be destroyed before its events are acknowledged, so it is alive.
            unsafe { (self.context.library.ack_cq_events)(queue, 1) };
            taken += 1;
        }
        taken
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: every queue of the channel holds a reference to `self`, so none is left.
        unmake(unsafe { (self.context.library.destroy_comp_channel)(self.raw.as_ptr()) });
    }
}

/// A completion queue.
pub struct CompletionQueue {
    pub(super) raw: NonNull<abi::Cq>,
    poll: unsafe extern "C" fn(*mut abi::Cq, c_int, *mut Wc) -> c_int,
    pub(super) context: Arc<DeviceContext>,
    channel: Option<Arc<CompletionChannel>>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Creates a queue with room for at least `depth` completions.
    ///
    /// # Errors
    /// The device has no more completion queues, or none of that depth.
    pub fn new(
        context: &Arc<DeviceContext>, depth: u32, channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let Some(poll) = context.ops().poll_cq else {
            return Err(VerbsError::call(VerbsCall::PollCq, context.name(), libc::ENOSYS));
        };
        let through = channel.map_or(null_mut(), |channel| channel.raw.as_ptr());
        // SAFETY: the context is open, and the result holds the channel, if there is one.
        let raw = make(VerbsCall::CreateCq, context.name(), || unsafe {
            (context.library.create_cq)(
                context.raw.as_ptr(),
                depth as c_int,
                null_mut(),
                through,
                0,
            )
        })?;
        Ok(Arc::new(CompletionQueue {
            raw,
            poll,
            context: context.clone(),
            channel: channel.cloned(),
        }))
    }

    /// Takes completions into `batch`; returns their number.
    ///
    /// # Errors
    /// The device is gone.
    #[inline]
    pub fn poll(&self, batch: &mut [Wc]) -> Result<usize, VerbsError> {
        // SAFETY: the queue is alive, and `batch` is writable for its length.
        let taken =
            unsafe { (self.poll)(self.raw.as_ptr(), batch.len() as c_int, batch.as_mut_ptr()) };
        match usize::try_from(taken) {
            Ok(taken) => Ok(taken),
            Err(_) => Err(self.poll_error_slow()),
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_error_slow(&self) -> VerbsError {
        VerbsError::call(VerbsCall::PollCq, self.context.name(), libc::ENODEV)
    }

    /// Requests one event at the next completion. Completions already in the queue cause no event: poll after the call.
    ///
    /// # Errors
    /// There is no channel, or the device is gone.
    pub fn arm(&self) -> Result<(), VerbsError> {
        let name = self.context.name();
        match (self.context.ops().req_notify_cq, &self.channel) {
            (Some(arm), Some(_)) => check(VerbsCall::ArmCq, name, || {
                // SAFETY: the queue is alive.
                unsafe { arm(self.raw.as_ptr(), 0) }
            }),
            _ => Err(VerbsError::call(VerbsCall::ArmCq, name, libc::ENOSYS)),
        }
    }

    /// Number of completions for which the device granted room.
    pub fn depth(&self) -> u32 {
        // SAFETY: ALIVE, in `super`: the object lives as long as `self`.
        unsafe { self.raw.as_ref().cqe as u32 }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: every queue pair of the queue holds a reference to `self`, so none is left.
        unmake(unsafe { (self.context.library.destroy_cq)(self.raw.as_ptr()) });
    }
}

/// Receive buffer to be posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecvEntry {
    /// Identifier that its completion carries in `wr_id`.
    pub id: u64,
    /// Memory of the buffer.
    pub segment: Sge,
}

/// Posts receives in batches of one call each. Returns the number of accepted receives, and the error number or 0.
///
/// # Safety
/// `post` takes lists of receives; the segments stay writable until they complete.
pub(super) unsafe fn post_receives(
    entries: &[RecvEntry], mut post: impl FnMut(*mut RecvWr, *mut *mut RecvWr) -> c_int,
) -> (usize, c_int) {
    let mut done = 0;
    for batch in entries.chunks(BATCH) {
        let mut segments = [Sge::default(); BATCH];
        let mut requests =
            [RecvWr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 1 }; BATCH];
        let first = requests.as_mut_ptr();
        for (index, entry) in batch.iter().enumerate() {
            segments[index] = entry.segment;
            // SAFETY: `index` is below the batch's length, and the pointer past a request is that of the next one.
            unsafe {
                let request = &mut *first.add(index);
                request.wr_id = entry.id;
                request.sg_list = segments.as_mut_ptr().add(index);
                if index + 1 < batch.len() {
                    request.next = first.add(index + 1);
                }
            }
        }
        let mut bad = null_mut();
        let answer = post(first, &mut bad);
        if answer != 0 {
            // Requests before the refused one have been posted.
            let accepted = match bad.is_null() {
                true => 0,
                // SAFETY: the library sets `bad` to a request of the list.
                false => unsafe { bad.offset_from(first) },
            };
            let accepted = accepted.clamp(0, batch.len() as isize);
            return (done + accepted as usize, answer);
        }
        done += batch.len();
    }
    (done, 0)
}

/// Receive buffers shared by many queue pairs.
pub struct SharedReceiveQueue {
    pub(super) raw: NonNull<abi::Srq>,
    post: unsafe extern "C" fn(*mut abi::Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    depth: u32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: ANY THREAD, in `super`: verbs calls may come from any thread.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Creates a queue of at least `depth` buffers of one segment each.
    ///
    /// # Errors
    /// The device has no shared receive queues, or none of that depth.
    pub fn new(domain: &Arc<ProtectionDomain>, depth: u32) -> Result<Arc<Self>, VerbsError> {
        let context = &domain.context;
        let Some(post) = context.ops().post_srq_recv else {
            return Err(VerbsError::call(VerbsCall::CreateSrq, context.name(), libc::ENOSYS));
        };
        let mut wanted = abi::SrqInitAttr {
            srq_context: null_mut(),
            attr: abi::SrqAttr { max_wr: depth, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the domain is alive, and the structure is writable.
        let raw = make(VerbsCall::CreateSrq, context.name(), || unsafe {
            (context.library.create_srq)(domain.raw.as_ptr(), &mut wanted)
        })?;
        Ok(Arc::new(SharedReceiveQueue {
            raw,
            post,
            depth: wanted.attr.max_wr.max(depth),
            domain: domain.clone(),
        }))
    }

    /// Maximum number of posted buffers.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Posts buffers. On an error, the accepted buffers stay posted.
    ///
    /// # Safety
    /// The buffers are writable until they complete or the queue is dropped.
    ///
    /// # Errors
    /// The queue is full, or the device is gone: the number of accepted buffers, and the cause.
    pub unsafe fn post(&self, entries: &[RecvEntry]) -> Result<(), (usize, VerbsError)> {
        // SAFETY: the queue is alive; the buffers stay writable until they complete, by this function's contract.
        let (accepted, errno) = unsafe {
            post_receives(entries, |list, bad| (self.post)(self.raw.as_ptr(), list, bad))
        };
        match errno {
            0 => Ok(()),
            errno => {
                let name = self.domain.context.name();
                Err((accepted, VerbsError::call(VerbsCall::PostRecv, name, errno.abs())))
            }
        }
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: every queue pair of the queue holds a reference to `self`, so none is left.
        unmake(unsafe { (self.domain.context.library.destroy_srq)(self.raw.as_ptr()) });
    }
}
