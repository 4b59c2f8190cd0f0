//! Reduction operations (MPI 5.0, section 6.9), predefined and user-defined.
#![allow(unsafe_code)]

mod builtin;
pub(crate) mod cache;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod kernel;
mod lookup;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod pair;
#[cfg(target_arch = "x86_64")]
mod quad;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x87;

pub use builtin::Builtin;
pub use kernel::Kernel;

use crate::common::consts::{MPI_ERR_OP, MPI_OP_NULL};
use crate::common::error::{Error, Result};
use crate::common::table::{HandleKind, HandleTable};
use crate::objects::datatype::{Basic, Datatype};
use std::ffi::c_void;

/// `MPI_User_function`.
pub type UserFunction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i32, *mut usize);
/// `MPI_User_function_c`.
pub type UserFunctionLarge = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut usize);

/// Function of an operation.
#[derive(Debug, Clone, Copy)]
pub enum OpFunction {
    /// Predefined operation.
    Builtin(Builtin),
    /// User's function of `MPI_Op_create`.
    User(UserFunction),
    /// User's function of `MPI_Op_create_c`.
    UserLarge(UserFunctionLarge),
}

/// A reduction operation.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    function: OpFunction,
    commutes: bool,
}

impl HandleKind for Op {
    const NOUN: &'static str = "operation";
    const NULL: (usize, &'static str) = (MPI_OP_NULL, "MPI_OP_NULL");
    const CLASS: i32 = MPI_ERR_OP;
}

impl Op {
    /// Makes a predefined operation.
    pub fn builtin(builtin: Builtin) -> Op {
        Op { function: OpFunction::Builtin(builtin), commutes: builtin.commutes() }
    }

    /// Makes a user's operation. If it does not commute, it is applied in rank order.
    pub fn user(function: OpFunction, commutes: bool) -> Op {
        Op { function, commutes }
    }

    /// Returns whether the operation commutes.
    pub fn commutes(&self) -> bool {
        self.commutes
    }

    /// Returns whether the result has the same bits for every order of operands. This excludes operations with rounded
    /// results, and user functions, whose behaviour is unknown.
    pub fn is_exact(&self, datatype: &Datatype) -> bool {
        use crate::objects::datatype::BasicKind::{
            Address, Byte, Character, Logical, Signed, Unsigned,
        };
        let kind = datatype.basic().map(|basic| basic.kind);
        self.is_predefined()
            && matches!(kind, Some(Signed | Unsigned | Address | Logical | Byte | Character))
    }

    /// Returns the ABI's handle of a predefined operation; 0 for a user's operation.
    pub fn predefined_handle(&self) -> u32 {
        match self.function {
            OpFunction::Builtin(builtin) => builtin.handle() as u32,
            OpFunction::User(_) | OpFunction::UserLarge(_) => 0,
        }
    }

    /// Returns whether the operation is predefined, and so cannot be freed.
    pub fn is_predefined(&self) -> bool {
        matches!(self.function, OpFunction::Builtin(_))
    }

    /// Returns the function that applies the operation to elements of `datatype`. A user's function gets `handle`.
    /// Errors: `MPI_ERR_OP` if the operation is not defined for the type.
    #[inline]
    pub fn reducer(&self, datatype: &Datatype, handle: usize) -> Result<Reducer> {
        let run = match self.function {
            OpFunction::Builtin(builtin) => {
                let known = cache::find_any(builtin.handle(), handle);
                OpBody::Kernel(known.map_or_else(|| find_kernel(builtin, datatype, handle), Ok)?)
            }
            OpFunction::User(f) => OpBody::User(f),
            OpFunction::UserLarge(f) => OpBody::UserLarge(f),
        };
        Ok(Reducer { run, commutes: self.commutes, extent: datatype.layout().extent(), handle })
    }

    /// Returns the function for a collective call; see [`Op::reducer`]. `MPI_REPLACE` and `MPI_NO_OP` are refused,
    /// because they are only for one-sided communication (MPI 5.0, section 12.3.4).
    #[inline]
    pub fn collective_reducer(&self, datatype: &Datatype, handle: usize) -> Result<Reducer> {
        match self.function {
            OpFunction::Builtin(b @ (Builtin::Replace | Builtin::NoOp)) => {
                Err(refuse_collective(b))
            }
            _ => self.reducer(datatype, handle),
        }
    }
}

/// Finds the kernel of a predefined operation on elements of a predefined datatype.
pub(crate) fn find_predefined(handle: usize, basic: Basic) -> Option<Kernel> {
    if let Some(known) = cache::find_any(handle, basic.handle.into()) {
        return Some(known);
    }
    let builtin = Builtin::ALL.into_iter().find(|b| b.handle() == handle)?;
    let kernel = lookup::find_kernel(builtin, basic)?;
    cache::remember(builtin, basic.handle.into(), kernel);
    Some(kernel)
}

pub(crate) fn describe_handle(handle: u32) -> &'static str {
    let known = Builtin::ALL.into_iter().find(|b| b.handle() == handle as usize);
    known.map_or("an operation made by MPI_Op_create", Builtin::name)
}

