//! Differences between file systems.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

/// Kinds of file systems that need different treatment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// All processes of this host share the file's pages, so the file may be mapped for writing.
    Paged,
    /// Like `Paged`, without storage behind the pages: mapped pages are written without notice to the file system.
    Memory,
    /// Host caches are not coherent. Writing back a cached page may overwrite bytes that another host wrote to the
    /// page, so every access bypasses the cache.
    Nfs,
    /// Files are striped over servers, and programs may choose the stripes. Caches are coherent.
    Lustre,
    /// Any other file system: files are not mapped.
    Other,
}

/// Super block of Lustre (`LUSTRE_SUPER_MAGIC`).
const LUSTRE: i64 = 0x0BD0_0BD0;

fn kind_of(magic: i64) -> System {
    // The type of the constants differs between C libraries.
    #[allow(clippy::unnecessary_cast)]
    const KINDS: [(i64, System); 5] = [
        (libc::TMPFS_MAGIC as i64, System::Memory),
        (libc::EXT4_SUPER_MAGIC as i64, System::Paged),
        (libc::XFS_SUPER_MAGIC as i64, System::Paged),
        (libc::NFS_SUPER_MAGIC as i64, System::Nfs),
        (LUSTRE, System::Lustre),
    ];
    let found = KINDS.iter().find(|(known, _)| *known == magic);
    found.map_or(System::Other, |(_, kind)| *kind)
}

impl System {
    pub(crate) fn of(fd: i32) -> System {
        // SAFETY: all zeros is a valid `statfs`, which the call overwrites.
        let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `facts` is writable, and the call checks the file descriptor.
        match retry(|| unsafe { libc::fstatfs(fd, &mut facts) } as isize) {
            #[allow(clippy::unnecessary_cast)]
            0 => kind_of(facts.f_type as i64),
            _ => System::Other,
        }
    }

    pub(crate) fn of_folder(path: &CStr) -> System {
        let folder = folder_of(path);
        // SAFETY: all zeros is a valid `statfs`, which the call overwrites.
        let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `folder` ends in a NUL, and `facts` is writable.
        match retry(|| unsafe { libc::statfs(folder.as_ptr(), &mut facts) } as isize) {
            #[allow(clippy::unnecessary_cast)]
            0 => kind_of(facts.f_type as i64),
            _ => System::Other,
        }
    }
}

fn folder_of(path: &CStr) -> CString {
    let bytes = path.to_bytes();
    let folder = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(end) => &bytes[..end],
        None => b".",
    };
    CString::new(folder).unwrap_or_default()
}

/// Requests an open file's size from the server. Network file systems otherwise report sizes some seconds old.
pub(crate) fn size_at_server(fd: i32) -> Option<i64> {
    let seen = ask(fd, c"", libc::AT_EMPTY_PATH)?;
    i64::try_from(seen.stx_size).ok()
}

/// Requests from the server whether an open file has been deleted. A host caches names for some seconds, and may open a
/// file that another host has deleted.
pub(crate) fn is_deleted_at_server(fd: i32) -> bool {
    match ask(fd, c"", libc::AT_EMPTY_PATH) {
        Some(seen) => seen.stx_nlink == 0,
        None => std::io::Error::last_os_error().raw_os_error() == Some(libc::ESTALE),
    }
}

/// Requests the attributes of the path's folder from the server. A host caches the absence of a file for some seconds,
/// unless it finds that the folder has changed.
pub(crate) fn look_at_folder(path: &CStr) {
    ask(libc::AT_FDCWD, &folder_of(path), 0);
}

/// Whether locks of an open file exclude only processes of this host.
pub(crate) fn has_local_locks(fd: i32) -> bool {
    let Some(seen) = ask(fd, c"", libc::AT_EMPTY_PATH) else {
        return false;
    };
    let device = format!("{}:{}", seen.stx_dev_major, seen.stx_dev_minor);
    std::fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|mounts| is_locked_locally(&mounts, &device))
}

/// Whether the mount of `device` has local locks. In `mounts`, as in `/proc/self/mountinfo`, the device is the third
/// word of a line and the options are the last.
fn is_locked_locally(mounts: &str, device: &str) -> bool {
    mounts.lines().any(|line| {
        let options = line.rsplit(' ').next().unwrap_or("");
        let is_local = |option| matches!(option, "local_lock=all" | "local_lock=posix");
        line.split(' ').nth(2) == Some(device) && options.split(',').any(is_local)
    })
}

fn ask(fd: i32, path: &CStr, flags: i32) -> Option<libc::statx> {
    // SAFETY: all zeros is a valid `statx`, which the call overwrites.
    let mut seen: libc::statx = unsafe { std::mem::zeroed() };
    let flags = flags | libc::AT_STATX_FORCE_SYNC;
    // SAFETY: `path` ends in a NUL, and `seen` is writable.
    let told = unsafe { libc::statx(fd, path.as_ptr(), flags, libc::STATX_BASIC_STATS, &mut seen) };
    (told == 0).then_some(seen)
}

pub(crate) fn retry(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        let is_interrupted =
            result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if !is_interrupted {
            return result;
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn folder__of_a_path_is_what_is_before_its_last_part() {
        let folder = |path: &str| folder_of(&CString::new(path).unwrap()).into_string().unwrap();
        assert_eq!(folder("/a/b"), "/a");
        assert_eq!(folder("/a"), "/");
        assert_eq!(folder("a"), ".");
        assert_eq!(folder("a/b/c"), "a/b");
    }

    #[test]
    fn system__is_known_by_its_number() {
        assert_eq!(kind_of(0x6969), System::Nfs);
        assert_eq!(kind_of(0x0BD0_0BD0), System::Lustre);
        assert_eq!(kind_of(0xEF53), System::Paged);
        assert_eq!(kind_of(0x9123_683E), System::Other);
        assert_eq!(System::of(-1), System::Other);
        assert_eq!(System::of_folder(c"/proc/none"), System::Other);
    }

    #[test]
    fn locks__of_a_mount_are_local_where_it_says_so() {
        let line = |device: &str, options: &str| {
            format!(
                "36 25 {device} / /data rw,relatime shared:7 - nfs a:/data rw,vers=3,{options}\n"
            )
        };
        let mounts = |options: &str| line("0:40", "local_lock=none") + &line("0:41", options);
        assert!(is_locked_locally(&mounts("nolock,local_lock=all"), "0:41"));
        assert!(is_locked_locally(&mounts("local_lock=posix,addr=10.1.0.1"), "0:41"));
        assert!(!is_locked_locally(&mounts("local_lock=flock"), "0:41"));
        assert!(!is_locked_locally(&mounts("local_lock=all"), "0:40"));
        assert!(!is_locked_locally("", "0:41"));
        assert!(!has_local_locks(-1));
    }

    #[test]
    fn file__that_has_no_name_any_more_is_deleted() {
        let path = std::env::temp_dir().join(format!("fastpath-deleted-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(!is_deleted_at_server(fd));
        std::fs::remove_file(&path).unwrap();
        assert!(is_deleted_at_server(fd));
        assert!(!is_deleted_at_server(-1));
    }

    #[test]
    fn size__of_an_open_file_is_asked_for() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let size = file.metadata().unwrap().len() as i64;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!(size_at_server(fd), Some(size));
        assert_eq!(size_at_server(-1), None);
    }
}
