//! `fastpath info`: what this installation is, what it is set to, what the machine offers, and
//! which ways of moving a message are open, with the reason.

mod cma;
pub(crate) mod machine;
pub mod mpit;
mod threads;
pub(crate) mod transports;

use std::io::{self, Write};

use fastpath_base::config::{Config, shorten};
use fastpath_base::tell;
use fastpath_bootstrap::BootstrapError;
use fastpath_bootstrap::job::{detect::LaunchPlace, find_place};
use fastpath_protocol::selection::Selection;
use fastpath_protocol::selection::report::Report;
use fastpath_transport::setup::peers::{self, PeerClass};
use serde::Serialize;

pub use cma::probe_as_reader;
use fastpath_report::document::{self, Document, Table};
use machine::Machine;
use transports::{Facility, Transport};

use crate::library::{ask_version, find_library};

/// Everything `fastpath info` knows.
#[derive(Debug, Serialize)]
pub struct Info {
    version: Version,
    configuration: Vec<Entry>,
    warnings: Vec<String>,
    machine: Machine,
    transports: Vec<Transport>,
    /// Which protocol serves which size, and why.
    protocols: Report,
    waiting: Vec<Facility>,
    /// What threads may do, and what they pay.
    threads: Vec<Facility>,
}

/// What is installed.
#[derive(Debug, Serialize)]
struct Version {
    fastpath: &'static str,
    mpi: &'static str,
    abi: &'static str,
    /// Path of the library beside this program.
    library: Option<String>,
    /// What that library says it is.
    #[serde(rename = "library_says")]
    says: Option<String>,
    /// Why one of the two is missing.
    #[serde(rename = "library_problem")]
    problem: Option<String>,
}

/// One variable.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    value: String,
    origin: String,
    meaning: &'static str,
}

/// Finds everything out. Takes some tens of milliseconds: what can be tried is tried.
pub fn collect() -> Info {
    let mut warnings = Vec::new();
    let config = Config::from_env().unwrap_or_else(|e| {
        warnings.push(format!("{e} (the listing shows the defaults)"));
        Config::defaults()
    });
    warnings.extend_from_slice(config.warnings());
    if let LaunchPlace::Several(claim) = find_place()
        && claim.protocol.is_none()
    {
        let error = BootstrapError::Launched(Box::new(claim));
        warnings.push(format!("a program started as this one stops: {error}"));
    }
    let configuration = config
        .listing()
        .map(|setting| Entry {
            name: setting.variable.name,
            value: setting.text.clone(),
            origin: setting.origin.to_string(),
            meaning: setting.variable.meaning,
        })
        .collect();
    let transports = transports::list(&config);
    let inside = match transports::try_all(&config) {
        Ok(allowed) => (allowed.loopback, allowed.shm),
        Err(why) => {
            warnings.push(format!("jobs end before they begin: {why}"));
            (true, false)
        }
    };
    let protocols = report_protocols(&config, inside, &transports);
    warnings.extend(protocols.1);
    Info {
        version: find_version(),
        configuration,
        warnings,
        machine: machine::describe(),
        protocols: protocols.0,
        transports,
        waiting: transports::list_waiting(),
        threads: threads::list_threads(),
    }
}

/// What a job that may use `loopback` and `shm`, or not, would print with `FASTPATH_REPORT`, and what is wrong with the
/// stored constants.
fn report_protocols(
    config: &Config, (loopback, shm): (bool, bool), transports: &[Transport],
) -> (Report, Vec<String>) {
    let mut selection = Selection::of(config);
    // The transport was tried between two processes: that counts more than what this one may do alone.
    if let Some(cma) = transports.iter().find(|t| t.name == "cma" && !t.usable) {
        selection.kernel = Err(cma.reason.clone());
    }
    // As a job has it: without shared memory a rank reaches itself though nothing says so.
    let others = shm && transports.iter().any(|t| t.name == "shm" && t.usable);
    let outside = peers::foresee_outside(config, |by| {
        transports::find_adapter(config, by).ok().map(|(adapter, _)| adapter)
    });
    let peers = PeerClass::list(loopback, others, outside);
    (Report::of(&selection, peers), selection.warnings)
}

