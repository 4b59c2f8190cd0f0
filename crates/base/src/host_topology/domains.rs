//! Domains of processors and of ranks: cores, L3 caches, NUMA nodes and sockets.

use crate::topology::{Core, CpuSet};
use std::collections::{BTreeMap, BTreeSet};

/// Kind of hardware that several processors share, from the smallest to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum DomainLevel {
    /// A core, with its hardware threads.
    Core,
    /// An L3 cache.
    L3,
    /// A NUMA node. It may contain several L3 caches, or be a part of one.
    Numa,
    /// A socket (package).
    Socket,
}

impl DomainLevel {
    /// All levels, from the smallest to the largest.
    pub const ALL: [DomainLevel; 4] =
        [DomainLevel::Core, DomainLevel::L3, DomainLevel::Numa, DomainLevel::Socket];
}

/// Domains of one processor: numbers of its core, L3 cache, NUMA node and socket, unique in the host for each level.
pub type ProcessorDomains = [u32; 4];

/// Domains in which a rank runs, by [`DomainLevel`]; `None` where the rank may use several domains of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankDomains(pub(super) [Option<u32>; 4]);

impl RankDomains {
    /// Domains of a rank when all of them are unknown.
    pub const UNKNOWN: RankDomains = RankDomains([None; 4]);

    /// Returns the only domain of `level` that the rank may use, if any.
    pub fn domain(&self, level: DomainLevel) -> Option<u32> {
        self.0[level as usize]
    }

    /// Returns the form in shared memory: 0 for an unknown domain, otherwise the domain plus 1.
    pub fn to_words(self) -> [u32; 4] {
        self.0.map(|domain| domain.map_or(0, |domain| domain.saturating_add(1)))
    }

    /// Reads the form of [`RankDomains::to_words`].
    pub fn from_words(words: [u32; 4]) -> RankDomains {
        RankDomains(words.map(|word| word.checked_sub(1)))
    }
}

impl std::fmt::Display for RankDomains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (kind, domain) in ["core", "L3 cache", "NUMA node", "socket"].iter().zip(self.0) {
            if let Some(domain) = domain {
                write!(f, "{separator}{kind} {domain}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

impl From<ProcessorDomains> for RankDomains {
    fn from(domains: ProcessorDomains) -> RankDomains {
        RankDomains(domains.map(Some))
    }
}

/// Source of a [`HostTopology`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologySource {
    /// The kernel.
    Kernel,
    /// The kernel, with L3 caches found by the measured times of cache lines.
    Measured,
    /// A file of `FASTPATH_TOPOLOGY` with the processors of this host.
    File,
    /// A file of `FASTPATH_TOPOLOGY` with a number of processors. The ranks are placed on that machine, whatever the
    /// number of this host's processors.
    Machine(usize),
}

/// Domains of the processors of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTopology {
    pub(super) processors: BTreeMap<usize, ProcessorDomains>,
    pub(super) source: TopologySource,
}

impl HostTopology {
    /// Returns the topology of cores that the kernel reports. Where it reports no L3 cache, the cores of a socket share
    /// one. Where it reports nothing, all processors are cores of one socket.
    pub fn of_kernel(cores: &[Core]) -> HostTopology {
        let mut caches = Vec::new();
        let mut processors = BTreeMap::new();
        for (core, found) in (0..).zip(cores) {
            let cache = (found.package, found.cache);
            let l3 = caches.iter().position(|&known| known == cache).unwrap_or_else(|| {
                caches.push(cache);
                caches.len() - 1
            });
            let domains = [core, l3 as u32, found.node as u32, found.package as u32];
            processors.extend(found.threads.iter().map(|&cpu| (cpu, domains)));
        }
        HostTopology { processors, source: TopologySource::Kernel }
    }

    /// Returns whether no socket has more than one L3 cache, as on a virtual machine that hides caches.
    pub(super) fn may_hide_caches(&self) -> bool {
        let count = |level: DomainLevel| {
            let domains = self.processors.values().map(|domains| domains[level as usize]);
            domains.collect::<BTreeSet<u32>>().len()
        };
        count(DomainLevel::L3) == count(DomainLevel::Socket)
    }

    /// Returns this topology with other L3 caches: the sets of processors `caches`, within each socket. A processor in
    /// no set has the cache of its core's other processors. `None` if a core is in no set.
    pub(super) fn with_caches(&self, caches: &[CpuSet]) -> Option<HostTopology> {
        let mut of_core = BTreeMap::new();
        for (&cpu, &[core, ..]) in &self.processors {
            if let Some(cache) = caches.iter().position(|set| set.contains(cpu)) {
                of_core.entry(core).or_insert(cache);
            }
        }
        let mut numbers = BTreeMap::new();
        let mut processors = self.processors.clone();
        for domains in processors.values_mut() {
            let cache = *of_core.get(&domains[DomainLevel::Core as usize])?;
            let next = numbers.len() as u32;
            let key = (domains[DomainLevel::Socket as usize], cache);
            domains[DomainLevel::L3 as usize] = *numbers.entry(key).or_insert(next);
        }
        Some(HostTopology { processors, source: TopologySource::Measured })
    }

    /// Returns the processors of each domain of `level`, in the order of the domains' numbers.
    pub fn list_domains(&self, level: DomainLevel) -> Vec<(u32, CpuSet)> {
        let mut sets: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (&cpu, domains) in &self.processors {
            sets.entry(domains[level as usize]).or_default().insert(cpu);
        }
        sets.into_iter().collect()
    }

    /// Returns where the topology was read.
    pub fn source(&self) -> &TopologySource {
        &self.source
    }

    /// Returns the processors and their domains, in the order of the processors.
    pub fn processors(&self) -> impl Iterator<Item = (usize, ProcessorDomains)> + '_ {
        self.processors.iter().map(|(&cpu, &domains)| (cpu, domains))
    }

    /// Returns the domains of a rank that may use the processors `mask`, and is number `index` of its host's ranks. A
    /// rank with processors unknown to the topology has unknown domains. On the machine of a file
    /// ([`TopologySource::Machine`]), a rank that is not bound to one core of that machine runs on processor `index`,
    /// modulo the number of processors.
    pub fn place_rank(&self, index: usize, mask: &CpuSet, is_bound: bool) -> RankDomains {
        let domains = self.find_common(mask);
        match self.source {
            TopologySource::Machine(count)
                if !is_bound || domains.domain(DomainLevel::Core).is_none() =>
            {
                let own = self.processors.get(&(index % count.max(1)));
                own.map_or(RankDomains::UNKNOWN, |&domains| domains.into())
            }
            _ => domains,
        }
    }

    /// Returns, for each level, the domain that has all processors of `mask`, if any.
    fn find_common(&self, mask: &CpuSet) -> RankDomains {
        let mut common: Option<RankDomains> = None;
        for cpu in mask.iter() {
            let Some(&domains) = self.processors.get(&cpu) else {
                return RankDomains::UNKNOWN;
            };
            let common = common.get_or_insert(domains.into());
            for (known, domain) in common.0.iter_mut().zip(domains) {
                *known = known.filter(|&known| known == domain);
            }
        }
        common.unwrap_or_default()
    }
}
