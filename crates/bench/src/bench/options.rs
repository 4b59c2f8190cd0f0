//! The options of `fastpath bench TEST...` and their checks.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::{Args, value_parser};
use fastpath_base::config::{parse_duration_ns, parse_size};
use fastpath_report::catalogue::{self, Test};
use fastpath_report::output::Style;
use fastpath_report::output::file::is_standard;
use fastpath_report::record::Level;
use serde::{Deserialize, Serialize};

use super::store::ResultOptions;
use super::verbs::{Connection, VerbsOptions};
use crate::program::{Settings, list_options};

/// Options of the tests.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    /// Tests or groups of tests; `fastpath bench --list` names them
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
    /// Name all tests
    #[arg(long)]
    pub list: bool,
    /// Number of ranks; several numbers, separated by commas: one job for each
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2",
        value_parser = value_parser!(u32).range(1..=RANKS_MAX))]
    pub ranks: Vec<u32>,
    /// Levels at which the tests run; several are compared column by column (below mpi: our own library, two ranks);
    /// all: mpi, protocol, transport
    #[arg(long = "level", value_delimiter = ',', default_value = "mpi")]
    pub levels: Vec<LevelName>,
    /// How long, how often, what
    #[command(flatten)]
    pub measure: Settings,
    /// The MPI to measure
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Where the result goes
    #[command(flatten)]
    pub results: ResultOptions,
    /// Write the statistics to this file as comma-separated values; `-` as above
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The tool whose columns the table has, with the statistic named
    #[arg(long, value_enum, default_value_t)]
    pub style: Style,
    /// Print a summary on one screen instead of the table, after a measurement of some seconds: latency, its floor, a
    /// chart (ping-pongs only)
    #[arg(long)]
    pub summary: bool,
    /// No progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// What carries the messages
    #[command(flatten)]
    pub path: PathOptions,
    /// How the bare loops use the adapter
    #[command(flatten)]
    pub verbs: VerbsOptions,
}

/// What carries the messages of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct PathOptions {
    /// Transport of the run, as FASTPATH_TRANSPORTS would say it
    #[arg(long, value_enum)]
    pub transport: Option<TransportName>,
    /// Adapter of the ranks (mlx5_0, mlx5_0:1); below mpi two, separated by a comma: of each rank [default:
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
    /// What `FASTPATH_TRANSPORTS` has to list.
    pub fn listed(self) -> &'static str {
        match self {
            TransportName::Shm => "shm,cma,loopback",
            TransportName::Rc => "rc,loopback",
            TransportName::Ud => "ud,loopback",
        }
    }

    /// The service that it rests on.
    pub fn connection(self) -> Option<Connection> {
        match self {
            TransportName::Shm => None,
            TransportName::Rc => Some(Connection::Rc),
            TransportName::Ud => Some(Connection::Ud),
        }
    }
}

