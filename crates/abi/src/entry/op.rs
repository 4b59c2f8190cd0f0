//! Reduction operations (MPI 5.0, section 6.9).
//!
//! **ARGUMENTS.** What pointers among the arguments point to: see the module above.
#![allow(unsafe_code)]

use super::{load, store};
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::error::NOT_TO_BE_FREED;
use fastpath_mpi::objects::op::{Function, Op, UserFunction, UserFunctionLarge};
use fastpath_mpi::{Error, Process, Result};

/// `MPI_Op_create`
///
/// # Safety
/// `user_fn` is null or a function of that type.
pub unsafe fn op_create(p: &Process, user_fn: usize, commute: c_int) -> Result<usize> {
    // SAFETY: ARGUMENTS; the option of a function pointer has null for none.
    let function = unsafe { core::mem::transmute::<usize, Option<UserFunction>>(user_fn) };
    publish(p, function.map(Function::User), commute)
}

/// `MPI_Op_create_c`
///
/// # Safety
/// `user_fn` is null or a function of that type.
pub unsafe fn op_create_c(p: &Process, user_fn: usize, commute: c_int) -> Result<usize> {
    // SAFETY: ARGUMENTS; the option of a function pointer has null for none.
    let function = unsafe { core::mem::transmute::<usize, Option<UserFunctionLarge>>(user_fn) };
    publish(p, function.map(Function::UserLarge), commute)
}

fn publish(p: &Process, function: Option<Function>, commute: c_int) -> Result<usize> {
    let function = function.ok_or_else(|| Error::new(MPI_ERR_ARG, "user_fn is null"))?;
    p.ops.publish(Op::user(function, commute != 0))
}

/// `MPI_Op_free`
///
/// # Safety
/// `op` is null or a variable.
pub unsafe fn op_free(p: &Process, op: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let handle = unsafe { load(op) }?;
    if p.op(handle)?.is_predefined() {
        let text = "a predefined operation cannot be freed";
        return Err(Error::new(MPI_ERR_OP, text).with_advice(Some(NOT_TO_BE_FREED)));
    }
    p.ops.remove(handle);
    // SAFETY: ARGUMENTS.
    unsafe { store(op, MPI_OP_NULL) }
}

/// `MPI_Op_commutative`
pub fn op_commutative(p: &Process, op: usize) -> Result<c_int> {
    let commutes = p.op(op)?.commutes();
    Ok(c_int::from(commutes))
}
