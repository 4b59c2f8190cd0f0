//! The kernel's counter of arrivals at an adapter's port that found no receive buffer.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// File names of the counter. Soft-RoCE's counter counts refusals instead of arrivals.
const NAMES: [&str; 2] = ["out_of_buffer", "send_rnr_err"];

/// Counter of a port, read from sysfs. It counts for all processes that use the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCounter {
    /// Name of the counter's file.
    pub name: &'static str,
    path: PathBuf,
    before: u64,
}

impl PortCounter {
    /// Finds the counter of a device's port and starts to count; `None` if the driver has no such counter.
    pub fn find(device: &str, port: u8) -> Option<Self> {
        Self::find_below(Path::new("/sys/class/infiniband"), device, port)
    }

    fn find_below(root: &Path, device: &str, port: u8) -> Option<Self> {
        let folder = root.join(device).join(format!("ports/{port}/hw_counters"));
        NAMES.into_iter().find_map(|name| {
            let path = folder.join(name);
            let before = read(&path)?;
            Some(PortCounter { name, path, before })
        })
    }

    /// Number of arrivals that found no receive buffer since [`PortCounter::find`] was called.
    pub fn since(&self) -> u64 {
        read(&self.path).map_or(0, |now| now.saturating_sub(self.before))
    }
}

fn read(path: &Path) -> Option<u64> {
    read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn find__takes_the_drivers_name_and_counts_from_then() {
        let root = std::env::temp_dir().join(format!("port-counter-{}", std::process::id()));
        let folder = root.join("rxe7/ports/1/hw_counters");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(PortCounter::find_below(&root, "rxe7", 1), None);
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("send_rnr_err", "5\n");
        let software = PortCounter::find_below(&root, "rxe7", 1).unwrap();
        assert_eq!((software.name, software.since()), ("send_rnr_err", 0));
        write("send_rnr_err", "9\n");
        assert_eq!(software.since(), 4);
        write("send_rnr_err", "no number");
        assert_eq!(software.since(), 0);
        write("out_of_buffer", "70\n");
        let hardware = PortCounter::find_below(&root, "rxe7", 1).unwrap();
        assert_eq!(hardware.name, "out_of_buffer");
        fs::remove_dir_all(&root).unwrap();
    }
}
