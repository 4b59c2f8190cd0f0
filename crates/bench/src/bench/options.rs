//! The options of `fastpath bench TEST...` and their checks.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use fastpath_report::catalogue::{self, Test};
use fastpath_report::output::Style;
use fastpath_report::output::file::is_standard;
use fastpath_report::output::table::TableView;
use fastpath_report::record::Level;
use fastpath_report::refuse_usage;

use crate::options::verbs::VerbsOptions;
use crate::options::{LevelName, MpiOptions, PathOptions, TransportName, ViewOptions, parse_ranks};
use crate::program::{Settings, list_options};
use crate::result_files::ResultOptions;

/// Options of the tests.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    /// Tests or groups of tests; `fastpath bench --list` lists them
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
    /// List all tests
    #[arg(long)]
    pub list: bool,
    /// Numbers of ranks, separated by commas; one job for each number
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2",
        value_parser = parse_ranks)]
    pub ranks: Vec<u32>,
    /// Levels of the library at which tests run, separated by commas; all: mpi, protocol, transport. Several levels are
    /// compared in columns. Levels below mpi need this library and two ranks
    #[arg(long = "level", value_delimiter = ',', default_value = "mpi")]
    pub levels: Vec<LevelName>,
    /// Duration, repetitions, messages
    #[command(flatten)]
    pub measure: Settings,
    /// The MPI to measure
    #[command(flatten)]
    pub mpi: MpiOptions,
    /// Output of the result
    #[command(flatten)]
    pub results: ResultOptions,
    /// Write the statistics to this file as CSV; `-`: to standard output, instead of the table
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Tool whose column format the table uses; a line above the table explains the columns
    #[arg(help_heading = "Output", long, value_enum, default_value_t)]
    pub style: Style,
    /// Measure for some seconds and print one screen instead of the table: latency, floor and chart (ping-pongs only)
    #[arg(help_heading = "Output", long)]
    pub summary: bool,
    /// Form of the tables
    #[command(flatten)]
    pub view: ViewOptions,
    /// Do not show a progress bar
    #[arg(help_heading = "Output", long)]
    pub no_progress: bool,
    /// Transport and adapter
    #[command(flatten)]
    pub path: PathOptions,
    /// Options of the bare verbs loops
    #[command(flatten)]
    pub verbs: VerbsOptions,
}

impl BenchOptions {
    /// Form of the tables. Repeated measurements are printed one by one, because they may have no end.
    pub fn find_view(&self) -> TableView {
        TableView { streams: self.measure.intervals.is_some(), ..self.view.find_view() }
    }

