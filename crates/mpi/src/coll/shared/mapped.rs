//! Shared buffers of a communicator.

use super::super::mapping::map_members;
use crate::common::error::Result;
use crate::objects::shared_buffers::{BUFFER_BYTES, BYTES, MappedBuffers, SharedBuffers};
use crate::p2p::channel::Channel;

/// Maximum number of members. Each maps the memory of all.
const MOST_RANKS: u32 = 256;

/// Returns whether the channel's communicator may have buffers: few ranks, on one host, and no earlier failure to map.
#[inline]
pub(in super::super) fn may_be_there(f: &Channel<'_>) -> bool {
    let has_failed = || matches!(f.comm.mapped.get(), Some(None));
    (3..=MOST_RANKS).contains(&f.comm.size()) && !has_failed() && f.comm.nodes(f.process).is_none()
}

/// Returns the buffers of the channel's communicator. The first call makes them; `None` if a member cannot make its
/// own. Errors: those of communication.
pub(in super::super) fn buffers<'a>(f: &Channel<'a>) -> Result<Option<&'a SharedBuffers>> {
    let comm = f.comm;
    if comm.mapped.get().is_none() {
        let regions = map_members(f, BYTES, true)?;
        _ = comm.mapped.set(regions.map(|regions| {
            Box::new(MappedBuffers {
                buffers: SharedBuffers::new(regions.firsts, BUFFER_BYTES),
                own: regions.own,
                _keys: regions.keys,
            })
        }));
    }
    let mapped = comm.mapped.get().and_then(Option::as_deref);
    Ok(mapped.map(|mapped| &mapped.buffers))
}
