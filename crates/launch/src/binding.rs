#![allow(unsafe_code)]
//! Which processors each rank may use.
//!
//! Two jobs at once must not pile on the same cores, so a job claims those it binds to: a lock
//! (`flock`) on the kernel's own folder of each processor. Nothing is created for it, and it
//! vanishes with the launcher however that ends.

use crate::args::{Bind, Placement};
use crate::placing::{Placed, group_units, number, place_on};
use fastpath_base::topology::{Core, CpuSet, Level};
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Where the ranks run.
#[derive(Debug)]
pub struct Plan {
    /// One set for each rank; empty when all float.
    pub sets: Vec<CpuSet>,
    /// Why they float, or are bound as they are; one phrase.
    pub reason: String,
    /// Each rank has processors of its own.
    pub exclusive: bool,
    /// Something asked for could not be done.
    pub warning: Option<String>,
    /// Holds the claims for as long as the job runs.
    _claims: Vec<File>,
}

/// What is there to bind to.
#[derive(Debug)]
pub struct Machine {
    /// Cores with the processors that this process may use.
    pub cores: Vec<Core>,
    /// Processors worth of time that it may use at once.
    pub processors: usize,
    /// Reads what the kernel tells of them, below /sys/devices/system.
    pub read: fn(&str) -> Option<String>,
}

/// Why processors could not be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another job has one of them.
    Taken,
    /// There is nothing to lock.
    Unavailable,
}

/// Claims processors for this job, all of them or none.
pub type Claim<'a> = &'a mut dyn FnMut(&[usize]) -> Result<Vec<File>, Refused>;

/// Decides for `ranks` ranks that run `threads` threads each.
pub fn plan_binding(
    placement: &Placement,
    ranks: usize,
    threads: usize,
    machine: &Machine,
    claim: Claim<'_>,
) -> Plan {
    let asked = placement.per_rank;
    let done = match &placement.bind {
        Bind::None => return float("asked for"),
        Bind::Auto if ranks == 1 && asked.is_none() => {
            return float("a single rank may use all processors");
        }
        Bind::Cpus(list) => bind_to_list(list, ranks, machine),
        Bind::To(level) if placement.overload || !matches!(level, Level::Core | Level::Thread) => {
            place_on(*level, placement, ranks, machine).map(|sets| share(*level, sets))
        }
        _ => bind_to_cores(placement, ranks, asked.unwrap_or(threads), machine, claim),
    };
    done.unwrap_or_else(|why| {
        let option = match &placement.bind {
            Bind::To(level) => format!("--bind-to {level}"),
            Bind::Cpus(_) => "--bind-to user".to_owned(),
            _ => "--map-by".to_owned(),
        };
        let is_wish = placement.if_supported || placement.bind == Bind::Auto && asked.is_none();
        Plan {
            warning: (!is_wish).then(|| format!("{option}: not possible, ranks float: {why}")),
            ..float(&why)
        }
    })
}

fn float(reason: &str) -> Plan {
    Plan {
        sets: Vec::new(),
        reason: reason.to_owned(),
        exclusive: false,
        warning: None,
        _claims: Vec::new(),
    }
}

/// Ranks on places that they may share with others.
fn share(level: Level, sets: Vec<CpuSet>) -> Plan {
    Plan {
        sets,
        ..float(&format!("a {level} for each rank"))
    }
}

fn bind_to_list(list: &[CpuSet], ranks: usize, machine: &Machine) -> Result<Plan, String> {
    let allowed = machine.cores.iter().flat_map(|c| &c.threads);
    let allowed: CpuSet = allowed.copied().collect();
    if let Some(set) = list
        .iter()
        .find(|s| !s.iter().any(|cpu| allowed.contains(cpu)))
    {
        return Err(format!(
            "processors {set} may not be used here, {allowed} may"
        ));
    }
    Ok(Plan {
        sets: list.iter().cycle().take(ranks).cloned().collect(),
        ..float("a list of processors")
    })
}

/// A core each where there are enough that nobody has claimed, else a hardware thread each.
fn bind_to_cores(
    placement: &Placement,
    ranks: usize,
    per_rank: usize,
    machine: &Machine,
    claim: Claim<'_>,
) -> Result<Plan, String> {
    let want = ranks.saturating_mul(per_rank);
    if want > machine.processors {
        return Err(format!(
            "{want} processors wanted, {} usable",
            machine.processors
        ));
    }
    let threads_alone = placement.threads
        || placement.bind == Bind::To(Level::Thread)
        || placement.bind == Bind::Auto && placement.map == Some((Level::Thread, 1));
    let cores: Vec<Vec<usize>> = machine.cores.iter().map(|c| c.threads.clone()).collect();
    let threads: Vec<Vec<usize>> = cores.iter().flatten().map(|&cpu| vec![cpu]).collect();
    for (units, name) in [(cores, "core"), (threads, "hardware thread")] {
        if units.len() < want || name == "core" && threads_alone {
            continue;
        }
        let groups = group_units(units, placement.map, machine)?;
        let (placed, claims) = claim_units(&groups, placement, ranks, per_rank, claim)?;
        return Ok(Plan {
            sets: number(placed, placement.rank, machine),
            reason: match (per_rank, placement.per_rank) {
                (1, _) => format!("one {name} for each rank"),
                (n, Some(_)) => format!("{n} {name}s for each rank"),
                (n, None) => format!("{n} {name}s for each rank (OMP_NUM_THREADS)"),
            },
            exclusive: true,
            warning: None,
            _claims: claims,
        });
    }
    Err(format!(
        "{want} processors wanted, fewer allowed by the affinity mask"
    ))
}

