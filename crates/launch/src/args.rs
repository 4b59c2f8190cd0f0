//! The command line of `mpiexec`.
//!
//! One table (`table.rs`) holds the names, the arguments, the effect and the help line of every option. `clap_lex`, the
//! lexer of clap, splits the words: clap itself does not support long options with one dash (`-genv`), which MPI
//! launchers have always had.

mod config;
mod failures;
mod generate;
mod help;
mod hosts;
mod output;
mod parse;
mod parser_state;
mod place;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod tool;
mod values;

pub use generate::write_files;
pub use help::write_help;
pub use hosts::{ThisNode, write_agent_words};
pub use parse::parse_args;
pub use parser_state::AGENT;
#[cfg(test)]
use spec::RankTool;
pub use spec::{
    App, Bind, Inherit, JobNodes, JobSpec, Node, Output, Placement, RankOrder, Stdin, TIMEOUT_CODE,
};

use fastpath_base::tell;
use fastpath_base::topology::Level;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
pub enum CommandRequest {
    Run(Box<JobSpec>),
    Help,
    Version,
    /// Write the manual page and the completions under this folder.
    Generate(PathBuf),
}

/// An invalid command line. The text gives the cause and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the error of an option that names a rank beyond the `total` ranks of the job.
fn refuse_rank<T>(option: &str, rank: usize, total: usize) -> Result<T, UsageError> {
    let total = tell::count(total as u64, "rank");
    wrong(format!("{option}: there is no rank {rank}; the job has {total}, numbered from 0"))
}

fn wrong<T>(text: String) -> Result<T, UsageError> {
    Err(UsageError(text))
}

pub trait Surroundings {
    /// Whether `name` is a name or an address of this node.
    fn is_here(&self, name: &str) -> bool;
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns a variable of the environment; None if it is unset or empty.
    fn variable(&self, name: &str) -> Option<String>;
    /// Returns the number of places of kind `level`, such as cores, at least 1. For [`Level::Thread`], returns the
    /// number of processors that may be used at once.
    fn count(&self, level: Level) -> usize;
}