    /// Checks that the table has the form of this tool, if options of that form are given.
    ///
    /// # Errors
    /// The table has another tool's columns, or is not printed.
    pub fn check_view(&self) -> Result<()> {
        let view = self.view;
        let given = [("--wide", view.wide), ("--explain", view.explain), ("--plot", view.plot)];
        let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) else {
            return Ok(());
        };
        if self.style != Style::Fastpath {
            refuse_usage!("{name} exists only for --style fastpath");
        }
        if self.summary {
            refuse_usage!("{name} changes tables, and --summary prints none; omit {name}");
        }
        Ok(())
    }

    /// Returns whether tests run at this level.
    pub fn has_level(&self, level: Level) -> bool {
        self.levels.iter().any(|name| name.means(level))
    }

    /// Checks that the levels can use the requested buffers and hosts.
    ///
    /// # Errors
    /// Options of the C program are combined with a level at which it does not run.
    pub fn check_buffers(&self) -> Result<()> {
        let case = &self.measure.case;
        let given = case.buffer.is_some() || case.offset.is_some() || case.layout.is_some();
        let below = [Level::Verbs, Level::Transport, Level::Protocol];
        let below = below.into_iter().any(|level| self.has_level(level));
        if given && below {
            refuse_usage!("--buffer, --offset and --type exist only at level mpi; use --level mpi");
        }
        if below && !self.mpi.hosts.is_empty() {
            refuse_usage!(
                "--host exists only at level mpi; levels below mpi are measured on one host"
            );
        }
        Ok(())
    }

    /// Returns whether standard output gets a result instead of the table.
    ///
    /// # Errors
    /// Two options write to one file, or both to standard output.
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
                refuse_usage!(
                    "{other} and {name} both write to {place}; pass another file to one of them"
                );
            }
        }
        Ok(given.iter().any(|(_, path)| is_standard(path)))
    }

    /// Returns the requested options of the bare loops, with the connection that the transport implies.
    ///
    /// # Errors
    /// Options of the bare loops without the verbs level, or options that contradict each other.
    pub fn choose_verbs(&self) -> Result<VerbsOptions> {
        let given = list_options(&self.verbs);
        if !self.has_level(Level::Verbs) {
            let names: Vec<String> =
                given.into_iter().map(|(name, _)| format!("--{name}")).collect();
            let are = if names.len() == 1 { "is an option" } else { "are options" };
            let names = names.join(", ");
            if !names.is_empty() {
                refuse_usage!("{names} {are} of level verbs; add --level verbs");
            }
            return Ok(VerbsOptions::default());
        }
        self.verbs.check()?;
        if self.verbs.bidirectional {
            let one_way = |test: &&Test| !["rate", "bandwidth"].contains(&test.name);
            if let Some(test) = self.choose_tests()?.into_iter().find(one_way) {
                refuse_usage!(
                    "--bidirectional exists only for rate and bandwidth; omit --bidirectional for \
                     {}",
                    test.name
                );
            }
        }
        let implied = self.path.transport.and_then(TransportName::connection);
        if let (Some(implied), Some(asked)) = (implied, self.verbs.connection)
            && implied != asked
        {
            let (implied, asked) = (implied.name(), asked.name());
            refuse_usage!("--transport {implied} needs --connection {implied}, not {asked}");
        }
        Ok(VerbsOptions { connection: self.verbs.connection.or(implied), ..self.verbs.clone() })
    }

    /// Requested tests, each once.
    ///
    /// # Errors A word selects no test; the message names similar tests.
    pub fn choose_tests(&self) -> Result<Vec<&'static Test>> {
        let mut chosen: Vec<&'static Test> = Vec::new();
        for word in self.tests.iter().flat_map(|w| w.split(',')) {
            let found = catalogue::select(word);
            if let "floor" | "copy" | "instructions" | "ablation" = word {
                refuse_usage!("`{word}` runs only without other tests; use fastpath bench {word}");
            }
            if found.is_empty() {
                let similar = catalogue::suggest(word)
                    .map_or_else(String::new, |name| format!("did you mean `{name}`? "));
                refuse_usage!(
                    "there is no test `{word}`; {similar}`fastpath bench --list` lists all tests"
                );
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
    use crate::options::verbs::Connection;
    use fastpath_report::testing::parse_options;

    fn parse(words: &[&str]) -> Result<BenchOptions, clap::Error> {
        parse_options(words)
    }

    #[test]
    fn hosts__are_of_the_level_of_mpi_alone() {
        let options = parse(&["latency", "--host", "a,b", "--level", "all"]).unwrap();
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
            assert!(why.contains(&format!("omit --bidirectional for {test}")), "{why}");
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
    fn view__is_of_this_tools_tables() {
        let check = |words: &[&str]| parse(words).unwrap().check_view();
        assert!(check(&["latency", "--wide", "--explain", "--plot"]).is_ok());
        assert!(check(&["latency", "--style=osu"]).is_ok());
        for wrong in [["--wide", "--style=osu"], ["--plot", "--summary"]] {
            assert!(check(&wrong).unwrap_err().to_string().contains(wrong[0]), "{wrong:?}");
        }
        assert!(parse(&["latency", "--intervals=3"]).unwrap().find_view().streams);
    }

    #[test]
    fn tests__are_chosen_once_and_an_unknown_one_is_named() {
        let names = |words: &[&str]| -> Vec<&str> {
            let chosen = parse(words).unwrap().choose_tests().unwrap();
            chosen.iter().map(|t| t.name).collect()
        };
        assert_eq!(names(&["pingpong", "rate,latency"]), ["latency", "rate"]);
        let wrong = parse(&["latncy"]).unwrap().choose_tests().unwrap_err().to_string();
        assert!(wrong.contains("`latncy`; did you mean `latency`? "), "{wrong}");
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
            assert!(why.contains("both write to"), "{why}");
        }
    }
}
