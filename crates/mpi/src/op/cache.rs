//! Kernels by the handles of operation and datatype, remembered from the first use on: one load instead of a search.
#![allow(unsafe_code)]

use super::builtin::Builtin;
pub(crate) use super::kernel::Kernel;
use fastpath_base::sync::{AtomicUsize, Ordering};

/// Predefined operations have the handles 32 to 63, predefined datatypes 512 to 767.
const OP_HANDLES: usize = 32;
const TYPE_HANDLES: usize = 256;

static KERNELS: [AtomicUsize; OP_HANDLES * TYPE_HANDLES] =
    [const { AtomicUsize::new(0) }; OP_HANDLES * TYPE_HANDLES];

#[inline]
fn index(op: usize, datatype: usize) -> Option<usize> {
    (op / OP_HANDLES == 1 && datatype / TYPE_HANDLES == 2)
        .then_some(op % OP_HANDLES * TYPE_HANDLES + datatype % TYPE_HANDLES)
}

/// The kernel of two handles, if one was remembered.
#[inline]
pub(crate) fn find(op: usize, datatype: usize) -> Option<Kernel> {
    let word = KERNELS.get(index(op, datatype)?)?.load(Ordering::Relaxed);
    // SAFETY: the word is 0, which is no function, or what `remember` stored. Code does not change: no order is asked.
    unsafe { std::mem::transmute::<usize, Option<Kernel>>(word) }
}

/// Remembers a kernel. Those of one-sided communication are left out: what is found here is for reductions.
pub(super) fn remember(op: Builtin, datatype: usize, kernel: Kernel) {
    let reduces = !matches!(op, Builtin::Replace | Builtin::NoOp);
    if let Some(index) = index(op.handle(), datatype).filter(|_| reduces) {
        KERNELS[index].store(kernel as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::consts::*;

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
        remember(Builtin::Replace, MPI_INT, nothing);
        assert!(find(MPI_REPLACE, MPI_INT).is_none());
    }

    #[test]
    fn index__holds_every_predefined_handle() {
        for builtin in Builtin::ALL {
            for basic in crate::datatype::Basic::all() {
                assert!(index(builtin.handle(), basic.handle.into()).is_some());
            }
        }
    }
}
