//! A communicator as the immediate path sees it.

use super::Comm;
use fastpath_protocol::Endpoint;

/// A communicator as the immediate path sees it.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct HotComm {
    /// The handle, where sends may be immediate.
    pub send_key: u64,
    /// The handle, where receives may be immediate.
    pub recv_key: u64,
    /// Match key of messages that this process sends.
    pub own_key: u64,
    /// Match key of messages from rank 0; from rank r it is this plus r.
    pub from_key: u64,
    /// Endpoint of each rank.
    pub endpoints: *const *mut Endpoint,
    /// World rank of each rank.
    pub world: *const u32,
    /// Number of ranks that can be named.
    pub size: u32,
    /// Which of the process's workers carries its messages between two ranks: 0, the first, or a further one.
    pub place: u32,
    /// The communicator, for collective calls; null for an intercommunicator, and where such calls are counted.
    pub comm: *const Comm,
}

const _: () = assert!(size_of::<HotComm>() == 64);
