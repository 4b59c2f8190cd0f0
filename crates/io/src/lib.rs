//! Files below MPI: which bytes of a file a view shows, and the system calls that move them.
//!
//! [`View`] is pure: it says where the bytes of an access lie. [`Descriptor`] carries accesses out: whole, after
//! interruptions and short transfers, or with an error that says what was done to which bytes.

mod descriptor;
mod error;
mod mapping;
mod transfer;
mod view;

pub use descriptor::{Descriptor, Lock, Opening, delete};
pub use error::{Action, IoError};
pub use view::View;
