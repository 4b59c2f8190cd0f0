//! Detects ranks that ran as singletons: the program loaded another MPI library, which made each of them rank 0 of 1.
//!
//! The names of a program's libraries are in its file. An interpreter such as Python opens libraries while it runs, and
//! an ended process shows no library. So [`SingletonWatch`] reads which libraries the processes have mapped, at first
//! often, later rarely, until a rank joins the job.

use crate::ranks::{RankProcess, Ranks, read_children};
use fastpath_job::inspect::ProcessEnd;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of bytes searched at the start of a program. They hold the names of its libraries.
const HEAD: u64 = 4 << 20;
/// Number of bytes searched in a library: more than any has.
const LIBRARY: u64 = 256 << 20;
/// Text in each build of this library, and in no other MPI library.
const OWN_TEXT: &[u8] = b"FASTPATH_DISABLE";
/// Names of MPI libraries, without version.
const NAMES: [&str; 4] = ["libmpi_abi.so", "libmpi.so", "libmpich.so", "libmpi_cxx.so"];
/// Time from the start of the ranks to the first check.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest time between two checks. Each pause is an eighth longer than the preceding one, so a library is found if it
/// is mapped for an eighth of the process's time.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time after which a running job is reported, if no rank has joined it since another MPI library was found.
const REPORT_AFTER: Duration = Duration::from_secs(5);
/// Generations of processes searched below a rank: wrappers and shells.
const GENERATIONS: usize = 5;

/// An MPI library that is not of Fastpath, mapped by a process of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignLibrary {
    path: PathBuf,
    /// Whether the process is a Python interpreter.
    is_python: bool,
}

/// Repeated search for another MPI library in the processes of ranks that have not joined the job.
#[derive(Debug)]
pub struct SingletonWatch {
    /// Time of the next check; None if there is none.
    pub check_at: Option<Instant>,
    pause: Duration,
    found: Option<ForeignLibrary>,
    is_reported: bool,
}

impl SingletonWatch {
    pub fn new() -> SingletonWatch {
        let check_at = Some(Instant::now() + FIRST_PAUSE);
        SingletonWatch { check_at, pause: FIRST_PAUSE, found: None, is_reported: false }
    }

    /// Searches the first and the last running rank, and plans the next check. Returns a report if a job of several
    /// ranks has run for a while since another MPI library was found.
    pub fn check(
        &mut self, ranks: &Ranks, has_joined: impl Fn(usize) -> bool + Copy,
    ) -> Option<String> {
        self.check_at = None;
        let list = ranks.list();
        if list.len() < 2 || (0..list.len()).any(has_joined) {
            return None;
        }
        if self.found.is_some() {
            return self.describe(list, has_joined);
        }
        let mut running = list.iter().filter(|rank| rank.pid != 0 && rank.end.is_none());
        let searched = [running.next(), running.next_back()];
        self.found = searched.into_iter().flatten().find_map(|rank| find_library(rank.pid));
        if self.found.is_none() {
            self.pause = (self.pause + self.pause / 8).min(PAUSE_MAX);
        }
        let pause = if self.found.is_some() { REPORT_AFTER } else { self.pause };
        self.check_at = Some(Instant::now() + pause);
        None
    }

    /// Returns a warning, once, if a job has two or more ranks, each still runs or exited with code 0, and none joined
    /// the job. Returns None unless a process has loaded an MPI library other than the one beside this launcher, or the
    /// file of its program names one.
    pub fn describe(
        &mut self, ranks: &[RankProcess], has_joined: impl Fn(usize) -> bool,
    ) -> Option<String> {
        let is_well = |rank: &RankProcess| matches!(rank.end, None | Some(ProcessEnd::Exit(0)));
        let is_alone = ranks.len() >= 2 && ranks.iter().all(is_well);
        if self.is_reported || !is_alone || (0..ranks.len()).any(has_joined) {
            return None;
        }
        let prefix = own_prefix()?;
        let program = &ranks[0].program;
        let cause = match &self.found {
            Some(library) => describe_library(library, program, &prefix),
            None => describe_program(program, &prefix)?,
        };
        self.is_reported = true;
        Some(format!(
            "mpiexec: no rank has called MPI_Init of Fastpath; each rank may have run alone, as \
             rank 0 of 1. {cause}\n"
        ))
    }
}

