//! Arguments of collective calls. The arguments are owned, because a nonblocking call may outlive the handles.
#![allow(unsafe_code)]

use super::agreement::Data;
use super::apart::check_apart;
use super::choose;
use super::fabric::CallFabric;
use super::is_in_place;
use super::local::Reduction;
use super::vector::{Vector, offset};
use crate::common::error::Result;
use crate::objects::datatype::{Datatype, DatatypeKeeper};
use crate::objects::op::Op;
use crate::objects::staging::{Part, Use};
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::device;
use std::rc::Rc;

/// Collective call with its arguments.
pub trait Collective {
    /// Checks the arguments and executes the call.
    ///
    /// # Safety
    /// The buffers must be valid for counts and datatypes, and reserved for the call, until the future is ready.
    unsafe fn run<C: CallFabric>(&self, f: &C) -> impl Future<Output = Result>;

    /// Executes the call on an intercommunicator.
    ///
    /// # Safety
    /// See [`Collective::run`].
    unsafe fn run_between<C: CallFabric>(&self, f: &C) -> impl Future<Output = Result> {
        let _ = f;
        std::future::ready(Err(super::inter::refuse_inter()))
    }

    /// Returns whether the call runs callback functions of the program.
    fn calls_back(&self) -> bool {
        false
    }
}

/// Buffer with one count and one datatype. The datatype is `None` if the buffer is not significant.
pub struct CollectiveBuffer {
    buf: *mut u8,
    count: i64,
    datatype: Option<Rc<Datatype>>,
}

impl CollectiveBuffer {
    /// Makes a buffer, which is significant if `used` and not in place. Errors: `MPI_ERR_TYPE` for an invalid datatype.
    pub fn new(
        p: &Process, used: bool, buf: *const u8, count: i64, datatype: usize,
    ) -> Result<CollectiveBuffer> {
        let used = used && !is_in_place(buf);
        Ok(CollectiveBuffer {
            buf: buf.cast_mut(),
            count,
            datatype: used.then(|| p.datatype(datatype)).transpose()?,
        })
    }

    /// Replaces device memory by a copy. The buffer has `blocks` times its count of elements.
    #[inline]
    pub fn staged(mut self, p: &Process, blocks: u32, used: Use) -> Result<CollectiveBuffer> {
        if !device::may_appear() {
            return Ok(self);
        }
        if let Some(datatype) = &self.datatype {
            let count = self.count.saturating_mul(blocks.into());
            let parts = || vec![Part::whole(datatype.layout(), count)];
            self.buf = p.staged.replace(self.buf, used, parts)?;
        }
        Ok(self)
    }

    pub(super) fn vector(&self) -> Result<Option<Vector<'_>>> {
        let vector = |datatype| Vector::new(self.buf, self.count, datatype);
        self.datatype.as_deref().map(vector).transpose()
    }

    /// Returns datatype and count, for the comparison with other ranks.
    pub(super) fn data(&self) -> Data<'_> {
        Some((self.datatype.as_deref()?, self.count))
    }

    pub(super) fn is_in_place(&self) -> bool {
        is_in_place(self.buf)
    }
}

/// Significant buffer with one count and one datatype.
pub struct SignificantBuffer {
    /// Address of the buffer.
    pub buf: *mut u8,
    /// Number of elements.
    pub count: i64,
    /// Type of the elements.
    pub datatype: Rc<Datatype>,
}

impl SignificantBuffer {
    /// Replaces device memory by a copy; see [`CollectiveBuffer::staged`].
    #[inline]
    pub fn staged(mut self, p: &Process, blocks: u32, used: Use) -> Result<SignificantBuffer> {
        if !device::may_appear() {
            return Ok(self);
        }
        let count = self.count.saturating_mul(blocks.into());
        if !is_in_place(self.buf) {
            let parts = || vec![Part::whole(self.datatype.layout(), count)];
            self.buf = p.staged.replace(self.buf, used, parts)?;
        }
        Ok(self)
    }

    pub(super) fn vector(&self) -> Result<Vector<'_>> {
        Vector::new(self.buf, self.count, &self.datatype)
    }

    pub(super) fn data(&self) -> Data<'_> {
        Some((&self.datatype, self.count))
    }
}

pub(super) trait BlockArray {
    const ALLTOALL: &'static choose::CallAlgorithms<choose::Alltoall>;
    const NEIGHBOR: &'static choose::CallAlgorithms<choose::Neighbor>;

    /// Checks all blocks, and returns a closure that gives the block of a partner.
    fn check<'a>(&'a self) -> Result<impl Fn(u32) -> Vector<'a>>;

    fn data(&self, partner: u32) -> Data<'_>;

    #[cold]
    fn longest(&self, partners: u32) -> u64 {
        let Ok(block) = self.check() else { return 0 };
        (0..partners).map(|partner| block(partner).bytes()).max().unwrap_or(0)
    }
}

