//! Arguments of a send or a receive, before and after the checks.

use crate::objects::comm::Comm;
use crate::objects::datatype::Datatype;
use crate::objects::message_copy::MessageCopy;
use fastpath_protocol::buffer::Buffer;
use std::rc::Rc;

/// Send mode: when the send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Completes when the buffer may be reused.
    Standard,
    /// Completes when the receive has matched.
    Synchronous,
    /// Completes like a standard send. The program promises that the receive is posted.
    Ready,
    /// Completes immediately, because the library copies the message into the attached buffer.
    Buffered,
}

/// Arguments of a send or a receive as passed by the program. `peer` is destination or source.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// Address of the first element.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Handle of the datatype.
    pub datatype: usize,
    /// Rank of the other side.
    pub peer: i32,
    /// Tag of the message.
    pub tag: i32,
    /// Handle of the communicator.
    pub comm: usize,
}

pub(crate) struct CheckedArguments {
    pub comm: Rc<Comm>,
    pub buffer: Buffer,
    /// Copy in host memory, if the program's buffer is in device memory. `buffer` is then the copy.
    pub staging: Option<Rc<MessageCopy>>,
    /// Datatype of the buffer; `None` for a message to or from `MPI_PROC_NULL` without a datatype.
    pub datatype: Option<Rc<Datatype>>,
}
