//! Operations with a request (MPI 5.0, section 12.3.5).
//!
//! **ORIGIN AND RESULT.** The buffers are valid as `accumulate.rs` defines, until the request completes. Completion at
//! the target needs a synchronisation of the window.
#![allow(unsafe_code)]

use super::accumulate::{Update, update};
use super::hot::Sides;
use super::lock::{refuse, serve};
use super::transfer::{UnflushedTarget, is_over, transfer};
use super::window::Window;
use crate::common::error::Result;
use crate::common::status::Status;
use crate::p2p::request::{Operation, completed_request, empty_status, make_operation};
use crate::process::Process;
use std::rc::Rc;

struct UnderWay {
    window: Rc<Window>,
    rank: u32,
}

impl Operation<Process> for UnderWay {
    fn poll(&mut self, p: &Process) -> Option<Result<Status>> {
        match is_over(p, &self.window, self.rank) {
            Ok(false) => None,
            Ok(true) => Some(Ok(empty_status())),
            Err(error) => Some(Err(error)),
        }
    }
}

pub(super) fn check_epoch(p: &Process, win: usize) -> Result {
    let window = p.win(win)?;
    let may = window.epoch.borrow().may_request();
    refuse(&window, None, may)
}

pub(super) fn request_of(p: &Process, win: usize, begun: UnflushedTarget) -> Result<usize> {
    match begun {
        None => {
            serve(p, &*p.win(win)?)?;
            completed_request(p)
        }
        Some((window, rank)) => make_operation(p, Box::new(UnderWay { window, rank })),
    }
}

/// `MPI_Rput`. Errors: see [`super::transfer::put`].
///
/// # Safety
/// See ORIGIN AND RESULT, for the buffers of [`super::transfer::put`].
#[allow(unsafe_code)]
pub unsafe fn rput(p: &Process, sides: &Sides) -> Result<usize> {
    check_epoch(p, sides.win)?;
    // SAFETY: ORIGIN AND RESULT.
    request_of(p, sides.win, unsafe { transfer::<true>(p, sides, true) }?)
}

/// `MPI_Rget`. Errors: see [`super::transfer::get`].
///
/// # Safety
/// See ORIGIN AND RESULT, for the buffers of [`super::transfer::get`].
#[allow(unsafe_code)]
pub unsafe fn rget(p: &Process, sides: &Sides) -> Result<usize> {
    check_epoch(p, sides.win)?;
    // SAFETY: ORIGIN AND RESULT.
    request_of(p, sides.win, unsafe { transfer::<false>(p, sides, true) }?)
}

/// `MPI_Raccumulate` and `MPI_Rget_accumulate`. The operation is complete on return. Errors: see
/// [`super::accumulate::update`].
///
/// # Safety
/// See ORIGIN AND RESULT, for the buffers of [`super::accumulate::update`].
#[allow(unsafe_code)]
pub unsafe fn rupdate(p: &Process, asked: &Update) -> Result<usize> {
    check_epoch(p, asked.win)?;
    // SAFETY: ORIGIN AND RESULT.
    unsafe { update(p, asked, true)? };
    request_of(p, asked.win, None)
}
