//! `MPI_Alloc_mem` and `MPI_Free_mem` (MPI-5.0 section 9.2). All ranks of the node can access the memory, so that a
//! long message is copied once, directly from or into it.
#![allow(unsafe_code)]

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::info::{Info, find_info};
use crate::process::Process;
use fastpath_protocol::memory::{MAX_ALIGN, MIN_ALIGN};
use fastpath_segment::SegmentError;
use std::ptr::NonNull;

/// Info key of the alignment (MPI-5.0 section 9.2).
const ALIGNMENT_KEY: &str = "mpi_minimum_memory_alignment";

/// `MPI_Alloc_mem`. 0 bytes have a unique address, which can be freed. Every address is a multiple of 64. The info key
/// `mpi_minimum_memory_alignment` can request more. Errors: `MPI_ERR_ARG` for a negative size, `MPI_ERR_INFO` for a
/// wrong handle, `MPI_ERR_INFO_VALUE` for an invalid alignment, `MPI_ERR_NO_MEM` if memory is exhausted.
pub fn allocate(p: &Process, size: i64, info: usize) -> Result<NonNull<u8>> {
    let bytes = usize::try_from(size).map_err(|_| {
        Error::new(MPI_ERR_ARG, format!("the size {size} is negative: pass 0 or more"))
    })?;
    let align = match info {
        MPI_INFO_NULL => MIN_ALIGN,
        handle => find_alignment(&*find_info(&p.infos, handle)?)?,
    };
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let made = unsafe { (*worker).allocate_memory(bytes, align) };
    made.map_err(|error| {
        let what = match error {
            SegmentError::Shortage { .. } => format!("no memory for {bytes} bytes: {error}"),
            _ => format!("no memory for {bytes} bytes that other ranks can access: {error}"),
        };
        Error::new(MPI_ERR_NO_MEM, what)
    })
}

pub(crate) fn find_alignment(info: &Info) -> Result<usize> {
    let Some(value) = info.get(ALIGNMENT_KEY.as_bytes())? else {
        return Ok(MIN_ALIGN);
    };
    let text = String::from_utf8_lossy(&value);
    match text.trim().parse::<usize>() {
        Ok(align) if align.is_power_of_two() && align <= MAX_ALIGN => Ok(align.max(MIN_ALIGN)),
        _ => Err(Error::new(
            MPI_ERR_INFO_VALUE,
            format!(
                "the info key {ALIGNMENT_KEY} is {text:?}: pass a power of two up to {MAX_ALIGN}"
            ),
        )),
    }
}

/// `MPI_Free_mem`. A null address does nothing, as with `free`. Errors: `MPI_ERR_BASE` for an address that [`allocate`]
/// did not return or that was freed already.
pub fn free(p: &Process, address: usize) -> Result {
    let worker = p.worker()?;
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    if address == 0 || unsafe { (*worker).free_memory(address) } {
        return Ok(());
    }
    Err(Error::new(
        MPI_ERR_BASE,
        format!("{address:#x} is not the start of memory from MPI_Alloc_mem, or was freed already"),
    ))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn alignment__is_a_power_of_two_in_range() {
        let ask = |value: &str| find_alignment(&Info::from_pairs([(ALIGNMENT_KEY, value)]));
        assert_eq!(ask("1").unwrap(), MIN_ALIGN);
        assert_eq!(ask(" 4096 ").unwrap(), 4096);
        for wrong in ["", "0", "3", "-64", "64K", "2147483648", "99999999999999999999"] {
            assert_eq!(ask(wrong).unwrap_err().code(), MPI_ERR_INFO_VALUE, "{wrong:?}");
        }
        assert_eq!(find_alignment(&Info::default()).unwrap(), MIN_ALIGN);
    }
}
