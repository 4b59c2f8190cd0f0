//! Cache of kernels by the handles of operation and datatype: one load instead of a search.
#![allow(unsafe_code)]

use super::builtin::Builtin;
pub(crate) use super::kernel::Kernel;
use crate::common::consts::*;
use fastpath_base::sync::{AtomicUsize, Ordering};

/// First handle of predefined operations (handles 32 to 63). Predefined datatypes have the handles 512 to 767.
const FIRST_OP: usize = 32;
const OP_HANDLES: usize = 32;
const FIRST_TYPE: usize = 512;
const TYPE_HANDLES: usize = 256;

static KERNELS: [[AtomicUsize; TYPE_HANDLES]; OP_HANDLES] =
    [const { [const { AtomicUsize::new(0) }; TYPE_HANDLES] }; OP_HANDLES];

#[inline]
fn place(op: usize, datatype: usize) -> Option<&'static AtomicUsize> {
    let of_op = KERNELS.get(op.wrapping_sub(FIRST_OP))?;
    of_op.get(datatype.wrapping_sub(FIRST_TYPE))
}

/// Returns the cached kernel of a reduction.
#[inline]
pub(crate) fn find(op: usize, datatype: usize) -> Option<Kernel> {
    if op >= MPI_REPLACE { None } else { find_any(op, datatype) }
}

/// Returns the cached kernel of any predefined operation, including those of one-sided communication.
#[inline]
pub(crate) fn find_any(op: usize, datatype: usize) -> Option<Kernel> {
    let word = place(op, datatype)?.load(Ordering::Relaxed);
    // SAFETY: the word is 0, which is `None`, or a function from `remember`. The load needs no ordering, because the
    // code that the word points to never changes.
    unsafe { std::mem::transmute::<usize, Option<Kernel>>(word) }
}

pub(super) fn remember(op: Builtin, datatype: usize, kernel: Kernel) {
    if let Some(place) = place(op.handle(), datatype) {
        place.store(kernel as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn kernel__is_found_under_its_own_handles_alone() {
        unsafe fn nothing(_: *const u8, _: *mut u8, _: usize) {}
        assert!(find(MPI_BXOR, MPI_LOGICAL16).is_none());
        remember(Builtin::Bxor, MPI_LOGICAL16, nothing);
        assert!(find(MPI_BXOR, MPI_LOGICAL16).is_some());
        assert!(find(MPI_BXOR, MPI_LOGICAL8).is_none() && find(MPI_BOR, MPI_LOGICAL16).is_none());
        assert!(
            find(MPI_BXOR + OP_HANDLES, MPI_LOGICAL16).is_none()
                && find(MPI_BXOR, MPI_LOGICAL16 + TYPE_HANDLES).is_none()
        );
        assert!(find(usize::MAX, usize::MAX).is_none() && find(0, 0).is_none());
        // The test uses a handle without a datatype, because other tests fill the cache entries of datatypes.
        let datatype = FIRST_TYPE + TYPE_HANDLES - 1;
        for builtin in [Builtin::Replace, Builtin::NoOp] {
            remember(builtin, datatype, nothing);
            assert!(find(builtin.handle(), datatype).is_none());
            assert!(find_any(builtin.handle(), datatype).is_some());
        }
    }

    #[test]
    fn place__is_there_for_every_predefined_handle() {
        let one_sided = |b: &Builtin| matches!(b, Builtin::Replace | Builtin::NoOp);
        assert!(Builtin::ALL.iter().all(|b| one_sided(b) == (b.handle() >= MPI_REPLACE)));
        for builtin in Builtin::ALL {
            for basic in crate::objects::datatype::Basic::all() {
                assert!(place(builtin.handle(), basic.handle.into()).is_some());
            }
        }
    }
}
