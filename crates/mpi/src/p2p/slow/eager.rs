//! Sends beyond a slot that the hot tables are enough for: what leaves at once.
#![allow(unsafe_code)]

use crate::objects::arguments::Args;
use crate::objects::datatype::is_memory;
use crate::objects::hot;
use fastpath_protocol::worker::EARLY_LIMIT;
use fastpath_transport::Post;

/// Sends a contiguous message of up to some transport buffers with nothing but the hot tables, or does
/// nothing and returns false.
///
/// # Safety
/// The buffer is readable as count and datatype say.
#[inline]
pub unsafe fn try_send_eager<const WAY: u8>(args: Args) -> bool {
    let comm = hot::entry::<WAY>(args.comm, args.peer, args.tag);
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
    // SAFETY: as in `p2p::try_send`.
    unsafe {
        let peer = *comm.world.add(args.peer as usize);
        let post =
            (*hot::worker_of::<WAY>(comm)).send_now(peer, comm.own_key, args.tag, args.buf, bytes);
        post == Post::Done
    }
}
