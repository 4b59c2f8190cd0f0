//! Cores, caches, NUMA nodes and sockets of ranks that our launcher has not placed.

use super::{BootstrapError, Job};
use fastpath_base::config::{Config, Key};
use fastpath_base::host_topology::{HostTopology, RankDomains};
use fastpath_base::topology::{self, CpuSet};
use fastpath_segment::Segment;

/// Records where the ranks of a node run. `together` are the processors of all ranks. `masks` has ranks with the
/// processors that each may use.
pub(super) fn place_ranks<'a>(
    segment: &Segment, together: &CpuSet, masks: impl Iterator<Item = (usize, &'a CpuSet)>,
) -> Result<(), BootstrapError> {
    let topology = HostTopology::current(&read_config(), &topology::list_cores(together))?;
    let here: Vec<usize> = segment.node_ranks().collect();
    for (rank, mask) in masks {
        let index = here.iter().position(|&other| other == rank);
        if let (Some(index), Some(page)) = (index, segment.page(rank)) {
            page.set_domains(topology.place_rank(index, mask, mask != together));
        }
    }
    Ok(())
}

/// Returns the settings. Initialization of MPI reports a rejected value.
fn read_config() -> Config {
    Config::from_env().unwrap_or_else(|_| Config::defaults())
}

impl Job {
    /// Records where a process without launcher runs, if `FASTPATH_TOPOLOGY` names a file. Otherwise the kernel is only
    /// queried when the place is needed, because that takes milliseconds on a large host.
    pub(super) fn place_by_file(&self) -> Result<(), BootstrapError> {
        let config = read_config();
        if !config.text(Key::Topology).is_empty() {
            let found =
                HostTopology::current(&config, &[])?.place_rank(0, &topology::affinity(), false);
            let _ = self.own_domains.set(found);
        }
        Ok(())
    }

    /// Returns the core, L3 cache, NUMA node and socket in which a rank of this node runs; unknown for ranks of other
    /// nodes. All ranks of the node get equal results, which never change.
    pub fn domains(&self, rank: usize) -> RankDomains {
        if rank == self.rank && self.is_alone() {
            return *self.own_domains.get_or_init(|| {
                let allowed = topology::affinity();
                HostTopology::of_kernel(&topology::list_cores(&allowed))
                    .place_rank(0, &allowed, false)
            });
        }
        let page = self.rank_page(rank).filter(|_| self.is_node_peer(rank));
        page.map_or(RankDomains::UNKNOWN, |page| page.domains())
    }

    /// Returns whether this process is the only rank with which its job began.
    fn is_alone(&self) -> bool {
        self.launcher.is_none() && self.began_with == 1
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::host_topology::DomainLevel;
    use fastpath_segment::Segment;

    #[test]
    fn domains__of_a_process_alone__are_those_of_its_processors() {
        let allowed = topology::affinity();
        let topology = HostTopology::of_kernel(&topology::list_cores(&allowed));
        let job = Job::singleton().unwrap();
        assert_eq!(job.domains(0), topology.place_rank(0, &allowed, false));
        assert_eq!(job.domains(1), RankDomains::UNKNOWN);
    }

    #[test]
    fn ranks__are_placed_by_their_processors() {
        let segment = Segment::create(2, 9).unwrap();
        let allowed = topology::affinity();
        let one: CpuSet = allowed.iter().take(1).collect();
        place_ranks(&segment, &allowed, [(1, &one), (0, &allowed)].into_iter()).unwrap();
        let topology = HostTopology::of_kernel(&topology::list_cores(&allowed));
        let found = |rank| segment.page(rank).unwrap().domains();
        assert_eq!(found(1), topology.place_rank(1, &one, true));
        assert!(found(1).domain(DomainLevel::Core).is_some());
        assert_eq!(found(0), topology.place_rank(0, &allowed, false));
    }
}
