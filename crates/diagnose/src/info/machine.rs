#![allow(unsafe_code)]
//! Facts about the machine that this process may use: processors, cores, caches, memory, clock.

use std::collections::BTreeSet;
use std::fs;

use fastpath_base::clock;
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

pub fn describe() -> MachineFacts {
    let allowed = topology::affinity();
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
        cores: topology::list_cores(&allowed).into_iter().map(line).collect(),
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
            format!("L{level} {kind} {size} (processors {by})")
        };
        let caches: Vec<String> = self.caches.iter().map(cache).collect();
        let cores = format!(
            "{} on {} package(s), {} NUMA node(s), up to {threads} thread(s) each",
            self.cores.len(),
            packages.len(),
            nodes.len(),
        );
        let quota = self.cpu_quota.map(|q| format!("{q:.2} processors"));
        let memory = self.memory_available_bytes as f64 / (1u64 << 30) as f64;
        vec![
            ("host", self.host.clone()),
            ("kernel", self.kernel.clone().unwrap_or_else(unknown)),
            ("processor", self.processor.clone().unwrap_or_else(unknown)),
            ("processors allowed", allowed.to_string()),
            ("cores", cores),
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
        let machine = describe();
        assert!(!machine.cores.is_empty());
        assert!(machine.memory_available_bytes > 0);
        assert!(machine.processors_usable >= 1);
    }
}