/// Describes a program whose file names another MPI library; None if it names none.
fn describe_program(program: &str, prefix: &Path) -> Option<String> {
    let head = read_start(Path::new(program), HEAD)?;
    let name = NAMES.into_iter().find(|name| holds(&head, name.as_bytes()))?;
    let own = prefix.join("lib");
    if holds(&head, own.as_os_str().as_encoded_bytes()) {
        return None;
    }
    Some(format!(
        "{program} needs {name}: ldd prints which library the program loads. If that is \
         libmpi_abi.so of another MPI, put {} first in LD_LIBRARY_PATH",
        own.display()
    ))
}

/// Describes the library that a program has loaded, and the remedy.
fn describe_library(library: &ForeignLibrary, program: &str, prefix: &Path) -> String {
    let path = library.path.display();
    let own = prefix.display();
    let is_standard = is_named(&library.path, "libmpi_abi.so");
    let remedy = match (library.is_python, is_standard) {
        (true, true) => format!("set MPI4PY_LIBMPI={own}/lib/libmpi_abi.so.1"),
        (false, true) => format!("put {own}/lib first in LD_LIBRARY_PATH"),
        (true, false) => {
            let python = if is_python(Path::new(program)) { program } else { "python" };
            format!(
                "build mpi4py for Fastpath: MPICC={own}/bin/mpicc {python} -m pip install \
                 --force-reinstall --no-cache-dir --no-binary mpi4py mpi4py"
            )
        }
        (false, false) => format!("compile it with {own}/bin/mpicc"),
    };
    let launcher = library.path.parent().and_then(Path::parent).map(|at| at.join("bin/mpiexec"));
    let other = match launcher.filter(|path| path.is_file()) {
        // The packages of both MPIs are in one prefix, and this launcher has replaced the other.
        Some(path) if path.starts_with(prefix) => "install that MPI in another environment".into(),
        Some(path) => format!("start it with {}", path.display()),
        None => "start it with mpiexec of that MPI".into(),
    };
    format!("{program} has loaded {path} of another MPI: {remedy}, or {other}")
}

/// Returns the first MPI library of another MPI that a process or one of its descendants has mapped.
fn find_library(pid: libc::pid_t) -> Option<ForeignLibrary> {
    let mut processes = vec![pid];
    for _ in 0..GENERATIONS {
        let found = processes.iter().find_map(|pid| {
            let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
            find_mapped(&maps, is_own)
        });
        if found.is_some() || processes.is_empty() {
            return found;
        }
        let children =
            |pid: libc::pid_t| read_children(&format!("/proc/{pid}/task/{pid}/children"));
        processes = processes.into_iter().flat_map(children).collect();
    }
    None
}

/// Returns the MPI library in the text of a file `/proc/PID/maps`; None if a mapped one `is_own`.
fn find_mapped(maps: &[u8], is_own: impl Fn(&Path) -> bool) -> Option<ForeignLibrary> {
    let files = || maps.split(|b| *b == b'\n').filter_map(mapped_file);
    let mut libraries = files().filter(|path| NAMES.iter().any(|name| is_named(path, name)));
    let path = libraries.next()?.to_owned();
    if is_own(&path) || libraries.any(|other| other != path && is_own(other)) {
        return None;
    }
    Some(ForeignLibrary { path, is_python: files().any(is_python) })
}

/// Returns the file of a line of `/proc/PID/maps`: the sixth word and what follows.
fn mapped_file(line: &[u8]) -> Option<&Path> {
    let start = line.iter().position(|b| *b == b'/')?;
    Some(Path::new(OsStr::from_bytes(&line[start..])))
}

/// Whether a path is a library of that name, in any version.
fn is_named(path: &Path, name: &str) -> bool {
    let file = path.file_name().unwrap_or_default().as_bytes();
    file.strip_prefix(name.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'.', ..]))
}

