//! Limits of control groups, in both versions of the interface.

use crate::exit::LazyStatic;
use std::path::Path;
use std::str::FromStr;

type Reader<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Processor time that the control group grants, in processors; `None` without a limit.
pub fn cpu_quota() -> Option<f64> {
    find_quota(&read_system_file)
}

/// Bytes of memory that this process can still take without eviction. This is the smaller of what the kernel reports as
/// available and what the control group has left.
pub fn available_memory() -> u64 {
    static GROUPS: LazyStatic<Vec<MemoryGroup>> =
        LazyStatic::new(|| memory_groups(&read_system_file));
    find_memory(&read_system_file, GROUPS.get())
}

fn read_system_file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the folders of this process's group and its ancestors. They are below the mount point of one controller
/// (version 1), or of the unified tree if `controller` is empty.
fn group_folders(read: Reader, controller: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in read("/proc/self/cgroup").unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let roots: Vec<String> = if controller.is_empty() {
            if id != "0" || !names.is_empty() {
                continue;
            }
            vec!["/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()]
        } else {
            if !names.split(',').any(|n| n == controller) {
                continue;
            }
            vec![format!("/sys/fs/cgroup/{names}"), format!("/sys/fs/cgroup/{controller}")]
        };
        for ancestor in Path::new(path).ancestors() {
            let ancestor = ancestor.to_string_lossy();
            let below = ancestor.trim_matches('/');
            for root in &roots {
                folders.push(if below.is_empty() {
                    root.clone()
                } else {
                    format!("{root}/{below}")
                });
            }
        }
    }
    folders
}

fn find_quota(read: Reader) -> Option<f64> {
    let mut least: Option<f64> = None;
    let mut take = |quota: f64| {
        if quota > 0.0 {
            least = Some(least.map_or(quota, |l| l.min(quota)));
        }
    };
    for folder in group_folders(read, "") {
        // The text is quota and period in microseconds, such as "max 100000" or "150000 100000".
        let text = read(&format!("{folder}/cpu.max")).unwrap_or_default();
        let mut words = text.split_whitespace();
        if let (Some(Ok(quota)), Some(Ok(period))) =
            (words.next().map(str::parse::<f64>), words.next().map(str::parse::<f64>))
        {
            take(quota / period);
        }
    }
    for folder in group_folders(read, "cpu") {
        let quota = read_number::<f64>(read, &format!("{folder}/cpu.cfs_quota_us"));
        let period = read_number::<f64>(read, &format!("{folder}/cpu.cfs_period_us"));
        if let (Some(quota), Some(period)) = (quota, period) {
            take(quota / period);
        }
    }
    least
}

struct MemoryGroup {
    limit: String,
    used: String,
    stat: String,
    /// Name of the inactive page cache in `stat`.
    inactive: &'static str,
}

/// Groups of this process that have a file for a memory limit, even if it sets none yet. They are searched once,
/// because a process seldom changes groups.
fn memory_groups(read: Reader) -> Vec<MemoryGroup> {
    let group = |folder: String, [limit, used]: [&str; 2], inactive| MemoryGroup {
        limit: format!("{folder}/{limit}"),
        used: format!("{folder}/{used}"),
        stat: format!("{folder}/memory.stat"),
        inactive,
    };
    let unified = group_folders(read, "").into_iter();
    let unified = unified.map(|f| group(f, ["memory.max", "memory.current"], "inactive_file"));
    let first = group_folders(read, "memory").into_iter();
    let files = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
    let first = first.map(|folder| group(folder, files, "total_inactive_file"));
    unified.chain(first).filter(|group| read(&group.limit).is_some()).collect()
}

fn find_memory(read: Reader, groups: &[MemoryGroup]) -> u64 {
    let mut least = field(&read("/proc/meminfo").unwrap_or_default(), "MemAvailable:")
        .map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    for group in groups {
        let Some(limit) = read_number(read, &group.limit) else { continue };
        let used = read_number(read, &group.used);
        let stat = read(&group.stat).unwrap_or_default();
        least = least.min(memory_left(Some(limit), used, field(&stat, group.inactive)));
    }
    least
}

