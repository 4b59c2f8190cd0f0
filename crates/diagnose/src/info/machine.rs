#![allow(unsafe_code)]
//! Facts about the machine that this process may use: processors, cores, caches, memory, clock.

use std::collections::BTreeSet;
use std::fs;

use fastpath_base::clock;
use fastpath_base::config::Config;
use fastpath_base::host_topology::{DomainLevel, HostTopology, LineTimes, TopologySource};
use fastpath_base::stored::{self, Machine, TuningSource};
use fastpath_base::tell::count;
use fastpath_base::topology::{self, Core, CpuSet};
use serde::Serialize;

use fastpath_report::files::read_text;
use fastpath_report::surroundings::{Cache, find_field, list_caches};

#[derive(Debug, Serialize)]
pub struct MachineFacts {
    host: String,
    kernel: Option<String>,
    processor: Option<String>,
    processors_allowed: Vec<usize>,
    /// Processor time that the control group grants, in processors; None: no limit.
    cpu_quota: Option<f64>,
    processors_usable: usize,
    cores: Vec<CoreLine>,
    topology: TopologyFacts,
    caches: Vec<Cache>,
    memory_available_bytes: u64,
    page_bytes: usize,
    clock_resolution_ns: u64,
}

#[derive(Debug, Serialize)]
struct CoreLine {
    node: usize,
    package: usize,
    threads: Vec<usize>,
}

/// Hardware by which jobs group ranks.
#[derive(Debug, Serialize)]
struct TopologyFacts {
    source: &'static str,
    sockets: Vec<String>,
    numa_nodes: Vec<String>,
    l3_caches: Vec<String>,
    /// Shortest and longest time of a cache line within L3 caches, and between them, in nanoseconds; None if
    /// `fastpath tune lines` has not measured them.
    line_ns: Option<[Option<[f64; 2]>; 2]>,
}

/// Reads the times that `fastpath tune lines` has stored.
fn read_lines(config: &Config) -> Option<LineTimes> {
    let path = TuningSource::of(config).lines_path(&Machine::current())?;
    LineTimes::parse(&stored::read_long_file(&path).ok()?)
}

impl TopologyFacts {
    fn of(topology: &HostTopology, lines: Option<LineTimes>) -> TopologyFacts {
        let list = |level| {
            let domains = topology.list_domains(level).into_iter();
            domains.map(|(_, processors)| processors.to_string()).collect()
        };
        TopologyFacts {
            source: match topology.source() {
                TopologySource::Kernel => "the kernel",
                TopologySource::Measured => "the kernel, and L3 caches by fastpath tune lines",
                TopologySource::File => "FASTPATH_TOPOLOGY",
                TopologySource::Machine(_) => "FASTPATH_TOPOLOGY, another machine",
            },
            sockets: list(DomainLevel::Socket),
            numa_nodes: list(DomainLevel::Numa),
            l3_caches: list(DomainLevel::L3),
            line_ns: lines.map(|lines| lines.find_ranges()),
        }
    }

    /// Returns the measured times in the text form.
    fn lines_text(&self) -> String {
        let range = |range: Option<[f64; 2]>, place: &str| {
            range.map(|[low, high]| format!("{low:.1} to {high:.1} ns {place} L3 caches"))
        };
        let Some([within, between]) = self.line_ns else {
            return "not measured (fastpath tune lines)".to_owned();
        };
        let texts = [range(within, "within"), range(between, "between")];
        texts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns the line of the text form. Sets of processors are separated by spaces.
    fn line(&self) -> String {
        format!(
            "processors by socket {}; by NUMA node {}; by L3 cache {} (source: {})",
            self.sockets.join(" "),
            self.numa_nodes.join(" "),
            self.l3_caches.join(" "),
            self.source
        )
    }
}

/// Collects the facts. A malformed file of `FASTPATH_TOPOLOGY` adds a warning.
pub fn describe(config: &Config, warnings: &mut Vec<String>) -> MachineFacts {
    let allowed = topology::affinity();
    let cores = topology::list_cores(&allowed);
    let host = HostTopology::current(config, &cores).unwrap_or_else(|e| {
        warnings.push(format!("jobs fail at their start: {e}"));
        HostTopology::of_kernel(&cores)
    });
    let first = allowed.iter().next().unwrap_or(0);
    let line = |c: Core| CoreLine { node: c.node, package: c.package, threads: c.threads };
    MachineFacts {
        host: topology::host_name(),
        kernel: read_text("/proc/sys/kernel/osrelease"),
        processor: fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| find_field(&text, "model name").map(str::to_owned)),
        processors_allowed: allowed.iter().collect(),
        cpu_quota: topology::cpu_quota(),
        processors_usable: topology::usable_processors(),
        cores: cores.into_iter().map(line).collect(),
        topology: TopologyFacts::of(&host, read_lines(config)),
        caches: list_caches(first),
        memory_available_bytes: topology::available_memory(),
        page_bytes: page_bytes(),
        clock_resolution_ns: clock::resolution_ns(),
    }
}

