//! Constructor and arguments of a datatype (MPI 5.0, section 5.1.14).

use super::Datatype;
use std::rc::Rc;

/// Constructor of a datatype. Its numbers are those of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
    ValueIndex = 117,
}

/// Binding that made a type. MPI_Type_get_contents returns the type's counts in the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `int` counts.
    Small,
    /// `MPI_Count` counts: the function's name ends in `_c`.
    Large,
}

/// Arguments of a datatype's constructor, in the order of the standard's table.
#[derive(Debug)]
pub struct Contents {
    /// The constructor.
    pub combiner: Combiner,
    /// Integer arguments.
    pub integers: Vec<i64>,
    /// Byte displacements.
    pub addresses: Vec<i64>,
    /// Counts and displacements of the large form.
    pub large_counts: Vec<i64>,
    /// Datatypes. They stay alive when their handles are freed.
    pub types: Vec<Rc<Datatype>>,
}

impl Contents {
    /// Returns the contents of a type made without arguments.
    pub fn without_arguments(combiner: Combiner) -> Contents {
        Contents {
            combiner,
            integers: Vec::new(),
            addresses: Vec::new(),
            large_counts: Vec::new(),
            types: Vec::new(),
        }
    }

    pub(super) fn of(combiner: Combiner, old: &Rc<Datatype>) -> Contents {
        Contents::of_array(combiner, vec![], vec![], old)
    }

    pub(super) fn of_array(
        combiner: Combiner, integers: Vec<i64>, large_counts: Vec<i64>, old: &Rc<Datatype>,
    ) -> Contents {
        Contents { combiner, integers, addresses: vec![], large_counts, types: vec![old.clone()] }
    }

    /// Makes the record of a constructor's arguments. The large form has counts and addresses in one list.
    pub(super) fn record(
        combiner: Combiner, form: Form, mut counts: Vec<i64>, addresses: Vec<i64>,
        types: Vec<Rc<Datatype>>,
    ) -> Contents {
        match form {
            Form::Small => {
                Contents { combiner, integers: counts, addresses, large_counts: Vec::new(), types }
            }
            Form::Large => {
                counts.extend(addresses);
                Contents {
                    combiner,
                    integers: Vec::new(),
                    addresses: Vec::new(),
                    large_counts: counts,
                    types,
                }
            }
        }
    }
}

impl Drop for Contents {
    /// Drops nested types in a loop: a recursion over a million levels of nesting would exhaust the stack.
    fn drop(&mut self) {
        let mut pending = std::mem::take(&mut self.types);
        while let Some(datatype) = pending.pop() {
            if let Some(mut last) = Rc::into_inner(datatype)
                && let Some(contents) = Rc::get_mut(&mut last.contents)
            {
                pending.append(&mut contents.types);
            }
        }
    }
}
