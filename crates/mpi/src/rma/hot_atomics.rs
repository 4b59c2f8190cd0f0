//! Immediate path of the accumulate family. It serves memory that load and store reach, and predefined operations and
//! datatypes that were used before. It costs a compare and swap for the accumulate lock, the operation, and a store.
#![allow(unsafe_code)]

use super::hot::{CountedKind, Sides, TargetMemory, find};
use crate::common::consts::MPI_NO_OP;
use crate::objects::datatype::is_memory;
use crate::objects::hot;
use crate::objects::op::cache;
use fastpath_base::copy::copy;
use fastpath_base::sync::{AtomicU8, AtomicU64, Ordering};

/// Guard of the accumulate lock. The drop releases the lock.
struct AccumulateGuard(&'static AtomicU64);

impl AccumulateGuard {
    /// Takes the lock at `place` and counts the operation. Returns `None` if another thread or rank has the lock.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Fetch_and_op
    fn take(place: &TargetMemory) -> Option<AccumulateGuard> {
        let lock = place.lock();
        // ORDERING: acquire, pairs with the release in `drop` of the previous holder.
        let taken = lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        // The guard is made only after the lock is taken, since its drop releases the lock.
        match taken {
            Ok(_) => {
                place.count();
                Some(AccumulateGuard(lock))
            }
            Err(_) => None,
        }
    }
}

impl Drop for AccumulateGuard {
    #[inline(always)] // see `take`
    fn drop(&mut self) {
        // ORDERING: release, pairs with the acquire in `take`, here or in another rank.
        self.0.store(0, Ordering::Release);
    }
}

/// Returns the bytes of an element, or `None` if the hot table lacks the datatype or an element exceeds 8 bytes. Only
/// predefined datatypes have a kernel. Those that fit have 1, 2, 4 or 8 bytes.
#[inline(always)] // `fastpath bench instructions` counts MPI_Fetch_and_op
fn word_of(datatype: usize) -> Option<u64> {
    let hot_type = hot::datatype(datatype);
    let known = hot_type.key == datatype as u64 && hot_type.size <= 8;
    known.then_some(hot_type.size)
}

/// `MPI_Fetch_and_op`. Returns false, without effect, if the immediate path does not apply.
///
/// # Safety
/// Each buffer holds one element. The origin's buffer is not used with `MPI_NO_OP`.
#[inline(always)] // `fastpath bench instructions` counts MPI_Fetch_and_op
pub unsafe fn try_fetch_and_op<const WAY: u8>(
    (origin, result): (*const u8, *mut u8), datatype: usize, (rank, disp): (i32, isize), op: usize,
    win: usize,
) -> bool {
    let Some(bytes) = word_of(datatype) else {
        return false;
    };
    if !is_memory(result) {
        return false;
    }
    if !is_memory(origin) {
        is_rare();
        if op != MPI_NO_OP {
            return false;
        }
    }
    let Some(place) = find::<WAY>(CountedKind::Atomic, win, (rank, disp), bytes) else {
        return false;
    };
    let Some(kernel) = cache::find_any(op, datatype) else {
        return false;
    };
    let Some(_held) = AccumulateGuard::take(&place) else {
        return false;
    };
    let target = place.target;
    // SAFETY: `find` located the target inside the mapped part, and the kernel matches operation and datatype. The
    // buffers hold one element, by this function's contract.
    unsafe {
        if bytes == 8 {
            fetch::<u64>(target, origin, result, kernel);
            return true;
        }
        is_rare(); // 4 instructions less for 8 B
        match bytes {
            4 => fetch::<u32>(target, origin, result, kernel),
            2 => fetch::<u16>(target, origin, result, kernel),
            _ => fetch::<u8>(target, origin, result, kernel),
        }
    }
    true
}

/// Marks a branch as unlikely for the compiler.
#[cold]
#[inline]
fn is_rare() {}

/// Fetches the target's value, then combines. Safety: all pointers are valid for a `T`, which is as long as an element.
#[inline(always)] // see `try_fetch_and_op`
unsafe fn fetch<T: Copy>(
    target: *mut u8, origin: *const u8, result: *mut u8, kernel: cache::Kernel,
) {
    // SAFETY: all pointers are valid for a `T`, by this function's contract.
    unsafe {
        let before = target.cast::<T>().read_unaligned();
        kernel(origin, target, 1);
        result.cast::<T>().write_unaligned(before);
    }
}

/// Contiguous elements of one predefined datatype at the target, with the accumulate lock held.
struct Elements {
    target: *mut u8,
    bytes: usize,
    kernel: cache::Kernel,
    _held: AccumulateGuard,
}

/// Locates the target elements of an accumulate and takes the accumulate lock; `None` if this path does not apply.
#[inline(always)] // see `try_accumulate`
fn find_elements<const WAY: u8>(sides: &Sides, op: usize) -> Option<Elements> {
    let datatype = hot::datatype(sides.datatype);
    let plain = datatype.key == sides.datatype as u64
        && sides.datatype == sides.target_datatype
        && sides.count == sides.target_count
        && (1..=i64::from(u32::MAX)).contains(&sides.count)
        && is_memory(sides.origin);
    if !plain {
        return None;
    }
    let bytes = sides.count as u64 * datatype.size;
    let at = (sides.rank, sides.disp);
    let place = find::<WAY>(CountedKind::Accumulate, sides.win, at, bytes)?;
    let kernel = cache::find_any(op, sides.datatype)?;
    let _held = AccumulateGuard::take(&place)?;
    let (target, bytes) = (place.target, bytes as usize);
    Some(Elements { target, bytes, kernel, _held })
}

/// `MPI_Accumulate` of contiguous elements of one predefined datatype. Returns false, without effect, if the immediate
/// path does not apply.
///
/// # Safety
/// The buffer is readable as count and datatype specify.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn try_accumulate<const WAY: u8>(sides: &Sides, op: usize) -> bool {
    let Some(elements) = find_elements::<WAY>(sides, op) else {
        return false;
    };
    // SAFETY: `find` located the target inside the mapped part, the buffer is readable by this function's contract, and
    // the kernel matches.
    unsafe { (elements.kernel)(sides.origin, elements.target, sides.count as usize) };
    true
}

