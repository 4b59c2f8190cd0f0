//! `fastpath doctor`: what RDMA and jobs on several hosts find on this machine, what is wrong with it, and what to do.
//! With `--host`, how several hosts reach each other ([`hosts`]).
//!
//! The kernel's view comes from sysfs, the library's from the library itself: which file it was loaded from, which
//! providers it loaded, and from where, as the process's own memory map shows.

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
use fastpath_bootstrap::engine::abort_job;
use fastpath_report::document;
use serde::Serialize;

use crate::info::transports;
use crate::on_hosts::HostOptions;

use devices::{Device, Undriven};
use diagnostics::{Severity, Trouble};
use engines::{Engine, Network};
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

/// Everything that was found.
#[derive(Debug, Serialize)]
pub struct Examination {
    healthy: bool,
    #[serde(flatten)]
    facts: Facts,
    diagnostics: Vec<Trouble>,
}

/// What there is, before anything is said about it.
#[derive(Debug, Serialize)]
struct Facts {
    devices: Vec<Device>,
    /// Adapters on the bus that no driver has made an RDMA device of.
    undriven: Vec<Undriven>,
    libraries: Libraries,
    limits: Limits,
    /// What could start ranks on several hosts.
    engines: Vec<Engine>,
    network: Network,
    /// The device that `FASTPATH_DEVICE` names, with its port if it says one.
    wanted: Option<String>,
    /// Why jobs of two ranks that are started from here end before they begin, if they do.
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

/// The device that jobs started from here would use.
fn read_wanted() -> Option<String> {
    Config::from_env().ok()?.device().map(str::to_owned)
}

fn try_settings() -> Result<(), String> {
    let config = Config::from_env().map_err(|error| error.to_string())?;
    transports::try_all(&config).map(drop)
}

/// Examines and prints; whether all is well. Having no adapter is no trouble.
///
/// # Errors
/// The output cannot be written; the processes on other hosts come to nothing.
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
