#![allow(unsafe_code)]
//! Resources of the machine that this process may use: processors, cores, NUMA nodes, memory.

mod cgroup;
mod cores;
mod places;

pub use cgroup::{available_memory, cpu_quota};
pub use cores::{Core, Distance, find_distance, list_cores, list_cores_in};
pub use places::{Level, list_places};

use std::io;

/// Reads a file below /sys/devices/system; `None` if it is missing.
pub type Reader<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a file of the running kernel; see [`Reader`].
pub fn read_system(path: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/{path}")).ok()
}

/// Largest number of processors of a host. A [`CpuSet`] holds processors below it.
pub const MAX_PROCESSORS: usize = 1 << 16;

/// A set of processors, which are named by the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub fn new() -> CpuSet {
        CpuSet::default()
    }

    /// Adds a processor. Ignores numbers from [`MAX_PROCESSORS`] on.
    pub fn insert(&mut self, cpu: usize) {
        if cpu >= MAX_PROCESSORS {
            return;
        }
        let word = cpu / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Returns whether the set has processor `cpu`.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|w| w >> (cpu % 64) & 1 == 1)
    }

    /// Number of processors.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bits as in the kernel's calls: processor n is bit n % 64 of word n / 64.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the processors in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.words.len() * 64).filter(|&cpu| self.contains(cpu))
    }

    /// Parses the kernel's list form, such as `0-3,8,10-11`; `None` if it is malformed.
    pub fn parse(list: &str) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        for part in list.trim().split(',').filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            if first > last || last >= MAX_PROCESSORS {
                return None;
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }
}

impl CpuSet {
    /// Returns the set without processor `cpu`.
    #[must_use]
    pub fn without(&self, cpu: usize) -> CpuSet {
        self.iter().filter(|&other| other != cpu).collect()
    }
}

/// Returns the processor that runs this thread; `None` if the kernel does not report it.
pub fn current_processor() -> Option<usize> {
    // SAFETY: the call has no arguments and touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Returns the kernel's number of this thread; the first thread has that of the process.
pub fn thread_number() -> u32 {
    // `gettid` needs glibc 2.30, everything else in the library 2.28.
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Moves this thread to another allowed processor, if any. Returns whether it moved. Costs tens of microseconds.
pub fn step_aside() -> bool {
    let Some(here) = current_processor() else {
        return false;
    };
    let all = affinity();
    let rest = all.without(here);
    if rest.is_empty() || set_affinity(&rest).is_err() {
        return false;
    }
    let _ = set_affinity(&all);
    true
}

/// Moves this thread to allowed processor number `index`, modulo their count, and restores its mask.
pub fn start_on(index: usize) {
    let all = affinity();
    if let Some(cpu) = all.iter().nth(index % all.len().max(1)) {
        move_to(cpu);
    }
}

/// Moves this thread to processor `cpu`, if that is allowed, and restores its mask. Costs tens of microseconds.
pub fn move_to(cpu: usize) {
    let all = affinity();
    if all.contains(cpu) && set_affinity(&CpuSet::from_iter([cpu])).is_ok() {
        let _ = set_affinity(&all);
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Returns the processors on which this thread may run.
pub fn affinity() -> CpuSet {
    affinity_of(0).unwrap_or_else(online)
}

/// Returns the processors allowed to the first thread of process `pid`, or to this thread if `pid` is 0. `None` if
/// unknown.
pub fn affinity_of(pid: libc::pid_t) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    read_affinity(pid, &mut set).then_some(set)
}

/// Reads the mask of process `pid` into a set whose memory is reused. Returns false if the kernel does not report it.
pub fn read_affinity(pid: libc::pid_t, set: &mut CpuSet) -> bool {
    let words = &mut set.words;
    words.clear();
    words.resize(words.capacity().clamp(16, 1024), 0);
    loop {
        let bytes = words.len() * 8;
        // SAFETY: the buffer has `bytes` bytes, and the kernel writes at most that many.
        let rc = unsafe { libc::sched_getaffinity(pid, bytes, words.as_mut_ptr().cast()) };
        if rc == 0 {
            return true;
        }
        // EINVAL means that the kernel's mask is longer than the buffer.
        let is_short = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if words.len() >= 1024 || !is_short {
            return false;
        }
        words.resize(words.len() * 2, 0);
    }
}

fn online() -> CpuSet {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    CpuSet::parse(&list).filter(|s| !s.is_empty()).unwrap_or_else(|| CpuSet::from_iter([0]))
}

/// Binds the calling thread, and threads that it starts later, to these processors.
///
/// # Errors
/// The kernel's error, for instance if none of the processors is allowed.
pub fn set_affinity(set: &CpuSet) -> io::Result<()> {
    let bytes = set.words.len() * 8;
    // SAFETY: the buffer has `bytes` bytes, and the kernel reads at most that many.
    let rc = unsafe { libc::sched_setaffinity(0, bytes, set.words.as_ptr().cast()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of processors that this process can use at the same time, at least 1. This is the size of its
/// affinity mask, or the cgroup's quota, rounded up, if that is less.
pub fn usable_processors() -> usize {
    limit_by_quota(affinity().len(), cpu_quota())
}

/// Returns the smaller of `processors` and the quota, rounded up; at least 1.
pub fn limit_by_quota(processors: usize, quota: Option<f64>) -> usize {
    let allowed = quota.map_or(usize::MAX, |q| q.ceil() as usize);
    processors.min(allowed).max(1)
}

/// Returns the kernel's name of the host. It need not resolve to an address.
pub fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for the length given.
    let rc = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len()) };
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(buffer.len());
    if rc != 0 || end == 0 {
        return "localhost".to_owned();
    }
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn cpu_set__round_trips_through_the_list_form() {
        for list in ["0", "0-3", "0-3,8,10-11", "63-64,127", ""] {
            assert_eq!(CpuSet::parse(list).unwrap().to_string(), list);
        }
        assert_eq!(CpuSet::parse("0-3,8\n").unwrap().len(), 5);
    }

    #[test]
    fn start_on__leaves_the_choice_free() {
        let all = affinity();
        for index in [0, 1, all.len(), usize::MAX] {
            start_on(index);
            assert_eq!(affinity(), all);
        }
    }

    #[test]
    fn cpu_set__refuses_malformed_lists() {
        for list in ["a", "3-1", "1-", "0-99999999", "-"] {
            assert_eq!(CpuSet::parse(list), None, "{list}");
        }
    }

    #[test]
    fn affinity__is_what_can_be_set() {
        let mine = affinity();
        assert!(!mine.is_empty());
        set_affinity(&mine).unwrap();
        assert!(set_affinity(&CpuSet::new()).is_err());
    }

    #[test]
    fn quota__limits_and_rounds_up() {
        assert_eq!(limit_by_quota(8, None), 8);
        assert_eq!(limit_by_quota(8, Some(1.5)), 2);
        assert_eq!(limit_by_quota(8, Some(0.1)), 1);
        assert_eq!(limit_by_quota(2, Some(16.0)), 2);
    }

    #[test]
    fn host_name__is_never_empty() {
        assert!(!host_name().is_empty());
    }
}