/// `MPI_Get_accumulate` under the conditions of [`try_accumulate`]. Returns false, without effect, in other cases.
///
/// # Safety
/// See [`try_accumulate`]. The result buffer is writable for as many elements.
#[inline(always)] // see `try_accumulate`
pub unsafe fn try_get_accumulate<const WAY: u8>(
    sides: &Sides, (result, result_count, result_datatype): (*mut u8, i64, usize), op: usize,
) -> bool {
    let plain = sides.datatype == result_datatype && sides.count == result_count;
    if !plain || !is_memory(result) {
        return false;
    }
    let Some(elements) = find_elements::<WAY>(sides, op) else {
        return false;
    };
    // SAFETY: `find` located the target inside the mapped part, the buffers are valid by this function's contract, and
    // the kernel matches.
    unsafe {
        copy(result, elements.target, elements.bytes);
        (elements.kernel)(sides.origin, elements.target, sides.count as usize);
    }
    true
}

/// First handle of predefined datatypes, which have the handles 512 to 767.
const FIRST_TYPE: usize = 512;

/// For each predefined datatype, whether `MPI_Compare_and_swap` has accepted it.
static COMPARED: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];

pub(super) fn note_compared(datatype: usize) {
    if let Some(known) = COMPARED.get(datatype.wrapping_sub(FIRST_TYPE)) {
        known.store(1, Ordering::Relaxed);
    }
}

/// `MPI_Compare_and_swap` of 1, 2, 4 or 8 bytes. Returns false, without effect, if the immediate path does not apply.
///
/// # Safety
/// Each buffer holds one element of the datatype.
#[inline(always)] // `fastpath bench atomics --level mpi` measures it
pub unsafe fn try_compare_and_swap<const WAY: u8>(
    (origin, compare, result): (*const u8, *const u8, *mut u8), datatype: usize,
    (rank, disp): (i32, isize), win: usize,
) -> bool {
    let Some(known) = COMPARED.get(datatype.wrapping_sub(FIRST_TYPE)) else {
        return false;
    };
    let Some(bytes) = word_of(datatype) else {
        return false;
    };
    if known.load(Ordering::Relaxed) == 0
        || !is_memory(origin)
        || !is_memory(compare)
        || !is_memory(result)
    {
        return false;
    }
    let Some(place) = find::<WAY>(CountedKind::Atomic, win, (rank, disp), bytes) else {
        return false;
    };
    let Some(_held) = AccumulateGuard::take(&place) else {
        return false;
    };
    let target = place.target;
    // SAFETY: `find` located the target inside the mapped part, and the buffers hold one element by contract.
    unsafe {
        if bytes == 8 {
            swap::<u64>(target, origin, compare, result);
            return true;
        }
        is_rare(); // see `try_fetch_and_op`
        match bytes {
            4 => swap::<u32>(target, origin, compare, result),
            2 => swap::<u16>(target, origin, compare, result),
            _ => swap::<u8>(target, origin, compare, result),
        }
    }
    true
}

/// Fetches the target's value, and writes `origin` if it equals `compare`. Safety: all pointers are valid for a `T`.
#[inline(always)] // see `try_compare_and_swap`
unsafe fn swap<T: Copy + PartialEq>(
    target: *mut u8, origin: *const u8, compare: *const u8, result: *mut u8,
) {
    // SAFETY: all pointers are valid for a `T`, by this function's contract.
    unsafe {
        let found = target.cast::<T>().read_unaligned();
        if found == compare.cast::<T>().read_unaligned() {
            let new = origin.cast::<T>().read_unaligned();
            target.cast::<T>().write_unaligned(new);
        }
        result.cast::<T>().write_unaligned(found);
    }
}
