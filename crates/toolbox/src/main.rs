//! `fastpath`: measures, explains and diagnoses.

mod cli;
mod examples;
mod generate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::ContextValue;
use fastpath_base::tell;
use fastpath_bench::interrupt;
use fastpath_report::usage::UsageError;
use fastpath_report::{output, surroundings};

use cli::Command;

/// Exit code of a failed comparison; 1 means that something is worse.
const NOT_COMPARED: u8 = 2;

/// Exit code of a usage error, which is also that of the parser of the command line.
const USAGE: u8 = 2;

/// Escapes the control characters of arguments in a usage error, so that no argument controls the terminal.
fn escape_arguments(usage: &mut clap::Error) {
    let escape = |text: &String| tell::escape(text).into_owned();
    let has_control = usage.context().any(|(_, value)| match value {
        ContextValue::String(text) => escape(text) != *text,
        ContextValue::Strings(all) => all.iter().any(|text| escape(text) != *text),
        _ => false,
    });
    // A tip repeats the argument between escape sequences of its own. Without them, those of the argument are gone too.
    let plain = |text: &StyledStr| StyledStr::from(escape(&text.to_string()));
    let escaped: Vec<_> = usage
        .context()
        .filter_map(|(kind, value)| {
            let value = match value {
                ContextValue::String(text) => ContextValue::String(escape(text)),
                ContextValue::Strings(all) => {
                    ContextValue::Strings(all.iter().map(escape).collect())
                }
                ContextValue::StyledStrs(all) if has_control => {
                    ContextValue::StyledStrs(all.iter().map(plain).collect())
                }
                _ => return None,
            };
            Some((kind, value))
        })
        .collect();
    for (kind, value) in escaped {
        usage.insert(kind, value);
    }
}

/// Prints help, version or a usage error; returns the exit code. A failure to print help is an error, unless its reader
/// has closed the pipe.
fn print_usage(mut usage: clap::Error) -> ExitCode {
    escape_arguments(&mut usage);
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
        Err(e) => return print_usage(e),
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
                false if UsageError::is_cause_of(&e) => ExitCode::from(USAGE),
                false => ended.map_or(ExitCode::FAILURE, ExitCode::from),
            }
        }
    }
}
