//! Members of a communicator on this host, by the core, L3 cache, NUMA node and socket that they share.

use super::Process;
use crate::objects::comm::Comm;
use fastpath_base::host_topology::{RankDomains, RankGroups};

impl Comm {
    /// Returns the members of the local group on this process's host, by shared hardware. Ranks are those in this
    /// communicator. All members on the host get equal groups, without messages. Computed once. Without a job the
    /// caller is the only member.
    pub(crate) fn host_groups(&self, p: &Process) -> &RankGroups {
        self.host_groups.get_or_init(|| Box::new(find_groups(p, self)))
    }
}

#[cold]
fn find_groups(p: &Process, comm: &Comm) -> RankGroups {
    let Some(job) = p.engine().map(|engine| engine.job) else {
        return RankGroups::new(&[(comm.rank, RankDomains::UNKNOWN)]);
    };
    let members = (0..).zip(comm.group.world_ranks());
    let members = members.map(|(member, &rank)| (member, rank as usize));
    let here = members.filter(|&(_, rank)| !job.is_remote(rank));
    RankGroups::new(&here.map(|(member, rank)| (member, job.domains(rank))).collect::<Vec<_>>())
}
