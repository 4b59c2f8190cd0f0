//! Detection of the launcher that started this process, from the variables that launchers set.
//!
//! Launchers are nested: a batch script starts one, and a rank starts another. Each launcher adds its variables to
//! those of the outer launchers, so a variable alone proves nothing. [`detect`] is pure: its input is the environment
//! and the name of the peer of `PMI_FD`. Its test is a table of environments recorded from the launchers (decision
//! record 0018).

pub(crate) mod ancestors;
mod environment;
mod parents;
mod remedy;
mod traces;

pub(crate) use environment::find_engine_process;
pub use environment::find_place;
pub(crate) use remedy::describe_remedy;
pub use remedy::{describe_copies, describe_start, find_mpiexec};
pub(crate) use traces::{find_lost, warn_of_hint};

use crate::identity::JOB_VARIABLE;
use crate::parent::{self, PARENT_VARIABLE};
use fastpath_base::config::{Key, VARIABLES, parse_flag, shorten};
use fastpath_base::tell::count;
use std::fmt;

/// Variable by which an engine with PMI-1 marks a spawned job.
pub(crate) const SPAWNED: &str = "PMI_SPAWNED";

/// Looks up a variable; `None` if it is not set or empty.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Role of the process: a rank of our launcher, alone, or a rank of another launcher.
#[derive(Debug, PartialEq, Eq)]
pub enum LaunchPlace {
    /// A rank of a job that our `mpiexec` made.
    Own,
    /// The only rank of its own job.
    Alone(SingletonReason),
    /// One of several ranks of another launcher, or of an unknown number of ranks.
    Several(Claim),
}

/// Displays the decision and the deciding variable or descriptor, on one line.
impl fmt::Display for LaunchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchPlace::Own => write!(
                f,
                "started by Fastpath's mpiexec: {JOB_VARIABLE} is set, and no rank variable of \
                 another launcher is set"
            ),
            LaunchPlace::Alone(SingletonReason::Asked) => {
                write!(f, "alone: {} is set", VARIABLES[Key::Singleton as usize].name)
            }
            LaunchPlace::Alone(SingletonReason::Unlaunched) => {
                f.write_str("alone: no variable of a launcher is set")
            }
            LaunchPlace::Alone(SingletonReason::OfOne(Claim {
                launcher, variable, value, ..
            })) => {
                write!(f, "alone: {launcher} has started one process ({variable}={value})")
            }
            LaunchPlace::Alone(SingletonReason::OfRank(Claim { launcher, .. })) => {
                write!(f, "alone: started by a rank of {launcher}, with that launcher's variables")
            }
            LaunchPlace::Several(Claim { launcher, protocol: Some(protocol), sign, .. }) => {
                write!(f, "started by {launcher}; joins the job by {protocol}, because {sign}")
            }
            LaunchPlace::Several(claim) => write!(f, "{claim}, which accepts no connections"),
        }
    }
}

/// Reason for a process to be its own job.
#[derive(Debug, PartialEq, Eq)]
pub enum SingletonReason {
    /// `FASTPATH_SINGLETON` is set.
    Asked,
    /// No launcher has started it.
    Unlaunched,
    /// A launcher started one rank.
    OfOne(Claim),
    /// A rank started this process, so the launcher's variables describe that rank.
    OfRank(Claim),
}

/// Launchers that can be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpiexec` of MPICH, Intel MPI and their relatives.
    Hydra,
    /// `srun`.
    Slurm,
    /// `mpirun` of Open MPI, `prterun`.
    Prrte,
    /// `flux run` and related commands.
    Flux,
    /// Another launcher with PMI.
    Pmi,
    /// Another launcher with PMIx.
    Pmix,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Hydra => "Hydra (mpiexec of MPICH or Intel MPI)",
            Launcher::Slurm => "srun of Slurm",
            Launcher::Prrte => "PRRTE (mpirun of Open MPI)",
            Launcher::Flux => "Flux",
            Launcher::Pmi => "a launcher that speaks PMI",
            Launcher::Pmix => "a launcher that speaks PMIx",
        })
    }
}

