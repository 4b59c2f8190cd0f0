//! Foundations of every layer: atomics, clock, copies, datatype layouts, waiting, processors, settings.
//!
//! | module | contents |
//! |---|---|
//! | [`sync`] | atomics and fences, the processor's or the model checker's |
//! | [`biased`] | a lock that costs plain instructions while one thread uses it |
//! | [`code`] | the loaded object at an address, and the address ranges of this library |
//! | [`clock`] | nanoseconds of the monotonic clock |
//! | [`sleepers`] | sleeping threads of a process, and which one to wake |
//! | [`wait`] | futexes between processes, yielding, the expedited membarrier |
//! | [`topology`] | usable processors, cores, NUMA nodes, cgroup quota and memory |
//! | [`device`] | memory of devices: recognition of pointers, copies by the driver |
//! | [`fd`] | descriptors that stay open, compared before use |
//! | [`exit`] | values that live until the library drops them at the exit of the process |
//! | [`entropy`] | random bytes of the system, for secrets |
//! | [`heap`] | the library's allocator, with a report of failed allocations |
//! | [`float`] | the program's floating-point environment, kept from the library's arithmetic |
//! | [`hint`] | cache hints for lines that other processors read |
//! | [`refusal`] | texts for calls and memory that the kernel refuses |
//! | [`config`] | the table of `FASTPATH_` variables, and their values |
//! | [`layout`] | datatype layouts, and packing by them |
//! | [`stored`] | files of measured constants of a machine |
//! | [`tell`] | messages to the user |
//! | [`thread`] | start of the library's threads |
//! | [`trace`] | time-stamped points in a ring per thread |

pub mod biased;
pub mod clock;
pub mod code;
pub mod config;
pub mod copy;
pub mod device;
pub mod entropy;
pub mod exit;
pub mod fd;
pub mod float;
pub mod heap;
pub mod hint;
pub mod host_topology;
pub mod layout;
mod loaded_objects;
pub mod maps;
pub mod memory;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod race_detector;
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
