//! Accumulates on memory that is not mapped. The origin asks the target to combine (`fastpath_protocol::rma::Ask`)
//! instead of reading, combining and writing. Either the origin holds the target's accumulate lock, or the target takes
//! the lock itself ([`RmaTarget::delegate`]).
//!
//! **DATA AND MEMORY.** `data` is valid for [`ASK_MOST`] bytes, the largest size of a requested change. `memory` is
//! valid for the `len` bytes of the window that the request names. The code that located both guarantees this.
#![allow(unsafe_code)]

use super::control::{ACCUMULATE, Words};
use super::target::RmaTarget;
use super::window::Window;
use crate::common::error::Result;
use crate::objects::datatype::Basic;
use crate::objects::op;
use crate::process::Process;
use fastpath_base::copy::copy;
use fastpath_protocol::rma::{ASK_MOST, Ask, TargetRequest};

/// Largest element of a predefined datatype, in bytes.
const ELEMENT_MOST: usize = 32;

/// Change of elements of a predefined datatype, as sent to the target. Handles of predefined datatypes and operations
/// are equal in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementChange {
    pub datatype: u16,
    pub op: u16,
    pub how: ChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Combine,
    /// Change by `MPI_Get_accumulate` or `MPI_Fetch_and_op`: the reply holds the previous elements.
    Fetch,
    /// Change by `MPI_Compare_and_swap` of one element. The data is the comparand followed by the new value.
    Swap,
}

impl ElementChange {
    fn pack(self) -> u64 {
        u64::from(self.datatype) | u64::from(self.op) << 16 | (self.how as u64) << 32
    }

    fn unpack(word: u64) -> Option<ElementChange> {
        let how = [ChangeKind::Combine, ChangeKind::Fetch, ChangeKind::Swap];
        Some(ElementChange {
            datatype: word as u16,
            op: (word >> 16) as u16,
            how: *how.get((word >> 32) as usize)?,
        })
    }
}

