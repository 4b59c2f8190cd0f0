//! Order in which ranks take places: `--map-by`, `--rank-by`, and binding to places that several ranks share.

use crate::args::{Placement, RankOrder};
use fastpath_base::topology::{Core, CpuSet, Level, list_places};
use std::collections::BTreeMap;

/// Placement of one process: number of the place to which the process is mapped, and its processors.
pub type Placed = (usize, CpuSet);

#[derive(Debug)]
pub struct NodeProcessors {
    /// Cores with the processors that this process may use.
    pub cores: Vec<Core>,
    /// Processor time that this process may use at once, in processors.
    pub processors: usize,
    /// Reads a file below /sys/devices/system.
    pub read: fn(&str) -> Option<String>,
}

impl NodeProcessors {
    /// Lists the places of this kind. Fails if the kernel does not report them.
    pub fn places(&self, level: Level) -> Result<Vec<CpuSet>, String> {
        let allowed: CpuSet = self.cores.iter().flat_map(|c| c.threads.iter().copied()).collect();
        list_places(level, &allowed, &self.read)
            .filter(|places| !places.is_empty())
            .ok_or_else(|| format!("the kernel reports no {level} on this machine"))
    }

    fn groups(&self, level: Level, size: usize) -> Result<Vec<CpuSet>, String> {
        let places = self.places(level)?;
        let join = |group: &[CpuSet]| group.iter().flat_map(CpuSet::iter).collect();
        Ok(places.chunks(size.max(1)).map(join).collect())
    }
}

/// Groups units (cores or hardware threads) by the place of `map` that holds them. Returns one group if `map` keeps the
/// order of the units.
pub fn group_units(
    units: Vec<Vec<usize>>, map: Option<(Level, usize)>, machine: &NodeProcessors,
) -> Result<Vec<Vec<Vec<usize>>>, String> {
    let threads = units.iter().all(|u| u.len() == 1);
    let (level, size) = match map {
        None | Some((Level::Node, _)) | Some((Level::Thread, 1)) => return Ok(vec![units]),
        Some((Level::Core, 1)) if !threads => return Ok(vec![units]),
        Some(map) => map,
    };
    let groups = machine.groups(level, size)?;
    let of = |group: &CpuSet| {
        let inside = units.iter().filter(|u| u.iter().any(|&cpu| group.contains(cpu)));
        inside.cloned().collect()
    };
    Ok(groups.iter().map(of).collect())
}

/// Chooses the processors of each rank: `per_rank` places (default 1) of the kind `level`. Several ranks may get the
/// same places.
pub fn place_on(
    level: Level, placement: &Placement, ranks: usize, machine: &NodeProcessors,
) -> Result<Vec<CpuSet>, String> {
    let targets = machine.groups(level, placement.per_rank.unwrap_or(1))?;
    let placed = match placement.map.filter(|(level, _)| *level != Level::Node) {
        // Neighbouring ranks share a place, with an equal number of ranks on each place.
        None => (0..ranks)
            .map(|r| r * targets.len() / ranks)
            .map(|at| (at, targets[at].clone()))
            .collect(),
        Some((level, size)) => {
            let groups = machine.groups(level, size)?;
            let visits = visit(groups.len(), ranks, placement.in_a_row);
            visits.map(|(at, turn)| (at, choose(&targets, &groups[at], turn))).collect()
        }
    };
    Ok(number(placed, placement.rank, machine))
}

/// Yields each process's group, and the number of earlier processes in that group. The groups are visited in turn, with
/// `in_a_row` processes at a time.
fn visit(groups: usize, ranks: usize, in_a_row: usize) -> impl Iterator<Item = (usize, usize)> {
    let row = in_a_row.max(1);
    (0..ranks).map(move |r| {
        let round = r / row;
        (round % groups, round / groups * row + r % row)
    })
}

/// Returns one of the targets inside the group, round robin by `turn`. If there is none, returns a target that overlaps
/// the group, or else the group.
fn choose(targets: &[CpuSet], group: &CpuSet, turn: usize) -> CpuSet {
    let inside: Vec<&CpuSet> =
        targets.iter().filter(|t| t.iter().all(|cpu| group.contains(cpu))).collect();
    let around = || targets.iter().find(|t| group.iter().any(|cpu| t.contains(cpu)));
    match inside.len() {
        0 => around().unwrap_or(group).clone(),
        n => inside[turn % n].clone(),
    }
}

