//! The toolbox behind the `fastpath` command: it measures, explains and diagnoses.

mod ablation;
mod bench;
pub mod cli;
mod compare;
mod doctor;
#[cfg(test)]
mod fuzz;
mod info;
mod instructions;
pub mod interrupt;
mod levels;
mod library;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod on_hosts;
mod program;
mod ps;
mod tune;
