//! The toolbox behind the `fastpath` command: it measures, explains and diagnoses.

mod ablation;
mod bench;
pub mod cli;
mod compare;
#[cfg(test)]
mod fuzz;
mod instructions;
pub mod interrupt;
mod levels;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod program;
mod tune;
