//! One-sided communication (MPI 5.0, chapter 12).
//!
//! A window is made by its ranks together ([`create`]): each sends the others the key of its memory and that of a few
//! words for synchronisation ([`control`]). How a rank's memory is reached is determined when it is first accessed
//! ([`window::Window::reach`]) and kept:
//!
//! | way | memory | who does the work |
//! |---|---|---|
//! | load and store | of the same host, of `MPI_Win_allocate`, `MPI_Win_allocate_shared` or `MPI_Alloc_mem` | this process |
//! | the kernel's copy | any other of the same host | this process |
//! | adapter | registered, over a reliable connection | this process, the adapter |
//! | messages | any other | the target's progress |
//!
//! Puts and gets go the way of the memory. Accumulates are done by the origin on all ways: it takes the target's lock
//! of accumulates, reads, combines and writes (`docs/decisions/0035-windows.md`). Locks of windows, post, start,
//! complete and wait are words that the origin changes by atomic operations: a target takes part in none of them.

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
mod target;
pub mod transfer;
pub mod window;

pub use request::{rget, rput, rupdate};
