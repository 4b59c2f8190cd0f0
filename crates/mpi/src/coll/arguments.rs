//! The arguments of collective calls, owned: they outlive the call where it does not block, and the handles that named
//! them.
#![allow(unsafe_code)]

use super::fabric::Call;
use super::is_in_place;
use super::vector::{Array, Arrays};
use crate::datatype::{Datatype, Kept};
use crate::error::Result;
use crate::op::Op;
use crate::process::Process;
use std::rc::Rc;

/// A collective call whose arguments have been read.
pub trait Collective {
    /// Checks the arguments and carries the call out.
    ///
    /// # Safety
    /// The buffers are as counts and datatypes say until the future is ready, and belong to the call.
    unsafe fn run<C: Call>(&self, f: &C) -> impl Future<Output = Result>;

    /// The same on an intercommunicator.
    ///
    /// # Safety
    /// As [`Collective::run`].
    unsafe fn run_between<C: Call>(&self, f: &C) -> impl Future<Output = Result> {
        let _ = f;
        std::future::ready(Err(super::inter::refuse_inter()))
    }

    /// Whether it runs functions of the program.
    fn calls_back(&self) -> bool {
        false
    }
}

/// A buffer with one count and one datatype; none where it does not count.
pub struct Side {
    buf: *mut u8,
    count: i64,
    datatype: Option<Rc<Datatype>>,
}

impl Side {
    /// A buffer whose datatype counts only where `used`, and not where it is `MPI_IN_PLACE`.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`
    pub fn new(
        p: &Process,
        used: bool,
        buf: *const u8,
        count: i64,
        datatype: usize,
    ) -> Result<Side> {
        let used = used && !is_in_place(buf);
        Ok(Side {
            buf: buf.cast_mut(),
            count,
            datatype: used.then(|| p.datatype(datatype)).transpose()?,
        })
    }

    pub(super) fn to_send(&self) -> (*const u8, i64, Option<&Datatype>) {
        (self.buf.cast_const(), self.count, self.datatype.as_deref())
    }

    pub(super) fn to_recv(&self) -> (*mut u8, i64, Option<&Datatype>) {
        (self.buf, self.count, self.datatype.as_deref())
    }
}

/// A buffer with one count and one datatype that always count.
pub struct Block {
    /// Its address.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Their type.
    pub datatype: Rc<Datatype>,
}

impl Block {
    pub(super) fn parts(&self) -> (*mut u8, i64, &Datatype) {
        (self.buf, self.count, &self.datatype)
    }
}

/// A buffer with a count and a displacement for each partner.
pub struct Blocks {
    /// Address that the displacements count from.
    pub buf: *mut u8,
    /// Number of elements of each block.
    pub counts: Vec<i64>,
    /// Where each block starts, in extents of the datatype.
    pub displacements: Vec<i64>,
    /// The datatype.
    pub datatype: Rc<Datatype>,
}

impl Blocks {
    pub(super) fn array(&self) -> Array<'_> {
        Array {
            buf: self.buf,
            counts: &self.counts,
            displacements: &self.displacements,
            datatype: &self.datatype,
        }
    }
}

/// A buffer with a count, a displacement in bytes and a datatype for each partner.
pub struct TypedBlocks {
    /// Address that the displacements count from.
    pub buf: *mut u8,
    /// Number of elements of each block.
    pub counts: Vec<i64>,
    /// Where each block starts, in bytes.
    pub displacements: Vec<i64>,
    /// The datatype of each block.
    pub datatypes: Vec<Rc<Datatype>>,
}

impl TypedBlocks {
    pub(super) fn arrays(&self) -> Arrays<'_> {
        Arrays {
            buf: self.buf,
            counts: &self.counts,
            displacements: &self.displacements,
            datatypes: &self.datatypes,
        }
    }
}

/// The operands of a reduction.
pub struct Operands {
    send: *const u8,
    recv: *mut u8,
    /// With the handle, for a user's function.
    datatype: Kept,
    pub(super) op: Op,
}

impl Operands {
    /// The operands and what combines them.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`, `MPI_ERR_OP`
    pub fn new(
        p: &Process,
        send: *const u8,
        recv: *mut u8,
        datatype: usize,
        op: usize,
    ) -> Result<Operands> {
        Ok(Operands {
            send,
            recv,
            datatype: Kept::new(p.datatype(datatype)?, datatype),
            op: *p.op(op)?,
        })
    }

    pub(super) fn buffers(&self) -> (*const u8, *mut u8) {
        (self.send, self.recv)
    }

    pub(super) fn typed(&self) -> (&Datatype, usize) {
        self.datatype.typed()
    }
}
