//! `fastpath info`: version, settings, machine, and the transports that can be used, with reasons.

mod cma;
pub(crate) mod machine;
pub mod mpit;
mod threads;
pub(crate) mod transports;
mod tuning;

use std::io::{self, Write};

use fastpath_base::config::{Config, shorten};
use fastpath_base::tell;
use fastpath_job::BootstrapError;
use fastpath_job::{detect::LaunchPlace, find_place};
use fastpath_protocol::report::SelectionReport;
use fastpath_protocol::selection::Selection;
use fastpath_transport::setup::peers::{self, PeerClass};
use serde::Serialize;

pub use cma::probe_as_reader;
use fastpath_report::document::terminal::wrap_lines;
use fastpath_report::document::{self, Document, Table};
use fastpath_report::screen::find_columns;
use machine::MachineFacts;
use transports::{Facility, Transport};
use tuning::TuningFacts;

use crate::library::{ask_version, find_library};

/// Output of `fastpath info`.
#[derive(Debug, Serialize)]
pub struct InfoReport {
    version: Version,
    configuration: Vec<SettingEntry>,
    /// Variable with an invalid value, for which the configuration shows the defaults; also in the warnings.
    #[serde(skip)]
    invalid: Option<String>,
    warnings: Vec<String>,
    machine: MachineFacts,
    transports: Vec<Transport>,
    protocols: SelectionReport,
    tuning: TuningFacts,
    waiting: Vec<Facility>,
    threads: Vec<Facility>,
}

#[derive(Debug, Serialize)]
struct Version {
    fastpath: &'static str,
    mpi: &'static str,
    abi: &'static str,
    /// Path of the library beside this program.
    library: Option<String>,
    #[serde(rename = "library_says")]
    says: Option<String>,
    /// Reason for which the path or the version of the library is missing.
    #[serde(rename = "library_problem")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct SettingEntry {
    name: &'static str,
    value: String,
    origin: String,
    meaning: &'static str,
}

/// Collects all facts. Takes some tens of milliseconds, because transports are tested.
pub fn collect() -> InfoReport {
    let (mut warnings, mut invalid) = (Vec::new(), None);
    let config = Config::from_env().unwrap_or_else(|e| {
        warnings.push(format!("{e} (the defaults are shown)"));
        invalid = Some(e.name);
        Config::defaults()
    });
    warnings.extend_from_slice(config.warnings());
    if let LaunchPlace::Several(claim) = find_place()
        && claim.protocol.is_none()
    {
        let error = BootstrapError::Launched(Box::new(claim));
        warnings.push(format!("programs that start with this environment fail: {error}"));
    }
    let configuration = config
        .listing()
        .map(|setting| SettingEntry {
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
            warnings.push(format!("jobs fail at their start: {why}"));
            (true, false)
        }
    };
    let protocols = report_protocols(&config, inside, &transports);
    warnings.extend(protocols.1);
    let machine = machine::describe(&config, &mut warnings);
    InfoReport {
        version: find_version(),
        configuration,
        invalid,
        warnings,
        machine,
        protocols: protocols.0,
        tuning: TuningFacts::find(&config),
        transports,
        waiting: transports::list_waiting(),
        threads: threads::list_threads(),
    }
}

/// Returns the selection that a job would print with `FASTPATH_REPORT`, and the problems of the stored constants. The
/// flags are whether the job may use `loopback` and `shm`.
fn report_protocols(
    config: &Config, (loopback, shm): (bool, bool), transports: &[Transport],
) -> (SelectionReport, Vec<String>) {
    let mut selection = Selection::of(config);
    // The test between two processes has precedence over the test of this process alone.
    if let Some(cma) = transports.iter().find(|t| t.name == "cma" && !t.usable) {
        selection.kernel = Err(cma.reason.clone());
    }
    // Without shared memory a rank still reaches itself, as in a job.
    let others = shm && transports.iter().any(|t| t.name == "shm" && t.usable);
    let outside = peers::foresee_outside(config, |by| {
        transports::find_adapter(config, by).ok().map(|(adapter, _)| adapter)
    });
    let peers = PeerClass::list(loopback, others, outside);
    (SelectionReport::of(&selection, peers), selection.warnings)
}

/// Prints only the protocol by size, as a job does with `FASTPATH_REPORT`.
///
/// # Errors
/// A variable has an invalid value, a job of two ranks would fail at once, or the output cannot be written.
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
        false => write!(out, "{}", wrap_lines(&report.to_string(), find_columns())),
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

/// Prints the facts, as text or as JSON.
///
/// # Errors
/// Standard output is closed.
pub fn print(info: &InfoReport, as_json: bool, explains: bool) -> io::Result<()> {
    document::write(as_json, info, || describe(info, explains))
}

/// Describes the installation in a sentence.
fn summarize(info: &InfoReport) -> String {
    let usable: Vec<&str> = info.transports.iter().filter(|t| t.usable).map(|t| t.name).collect();
    let set: Vec<&str> =
        info.configuration.iter().filter(|e| e.origin != "default").map(|e| e.name).collect();
    let set = match (&info.invalid, set.len()) {
        (Some(name), _) => format!("{name} has an invalid value"),
        (None, 0) => "every variable has its default".to_owned(),
        _ => format!("set: {}", set.join(", ")),
    };
    let problem = match info.version.problem {
        Some(_) => "; the library cannot be used",
        None => "",
    };
    format!(
        "Fastpath {}, MPI {}; transports {}; {set}{problem}",
        info.version.fastpath,
        info.version.mpi,
        usable.join(", ")
    )
}

fn describe(info: &InfoReport, explains: bool) -> Document {
    let mut said = Document::default();
    said.text(summarize(info));
    for warning in &info.warnings {
        said.text(format!("warning: {warning}"));
    }
    describe_version(&info.version, &mut said);
    said.heading("configuration");
    let mut table = Table::of(if explains { "<24|<12|<12|" } else { "<24|<12|<12" });
    for entry in &info.configuration {
        let value = match entry.value.as_str() {
            "" => "(none)".to_owned(),
            value => shorten(value),
        };
        let cells = [entry.name, value.as_str(), &entry.origin, entry.meaning];
        table.row(cells.into_iter().take(table.columns.len()));
    }
    said.table(table);
    said.heading("machine");
    for (name, value) in info.machine.lines() {
        said.pair(name, value);
    }
    said.heading("transports");
    let transports = info.transports.iter().map(|t| (t.name, t.usable, &t.reason));
    said.table(tabulate(10, transports));
    said.heading("protocols");
    let protocols = if explains { info.protocols.to_string() } else { info.protocols.to_brief() };
    protocols.lines().for_each(|line| said.text(line));
    said.heading("tuning");
    for (name, value) in info.tuning.lines() {
        said.pair(name, value);
    }
    for (section, facilities) in [("waiting", &info.waiting), ("threads", &info.threads)] {
        said.heading(section);
        said.table(tabulate(24, facilities.iter().map(|f| (f.name, f.available, &f.note))));
    }
    if !explains {
        said.heading(
            "--explain: meaning of the variables, steps and rejected options of the protocols",
        );
    }
    said
}

/// Makes a table of facilities: name, whether available, note.
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
        ("library version", &version.says),
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
        for section in
            ["version", "configuration", "machine", "transports", "tuning", "waiting", "threads"]
        {
            assert!(value.get(section).is_some(), "{section}");
        }
        let entries = value["configuration"].as_array().unwrap();
        assert!(entries.iter().any(|e| e["name"] == "FASTPATH_WAIT" && e["origin"] == "default"));
    }
}
