//! Arguments of a send or a receive: as the program gave them, and checked.

use crate::objects::comm::Comm;
use crate::objects::datatype::Datatype;
use fastpath_protocol::buffer::Buffer;
use std::rc::Rc;

/// How a send completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When the buffer may be reused.
    Standard,
    /// When the receive has matched.
    Synchronous,
    /// As standard; the program promises that the receive is posted.
    Ready,
    /// At once: the library copies the message into the attached buffer.
    Buffered,
}

/// The arguments of a send or a receive as the program gave them. `peer` is destination or source.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// First element's address.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Handle of the datatype.
    pub datatype: usize,
    /// Rank of the other side.
    pub peer: i32,
    /// Tag.
    pub tag: i32,
    /// Handle of the communicator.
    pub comm: usize,
}

/// A checked send or receive.
pub(crate) struct Checked {
    /// The communicator.
    pub comm: Rc<Comm>,
    /// Which worker carries the message ([`crate::common::places`]).
    pub place: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// What it holds; none of a message to or from `MPI_PROC_NULL` without a datatype.
    pub datatype: Option<Rc<Datatype>>,
}
