//! One process of this program on each of several hosts: an engine starts them as `mpiexec` would do it, and they talk
//! by it. What one puts before a fence, the others get after it.

use clap::Args;
use fastpath_base::tell;
use fastpath_bootstrap::engine::Engine;
use fastpath_bootstrap::job::detect::{Alone, LaunchPlace};
use fastpath_bootstrap::job::find_place;
use fastpath_report::output;
use fastpath_report::surroundings::name_tool;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What stands before the report on the output of the first process.
const MARK: &str = "fastpath-hosts-1 ";

/// Options of commands that look at several hosts.
#[derive(Args, Debug)]
pub struct HostOptions {
    /// Look at these hosts: one process on each, started as mpiexec would do it
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// What starts the processes: slurm, flux, hydra or prrte [default: the first that is installed]
    #[arg(long, requires = "hosts")]
    pub engine: Option<String>,
    /// A further argument of mpiexec; can be given several times
    #[arg(long, allow_hyphen_values = true, requires = "hosts")]
    pub mpiexec_arg: Vec<String>,
    /// The part of one host (started by the command with --host)
    #[arg(long, hide = true)]
    pub probe: bool,
}

impl HostOptions {
    /// Has an engine start this program with `words` on each host; what they report.
    ///
    /// # Errors
    /// For people: they cannot be started, or do not come to an end.
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
            Some(Err(e)) => Err(format!("the report of the hosts cannot be understood: {e}")),
            None => Err(format!(
                "the processes on the hosts have reported nothing ({status}): is Fastpath there, \
                 under the same path?"
            )),
        }
    }
}

/// The processes, as one of them sees them.
pub struct Group {
    engine: Engine,
    /// The number of this one.
    pub own: usize,
    /// How many there are.
    pub count: usize,
}

impl Group {
    /// That of this process.
    ///
    /// # Errors
    /// No engine has started this process, or it cannot be talked to.
    pub fn join() -> Result<Group, String> {
        let protocol = match find_place() {
            LaunchPlace::Several(claim) | LaunchPlace::Alone(Alone::OfOne(claim)) => claim.protocol,
            _ => None,
        };
        let protocol = protocol.ok_or("--probe is for engines: no engine started this process")?;
        let engine = Engine::connect(protocol).map_err(|e| e.to_string())?;
        Ok(Group { own: engine.about().rank, count: engine.about().size, engine })
    }

    /// Tells the others something, and learns the same of all.
    ///
    /// # Errors
    /// The engine fails, or another process is of another version.
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
                    "cannot understand process {rank}: is another version of Fastpath there? \
                     Here it is {}",
                    name_tool()
                )
            })
        };
        (0..self.count).map(get).collect()
    }

    /// Waits until all have come here.
    ///
    /// # Errors
    /// The engine fails.
    pub fn fence(&mut self) -> Result<(), String> {
        self.engine.fence().map_err(|e| e.to_string())
    }

    /// Ends the part of this process; the first one reports.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn end<T: Serialize>(mut self, report: &T) -> Result<(), String> {
        if self.own == 0 {
            let text = serde_json::to_string(report).map_err(|e| e.to_string())?;
            output::print(&format!("{MARK}{text}\n")).map_err(|e| format!("{e:#}"))?;
        }
        // The job is over: an engine that is gone needs no word.
        let _ = self.engine.finalize();
        Ok(())
    }
}
