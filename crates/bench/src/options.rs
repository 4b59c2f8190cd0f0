//! Options that several commands have: test cases, the MPI to measure, transport and levels.

pub mod verbs;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, value_parser};
use fastpath_base::config::{parse_duration_ns, parse_size};
use fastpath_report::output::table::TableView;
use fastpath_report::record::Level;
use fastpath_report::refuse_usage;
use fastpath_report::screen::{find_columns, find_table_columns};
use serde::{Deserialize, Serialize};

use verbs::Connection;

/// Transport options of a run.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Transport")]
pub struct PathOptions {
    /// Transport, as in FASTPATH_TRANSPORTS
    #[arg(long, value_enum)]
    pub transport: Option<TransportName>,
    /// RDMA adapter, such as mlx5_0 or mlx5_0:1; at levels below mpi, one for each rank, separated by a comma [default:
    /// FASTPATH_DEVICE]
    #[arg(long = "device", value_name = "NAME", value_delimiter = ',')]
    pub devices: Vec<String>,
}

/// A transport, as the command line calls it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// Shared memory
    Shm,
    /// Reliable connections of an adapter
    Rc,
    /// Datagrams of an adapter
    Ud,
}

impl TransportName {
    /// Value of `FASTPATH_TRANSPORTS` that permits this transport.
    pub fn listed(self) -> &'static str {
        match self {
            TransportName::Shm => "shm,cma,loopback",
            TransportName::Rc => "rc,loopback",
            TransportName::Ud => "ud,loopback",
        }
    }

    /// Verbs connection that the transport uses, if any.
    pub fn connection(self) -> Option<Connection> {
        match self {
            TransportName::Shm => None,
            TransportName::Rc => Some(Connection::Rc),
            TransportName::Ud => Some(Connection::Ud),
        }
    }
}

impl PathOptions {
    pub fn environment(&self) -> Vec<(String, String)> {
        let transport = self.transport.map(|t| ("FASTPATH_TRANSPORTS", t.listed().to_owned()));
        let device = self.devices.first().map(|d| ("FASTPATH_DEVICE", d.clone()));
        let all = [transport, device].into_iter().flatten();
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Checks that the transport and the adapters are usable at these levels.
    ///
    /// # Errors
    /// An option does not fit; the message contains the option to give instead.
    pub fn check(&self, levels: &[LevelName]) -> Result<()> {
        let has = |level| levels.contains(&level);
        if self.devices.len() > 2 || self.devices.iter().any(String::is_empty) {
            refuse_usage!("--device takes one adapter, or one for each of the two ranks");
        }
        if self.devices.len() == 2 && levels.iter().any(|l| l.means(Level::Mpi)) {
            refuse_usage!(
                "at level mpi all ranks use the same adapter; pass one adapter to --device"
            );
        }
        if !has(LevelName::Verbs) {
            return Ok(());
        }
        if self.transport == Some(TransportName::Shm) {
            refuse_usage!("--level verbs needs an adapter; use --transport rc or ud, not shm");
        }
        let set = std::env::var_os("FASTPATH_TRANSPORTS").is_some();
        if levels.iter().any(|&l| l != LevelName::Verbs) && self.transport.is_none() && !set {
            refuse_usage!(
                "--level verbs together with other levels needs one transport for all levels; add \
                 --transport rc or ud"
            );
        }
        Ok(())
    }
}

/// A level, as the command line calls it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelName {
    /// The C functions of the MPI standard
    Mpi,
    /// Workers, endpoints, matching
    Protocol,
    /// Active messages, put and get
    Transport,
    /// Bare loops on an adapter's verbs
    Verbs,
    /// Mpi, protocol and transport
    All,
}

impl LevelName {
    pub fn means(self, level: Level) -> bool {
        match self {
            LevelName::Mpi => level == Level::Mpi,
            LevelName::Protocol => level == Level::Protocol,
            LevelName::Transport => level == Level::Transport,
            LevelName::Verbs => level == Level::Verbs,
            LevelName::All => level != Level::Verbs,
        }
    }
}

/// Options of a test case, shared by benchmarks and comparisons.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = "Messages")]
#[serde(default)]
pub struct CaseOptions {
    /// Sizes in bytes, separated by commas; K, M and G are powers of 1024 [default: by test]
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Number of operations of each case, instead of a duration; rounded up to whole samples
    #[arg(long, conflicts_with = "duration")]
    #[arg(value_parser = value_parser!(u64).range(1..=COUNT_MAX))]
    pub iterations: Option<u64>,
    /// Duration of the samples of each case [default: 200ms; 50ms in each run of a comparison]
    #[arg(long, value_parser = parse_time)]
    pub duration: Option<f64>,
    /// Number of warm-up operations [default: 1000, or fewer if they take a tenth of --duration]
    #[arg(long, value_parser = value_parser!(u64).range(0..=COUNT_MAX))]
    pub warmup: Option<u64>,
    /// Number of messages in flight [default: by test]
    #[arg(long, value_parser = value_parser!(u32).range(1..=4096))]
    pub window: Option<u32>,
    /// Verify the contents of messages, outside the timed loop
    #[arg(long)]
    pub check: bool,
    /// Write each message before it is sent and read it after it is received, within the measured time, in tests that
    /// support it
    #[arg(long)]
    pub touch: bool,
    /// Allocation of buffers: malloc (never at the start of a page), or alloc_mem (MPI_Alloc_mem) [default: malloc]
    #[arg(long, value_parser = ["malloc", "alloc_mem"])]
    pub buffer: Option<String>,
    /// Offset of each buffer in its allocation, in bytes; 1 makes every address odd
    #[arg(long, value_parser = value_parser!(u32).range(0..=4095))]
    pub offset: Option<u32>,
    /// Memory layout of a message: bytes (contiguous), or strided (a vector type: rows of 64 doubles with gaps of 64).
    /// For latency, bandwidth, bibandwidth, sendrecv and first. Messages of halo are always strided [default: bytes]
    #[serde(rename = "type")]
    #[arg(long = "type", value_name = "TYPE", value_parser = ["bytes", "strided"])]
    pub layout: Option<String>,
}

