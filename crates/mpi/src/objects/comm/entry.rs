//! Entry of a communicator in the tables of the immediate path.

use super::Comm;
use fastpath_protocol::Endpoint;

/// Entry of a communicator in the tables of the immediate path.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct HotComm {
    /// Key of the handle (`hot::key`) if sends may be immediate; otherwise 0.
    pub send_key: u64,
    /// Key of the handle (`hot::key`) if receives may be immediate; otherwise 0.
    pub recv_key: u64,
    /// Match key of messages that this process sends.
    pub own_key: u64,
    /// Match key of messages from rank 0. For rank r, add r.
    pub from_key: u64,
    /// Endpoint of each rank.
    pub endpoints: *const *mut Endpoint,
    /// World rank of each rank.
    pub world: *const u32,
    /// Number of valid ranks.
    pub size: u32,
    /// The communicator, for collective calls; null for an intercommunicator, and while collective calls are counted.
    pub comm: *const Comm,
}

const _: () = assert!(size_of::<HotComm>() == 64);