/// Protocol of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PMI-1, over the descriptor `PMI_FD` or the address `PMI_PORT`.
    Pmi1,
    /// PMIx, by its library.
    Pmix,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Pmi1 => "PMI-1",
            Protocol::Pmix => "PMIx",
        })
    }
}

/// Identity of a process according to the variables of one launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Launcher of the variables.
    pub launcher: Launcher,
    /// Rank of this process, if known.
    pub rank: Option<u64>,
    /// Number of ranks, if known and consistent with the rank.
    pub size: Option<u64>,
    /// Name of the variable that gives the rank or the size.
    pub variable: &'static str,
    /// Value of `variable`, shortened if it is long.
    pub value: String,
    /// Protocol of the launcher; `None` if there is no sign that the launcher accepts connections.
    pub protocol: Option<Protocol>,
    /// Sign that the launcher is alive, as a text; empty if there is none.
    pub sign: String,
    /// Variables that identify the process to the launcher. Two processes of a launcher differ in at least one.
    pub names: [&'static str; 2],
    /// Whether the first of `names` is set. Our `mpiexec` removes that variable ([`is_identity`]).
    is_marked: bool,
}

/// Displays `rank 1 of 4 under srun of Slurm`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.size) {
            (Some(rank), Some(size)) => write!(f, "rank {rank} of {size}")?,
            (Some(rank), None) => write!(f, "rank {rank} of an unknown number of ranks")?,
            (None, Some(size)) => write!(f, "one of {}", count(size, "rank"))?,
            (None, None) => write!(f, "one of an unknown number of ranks")?,
        }
        write!(f, " under {}", self.launcher)
    }
}

struct Variables<'a> {
    mark: &'static str,
    ranks: &'static str,
    sizes: &'a [&'static str],
}

impl Claim {
    fn read(env: Lookup<'_>, launcher: Launcher, names: &Variables<'_>) -> Option<Claim> {
        let size = names.sizes.iter().find_map(|&n| Some((n, env(n)?)));
        let rank = env(names.ranks).map(|text| (names.ranks, text));
        let mark = env(names.mark).map(|text| (names.mark, text));
        let is_marked = mark.is_some();
        let number = |told: &Option<(_, String)>| told.as_ref()?.1.trim().parse::<u64>().ok();
        let (count, own) = (number(&size), number(&rank));
        let (variable, value) = size.or(rank).or(mark)?;
        Some(Claim {
            launcher,
            rank: own,
            size: count.filter(|&n| n > own.unwrap_or(0)),
            variable,
            value: shorten(&value),
            protocol: None,
            sign: String::new(),
            names: [names.mark, names.ranks],
            is_marked,
        })
    }

    /// Returns whether the job has, or may have, more than one rank.
    fn tells_of_others(&self) -> bool {
        self.size != Some(1)
    }

    fn into_place(self) -> LaunchPlace {
        match self.tells_of_others() {
            true => LaunchPlace::Several(self),
            false => LaunchPlace::Alone(SingletonReason::OfOne(self)),
        }
    }
}

