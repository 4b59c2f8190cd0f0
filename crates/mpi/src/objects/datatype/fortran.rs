//! Datatypes of Fortran kinds (MPI 5.0, section 19.1.9).

use super::contents::{Combiner, Contents, Form};
use super::predefined::Basic;
use super::{Datatype, Result, TypeError};
use crate::common::consts::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Decimal digits, decimal exponent range and bytes of the reals.
const REALS: [(i32, i32, i64); 3] = [(6, 37, 4), (15, 307, 8), (33, 4931, 16)];

/// Decimal exponent range and bytes of the integers.
const INTEGERS: [(i32, i64); 5] = [(2, 1), (4, 2), (9, 4), (18, 8), (38, 16)];

fn no_such_kind<T>(what: String) -> Result<T> {
    Err(TypeError::Argument("no such Fortran kind:", what))
}

impl Datatype {
    /// MPI_Type_create_f90_real and, with `complex`, MPI_Type_create_f90_complex: the smallest kind with `p` decimal
    /// digits and a range of `r` decades. MPI_UNDEFINED for `p` or `r` leaves that argument free.
    pub fn fortran_real(p: i32, r: i32, complex: bool) -> Result<Datatype> {
        if p == MPI_UNDEFINED && r == MPI_UNDEFINED {
            return no_such_kind("p and r are both MPI_UNDEFINED".to_string());
        }
        let fits = |kind: &&(i32, i32, i64)| {
            (p == MPI_UNDEFINED || p <= kind.0) && (r == MPI_UNDEFINED || r <= kind.1)
        };
        let Some((.., bytes)) = REALS.iter().find(fits) else {
            return no_such_kind(format!("no real kind has precision {p} and range {r}"));
        };
        let (combiner, name) = match complex {
            true => (Combiner::F90Complex, format!("MPI_COMPLEX{}", bytes * 2)),
            false => (Combiner::F90Real, format!("MPI_REAL{bytes}")),
        };
        Datatype::standing_for(&name, combiner, vec![p.into(), r.into()])
    }

    /// MPI_Type_create_f90_integer: the smallest kind with a range of `r` decades.
    pub fn fortran_integer(r: i32) -> Result<Datatype> {
        let Some((_, bytes)) = INTEGERS.iter().find(|kind| r <= kind.0) else {
            return no_such_kind(format!("no integer kind has range {r}"));
        };
        Datatype::standing_for(&format!("MPI_INTEGER{bytes}"), Combiner::F90Integer, vec![r.into()])
    }

    fn standing_for(name: &str, combiner: Combiner, integers: Vec<i64>) -> Result<Datatype> {
        let Some(basic) = Basic::all().find(|basic| basic.name == name && basic.is_supported())
        else {
            return no_such_kind(format!("{name} is not supported by this library"));
        };
        Ok(Datatype {
            contents: Rc::new(Contents::record(combiner, Form::Small, integers, vec![], vec![])),
            committed: Cell::new(true),
            name: RefCell::default(),
            ..Datatype::named(basic)
        })
    }

    /// Returns whether both types were made by the same call of MPI_Type_create_f90_real or a similar function, with
    /// equal arguments. Such types must share one handle.
    pub fn is_same_kind(&self, other: &Datatype) -> bool {
        let (a, b) = (self.contents(), other.contents());
        self.is_predefined() && a.combiner == b.combiner && a.integers == b.integers
    }
}
