//! Parts of a node to which a process can be bound: hardware threads, cores, caches, NUMA nodes, packages.

use super::cores::list_cores_in;
use super::{CpuSet, Reader};

/// Kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Hardware threads: the kernel's processors.
    Thread,
    /// Cores.
    Core,
    /// Caches of level 1 to 4, without instruction caches.
    Cache(u8),
    /// NUMA nodes.
    Numa,
    /// Packages (sockets).
    Package,
    /// The whole node.
    Node,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::Thread => "hwthread",
            Level::Core => "core",
            Level::Cache(n) => return write!(f, "l{n}cache"),
            Level::Numa => "numa",
            Level::Package => "socket",
            Level::Node => "node",
        })
    }
}

/// Returns the parts of a kind that have a processor in `allowed`, each with these processors, in the order of
/// [`list_cores`](super::list_cores). `None` if the kernel reports no caches of that level.
pub fn list_places(level: Level, allowed: &CpuSet, read: Reader<'_>) -> Option<Vec<CpuSet>> {
    let mut places: Vec<(usize, CpuSet)> = Vec::new();
    for (number, core) in list_cores_in(allowed, read).iter().enumerate() {
        for &cpu in &core.threads {
            let key = match level {
                Level::Thread => cpu,
                Level::Core => number,
                Level::Cache(wanted) => find_cache(cpu, wanted, read)?,
                Level::Numa => core.node,
                Level::Package => core.package,
                Level::Node => 0,
            };
            match places.iter_mut().find(|(k, _)| *k == key) {
                Some((_, set)) => set.insert(cpu),
                None => places.push((key, CpuSet::from_iter([cpu]))),
            }
        }
    }
    Some(places.into_iter().map(|(_, set)| set).collect())
}

/// Returns the lowest processor that shares the cache of level `wanted` with `cpu`.
fn find_cache(cpu: usize, wanted: u8, read: Reader<'_>) -> Option<usize> {
    // Each index names a cache of the processor: up to two of level 1, then one of each further level.
    (0..8).find_map(|index| {
        let file = |name: &str| read(&format!("cpu/cpu{cpu}/cache/index{index}/{name}"));
        let level = file("level")?.trim().parse::<u8>().ok()?;
        if level != wanted || file("type").is_some_and(|t| t.trim() == "Instruction") {
            return None;
        }
        CpuSet::parse(&file("shared_cpu_list")?)?.iter().next()
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Two packages of two NUMA nodes of two cores of two threads; n and n + 8 are siblings. The cores of a node share
    /// a level-3 cache. Each core has one level-2 cache and two of level 1.
    fn node(path: &str) -> Option<String> {
        let list = |core: usize, cores: usize| {
            let first = core / cores * cores;
            format!("{first}-{0},{1}-{2}", first + cores - 1, first + 8, first + cores + 7)
        };
        if let Some(file) = path.strip_prefix("node/") {
            let file = file.strip_prefix("node");
            let number = file.and_then(|f| f.strip_suffix("/cpulist"));
            return Some(number.map_or("0-3".into(), |n| list(2 * n.parse::<usize>().unwrap(), 2)));
        }
        let (cpu, file) = path.strip_prefix("cpu/cpu")?.split_once('/')?;
        let core = cpu.parse::<usize>().ok()? % 8;
        Some(match file {
            "topology/thread_siblings_list" => format!("{core},{}", core + 8),
            "topology/physical_package_id" => (core / 4).to_string(),
            "cache/index0/level" | "cache/index1/level" => "1\n".into(),
            "cache/index0/type" => "Instruction\n".into(),
            "cache/index1/type" => "Data\n".into(),
            "cache/index2/level" => "2\n".into(),
            "cache/index3/level" => "3\n".into(),
            "cache/index2/type" | "cache/index3/type" => "Unified\n".into(),
            "cache/index1/shared_cpu_list" | "cache/index2/shared_cpu_list" => list(core, 1),
            "cache/index3/shared_cpu_list" => list(core, 2),
            _ => return None,
        })
    }

    fn places(level: Level, allowed: &str) -> Option<Vec<String>> {
        let places = list_places(level, &CpuSet::parse(allowed).unwrap(), &node)?;
        Some(places.iter().map(CpuSet::to_string).collect())
    }

    #[test]
    fn places__of_every_level() {
        let some = |list: &[&str]| Some(list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>());
        let all = "0-15";
        assert_eq!(places(Level::Node, all), some(&["0-15"]));
        assert_eq!(places(Level::Package, all), some(&["0-3,8-11", "4-7,12-15"]));
        let numa = ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"];
        assert_eq!(places(Level::Numa, all), some(&numa));
        assert_eq!(places(Level::Cache(3), all), some(&numa));
        let cores = ["0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"];
        assert_eq!(places(Level::Cache(2), all), some(&cores));
        assert_eq!(places(Level::Cache(1), all), some(&cores));
        assert_eq!(places(Level::Core, all), some(&cores));
        assert_eq!(places(Level::Thread, "0-1,8"), some(&["0", "8", "1"]));
        assert_eq!(places(Level::Cache(4), all), None);
    }

    #[test]
    fn places__keep_to_what_is_allowed() {
        let some = |list: &[&str]| Some(list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>());
        assert_eq!(places(Level::Package, "1,9,12"), some(&["1,9", "12"]));
        assert_eq!(places(Level::Cache(3), "3"), some(&["3"]));
    }

    #[test]
    fn places__of_this_machine_cover_its_mask() {
        let mask = super::super::affinity();
        for level in [Level::Thread, Level::Core, Level::Numa, Level::Package, Level::Node] {
            let places = list_places(level, &mask, &super::super::read_system).unwrap();
            let covered: CpuSet =
                places.iter().flat_map(|p| p.iter().collect::<Vec<_>>()).collect();
            assert_eq!(covered.to_string(), mask.to_string(), "{level}");
        }
    }
}
