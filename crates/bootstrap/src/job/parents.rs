//! Whether a rank of a job that an engine started has started this process: that one inherits the variables by which
//! the engine told its parent which rank it is, and is no rank itself.

use super::detect::is_identity;
use super::identity::parent_of;
use crate::inspect::jobs::find_segments;
use crate::segment::{RankPage, Segment};
use fastpath_base::sync::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Parents that are looked at, at most.
const PARENTS_MOST: usize = 100;

/// Variables that tell a process its rank, by name.
type Identity = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether one of this process's parents, with the same variables, is a rank. One with other variables ends the search:
/// a launcher has started this process further down.
pub(super) fn has_rank_above() -> bool {
    let own = own_identity();
    let mut pid = std::process::id();
    for _ in 0..PARENTS_MOST {
        pid = match parent_of(pid) {
            Some(parent) if parent > 1 => parent,
            _ => return false,
        };
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) if read_identity(&environment) == own => {}
            _ => return false,
        }
        if find_segments(pid).iter().any(|job| is_rank_of(job, pid)) {
            return true;
        }
    }
    false
}

/// The process of the engine that has started this one: the nearest parent without the variables that tell this one its
/// rank. A shell that the engine has started for it has them.
pub(crate) fn find_engine_process() -> Option<u32> {
    let own = own_identity();
    let has_own = |pid: u32| {
        // One that cannot be read is not this user's.
        let environment = fs::read(format!("/proc/{pid}/environ"));
        environment.is_ok_and(|environment| read_identity(&environment) == own)
    };
    if own.is_empty() {
        return None;
    }
    find_first_above(std::process::id(), parent_of, has_own)
}

/// The nearest parent that has not this process's variables.
fn find_first_above(
    own: u32, parent_of: impl Fn(u32) -> Option<u32>, has_own: impl Fn(u32) -> bool,
) -> Option<u32> {
    let mut pid = own;
    for _ in 0..PARENTS_MOST {
        // Process 1 is not the engine's, or it is that of a container and ends all others with it.
        pid = parent_of(pid).filter(|&parent| parent > 1)?;
        if !has_own(pid) {
            return Some(pid);
        }
    }
    None
}

/// Whether a process has taken a rank in a job without a launcher of ours.
fn is_rank_of(job: &Segment, pid: u32) -> bool {
    let owns = |page: &RankPage| page.owner_pid.load(Ordering::Relaxed) == pid;
    let mut pages = job.node_ranks().filter_map(|rank| job.page(rank));
    job.header().launcher.load(Ordering::Relaxed) == 0 && pages.any(owns)
}

fn own_identity() -> Identity {
    let variables = std::env::vars_os();
    let own = variables.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    own.filter(|(name, _)| tells_rank(name)).collect()
}

/// The variables that tell a rank in an environment (proc_pid_environ(5)).
fn read_identity(environment: &[u8]) -> Identity {
    let entries = environment.split(|&byte| byte == 0);
    let pairs = entries.filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        Some((entry[..at].to_vec(), entry[at + 1..].to_vec()))
    });
    pairs.filter(|(name, _)| tells_rank(name)).collect()
}

fn tells_rank(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(is_identity)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn identity__is_what_tells_a_rank() {
        let read = |text: &str| read_identity(text.as_bytes());
        let found = read("PATH=/bin\0PMI_RANK=1\0x\0PMI_FD=a=b\0");
        assert_eq!(found.len(), 2);
        assert_eq!(found[&b"PMI_FD"[..]], b"a=b");
        assert_eq!(read("PMI_RANK=1\0PMI_FD=a=b\0HOME=/\0"), found);
        assert!(read("").is_empty());
    }

    #[test]
    fn engine__is_the_first_parent_with_other_variables() {
        let above = |pid: u32| Some(pid - 1);
        assert_eq!(find_first_above(9, above, |_| false), Some(8));
        assert_eq!(find_first_above(9, above, |pid| pid > 4), Some(4));
        assert_eq!(find_first_above(9, above, |_| true), None);
        assert_eq!(find_first_above(2, above, |_| false), None);
        assert_eq!(find_first_above(9, |_| None, |_| false), None);
    }

    #[test]
    fn rank__is_who_has_a_page_in_a_job_of_an_engine() {
        let own = std::process::id();
        let job = Segment::create(2, 1).unwrap();
        assert!(!is_rank_of(&job, own));
        job.page(1).unwrap().owner_pid.store(own, Ordering::Relaxed);
        assert!(is_rank_of(&job, own) && !is_rank_of(&job, own + 1));
        job.header().launcher.store(9, Ordering::Relaxed);
        assert!(!is_rank_of(&job, own));
        assert!(!has_rank_above());
    }
}