impl MachineFacts {
    /// Name and value of each line of the text form.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let allowed = CpuSet::from_iter(self.processors_allowed.iter().copied());
        let unknown = || "(not reported by the kernel)".to_owned();
        let packages: BTreeSet<_> = self.cores.iter().map(|c| c.package).collect();
        let nodes: BTreeSet<_> = self.cores.iter().map(|c| c.node).collect();
        let threads = self.cores.iter().map(|c| c.threads.len()).max();
        let threads = threads.unwrap_or(1);
        let cache = |c: &Cache| {
            let (level, kind, size, by) = (c.level, &c.kind, &c.size, &c.shared_by);
            let processors = if by.contains([',', '-']) { "processors" } else { "processor" };
            format!("L{level} {kind} {size} ({processors} {by})")
        };
        let caches: Vec<String> = self.caches.iter().map(cache).collect();
        let cores = format!(
            "{} on {}, {}, at most {} each",
            self.cores.len(),
            count(packages.len() as u64, "package"),
            count(nodes.len() as u64, "NUMA node"),
            count(threads as u64, "thread"),
        );
        let quota = self.cpu_quota.map(|q| format!("{q:.2} processors"));
        let memory = self.memory_available_bytes as f64 / (1u64 << 30) as f64;
        vec![
            ("host", self.host.clone()),
            ("kernel", self.kernel.clone().unwrap_or_else(unknown)),
            ("processor", self.processor.clone().unwrap_or_else(unknown)),
            ("processors allowed", allowed.to_string()),
            ("cores", cores),
            ("hardware", self.topology.line()),
            ("cache line one way", self.topology.lines_text()),
            ("time granted", quota.unwrap_or("no limit".to_owned())),
            ("processors usable", format!("{} at once", self.processors_usable)),
            ("caches", caches.join(", ")),
            ("memory available", format!("{memory:.1} GiB")),
            ("page", format!("{} B", self.page_bytes)),
            ("clock resolution", format!("{} ns", self.clock_resolution_ns)),
        ]
    }
}

/// Size of a memory page, in bytes.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn machine__has_at_least_one_core_and_some_memory() {
        let machine = describe(&Config::defaults(), &mut Vec::new());
        assert!(!machine.cores.is_empty());
        assert!(machine.memory_available_bytes > 0);
        assert!(machine.processors_usable >= 1);
    }

    #[test]
    fn topology__shows_the_processors_of_each_part() {
        let text = "processors:4\ncpus:0-1\nl3:1 cpus:2\nsocket:1 numa:1 l3:2 cpus:3";
        let times = |[a, b]: [usize; 2]| Ok::<f64, ()>(if a + b == 1 { 25.0 } else { 90.0 });
        let lines = LineTimes::collect((0..4).collect(), times).unwrap();
        let topology = HostTopology::parse(text).unwrap();
        let facts = TopologyFacts::of(&topology, Some(lines));
        let lines = "25.0 to 25.0 ns within L3 caches, 90.0 to 90.0 ns between L3 caches";
        assert_eq!(facts.lines_text(), lines);
        let unmeasured = TopologyFacts::of(&topology, None).lines_text();
        assert_eq!(unmeasured, "not measured (fastpath tune lines)");
        assert_eq!(
            facts.line(),
            "processors by socket 0-2 3; by NUMA node 0-2 3; by L3 cache 0-1 2 3 (source: \
             FASTPATH_TOPOLOGY, another machine)"
        );
    }
}
