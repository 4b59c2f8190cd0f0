//! Engines that could start ranks on several hosts, and the network addresses of this host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastpath_base::config::{Config, Key};
use fastpath_job::network::Reach;
use fastpath_job::network::interfaces::{choose_addresses, list_addresses};
use fastpath_job::network::ports::parse_ports;
use serde::Serialize;

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct EngineFacts {
    pub name: &'static str,
    pub program: PathBuf,
    pub version: Option<String>,
    /// Wire-up protocols of the engine's processes.
    pub protocols: Vec<String>,
    /// Variable that is set in an allocation of the engine; None: the engine needs no allocation.
    pub allocation: Option<&'static str>,
    /// Whether the engine could start a job on several hosts from here.
    pub usable: bool,
}

/// Row of the engine table: name, program, protocols, and the variable set in an allocation, if one is needed.
type Row = (&'static str, &'static str, &'static [&'static str], Option<&'static str>);

/// Engines in the search order of `mpiexec`.
const ENGINES: [Row; 4] = [
    ("slurm", "srun", &[], Some("SLURM_JOB_ID")),
    ("flux", "flux", &["pmi1", "pmix"], Some("FLUX_URI")),
    ("hydra", "mpiexec.hydra", &["pmi1"], None),
    ("prrte", "prterun", &["pmix"], None),
];

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct EngineNetwork {
    pub addresses: Vec<String>,
    pub problem: Option<String>,
    /// Ports that ranks listen on; empty for any port.
    pub ports: String,
}

/// Finds engines on the search path. Runs each to get its version.
pub(super) fn list() -> Vec<EngineFacts> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| {
        let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
        places.find(|place| place.is_file())
    };
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
    let look = |&(name, program, protocols, allocation): &Row| {
        let program = find(program)?;
        let protocols = match name {
            "slurm" => read_plugins(&ask(&program, "--mpi=list")),
            _ => protocols.iter().map(|&name| name.to_owned()).collect(),
        };
        Some(EngineFacts {
            name,
            version: read_version(&ask(&program, "--version")),
            program,
            protocols,
            allocation,
            usable: allocation.is_none_or(is_set),
        })
    };
    ENGINES.iter().filter_map(look).collect()
}

/// Output of a program with an option; empty if it cannot be run.
fn ask(program: &Path, option: &str) -> String {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output();
    let said = |o: std::process::Output| [o.stdout, o.stderr].concat();
    output.map_or(String::new(), |o| String::from_utf8_lossy(&said(o)).into_owned())
}

/// First word in the first lines that begins with a digit: `slurm 22.05.8`, `Version:  4.0.2`.
fn read_version(text: &str) -> Option<String> {
    const LINES: usize = 5;
    let mut words = text.lines().take(LINES).flat_map(str::split_whitespace);
    let found = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    found.map(|word| word.trim_end_matches(',').to_owned())
}

/// Plugins of `srun --mpi=list` that this library supports. The PMI-2 plugin also answers PMI-1.
fn read_plugins(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let mut found: Vec<String> = words
        .filter_map(|word| match word {
            "pmi2" => Some("pmi1"),
            "pmix" => Some("pmix"),
            _ => None,
        })
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

pub(super) fn look_at_network() -> EngineNetwork {
    let config = Config::from_env().unwrap_or_else(|_| Config::defaults());
    describe_network(&config)
}

fn describe_network(config: &Config) -> EngineNetwork {
    let listed = list_addresses().map_err(|e| e.to_string());
    let wanted = config.text(Key::Interfaces);
    let chosen = listed.and_then(|found| choose_addresses(&found, wanted, Reach::Network));
    let chosen = parse_ports(config.text(Key::Ports)).and(chosen);
    let (addresses, problem) = match chosen {
        Ok(addresses) => (addresses.iter().map(|a| a.to_string()).collect(), None),
        Err(why) => (Vec::new(), Some(why)),
    };
    EngineNetwork { addresses, problem, ports: config.text(Key::Ports).to_owned() }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn version__is_found_in_what_engines_print() {
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        let prrte = "prterun (PRRTE) 3.0.14\n\nReport bugs to https://github.com/\n";
        for (text, version) in [
            ("slurm 22.05.8\n", Some("22.05.8")),
            (hydra, Some("4.0.2")),
            (prrte, Some("3.0.14")),
            ("", None),
            ("no such option\n", None),
        ] {
            assert_eq!(read_version(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn plugins__of_slurm_are_those_we_speak_with() {
        let text = "MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n\tpmix\n\
                    specific pmix plugin versions available: pmix_v4\n";
        assert_eq!(read_plugins(text), ["pmi1", "pmix"]);
        assert_eq!(read_plugins("srun: error"), Vec::<String>::new());
    }

    #[test]
    fn network__of_this_machine_is_told_or_why_there_is_none() {
        let network = look_at_network();
        assert_eq!(network.addresses.is_empty(), network.problem.is_some());
        for (name, value) in [("FASTPATH_PORTS", "abc"), ("FASTPATH_INTERFACES", "nosuch0")] {
            let config = Config::from_pairs([(name.into(), value.into())]).unwrap();
            let problem = describe_network(&config).problem.unwrap();
            assert!(problem.contains(name), "{problem}");
        }
    }
}