impl PathOptions {
    /// The variables of the job.
    pub fn environment(&self) -> Vec<(String, String)> {
        let transport = self.transport.map(|t| ("FASTPATH_TRANSPORTS", t.listed().to_owned()));
        let device = self.devices.first().map(|d| ("FASTPATH_DEVICE", d.clone()));
        let all = [transport, device].into_iter().flatten();
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Whether a run at these levels can be carried so.
    ///
    /// # Errors
    /// What does not fit, and what to say instead.
    pub fn check(&self, levels: &[LevelName]) -> Result<()> {
        let has = |level| levels.contains(&level);
        if self.devices.len() > 2 || self.devices.iter().any(String::is_empty) {
            bail!("--device takes one adapter, or one for each of the two ranks");
        }
        if self.devices.len() == 2 && levels.iter().any(|l| l.means(Level::Mpi)) {
            bail!("at the level of mpi all ranks use the same adapter: give --device one");
        }
        if !has(LevelName::Verbs) {
            return Ok(());
        }
        if self.transport == Some(TransportName::Shm) {
            bail!("shared memory has no verbs: --level verbs goes with --transport rc or ud");
        }
        let set = std::env::var_os("FASTPATH_TRANSPORTS").is_some();
        if levels.iter().any(|&l| l != LevelName::Verbs) && self.transport.is_none() && !set {
            bail!(
                "--level verbs beside others compares like with like only where all go the \
                same way: add --transport rc or ud"
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
    /// Whether it means this level.
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

/// What a case is, for a benchmark and for a comparison alike.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseOptions {
    /// Sizes in bytes, separated by commas; K, M and G are powers of 1024 [default: each test's own]
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Operations of each case, instead of a duration; rounded up to whole samples
    #[arg(long, conflicts_with = "duration")]
    #[arg(value_parser = value_parser!(u64).range(1..=COUNT_MAX))]
    pub iterations: Option<u64>,
    /// Time for the samples of each case [default: 200ms; of each run of a comparison 50ms]
    #[arg(long, value_parser = parse_time)]
    pub duration: Option<f64>,
    /// Operations before those that count [default: 1000, or a tenth of the duration]
    #[arg(long, value_parser = value_parser!(u64).range(0..=COUNT_MAX))]
    pub warmup: Option<u64>,
    /// Messages in flight at once [default: each test's own]
    #[arg(long, value_parser = value_parser!(u32).range(1..=4096))]
    pub window: Option<u32>,
    /// Verify contents, outside the timed loop
    #[arg(long)]
    pub check: bool,
    /// Write each message before it is sent and read it after it was received, in tests that can; the time includes
    /// both
    #[arg(long)]
    pub touch: bool,
    /// Where buffers come from: malloc (never at the start of a page), or alloc_mem (MPI_Alloc_mem) [default: malloc]
    #[arg(long, value_parser = ["malloc", "alloc_mem"])]
    pub buffer: Option<String>,
    /// Offset of each buffer in that memory, in bytes; 1 makes every address odd
    #[arg(long, value_parser = value_parser!(u32).range(0..=4095))]
    pub offset: Option<u32>,
    /// How a message lies in memory: bytes in a row, or strided: rows of 64 doubles of an array twice as wide, one
    /// vector type (latency, bandwidth, bibandwidth, sendrecv, first; halo always) [default: bytes]
    #[serde(rename = "type")]
    #[arg(long = "type", value_name = "TYPE", value_parser = ["bytes", "strided"])]
    pub layout: Option<String>,
}

/// The MPI to measure.
#[derive(Args, Clone, Debug, Default)]
pub struct MpiOptions {
    /// Compiler wrapper of the MPI to measure [default: the one beside this program]
    #[arg(long)]
    pub mpicc: Option<PathBuf>,
    /// Its launcher [default: mpiexec beside the compiler wrapper]
    #[arg(long)]
    pub mpiexec: Option<PathBuf>,
    /// A further argument of the launcher; can be given several times
    #[arg(long, allow_hyphen_values = true)]
    pub mpiexec_arg: Vec<String>,
    /// Hosts on which the ranks run, in turn; the floor is a bare socket between the first two
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
}

impl MpiOptions {
    /// The arguments of a launcher that say on which hosts ranks run.
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

/// How a launcher that says this of its version calls a list of hosts.
fn name_host_option(version: &str) -> &'static str {
    let hydra = ["HYDRA", "Intel(R) MPI"];
    match hydra.iter().any(|name| version.contains(name)) {
        true => "-hosts",
        false => "--host",
    }
}

/// Operations of a case, ranks of a job, at most.
const COUNT_MAX: u64 = 1_000_000_000_000;
pub(crate) const RANKS_MAX: i64 = 1 << 20;

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

impl BenchOptions {
    /// Whether tests are to run at this level.
    pub fn has_level(&self, level: Level) -> bool {
        self.levels.iter().any(|name| name.means(level))
    }

    /// Whether the levels can use buffers and hosts as was asked for.
    ///
    /// # Errors
    /// Options of the program in C with a level that it does not run at.
    pub fn check_buffers(&self) -> Result<()> {
        let case = &self.measure.case;
        let given = case.buffer.is_some() || case.offset.is_some() || case.layout.is_some();
        let below = [Level::Verbs, Level::Transport, Level::Protocol];
        let below = below.into_iter().any(|level| self.has_level(level));
        if given && below {
            bail!("--buffer, --offset and --type are options of the level mpi only");
        }
        if below && !self.mpi.hosts.is_empty() {
            bail!("--host: the levels below mpi are measured between two ranks of one host");
        }
        Ok(())
    }

    /// Whether the standard output belongs to a result, in place of the table.
    ///
    /// # Errors
    /// Two results were to go to one place.
    pub fn check_places(&self) -> Result<bool> {
        let all =
            [("--json", &self.results.json), ("--csv", &self.csv), ("--html", &self.results.html)];
        let given = all.map(|(name, path)| path.as_deref().map(|path| (name, path)));
        let given: Vec<_> = given.into_iter().flatten().collect();
        let resolve = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        for (index, (name, path)) in given.iter().enumerate() {
            let mut others = given[..index].iter();
            if let Some((other, _)) = others.find(|(_, o)| resolve(o) == resolve(path)) {
                let place = match is_standard(path) {
                    true => "the standard output".to_owned(),
                    false => path.display().to_string(),
                };
                bail!("{other} and {name}: {place} can hold one of them");
            }
        }
        Ok(given.iter().any(|(_, path)| is_standard(path)))
    }

    /// How the bare loops use the adapter: what was asked for, with the connection of the transport.
    ///
    /// # Errors
    /// Options of verbs without verbs, or that contradict each other.
    pub fn choose_verbs(&self) -> Result<VerbsOptions> {
        let given = list_options(&self.verbs);
        if !self.has_level(Level::Verbs) {
            let names: Vec<String> =
                given.into_iter().map(|(name, _)| format!("--{name}")).collect();
            let are = if names.len() == 1 { "is an option" } else { "are options" };
            let names = names.join(", ");
            ensure!(names.is_empty(), "{names} {are} of the bare loops: add --level verbs");
            return Ok(VerbsOptions::default());
        }
        self.verbs.check()?;
        if self.verbs.bidirectional {
            let one_way = |test: &&Test| !["rate", "bandwidth"].contains(&test.name);
            if let Some(test) = self.choose_tests()?.into_iter().find(one_way) {
                bail!(
                    "--bidirectional is of messages in windows (rate, bandwidth): {} goes one way \
                     at a time",
                    test.name
                );
            }
        }
        let implied = self.path.transport.and_then(TransportName::connection);
        if let (Some(implied), Some(asked)) = (implied, self.verbs.connection)
            && implied != asked
        {
            let (implied, asked) = (implied.name(), asked.name());
            bail!("--transport {implied} and --connection {asked} contradict each other");
        }
        Ok(VerbsOptions { connection: self.verbs.connection.or(implied), ..self.verbs.clone() })
    }

    /// The tests that were asked for, each once.
    ///
    /// # Errors
    /// A word that means none; the message names those that are like it.
    pub fn choose_tests(&self) -> Result<Vec<&'static Test>> {
        let mut chosen: Vec<&'static Test> = Vec::new();
        for word in self.tests.iter().flat_map(|w| w.split(',')) {
            let found = catalogue::select(word);
            if let "floor" | "copy" | "instructions" | "ablation" = word {
                bail!("`{word}` is measured by itself: fastpath bench {word}");
            }
            if found.is_empty() {
                bail!("no test is called `{word}`; `fastpath bench --list` names them");
            }
            for test in found {
                if !chosen.iter().any(|t| t.name == test.name) {
                    chosen.push(test);
                }
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::parse_options;

    fn parse(words: &[&str]) -> Result<BenchOptions, clap::Error> {
        parse_options(words)
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
        let options: BenchOptions = fastpath_report::testing::parse_options(&[
            "latency", "--host", "a,b", "--level", "all",
        ])
        .unwrap();
        assert_eq!(options.mpi.hosts, ["a", "b"]);
        assert!(options.check_buffers().unwrap_err().to_string().contains("--host"));
    }

    #[test]
    fn sizes__take_units_and_have_a_limit() {
        let o = parse(&["latency", "--sizes", "0,8,4K,1M"]).unwrap();
        assert_eq!(o.measure.case.sizes, [0, 8, 4096, 1 << 20]);
        assert_eq!(o.ranks, [2]);
        for wrong in ["--sizes=8Q", "--sizes=2G", "--sizes=-1", "--sizes="] {
            assert!(parse(&["latency", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts__of_nothing_are_refused() {
        for wrong in [
            "--iterations=0",
            "--duration=0",
            "--window=0",
            "--ranks=0",
            "--ranks=2,0",
            "--rounds=0",
            "--timing=batch=0",
            "--timing=never",
            "--intervals=0",
            "--idle=dance",
        ] {
            assert!(parse(&["latency", wrong]).is_err(), "{wrong}");
        }
        assert_eq!(parse(&["--warmup=0"]).unwrap().measure.case.warmup, Some(0));
        assert!(parse(&["latency", "--iterations=5", "--duration=1s"]).is_err());
    }

    #[test]
    fn levels__are_one_several_or_all() {
        let has = |words: &[&str]| {
            let options = parse(words).unwrap();
            [Level::Mpi, Level::Protocol, Level::Transport].map(|l| options.has_level(l))
        };
        assert_eq!(has(&[]), [true, false, false]);
        assert_eq!(has(&["--level", "transport,protocol"]), [false, true, true]);
        assert_eq!(has(&["--level", "all"]), [true; 3]);
        assert_eq!(has(&["--level", "verbs"]), [false; 3]);
        assert!(parse(&["--level", "wire"]).is_err());
    }

    #[test]
    fn verbs__options_need_the_level_and_take_the_connection_of_the_transport() {
        let choose = |words: &[&str]| parse(words).unwrap().choose_verbs();
        let why = choose(&["rate", "--mtu", "1K", "--poll=lazy"]).unwrap_err().to_string();
        assert!(
            why.contains("--mtu, --poll are options") && why.contains("--level verbs"),
            "{why}"
        );
        let level = ["rate", "--level", "verbs"];
        let ud = choose(&[&level[..], &["--transport", "ud"]].concat()).unwrap();
        assert_eq!(ud.connection, Some(Connection::Ud));
        let both = ["--transport", "ud", "--connection", "rc"];
        assert!(choose(&[&level[..], &both].concat()).is_err());
        assert!(choose(&[&level[..], &["--bidirectional"]].concat()).is_ok());
        for test in ["latency", "put"] {
            let words = ["rate", test, "--level", "verbs", "--bidirectional"];
            let why = choose(&words).unwrap_err().to_string();
            assert!(why.contains(&format!("{test} goes one way")), "{why}");
        }
    }

    #[test]
    fn path__says_what_does_not_fit() {
        let check = |words: &[&str]| {
            let options = parse(words).unwrap();
            options.path.check(&options.levels)
        };
        assert!(check(&["--level", "verbs", "--device", "a,b"]).is_ok());
        assert!(check(&["--level", "verbs,transport", "--transport", "rc"]).is_ok());
        for wrong in [
            "--device=a,b,c",
            "--device=a,b",
            "--level=verbs --transport=shm",
            "--level=verbs,transport",
        ] {
            assert!(check(&wrong.split(' ').collect::<Vec<_>>()).is_err(), "{wrong}");
        }
        let rc = parse(&["--transport", "rc", "--device", "x"]).unwrap().path.environment();
        let names: Vec<_> = rc.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(names, ["FASTPATH_TRANSPORTS=rc,loopback", "FASTPATH_DEVICE=x"]);
    }

    #[test]
    fn buffers__are_chosen_at_the_level_of_mpi_alone() {
        let check = |words: &[&str]| parse(words).unwrap().check_buffers();
        assert!(check(&["latency", "--offset=1", "--buffer=alloc_mem"]).is_ok());
        assert!(check(&["latency", "--level=all"]).is_ok());
        assert!(check(&["latency", "--type=strided", "--level=mpi,protocol"]).is_err());
        for wrong in ["--buffer=stack", "--offset=4096", "--type=tree"] {
            assert!(parse(&["latency", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tests__are_chosen_once_and_an_unknown_one_is_named() {
        let names = |words: &[&str]| -> Vec<&str> {
            let chosen = parse(words).unwrap().choose_tests().unwrap();
            chosen.iter().map(|t| t.name).collect()
        };
        assert_eq!(names(&["pingpong", "rate,latency"]), ["latency", "rate"]);
        let wrong = parse(&["latncy"]).unwrap().choose_tests().unwrap_err().to_string();
        assert!(wrong.contains("latncy"), "{wrong}");
        let floor = parse(&["latency", "floor"]).unwrap().choose_tests();
        assert!(floor.unwrap_err().to_string().contains("fastpath bench floor"));
    }

    #[test]
    fn results__go_to_places_of_their_own() {
        let check = |words: &[&str]| parse(words).unwrap().check_places();
        assert!(check(&["--json=a", "--csv=b", "--html=-"]).unwrap());
        assert!(!check(&["--json=a"]).unwrap());
        for wrong in ["--json=- --csv=-", "--csv=- --html=-", "--json=a --html=./a"] {
            let words: Vec<&str> = wrong.split(' ').collect();
            let why = check(&words).unwrap_err().to_string();
            assert!(why.contains("one of them"), "{why}");
        }
    }
}
