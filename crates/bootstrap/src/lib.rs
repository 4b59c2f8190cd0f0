//! Who am I, who are the others: the job, its node segment, and how a process finds them.
//!
//! | module | holds |
//! |---|---|
//! | [`engine`] | launchers that are not ours: PMI-1, PMIx |
//! | [`segment`] | the memory that the ranks of a node share: layout, creation, mapping, backing |
//! | [`job`] | the job as one rank sees it: rank, size, pages of the others, records of failure |
//! | [`network`] | what a rank needs to be reached over the network |
//! | [`control`] | what ranks and the launcher say to each other while the job runs |
//! | [`program`] | finding a program before it is started |
//! | [`inspect`] | what can be seen of a running job from outside |
//! | [`trace`] | where the ranks' points are recorded, and the file they are merged into |

pub mod control;
pub mod engine;
pub mod inspect;
pub mod job;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod network;
pub mod program;
pub mod segment;
pub mod trace;

pub use job::{BootstrapError, Job};
