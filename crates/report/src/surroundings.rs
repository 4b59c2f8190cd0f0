//! Conditions of a run: tool, machine, environment.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use fastpath_base::topology;
use serde::Serialize;

use crate::files::read_text;
use crate::record::{Machine, Run};

/// Prefixes of variables that influence an MPI library.
const PREFIXES: &str =
    "FASTPATH_ OMPI_ PMIX_ PRTE_ UCX_ I_MPI_ MPICH_ MPIR_ FI_ HYDRA_ PSM2_ HWLOC_";

static VERSION: OnceLock<&str> = OnceLock::new();

/// Sets the tool's version and commit. Only the binary calls this function, at its start, so that a new commit rebuilds
/// the binary alone.
pub fn set_version(version: &'static str) {
    VERSION.get_or_init(|| version);
}

/// Name of the tool in results: version, and commit if known.
pub fn name_tool() -> String {
    format!("fastpath {}", VERSION.get().unwrap_or(&env!("CARGO_PKG_VERSION")))
}

/// Describes a run that begins now; library and clock are filled in later.
pub fn describe_run() -> Run {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let influences = |name: &str| PREFIXES.split(' ').any(|p| name.starts_with(p));
    let environment: BTreeMap<_, _> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| influences(name))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    Run {
        tool: name_tool(),
        started_unix_s: now.map_or(0, |d| d.as_secs()),
        command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
        machine: describe_machine(),
        environment,
        ..Run::default()
    }
}

/// Returns a field of the first processor in /proc/cpuinfo.
pub fn find_field<'a>(cpuinfo: &'a str, field: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|l| l.starts_with(field))?;
    Some(line.split_once(':')?.1.trim())
}

fn describe_machine() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_virtual =
        find_field(&cpuinfo, "flags").is_some_and(|f| f.split(' ').any(|w| w == "hypervisor"));
    let vendor = || {
        read_text("/sys/hypervisor/type")
            .or_else(|| read_text("/sys/class/dmi/id/sys_vendor"))
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    Machine {
        host: topology::host_name(),
        processor: find_field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
        processors: topology::usable_processors(),
        kernel: read_text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        governor: read_text(governor),
        hypervisor: is_virtual.then(vendor),
    }
}

/// One level of cache of the first processor.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Level, from 1.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size as printed by the kernel, such as `32K`.
    pub size: String,
    /// Processors that share the cache, such as `0-3`.
    pub shared_by: String,
}

/// Lists the caches of a processor.
pub fn list_caches(processor: usize) -> Vec<Cache> {
    let folder = format!("/sys/devices/system/cpu/cpu{processor}/cache");
    let read = |index: usize, file: &str| read_text(format!("{folder}/index{index}/{file}"));
    (0..8)
        .map_while(|index| {
            Some(Cache {
                level: read(index, "level")?.parse().ok()?,
                kind: read(index, "type")?.to_lowercase(),
                size: read(index, "size")?,
                shared_by: read(index, "shared_cpu_list")?,
            })
        })
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn run__says_when_and_where() {
        let run = describe_run();
        assert!(run.started_unix_s > 1_700_000_000);
        assert!(run.machine.processors > 0 && !run.machine.kernel.is_empty());
        assert!(run.tool.starts_with("fastpath "), "{}", run.tool);
    }

    #[test]
    fn field__is_that_of_the_first_processor() {
        let text = "processor : 0\nmodel name\t: A B\nmodel name\t: C\n";
        assert_eq!(find_field(text, "model name"), Some("A B"));
        assert_eq!(find_field(text, "flags"), None);
    }

    #[test]
    fn model__is_the_first_named() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        let found = find_field(text, "model name");
        assert_eq!(found, Some("Some CPU @ 2 GHz"));
        assert_eq!(find_field("Features: fp", "model name"), None);
    }
}
