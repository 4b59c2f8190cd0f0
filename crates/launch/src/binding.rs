//! Binding of ranks to processors.
//!
//! Two jobs must not bind to the same cores, so a job claims its cores (`claims`).

use crate::args::{Bind, Placement};
use crate::claims::{ClaimedPlaces, OtherClaims, Pick};
use crate::placing::{NodeProcessors, Placed, group_units, number, place_on};
use fastpath_base::host_topology::RankDomains;
use fastpath_base::topology::{Core, CpuSet, Level};
use std::fmt::Write as _;
use std::fs::File;

#[derive(Debug)]
pub struct BindingPlan {
    /// Processor set of each rank; empty if all ranks are unbound.
    pub sets: Vec<CpuSet>,
    pub reason: String,
    /// Whether each rank is the only user of its processors.
    pub exclusive: bool,
    pub warning: Option<String>,
    _claims: Option<File>,
}

pub type Claim<'a> = &'a mut dyn FnMut(Pick<'_>) -> Result<ClaimedPlaces, String>;

/// Plans the binding of `ranks` ranks that run `threads` threads each.
pub fn plan_binding(
    placement: &Placement, ranks: usize, threads: usize, machine: &NodeProcessors, claim: Claim<'_>,
) -> BindingPlan {
    let asked = placement.per_rank;
    let done = match &placement.bind {
        Bind::None => return float("--bind-to none"),
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
            Bind::Auto if placement.per_rank_typed.is_some() => {
                placement.per_rank_typed.clone().unwrap_or_default()
            }
            Bind::To(level) => format!("--bind-to {level}"),
            Bind::Cpus(_) => "--bind-to user".to_owned(),
            _ => "--map-by".to_owned(),
        };
        let is_optional = placement.if_supported || placement.bind == Bind::Auto && asked.is_none();
        BindingPlan {
            warning: (!is_optional)
                .then(|| format!("{option} is not possible, so ranks are not bound: {why}")),
            ..float(&why)
        }
    })
}

fn float(reason: &str) -> BindingPlan {
    BindingPlan {
        sets: Vec::new(),
        reason: reason.to_owned(),
        exclusive: false,
        warning: None,
        _claims: None,
    }
}

fn share(level: Level, sets: Vec<CpuSet>) -> BindingPlan {
    BindingPlan { sets, ..float(&format!("one {level} for each rank")) }
}

fn bind_to_list(
    list: &[CpuSet], ranks: usize, machine: &NodeProcessors,
) -> Result<BindingPlan, String> {
    let allowed = machine.cores.iter().flat_map(|c| &c.threads);
    let allowed: CpuSet = allowed.copied().collect();
    if let Some(set) = list.iter().find(|s| !s.iter().any(|cpu| allowed.contains(cpu))) {
        return Err(format!("this job may not use processors {set}, only {allowed}"));
    }
    Ok(BindingPlan {
        sets: list.iter().cycle().take(ranks).cloned().collect(),
        ..float("a list of processors")
    })
}