type Claimed = (Vec<Placed>, Vec<File>);

/// Goes round the groups and claims units for one rank after the other, passing over those of other jobs.
fn claim_units(
    groups: &[Vec<Vec<usize>>],
    placement: &Placement,
    ranks: usize,
    per_rank: usize,
    claim: Claim<'_>,
) -> Result<Claimed, String> {
    let mut left: Vec<_> = groups.iter().map(|units| units.iter()).collect();
    let (mut placed, mut claims, mut others) = (Vec::new(), Vec::new(), false);
    while placed.len() < ranks {
        let before = placed.len();
        for (at, units) in left.iter_mut().enumerate() {
            for _ in 0..placement.in_a_row.max(1).min(ranks - placed.len()) {
                if let Some((set, files)) = claim_next(units, per_rank, claim, &mut others)? {
                    placed.push((at, set));
                    claims.extend(files);
                }
            }
        }
        if placed.len() == before {
            return Err(match (others, placement.map) {
                (false, Some((level, _))) => format!("no {level} has {per_rank} cores left"),
                _ => "other jobs have bound to the cores".to_owned(),
            });
        }
    }
    Ok((placed, claims))
}

/// Claims units for one rank; none where there are too few left.
fn claim_next(
    units: &mut std::slice::Iter<'_, Vec<usize>>,
    per_rank: usize,
    claim: Claim<'_>,
    others: &mut bool,
) -> Result<Option<(CpuSet, Vec<File>)>, String> {
    let (mut taken, mut files) = (Vec::new(), Vec::new());
    while taken.len() < per_rank {
        let Some(unit) = units.next() else {
            return Ok(None);
        };
        match claim(unit) {
            Ok(claimed) => {
                taken.push(unit);
                files.extend(claimed);
            }
            Err(Refused::Taken) => *others = true,
            Err(Refused::Unavailable) => {
                return Err(
                    "processors cannot be claimed here, so other jobs might get the \
                            same (no /sys/devices/system/cpu)"
                        .to_owned(),
                );
            }
        }
    }
    Ok(Some((
        taken.into_iter().flatten().copied().collect(),
        files,
    )))
}

/// Locks the folder of each of these processors, all or none; the kernel's are in
/// /sys/devices/system/cpu.
///
/// # Errors
/// One of them is locked, or there are no such folders.
pub fn claim_processors(folder: &Path, cpus: &[usize]) -> Result<Vec<File>, Refused> {
    let lock = |cpu: &usize| {
        let file =
            File::open(folder.join(format!("cpu{cpu}"))).map_err(|_| Refused::Unavailable)?;
        // SAFETY: plain flock on an open descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(file);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EWOULDBLOCK) => Err(Refused::Taken),
            _ => Err(Refused::Unavailable),
        }
    };
    cpus.iter().map(lock).collect()
}

/// The lines of `--report-bindings`.
pub fn describe_plan(plan: &Plan, ranks: usize, machine: &Machine) -> String {
    let mut text = String::new();
    for rank in 0..ranks {
        let line = match plan.sets.get(rank) {
            Some(set) => {
                let noun = if set.len() == 1 {
                    "processor"
                } else {
                    "processors"
                };
                format!(
                    "rank {rank} is bound to {noun} {set} ({})",
                    describe_place(set, machine)
                )
            }
            None => {
                let all: CpuSet = machine
                    .cores
                    .iter()
                    .flat_map(|c| c.threads.iter().copied())
                    .collect();
                format!("rank {rank} floats over processors {all}: {}", plan.reason)
            }
        };
        let _ = writeln!(text, "mpiexec: {line}");
    }
    text
}