pub fn number(mut placed: Vec<Placed>, rank: RankOrder, machine: &NodeProcessors) -> Vec<CpuSet> {
    match rank {
        RankOrder::Mapped => {}
        RankOrder::Fill => placed.sort_by_key(|(at, _)| *at),
        RankOrder::Round(level) => {
            if let Some(Ok(places)) = level.map(|level| machine.places(level)) {
                for (at, set) in &mut placed {
                    let is_here = |p: &CpuSet| set.iter().any(|cpu| p.contains(cpu));
                    *at = places.iter().position(is_here).unwrap_or(0);
                }
            }
            // Number the first process of each place, in order of the places, then each place's second one, and so on.
            let mut turns: BTreeMap<usize, usize> = BTreeMap::new();
            placed.sort_by_cached_key(|(at, _)| {
                let turn = turns.entry(*at).or_default();
                *turn += 1;
                (*turn, *at)
            });
        }
    }
    placed.into_iter().map(|(_, set)| set).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::args::Bind;
    use crate::binding::{BindingPlan, plan_binding};
    use crate::claims::claim_beside;
    use fastpath_base::topology::list_cores_in;

    /// The files of /sys/devices/system of a node with two packages of two NUMA nodes of two cores of two threads. n
    /// and n + 8 are siblings. The cores of a package share a cache of level 3.
    fn sysfs(path: &str) -> Option<String> {
        let list = |first: usize, n: usize| {
            format!("{first}-{},{}-{}\n", first + n - 1, first + 8, first + n + 7)
        };
        if path == "node/online" {
            return Some("0-3\n".into());
        }
        if let Some(number) =
            path.strip_prefix("node/node").and_then(|f| f.strip_suffix("/cpulist"))
        {
            return Some(list(2 * number.parse::<usize>().ok()?, 2));
        }
        let (cpu, file) = path.strip_prefix("cpu/cpu")?.split_once('/')?;
        let core = cpu.parse::<usize>().ok()? % 8;
        Some(match file {
            "topology/thread_siblings_list" | "cache/index2/shared_cpu_list" => {
                format!("{core},{}\n", core + 8)
            }
            "topology/physical_package_id" => format!("{}\n", core / 4),
            "cache/index2/level" => "2\n".into(),
            "cache/index3/level" => "3\n".into(),
            "cache/index3/shared_cpu_list" => list(core / 4 * 4, 4),
            _ => return None,
        })
    }

    fn machine() -> NodeProcessors {
        let allowed = CpuSet::parse("0-15").unwrap();
        NodeProcessors { cores: list_cores_in(&allowed, &sysfs), processors: 16, read: sysfs }
    }

    fn plan(ranks: usize, placement: Placement) -> BindingPlan {
        plan_binding(&placement, ranks, 1, &machine(), &mut claim_beside("", ""))
    }

    fn sets(ranks: usize, placement: Placement) -> Vec<String> {
        let plan = plan(ranks, placement);
        assert_eq!(plan.warning, None);
        plan.sets.iter().map(CpuSet::to_string).collect()
    }

    fn to(level: Level) -> Placement {
        Placement { bind: Bind::To(level), ..Placement::default() }
    }

    fn map(level: Level) -> Placement {
        Placement { map: Some((level, 1)), ..Placement::default() }
    }

    #[test]
    fn bind__to_each_kind_of_place() {
        let sockets = ["0-3,8-11", "4-7,12-15"];
        let double = [sockets[0], sockets[0], sockets[1], sockets[1]];
        assert_eq!(sets(4, to(Level::Package)), double);
        assert_eq!(sets(4, to(Level::Cache(3))), double);
        assert_eq!(sets(4, to(Level::Numa)), ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]);
        assert_eq!(sets(2, to(Level::Node)), ["0-15", "0-15"]);
        assert_eq!(sets(3, to(Level::Thread)), ["0", "8", "1"]);
        assert_eq!(sets(2, to(Level::Core)), ["0,8", "1,9"]);
        assert_eq!(sets(2, to(Level::Cache(2))), ["0,8", "4,12"]);
        let two = Placement { per_rank: Some(2), ..to(Level::Numa) };
        assert_eq!(sets(2, two), sockets);
    }

    #[test]
    fn bind__says_where_the_kernel_names_no_such_place() {
        let p = plan(2, to(Level::Cache(4)));
        assert!(p.sets.is_empty());
        assert_eq!(
            p.warning.as_deref(),
            Some(
                "--bind-to l4cache is not possible, so ranks are not bound: the kernel reports no \
                 l4cache on this machine"
            )
        );
        let quiet = Placement { if_supported: true, ..to(Level::Cache(4)) };
        assert_eq!(plan(2, quiet).warning, None);
    }

    #[test]
    fn bind__to_lists_of_processors_in_turn() {
        let list = ["0,2", "1"].map(|l| CpuSet::parse(l).unwrap()).to_vec();
        let cpus = |list| Placement { bind: Bind::Cpus(list), ..Placement::default() };
        assert_eq!(sets(3, cpus(list)), ["0,2", "1", "0,2"]);
        let far = plan(1, cpus(vec![CpuSet::from_iter([40])]));
        assert!(far.sets.is_empty() && far.warning.unwrap().contains("may not use processors 40"));
    }

    #[test]
    fn map__deals_cores_round_the_places() {
        assert_eq!(sets(4, map(Level::Package)), ["0,8", "4,12", "1,9", "5,13"]);
        assert_eq!(sets(5, map(Level::Numa)), ["0,8", "2,10", "4,12", "6,14", "1,9"]);
        for level in [Level::Core, Level::Node] {
            assert_eq!(sets(2, map(level)), ["0,8", "1,9"]);
        }
        let threads = Placement { threads: true, ..map(Level::Core) };
        assert_eq!(sets(9, threads)[..2], ["0", "1"]);
        assert_eq!(sets(2, map(Level::Thread)), ["0", "8"]);
        let stride = Placement { map: Some((Level::Core, 2)), ..Placement::default() };
        assert_eq!(sets(5, stride), ["0,8", "2,10", "4,12", "6,14", "1,9"]);
    }

    #[test]
    fn map__with_several_cores_a_rank() {
        let pe = |level, n| Placement { per_rank: Some(n), ..map(level) };
        assert_eq!(sets(3, pe(Level::Package, 2)), ["0-1,8-9", "4-5,12-13", "2-3,10-11"]);
        // Three of a package's four cores are taken, so a second rank does not fit there.
        assert_eq!(sets(2, pe(Level::Package, 3)), ["0-2,8-10", "4-6,12-14"]);
        let warning = plan(2, pe(Level::Numa, 3)).warning.unwrap();
        assert!(warning.contains("no numa has 3 free cores"), "{warning}");
        assert_eq!(sets(1, pe(Level::Core, 2)), ["0-1,8-9"]);
    }

    #[test]
    fn map__in_a_row_as_ppr_asks_for() {
        let ppr = |bind| Placement { in_a_row: 2, bind, ..map(Level::Package) };
        assert_eq!(sets(4, ppr(Bind::Auto)), ["0,8", "1,9", "4,12", "5,13"]);
        let (a, b) = ("0-3,8-11", "4-7,12-15");
        assert_eq!(sets(5, ppr(Bind::To(Level::Package))), [a, a, b, b, a]);
    }

    #[test]
    fn map__and_bind_to_other_places() {
        let of = |bound, mapped| Placement { bind: Bind::To(bound), ..map(mapped) };
        let (a, b) = ("0-3,8-11", "4-7,12-15");
        assert_eq!(sets(3, of(Level::Package, Level::Package)), [a, b, a]);
        assert_eq!(sets(3, of(Level::Package, Level::Core)), [a, a, a]);
        assert_eq!(
            sets(5, of(Level::Numa, Level::Package)),
            ["0-1,8-9", "4-5,12-13", "2-3,10-11", "6-7,14-15", "0-1,8-9"]
        );
    }

    #[test]
    fn rank__numbers_what_is_mapped() {
        let by = |rank, placement| Placement { rank, ..placement };
        let filled = ["0,8", "1,9", "4,12", "5,13"];
        let dealt = ["0,8", "4,12", "1,9", "5,13"];
        assert_eq!(sets(4, by(RankOrder::Fill, map(Level::Package))), filled);
        assert_eq!(sets(4, by(RankOrder::Round(None), map(Level::Package))), dealt);
        let ppr = Placement { in_a_row: 2, ..map(Level::Package) };
        assert_eq!(sets(4, by(RankOrder::Round(None), ppr.clone())), dealt);
        assert_eq!(sets(4, by(RankOrder::Round(Some(Level::Package)), ppr)), dealt);
        let cores = Placement::default();
        assert_eq!(sets(3, by(RankOrder::Round(Some(Level::Numa)), cores)), ["0,8", "2,10", "1,9"]);
    }

    #[test]
    fn overload__lets_ranks_share_cores() {
        let p = plan(9, Placement { overload: true, ..to(Level::Core) });
        assert_eq!(p.sets.len(), 9);
        assert!(!p.exclusive && p.warning.is_none());
    }

    #[test]
    fn cores_of_another_job__are_passed_over_within_their_place() {
        // Processors of another user come last in their place.
        for (own, foreign) in [("0,5", ""), ("0", "5")] {
            let mut claim = claim_beside(own, foreign);
            let p = plan_binding(&map(Level::Package), 4, 1, &machine(), &mut claim);
            let sets: Vec<String> = p.sets.iter().map(CpuSet::to_string).collect();
            assert_eq!(sets, ["1,9", "4,12", "2,10", "6,14"]);
        }
    }
}
