//! Which launcher started this process, by what launchers leave in the environment.
//!
//! Launchers are nested: a batch script starts one, a rank starts another. Each adds its variables to those of the
//! ones outside, so a variable alone proves nothing. [`detect`] is pure: it takes the environment and one fact, and
//! its test is a table of environments that were recorded from the launchers (decision record 0018).

use super::identity::JOB_VARIABLE;
use super::parent::PARENT_VARIABLE;
use crate::engine::{SPAWNED, is_told_of_parent};
use fastpath_base::config::{Key, VARIABLES, parse_flag, shorten};
use std::fmt;

/// Looks up a variable. None where it is not set or empty.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where the process stands.
#[derive(Debug, PartialEq, Eq)]
pub enum LaunchPlace {
    /// A rank of a job that our `mpiexec` made.
    Own,
    /// The only rank of a job of its own.
    Alone(Alone),
    /// One of several ranks that another launcher started, or of a number of ranks that it does not tell.
    Several(Claim),
}

/// What was decided, and by which variable or descriptor: one line.
impl fmt::Display for LaunchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchPlace::Own => write!(
                f,
                "started by Fastpath's mpiexec: {JOB_VARIABLE} is set, and no variable that \
                 another launcher sets for each of its processes"
            ),
            LaunchPlace::Alone(Alone::Asked) => {
                write!(f, "alone: {} asks for it", VARIABLES[Key::Singleton as usize].name)
            }
            LaunchPlace::Alone(Alone::Unlaunched) => {
                f.write_str("alone: no variable of a launcher is set")
            }
            LaunchPlace::Alone(Alone::OfOne(Claim { launcher, variable, value, .. })) => {
                write!(f, "alone: {launcher} has started one process ({variable}={value})")
            }
            LaunchPlace::Alone(Alone::OfRank(Claim { launcher, .. })) => {
                write!(f, "alone: started by a rank of {launcher}, whose variables it inherits")
            }
            LaunchPlace::Several(Claim { launcher, protocol: Some(protocol), sign, .. }) => {
                write!(f, "started by {launcher}, joined by {protocol}: {sign}")
            }
            LaunchPlace::Several(claim) => write!(f, "{claim}, which does not listen"),
        }
    }
}

/// Why a process is a job of its own.
#[derive(Debug, PartialEq, Eq)]
pub enum Alone {
    /// `FASTPATH_SINGLETON` asks for it.
    Asked,
    /// No launcher has started it.
    Unlaunched,
    /// A launcher started one rank.
    OfOne(Claim),
    /// A rank started this process, and the launcher's variables are that one's.
    OfRank(Claim),
}

/// The launchers that can be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpiexec` of MPICH, Intel MPI and their relatives.
    Hydra,
    /// `srun`.
    Slurm,
    /// `mpirun` of Open MPI, `prterun`.
    Prrte,
    /// `flux run` and the like.
    Flux,
    /// Some other one with PMI.
    Pmi,
    /// Some other one with PMIx.
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

/// What an engine is spoken to by.
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

/// What the variables of one launcher say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose they are.
    pub launcher: Launcher,
    /// This process's rank, if known.
    pub rank: Option<u64>,
    /// The number of ranks, if known and not in contradiction to the rank.
    pub size: Option<u64>,
    /// The variable that names rank or size, and its value.
    pub variable: &'static str,
    /// Its value, cut where it is long.
    pub value: String,
    /// What the launcher can be spoken to by; None where nothing says that it listens.
    pub protocol: Option<Protocol>,
    /// By what it is taken for alive; empty where nothing says that it listens.
    pub sign: String,
    /// The variables by which the launcher knows the process: no other process that it starts has both alike.
    pub names: [&'static str; 2],
    /// Whether the first of them is there. Our `mpiexec` takes it away ([`is_identity`]).
    is_marked: bool,
}

/// `rank 1 of 4 under srun of Slurm`.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.size) {
            (Some(rank), Some(size)) => write!(f, "rank {rank} of {size}")?,
            (Some(rank), None) => write!(f, "rank {rank} of an unknown number")?,
            (None, Some(size)) => write!(f, "one of {size} ranks")?,
            (None, None) => write!(f, "one of an unknown number of ranks")?,
        }
        write!(f, " under {}", self.launcher)
    }
}

