//! One-sided operations: put, get and atomics on memory that its owner has exposed.
//!
//! The owner exposes memory (`Worker::expose_memory`) and sends the packed key to its peers. A peer unpacks it
//! (`Worker::unpack_key`) to a `RemoteKey`, for which lane and access path are decided once. Every operation compares
//! one number to detect changed lanes, checks its bounds and uses that path:
//!
//! | path | memory | complete at the peer |
//! |---|---|---|
//! | load-store | memory of the arena of a rank of this host; own memory | when the call returns |
//! | kernel | any memory of a rank of this host (CMA); a few bytes by its owner, while the owner is inside MPI ([`ask`]) | when the call returns |
//! | adapter | registered memory, by a reliable connection: short, bcopy or zcopy by size | at a flush |
//! | messages | any other memory: active messages, which the owner handles when it makes progress | at a flush |
//!
//! A nonblocking operation is queued only if there is no space, or if it needs several transport operations
//! (`rma::RmaCounters::queued`). A flush completes all operations posted to a peer. Atomics are performed by a
//! processor, on every lane (`docs/decisions/0015-atomics-are-done-by-processors.md`).

mod ask;
mod atomic;
mod blocking;
mod blocks;
mod flush;
mod handle;
mod locked;
mod post;
mod queue;
mod reached;
mod region;
mod resolve;
