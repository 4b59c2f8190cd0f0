#![allow(unsafe_code)]
//! Claims on processors, so that two jobs of a user do not bind to the same processors.
//!
//! A claim is a read lock (`fcntl`) on a byte of the kernel's folder of processors, at the processor's number. It
//! creates no file, ends with the launcher, and cannot be blocked: read locks do not conflict, and a write lock needs a
//! file opened for writing, which a folder never is. The holders of other locks are read from /proc/locks. Claims of
//! the same user are respected. Claims of other users are avoided while there are free processors, and shared
//! otherwise: one user cannot keep all others from binding.

use crate::placing::Placed;
use crate::poll::pause;
use fastpath_base::topology::{CpuSet, affinity};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of choices of processors, if each one conflicts with another job's choice.
const TRIES: u32 = 20;
/// Maximum number of choices if all processors are claimed. Other jobs may drop their claims meanwhile.
const TRIES_TAKEN: u32 = 3;
/// Maximum number of bytes read from /proc/locks.
const LOCKS_MOST: u64 = 1 << 20;

/// Function that picks places for ranks, given the claims of other jobs and users.
pub type Pick<'a> = &'a dyn Fn(&OtherClaims) -> Result<Vec<Placed>, String>;

#[derive(Debug)]
pub struct ClaimedPlaces {
    pub placed: Vec<Placed>,
    /// Whether another user has a claim on one of the processors.
    pub shared: bool,
    /// Holds the locks; None in tests. The locks end when this process closes any descriptor of the folder.
    pub locks: Option<File>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherClaims {
    /// Claims of other jobs of this user.
    pub own: CpuSet,
    /// Claims of other users' processes, presumably jobs.
    pub foreign: CpuSet,
}

impl OtherClaims {
    /// Whether another user claims one of these places.
    pub fn meet_foreign(&self, placed: &[Placed]) -> bool {
        list_processors(placed).any(|cpu| self.foreign.contains(cpu))
    }

    fn meet_own(&self, placed: &[Placed]) -> bool {
        list_processors(placed).any(|cpu| self.own.contains(cpu))
    }
}

fn list_processors(placed: &[Placed]) -> impl Iterator<Item = usize> + '_ {
    placed.iter().flat_map(|(_, set)| set.iter())
}

/// Claims the processors that `pick` picks. `folder` is /sys/devices/system/cpu.
///
/// # Errors
/// The error of `pick`, or that claims are unavailable.
pub fn claim_processors(folder: &Path, pick: Pick<'_>) -> Result<ClaimedPlaces, String> {
    let unavailable = |what: &str, e: io::Error| {
        format!(
            "mpiexec cannot claim processors ({what}: {e}), so other jobs might be bound to the \
             same processors"
        )
    };
    let locks = File::open(folder).map_err(|e| unavailable(&folder.display().to_string(), e))?;
    let look = || read_others(&locks).map_err(|e| unavailable("/proc/locks", e));
    for attempt in 1.. {
        let before = look()?;
        let placed = match pick(&before) {
            Ok(placed) => placed,
            Err(_) if attempt < TRIES_TAKEN && !before.own.is_empty() => {
                give_way();
                continue;
            }
            Err(why) => return Err(why),
        };
        for cpu in list_processors(&placed) {
            set_lock(&locks, libc::F_RDLCK, cpu, 1).map_err(|e| unavailable("fcntl", e))?;
        }
        let after = look()?;
        // Another launcher may have picked at the same time. Both launchers drop their claims and pick again. A
        // conflict with another user's claim is accepted if it was visible before, or after `TRIES` attempts.
        let surprised = after.meet_foreign(&placed) && !before.meet_foreign(&placed);
        if !(after.meet_own(&placed) || surprised && attempt < TRIES) {
            return Ok(ClaimedPlaces {
                shared: after.meet_foreign(&placed),
                placed,
                locks: Some(locks),
            });
        }
        set_lock(&locks, libc::F_UNLCK, 0, 0).map_err(|e| unavailable("fcntl", e))?;
        if attempt == TRIES {
            break;
        }
        give_way();
    }
    Err("other jobs that start at the same time have claimed the cores".to_owned())
}

fn give_way() {
    pause(1 + (fastpath_base::clock::now_ns() ^ u64::from(std::process::id())) % 8);
}

/// Locks or unlocks `count` bytes from `start`; a count of 0 means all that follow.
fn set_lock(folder: &File, kind: libc::c_int, start: usize, count: i64) -> io::Result<()> {
    // SAFETY: all zeros is a valid flock, and the structure outlives the call.
    let rc = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = start as libc::off_t;
        lock.l_len = count;
        libc::fcntl(folder.as_raw_fd(), libc::F_SETLK, &lock)
    };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read_others(folder: &File) -> io::Result<OtherClaims> {
    let about = folder.metadata()?;
    // Number of this process in the namespace of /proc, which may differ from the process's own namespace.
    let me = std::fs::read_link("/proc/self")?;
    let me = me.to_str().and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let mut text = String::new();
    File::open("/proc/locks")?.take(LOCKS_MOST).read_to_string(&mut text)?;
    // SAFETY: getuid has no arguments and cannot fail.
    let user = unsafe { libc::getuid() };
    let is_own = |pid: u32| read_user(pid) == Some(user);
    let name = file_name(about.dev(), about.ino());
    let most = affinity().iter().last().unwrap_or(0);
    Ok(find_others(&text, &name, me, most, &is_own))
}

