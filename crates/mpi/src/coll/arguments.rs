//! The arguments of collective calls, owned: they outlive the call where it does not block, and the handles that named
//! them.
#![allow(unsafe_code)]

use super::agreement::Data;
use super::apart::check_apart;
use super::choose;
use super::fabric::Call;
use super::is_in_place;
use super::local::Reduction;
use super::vector::{Vector, offset};
use crate::common::error::Result;
use crate::objects::datatype::{Datatype, Kept};
use crate::objects::op::Op;
use crate::p2p::channel::Channel;
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
        p: &Process, used: bool, buf: *const u8, count: i64, datatype: usize,
    ) -> Result<Side> {
        let used = used && !is_in_place(buf);
        Ok(Side {
            buf: buf.cast_mut(),
            count,
            datatype: used.then(|| p.datatype(datatype)).transpose()?,
        })
    }

    /// Its elements; none where they do not count.
    pub(super) fn vector(&self) -> Result<Option<Vector<'_>>> {
        let vector = |datatype| Vector::new(self.buf, self.count, datatype);
        self.datatype.as_deref().map(vector).transpose()
    }

    /// What it holds, for a comparison with other ranks.
    pub(super) fn data(&self) -> Data<'_> {
        Some((self.datatype.as_deref()?, self.count))
    }

    pub(super) fn is_in_place(&self) -> bool {
        is_in_place(self.buf)
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
    pub(super) fn vector(&self) -> Result<Vector<'_>> {
        Vector::new(self.buf, self.count, &self.datatype)
    }

    /// What it holds, for a comparison with other ranks.
    pub(super) fn data(&self) -> Data<'_> {
        Some((&self.datatype, self.count))
    }
}

/// A buffer with a block for each partner.
pub(super) trait BlockArray {
    /// The calls that have such blocks.
    const ALLTOALL: &'static choose::Call<choose::Alltoall>;
    const NEIGHBOR: &'static choose::Call<choose::Neighbor>;

    /// All blocks checked; the one of partner r is the closure's value at r.
    fn check<'a>(&'a self) -> Result<impl Fn(u32) -> Vector<'a>>;

    /// What the block of a partner holds, for a comparison with other ranks.
    fn data(&self, partner: u32) -> Data<'_>;

    /// Bytes of the longest block.
    #[cold]
    fn longest(&self, partners: u32) -> u64 {
        let Ok(block) = self.check() else { return 0 };
        (0..partners).map(|partner| block(partner).bytes()).max().unwrap_or(0)
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

impl BlockArray for Blocks {
    const ALLTOALL: &'static choose::Call<choose::Alltoall> = &choose::ALLTOALLV;
    const NEIGHBOR: &'static choose::Call<choose::Neighbor> = &choose::NEIGHBOR_ALLTOALLV;

    fn check<'a>(&'a self) -> Result<impl Fn(u32) -> Vector<'a>> {
        for &count in &self.counts {
            Vector::new(self.buf, count, &self.datatype)?;
        }
        let layout = self.datatype.layout();
        Ok(move |partner: u32| {
            let (count, at) =
                (self.counts[partner as usize] as u64, self.displacements[partner as usize] as u64);
            Vector::at(offset(self.buf, at, layout), count, layout)
        })
    }

    fn data(&self, partner: u32) -> Data<'_> {
        Some((&self.datatype, self.counts[partner as usize]))
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

impl BlockArray for TypedBlocks {
    const ALLTOALL: &'static choose::Call<choose::Alltoall> = &choose::ALLTOALLW;
    const NEIGHBOR: &'static choose::Call<choose::Neighbor> = &choose::NEIGHBOR_ALLTOALLW;

    fn check<'a>(&'a self) -> Result<impl Fn(u32) -> Vector<'a>> {
        let blocks = self.counts.iter().zip(&self.displacements);
        for ((&count, &at), datatype) in blocks.zip(&self.datatypes) {
            // From MPI_BOTTOM the displacements are addresses.
            let from = match self.buf.is_null() {
                true => self.buf.wrapping_offset(at as isize),
                false => self.buf,
            };
            Vector::new(from, count, datatype)?;
        }
        Ok(|partner: u32| {
            let partner = partner as usize;
            let at = self.buf.wrapping_offset(self.displacements[partner] as isize);
            let layout = self.datatypes[partner].layout();
            Vector::at(at, self.counts[partner] as u64, layout)
        })
    }

    fn data(&self, partner: u32) -> Data<'_> {
        let partner = partner as usize;
        Some((&self.datatypes[partner], self.counts[partner]))
    }
}

/// The operands of a reduction.
pub struct Operands {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
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
        p: &Process, send: *const u8, recv: *mut u8, datatype: usize, op: usize,
    ) -> Result<Operands> {
        Ok(Operands {
            send,
            recv,
            datatype: Kept::new(p.datatype(datatype)?, datatype),
            op: *p.op(op)?,
        })
    }

    #[inline]
    pub(super) fn datatype(&self) -> &Datatype {
        self.datatype.typed().0
    }

    /// How they are combined.
    #[inline]
    pub(super) fn reduction(&self) -> Result<Reduction<'_>> {
        let (datatype, handle) = self.datatype.typed();
        Reduction::new(&self.op, datatype, handle)
    }

    /// The rank's operand and its result of `count` elements, checked; in place both are one.
    #[inline]
    pub(super) fn vectors(&self, f: &Channel<'_>, count: i64) -> Result<(Vector<'_>, Vector<'_>)> {
        let result = Vector::new(self.recv, count, self.datatype())?;
        if is_in_place(self.send) {
            return Ok((result, result));
        }
        let operand = Vector::new(self.send, count, self.datatype())?;
        check_apart(f, Some(operand), result)?;
        Ok((operand, result))
    }

    /// Whether they are combined by a function of the program.
    pub(super) fn calls_back(&self) -> bool {
        !self.op.is_predefined()
    }
}
