//! Immediate sends of messages longer than a slot, by the hot tables. USER'S BUFFER is defined in `slow.rs`.
#![allow(unsafe_code)]

use crate::objects::arguments::Args;
use crate::objects::datatype::is_memory;
use crate::objects::hot;
use fastpath_protocol::wire::EARLY_LIMIT;
use fastpath_transport::Post;

/// Sends a contiguous message of up to a few transport buffers by the hot tables. Returns whether it was sent.
///
/// # Safety
/// See USER'S BUFFER in the parent module.
#[inline]
pub unsafe fn try_send_eager<const WAY: u8>(args: Args) -> bool {
    let comm = hot::comm(args.comm);
    let datatype = hot::datatype(args.datatype);
    let bytes = (args.count as u64).wrapping_mul(datatype.size);
    let plain = comm.send_key == hot::key::<WAY>(args.comm)
        && datatype.key == args.datatype as u64
        && (args.peer as u32) < comm.size
        && args.count as u64 <= EARLY_LIMIT
        && args.tag >= 0
        && is_memory(args.buf);
    if !plain {
        return false;
    }
    // SAFETY: the key matches, so worker and world rank exist. The caller promises a readable buffer.
    unsafe {
        let peer = *comm.world.add(args.peer as usize);
        let post =
            (*hot::worker_of::<WAY>()).send_now(peer, comm.own_key, args.tag, args.buf, bytes);
        post == Post::Done
    }
}
