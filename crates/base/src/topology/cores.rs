//! Cores, their hardware threads, and their NUMA nodes.

use super::{CpuSet, read_system};
use std::collections::BTreeMap;

/// A core, with the hardware threads that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// NUMA node; 0 if the kernel reports none.
    pub node: usize,
    /// Package (socket) number.
    pub package: usize,
    /// Lowest processor with the same last-level cache.
    pub cache: usize,
    /// Hardware threads of the core, ascending; at least one.
    pub threads: Vec<usize>,
}

/// Returns the cores that have a processor in `allowed`, ordered by node, package, last-level cache and number. If the
/// kernel gives no information, each processor is a core and all are on one node.
pub fn list_cores(allowed: &CpuSet) -> Vec<Core> {
    list_cores_in(allowed, &read_system)
}

/// Returns the result of [`list_cores`] for files read by `read`.
pub fn list_cores_in(allowed: &CpuSet, read: &dyn Fn(&str) -> Option<String>) -> Vec<Core> {
    let nodes = list_nodes(read);
    let mut cores: BTreeMap<(usize, usize, usize, usize), Core> = BTreeMap::new();
    for cpu in allowed.iter() {
        let set =
            |file: &str| read(&format!("cpu/cpu{cpu}/{file}")).and_then(|t| CpuSet::parse(&t));
        let first = |set: Option<CpuSet>| set.and_then(|s| s.iter().next());
        let package = read(&format!("cpu/cpu{cpu}/topology/physical_package_id"))
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(0);
        let lead = first(set("topology/thread_siblings_list")).unwrap_or(cpu);
        let cache = first(set("cache/index3/shared_cpu_list"))
            .or_else(|| first(set("topology/package_cpus_list")))
            .unwrap_or(0);
        let node = nodes.iter().find(|(_, set)| set.contains(cpu)).map_or(0, |(n, _)| *n);
        cores
            .entry((node, package, cache, lead))
            .or_insert_with(|| Core { node, package, cache, threads: Vec::new() })
            .threads
            .push(cpu);
    }
    cores.into_values().collect()
}

/// Distance between two processors: the closest hardware that both share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// Both are the same processor.
    None,
    /// Hardware threads of one core, which share its caches.
    Core,
    /// Cores that share the last-level cache.
    Cache,
    /// Cores of one package.
    Package,
    /// Different packages.
    Apart,
}

impl Distance {
    /// Returns the text for a table.
    pub fn describe(self) -> &'static str {
        match self {
            Distance::None => "one processor",
            Distance::Core => "threads of one core",
            Distance::Cache => "cores that share the last-level cache",
            Distance::Package => "cores of one package",
            Distance::Apart => "cores of different packages",
        }
    }
}

/// Returns the distance between two processors, if the kernel reports it. `None` if one of the processors does not
/// exist.
pub fn find_distance(one: usize, two: usize) -> Option<Distance> {
    find_among(&list_cores(&CpuSet::from_iter([one, two])), one, two)
}

fn find_among(cores: &[Core], one: usize, two: usize) -> Option<Distance> {
    let core_of = |cpu| cores.iter().find(|core| core.threads.contains(&cpu));
    let (a, b) = (core_of(one)?, core_of(two)?);
    Some(match () {
        _ if one == two => Distance::None,
        _ if a == b => Distance::Core,
        _ if (a.package, a.node, a.cache) == (b.package, b.node, b.cache) => Distance::Cache,
        _ if a.package == b.package => Distance::Package,
        _ => Distance::Apart,
    })
}

