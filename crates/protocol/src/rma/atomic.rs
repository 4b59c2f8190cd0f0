//! Atomic changes of 8 bytes by this processor.
//!
//! **FIELD ORDER.** Each change is acquire and release, so a lock or counter in the region orders the data it protects.
//! The partners are the same operations of other ranks.
#![allow(unsafe_code)]

use super::message::{ADD, MASKED_ADD, SWAP};
use fastpath_base::sync::{AtomicU64, Ordering};

/// Changes 8 bytes. Returns the previous value; `None` for an unknown operation.
///
/// # Safety
/// `at` is aligned to 8 and valid for reads and writes of 8 bytes, and others access them only atomically.
pub(crate) unsafe fn change(
    at: *mut u8, operation: u32, operand: u64, compare: u64,
) -> Option<u64> {
    // SAFETY: `at` is aligned, valid and accessed only atomically, by this function's contract.
    let word = unsafe { &*at.cast::<AtomicU64>() };
    match operation {
        // ORDERING: FIELD ORDER: acquire and release; the partners are the same operations of other ranks.
        ADD => Some(word.fetch_add(operand, Ordering::AcqRel)),
        SWAP => {
            // ORDERING: FIELD ORDER: acquire and release; the partners are the same operations of other ranks.
            let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
            match word.compare_exchange(compare, operand, done, seen) {
                Ok(found) | Err(found) => Some(found),
            }
        }
        MASKED_ADD => {
            let add = |word| Some(add_masked(word, operand, compare));
            // ORDERING: FIELD ORDER: acquire and release; the partners are the same operations of other ranks.
            let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
            match word.fetch_update(done, seen, add) {
                Ok(found) | Err(found) => Some(found),
            }
        }
        _ => None,
    }
}

/// Adds to each field of a word without carries between them. `boundaries` has each field's highest bit.
pub fn add_masked(word: u64, add: u64, boundaries: u64) -> u64 {
    ((word & !boundaries).wrapping_add(add & !boundaries)) ^ ((word ^ add) & boundaries)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn masked_add__carries_nothing_from_a_field_into_the_next() {
        let boundaries = 1 << 3 | 1 << 7;
        assert_eq!(add_masked(0x0f, 0x01, boundaries), 0x00);
        assert_eq!(add_masked(0x1f, 0x11, boundaries), 0x20);
        assert_eq!(add_masked(0xf8, 0x18, boundaries), 0x00);
        assert_eq!(add_masked(0x47, 0x23, boundaries), 0x6a);
        let mut word = Box::new(0x1f_u64);
        let at = (&raw mut *word).cast();
        // SAFETY: the word is aligned and has no other user.
        let found = unsafe { change(at, MASKED_ADD, 0x11, boundaries) };
        assert_eq!((found, *word), (Some(0x1f), 0x20));
    }
}
