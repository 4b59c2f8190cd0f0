//! `MPI_Win_fence` (MPI 5.0, section 12.5.1).

use super::counts::RmaCounter;
use super::window::Window;
use super::{error, lock};
use crate::coll;
use crate::common::consts::*;
use crate::common::error::Result;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::trace::Point;

const KNOWN: i32 = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;

/// Barrier of the window's ranks.
pub(super) fn meet(p: &Process, window: &Window) -> Result {
    match coll::pair::meet(p, &window.comm)? {
        true => Ok(()),
        false => coll::meet(&Channel::next(p, &window.comm)),
    }
}

/// `MPI_Win_fence`. Errors: `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` inside another epoch. After the barrier, errors of
/// pending operations.
pub fn fence(p: &Process, window: &Window, assertion: i32) -> Result {
    lock::check_assertion(assertion, KNOWN)?;
    let may = window.epoch.borrow().may_fence();
    may.map_err(|refusal| error::refuse_epoch(window, None, refusal))?;
    let done = lock::complete_pending(p, window);
    meet(p, window)?;
    let more = assertion & MPI_MODE_NOSUCCEED == 0;
    if window.epoch.borrow().is_fenced() {
        window.record(Point::EpochEnds, 0, 0);
    }
    if !window.epoch.borrow_mut().fence(more) {
        window.close_all();
    }
    window.counts.add(RmaCounter::Epochs);
    if more {
        window.record(Point::EpochBegins, 0, 0);
    }
    done
}