#[inline(never)]
fn find_kernel(builtin: Builtin, datatype: &Datatype, handle: usize) -> Result<Kernel> {
    let kernel = datatype.basic().and_then(|basic| lookup::find_kernel(builtin, basic));
    let kernel = kernel.ok_or_else(|| refuse_type(builtin, datatype))?;
    cache::remember(builtin, handle, kernel);
    Ok(kernel)
}

#[cold]
#[inline(never)]
fn refuse_collective(builtin: Builtin) -> Error {
    Error::new(
        MPI_ERR_OP,
        format!("{} is for one-sided communication, not for reductions", builtin.name()),
    )
}

#[cold]
#[inline(never)]
fn refuse_type(builtin: Builtin, datatype: &Datatype) -> Error {
    let name = builtin.name();
    let text = match datatype.basic() {
        None => format!(
            "{name} is not defined for derived datatypes: reduce elements of a predefined \
             datatype, or make an \
             operation with MPI_Op_create"
        ),
        Some(basic) if lookup::is_defined(builtin, basic) => {
            format!("{name} on {} is not implemented for this processor", basic.name)
        }
        Some(basic) => {
            format!("{name} is not defined for {}: {name} {}", basic.name, builtin.types())
        }
    };
    Error::new(MPI_ERR_OP, text)
}

#[derive(Debug, Clone, Copy)]
enum OpBody {
    Kernel(Kernel),
    User(UserFunction),
    UserLarge(UserFunctionLarge),
}

/// Function that applies an operation to elements of one datatype.
#[derive(Debug, Clone, Copy)]
pub struct Reducer {
    run: OpBody,
    commutes: bool,
    extent: i64,
    handle: usize,
}

impl Reducer {
    /// Returns whether the operation commutes.
    #[inline]
    pub fn commutes(&self) -> bool {
        self.commutes
    }

    /// Bytes from one element to the next.
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Computes `inout = left op inout` for each of `count` elements.
    ///
    /// # Safety
    /// Both buffers hold `count` elements of the datatype at its extent, `left` readable and `inout` writable. They do
    /// not overlap. No `RefCell` of the process is borrowed, because a user's function may call MPI.
    #[inline]
    pub unsafe fn apply(&self, left: *const u8, inout: *mut u8, count: u64) {
        if count == 0 {
            return;
        }
        match self.run {
            // SAFETY: both buffers hold `count` elements, by contract, and the kernel is for this datatype.
            OpBody::Kernel(kernel) => unsafe { kernel(left, inout, count as usize) },
            // SAFETY: both buffers hold `count` elements, by this function's contract.
            OpBody::User(f) => unsafe { self.call_in_pieces(f, left, inout, count) },
            OpBody::UserLarge(f) => {
                let (mut count, mut handle) = (count as i64, self.handle);
                // SAFETY: both buffers hold `count` elements, by this function's contract. The function is the user's.
                unsafe { f(left as *mut c_void, inout.cast(), &mut count, &mut handle) }
            }
        }
    }

    /// Calls a function with an `int` count as often as `count` requires. Safety: see [`Reducer::apply`].
    unsafe fn call_in_pieces(&self, f: UserFunction, left: *const u8, inout: *mut u8, count: u64) {
        let mut done = 0u64;
        while done < count {
            let mut piece = (count - done).min(i32::MAX as u64) as i32;
            let at = (done as i64).wrapping_mul(self.extent) as isize;
            let mut handle = self.handle;
            done += piece as u64;
            // SAFETY: elements `done..done + piece` lie `extent` apart inside both buffers. The program passed the
            // function to `MPI_Op_create` for such calls.
            unsafe {
                f(
                    left.wrapping_offset(at) as *mut c_void,
                    inout.wrapping_offset(at).cast(),
                    &mut piece,
                    &mut handle,
                )
            };
        }
    }
}

/// Inserts the predefined operations at their ABI handles.
pub fn register_predefined(ops: &HandleTable<Op>) {
    for builtin in Builtin::ALL {
        ops.insert_predefined(builtin.handle(), Op::builtin(builtin));
    }
}
