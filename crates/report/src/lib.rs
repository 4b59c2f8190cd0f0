//! Results of the toolbox: records, tables, documents, charts, HTML pages, JSON, and comparisons of stored results. All
//! products of the toolbox use this crate.

pub mod ablation;
pub mod catalogue;
mod cliffs;
pub mod compare;
pub mod data;
pub mod document;
pub mod files;
pub mod format;
#[cfg(test)]
mod fuzz;
pub mod headline;
pub mod html;
pub mod lists;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod output;
pub mod record;
mod scale;
pub mod screen;
pub mod statistics;
pub mod surroundings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod usage;
