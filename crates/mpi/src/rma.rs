//! One-sided communication (MPI 5.0, chapter 12).
//!
//! All ranks of a window make it together ([`create`]): each sends the others keys of its memory and of its control
//! words ([`control`]). The first access to a rank's memory determines how this process reaches it
//! ([`window::Window::reach`]):
//!
//! | access | memory | performed by |
//! |---|---|---|
//! | load and store | memory of `MPI_Win_allocate`, `MPI_Win_allocate_shared` or `MPI_Alloc_mem` on the same host | this process |
//! | copy by the kernel | other memory on the same host | this process |
//! | adapter | registered memory, over a reliable connection | this process and the adapter |
//! | messages | other memory | the target's progress |
//!
//! Puts and gets use the access of the memory. For accumulates, the origin takes the target's accumulate lock, reads,
//! combines and writes, whatever the access (`docs/decisions/0035-windows.md`). Window locks, post, start, complete and
//! wait are words that the origin changes by atomic operations, without the target's participation.

pub mod accumulate;
pub(crate) mod change;
mod check;
mod conflicts;
mod control;
pub(crate) mod counts;
pub mod create;
pub mod dynamic;
mod epoch;
pub(crate) mod error;
pub mod exposure;
pub mod fence;
pub mod hints;
pub mod hot;
pub mod hot_atomics;
pub mod hot_lock;
mod kept_lock;
pub(crate) mod left;
pub mod lock;
pub mod lock_all;
mod lock_word;
mod report;
mod request;
pub mod staged;
mod target;
pub mod transfer;
pub mod window;

pub use request::{rget, rput, rupdate};
