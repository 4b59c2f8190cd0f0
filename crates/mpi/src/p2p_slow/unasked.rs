//! Blocking sends beyond a slot that the hot tables are enough for: what leaves at once, and what its receiver fetches.
#![allow(unsafe_code)]

use super::{explain, note, wait_complete};
use crate::error::Result;
use crate::hot;
use crate::p2p::Args;
use crate::process;
use fastpath_protocol::Fault;
use fastpath_protocol::fetch::{Announced, Middle};
use fastpath_protocol::worker::EARLY_LIMIT;
use fastpath_transport::Post;

/// Waits until an announced message has been fetched.
///
/// # Safety
/// Its buffer is readable until then.
pub(super) unsafe fn end_fetch(name: &'static str, args: &Args, message: Announced) -> Result {
    let worker = hot::worker();
    // SAFETY: the worker lives while MPI runs; no reference to it outlives a statement.
    unsafe {
        if (*worker).await_fetched(message) {
            return Ok(());
        }
        let p = process::enter(name, false)?;
        let comm = p.comm(args.comm)?;
        let bytes = (*worker).requests.get(message.id).bytes;
        wait_complete(worker, message.id, &note(name, &comm, args, bytes));
        (*worker).note_late(message.id);
        let fault = (*worker).requests.get(message.id).fault;
        (*worker).requests.free(message.id);
        match fault {
            Fault::None => Ok(()),
            fault => Err(explain(fault, args, bytes, 0)),
        }
    }
}

/// Sends a contiguous message of up to some transport buffers with nothing but the hot tables, or does
/// nothing.
#[inline]
pub(super) unsafe fn try_send_buffered(args: &Args) -> Middle {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let bytes = (args.count as u64).wrapping_mul(datatype.size);
    let plain = comm.send_key == args.comm as u64
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count as u64 <= EARLY_LIMIT
        && args.tag >= 0
        && !args.buf.is_null();
    if !plain {
        return Middle::Declined;
    }
    // SAFETY: as in `p2p::try_send`.
    unsafe {
        let worker = hot::worker();
        let peer = *comm.world.add(args.peer as usize);
        if bytes >= (*worker).thresholds.middle {
            let sent = (*worker).send_middle(peer, comm.own_key, args.tag, args.buf, bytes);
            if sent != Middle::Declined {
                return sent;
            }
        }
        match (*worker).send_now(peer, comm.own_key, args.tag, args.buf, bytes) {
            Post::Done => Middle::Sent,
            _ => Middle::Declined,
        }
    }
}
