//! `fastpath`: measures, explains and diagnoses.

mod bench;
mod cli;
mod library;
mod measure;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Bench(what) => cli::run_bench(what),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fastpath: {e}");
            ExitCode::FAILURE
        }
    }
}
