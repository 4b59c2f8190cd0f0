//! Parts of arrays: MPI_Type_create_subarray and MPI_Type_create_darray (MPI 5.0, sections 5.1.3 and 5.1.4).

use super::contents::{Combiner, Contents, Form};
use super::{Datatype, Result, TypeError};
use crate::common::consts::*;
use fastpath_protocol::layout::{Layout, StructPart};
use std::rc::Rc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayOrder {
    /// The last index runs fastest.
    C,
    /// The first index runs fastest.
    Fortran,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    /// One block of the given length for each process. With `None`, blocks are as even as possible.
    Block(Option<i64>),
    /// Blocks of the given length, dealt to the processes in turn. With `None`, the length is 1.
    Cyclic(Option<i64>),
    None,
}

impl ArrayOrder {
    fn from_code(code: i32) -> Result<ArrayOrder> {
        match code {
            MPI_ORDER_C => Ok(ArrayOrder::C),
            MPI_ORDER_FORTRAN => Ok(ArrayOrder::Fortran),
            _ => argument("order", format!("is {code}, neither MPI_ORDER_C nor MPI_ORDER_FORTRAN")),
        }
    }
}

impl Distribution {
    fn from_codes(distribution: i64, darg: i64) -> Result<Distribution> {
        let darg = (darg != i64::from(MPI_DISTRIBUTE_DFLT_DARG)).then_some(darg);
        match i32::try_from(distribution) {
            Ok(MPI_DISTRIBUTE_BLOCK) => Ok(Distribution::Block(darg)),
            Ok(MPI_DISTRIBUTE_CYCLIC) => Ok(Distribution::Cyclic(darg)),
            Ok(MPI_DISTRIBUTE_NONE) => Ok(Distribution::None),
            _ => argument(
                "array_of_distribs",
                format!("has {distribution}, which is not an MPI_DISTRIBUTE_ constant"),
            ),
        }
    }
}

/// Arguments of MPI_Type_create_darray, as the ABI codes them. The slices have one entry for each dimension.
#[derive(Debug, Clone, Copy)]
pub struct DistributedArray<'a> {
    /// Number of processes.
    pub size: i64,
    /// Rank of the process that owns the part. Processes are numbered in C order over the grid, whatever `order` is.
    pub rank: i64,
    /// Sizes of the array.
    pub gsizes: &'a [i64],
    /// MPI_DISTRIBUTE_BLOCK, _CYCLIC or _NONE.
    pub distribs: &'a [i64],
    /// Length of a block, or MPI_DISTRIBUTE_DFLT_DARG.
    pub dargs: &'a [i64],
    /// Sizes of the grid of processes.
    pub psizes: &'a [i64],
    /// MPI_ORDER_C or MPI_ORDER_FORTRAN.
    pub order: i32,
}

fn argument<T>(name: &'static str, what: impl Into<String>) -> Result<T> {
    Err(TypeError::Argument(name, what.into()))
}

/// Returns the dimensions from the fastest to the slowest.
fn fastest_first(order: ArrayOrder, ndims: usize) -> Box<dyn Iterator<Item = usize>> {
    match order {
        ArrayOrder::C => Box::new((0..ndims).rev()),
        ArrayOrder::Fortran => Box::new(0..ndims),
    }
}

fn multiply(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or(TypeError::Overflow)
}

impl Datatype {
    /// MPI_Type_create_subarray. The slices have one entry for each dimension.
    pub fn subarray(
        sizes: &[i64], subsizes: &[i64], starts: &[i64], order: i32, old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        old.check_usable()?;
        if sizes.is_empty() {
            return argument("ndims", "must be at least 1");
        }
        for (i, ((size, sub), start)) in sizes.iter().zip(subsizes).zip(starts).enumerate() {
            if *size < 1 || *sub < 1 || sub > size || *start < 0 || *start > size - sub {
                let what = format!(
                    "do not fit in dimension {i}: size {size}, subsize {sub}, start {start}"
                );
                return argument("sizes, subsizes and starts", what);
            }
        }
        let (order, code) = (ArrayOrder::from_code(order)?, i64::from(order));
        let (mut layout, mut stride, mut offset) =
            (Layout::clone(&old.layout), old.layout.extent(), 0i64);
        let mut elements = 1i64;
        for d in fastest_first(order, sizes.len()) {
            layout = layout.vector(subsizes[d] as u64, 1, stride)?;
            offset = offset.checked_add(multiply(starts[d], stride)?).ok_or(TypeError::Overflow)?;
            stride = multiply(stride, sizes[d])?;
            elements = multiply(elements, subsizes[d])?;
        }
        let layout = layout.indexed(1, [offset])?.resized(0, stride)?;
        let (n, arrays) = (sizes.len() as i64, [sizes, subsizes, starts].concat());
        let (integers, large) = match form {
            Form::Small => ([&[n], &*arrays, &[code]].concat(), vec![]),
            Form::Large => (vec![n, code], arrays),
        };
        let contents = Contents::of_array(Combiner::Subarray, integers, large, old);
        Ok(Datatype::repeat_of(old, elements as u64, layout, contents))
    }

