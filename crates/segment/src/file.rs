#![allow(unsafe_code)]
//! File behind a segment. It has no name, so it disappears with its last descriptor and no other user can open it.

use crate::error::{SegmentError, system};
use crate::layout::SegmentLayout;
use fastpath_base::refusal::{ByteSize, describe_call};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Makes the file of a segment. Returns the file, and the layout that determines its length: `layout`, or a smaller one
/// if the length of files is limited. Errors: [`open_nameless`] fails, or the length is refused.
pub(crate) fn create_file(layout: SegmentLayout) -> Result<(OwnedFd, SegmentLayout), SegmentError> {
    let (file, can_seal) = open_somewhere()?;
    let layout = set_length(&file, layout)?;
    // The file is sealed, because a process that changed its length would end the other processes by SIGBUS.
    if can_seal {
        // SAFETY: the descriptor is open, and the call takes no pointer.
        let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
        if rc != 0 {
            return Err(system("fcntl (F_ADD_SEALS)"));
        }
    }
    Ok((file, layout))
}

/// Opens an empty file without a name, for reading and writing. It is a memory file or, where those are refused, an
/// unlinked file in /dev/shm or in a folder for temporary files.
///
/// # Errors
/// The errors of all folders.
pub fn open_nameless() -> Result<OwnedFd, SegmentError> {
    open_somewhere().map(|(file, _)| file)
}

/// Opens the file of [`open_nameless`]. Returns also whether it is a memory file, which can be sealed.
fn open_somewhere() -> Result<(OwnedFd, bool), SegmentError> {
    let refused = match open_memory_file() {
        Ok(file) => return Ok((file, true)),
        Err(cause) => describe_call("memfd_create", &cause),
    };
    let mut reasons = vec![refused];
    for folder in folders() {
        match open_unlinked(&folder) {
            Ok(file) => return Ok((file, false)),
            Err(cause) => {
                reasons.push(format!("no file can be made in {}: {cause}", folder.display()))
            }
        }
    }
    Err(SegmentError::NoFile(reasons.join("; ")))
}

pub(crate) fn is_nameless(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    Ok(about.is_file() && about.nlink() == 0)
}

/// Returns whether a file is safe from being shortened. A memory file is safe if it is sealed. An unlinked file cannot
/// be sealed, but only processes of the job hold it, so it counts as safe
/// (docs/decisions/0022-unlinked-files-are-not-sealed.md).
pub(crate) fn is_sealed_or_unlinked(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open, and the call takes no pointer.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        let cause = io::Error::last_os_error();
        // EINVAL means that the file system has no seals.
        return match cause.raw_os_error() {
            Some(libc::EINVAL) => Ok(true),
            _ => Err(cause),
        };
    }
    // The kernel sets F_SEAL_SEAL alone on a tmpfs file, and on a memory file made without permission to seal.
    let cannot_be_sealed = seals == libc::F_SEAL_SEAL && !is_memory_file(file);
    Ok(seals & libc::F_SEAL_SHRINK != 0 || cannot_be_sealed)
}

/// Returns whether the name that /proc gives for the file is that of a memory file. Nothing else distinguishes a memory
/// file from a tmpfs file. Returns false without /proc.
fn is_memory_file(file: &File) -> bool {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    path.is_ok_and(|path| path.as_os_str().as_bytes().starts_with(b"/memfd:"))
}

/// Returns the free bytes of the file's file system; `None` if only memory limits the file, as for a memory file.
pub(crate) fn file_system_room(file: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: all zeros is a valid structure, and the call fills it.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &mut about) == 0).then_some(about)?
    };
    (about.f_blocks != 0).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

