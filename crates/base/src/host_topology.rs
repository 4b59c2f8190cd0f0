//! Hardware of a host: core, L3 cache, NUMA node and socket of each processor and rank, and groups of ranks by these.

mod domains;
mod file;
mod groups;
mod lines;

pub use domains::{DomainLevel, HostTopology, ProcessorDomains, RankDomains, TopologySource};
pub use file::TopologyFileError;
pub use groups::{Partition, RankGroups};
pub use lines::LineTimes;

use crate::config::{Config, Key};
use crate::stored::{self, Machine, TuningSource};
use crate::topology::{Core, CpuSet};
use std::path::PathBuf;

/// Reads the L3 caches that `fastpath tune lines` has found on this machine. `None` if they were not measured.
fn read_measured(source: &TuningSource) -> Option<Vec<CpuSet>> {
    let path = source.lines_path(&Machine::current())?;
    lines::parse_caches(&stored::read_long_file(&path).ok()?)
}

impl HostTopology {
    /// Returns the topology in use: that of the file of `FASTPATH_TOPOLOGY` if set, otherwise that of the kernel, with
    /// measured L3 caches (`fastpath tune lines`) where the kernel reports at most one for a socket. `cores` are the
    /// kernel's ([`list_cores`](crate::topology::list_cores)).
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is malformed.
    pub fn current(config: &Config, cores: &[Core]) -> Result<HostTopology, TopologyFileError> {
        match config.text(Key::Topology) {
            "" => {
                let kernel = HostTopology::of_kernel(cores);
                let measured =
                    kernel.may_hide_caches().then(|| read_measured(&TuningSource::of(config)));
                let measured = measured.flatten();
                Ok(measured.and_then(|caches| kernel.with_caches(&caches)).unwrap_or(kernel))
            }
            path => file::read(PathBuf::from(path)),
        }
    }