/// Detects the position of a process in this environment. `pmi_peer` is the name of the process at the other end of the
/// descriptor `PMI_FD`: empty if the kernel does not report it, `None` if the descriptor is not an open socket.
///
/// If there are several launchers, the launcher that still runs decides. Our own launcher and that of an open `PMI_FD`
/// are known to run. Otherwise a launcher with several ranks takes precedence over one with a single rank.
pub fn detect(env: Lookup<'_>, pmi_peer: Option<&str>) -> LaunchPlace {
    let asked = env(VARIABLES[Key::Singleton as usize].name);
    if asked.is_some_and(|text| parse_flag(text.trim()) == Ok(true)) {
        return LaunchPlace::Alone(SingletonReason::Asked);
    }
    let pmi = read_pmi(env, pmi_peer);
    let others = [read_pmix(env), read_slurm(env), read_flux(env)];
    // Our `mpiexec` removes the marks of other launchers. A mark that is present therefore comes from a launcher that a
    // rank of our job has started.
    let is_marked = |claim: &Option<Claim>| claim.as_ref().is_some_and(|c| c.is_marked);
    if env(JOB_VARIABLE).is_some() && !others.iter().chain([&pmi]).any(is_marked) {
        return LaunchPlace::Own;
    }
    if let Some(pmi) = &pmi
        && pmi_peer.is_some()
    {
        // The only rank of a spawned job needs the engine to reach its parent.
        return match env(SPAWNED).as_deref() {
            Some("1") => LaunchPlace::Several(pmi.clone()),
            _ => pmi.clone().into_place(),
        };
    }
    let mut told: Vec<Claim> = others.into_iter().chain([pmi]).flatten().collect();
    let first = told.iter().position(Claim::tells_of_others).unwrap_or(0);
    match told.is_empty() {
        true => LaunchPlace::Alone(SingletonReason::Unlaunched),
        false => told.swap_remove(first).into_place(),
    }
}

/// Reads the claim of PMI-1, by a descriptor (`PMI_FD`) or an address (`PMI_PORT`, set without a size). If both are
/// set, the address counts: a launcher that sets it leaves the descriptor of an outer Hydra open.
fn read_pmi(env: Lookup<'_>, peer: Option<&str>) -> Option<Claim> {
    let launcher = match peer {
        Some("hydra_pmi_proxy") => Launcher::Hydra,
        Some("slurmstepd") => Launcher::Slurm,
        Some("flux-shell") => Launcher::Flux,
        _ if env("FLUX_TASK_RANK").is_some() => Launcher::Flux,
        _ if env("MPI_LOCALRANKID").is_some() => Launcher::Hydra,
        _ if env("SLURM_PROCID").is_some() => Launcher::Slurm,
        _ => Launcher::Pmi,
    };
    let names = match env("PMI_PORT") {
        Some(_) => Variables { mark: "PMI_PORT", ranks: "PMI_ID", sizes: &[] },
        None => Variables { mark: "PMI_FD", ranks: "PMI_RANK", sizes: &["PMI_SIZE"] },
    };
    let set = |name: &str| env(name).map(|value| format!("{name}={}", shorten(&value)));
    let descriptor = set("PMI_FD").unwrap_or_default();
    let sign = match peer {
        None => set("PMI_PORT").map(|port| format!("{port} is set")),
        Some("") => Some(format!("{descriptor} is an open socket")),
        Some(name) => {
            Some(format!("{descriptor} is a socket to {name}, an ancestor of this process"))
        }
    };
    Some(Claim {
        protocol: sign.is_some().then_some(Protocol::Pmi1),
        sign: sign.unwrap_or_default(),
        ..Claim::read(env, launcher, &names)?
    })
}

