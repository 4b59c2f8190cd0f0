//! Options about the launcher's own process.

use crate::args::JobSpec;
use crate::start::Refusal;
use fastpath_base::topology;
use std::ffi::OsStr;
use std::io::Write as _;

/// Writes the launcher's process number (`--report-pid`) and restricts the launcher to the processors of `--cpu-set`.
pub fn prepare_itself(spec: &JobSpec) -> Result<(), Refusal> {
    if let Some(place) = &spec.report_pid {
        let refuse = |e| {
            (2, format!("--report-pid {}: {e}; name a file that can be written", place.display()))
        };
        report_pid(place).map_err(refuse)?;
    }
    if let Some(set) = &spec.cpus {
        let refuse = |e| {
            let there = topology::affinity();
            (2, format!("--cpu-set {set}: {e}; choose from processors {there}"))
        };
        topology::set_affinity(set).map_err(refuse)?;
    }
    Ok(())
}

/// Writes the process number to standard output (`-`), standard error (`+`) or the named file.
fn report_pid(place: &OsStr) -> std::io::Result<()> {
    let line = format!("{}\n", std::process::id());
    match place.to_str() {
        Some("-") => std::io::stdout().write_all(line.as_bytes()),
        Some("+") => std::io::stderr().write_all(line.as_bytes()),
        _ => std::fs::write(place, line),
    }
}