/// Binds each rank to a core if enough cores are unclaimed, otherwise to a hardware thread.
fn bind_to_cores(
    placement: &Placement, ranks: usize, per_rank: usize, machine: &NodeProcessors,
    claim: Claim<'_>,
) -> Result<BindingPlan, String> {
    let want = ranks.saturating_mul(per_rank);
    if want > machine.processors {
        return Err(format!(
            "the ranks need {want} processors, and this job may use only {}",
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
        let claimed = claim(&|others| pick_units(&groups, placement, ranks, per_rank, others))?;
        let shared = match claimed.shared {
            true => "; a job of another user uses some of these processors",
            false => "",
        };
        return Ok(BindingPlan {
            sets: number(claimed.placed, placement.rank, machine),
            reason: match (per_rank, placement.per_rank) {
                (1, _) => format!("one {name} for each rank{shared}"),
                (n, Some(_)) => format!("{n} {name}s for each rank{shared}"),
                (n, None) => format!("{n} {name}s for each rank (OMP_NUM_THREADS){shared}"),
            },
            exclusive: !claimed.shared,
            warning: None,
            _claims: claimed.locks,
        });
    }
    Err(format!(
        "the ranks need {want} processors, and the affinity mask of mpiexec contains fewer"
    ))
}

/// Picks units (cores or hardware threads) for each rank, from the groups in turn. Skips units claimed by other jobs of
/// this user. In each group, units claimed by other users come last.
fn pick_units(
    groups: &[Vec<Vec<usize>>], placement: &Placement, ranks: usize, per_rank: usize,
    others: &OtherClaims,
) -> Result<Vec<Placed>, String> {
    let is_in = |unit: &[usize], set: &CpuSet| unit.iter().any(|&cpu| set.contains(cpu));
    let free = |units: &Vec<Vec<usize>>| {
        let mut free = units.clone();
        free.retain(|unit| !is_in(unit, &others.own));
        free.sort_by_key(|unit| is_in(unit, &others.foreign));
        free
    };
    let groups: Vec<_> = groups.iter().map(free).collect();
    let mut left: Vec<_> = groups.iter().map(|units| units.chunks_exact(per_rank.max(1))).collect();
    let mut placed = Vec::new();
    while placed.len() < ranks {
        let before = placed.len();
        for (at, units) in left.iter_mut().enumerate() {
            let next = units.take(placement.in_a_row.max(1).min(ranks - placed.len()));
            placed.extend(next.map(|unit| (at, unit.iter().flatten().copied().collect())));
        }
        if placed.len() == before {
            return Err(match (others.own.is_empty(), placement.map) {
                (true, Some((level, _))) => format!("no {level} has {per_rank} free cores"),
                _ => "other jobs have claimed the cores".to_owned(),
            });
        }
    }
    Ok(placed)
}

/// Describes the binding of each rank. `places` holds the core, L3 cache, NUMA node and socket of each rank.
pub fn describe_plan(
    plan: &BindingPlan, ranks: usize, machine: &NodeProcessors, places: &[RankDomains],
) -> String {
    let mut text = String::new();
    for rank in 0..ranks {
        let line = match plan.sets.get(rank) {
            Some(set) => {
                let noun = if set.len() == 1 { "processor" } else { "processors" };
                format!("rank {rank} is bound to {noun} {set} ({})", describe_place(set, machine))
            }
            None => {
                let all: CpuSet =
                    machine.cores.iter().flat_map(|c| c.threads.iter().copied()).collect();
                format!("rank {rank} is not bound, and may use processors {all}: {}", plan.reason)
            }
        };
        let place = places.get(rank).map(ToString::to_string).filter(|place| !place.is_empty());
        let place = place.map_or_else(String::new, |place| format!("; hardware: {place}"));
        let _ = writeln!(text, "mpiexec: {line}{place}");
    }
    text
}

fn describe_place(set: &CpuSet, machine: &NodeProcessors) -> String {
    let on = |c: &&Core| c.threads.iter().any(|&cpu| set.contains(cpu));
    let mut nodes: Vec<String> =
        machine.cores.iter().filter(on).map(|c| c.node.to_string()).collect();
    nodes.dedup();
    let cores = machine.cores.iter().filter(on).count();
    format!("{cores} core{}, NUMA node {}", if cores == 1 { "" } else { "s" }, nodes.join(","))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::claims::claim_beside;

    fn machine(nodes: usize, cores: usize, threads: usize) -> NodeProcessors {
        let all = nodes * cores;
        let core = |c: usize| Core {
            node: c / cores,
            package: c / cores,
            cache: 0,
            threads: (0..threads).map(|t| c + t * all).collect(),
        };
        NodeProcessors {
            cores: (0..all).map(core).collect(),
            processors: all * threads,
            read: |_| None,
        }
    }

    fn sets(plan: &BindingPlan) -> Vec<String> {
        plan.sets.iter().map(CpuSet::to_string).collect()
    }

    fn to(bind: Bind) -> Placement {
        Placement { bind, ..Placement::default() }
    }

    fn plan(bind: Bind, ranks: usize, machine: &NodeProcessors) -> BindingPlan {
        plan_binding(&to(bind), ranks, 1, machine, &mut claim_beside("", ""))
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
        assert!(plan(Bind::To(Level::Core), 9, &machine(1, 4, 2)).warning.is_some());
    }

    #[test]
    fn warning__names_the_option_as_typed() {
        let placement = Placement {
            per_rank: Some(5),
            per_rank_typed: Some("--cpus-per-proc 5".into()),
            ..Placement::default()
        };
        let m = machine(1, 4, 1);
        let p = plan_binding(&placement, 2, 1, &m, &mut claim_beside("", ""));
        let warning = p.warning.expect("a warning");
        assert!(warning.starts_with("--cpus-per-proc 5 is not possible"), "{warning}");
    }

    #[test]
    fn quota__below_the_mask_counts() {
        let m = NodeProcessors { processors: 2, ..machine(1, 4, 1) };
        assert!(plan(Bind::Auto, 3, &m).sets.is_empty());
        assert_eq!(sets(&plan(Bind::Auto, 2, &m)), ["0", "1"]);
    }

    #[test]
    fn single_rank__floats_unless_asked() {
        assert!(plan(Bind::Auto, 1, &machine(1, 4, 1)).sets.is_empty());
        assert_eq!(sets(&plan(Bind::To(Level::Core), 1, &machine(1, 4, 1))), ["0"]);
        assert!(plan(Bind::None, 2, &machine(1, 4, 1)).sets.is_empty());
    }

    #[test]
    fn cores_of_another_job__are_left_alone() {
        let m = machine(1, 4, 2);
        let beside =
            |ranks, own| plan_binding(&to(Bind::Auto), ranks, 1, &m, &mut claim_beside(own, ""));
        assert_eq!(sets(&beside(2, "0")), ["1,5", "2,6"]);
        assert_eq!(sets(&beside(2, "4-5")), ["2,6", "3,7"]);
        let p = beside(4, "0");
        assert!(p.sets.is_empty() && p.reason.contains("other jobs"));
        let threads = plan_binding(&to(Bind::Auto), 2, 2, &m, &mut claim_beside("1", ""));
        assert_eq!(sets(&threads), Vec::<String>::new());
    }

    #[test]
    fn cores_of_another_user__are_avoided_and_shared_where_there_are_no_others() {
        let m = machine(1, 4, 1);
        let beside = |ranks, own, foreign| {
            plan_binding(&to(Bind::Auto), ranks, 1, &m, &mut claim_beside(own, foreign))
        };
        let p = beside(2, "", "0-1");
        assert_eq!(sets(&p), ["2", "3"]);
        assert!(p.exclusive);
        let p = beside(3, "", "0-1");
        assert_eq!(sets(&p), ["2", "3", "0"]);
        assert!(!p.exclusive && p.reason.contains("another user"));
        assert_eq!(sets(&beside(4, "", "0-65535")), ["0", "1", "2", "3"]);
        assert_eq!(sets(&beside(2, "1", "0-65535")), ["0", "2"]);
        assert!(beside(4, "3", "0-65535").sets.is_empty());
    }

    #[test]
    fn ranks__float_where_nothing_can_be_claimed() {
        let mut claim = |_: Pick<'_>| Err("processors cannot be claimed here".to_owned());
        let p = plan_binding(&to(Bind::Auto), 2, 1, &machine(1, 4, 1), &mut claim);
        assert!(p.sets.is_empty() && p.reason.contains("cannot be claimed"));
    }

    #[test]
    fn threads__get_cores_of_their_own() {
        let p = plan_binding(&to(Bind::Auto), 2, 2, &machine(1, 4, 1), &mut claim_beside("", ""));
        assert_eq!(sets(&p), ["0-1", "2-3"]);
        let p = plan_binding(
            &to(Bind::Auto),
            2,
            usize::MAX,
            &machine(1, 4, 1),
            &mut claim_beside("", ""),
        );
        assert!(p.sets.is_empty());
    }

    #[test]
    fn report__names_every_rank() {
        let m = machine(2, 2, 1);
        let place = RankDomains::from([2, 0, 1, 1]);
        let places = [RankDomains::UNKNOWN, RankDomains::UNKNOWN, place];
        let text = describe_plan(&plan(Bind::Auto, 3, &m), 3, &m, &places);
        assert_eq!(text.lines().count(), 3);
        let last = "rank 2 is bound to processor 2 (1 core, NUMA node 1); hardware: core 2, L3 cache 0, \
                    NUMA node 1, socket 1";
        assert!(text.trim_end().ends_with(last), "{text}");
        assert_eq!(text.matches("hardware").count(), 1);
        assert!(
            describe_plan(&plan(Bind::None, 1, &m), 1, &m, &[])
                .contains("is not bound, and may use processors 0-3")
        );
    }
}
