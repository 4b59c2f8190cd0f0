//! `fastpath`: measures, explains and diagnoses.

use std::process::ExitCode;

use clap::Parser;
use fastpath_perf::cli::{Cli, Command};
use fastpath_perf::{cli, interrupt, output};

/// Of a comparison that fails; 1 says that something is worse.
const NOT_COMPARED: u8 = 2;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let compares = matches!(command, Command::Compare(_));
    match cli::run(command) {
        Ok(code) => ExitCode::from(code),
        Err(e) if output::is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fastpath: {e:#}");
            // As shells call the end by a signal.
            let ended =
                interrupt::find_request().and_then(|signal| u8::try_from(128 + signal).ok());
            match compares {
                true => ExitCode::from(NOT_COMPARED),
                false => ended.map_or(ExitCode::FAILURE, ExitCode::from),
            }
        }
    }
}
