//! Persistent sends and receives (MPI-5.0 section 3.9). INSIDE is defined in `request.rs`.
#![allow(unsafe_code)]

use super::{Extra, Operation, PollCondition, find, keep_polled, make_foreign, pool};
use crate::common::consts::*;
use crate::common::error::{COMPLETE_FIRST, Error, Result};
use crate::objects::arguments::{Args, Mode};
use crate::objects::operation::Persistent;
use crate::p2p::slow;
use crate::process::Process;
use fastpath_protocol::request::RequestKind;
use std::rc::Rc;

/// `MPI_Send_init` and similar calls; `mode` is `None` for a receive.
pub fn make_persistent(
    p: &Process, call: &'static str, args: Args, mode: Option<Mode>,
) -> Result<usize> {
    let checked = match mode {
        Some(_) => slow::check_send(p, &args)?,
        None => slow::check_recv(p, &args)?,
    };
    let index = p.extras.insert(Extra::Persistent(Persistent {
        call,
        args,
        mode,
        checked: checked.map(Rc::new),
        active: None,
    }));
    make_foreign(p, index)
}

/// Makes a persistent request for an operation of the MPI layer, which [`Operation::start`] starts. Returns its handle.
pub fn make_persistent_operation(
    p: &Process, operation: Box<dyn Operation<Process>>,
) -> Result<usize> {
    let index = p.extras.insert(Extra::Operation {
        poll: Some(operation),
        result: None,
        watch: PollCondition::Named,
        polls: 0,
        started: Some(false),
        freed: false,
        made: super::operation::name_maker(p),
    });
    make_foreign(p, index)
}

fn start_operation(p: &Process, index: usize) -> Result {
    let taken = match p.extras.slots_mut().get_mut(index) {
        Some(Some(Extra::Operation { poll, started: Some(false), .. })) => poll.take(),
        _ => {
            let text = "the persistent request is active already";
            return Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST)));
        }
    };
    let Some(mut operation) = taken else {
        return Ok(());
    };
    let comm = operation.comm();
    match operation.start(p) {
        Ok(ended) => {
            if let Some(Some(Extra::Operation { started, .. })) =
                p.extras.slots_mut().get_mut(index)
            {
                *started = Some(true);
            }
            keep_polled(p, index, operation, ended);
            Ok(())
        }
        Err(error) => {
            if let Some(Some(Extra::Operation { poll, .. })) = p.extras.slots_mut().get_mut(index) {
                *poll = Some(operation);
            }
            Err(match comm {
                Some(comm) => error.on_comm(comm),
                None => error,
            })
        }
    }
}

/// `MPI_Start`.
pub fn start(p: &Process, handle: usize) -> Result {
    let id = find(p, handle)?;
    // SAFETY: INSIDE.
    let request = unsafe { (*pool(p)?).get(id) };
    let index = request.user;
    let foreign = request.kind == RequestKind::Foreign;
    let is_operation = matches!(
        p.extras.slots().get(index),
        Some(Some(Extra::Operation { started: Some(_), .. }))
    );
    if foreign && is_operation {
        return start_operation(p, index);
    }
    let (args, mode, checked) =
        match p.extras.slots().get(index) {
            Some(Some(Extra::Persistent(Persistent {
                active: None, args, mode, checked, ..
            }))) if foreign => (*args, *mode, checked.clone()),
            Some(Some(Extra::Persistent(Persistent { call, .. }))) if foreign => {
                let text = format!("the request of {call} is active already");
                return Err(Error::new(MPI_ERR_REQUEST, text).with_advice(Some(COMPLETE_FIRST)));
            }
            _ => {
                let advice = "start only requests of calls such as MPI_Send_init: the request of a \
                              nonblocking call is active already";
                let error = Error::new(MPI_ERR_REQUEST, "the request is not persistent");
                return Err(error.with_advice(Some(advice)));
            }
        };
    let checked = checked.as_deref();
    // SAFETY: the program promises that the buffer is valid between start and completion.
    let inner = unsafe {
        match mode {
            Some(mode) => slow::start_isend(p, checked, &args, mode),
            None => slow::start_irecv(p, checked, &args),
        }
    };
    let inner = inner.map_err(|error| error.on_comm(args.comm))?;
    if let Some(Some(Extra::Persistent(persistent))) = p.extras.slots_mut().get_mut(index) {
        persistent.active = Some(inner);
    }
    Ok(())
}