fn open_memory_file() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    unsafe {
        match libc::memfd_create(c"fastpath".as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn folders() -> Vec<PathBuf> {
    let temporary = std::env::var_os("TMPDIR").map(PathBuf::from);
    let mut folders = vec![PathBuf::from("/dev/shm")];
    folders.extend(temporary.filter(|path| path.is_absolute()));
    folders.push("/tmp".into());
    folders.dedup();
    folders
}

/// Opens a file in `folder` that has no name and cannot get one.
fn open_unlinked(folder: &Path) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE | libc::O_EXCL);
    match options.open(folder) {
        // Some file systems have no O_TMPFILE.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {}
        other => return other.map(OwnedFd::from),
    }
    open_and_unlink(folder)
}

/// Opens and unlinks a file. The file's name exists between these two calls.
fn open_and_unlink(folder: &Path) -> io::Result<OwnedFd> {
    let now = fastpath_base::clock::now_ns();
    let path = folder.join(format!(".fastpath-{}-{now}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let file = options.create_new(true).open(&path)?;
    let removed = std::fs::remove_file(&path);
    removed.map(|()| file.into()).map_err(|e| {
        let why = describe_call("unlink", &e);
        let left = path.display();
        io::Error::new(e.kind(), format!("{why}; remove the file {left}, which is left behind"))
    })
}

/// Sets the length of a file to that of `layout`, or of a smaller layout if file sizes are limited. Returns that
/// layout.
fn set_length(file: &OwnedFd, layout: SegmentLayout) -> Result<SegmentLayout, SegmentError> {
    let mut fitting = layout;
    loop {
        let Err(cause) = set_bytes(file, fitting.total_bytes()) else {
            return Ok(fitting);
        };
        let too_long = matches!(cause.raw_os_error(), Some(libc::EFBIG));
        fitting = match fitting.smaller() {
            Some(smaller) if too_long => smaller,
            _ if too_long => return Err(too_long_for(fitting, &cause)),
            _ => {
                return Err(SegmentError::System { step: "ftruncate", cause });
            }
        };
    }
}

fn too_long_for(layout: SegmentLayout, cause: &io::Error) -> SegmentError {
    let limit = fastpath_base::refusal::read_limit(libc::RLIMIT_FSIZE);
    let limit = limit.map_or(String::new(), |bytes| {
        format!("; the size of files is limited to {} (`ulimit -f`)", ByteSize(bytes))
    });
    SegmentError::NoFile(format!(
        "ftruncate cannot make the job's memory file {} long: {cause}{limit}",
        ByteSize(layout.total_bytes())
    ))
}

/// Sets the length of a file. The limit on file sizes (`ulimit -f`) applies to memory files too. The function therefore
/// raises the limit temporarily as far as allowed, and ignores the limit's signal meanwhile.
fn set_bytes(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let mut old = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structures are valid for the calls, and the signal's former action is restored.
    unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut old);
        let action = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let raise = |limit: libc::rlimit| libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0;
        // A privileged process may exceed the hard limit.
        if !raise(libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY }) {
            raise(libc::rlimit { rlim_cur: old.rlim_max, rlim_max: old.rlim_max });
        }
        let rc = libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t);
        let failed = (rc != 0).then(io::Error::last_os_error);
        libc::setrlimit(libc::RLIMIT_FSIZE, &old);
        libc::signal(libc::SIGXFSZ, action);
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::memory::Segment;

    /// A folder that is removed with the test, and must then be empty.
    struct ScratchFolder(PathBuf);

    impl ScratchFolder {
        fn new(name: &str) -> ScratchFolder {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            ScratchFolder(path)
        }
    }

    impl Drop for ScratchFolder {
        fn drop(&mut self) {
            std::fs::remove_dir(&self.0).expect("nothing is left in it");
        }
    }

    #[test]
    fn unlinked_file__has_no_name_and_is_private() {
        let scratch = ScratchFolder::new("segment-file");
        let open: [fn(&Path) -> io::Result<OwnedFd>; 2] = [open_unlinked, open_and_unlink];
        for open in open {
            let file = File::from(open(&scratch.0).unwrap());
            assert!(is_nameless(&file).unwrap());
            assert_eq!(file.metadata().unwrap().mode() & 0o177, 0);
            // SAFETY: the descriptor is open, and the call takes no pointer.
            let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC);
            assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
        }
    }

    fn begin_in(file: OwnedFd) -> Segment {
        let layout = set_length(&file, SegmentLayout::new(2).unwrap()).unwrap();
        Segment::begin(file, layout, 2, 5).unwrap()
    }

    #[test]
    fn unlinked_file__serves_as_a_segment() {
        let scratch = ScratchFolder::new("segment-unlinked");
        let segment = begin_in(open_unlinked(&scratch.0).unwrap());
        let again = segment.file().unwrap().try_clone_to_owned().unwrap();
        let other = Segment::attach(again, 5).unwrap();
        segment.back_pair(0, 1).unwrap();
        let [one, two] = [&segment, &other].map(|s| s.pair_region(0, 1).unwrap().as_ptr());
        // SAFETY: both point to the first byte of the region just backed.
        unsafe {
            one.write(7);
            assert_eq!(two.read(), 7);
        }
        assert!(file_system_room(segment.file().unwrap()).is_some());
    }

    /// The kernel reports seals for tmpfs, and none for other file systems.
    #[test]
    fn unlinked_file__is_attached_to_in_every_folder() {
        let open: [fn(&Path) -> io::Result<OwnedFd>; 2] = [open_unlinked, open_and_unlink];
        let files = folders().into_iter().flat_map(|folder| open.map(|open| open(&folder)));
        for file in files.filter_map(Result::ok) {
            let segment = begin_in(file);
            let again = segment.file().unwrap().try_clone_to_owned().unwrap();
            Segment::attach(again, 5).unwrap();
        }
    }

    #[test]
    fn memory_file__that_could_shrink_is_no_segment() {
        // SAFETY: the name is a C string; the call returns a new descriptor.
        let unsealable = unsafe {
            OwnedFd::from_raw_fd(libc::memfd_create(c"fastpath".as_ptr(), libc::MFD_CLOEXEC))
        };
        let other_seals = open_memory_file().unwrap();
        // SAFETY: the descriptor is open, and the call takes no pointer.
        let rc =
            unsafe { libc::fcntl(other_seals.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SEAL) };
        assert_eq!(rc, 0);
        for file in [open_memory_file().unwrap(), unsealable, other_seals] {
            let segment = begin_in(file);
            let again = segment.file().unwrap().try_clone_to_owned().unwrap();
            let refused = Segment::attach(again, 5).unwrap_err();
            assert!(matches!(refused, SegmentError::Foreign(_)), "{refused}");
            assert!(refused.to_string().contains("not sealed against shrinking"), "{refused}");
        }
    }

    #[test]
    fn file_with_a_name__is_no_segment() {
        let scratch = ScratchFolder::new("segment-named");
        let path = scratch.0.join("file");
        let file = File::create_new(&path).unwrap();
        assert!(!is_nameless(&file).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(is_nameless(&file).unwrap());
        assert!(!is_nameless(&File::open("/dev/null").unwrap()).unwrap());
    }

    #[test]
    fn folder__that_is_missing_is_an_error() {
        assert!(open_unlinked(Path::new("/proc/none/folder")).is_err());
    }

    #[test]
    fn memory_file__is_limited_by_memory_alone() {
        let (file, layout) = create_file(SegmentLayout::new(1).unwrap()).unwrap();
        assert_eq!(file_system_room(std::os::fd::AsFd::as_fd(&file)), None);
        assert_eq!(layout, SegmentLayout::new(1).unwrap());
    }

    #[test]
    fn length__that_is_refused_states_amount_and_limit() {
        let (file, layout) = create_file(SegmentLayout::new(1).unwrap()).unwrap();
        // The sealed file allows no other length.
        let refused = set_length(&file, layout.smaller().unwrap());
        assert!(matches!(refused, Err(SegmentError::System { .. })));
        let text = too_long_for(layout, &io::Error::from_raw_os_error(libc::EFBIG)).to_string();
        assert!(text.contains("1024 GiB"), "{text}");
    }
}
