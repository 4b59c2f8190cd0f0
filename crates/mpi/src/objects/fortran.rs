//! Properties of the Fortran compiler, set by the Fortran support (MPI 5.0, chapter 20).
//!
//! The library itself knows no Fortran compiler. Only the first setting is used. It must give the default kinds the
//! sizes in `SIZES`.

use crate::common::consts::{
    MPI_ERR_ABI, MPI_ERR_ARG, MPI_ERR_INFO_VALUE, MPI_ERR_UNSUPPORTED_OPERATION,
};
use crate::common::error::{Error, Result};
use crate::objects::info::Info;
use std::cell::RefCell;

/// Sizes in bytes of the datatypes of Fortran's default kinds.
const SIZES: [(&str, i64); 4] = [
    ("mpi_logical_size", 4),
    ("mpi_integer_size", 4),
    ("mpi_real_size", 4),
    ("mpi_double_precision_size", 8),
];

/// Size of the largest LOGICAL, in bytes.
pub const MAX_LOGICAL: usize = 16;

/// Bytes of a LOGICAL; those beyond its size are 0.
pub type Logical = [u8; MAX_LOGICAL];

/// Description of the Fortran compiler given so far.
pub struct Fortran {
    booleans: RefCell<Option<(usize, Logical, Logical)>>,
    info: RefCell<Option<Info>>,
}

impl Default for Fortran {
    fn default() -> Self {
        Self::new()
    }
}

impl Fortran {
    /// Makes an empty description.
    #[must_use]
    pub const fn new() -> Self {
        Self { booleans: RefCell::new(None), info: RefCell::new(None) }
    }

    /// Returns the values of TRUE and FALSE in a LOGICAL of `size` bytes, if they are set.
    #[must_use]
    pub fn booleans(&self, size: usize) -> Option<(Logical, Logical)> {
        match *self.booleans.borrow() {
            Some((known, yes, no)) if known == size => Some((yes, no)),
            _ => None,
        }
    }

    /// Sets the values of TRUE and FALSE in a LOGICAL of `size` bytes. Errors: `MPI_ERR_ABI` if they were set before.
    pub fn set_booleans(&self, size: usize, yes: Logical, no: Logical) -> Result {
        let mut booleans = self.booleans.borrow_mut();
        if booleans.is_some() {
            return Err(Error::new(MPI_ERR_ABI, "the Fortran boolean values are set already"));
        }
        *booleans = Some((size, yes, no));
        Ok(())
    }

    /// Returns a copy of the description of types, if it is set.
    #[must_use]
    pub fn info(&self) -> Option<Info> {
        self.info.borrow().as_ref().map(Info::duplicate)
    }

    /// Sets the description of types. Errors: `MPI_ERR_ABI` if it was set before, `MPI_ERR_INFO_VALUE` for a size that
    /// is not a number, `MPI_ERR_UNSUPPORTED_OPERATION` for a size other than that in `SIZES`.
    pub fn set_info(&self, info: &Info) -> Result {
        if self.info.borrow().is_some() {
            return Err(Error::new(MPI_ERR_ABI, "the Fortran types are set already"));
        }
        for (key, bytes) in SIZES {
            let Some(value) = info.get(key.as_bytes())? else {
                continue;
            };
            let text = String::from_utf8_lossy(&value);
            let Ok(size) = text.parse::<i64>() else {
                let message = format!("{key} is \"{text}\": pass a number of bytes");
                return Err(Error::new(MPI_ERR_INFO_VALUE, message));
            };
            if size != bytes {
                let message = format!("{key} is {size}, but this library uses {bytes} bytes");
                return Err(Error::new(MPI_ERR_UNSUPPORTED_OPERATION, message));
            }
        }
        *self.info.borrow_mut() = Some(info.duplicate());
        Ok(())
    }
}

/// Checks the size of a LOGICAL in bytes. Errors: `MPI_ERR_ARG` for one that is not 1, 2, 4, 8 or 16.
pub fn check_logical_size(size: i32) -> Result<usize> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(size as usize),
        _ => {
            let message = format!("the size of LOGICAL is {size} bytes: pass 1, 2, 4, 8 or 16");
            Err(Error::new(MPI_ERR_ARG, message))
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn booleans__are_taken_once() {
        let fortran = Fortran::new();
        assert_eq!(fortran.booleans(4), None);
        fortran.set_booleans(4, [1; 16], [0; 16]).unwrap();
        assert_eq!(fortran.booleans(4), Some(([1; 16], [0; 16])));
        assert_eq!(fortran.booleans(8), None);
        let error = fortran.set_booleans(8, [2; 16], [0; 16]).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_ABI);
        assert_eq!(fortran.booleans(4), Some(([1; 16], [0; 16])));
    }

    #[test]
    fn info__is_taken_once_and_only_if_true() {
        let fortran = Fortran::new();
        let refused = |value: &str| {
            let info = Info::from_pairs([("mpi_integer_size", value)]);
            fortran.set_info(&info).unwrap_err().code()
        };
        assert_eq!(refused("8"), MPI_ERR_UNSUPPORTED_OPERATION);
        assert_eq!(refused("four"), MPI_ERR_INFO_VALUE);
        assert!(fortran.info().is_none());
        fortran.set_info(&Info::from_pairs([("mpi_integer_size", "4")])).unwrap();
        assert_eq!(refused("4"), MPI_ERR_ABI);
        let known = fortran.info().unwrap().get(b"mpi_integer_size").unwrap();
        assert_eq!(known.as_deref(), Some(&b"4"[..]));
    }

    #[test]
    fn logical_size__is_a_power_of_two() {
        assert_eq!(check_logical_size(16).unwrap(), 16);
        for size in [-4, 0, 3, 5, 32] {
            assert_eq!(check_logical_size(size).unwrap_err().code(), MPI_ERR_ARG);
        }
    }
}
