//! Limit of locked memory, which applies to memory registration.

use std::path::Path;

use serde::Serialize;

use fastpath_report::files;

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Limits {
    /// Soft limit in bytes; None: unlimited.
    pub locked: Option<u64>,
    /// Hard limit in bytes; None: unlimited.
    pub locked_most: Option<u64>,
    /// Whether the limit does not apply, because this process has the capability IPC_LOCK.
    pub privileged: bool,
}

/// Number of the capability IPC_LOCK (linux/capability.h).
const IPC_LOCK: u32 = 14;

/// Parses the text of two files of proc. A missing value counts as no limit.
fn parse(limits: &str, status: &str) -> Limits {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let mut numbers = line.unwrap_or_default().split_whitespace().map(|word| word.parse().ok());
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    Limits {
        locked: numbers.next().flatten(),
        locked_most: numbers.next().flatten(),
        privileged: capabilities.is_some_and(|set| set >> IPC_LOCK & 1 == 1),
    }
}

pub(super) fn read(root: &Path) -> Limits {
    let text = |path: &str| files::read_text(root.join(path)).unwrap_or_default();
    parse(&text("proc/self/limits"), &text("proc/self/status"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn limits__are_read_with_the_capability_that_lifts_them() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536    \
            unlimited    bytes\n";
        let found = parse(text, "Name:\tx\nCapEff:\t0000000000004000\n");
        assert_eq!(found, Limits { locked: Some(65536), locked_most: None, privileged: true });
        assert!(!parse(text, "CapEff:\t000001ffffffbfff\n").privileged);
    }

    #[test]
    fn limits__unlimited_is_no_number() {
        let text = "Max locked memory         unlimited    unlimited    bytes\n";
        assert_eq!(parse(text, "").locked, None);
    }

    #[test]
    fn limits__of_this_process_are_found() {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let soft = text
            .lines()
            .find(|line| line.starts_with("Max locked memory"))
            .and_then(|line| line.split_whitespace().nth(3).map(str::to_owned))
            .unwrap();
        let found = read(Path::new("/"));
        assert_eq!(found.locked.map_or("unlimited".to_owned(), |n| n.to_string()), soft);
    }
}
