//! The command line of `mpiexec`.
//!
//! One table (`table.rs`) holds every option: its names, the words that follow it, what it does and
//! its line in the help. The words are split by `clap_lex`, the lexer of clap: clap itself knows no
//! long options with one dash (`-genv`), which MPI launchers have always had.

mod config;
mod help;
mod hosts;
mod output;
mod parse;
mod place;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod values;

pub use help::write_help;
pub use hosts::{ThisNode, write_agent_words};
pub use parse::{AGENT, parse_args};
pub use spec::{App, Bind, Inherit, JobSpec, Node, Nodes, Output, Placement, Rank, Stdin};

use fastpath_base::topology::Level;
use std::fmt;
use std::io;
use std::path::Path;

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a job.
    Run(Box<JobSpec>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// A command line that cannot be understood; the text says what and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn wrong<T>(text: String) -> Result<T, UsageError> {
    Err(UsageError(text))
}

/// What a command line may ask of the machine it is typed on.
pub trait Surroundings {
    /// Is this a name or an address of this node?
    fn is_here(&self, name: &str) -> bool;
    /// The text of a file.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// A variable of the environment; None where it is not set or empty.
    fn variable(&self, name: &str) -> Option<String>;
    /// How many places of this kind there are; at least 1. For [`Level::Thread`] the processors that may
    /// be used at once.
    fn count(&self, level: Level) -> usize;
}
