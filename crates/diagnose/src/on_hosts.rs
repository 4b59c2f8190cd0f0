//! One process of this program on each of several hosts. An engine starts the processes as for `mpiexec`. They
//! communicate through it: a value put before a fence is visible to all processes after the fence.

use clap::Args;
use fastpath_base::tell;
use fastpath_job::detect::{LaunchPlace, SingletonReason};
use fastpath_job::engine::Engine;
use fastpath_job::find_place;
use fastpath_report::output;
use fastpath_report::surroundings::name_tool;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Prefix of the report in the output of the first process.
const MARK: &str = "fastpath-hosts-1 ";

/// Options of commands that examine several hosts.
#[derive(Args, Debug)]
pub struct HostOptions {
    /// Examine these hosts, with one process on each host, started like the ranks of a job
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Launch engine: slurm, flux, hydra or prrte [default: the first that is installed]
    #[arg(long, requires = "hosts")]
    pub engine: Option<String>,
    /// Further argument of mpiexec; may be repeated
    #[arg(long, allow_hyphen_values = true, requires = "hosts")]
    pub mpiexec_arg: Vec<String>,
    /// Internal: run as the process of one host (started by the command with --host)
    #[arg(long, hide = true)]
    pub probe: bool,
}

impl HostOptions {
    /// Has an engine start this program with `words` on each host. Returns the report of the first process.
    pub fn start<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mpiexec: PathBuf = own.with_file_name("mpiexec");
        let mut command = Command::new(&mpiexec);
        command.arg("--no-agents").args(&self.mpiexec_arg);
        if let Some(engine) = &self.engine {
            command.args(["--engine", engine]);
        }
        command.args(["--host", &self.hosts.join(",")]);
        command.arg(&own).args(words).arg("--probe");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("{}: {e}", mpiexec.display()))?;
        let mut report = None;
        let output = child.stdout.take().map(BufReader::new);
        for line in output.into_iter().flat_map(BufRead::lines) {
            let line = line.map_err(|e| e.to_string())?;
            match line.split_once(MARK) {
                Some((_, text)) => report = Some(serde_json::from_str(text)),
                None => tell!("{line}"),
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        match report {
            Some(Ok(report)) => Ok(report),
            Some(Err(e)) => Err(format!("the report of the hosts is malformed: {e}")),
            None => Err(format!(
                "the processes on the hosts reported nothing ({status}); install Fastpath in the \
                 same folder on each host"
            )),
        }
    }
}

/// The group of processes, as seen by one process.
pub struct HostGroup {
    engine: Engine,
    /// Number of this process.
    pub own: usize,
    /// Number of processes.
    pub count: usize,
}

impl HostGroup {
    /// Joins the group.
    pub fn join() -> Result<HostGroup, String> {
        let protocol = match find_place() {
            LaunchPlace::Several(claim) | LaunchPlace::Alone(SingletonReason::OfOne(claim)) => {
                claim.protocol
            }
            _ => None,
        };
        let protocol = protocol.ok_or(
            "--probe is an internal option, and no launch engine started this process; omit it",
        )?;
        let engine = Engine::connect(protocol).map_err(|e| e.to_string())?;
        Ok(HostGroup { own: engine.about().rank, count: engine.about().size, engine })
    }

    /// Sends a value to all processes, and returns the values of all. Fails if the engine fails, or if versions differ.
    pub fn exchange<T>(&mut self, key: &str, own: &T) -> Result<Vec<T>, String>
    where
        T: Serialize + for<'a> Deserialize<'a>,
    {
        let text = serde_json::to_vec(own).map_err(|e| e.to_string())?;
        self.engine.put(key, &text).map_err(|e| e.to_string())?;
        self.fence()?;
        let get = |rank| {
            let said = self.engine.get(rank, key).map_err(|e| e.to_string())?;
            let said = said.and_then(|text| serde_json::from_slice(&text).ok());
            said.ok_or_else(|| {
                format!(
                    "the message of process {rank} is invalid; install the same version of \
                     Fastpath on all hosts (this host has {})",
                    name_tool()
                )
            })
        };
        (0..self.count).map(get).collect()
    }

    /// Waits until all processes have called this function.
    pub fn fence(&mut self) -> Result<(), String> {
        self.engine.fence().map_err(|e| e.to_string())
    }

    /// Ends this process's part of the group; the first process prints the report.
    pub fn end<T: Serialize>(mut self, report: &T) -> Result<(), String> {
        if self.own == 0 {
            let text = serde_json::to_string(report).map_err(|e| e.to_string())?;
            output::print(&format!("{MARK}{text}\n")).map_err(|e| format!("{e:#}"))?;
        }
        // The job is over, so a failed engine does not matter.
        let _ = self.engine.finalize();
        Ok(())
    }
}
