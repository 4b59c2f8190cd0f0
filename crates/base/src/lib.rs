//! Message passing at the speed of the cache line: what every layer stands on.
//!
//! | module | holds |
//! |---|---|
//! | [`sync`] | the atomics and fences, real ones or the model checker's |
//! | [`biased`] | a lock that costs plain instructions while one thread uses it |
//! | [`clock`] | nanoseconds of the monotonic clock |
//! | [`sleepers`] | threads of one process that sleep in one place, and who is woken |
//! | [`wait`] | futexes between processes, yielding, the expedited membarrier |
//! | [`topology`] | processors this process may use, cores, NUMA nodes, cgroup quota and memory |
//! | [`fd`] | descriptors that stay open, compared before use |
//! | [`heap`] | the library's allocator, with a report of failed allocations |
//! | [`float`] | the program's floating-point environment, kept from the library's arithmetic |
//! | [`hint`] | what the cache can be told about lines that others read |
//! | [`refusal`] | what to say where the kernel refuses a call or memory |
//! | [`config`] | the table of `FASTPATH_` variables and what they are set to |
//! | [`layout`] | where the bytes of a datatype lie, and packing by it |
//! | [`stored`] | files of what was measured of a machine |
//! | [`tell`] | lines for the user |
//! | [`thread`] | how threads of the library start |
//! | [`trace`] | time-stamped points in a ring per thread |

pub mod biased;
pub mod clock;
pub mod config;
pub mod copy;
pub mod fd;
pub mod float;
pub mod heap;
pub mod hint;
pub mod layout;
pub mod maps;
pub mod memory;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod random;
pub mod refusal;
pub mod sleepers;
pub mod stored;
pub mod sync;
pub mod tell;
pub mod thread;
pub mod topology;
pub mod trace;
pub mod wait;
