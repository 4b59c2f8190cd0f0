//! `fastpath`: measures, explains and diagnoses.

use std::process::ExitCode;

use clap::Parser;
use fastpath_perf::cli;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Bench(what) => cli::run_bench(*what).map_err(|e| e.to_string()),
        cli::Command::Info(options) => match cli::run_info(&options) {
            // Whoever reads the output has seen enough.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| e.to_string()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fastpath: {e}");
            ExitCode::FAILURE
        }
    }
}