fn list_nodes(read: &dyn Fn(&str) -> Option<String>) -> Vec<(usize, CpuSet)> {
    let Some(online) = read("node/online").and_then(|t| CpuSet::parse(&t)) else {
        return Vec::new();
    };
    online
        .iter()
        .filter_map(|n| Some((n, CpuSet::parse(&read(&format!("node/node{n}/cpulist"))?)?)))
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Two nodes of two cores of two threads: processors n and n + 4 are siblings.
    fn two_by_two(path: &str) -> Option<String> {
        let text = match path {
            "node/online" => "0-1".to_owned(),
            "node/node0/cpulist" => "0-1,4-5".to_owned(),
            "node/node1/cpulist" => "2-3,6-7".to_owned(),
            _ => {
                let rest = path.strip_prefix("cpu/cpu")?;
                let (cpu, file) = rest.split_once('/')?;
                let cpu: usize = cpu.parse().ok()?;
                let core = cpu % 4;
                match file {
                    "topology/thread_siblings_list" => format!("{core},{}", core + 4),
                    "topology/physical_package_id" => (core / 2).to_string(),
                    "cache/index3/shared_cpu_list" => {
                        if core < 2 { "0-1,4-5" } else { "2-3,6-7" }.to_owned()
                    }
                    _ => return None,
                }
            }
        };
        Some(text + "\n")
    }

    #[test]
    fn cores__gather_their_threads() {
        let cores = list_cores_in(&CpuSet::parse("0-7").unwrap(), &two_by_two);
        let threads: Vec<_> = cores.iter().map(|c| c.threads.clone()).collect();
        assert_eq!(threads, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(cores.iter().map(|c| c.node).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn distance__grows_from_the_core_to_the_package() {
        let cores = list_cores_in(&CpuSet::parse("0-7").unwrap(), &two_by_two);
        let distances = [0, 4, 1, 5, 2].map(|to| find_among(&cores, 0, to).unwrap());
        let (cache, apart) = (Distance::Cache, Distance::Apart);
        assert_eq!(distances, [Distance::None, Distance::Core, cache, cache, apart]);
        assert_eq!(find_among(&cores, 0, 8), None);
        let split = |path: &str| match path.ends_with("shared_cpu_list") {
            true => path.strip_prefix("cpu/cpu")?.split('/').next().map(str::to_owned),
            false => two_by_two(path),
        };
        let cores = list_cores_in(&CpuSet::parse("0-7").unwrap(), &split);
        assert_eq!(find_among(&cores, 0, 1), Some(Distance::Package));
    }

    #[test]
    fn cores__keep_to_what_is_allowed() {
        let cores = list_cores_in(&CpuSet::parse("1,6-7").unwrap(), &two_by_two);
        let threads: Vec<_> = cores.iter().map(|c| c.threads.clone()).collect();
        assert_eq!(threads, [[1], [6], [7]]);
    }

    #[test]
    fn cores__are_flat_where_nothing_is_told() {
        let cores = list_cores_in(&CpuSet::parse("0-2").unwrap(), &|_| None);
        assert_eq!(cores.len(), 3);
        assert!(cores.iter().all(|c| c.threads.len() == 1 && c.node == 0));
    }

    #[test]
    fn cores__of_this_machine_cover_its_mask() {
        let mask = super::super::affinity();
        let covered: CpuSet = list_cores(&mask).into_iter().flat_map(|c| c.threads).collect();
        assert_eq!(covered.to_string(), mask.to_string());
    }

    #[test]
    fn fuzz__lists_of_processors_are_understood_or_taken_to_be_flat() {
        let corpus: &[&[u8]] = &[b"0-3", b"0,2,4-6", b"0-1,4-5\n", b"0", b"65535"];
        let allowed = CpuSet::parse("0-3").unwrap();
        crate::mutate::run(corpus, |input| {
            let text = String::from_utf8_lossy(input).into_owned();
            if let Some(set) = CpuSet::parse(&text) {
                assert!(set.words().len() <= 1 << 10);
                if set.len() > 100 {
                    return; // slow, and without a different result
                }
            }
            let cores = list_cores_in(&allowed, &|_| Some(text.clone()));
            let threads: usize = cores.iter().map(|core| core.threads.len()).sum();
            assert_eq!(threads, allowed.len());
        });
    }
}