/// Prints only which protocol serves which size, as a job does with `FASTPATH_REPORT`.
///
/// # Errors A variable whose value cannot be used, a job of two ranks would end before it begins, or the output cannot
/// be written.
pub fn print_protocols(as_json: bool) -> io::Result<()> {
    let config = Config::from_env().map_err(io::Error::other)?;
    let allowed = transports::try_all(&config).map_err(io::Error::other)?;
    let inside = (allowed.loopback, allowed.shm);
    let (report, warnings) = report_protocols(&config, inside, &transports::list(&config));
    let mut out = io::stdout().lock();
    for warning in warnings {
        tell!("fastpath: FASTPATH_TUNING: {warning}");
    }
    match as_json {
        true => writeln!(out, "{}", report.to_json()),
        false => write!(out, "{report}"),
    }
}

fn find_version() -> Version {
    let mut version = Version {
        fastpath: env!("CARGO_PKG_VERSION"),
        mpi: "5.0",
        abi: "1.0",
        library: None,
        says: None,
        problem: None,
    };
    let opened = find_library().and_then(|path| {
        let path = path.canonicalize().unwrap_or(path);
        version.library = Some(path.display().to_string());
        ask_version(&path)
    });
    match opened {
        Ok(says) => version.says = Some(says),
        Err(e) => version.problem = Some(format!("{e:#}")),
    }
    version
}

/// Prints it, for people or for programs.
///
/// # Errors
/// The standard output is closed.
pub fn print(info: &Info, as_json: bool) -> io::Result<()> {
    document::write(as_json, info, || describe(info))
}

fn describe(info: &Info) -> Document {
    let mut said = Document::default();
    describe_version(&info.version, &mut said);
    said.heading("configuration");
    let mut table = Table::of("<24|<12|<12|");
    for entry in &info.configuration {
        let value = match entry.value.as_str() {
            "" => "(none)".to_owned(),
            value => shorten(value),
        };
        table.row([entry.name, value.as_str(), &entry.origin, entry.meaning]);
    }
    said.table(table);
    for warning in &info.warnings {
        said.text(format!("warning: {warning}"));
    }
    said.heading("machine");
    for (name, value) in info.machine.lines() {
        said.pair(name, value);
    }
    said.heading("transports");
    let transports = info.transports.iter().map(|t| (t.name, t.usable, &t.reason));
    said.table(tabulate(10, transports));
    said.heading("protocols");
    info.protocols.to_string().lines().for_each(|line| said.text(line));
    for (section, facilities) in [("waiting", &info.waiting), ("threads", &info.threads)] {
        said.heading(section);
        said.table(tabulate(24, facilities.iter().map(|f| (f.name, f.available, &f.note))));
    }
    said
}

/// What is there and what is not.
fn tabulate<'a>(width: usize, rows: impl Iterator<Item = (&'a str, bool, &'a String)>) -> Table {
    let mut table = Table::of(&format!("<{width}|<4|"));
    for (name, is_there, note) in rows {
        table.row([name, if is_there { "yes" } else { "no" }, note]);
    }
    table
}

fn describe_version(version: &Version, said: &mut Document) {
    said.heading(format!("fastpath {}", version.fastpath));
    said.pair("MPI standard", version.mpi);
    said.pair("ABI", version.abi);
    let found = [
        ("library", &version.library),
        ("library says", &version.says),
        ("no library", &version.problem),
    ];
    for (name, value) in found {
        value.iter().for_each(|value| said.pair(name, value));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn info__is_one_json_object_with_every_section() {
        let value = serde_json::to_value(collect()).unwrap();
        for section in ["version", "configuration", "machine", "transports", "waiting", "threads"] {
            assert!(value.get(section).is_some(), "{section}");
        }
        let entries = value["configuration"].as_array().unwrap();
        assert!(entries.iter().any(|e| e["name"] == "FASTPATH_WAIT" && e["origin"] == "default"));
    }
}
