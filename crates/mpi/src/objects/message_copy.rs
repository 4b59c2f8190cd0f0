//! Copies in host memory of messages in device memory, and the copies of outstanding requests.

use crate::common::consts::MPI_ERR_COUNT;
use crate::common::error::{Error, Result};
use crate::objects::staging::{CallCopies, Part, Staging, Use, find_device, refuse};
use fastpath_base::device::{CopyPipeline, DeviceError, DeviceMemory, PIPELINE_MIN};
use fastpath_base::layout::Layout;
use fastpath_protocol::RequestId;
use fastpath_protocol::buffer::Buffer;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A message in device memory, and the host memory that replaces its buffer.
pub enum MessageCopy {
    /// A copy of all data.
    Whole(Staging),
    /// Pieces of a long contiguous message.
    Pieces(MessagePieces),
}

/// A long contiguous message that is moved in pieces.
pub struct MessagePieces {
    pipeline: Arc<CopyPipeline>,
    /// Layout by which the message is packed and unpacked.
    layout: Arc<Layout>,
    buf: *mut u8,
    memory: DeviceMemory,
}

impl MessageCopy {
    /// Returns the copy of a message; `None` for a buffer in host memory.
    ///
    /// # Errors
    /// See [`Staging::packed`].
    pub fn make(buffer: &Buffer) -> Result<Option<MessageCopy>> {
        if buffer.bytes >= PIPELINE_MIN && buffer.layout.is_none() {
            let Some(memory) = find_device(buffer.ptr)? else { return Ok(None) };
            if let Some(pipeline) = CopyPipeline::new(buffer.ptr, buffer.bytes, memory) {
                let pieces = MessagePieces::make(buffer, Arc::new(pipeline), memory)?;
                return Ok(Some(MessageCopy::Pieces(pieces)));
            }
        }
        MessageCopy::make_whole(buffer)
    }

    /// Returns a copy of all data of a message; `None` for a buffer in host memory.
    ///
    /// # Errors
    /// See [`Staging::packed`].
    pub fn make_whole(buffer: &Buffer) -> Result<Option<MessageCopy>> {
        Ok(Staging::packed(buffer)?.map(MessageCopy::Whole))
    }

    /// Returns the copy as the buffer of a message.
    pub fn buffer(&self) -> Buffer {
        match self {
            MessageCopy::Whole(staging) => staging.buffer(),
            MessageCopy::Pieces(pieces) => {
                let layout = Some(pieces.layout.clone());
                Buffer { ptr: pieces.buf, bytes: pieces.layout.size(), layout, count: 1 }
            }
        }
    }

    /// Returns the copy of all data; `None` for pieces.
    pub fn whole(&self) -> Option<&Staging> {
        match self {
            MessageCopy::Whole(staging) => Some(staging),
            MessageCopy::Pieces(_) => None,
        }
    }

    /// Copies the data of a send from the device, or drops the pieces of the previous send.
    ///
    /// # Errors
    /// See [`Staging::load`].
    pub fn load(&self) -> Result {
        match self {
            MessageCopy::Whole(staging) => staging.load(),
            MessageCopy::Pieces(pieces) => {
                pieces.pipeline.discard();
                Ok(())
            }
        }
    }

    /// Ends a receive of `bytes` bytes: the data is complete on the device.
    ///
    /// # Errors
    /// See [`Staging::store`].
    pub fn store(&self, bytes: u64) -> Result {
        match self {
            MessageCopy::Whole(staging) => staging.store(bytes),
            MessageCopy::Pieces(pieces) => pieces.finish(),
        }
    }

    /// Ends the packing of a send.
    ///
    /// # Errors
    /// `MPI_ERR_BUFFER`: the driver failed after the send had begun. The message has wrong contents.
    pub fn finish_send(&self) -> Result {
        match self {
            MessageCopy::Whole(_) => Ok(()),
            MessageCopy::Pieces(pieces) => pieces.finish(),
        }
    }
}

impl MessagePieces {
    fn make(buffer: &Buffer, pipeline: Arc<CopyPipeline>, memory: DeviceMemory) -> Result<Self> {
        let layout = Layout::streamed(pipeline.clone(), buffer.bytes).map_err(|_| {
            Error::new(MPI_ERR_COUNT, "the number of bytes of the message does not fit 63 bits")
        })?;
        Ok(MessagePieces { pipeline, layout: Arc::new(layout), buf: buffer.ptr, memory })
    }

    fn finish(&self) -> Result {
        let explain = |error: DeviceError| refuse(self.buf, Some(self.memory), error);
        self.pipeline.finish().map_err(explain)
    }
}

/// Copies that belong to outstanding requests, and those of the collective call that reads its arguments.
pub(crate) struct StagedRequests {
    requests: RefCell<BTreeMap<RequestId, Rc<MessageCopy>>>,
    call: RefCell<CallCopies>,
}

impl StagedRequests {
    pub(crate) const fn new() -> Self {
        StagedRequests {
            requests: RefCell::new(BTreeMap::new()),
            call: RefCell::new(CallCopies::NONE),
        }
    }

    /// Replaces a buffer of the call that reads its arguments; see [`CallCopies::add`].
    pub(crate) fn replace(
        &self, buf: *mut u8, used: Use, parts: impl FnOnce() -> Vec<Part>,
    ) -> Result<*mut u8> {
        self.call.borrow_mut().add(buf, parts(), used)
    }

    /// Exchanges the copies of the call that reads its arguments.
    pub(crate) fn exchange(&self, copies: CallCopies) -> CallCopies {
        self.call.replace(copies)
    }

    /// Keeps a copy until the request has ended.
    pub(crate) fn keep(&self, id: RequestId, copy: &Rc<MessageCopy>) {
        self.requests.borrow_mut().insert(id, copy.clone());
    }

    /// Removes the copy of a request that has ended.
    pub(crate) fn take(&self, id: RequestId) -> Option<Rc<MessageCopy>> {
        self.requests.borrow_mut().remove(&id)
    }
}