/// The variables in which a launcher gives a process its rank and size.
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

    /// Whether there are other ranks, or may be.
    fn tells_of_others(&self) -> bool {
        self.size != Some(1)
    }

    fn into_place(self) -> LaunchPlace {
        match self.tells_of_others() {
            true => LaunchPlace::Several(self),
            false => LaunchPlace::Alone(Alone::OfOne(self)),
        }
    }
}

/// Where a process with this environment stands. `pmi_peer` is the name of the process at the other end of the
/// descriptor `PMI_FD`, if that is an open socket; empty where the kernel does not tell.
///
/// Of several launchers the living one counts. That is certain for our own and for an open `PMI_FD`; else one with
/// several ranks counts more than one with a single rank.
pub fn detect(env: Lookup<'_>, pmi_peer: Option<&str>) -> LaunchPlace {
    let asked = env(VARIABLES[Key::Singleton as usize].name);
    if asked.is_some_and(|text| parse_flag(text.trim()) == Ok(true)) {
        return LaunchPlace::Alone(Alone::Asked);
    }
    let pmi = read_pmi(env, pmi_peer);
    let others = [read_pmix(env), read_slurm(env), read_flux(env)];
    // Our `mpiexec` takes the marks of other launchers away, so one that is there was set by a rank of our job.
    let is_marked = |claim: &Option<Claim>| claim.as_ref().is_some_and(|c| c.is_marked);
    if env(JOB_VARIABLE).is_some() && !others.iter().chain([&pmi]).any(is_marked) {
        return LaunchPlace::Own;
    }
    if let Some(pmi) = &pmi
        && pmi_peer.is_some()
    {
        // The one rank of a job that another one has spawned meets it by the engine.
        return match env(SPAWNED).as_deref() {
            Some("1") => LaunchPlace::Several(pmi.clone()),
            _ => pmi.clone().into_place(),
        };
    }
    let mut told: Vec<Claim> = others.into_iter().chain([pmi]).flatten().collect();
    let first = told.iter().position(Claim::tells_of_others).unwrap_or(0);
    match told.is_empty() {
        true => LaunchPlace::Alone(Alone::Unlaunched),
        false => told.swap_remove(first).into_place(),
    }
}

/// PMI-1 by a descriptor (`PMI_FD`) or by an address (`PMI_PORT`, which has no size). Where both are there, the
/// descriptor may be of a Hydra outside: the one with the address leaves it open.
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
        Some(name) => Some(format!("{descriptor} is a socket of its process {name}, a parent")),
    };
    Some(Claim {
        protocol: sign.is_some().then_some(Protocol::Pmi1),
        sign: sign.unwrap_or_default(),
        ..Claim::read(env, launcher, &names)?
    })
}

/// PMIx itself has no size in the environment; the launchers that use it do.
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
    // The one rank of a job that another one has spawned meets it by the engine.
    let is_spawned = env(PARENT_VARIABLE).is_some_and(|told| is_told_of_parent(&told, &namespace));
    Some(Claim {
        protocol: Some(Protocol::Pmix),
        sign: format!(
            "PMIX_NAMESPACE={} is set, and PMI_FD is no open socket",
            shorten(&namespace)
        ),
        size: claim.size.filter(|_| !is_spawned),
        ..claim
    })
}

/// Whether Slurm has made a namespace for another step of the same allocation, which has started this one.
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

/// Whether the variables of Open MPI were set together with those of PMIx. `prterun` sets none of them, and hands on
/// those of an Open MPI outside. A size of one that stands alone may be a script's.
fn is_of_open_mpi(env: Lookup<'_>) -> bool {
    let server = env("PMIX_SERVER_TMPDIR").unwrap_or_default();
    match env("OMPI_FILE_LOCATION") {
        Some(files) => files.starts_with(&server),
        None => env("OMPI_COMM_WORLD_SIZE").is_some_and(|size| size.trim() != "1"),
    }
}

const SLURM_SIZES: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
const FLUX_SIZES: &[&str] = &["FLUX_JOB_SIZE"];

/// A task of a Slurm step. A batch script and the shell of `salloc` are not: there `SLURM_NTASKS` says what a step
/// would have.
fn read_slurm(env: Lookup<'_>) -> Option<Claim> {
    env("SLURM_PROCID")?;
    // A batch script has no step number, or, as all that Slurm starts for itself, one of the highest, which 26.05
    // writes as a negative number. Its other variables may be those of a step that submitted it.
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

/// Whether a variable says which rank of another launcher a process is. Our `mpiexec` takes these out of the
/// environment of its ranks, which would all see the same.
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
