//! The job: how a process finds its rank in a job, and what it knows of the other ranks.
//!
//! | module | contents |
//! |---|---|
//! | [`Identity`], [`Origin`] | identity of a rank for its launcher, and for all jobs |
//! | [`parent`] | variable by which a spawned job finds its parent |
//! | [`network`] | sockets and addresses of ranks |
//! | [`control`] | messages between ranks and the launcher of a running job |
//! | [`program`] | search for a program before it is started |
//! | [`inspect`] | inspection of a running job from outside |
//! | [`detect`] | detection of the launcher that started this process |
//! | [`engine`] | launchers that are not ours: PMI-1, PMIx |
//! | `node` | ranks of a node under an engine: meeting, and detection of deaths |
//! | [`Job`] | the job as seen by one rank: rank, size, pages of the others, failures |
//! | [`trace`] | recording of points, and the merged file |
//!
//! Crate `segment` has the memory of the job.

pub mod control;
pub mod detect;
pub mod engine;
mod foreign;
mod identity;
pub mod inspect;
mod job;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod network;
mod node;
pub mod parent;
mod poll;
pub mod program;
pub mod socket;
pub mod trace;

pub use detect::{describe_copies, describe_start, find_mpiexec, find_place, is_identity};
pub use foreign::{ForeignNumbers, number_host};
pub use identity::{Identity, JOB_VARIABLE, Origin, random_job_id};
pub use job::{BootstrapError, Job};
pub use node::exit_code;
pub use parent::PARENT_VARIABLE;
