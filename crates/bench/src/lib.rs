//! Measurements: `fastpath bench`, `compare` and `tune`, the programs in C that they run, and the levels of the library
//! below MPI.

pub mod ablation;
pub mod bench;
pub mod compare;
#[cfg(test)]
mod fuzz;
pub mod instructions;
pub mod interrupt;
pub mod levels;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod options;
mod peers;
mod program;
mod result_files;
pub mod tune;
