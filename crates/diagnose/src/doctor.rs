//! `fastpath doctor`: checks this machine for RDMA and for jobs on several hosts, and reports problems with remedies.
//! With `--host`, checks the connections between several hosts ([`hosts`]).
//!
//! The kernel's view comes from sysfs. The verbs library's view comes from the library itself. The process's memory map
//! has the file of the library and the files of the providers that it loaded.

mod devices;
mod diagnostics;
mod engines;
mod hosts;
mod library;
mod limits;
mod show;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use clap::Args;
use fastpath_base::config::Config;
use fastpath_job::engine::abort_job;
use fastpath_report::document;
use serde::Serialize;

use crate::info::transports;
use crate::on_hosts::HostOptions;

use devices::{Device, DriverlessDevice};
use diagnostics::{Diagnostic, Severity};
use engines::{EngineFacts, EngineNetwork};
use library::Libraries;
use limits::Limits;

/// Options of `fastpath doctor`.
#[derive(Args, Debug)]
pub struct DoctorOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Several hosts
    #[command(flatten)]
    pub hosts: HostOptions,
}

/// Result of the checks.
#[derive(Debug, Serialize)]
pub struct Examination {
    healthy: bool,
    #[serde(flatten)]
    facts: Facts,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Debug, Serialize)]
struct Facts {
    devices: Vec<Device>,
    /// Adapters on the bus without an RDMA device, for lack of a driver.
    undriven: Vec<DriverlessDevice>,
    libraries: Libraries,
    limits: Limits,
    /// Engines that could start ranks on several hosts.
    engines: Vec<EngineFacts>,
    network: EngineNetwork,
    /// Device that `FASTPATH_DEVICE` names, with its port if given; None: the variable is unset or invalid.
    wanted: Option<String>,
    /// Reason for which a job of two ranks, started from here, fails at once; None if it does not.
    refused: Option<String>,
}

impl Examination {
    fn of(facts: Facts) -> Examination {
        let diagnostics = diagnostics::diagnose(&facts);
        Examination {
            healthy: diagnostics.iter().all(|t| t.severity == Severity::Note),
            facts,
            diagnostics,
        }
    }
}

/// Examines this machine. Opens every device for a moment and sends nothing.
pub fn examine() -> Examination {
    let root = Path::new("/");
    let mut devices = devices::list(root);
    let libraries = library::load(root, &mut devices);
    Examination::of(Facts {
        devices,
        undriven: devices::list_undriven(root),
        libraries,
        limits: limits::read(root),
        engines: engines::list(),
        network: engines::look_at_network(),
        wanted: read_wanted(),
        refused: try_settings().err(),
    })
}

/// Returns the device that `FASTPATH_DEVICE` names, if any.
fn read_wanted() -> Option<String> {
    Config::from_env().ok()?.device().map(str::to_owned)
}

fn try_settings() -> Result<(), String> {
    let config = Config::from_env().map_err(|error| error.to_string())?;
    transports::try_all(&config).map(drop)
}

/// Examines and prints; returns whether all is well. A missing adapter is no problem.
///
/// # Errors
/// The output cannot be written, or the processes on other hosts fail.
pub fn run(options: &DoctorOptions) -> io::Result<bool> {
    if options.hosts.probe {
        let probed = hosts::probe::run().map_err(io::Error::other);
        return probed.map(|()| true).inspect_err(|_| _ = abort_job(1));
    }
    if !options.hosts.hosts.is_empty() {
        return hosts::run(&options.hosts, options.json);
    }
    let examination = examine();
    document::write(options.json, &examination, || show::describe(&examination))?;
    Ok(examination.healthy)
}
