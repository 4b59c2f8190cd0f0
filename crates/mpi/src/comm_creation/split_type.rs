//! `MPI_Comm_split_type` and the types of hardware resources (MPI-5.0 sections 7.4.2 and 9.1.2).

use super::create::split_with;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::{Comm, hints};
use crate::process::Process;
use fastpath_base::host_topology::{DomainLevel, RankDomains};
use fastpath_job::Job;

/// Resource type of the memory that ranks of one host share: a URI, as MPI 4.1 and later require.
/// `MPI_Comm_split_type` treats it like `mpi_shared_memory`.
const SHARED_MEMORY_URI: &str = "fastpath://shared_memory";

/// Scheme of the URIs of hardware, whose names are those of hwloc.
const SCHEME: &str = "hwloc://";

/// Type of a hardware resource. Ranks restricted to one instance of it share memory, or a part of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceType {
    SharedMemory,
    Domain(DomainLevel),
}

impl ResourceType {
    const ALL: [ResourceType; 5] = [
        ResourceType::SharedMemory,
        ResourceType::Domain(DomainLevel::Socket),
        ResourceType::Domain(DomainLevel::Numa),
        ResourceType::Domain(DomainLevel::L3),
        ResourceType::Domain(DomainLevel::Core),
    ];

    /// Finds the type for a value of `mpi_hw_resource_type`. The scheme may be missing, as in the examples of MPI 5.0.
    fn parse(value: &str) -> Option<ResourceType> {
        let is_named = |kind: &ResourceType| {
            let uri = kind.uri();
            value == uri || uri.strip_prefix(SCHEME) == Some(value)
        };
        match value {
            "mpi_shared_memory" => Some(ResourceType::SharedMemory),
            _ => ResourceType::ALL.into_iter().find(is_named),
        }
    }

    fn uri(self) -> &'static str {
        match self {
            ResourceType::SharedMemory => SHARED_MEMORY_URI,
            ResourceType::Domain(DomainLevel::Socket) => "hwloc://Package",
            ResourceType::Domain(DomainLevel::Numa) => "hwloc://NUMANode",
            ResourceType::Domain(DomainLevel::L3) => "hwloc://L3Cache",
            ResourceType::Domain(DomainLevel::Core) => "hwloc://Core",
        }
    }

    /// Returns whether a process with these domains is restricted to one instance.
    fn is_restricted(self, domains: &RankDomains) -> bool {
        match self {
            ResourceType::SharedMemory => true,
            ResourceType::Domain(level) => domains.domain(level).is_some(),
        }
    }

    /// Returns the color of the instance to which the caller is restricted; `MPI_UNDEFINED` if the caller is not
    /// restricted to one instance. Members get equal colors if they are restricted to one common instance.
    fn color(self, p: &Process, comm: &Comm) -> i32 {
        let job = p.engine().map(|engine| engine.job);
        match (self, job) {
            (ResourceType::SharedMemory, job) => job.map_or(0, |job| number_host(job, comm)),
            (ResourceType::Domain(_), None) => MPI_UNDEFINED,
            (ResourceType::Domain(level), Some(job)) if comm.is_inter() => {
                number_domain(job, comm, level)
            }
            (ResourceType::Domain(level), Some(job)) => {
                let groups = comm.host_groups(p);
                let group = groups.group_of(groups.at(level), comm.rank);
                let leader = group.and_then(|group| group.first());
                let leader = leader.filter(|_| job.domains(job.rank()).domain(level).is_some());
                leader.map_or(MPI_UNDEFINED, |&leader| leader as i32)
            }
        }
    }

    /// Returns the largest resource that divides the members of an intracommunicator: memory if they are on several
    /// hosts, otherwise the level with the fewest groups. `None` if no resource divides them.
    fn find_dividing(p: &Process, comm: &Comm) -> Option<ResourceType> {
        if comm.is_inter() {
            return None;
        }
        let groups = comm.host_groups(p);
        if groups.members().len() < comm.size() as usize && p.engine().is_some() {
            return Some(ResourceType::SharedMemory);
        }
        let count = |level: &DomainLevel| groups.at(*level).groups().len();
        let levels = DomainLevel::ALL.into_iter().rev().filter(|level| count(level) > 1);
        levels.min_by_key(count).map(ResourceType::Domain)
    }
}

