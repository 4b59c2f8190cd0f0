//! `fastpath`: measures, explains and diagnoses.

mod cli;
mod examples;
mod generate;

use std::io::{self, Write};
use std::process::ExitCode;

use fastpath_base::tell;
use fastpath_bench::interrupt;
use fastpath_report::{output, surroundings};

use cli::Command;

/// Exit code of a failed comparison; 1 means that something is worse.
const NOT_COMPARED: u8 = 2;

/// Prints help, version or a usage error; returns the exit code. A failure to print help is an error, unless its reader
/// has closed the pipe.
fn print_usage(usage: &clap::Error) -> ExitCode {
    let code = u8::try_from(usage.exit_code()).unwrap_or(1);
    match usage.print().and_then(|()| io::stdout().flush()) {
        Err(e) if code == 0 && e.kind() != io::ErrorKind::BrokenPipe => {
            tell!("fastpath: cannot write to the standard output: {e}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(code),
    }
}

fn main() -> ExitCode {
    surroundings::set_version(env!("BUILD_VERSION"));
    let command = match cli::parse() {
        Ok(line) => line.command,
        Err(e) => return print_usage(&e),
    };
    let compares = matches!(command, Command::Compare(_));
    match cli::run(command) {
        Ok(code) => ExitCode::from(code),
        Err(e) if output::is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            // Further lines, such as a compiler's, are indented, so that none looks like one of this tool's own.
            tell::lines(&format!("fastpath: {}\n", format!("{e:#}").replace('\n', "\n  ")));
            // Use the exit code that shells report for a signal: 128 plus its number.
            let ended =
                interrupt::find_request().and_then(|signal| u8::try_from(128 + signal).ok());
            match compares {
                true => ExitCode::from(NOT_COMPARED),
                false => ended.map_or(ExitCode::FAILURE, ExitCode::from),
            }
        }
    }
}
