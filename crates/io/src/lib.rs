//! Files below MPI: which bytes of a file a view shows, and the system calls that move them.
//!
//! [`View`] is pure: it says where the bytes of an access lie. [`Descriptor`] carries accesses out: whole, after
//! interruptions and short transfers, or with an error that says what was done to which bytes.

mod counters;
mod descriptor;
mod error;
mod guard;
mod lustre;
mod mapping;
mod plan;
mod regular;
mod runs;
mod scattered;
mod system;
mod transfer;
mod view;

pub use counters::{Counter, Counters, PROCESS};
pub use descriptor::{Descriptor, Lock, Opening, delete};
pub use error::{Action, IoError};
pub use lustre::Striping;
pub use plan::{Plan, Share, Switch, Tuning};
pub use runs::{Coverage, RUN_WORDS, Run};
pub use scattered::Scattered;
pub use transfer::Sieve;
pub use view::View;
