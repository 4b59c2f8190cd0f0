//! The toolbox behind the `fastpath` command: it measures, explains and diagnoses.

pub mod ablation;
pub mod audit;
pub mod bench;
pub mod catalogue;
pub mod cli;
pub mod cliffs;
pub mod compare;
mod data;
pub mod doctor;
pub mod document;
pub mod explain;
mod files;
#[cfg(test)]
mod fuzz;
pub mod html;
pub mod info;
pub mod instructions;
pub mod interrupt;
pub mod levels;
pub mod library;
mod lists;
pub mod measure;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod on_hosts;
pub mod output;
pub mod program;
pub mod ps;
pub mod record;
pub mod tune;