    /// Parses the text of a `FASTPATH_TOPOLOGY` file (docs/settings.md has the format).
    ///
    /// # Errors
    /// The first malformed line, or a processor that no line describes.
    pub fn parse(text: &str) -> Result<HostTopology, TopologyFileError> {
        file::parse(text)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::topology::{CpuSet, affinity, list_cores, list_cores_in};

    /// Two sockets with two L3 caches of two processors; each socket is a NUMA node.
    const MACHINE: &str = "processors:8\n\
        socket:0 numa:0 l3:0 cpus:0-1\nsocket:0 numa:0 l3:1 cpus:2-3\n\
        socket:1 numa:1 l3:2 cpus:4-5\nsocket:1 numa:1 l3:3 cpus:6-7\n";

    fn place(topology: &HostTopology, index: usize, mask: &str) -> [Option<u32>; 4] {
        topology.place_rank(index, &CpuSet::parse(mask).unwrap(), true).0
    }

    #[test]
    fn rank__has_the_domains_that_hold_all_its_processors() {
        let here = HostTopology::parse(MACHINE.split_once('\n').unwrap().1).unwrap();
        assert_eq!(place(&here, 0, "2"), [Some(2), Some(1), Some(0), Some(0)]);
        assert_eq!(place(&here, 0, "4-5"), [None, Some(2), Some(1), Some(1)]);
        assert_eq!(place(&here, 0, "5-6"), [None, None, Some(1), Some(1)]);
        assert_eq!(place(&here, 0, "3-4"), [None; 4]);
        assert_eq!(place(&here, 0, ""), [None; 4]);
        assert_eq!(place(&here, 0, "7-8"), [None; 4], "processor 8 is in no line");
    }

    #[test]
    fn rank__of_another_machine__runs_on_the_processor_of_its_number() {
        let machine = HostTopology::parse(MACHINE).unwrap();
        assert_eq!(machine.source(), &TopologySource::Machine(8));
        for (index, mask) in [(3, "0-1"), (11, "0-15"), (11, "30")] {
            assert_eq!(place(&machine, index, mask), [Some(3), Some(1), Some(0), Some(0)]);
        }
        assert_eq!(place(&machine, 3, "5"), [Some(5), Some(2), Some(1), Some(1)], "bound");
        let unbound = machine.place_rank(3, &CpuSet::from_iter([5]), false);
        assert_eq!(unbound.0, [Some(3), Some(1), Some(0), Some(0)]);
    }

    #[test]
    fn words__round_trip() {
        let domains = RankDomains([None, Some(0), Some(7), None]);
        assert_eq!(domains.to_words(), [0, 1, 8, 0]);
        assert_eq!(RankDomains::from_words(domains.to_words()), domains);
        assert_eq!(RankDomains::from_words([0; 4]), RankDomains::UNKNOWN);
    }

    #[test]
    fn kernel__numbers_caches_over_all_sockets() {
        let read = |path: &str| {
            let (cpu, file) = path.strip_prefix("cpu/cpu")?.split_once('/')?;
            let cpu: usize = cpu.parse().ok()?;
            let first = cpu / 2 * 2;
            Some(match file {
                "topology/physical_package_id" => (cpu / 4).to_string(),
                "cache/index3/shared_cpu_list" => format!("{first}-{}", first + 1),
                _ => return None,
            })
        };
        let cores = list_cores_in(&CpuSet::parse("0-7").unwrap(), &read);
        let kernel = HostTopology::of_kernel(&cores);
        let found: Vec<ProcessorDomains> = kernel.processors.values().copied().collect();
        let expected = (0..8).map(|cpu| [cpu, cpu / 2, 0, cpu / 4]);
        assert!(found.iter().copied().eq(expected), "{found:?}");
    }

    #[test]
    fn kernel__without_caches__gives_each_socket_one() {
        let read = |path: &str| {
            let cpu =
                path.strip_prefix("cpu/cpu")?.strip_suffix("/topology/physical_package_id")?;
            Some((cpu.parse::<usize>().ok()? / 2).to_string())
        };
        let cores = list_cores_in(&CpuSet::parse("0-3").unwrap(), &read);
        let kernel = HostTopology::of_kernel(&cores);
        let caches: Vec<u32> = kernel.processors.values().map(|domains| domains[1]).collect();
        assert_eq!(caches, [0, 0, 1, 1]);
    }

    #[test]
    fn kernel__of_this_host__has_every_processor() {
        let allowed = affinity();
        let cores = list_cores(&allowed);
        let topology = HostTopology::current(&Config::defaults(), &cores).unwrap();
        assert!(topology.processors().map(|(cpu, _)| cpu).eq(allowed.iter()));
        let only = allowed.iter().next().unwrap();
        let domains = topology.place_rank(0, &CpuSet::from_iter([only]), true);
        assert!(DomainLevel::ALL.iter().all(|&level| domains.domain(level).is_some()));
    }

    #[test]
    fn measured_caches__divide_the_sockets() {
        let text = "cpus:0-2\ncore:3 cpus:3,9\nsocket:1 l3:1 cpus:4-7\n";
        let kernel = HostTopology::parse(text).unwrap();
        assert!(kernel.may_hide_caches());
        let sets = ["0-1", "2-3", "4-7"].map(|list| CpuSet::parse(list).unwrap());
        let found = kernel.with_caches(&sets).unwrap();
        assert_eq!(found.source(), &TopologySource::Measured);
        assert!(!found.may_hide_caches());
        let caches = found.list_domains(DomainLevel::L3);
        let caches: Vec<String> = caches.iter().map(|(_, set)| set.to_string()).collect();
        assert_eq!(caches, ["0-1", "2-3,9", "4-7"]);
        let sockets = |t: &HostTopology| t.list_domains(DomainLevel::Socket);
        assert_eq!(sockets(&found), sockets(&kernel));
        // A cache cannot reach over sockets, and every core must have one.
        let whole = kernel.with_caches(&[CpuSet::parse("0-7").unwrap()]).unwrap();
        assert_eq!(whole.list_domains(DomainLevel::L3).len(), 2);
        assert_eq!(kernel.with_caches(&sets[..2]), None);
    }

    #[test]
    fn measured_caches__are_read_from_the_cache_directory() {
        let folder = std::env::temp_dir().join(format!("fastpath-lines-{}", std::process::id()));
        let source = TuningSource::Cache(folder.clone());
        let path = source.lines_path(&Machine::current()).unwrap();
        let times = |[a, b]: [usize; 2]| Ok::<f64, ()>(if a / 2 == b / 2 { 25.0 } else { 90.0 });
        let times = LineTimes::collect((0..4).collect(), times).unwrap();
        stored::write_file(&path, &times.to_text(&Machine::current())).unwrap();
        let found = read_measured(&source).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(found, times.find_caches());
        assert_eq!(found.len(), 2);
        assert_eq!(read_measured(&source), None);
        assert_eq!(read_measured(&TuningSource::Off), None);
    }
}
