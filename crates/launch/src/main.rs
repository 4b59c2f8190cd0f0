//! `mpiexec`: starts the ranks of a job, watches them, and cleans up after them.

mod agent;
mod args;
mod binding;
mod claims;
mod control;
mod deadlock;
mod engine;
mod environment;
mod foreign;
mod guard;
mod input;
mod launch;
mod limits;
mod metrics;
mod mpir;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod output;
mod own_process;
mod pattern;
mod placing;
mod poll;
mod program;
mod ranks;
mod report;
mod screen;
mod session_leader;
mod show;
mod signals;
mod singletons;
mod spawn;
mod start;
mod tools;
mod watch;
mod worlds;

use args::CommandRequest;
use fastpath_base::tell;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

const USAGE_CODE: i32 = 2;

fn main() {
    let here = args::ThisNode::new(fastpath_base::topology::host_name());
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match args::parse_args(words.iter().cloned(), &here) {
        Ok(CommandRequest::Help) => print_text(&args::write_help()),
        Ok(CommandRequest::Version) => {
            print_text(concat!("mpiexec (Fastpath) ", env!("BUILD_VERSION"), "\n"))
        }
        Ok(CommandRequest::Generate(folder)) => generate(&folder),
        Ok(CommandRequest::Run(spec)) => launch::run_job(&spec, &words),
        Err(e) => {
            screen::tell(&e.to_string());
            if words.first().is_some_and(|word| word == args::AGENT) {
                agent::end_job(USAGE_CODE);
            }
            USAGE_CODE
        }
    };
    std::process::exit(code);
}

/// Writes the manual page and the completions. Returns the exit code.
fn generate(folder: &Path) -> i32 {
    match args::write_files(folder) {
        Ok(()) => 0,
        Err(e) => {
            tell!("mpiexec: cannot write to {}: {e}", folder.display());
            1
        }
    }
}

/// Prints to standard output and returns the exit code. A closed pipe is not an error.
fn print_text(text: &str) -> i32 {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            tell!("mpiexec: cannot write to the standard output: {e}");
            1
        }
        _ => 0,
    }
}
