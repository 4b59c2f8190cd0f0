//! The software way as it travels: what the active messages carry, and where answers belong.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `REMOTE_PUT` | 0 | 0 | [`RegionOffset`], then the bytes |
//! | `REMOTE_GET` | bytes wanted | token | [`RegionOffset`] |
//! | `REMOTE_ATOMIC` | [`ADD`], [`SWAP`] or [`MASKED_ADD`] | token | [`AtomicChange`] |
//! | `REMOTE_CHANGE` | bytes to change, and from bit 16 on bytes of the answer | token | [`LockedChange`], then the operand |
//! | `REMOTE_DATA` | 0, or 1 for refused | token | the bytes, or what was there before; of a `REMOTE_CHANGE` a word that says whether it was made, then what was there |
//! | `REMOTE_FLUSH` | 0 | number of puts so far | none |
//! | `REMOTE_FLUSHED` | puts refused since the last answer | the same number | none: those puts have been carried out |

/// `REMOTE_ATOMIC`: add.
pub(super) const ADD: u32 = 0;
/// `REMOTE_ATOMIC`: compare and swap.
pub(super) const SWAP: u32 = 1;
/// `REMOTE_ATOMIC`: add to each of the fields whose highest bits are set in `compare`.
pub(super) const MASKED_ADD: u32 = 2;

/// Where in the owner's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionOffset {
    pub region: u64,
    pub offset: u64,
}

/// What an atomic does.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AtomicChange {
    pub place: RegionOffset,
    pub operand: u64,
    pub compare: u64,
}

/// A change that the layer above understands, and the word that its owner holds meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct LockedChange {
    pub place: RegionOffset,
    pub lock: RegionOffset,
    pub change: u64,
}

const _: () = assert!(size_of::<LockedChange>() == 40);
const _: () = assert!(size_of::<RegionOffset>() == 16 && size_of::<AtomicChange>() == 32);

/// Where an answer belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Landing {
    pub peer: u32,
    pub to: *mut u8,
    pub len: usize,
}
