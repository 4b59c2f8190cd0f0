//! This user's running jobs on this host, found by the memory files of their processes.

use super::{Member, find_members};
use fastpath_base::sync::Ordering;
use fastpath_segment::Segment;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A running job, whose memory is mapped read-only.
#[derive(Debug)]
pub struct RunningJob {
    /// The job's memory.
    pub segment: Segment,
    /// Processes of the ranks.
    pub members: Vec<Member>,
    /// Process number of the launcher or, without one, of the first running rank.
    pub number: libc::pid_t,
}

/// Returns all jobs with a process of this user on this host, sorted by number. Processes that end meanwhile or whose
/// descriptors cannot be read are omitted.
pub fn find_jobs() -> Vec<RunningJob> {
    let mut jobs: BTreeMap<(u64, u64), RunningJob> = BTreeMap::new();
    let own = fs::metadata("/proc/self").map(|about| about.uid());
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    for process in processes.flatten() {
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let about = process.metadata();
        let is_own = matches!((&about, &own), (Ok(about), Ok(own)) if about.uid() == *own);
        if !process.file_name().to_str().is_some_and(is_number) || !is_own {
            continue;
        }
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            if let Some((key, job)) = open_job(&descriptor.path(), &jobs) {
                jobs.insert(key, job);
            }
        }
    }
    let mut jobs: Vec<RunningJob> = jobs.into_values().collect();
    jobs.sort_by_key(|job| job.number);
    jobs
}

/// Opens the job whose memory a descriptor of another process refers to, unless the job is known already.
fn open_job(
    descriptor: &Path, known: &BTreeMap<(u64, u64), RunningJob>,
) -> Option<((u64, u64), RunningJob)> {
    if !is_memory(descriptor) {
        return None;
    }
    let about = fs::metadata(descriptor).ok()?;
    let key = (about.dev(), about.ino());
    if known.contains_key(&key) {
        return None;
    }
    let segment = open_segment(descriptor)?;
    let members = find_members(&segment);
    let launcher = segment.header().launcher.load(Ordering::Relaxed) as libc::pid_t;
    let first = members.iter().map(|m| m.pid).find(|&pid| pid > 0);
    let number = match launcher {
        0 => first?,
        launcher => launcher,
    };
    let job = RunningJob { segment, members, number };
    Some((key, job))
}

/// Returns the job memories that a process holds, read-only.
pub fn find_segments(pid: u32) -> Vec<Segment> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let paths = descriptors.into_iter().flatten().flatten();
    let paths = paths.map(|descriptor| descriptor.path());
    let memory = paths.filter(|path| is_memory(path));
    memory.filter_map(|path| open_segment(&path)).collect()
}

/// Returns the job memory behind a descriptor of this process, read-only; `None` for anything else.
pub fn find_memory(fd: RawFd) -> Option<Segment> {
    let path = Path::new("/proc/self/fd").join(fd.to_string());
    is_memory(&path).then(|| open_segment(&path))?
}

fn is_memory(descriptor: &Path) -> bool {
    let target = fs::read_link(descriptor);
    target.is_ok_and(|target| target.to_str().is_some_and(may_be_memory))
}

fn open_segment(descriptor: &Path) -> Option<Segment> {
    Segment::view(File::open(descriptor).ok()?.into()).ok()
}

/// Returns whether `target`, the kernel's name for a descriptor's file, may be that of a job's memory. The memory is a
/// memory file, or an unnamed file if memory files are refused.
fn may_be_memory(target: &str) -> bool {
    target.starts_with("/memfd:fastpath")
        || (target.ends_with(" (deleted)")
            && (target.contains("/#") || target.contains("/.fastpath-")))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn jobs__are_found_by_their_memory() {
        let segment = Segment::create(2, 7).unwrap();
        let own = std::process::id();
        segment.header().launcher.store(own, Ordering::Relaxed);
        let page = segment.page(1).unwrap();
        page.launched_pid.store(own, Ordering::Relaxed);
        let jobs = find_jobs();
        let is_this = |job: &&RunningJob| job.segment.header().job_id.load(Ordering::Relaxed) == 7;
        let job = jobs.iter().find(is_this).unwrap();
        assert_eq!(job.number, own as libc::pid_t);
        let pids: Vec<_> = job.members.iter().map(|member| member.pid).collect();
        assert_eq!(pids, [0, own as libc::pid_t]);
        drop(segment);
    }

    #[test]
    fn memory__is_a_file_without_a_name() {
        assert!(may_be_memory("/memfd:fastpath (deleted)"));
        assert!(may_be_memory("/dev/shm/#12 (deleted)"));
        assert!(may_be_memory("/tmp/.fastpath-1-2 (deleted)"));
        assert!(!may_be_memory("/memfd:other (deleted)"));
        assert!(!may_be_memory("/tmp/file"));
        assert!(!may_be_memory("socket:[12]"));
    }
}