/// Memory that a group has left. The inactive page cache counts as left, because the kernel evicts it first.
fn memory_left(limit: Option<u64>, used: Option<u64>, inactive: Option<u64>) -> u64 {
    match (limit, used) {
        (Some(limit), Some(used)) => {
            limit.saturating_add(inactive.unwrap_or(0)).saturating_sub(used)
        }
        _ => u64::MAX,
    }
}

fn read_number<T: FromStr>(read: Reader, path: &str) -> Option<T> {
    read(path)?.trim().parse().ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn reader(files: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let files: HashMap<String, String> =
            files.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
        move |path| files.get(path).cloned()
    }

    #[test]
    fn quota__version_2_takes_the_tightest_ancestor() {
        let read = reader(&[
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ]);
        assert_eq!(find_quota(&read), Some(1.5));
    }

    #[test]
    fn quota__version_1() {
        let read = reader(&[
            ("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(find_quota(&read), Some(3.0));
    }

    #[test]
    fn quota__none_when_nothing_can_be_read() {
        assert_eq!(find_quota(&reader(&[])), None);
        assert_eq!(find_quota(&reader(&[("/proc/self/cgroup", "garbage\n::\n0:\n")])), None);
    }

    #[test]
    fn memory__is_the_least_of_machine_and_group() {
        let files = [
            ("/proc/self/cgroup", "0::/g\n"),
            ("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"),
            ("/sys/fs/cgroup/g/memory.max", "4096000\n"),
            ("/sys/fs/cgroup/g/memory.current", "4000000\n"),
            ("/sys/fs/cgroup/g/memory.stat", "anon 1\ninactive_file 1000\n"),
        ];
        let find = |read: Reader| find_memory(read, &memory_groups(read));
        assert_eq!(find(&reader(&files)), 97_000);
        assert_eq!(find(&reader(&files[..2])), 8_192_000);
    }

    #[test]
    fn memory__without_limits__reads_two_files() {
        let files = [
            ("/proc/self/cgroup", "0::/a/b\n3:memory:/x\n"),
            ("/proc/meminfo", "MemAvailable: 8000 kB\n"),
            ("/sys/fs/cgroup/a/memory.max", "max\n"),
        ];
        let read = reader(&files);
        let groups = memory_groups(&read);
        let reads = std::cell::Cell::new(0);
        let counting = |path: &str| {
            reads.set(reads.get() + 1);
            read(path)
        };
        assert_eq!(find_memory(&counting, &groups), 8_192_000);
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn memory__of_this_machine_is_something() {
        assert!(available_memory() > 1 << 20);
    }

    #[test]
    fn fuzz__files_of_the_kernel_give_a_number_or_nothing() {
        let corpus: &[&[u8]] = &[
            b"0::/user.slice/app",
            b"4:cpu,cpuacct:/docker/1\n3:memory:/docker/1",
            b"max 100000",
            b"150000 100000",
            b"MemAvailable:   1024 kB",
            b"inactive_file 4096\nactive_file 12",
            b"9223372036854771712",
        ];
        crate::mutate::run(corpus, |input| {
            let text = String::from_utf8_lossy(input).into_owned();
            let anywhere = |_: &str| Some(text.clone());
            let below = |path: &str| match path {
                "/proc/self/cgroup" => Some("0::/a\n1:cpu:/a\n2:memory:/a".to_owned()),
                _ => Some(text.clone()),
            };
            for read in [&anywhere as Reader, &below] {
                if let Some(quota) = find_quota(read) {
                    assert!(quota > 0.0 && !quota.is_nan(), "{quota}");
                }
                find_memory(read, &memory_groups(read));
            }
        });
    }
}