/// Whether a path is a Python interpreter or its library.
fn is_python(path: &Path) -> bool {
    let file = path.file_name().unwrap_or_default().as_bytes();
    file.starts_with(b"python") || file.starts_with(b"libpython")
}

/// Whether a library is a build of Fastpath: usually the one beside this launcher.
fn is_own(path: &Path) -> bool {
    let beside = || own_prefix()?.join("lib/libmpi_abi.so.1").canonicalize().ok();
    if !is_named(path, "libmpi_abi.so") {
        return false;
    }
    beside().is_some_and(|own| own == path)
        || read_start(path, LIBRARY).is_some_and(|bytes| holds(&bytes, OWN_TEXT))
}

/// Returns the folder above the one of this launcher.
fn own_prefix() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.to_owned())
}

fn read_start(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    let file = File::open(path).ok()?;
    file.take(limit).read_to_end(&mut start).ok()?;
    Some(start)
}

fn holds(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn holds__a_name_wherever_it_lies() {
        assert!(holds(b"libmpi.so.12", b"libmpi.so") && holds(b"\0libmpi.so", b"libmpi.so"));
        assert!(!holds(b"libmpi.s", b"libmpi.so") && !holds(b"", b"libmpi.so"));
    }

    #[test]
    fn maps__name_the_library_of_another_mpi() {
        let maps = b"7f00-7f01 r-xp 00000000 08:01 99   /usr/lib/libc.so.6\n\
            7f01-7f02 rw-p 00000000 00:00 0 \n\
            7f02-7f03 r-xp 00000000 08:01 98   /a b/lib/libmpi.so.12.5.0\n\
            7f03-7f04 r-xp 00000000 08:01 97   /a b/bin/python3.11\n\
            7f04-7f05 r-xp 00000000 08:01 96   /opt/own/lib/libmpi_abi.so.1\n";
        let library =
            ForeignLibrary { path: PathBuf::from("/a b/lib/libmpi.so.12.5.0"), is_python: true };
        assert_eq!(find_mapped(maps, |_| false), Some(library));
        assert_eq!(find_mapped(maps, |path| path.starts_with("/opt/own")), None);
        assert_eq!(find_mapped(b"7f00-7f01 r-xp 0 08:01 9 /lib/libmpiwrap.so\n", |_| false), None);
    }

    #[test]
    fn remedy__names_the_launcher_of_the_other_mpi_unless_this_one_has_replaced_it() {
        let scratch = std::env::temp_dir().join(format!("singletons-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("bin")).unwrap();
        std::fs::write(scratch.join("bin/mpiexec"), "").unwrap();
        let path = scratch.join("lib/libmpi.so.12");
        let library = ForeignLibrary { path, is_python: true };
        let other = describe_library(&library, "python", Path::new("/own"));
        let launcher = format!("or start it with {}/bin/mpiexec", scratch.display());
        assert!(other.ends_with(&launcher), "{other}");
        let replaced = describe_library(&library, "python", &scratch);
        assert!(replaced.ends_with("or install that MPI in another environment"), "{replaced}");
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn remedy__depends_on_library_and_python() {
        let told = |path: &str, is_python| {
            let library = ForeignLibrary { path: PathBuf::from(path), is_python };
            describe_library(&library, "/v/bin/python3", Path::new("/own"))
        };
        assert!(
            told("/o/libmpi.so.12", true).contains("MPICC=/own/bin/mpicc /v/bin/python3 -m pip")
        );
        assert!(told("/o/libmpi.so.12", false).contains("compile it with /own/bin/mpicc"));
        assert!(
            told("/o/libmpi_abi.so.1", false).contains("put /own/lib first in LD_LIBRARY_PATH")
        );
        assert!(
            told("/o/libmpi_abi.so.1", true).contains("MPI4PY_LIBMPI=/own/lib/libmpi_abi.so.1")
        );
        assert!(told("/o/libmpi.so.12", true).ends_with("or start it with mpiexec of that MPI"));
    }
}