/// Returns a color for this process's host: equal for all members of the communicator on this host, different for
/// members on other hosts.
fn number_host(job: &Job, comm: &Comm) -> i32 {
    let own = job.host(job.rank());
    let mut members = comm.group.world_ranks().iter();
    match members.any(|&rank| job.is_foreign(rank as usize)) {
        // Members of two jobs on one host get different colors, because jobs share no memory.
        true => {
            let mixed = job.job_id().wrapping_add(own.into());
            (mixed ^ mixed >> 32) as i32 & i32::MAX
        }
        // The launcher numbers hosts from 0.
        false => own as i32,
    }
}

/// Returns a color for this process's domain in an intercommunicator: the lowest rank of the job, in both groups, that
/// shares the domain. `MPI_UNDEFINED` if a group has ranks of another job: ranks of two jobs have no common domain, so
/// no part would have members in both groups.
fn number_domain(job: &Job, comm: &Comm, level: DomainLevel) -> i32 {
    let members = || comm.group.world_ranks().iter().chain(comm.peer_group().world_ranks());
    let own = job.domains(job.rank()).domain(level);
    if own.is_none() || members().any(|&rank| job.is_foreign(rank as usize)) {
        return MPI_UNDEFINED;
    }
    let shares = |rank: usize| !job.is_remote(rank) && job.domains(rank).domain(level) == own;
    let lowest = members().filter(|&&rank| shares(rank as usize)).min();
    lowest.map_or(MPI_UNDEFINED, |&rank| rank as i32)
}

/// Returns the resource types of `MPI_Get_hw_resource_info`. The value of a type is `true` if the process is restricted
/// to one instance of it.
pub fn list_resources(p: &Process) -> [(&'static str, &'static str); 5] {
    let domains = p.engine().map(|engine| engine.job.domains(engine.job.rank()));
    let domains = domains.unwrap_or_default();
    ResourceType::ALL.map(|kind| {
        let is_restricted = kind.is_restricted(&domains);
        (kind.uri(), if is_restricted { "true" } else { "false" })
    })
}

/// `MPI_Comm_split_type`. If the communicator is split by a resource type, the info of the new communicator has that
/// type. Errors: `MPI_ERR_ARG` for an unknown split type.
pub fn split_type(
    p: &Process, parent: &Comm, kind: i32, key: i32, given: &[(String, String)],
) -> Result<usize> {
    let hint =
        |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let mut resource = None;
    let color = match kind {
        MPI_UNDEFINED => MPI_UNDEFINED,
        MPI_COMM_TYPE_SHARED => ResourceType::SharedMemory.color(p, parent),
        MPI_COMM_TYPE_RESOURCE_GUIDED if hint("mpi_pset_name").is_some() => {
            match hint("mpi_pset_name") {
                Some("mpi://WORLD") => 0,
                Some("mpi://SELF") => parent.rank as i32,
                _ => MPI_UNDEFINED,
            }
        }
        MPI_COMM_TYPE_HW_UNGUIDED | MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => {
            resource = match kind {
                MPI_COMM_TYPE_HW_UNGUIDED => ResourceType::find_dividing(p, parent),
                _ => hint(hints::RESOURCE_TYPE).and_then(ResourceType::parse),
            };
            resource.map_or(MPI_UNDEFINED, |resource| resource.color(p, parent))
        }
        _ => {
            return Err(Error::new(
                MPI_ERR_ARG,
                format!("the split type {kind} is unknown: pass an MPI_COMM_TYPE_ constant"),
            ));
        }
    };
    let mut hints = hints::select(given.to_vec());
    let named = resource.map(|kind| (hints::RESOURCE_TYPE.to_owned(), kind.uri().to_owned()));
    hints.extend(named);
    split_with(p, parent, color, key, hints)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn resource_types__are_found_by_uri_and_by_name() {
        for kind in ResourceType::ALL {
            assert_eq!(ResourceType::parse(kind.uri()), Some(kind));
        }
        let numa = Some(ResourceType::Domain(DomainLevel::Numa));
        assert_eq!(ResourceType::parse("NUMANode"), numa);
        assert_eq!(ResourceType::parse("mpi_shared_memory"), Some(ResourceType::SharedMemory));
        for unknown in ["", "hwloc://", "numanode", "hwloc://L2Cache", "shared_memory"] {
            assert_eq!(ResourceType::parse(unknown), None, "{unknown}");
        }
    }
}
