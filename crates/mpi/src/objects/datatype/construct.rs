//! Constructors of datatypes (MPI 5.0, section 5.1.2). They check counts; their callers have checked handles.

use super::contents::{Combiner, Contents, Form};
use super::{Datatype, Result, Signature, TypeError};
use fastpath_protocol::layout::{Layout, StructPart};
use std::cell::Cell;
use std::rc::Rc;

fn check_count(count: i64) -> Result<u64> {
    u64::try_from(count).map_err(|_| TypeError::NegativeCount(count))
}

fn check_length(index: usize, length: i64) -> Result<u64> {
    u64::try_from(length).map_err(|_| TypeError::NegativeLength(index, length))
}

fn check_lengths(lengths: &[i64]) -> Result<u64> {
    let mut sum = 0u64;
    for (i, length) in lengths.iter().enumerate() {
        sum = sum.checked_add(check_length(i, *length)?).ok_or(TypeError::Overflow)?;
    }
    Ok(sum)
}

impl Datatype {
    /// Checks that the type may be part of another datatype.
    pub(super) fn check_usable(&self) -> Result<()> {
        match self.basic {
            Some(basic) if !basic.is_supported() => Err(TypeError::NotSupported(basic.name)),
            _ => Ok(()),
        }
    }

    /// Makes a type whose signature is `count` times that of `old`.
    pub(super) fn repeat_of(
        old: &Datatype, count: u64, layout: Layout, contents: Contents,
    ) -> Datatype {
        let mut signature = Signature::default();
        signature.append(&old.signature, count);
        Datatype::assemble(layout, signature, contents)
    }

    /// MPI_Type_contiguous.
    pub fn contiguous(count: i64, old: &Rc<Datatype>, form: Form) -> Result<Datatype> {
        old.check_usable()?;
        let n = check_count(count)?;
        let contents =
            Contents::record(Combiner::Contiguous, form, vec![count], vec![], vec![old.clone()]);
        Ok(Datatype::repeat_of(old, n, old.layout.repeat(n)?, contents))
    }

    /// MPI_Type_vector: `stride` is in extents of `old`.
    pub fn vector(
        count: i64, length: i64, stride: i64, old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let bytes = stride.checked_mul(old.layout.extent()).ok_or(TypeError::Overflow)?;
        let counts = vec![count, length, stride];
        let contents = Contents::record(Combiner::Vector, form, counts, vec![], vec![old.clone()]);
        Datatype::strided(count, length, bytes, old, contents)
    }

    /// MPI_Type_create_hvector: `stride` is in bytes.
    pub fn hvector(
        count: i64, length: i64, stride: i64, old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let contents = Contents::record(
            Combiner::Hvector,
            form,
            vec![count, length],
            vec![stride],
            vec![old.clone()],
        );
        Datatype::strided(count, length, stride, old, contents)
    }

    fn strided(
        count: i64, length: i64, stride: i64, old: &Datatype, contents: Contents,
    ) -> Result<Datatype> {
        old.check_usable()?;
        let (n, len) = (check_count(count)?, check_length(0, length)?);
        let layout = old.layout.vector(n, len, stride)?;
        let elements = n.checked_mul(len).ok_or(TypeError::Overflow)?;
        Ok(Datatype::repeat_of(old, elements, layout, contents))
    }

    /// MPI_Type_indexed (displacements in extents of `old`). Both slices have one entry for each block.
    pub fn indexed(
        lengths: &[i64], displacements: &[i64], old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let counts = [&[lengths.len() as i64], lengths, displacements].concat();
        let contents = Contents::record(Combiner::Indexed, form, counts, vec![], vec![old.clone()]);
        Datatype::blocks(lengths, &scale(displacements, old)?, old, contents)
    }

    /// MPI_Type_create_hindexed (displacements in bytes). Both slices have one entry for each block.
    pub fn hindexed(
        lengths: &[i64], displacements: &[i64], old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let counts = [&[lengths.len() as i64], lengths].concat();
        let contents = Contents::record(
            Combiner::Hindexed,
            form,
            counts,
            displacements.to_vec(),
            vec![old.clone()],
        );
        Datatype::blocks(lengths, displacements, old, contents)
    }

