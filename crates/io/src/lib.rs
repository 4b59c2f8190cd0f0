//! Files below MPI: the bytes of a file that a view selects, and the system calls that move them.
//!
//! [`View`] is pure and computes the locations of an access's bytes. [`Descriptor`] performs accesses, and repeats
//! calls that are interrupted or short. An error names the failed operation and its bytes.

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

pub use counters::{Counter, IoCounters, PROCESS};
pub use descriptor::{Descriptor, Lock, Opening, delete};
pub use error::{Action, IoError};
pub use lustre::Striping;
pub use plan::{AccessPlan, RankAccess, Switch, Tuning};
pub use regular::Sieve;
pub use runs::{Coverage, RUN_WORDS, StridedRun};
pub use scattered::ScatteredAccess;
pub use view::View;