    /// MPI_Type_create_darray: the part of one process.
    pub fn darray(
        array: &DistributedArray<'_>, old: &Rc<Datatype>, form: Form,
    ) -> Result<Datatype> {
        old.check_usable()?;
        let DistributedArray { size, rank, gsizes, distribs, dargs, psizes, order } = *array;
        let (order, code) = (ArrayOrder::from_code(order)?, order);
        let coordinates = check_grid(size, rank, gsizes, psizes)?;
        let (mut layout, mut stride) = (Layout::clone(&old.layout), old.layout.extent());
        let mut elements = 1i64;
        for d in fastest_first(order, gsizes.len()) {
            let distribution = Distribution::from_codes(distribs[d], dargs[d])?;
            let share = DimensionShare::new(gsizes[d], distribution, psizes[d], coordinates[d], d)?;
            layout = share.place(&layout, stride)?;
            stride = multiply(stride, gsizes[d])?;
            elements = multiply(elements, share.owned())?;
        }
        let layout = layout.resized(0, stride)?;
        let (head, code) = ([size, rank, gsizes.len() as i64], [i64::from(code)]);
        let (integers, large) = match form {
            Form::Small => ([&head, gsizes, distribs, dargs, psizes, &code].concat(), vec![]),
            Form::Large => ([&head, distribs, dargs, psizes, &code].concat(), gsizes.to_vec()),
        };
        let contents = Contents::of_array(Combiner::Darray, integers, large, old);
        Ok(Datatype::repeat_of(old, elements as u64, layout, contents))
    }
}

/// Checks the grid and returns the process's coordinates.
fn check_grid(size: i64, rank: i64, gsizes: &[i64], psizes: &[i64]) -> Result<Vec<i64>> {
    if gsizes.is_empty() {
        return argument("ndims", "must be at least 1");
    }
    if size < 1 || rank < 0 || rank >= size {
        return argument("rank", format!("{rank} is not in a group of {size} processes"));
    }
    if let Some(bad) = gsizes.iter().position(|g| *g < 1) {
        return argument(
            "array_of_gsizes",
            format!("has {} in dimension {bad}: pass 1 or more", gsizes[bad]),
        );
    }
    if let Some(bad) = psizes.iter().position(|p| *p < 1) {
        return argument(
            "array_of_psizes",
            format!("has {} in dimension {bad}: pass 1 or more", psizes[bad]),
        );
    }
    if psizes.iter().try_fold(1i64, |product, p| product.checked_mul(*p)) != Some(size) {
        return argument(
            "array_of_psizes",
            format!(
                "does not make a grid of {size} processes: pass numbers whose product is {size}"
            ),
        );
    }
    let mut rest = rank;
    let mut coordinates = vec![0; psizes.len()];
    for d in (0..psizes.len()).rev() {
        coordinates[d] = rest % psizes[d];
        rest /= psizes[d];
    }
    Ok(coordinates)
}

/// One process's part of a dimension: `full` blocks of `length`, one every `step` elements from `first` on, then
/// `rest`.
#[derive(Debug, PartialEq, Eq)]
struct DimensionShare {
    first: i64,
    length: i64,
    step: i64,
    full: i64,
    rest: i64,
}

impl DimensionShare {
    fn new(
        gsize: i64, distribution: Distribution, processes: i64, coordinate: i64, dim: usize,
    ) -> Result<DimensionShare> {
        let even = (gsize - 1) / processes + 1;
        let length = match distribution {
            Distribution::None if processes != 1 => {
                return argument(
                    "array_of_psizes",
                    format!("must be 1 in dimension {dim}, which is not distributed"),
                );
            }
            Distribution::None => gsize,
            Distribution::Block(None) => even,
            Distribution::Cyclic(None) => 1,
            Distribution::Block(Some(n)) | Distribution::Cyclic(Some(n)) if n < 1 => {
                return argument(
                    "array_of_dargs",
                    format!("has {n} in dimension {dim}: pass 1 or more"),
                );
            }
            Distribution::Block(Some(n)) if n < even => {
                let what = format!(
                    "has {n} in dimension {dim}: blocks of {n} on {processes} processes do not \
                     cover {gsize} elements"
                );
                return argument("array_of_dargs", what);
            }
            Distribution::Block(Some(n)) | Distribution::Cyclic(Some(n)) => n,
        };
        // Clamping values beyond 64 bits changes nothing, because no element is beyond `gsize`.
        let (first, step) = (length.saturating_mul(coordinate), length.saturating_mul(processes));
        let after = (gsize - first).max(0);
        let (rounds, tail) = (after / step, after % step);
        let (full, rest) = if tail >= length { (rounds + 1, 0) } else { (rounds, tail) };
        Ok(DimensionShare { first, length, step, full, rest })
    }

    fn owned(&self) -> i64 {
        self.full * self.length + self.rest
    }

    /// Returns the layout of the part. `unit` is the layout of one index, and indices are `stride` bytes apart.
    fn place(&self, unit: &Layout, stride: i64) -> Result<Layout> {
        let unit = unit.resized(0, stride)?;
        let at = |index: i64| multiply(index, stride);
        let step = if self.full > 1 { at(self.step)? } else { 0 };
        let blocks = unit.vector(self.full as u64, self.length as u64, step)?;
        let mut parts = Vec::with_capacity(2);
        if self.full > 0 {
            parts.push(StructPart { layout: &blocks, count: 1, displacement: at(self.first)? });
        }
        if self.rest > 0 {
            let last = self.first + self.full * self.step;
            parts.push(StructPart {
                layout: &unit,
                count: self.rest as u64,
                displacement: at(last)?,
            });
        }
        Ok(Layout::structure(parts)?)
    }
}