/// Performs a change that a peer requests; see `fastpath_protocol::rma::ChangeFunction`. Safety: `data` is valid for
/// [`ASK_MOST`] bytes and `memory` for `len`.
pub(crate) unsafe fn make(word: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool {
    let Some(change) = ElementChange::unpack(word) else {
        return false;
    };
    let Some(basic) = Basic::from_handle(change.datatype.into()).filter(|b| b.is_supported())
    else {
        return false;
    };
    let size = basic.size as usize;
    let fits = len <= ASK_MOST && basic.pair.is_none() && len.is_multiple_of(size);
    if !fits {
        return false;
    }
    if change.how == ChangeKind::Swap {
        // SAFETY: DATA AND MEMORY. Two elements have at most [`ASK_MOST`] bytes.
        return len == size && size <= ELEMENT_MOST && unsafe { swap(data, memory, size) };
    }
    let Some(kernel) = op::find_predefined(change.op.into(), basic) else {
        return false;
    };
    let mut before = [0_u8; ASK_MOST];
    // SAFETY: DATA AND MEMORY. `len` is at most [`ASK_MOST`], so `before` can hold the elements.
    unsafe {
        if change.how == ChangeKind::Fetch {
            copy(before.as_mut_ptr(), memory, len);
        }
        kernel(data, memory, len / size);
        if change.how == ChangeKind::Fetch {
            copy(data, before.as_ptr(), len);
        }
    }
    true
}

/// Performs a compare and swap. Safety: see DATA AND MEMORY. `size` is at most [`ELEMENT_MOST`].
unsafe fn swap(data: *mut u8, memory: *mut u8, size: usize) -> bool {
    let (mut found, mut compare) = ([0_u8; ELEMENT_MOST], [0_u8; ELEMENT_MOST]);
    // SAFETY: DATA AND MEMORY.
    unsafe {
        copy(found.as_mut_ptr(), memory, size);
        copy(compare.as_mut_ptr(), data, size);
        if found[..size] == compare[..size] {
            copy(memory, data.add(size), size);
        }
        copy(data, found.as_ptr(), size);
    }
    true
}

impl RmaTarget {
    /// Requests that the target change `len` bytes, `at` bytes after the displacement. Returns the number changed.
    ///
    /// # Safety
    /// The bytes lie inside the span with which the target was found. `given` is readable and `taken` writable.
    pub unsafe fn ask(
        &self, p: &Process, window: &Window, (change, at, len): (ElementChange, i64, usize),
        given: (*const u8, usize), taken: (*mut u8, usize),
    ) -> Result<usize> {
        let asking = self.asking(change, at, len, given, taken);
        // SAFETY: DATA AND MEMORY.
        unsafe { self.ask_owner(p, window, &asking) }
    }

    fn asking(
        &self, change: ElementChange, at: i64, len: usize, given: (*const u8, usize),
        taken: (*mut u8, usize),
    ) -> TargetRequest {
        TargetRequest {
            ask: Ask::Change(change.pack()),
            offset: self.offset_of(at),
            len,
            given,
            taken,
        }
    }

    /// Requests that the target change `len` bytes at `at`, from the displacement, under its own lock. Returns false if
    /// nothing was changed: the lock is held, or this process reaches the lock or the memory without messages.
    ///
    /// # Safety
    /// See [`RmaTarget::ask`].
    pub unsafe fn delegate(
        &self, words: &Words, (change, at, len): (ElementChange, i64, usize),
        given: (*const u8, usize), taken: (*mut u8, usize),
    ) -> Result<bool> {
        // Mapped memory may belong to another rank than the control words: all memory of a shared window is rank 0's.
        let is_mapped = !self.near.is_null();
        if words.near(ACCUMULATE).is_some() || self.key().is_null() || is_mapped {
            return Ok(false);
        }
        let asking = self.asking(change, at, len, given, taken);
        // SAFETY: DATA AND MEMORY.
        unsafe { words.change(self.key(), &asking) }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::common::consts::*;

    fn change(datatype: usize, op: usize, how: ChangeKind) -> u64 {
        let (datatype, op) = (datatype as u16, op as u16);
        ElementChange { datatype, op, how }.pack()
    }

    fn run(word: u64, given: &[u8], memory: &mut [u8]) -> Option<Vec<u8>> {
        let mut data = vec![0; ASK_MOST];
        data[..given.len()].copy_from_slice(given);
        // SAFETY: `data` has `ASK_MOST` bytes, and `memory` its own length.
        let made = unsafe { make(word, data.as_mut_ptr(), memory.as_mut_ptr(), memory.len()) };
        made.then_some(data)
    }

    #[test]
    fn change__combines_fetches_and_swaps() {
        let mut memory = 5_i64.to_ne_bytes();
        let word = change(MPI_INT64_T, MPI_SUM, ChangeKind::Combine);
        assert!(run(word, &3_i64.to_ne_bytes(), &mut memory).is_some());
        let word = change(MPI_INT64_T, MPI_REPLACE, ChangeKind::Fetch);
        let before = run(word, &9_i64.to_ne_bytes(), &mut memory).unwrap();
        assert_eq!((&before[..8], memory), (&8_i64.to_ne_bytes()[..], 9_i64.to_ne_bytes()));
        let word = change(MPI_INT64_T, 0, ChangeKind::Swap);
        for (compare, after) in [(8_i64, 9_i64), (9, 1)] {
            let given = [compare.to_ne_bytes(), 1_i64.to_ne_bytes()].concat();
            let found = run(word, &given, &mut memory).unwrap();
            assert_eq!((&found[..8], memory), (&9_i64.to_ne_bytes()[..], after.to_ne_bytes()));
        }
    }

    #[test]
    fn change__that_is_none_is_refused() {
        let mut memory = [0; 8];
        for word in [
            u64::MAX,
            change(MPI_INT64_T, MPI_SUM, ChangeKind::Combine) | 3 << 32,
            change(0, MPI_SUM, ChangeKind::Combine),
            change(MPI_DOUBLE, MPI_BAND, ChangeKind::Combine),
            change(MPI_INT64_T, 0, ChangeKind::Fetch),
            change(MPI_DOUBLE_INT, MPI_MAXLOC, ChangeKind::Combine),
            change(MPI_INT32_T, 0, ChangeKind::Swap),
        ] {
            assert_eq!(run(word, &[], &mut memory), None, "{word:#x}");
        }
        let word = change(MPI_INT64_T, MPI_SUM, ChangeKind::Combine);
        assert_eq!(run(word, &[], &mut [0; 7]), None);
        assert_eq!(run(word, &[], &mut vec![0; ASK_MOST + 8]), None);
    }
}
