//! Wire format of one-sided operations by messages, and destinations of answers.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `REMOTE_PUT` | 0 | 0 | [`RegionOffset`], then the bytes |
//! | `REMOTE_GET` | bytes requested | token | [`RegionOffset`] |
//! | `REMOTE_PUT_BLOCKS` | number of blocks | 0 | region, a word for each block ([`super::blocks`]), then the bytes |
//! | `REMOTE_GET_BLOCKS` | bytes requested | token | region, a word for each block |
//! | `REMOTE_ATOMIC` | [`ADD`], [`SWAP`] or [`MASKED_ADD`] | token | [`AtomicChange`] |
//! | `REMOTE_CHANGE` | bytes to change, and from bit 16 bytes of the answer | token | [`LockedChange`], then the operand |
//! | `REMOTE_DATA` | 0, or 1 for refused | token | the bytes, or the previous contents; for a `REMOTE_CHANGE` first a word that is 0 if nothing was changed |
//! | `REMOTE_FLUSH` | 0 | number of puts so far | none |
//! | `REMOTE_FLUSHED` | puts refused since the last answer | number of puts in the `REMOTE_FLUSH` | none: those puts are complete |

pub(crate) const ADD: u32 = 0;
pub(crate) const SWAP: u32 = 1;
/// `REMOTE_ATOMIC`: add to each field; `compare` has the highest bit of each field.
pub(crate) const MASKED_ADD: u32 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionOffset {
    pub region: u64,
    pub offset: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtomicChange {
    pub place: RegionOffset,
    pub operand: u64,
    pub compare: u64,
}

/// Change that the layer above understands, with the lock word that the owner holds meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockedChange {
    pub place: RegionOffset,
    pub lock: RegionOffset,
    pub change: u64,
}

const _: () = assert!(size_of::<LockedChange>() == 40);
const _: () = assert!(size_of::<RegionOffset>() == 16 && size_of::<AtomicChange>() == 32);

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyTarget {
    pub peer: u32,
    pub to: *mut u8,
    pub len: usize,
}