/// Reads the claim of PMIx. PMIx has no variable for the size, so the size is read from the launcher's own variable.
fn read_pmix(env: Lookup<'_>) -> Option<Claim> {
    let namespace = env("PMIX_NAMESPACE").unwrap_or_default();
    if is_of_another_step(env, &namespace) {
        return None;
    }
    let (launcher, sizes): (_, &[&'static str]) = if namespace.starts_with("slurm.") {
        (Launcher::Slurm, SLURM_SIZES)
    } else if !namespace.is_empty() && env("FLUX_JOB_ID").as_ref() == Some(&namespace) {
        (Launcher::Flux, FLUX_SIZES)
    } else if env("OMPI_COMM_WORLD_SIZE").is_some() && is_of_open_mpi(env) {
        (Launcher::Prrte, &["OMPI_COMM_WORLD_SIZE"])
    } else if namespace.starts_with("prte") {
        (Launcher::Prrte, &[])
    } else {
        (Launcher::Pmix, &[])
    };
    let names = Variables { mark: "PMIX_NAMESPACE", ranks: "PMIX_RANK", sizes };
    let claim = Claim::read(env, launcher, &names)?;
    // The only rank of a spawned job needs the engine to reach its parent.
    let is_spawned =
        env(PARENT_VARIABLE).is_some_and(|told| parent::is_told_by_pmix(&told, &namespace));
    Some(Claim {
        protocol: Some(Protocol::Pmix),
        sign: format!(
            "PMIX_NAMESPACE={} is set, and PMI_FD is not an open socket",
            shorten(&namespace)
        ),
        size: claim.size.filter(|_| !is_spawned),
        ..claim
    })
}

/// Returns whether Slurm made the namespace for another step of the allocation than the step of this process.
fn is_of_another_step(env: Lookup<'_>, namespace: &str) -> bool {
    let Some((job, step)) =
        namespace.strip_prefix("slurm.pmix.").and_then(|number| number.split_once('.'))
    else {
        return false;
    };
    let is_number = step.bytes().all(|byte| byte.is_ascii_digit());
    let own = (env("SLURM_JOB_ID"), env("SLURM_STEP_ID"));
    is_number
        && matches!(own, (Some(own_job), Some(own_step)) if own_job == job && own_step != step)
}

/// Returns whether the variables of Open MPI were set together with those of PMIx. `prterun` sets no variables of Open
/// MPI, and passes on those of an outer Open MPI. If only the size is set and is 1, a script may have set it.
fn is_of_open_mpi(env: Lookup<'_>) -> bool {
    let server = env("PMIX_SERVER_TMPDIR").unwrap_or_default();
    match env("OMPI_FILE_LOCATION") {
        Some(files) => files.starts_with(&server),
        None => env("OMPI_COMM_WORLD_SIZE").is_some_and(|size| size.trim() != "1"),
    }
}

const SLURM_SIZES: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
const FLUX_SIZES: &[&str] = &["FLUX_JOB_SIZE"];

/// Reads the claim of a task of a Slurm step. A batch script and the shell of `salloc` are not tasks: there
/// `SLURM_NTASKS` is the size of a future step.
fn read_slurm(env: Lookup<'_>) -> Option<Claim> {
    env("SLURM_PROCID")?;
    // A batch script has no step number, or one of the highest numbers, which Slurm uses for its own steps. Slurm 26.05
    // writes these as negative numbers. Other variables of the script may be those of a step that submitted it.
    let number = env("SLURM_STEP_ID").map(|text| text.trim().parse::<i64>());
    let is_single = number.is_none_or(|n| n.is_ok_and(|n| n as u32 >= 0xffff_fff0));
    let names = Variables { mark: "SLURM_TASK_PID", ranks: "SLURM_PROCID", sizes: SLURM_SIZES };
    let claim = Claim::read(env, Launcher::Slurm, &names)?;
    Some(match is_single {
        false => claim,
        true => Claim { size: Some(1).filter(|_| claim.rank == Some(0)), ..claim },
    })
}

fn read_flux(env: Lookup<'_>) -> Option<Claim> {
    let names = Variables { mark: "FLUX_TASK_RANK", ranks: "FLUX_TASK_RANK", sizes: FLUX_SIZES };
    Claim::read(env, Launcher::Flux, &names)
}

/// Returns whether a variable holds the rank of a process under another launcher. Our `mpiexec` removes these
/// variables, because all its ranks would inherit equal values.
pub fn is_identity(name: &str) -> bool {
    const PREFIXES: &[&str] = &["PMI_", "PMIX_SERVER_", "PMIX_DSTORE_", "OMPI_COMM_WORLD_"];
    const NAMES: &[&str] = &[
        "PMIX_NAMESPACE",
        "PMIX_RANK",
        "PMIX_ID",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_GTIDS",
        "SLURM_TASK_PID",
        "FLUX_TASK_RANK",
        "FLUX_TASK_LOCAL_ID",
        "FLUX_JOB_SIZE",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

#[cfg(test)]
mod tests;