/// Returns the name that /proc/locks uses for a file: device and inode.
fn file_name(device: u64, inode: u64) -> String {
    let (major, minor) = (libc::major(device), libc::minor(device));
    format!("{major:02x}:{minor:02x}:{inode}")
}

/// Reads the real user of a process, which executing a setuid program does not change.
fn read_user(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the processors up to `most` on which processes other than `me` hold a lock. `text` is /proc/locks, such as
/// `1: POSIX  ADVISORY  READ 22913 00:16:3562 3 3`.
fn find_others(
    text: &str, file: &str, me: u32, most: usize, is_own: &dyn Fn(u32) -> bool,
) -> OtherClaims {
    let mut others = OtherClaims::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, _, pid, name, first, last] = fields[..] else {
            continue;
        };
        let (Ok(pid), Ok(first)) = (pid.parse::<u32>(), first.parse::<usize>()) else {
            continue;
        };
        if name != file || pid == me {
            continue;
        }
        let set = match is_own(pid) {
            true => &mut others.own,
            false => &mut others.foreign,
        };
        // The last field is "EOF" if the lock has no end.
        let last = last.parse().unwrap_or(usize::MAX).min(most);
        (first..=last).for_each(|cpu| set.insert(cpu));
    }
    others
}

/// Makes a claim function that claims nothing, and shows claims of other jobs (`own`) and other users (`foreign`).
#[cfg(test)]
pub fn claim_beside(
    own: &str, foreign: &str,
) -> impl FnMut(Pick<'_>) -> Result<ClaimedPlaces, String> {
    let [own, foreign] = [own, foreign].map(|list| CpuSet::parse(list).unwrap());
    let others = OtherClaims { own, foreign };
    move |pick| {
        let placed = pick(&others)?;
        Ok(ClaimedPlaces { shared: others.meet_foreign(&placed), placed, locks: None })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse(list).unwrap()
    }

    fn others(own: &str, foreign: &str) -> OtherClaims {
        OtherClaims { own: set(own), foreign: set(foreign) }
    }

    #[test]
    fn locks__are_told_apart_by_file_and_user() {
        let text = "1: POSIX  ADVISORY  READ 10 00:16:3562 3 3\n\
                    2: FLOCK  ADVISORY  WRITE 11 00:16:3562 0 EOF\n\
                    3: POSIX  ADVISORY  READ 12 00:16:3563 0 0\n\
                    4: POSIX  ADVISORY  READ 13 00:16:3562 5 6\n\
                    4: -> POSIX  ADVISORY  WRITE 14 00:16:3562 7 7\n\
                    5: POSIX  ADVISORY  READ 99 00:16:3562 0 0\n";
        let found = find_others(text, "00:16:3562", 99, 7, &|pid| pid == 10);
        assert_eq!(found, others("3", "5-6"));
        assert_eq!(file_name(22, 3562), "00:16:3562");
    }

    #[test]
    fn lock__on_everything_has_an_end() {
        let text =
            "1: POSIX  ADVISORY  READ 1 00:16:1 2 EOF\n1: POSIX  ADVISORY  READ 1 00:16:1 x 1\n";
        let found = find_others(text, "00:16:1", 9, 3, &|_| false);
        assert_eq!(found, others("", "2-3"));
    }

    #[test]
    fn fuzz__locks_of_any_text_are_read() {
        let corpus: &[&[u8]] = &[
            b"1: POSIX  ADVISORY  READ 22913 00:16:3562 3 3",
            b"2: -> FLOCK  ADVISORY  WRITE 22163 fe:00:10502152 0 EOF",
            b"1: POSIX  ADVISORY  READ 1 00:16:3562 18446744073709551615 EOF",
        ];
        crate::mutate::run(corpus, |input| {
            find_others(&String::from_utf8_lossy(input), "00:16:3562", 1, 4096, &|pid| {
                pid % 2 == 0
            });
        });
    }

    #[test]
    fn claims__need_a_folder() {
        let pick = |_: &OtherClaims| Ok(Vec::new());
        let why = claim_processors(Path::new("/proc/none/folder"), &pick).unwrap_err();
        assert!(why.contains("/proc/none/folder"), "{why}");
    }

    #[test]
    fn claims__show_in_the_list_of_locks() {
        let folder = std::env::temp_dir().join(format!("claims-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let pick = |_: &OtherClaims| Ok(vec![(0, set("0,2"))]);
        let claimed = claim_processors(&folder, &pick).unwrap();
        assert!(!claimed.shared);
        let about = folder.metadata().unwrap();
        let text = std::fs::read_to_string("/proc/locks").unwrap();
        // If `me` is 0, the locks of this process count as those of another process.
        let name = file_name(about.dev(), about.ino());
        let seen = find_others(&text, &name, 0, 9, &|_| true);
        assert_eq!(seen.own, set("0,2"));
        std::fs::remove_dir(&folder).unwrap();
    }
}