fn describe_place(set: &CpuSet, machine: &Machine) -> String {
    let on = |c: &&Core| c.threads.iter().any(|&cpu| set.contains(cpu));
    let mut nodes: Vec<String> = machine
        .cores
        .iter()
        .filter(on)
        .map(|c| c.node.to_string())
        .collect();
    nodes.dedup();
    let cores = machine.cores.iter().filter(on).count();
    format!(
        "{cores} core{}, NUMA node {}",
        if cores == 1 { "" } else { "s" },
        nodes.join(",")
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// `nodes` nodes of `cores` cores of `threads` hardware threads.
    fn machine(nodes: usize, cores: usize, threads: usize) -> Machine {
        let all = nodes * cores;
        let core = |c: usize| Core {
            node: c / cores,
            package: c / cores,
            cache: 0,
            threads: (0..threads).map(|t| c + t * all).collect(),
        };
        Machine {
            cores: (0..all).map(core).collect(),
            processors: all * threads,
            read: |_| None,
        }
    }

    fn sets(plan: &Plan) -> Vec<String> {
        plan.sets.iter().map(CpuSet::to_string).collect()
    }

    fn free(_: &[usize]) -> Result<Vec<File>, Refused> {
        Ok(Vec::new())
    }

    fn to(bind: Bind) -> Placement {
        Placement {
            bind,
            ..Placement::default()
        }
    }

    fn plan(bind: Bind, ranks: usize, machine: &Machine) -> Plan {
        plan_binding(&to(bind), ranks, 1, machine, &mut free)
    }

    #[test]
    fn ranks__get_a_core_each_when_they_fit() {
        let p = plan(Bind::Auto, 3, &machine(1, 4, 2));
        assert_eq!(sets(&p), ["0,4", "1,5", "2,6"]);
        assert!(p.exclusive);
    }

    #[test]
    fn ranks__get_a_hardware_thread_each_when_cores_are_short() {
        let p = plan(Bind::Auto, 6, &machine(1, 4, 2));
        assert_eq!(sets(&p), ["0", "4", "1", "5", "2", "6"]);
    }

    #[test]
    fn ranks__float_when_they_do_not_fit() {
        let p = plan(Bind::Auto, 9, &machine(1, 4, 2));
        assert!(p.sets.is_empty() && p.warning.is_none());
        assert!(
            plan(Bind::To(Level::Core), 9, &machine(1, 4, 2))
                .warning
                .is_some()
        );
    }

    #[test]
    fn quota__below_the_mask_counts() {
        let m = Machine {
            processors: 2,
            ..machine(1, 4, 1)
        };
        assert!(plan(Bind::Auto, 3, &m).sets.is_empty());
        assert_eq!(sets(&plan(Bind::Auto, 2, &m)), ["0", "1"]);
    }

    #[test]
    fn single_rank__floats_unless_asked() {
        assert!(plan(Bind::Auto, 1, &machine(1, 4, 1)).sets.is_empty());
        assert_eq!(
            sets(&plan(Bind::To(Level::Core), 1, &machine(1, 4, 1))),
            ["0"]
        );
        assert!(plan(Bind::None, 2, &machine(1, 4, 1)).sets.is_empty());
    }

    #[test]
    fn cores_of_another_job__are_left_alone() {
        let mut claim = |cpus: &[usize]| {
            if cpus[0] == 0 {
                Err(Refused::Taken)
            } else {
                Ok(Vec::new())
            }
        };
        let p = plan_binding(&to(Bind::Auto), 2, 1, &machine(1, 4, 1), &mut claim);
        assert_eq!(sets(&p), ["1", "2"]);
        let p = plan_binding(&to(Bind::Auto), 4, 1, &machine(1, 4, 1), &mut claim);
        assert!(p.sets.is_empty() && p.reason.contains("other jobs"));
    }

    #[test]
    fn ranks__float_where_nothing_can_be_claimed() {
        let mut claim = |_: &[usize]| Err(Refused::Unavailable);
        let p = plan_binding(&to(Bind::Auto), 2, 1, &machine(1, 4, 1), &mut claim);
        assert!(p.sets.is_empty() && p.reason.contains("cannot be claimed"));
        let nowhere = Path::new("/no/such/folder");
        assert_eq!(
            claim_processors(nowhere, &[0]).unwrap_err(),
            Refused::Unavailable
        );
    }

    #[test]
    fn threads__get_cores_of_their_own() {
        let p = plan_binding(&to(Bind::Auto), 2, 2, &machine(1, 4, 1), &mut free);
        assert_eq!(sets(&p), ["0-1", "2-3"]);
        let p = plan_binding(&to(Bind::Auto), 2, usize::MAX, &machine(1, 4, 1), &mut free);
        assert!(p.sets.is_empty());
    }

    #[test]
    fn report__names_every_rank() {
        let m = machine(2, 2, 1);
        let text = describe_plan(&plan(Bind::Auto, 3, &m), 3, &m);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("rank 2 is bound to processor 2 (1 core, NUMA node 1)"),
            "{text}"
        );
        assert!(
            describe_plan(&plan(Bind::None, 1, &m), 1, &m).contains("floats over processors 0-3")
        );
    }
}
