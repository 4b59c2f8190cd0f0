//! `MPIX_Comm_iagree` and `MPIX_Comm_ishrink`.
#![allow(unsafe_code)]

use super::{agreement, shrink};
use crate::common::error::Result;
use crate::common::status::Status;
use crate::objects::comm::Comm;
use crate::p2p::request::{self, Operation, PollCondition};
use crate::process::Process;
use agreement::StartedAgreement;
use shrink::ReservedContexts;
use std::ffi::c_int;
use std::rc::Rc;

enum Purpose {
    /// Address of the flag.
    Agree(*mut c_int),
    /// Address of the handle of the new communicator.
    Shrink(*mut usize, ReservedContexts),
}

struct AgreementOperation {
    comm: Rc<Comm>,
    started: StartedAgreement,
    purpose: Purpose,
    began: &'static str,
}

impl Operation<Process> for AgreementOperation {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        let (decision, dead) = agreement::take(p, self.started)?;
        let outcome = match &self.purpose {
            Purpose::Agree(flag) => {
                agreement::conclude(p, &self.comm, &decision, &dead).and_then(|(value, outcome)| {
                    // SAFETY: the variable is valid until the request completes, by the call's contract.
                    unsafe { flag.write(value) };
                    outcome
                })
            }
            Purpose::Shrink(newcomm, reserved) => {
                shrink::conclude(p, &self.comm, reserved, &decision, &dead).map(|made| {
                    // SAFETY: the variable is valid until the request completes, by the call's contract.
                    unsafe { newcomm.write(made) };
                })
            }
        };
        Some(outcome.map(|()| request::empty_status()))
    }

    fn watch(&self) -> PollCondition {
        PollCondition::Always
    }

    fn began(&self) -> &'static str {
        self.began
    }

    fn comm(&self) -> Option<usize> {
        Some(self.comm.handle.get())
    }
}

/// `MPIX_Comm_iagree`. Returns the handle of the request.
///
/// # Safety
/// `flag` is readable, and writable until the request completes.
pub unsafe fn start_agree(p: &Process, comm: Rc<Comm>, flag: *mut c_int) -> Result<usize> {
    // SAFETY: by the contract of this function.
    let value = unsafe { flag.read() };
    let started = agreement::start(p, &comm, agreement::pack_flag(p, &comm, value), 0)?;
    let purpose = Purpose::Agree(flag);
    let began = p.call.get();
    request::make_operation(p, Box::new(AgreementOperation { comm, started, purpose, began }))
}

/// `MPIX_Comm_ishrink`. Returns the handle of the request.
///
/// # Safety
/// `newcomm` is writable until the request completes.
pub unsafe fn start_shrink(p: &Process, comm: Rc<Comm>, newcomm: *mut usize) -> Result<usize> {
    let reserved = shrink::reserve(p, &comm);
    let started = shrink::start(p, &comm, &reserved)?;
    let purpose = Purpose::Shrink(newcomm, reserved);
    let began = p.call.get();
    request::make_operation(p, Box::new(AgreementOperation { comm, started, purpose, began }))
}