/// Returns a copy of a buffer in device memory, or the buffer itself if it is in host memory or `MPI_IN_PLACE`.
#[inline]
fn staged_buffer(
    p: &Process, buf: *mut u8, used: Use, parts: impl FnOnce() -> Vec<Part>,
) -> Result<*mut u8> {
    match device::may_appear() && !is_in_place(buf) {
        true => p.staged.replace(buf, used, parts),
        false => Ok(buf),
    }
}

/// Buffer with a count and a displacement for each partner.
pub struct Blocks {
    /// Base address of the displacements.
    pub buf: *mut u8,
    /// Number of elements of each block.
    pub counts: Vec<i64>,
    /// Start of each block, in extents of the datatype.
    pub displacements: Vec<i64>,
    /// The datatype.
    pub datatype: Rc<Datatype>,
}

impl Blocks {
    /// Replaces device memory by a copy.
    #[inline]
    pub fn staged(mut self, p: &Process, used: Use) -> Result<Blocks> {
        let layout = self.datatype.layout();
        let part = |(&count, &at): (&i64, &i64)| Part {
            offset: at.wrapping_mul(layout.extent()),
            ..Part::whole(layout, count)
        };
        let parts = || self.counts.iter().zip(&self.displacements).map(part).collect();
        self.buf = staged_buffer(p, self.buf, used, parts)?;
        Ok(self)
    }
}

impl BlockArray for Blocks {
    const ALLTOALL: &'static choose::CallAlgorithms<choose::Alltoall> = &choose::ALLTOALLV;
    const NEIGHBOR: &'static choose::CallAlgorithms<choose::Neighbor> = &choose::NEIGHBOR_ALLTOALLV;

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

/// Buffer with a count, a displacement in bytes and a datatype for each partner.
pub struct TypedBlocks {
    /// Base address of the displacements.
    pub buf: *mut u8,
    /// Number of elements of each block.
    pub counts: Vec<i64>,
    /// Start of each block, in bytes.
    pub displacements: Vec<i64>,
    /// The datatype of each block.
    pub datatypes: Vec<Rc<Datatype>>,
}

impl TypedBlocks {
    /// Replaces device memory by a copy.
    #[inline]
    pub fn staged(mut self, p: &Process, used: Use) -> Result<TypedBlocks> {
        let part = |((&count, &offset), datatype): ((&i64, &i64), &Rc<Datatype>)| Part {
            offset,
            ..Part::whole(datatype.layout(), count)
        };
        let blocks = self.counts.iter().zip(&self.displacements).zip(&self.datatypes);
        self.buf = staged_buffer(p, self.buf, used, || blocks.map(part).collect())?;
        Ok(self)
    }
}

impl BlockArray for TypedBlocks {
    const ALLTOALL: &'static choose::CallAlgorithms<choose::Alltoall> = &choose::ALLTOALLW;
    const NEIGHBOR: &'static choose::CallAlgorithms<choose::Neighbor> = &choose::NEIGHBOR_ALLTOALLW;

    fn check<'a>(&'a self) -> Result<impl Fn(u32) -> Vector<'a>> {
        let blocks = self.counts.iter().zip(&self.displacements);
        for ((&count, &at), datatype) in blocks.zip(&self.datatypes) {
            // With MPI_BOTTOM, displacements are addresses.
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

/// Operands of a reduction.
pub struct Operands {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    /// Datatype and its handle, which a user's function needs.
    datatype: DatatypeKeeper,
    pub(super) op: Op,
}

impl Operands {
    /// Makes operands from handles. Errors: `MPI_ERR_TYPE`, `MPI_ERR_OP` for an invalid handle.
    pub fn new(
        p: &Process, send: *const u8, recv: *mut u8, datatype: usize, op: usize,
    ) -> Result<Operands> {
        Ok(Operands {
            send,
            recv,
            datatype: DatatypeKeeper::new(p.datatype(datatype)?, datatype),
            op: *p.op(op)?,
        })
    }

    /// Replaces device memory by copies, of `sent` and `received` elements. In place, the result has at least the
    /// operand's elements.
    #[inline]
    pub fn staged(mut self, p: &Process, sent: i64, received: i64) -> Result<Operands> {
        if !device::may_appear() {
            return Ok(self);
        }
        let layout = self.datatype().layout();
        let parts = |count| move || vec![Part::whole(layout, count)];
        let in_place = is_in_place(self.send);
        let received = if in_place { received.max(sent) } else { received };
        let recv = p.staged.replace(self.recv, Use::Output, parts(received))?;
        let send = match in_place {
            true => self.send,
            false => p.staged.replace(self.send.cast_mut(), Use::Input, parts(sent))?,
        };
        (self.send, self.recv) = (send, recv);
        Ok(self)
    }

    #[inline]
    pub(super) fn datatype(&self) -> &Datatype {
        self.datatype.typed().0
    }

    #[inline]
    pub(super) fn reduction(&self) -> Result<Reduction<'_>> {
        let (datatype, handle) = self.datatype.typed();
        Reduction::new(&self.op, datatype, handle)
    }

    /// Checks and returns the rank's operand and result, of `count` elements each. In place, both are one vector.
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

    pub(super) fn calls_back(&self) -> bool {
        !self.op.is_predefined()
    }
}
