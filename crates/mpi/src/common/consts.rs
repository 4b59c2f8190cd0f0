//! Constants of the standard ABI, generated from the table of `fastpath-abigen`. Integers are `i32`; handles and other
//! values of pointer type are `usize`.

include!(concat!(env!("OUT_DIR"), "/consts.rs"));

/// Error class of extensions: the operation needs a process that has died.
pub const MPIX_ERR_PROC_FAILED: i32 = 16301;
/// Error class of extensions: a receive from any source waits, and a possible source has died.
pub const MPIX_ERR_PROC_FAILED_PENDING: i32 = 16302;
/// Error class of extensions: the communicator was revoked.
pub const MPIX_ERR_REVOKED: i32 = 16303;
/// Attribute key of extensions: whether the job tolerates failures.
pub const MPIX_FT: i32 = 16301;
