//! The toolbox behind the `fastpath` command: it measures, explains and diagnoses.

mod ablation;
mod audit;
mod bench;
mod catalogue;
pub mod cli;
mod cliffs;
mod compare;
mod data;
mod doctor;
mod document;
pub mod explain;
mod files;
#[cfg(test)]
mod fuzz;
mod html;
mod info;
mod instructions;
pub mod interrupt;
mod levels;
mod library;
mod lists;
mod measure;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod on_hosts;
pub mod output;
mod program;
mod ps;
pub mod record;
mod tune;