    fn blocks(
        lengths: &[i64], displacements: &[i64], old: &Datatype, contents: Contents,
    ) -> Result<Datatype> {
        old.check_usable()?;
        let elements = check_lengths(lengths)?;
        let parts = lengths.iter().zip(displacements).map(|(length, at)| (*length as u64, *at));
        let layout = old.layout.indexed_parts(parts)?;
        Ok(Datatype::repeat_of(old, elements, layout, contents))
    }

    /// MPI_Type_create_indexed_block (displacements in extents of `old`).
    pub fn indexed_block(
        length: i64, displacements: &[i64], old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let counts = [&[displacements.len() as i64, length], displacements].concat();
        let contents =
            Contents::record(Combiner::IndexedBlock, form, counts, vec![], vec![old.clone()]);
        Datatype::equal_blocks(length, &scale(displacements, old)?, old, contents)
    }

    /// MPI_Type_create_hindexed_block (displacements in bytes).
    pub fn hindexed_block(
        length: i64, displacements: &[i64], old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        let counts = vec![displacements.len() as i64, length];
        let contents = Contents::record(
            Combiner::HindexedBlock,
            form,
            counts,
            displacements.to_vec(),
            vec![old.clone()],
        );
        Datatype::equal_blocks(length, displacements, old, contents)
    }

    fn equal_blocks(
        length: i64, displacements: &[i64], old: &Datatype, contents: Contents,
    ) -> Result<Datatype> {
        old.check_usable()?;
        let len = check_length(0, length)?;
        let elements = len.checked_mul(displacements.len() as u64).ok_or(TypeError::Overflow)?;
        let layout = old.layout.indexed(len, displacements.iter().copied())?;
        Ok(Datatype::repeat_of(old, elements, layout, contents))
    }

    /// MPI_Type_create_struct (displacements in bytes). The slices have one entry for each block.
    pub fn structure(
        lengths: &[i64], displacements: &[i64], types: Vec<Rc<Datatype>>, form: Form,
    ) -> Result<Datatype> {
        check_lengths(lengths)?;
        let mut signature = Signature::default();
        for (datatype, length) in types.iter().zip(lengths) {
            datatype.check_usable()?;
            signature.append(&datatype.signature, *length as u64);
        }
        let parts = types.iter().zip(lengths.iter().zip(displacements));
        let layout = Layout::structure(parts.map(|(datatype, (length, at))| StructPart {
            layout: &datatype.layout,
            count: *length as u64,
            displacement: *at,
        }))?;
        let counts = [&[lengths.len() as i64], lengths].concat();
        let contents =
            Contents::record(Combiner::Struct, form, counts, displacements.to_vec(), types);
        Ok(Datatype::assemble(layout, signature, contents))
    }

    /// MPI_Type_create_resized, in bytes.
    pub fn resized(old: &Rc<Datatype>, lb: i64, extent: i64, form: Form) -> Result<Datatype> {
        old.check_usable()?;
        let contents =
            Contents::record(Combiner::Resized, form, vec![], vec![lb, extent], vec![old.clone()]);
        Ok(Datatype::repeat_of(old, 1, old.layout.resized(lb, extent)?, contents))
    }

    /// MPI_Type_dup: an equal type without a name, committed if `old` is.
    pub fn duplicate(old: &Rc<Datatype>) -> Datatype {
        Datatype {
            contents: Rc::new(Contents::of(Combiner::Dup, old)),
            basic: None,
            committed: Cell::new(old.is_committed()),
            name: Default::default(),
            ..Datatype::clone(old)
        }
    }
}

/// Converts displacements from extents of `old` to bytes.
fn scale(displacements: &[i64], old: &Datatype) -> Result<Vec<i64>> {
    let extent = old.layout.extent();
    displacements.iter().map(|d| d.checked_mul(extent).ok_or(TypeError::Overflow)).collect()
}