/// Form of the tables on the standard output.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct ViewOptions {
    /// Print every column; by default, those that fit the terminal or COLUMNS (80 if neither is known)
    #[arg(long)]
    pub wide: bool,
    /// Explain the columns and the hardware floor, and print how they were measured
    #[arg(long)]
    pub explain: bool,
    /// Draw a chart below each table of several sizes
    #[arg(long)]
    pub plot: bool,
}

impl ViewOptions {
    /// Form of tables that are printed after their test.
    pub fn find_view(self) -> TableView {
        TableView {
            columns: find_table_columns(),
            wraps_at: find_columns(),
            is_wide: self.wide,
            explains: self.explain,
            plots: self.plot,
            streams: false,
        }
    }
}

/// The MPI to measure.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "MPI and hosts")]
pub struct MpiOptions {
    /// Compiler wrapper of the MPI to measure [default: mpicc of this installation]
    #[arg(long)]
    pub mpicc: Option<PathBuf>,
    /// Launcher of the MPI to measure [default: mpiexec beside the compiler wrapper]
    #[arg(long)]
    pub mpiexec: Option<PathBuf>,
    /// Further argument of the launcher; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    pub mpiexec_arg: Vec<String>,
    /// Hosts, separated by commas, that get the ranks in turn. The floor is a bare socket between the first two hosts
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
}

impl MpiOptions {
    /// Arguments of a launcher that name the hosts of the ranks.
    pub fn list_host_words(&self, mpiexec: &Path) -> Vec<String> {
        if self.hosts.is_empty() {
            return Vec::new();
        }
        let said = std::process::Command::new(mpiexec).arg("--version").output();
        let said = said.map_or(Vec::new(), |output| output.stdout);
        let option = name_host_option(&String::from_utf8_lossy(&said));
        vec![option.to_owned(), self.hosts.join(",")]
    }
}

/// Returns the option by which a launcher takes a list of hosts; `version` is the launcher's version text.
fn name_host_option(version: &str) -> &'static str {
    let hydra = ["HYDRA", "Intel(R) MPI"];
    match hydra.iter().any(|name| version.contains(name)) {
        true => "-hosts",
        false => "--host",
    }
}

/// Largest number of operations of a case, and of ranks of a job.
const COUNT_MAX: u64 = 1_000_000_000_000;
const RANKS_MAX: u32 = 1 << 20;

/// Parses a number of ranks.
pub(crate) fn parse_ranks(text: &str) -> Result<u32, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    ranks.ok_or_else(|| format!("expected a number of ranks from 1 to {RANKS_MAX}, such as 4"))
}

/// The largest message: counts are passed as a C int.
const SIZE_MAX: u64 = 1 << 30;

pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes <= SIZE_MAX => Ok(bytes),
        _ => Err("the largest size is 1G".to_owned()),
    }
}

pub(crate) fn parse_time(text: &str) -> Result<f64, String> {
    match parse_duration_ns(text)? {
        0..1000 => Err("must be at least 1us".to_owned()),
        ns => Ok(ns as f64 / 1e6),
    }
}

pub(crate) fn parse_intervals(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(1..=1_000_000_000u64) => Ok(text.to_owned()),
        _ if text == "endless" => Ok(text.to_owned()),
        _ => Err("expected a number above zero, or endless".to_owned()),
    }
}

pub(crate) fn parse_timing(text: &str) -> Result<String, String> {
    let batch = text.strip_prefix("batch=").map(|n| n.parse().unwrap_or(0u32));
    match (text, batch) {
        ("auto" | "each", _) | (_, Some(1..=1_000_000_000)) => Ok(text.to_owned()),
        _ => Err("expected auto, each or batch=N".to_owned()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ranks__are_a_number_and_the_error_says_so() {
        assert_eq!((parse_ranks("1"), parse_ranks("1048576")), (Ok(1), Ok(1 << 20)));
        for wrong in ["", "x", "0", "-1", "1048577", "99999999999"] {
            let why = parse_ranks(wrong).unwrap_err();
            assert_eq!(why, "expected a number of ranks from 1 to 1048576, such as 4");
        }
    }

    #[test]
    fn hosts__are_named_as_each_launcher_wants_it() {
        for (version, option) in [
            ("mpiexec (Fastpath) 0.1.0", "--host"),
            ("mpiexec (OpenRTE) 5.0.11", "--host"),
            ("HYDRA build details:\n    Version: 5.0.2", "-hosts"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "-hosts"),
        ] {
            assert_eq!(name_host_option(version), option);
        }
    }
}
