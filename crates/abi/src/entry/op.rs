//! Reduction operations (MPI 5.0, section 6.9).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, store};
use core::ffi::c_int;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::common::error::NOT_TO_BE_FREED;
use fastpath_mpi::objects::op::{Op, OpFunction, UserFunction, UserFunctionLarge};
use fastpath_mpi::{Error, Process, Result};

/// # Safety
/// `user_fn` is null or an `MPI_User_function`.
pub unsafe fn op_create(p: &Process, user_fn: usize, commute: c_int) -> Result<usize> {
    // SAFETY: ARGUMENTS; null is the `None` of a function pointer's option.
    let function = unsafe { core::mem::transmute::<usize, Option<UserFunction>>(user_fn) };
    publish(p, function.map(OpFunction::User), commute)
}

/// # Safety
/// `user_fn` is null or an `MPI_User_function_c`.
pub unsafe fn op_create_c(p: &Process, user_fn: usize, commute: c_int) -> Result<usize> {
    // SAFETY: ARGUMENTS; null is the `None` of a function pointer's option.
    let function = unsafe { core::mem::transmute::<usize, Option<UserFunctionLarge>>(user_fn) };
    publish(p, function.map(OpFunction::UserLarge), commute)
}

fn publish(p: &Process, function: Option<OpFunction>, commute: c_int) -> Result<usize> {
    let function =
        function.ok_or_else(|| Error::new(MPI_ERR_ARG, "user_fn is NULL: pass a function"))?;
    p.ops.publish(Op::user(function, commute != 0))
}

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

pub fn op_commutative(p: &Process, op: usize) -> Result<c_int> {
    let commutes = p.op(op)?.commutes();
    Ok(c_int::from(commutes))
}
