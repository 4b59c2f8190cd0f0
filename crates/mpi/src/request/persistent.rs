//! Persistent sends and receives (MPI-5.0 section 3.9).
#![allow(unsafe_code)]

use super::{Extra, find, make_foreign, pool};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::p2p::{Args, Mode};
use crate::p2p_slow as slow;
use crate::process::Process;
use fastpath_protocol::request::Kind;

/// A persistent send or receive.
pub(crate) struct Persistent {
    pub(super) call: &'static str,
    pub(super) args: Args,
    pub(super) mode: Option<Mode>,
    /// The started request, if one is active.
    pub(super) active: Option<usize>,
}

/// `MPI_Send_init` and its like; `mode` is `None` for a receive.
pub fn make_persistent(
    p: &Process,
    call: &'static str,
    args: Args,
    mode: Option<Mode>,
) -> Result<usize> {
    match mode {
        Some(_) => drop(slow::check_send(p, &args)?),
        None => drop(slow::check_recv(p, &args)?),
    }
    let index = p.extras.insert(Extra::Persistent(Persistent {
        call,
        args,
        mode,
        active: None,
    }));
    make_foreign(p, index)
}

/// `MPI_Start`.
pub fn start(p: &Process, handle: usize) -> Result {
    let id = find(p, handle)?;
    let request = pool(p)?.get(id);
    let index = request.user;
    let foreign = request.kind == Kind::Foreign;
    let (args, mode) = match p.extras.slots().get(index) {
        Some(Some(Extra::Persistent(Persistent {
            active: None,
            args,
            mode,
            ..
        }))) if foreign => (*args, *mode),
        Some(Some(Extra::Persistent(Persistent { call, .. }))) if foreign => {
            return Err(Error::new(
                MPI_ERR_REQUEST,
                format!("the request of {call} is active already"),
            ));
        }
        _ => return Err(Error::new(MPI_ERR_REQUEST, "the request is not persistent")),
    };
    // SAFETY: the program promises the buffer between start and completion.
    let inner = unsafe {
        match mode {
            Some(mode) => slow::isend_checked(p, &args, mode)?,
            None => slow::irecv_checked(p, &args)?,
        }
    };
    if let Some(Some(Extra::Persistent(persistent))) = p.extras.slots().get_mut(index) {
        persistent.active = Some(inner);
    }
    Ok(())
}
