//! `fastpath`: measures, explains and diagnoses.

use std::process::ExitCode;

use clap::Parser;
use fastpath_perf::{cli, compare, doctor, interrupt, tune};

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Bench(what) => cli::run_bench(*what).map_err(|e| e.to_string()),
        cli::Command::Audit(options) => pipe(fastpath_perf::audit::run(&options)),
        cli::Command::Explain(options) => {
            fastpath_perf::explain::command::run(&options).map_err(|e| e.to_string())
        }
        cli::Command::Page(options) => pipe(fastpath_perf::html::run(&options)),
        cli::Command::Info(options) => pipe(cli::run_info(&options)),
        cli::Command::Compare(options) => {
            return match compare::run::run(&options) {
                Ok(code) => ExitCode::from(code),
                Err(e) => {
                    eprintln!("fastpath: {e}");
                    ExitCode::from(2)
                }
            };
        }
        cli::Command::Doctor(options) => match doctor::run(&options) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(e) => pipe(Err(e)),
        },
        cli::Command::Ps(options) => fastpath_perf::ps::run(&options),
        cli::Command::Tune(options) => tune::run(&options).map_err(|e| e.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fastpath: {e}");
            // As shells call the end by a signal.
            let ended =
                interrupt::find_request().and_then(|signal| u8::try_from(128 + signal).ok());
            ended.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// An error, unless it only says that whoever reads the output has seen enough.
fn pipe(result: std::io::Result<()>) -> Result<(), String> {
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| e.to_string()),
    }
}
