#![allow(unsafe_code)]
//! What this process can see of the launcher that started it, and the command that would work instead.

use super::detect::{Alone, Claim, LaunchPlace, Launcher, detect};
use super::identity::{JOB_VARIABLE, is_ancestor};
use super::parents::has_rank_above;
use super::traces::peer_of;
use fastpath_base::config::{Key, VARIABLES};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where this process stands ([`detect`]).
pub fn find_place() -> LaunchPlace {
    let peer = read_variable("PMI_FD").and_then(|text| find_peer(text.trim().parse().ok()?));
    let stale = is_task_of_slurm(
        read_variable("SLURM_TASK_PID").as_deref(),
        read_variable("PMIX_NAMESPACE").as_deref(),
    );
    let read = |name: &str| {
        let is_stale = stale && (name.starts_with("PMIX_") || name.starts_with("OMPI_"));
        read_variable(name).filter(|_| !is_stale)
    };
    match detect(&read, peer.as_deref()) {
        // An open `PMI_FD` was made for this process: a rank keeps its own from what it starts.
        LaunchPlace::Several(claim) if peer.is_none() && has_rank_above(&claim) => {
            LaunchPlace::Alone(Alone::OfRank(claim))
        }
        place => place,
    }
}

/// Whether Slurm has started this very process, and the variables of PMIx are of another launcher outside.
fn is_task_of_slurm(task: Option<&str>, namespace: Option<&str>) -> bool {
    let is_task = task.and_then(|pid| pid.trim().parse().ok()) == Some(std::process::id());
    is_task && namespace.is_some_and(|name| !name.starts_with("slurm."))
}

fn read_variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

/// Name of the process at the other end of a socket, if that process is an ancestor of this one, as a launcher is of
/// its ranks. Empty for a socket whose owner the kernel does not tell (TCP, another pid namespace). None for whatever
/// else the descriptor is: a launcher in between has closed it, or it was opened for something else.
fn find_peer(fd: RawFd) -> Option<String> {
    let kind = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
    if !kind.file_type().is_socket() {
        return None;
    }
    match peer_of(fd).and_then(|pid| u32::try_from(pid).ok()) {
        Some(pid) if pid > 0 => is_ancestor(pid, std::process::id()).then(|| name(pid)),
        _ => Some(String::new()),
    }
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// What to do where another launcher has started several processes of this program: a command that starts them as
/// one job on one node.
pub fn describe_remedy(claim: &Claim) -> String {
    let mpiexec = find_mpiexec()
        .map_or_else(|| "Fastpath's mpiexec".to_owned(), |path| quote(&path.to_string_lossy()));
    let ranks = claim.size.map_or("N".into(), |size| size.to_string());
    format!(
        "{}{mpiexec} -n {ranks} {} (or set {}=1 if each process is to be a job of its own)",
        prefix(claim),
        own_command(),
        VARIABLES[Key::Singleton as usize].name
    )
}

/// A command that starts `ranks` processes of this program as one job.
pub fn describe_start(ranks: usize) -> String {
    let mpiexec =
        find_mpiexec().map_or_else(|| "mpiexec".to_owned(), |path| quote(&path.to_string_lossy()));
    format!("{mpiexec} -n {ranks} {}", own_command())
}

/// What `mpiexec` says when another launcher has started several of it. None where that is not known to be so, or
/// another of them says it.
pub fn describe_copies() -> Option<String> {
    let LaunchPlace::Several(claim) = find_place() else {
        return None;
    };
    if claim.rank.is_some_and(|rank| rank > 0) || claim.size.is_none() {
        return None;
    }
    let switch = VARIABLES[Key::Singleton as usize].name;
    Some(format!(
        "this mpiexec is {claim} ({}={}), and each of them starts a job of its own; for a single \
         job: {}{} (or set \
         {switch}=1 if several are meant)",
        claim.variable,
        claim.value,
        prefix(&claim),
        own_command(),
    ))
}

/// Of a launcher that hands out processors too: one task with the processors of those on one node.
fn prefix(claim: &Claim) -> String {
    let (command, nodes) = match claim.launcher {
        Launcher::Slurm => ("srun -N 1 -n 1 -c", "SLURM_STEP_NUM_NODES"),
        Launcher::Flux => ("flux run -n 1 -c", "FLUX_JOB_NNODES"),
        _ => return String::new(),
    };
    let nodes = read_variable(nodes).and_then(|text| text.trim().parse::<u64>().ok());
    let processors = claim.size.map(|size| size.div_ceil(nodes.unwrap_or(1).max(1)));
    format!("{command} {} ", processors.unwrap_or(1))
}

/// This process's command line as a shell reads it, on one line.
fn own_command() -> String {
    describe_command(&fs::read("/proc/self/cmdline").unwrap_or_default())
}

/// Words that each end in a zero. Cut after the program where they are long or have several lines (`python -c`).
fn describe_command(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.strip_suffix('\0').unwrap_or(&line);
    let is_plain = line.len() <= 200 && !line.contains(|c: char| c.is_control() && c != '\0');
    let mut words = line.split('\0').map(quote);
    match words.next() {
        Some(program) if is_plain && !line.is_empty() => {
            words.fold(program, |all, word| all + " " + &word)
        }
        Some(program) if !line.is_empty() => format!("{program} ..."),
        _ => "PROGRAM".into(),
    }
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Our `mpiexec`: beside the library, in the `bin` beside its folder, or in `PATH`.
pub fn find_mpiexec() -> Option<PathBuf> {
    let library = own_file();
    let beside = library.iter().flat_map(|file| file.ancestors().skip(1));
    let near =
        beside.take(3).flat_map(|folder| [folder.join("mpiexec"), folder.join("bin/mpiexec")]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("mpiexec"))
        .collect();
    near.chain(listed).find(|file| is_ours(file))
}

/// The file that this code was loaded from: the library, or a program that has it inside.
fn own_file() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is that of a function; the loader fills in `info` where it finds it.
    let found = unsafe { libc::dladdr(own_file as *const libc::c_void, info.as_mut_ptr()) };
    // SAFETY: all zeros, or what the loader has written, is a valid Dl_info.
    let file = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || file.is_null() {
        return None;
    }
    // SAFETY: a C string of the loader, which lives as long as the library.
    let file = unsafe { CStr::from_ptr(file) };
    fs::canonicalize(file.to_str().ok()?).ok()
}

/// Whether a file is an `mpiexec` of Fastpath: other MPIs have one too, and their library may have been replaced by
/// ours. Ours holds the name of the variable that it sets.
fn is_ours(file: &Path) -> bool {
    const LARGEST: u64 = 64 << 20;
    let usable = |m: fs::Metadata| m.is_file() && m.mode() & 0o111 != 0 && m.len() <= LARGEST;
    if !fs::metadata(file).is_ok_and(usable) {
        return false;
    }
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|f| f.take(LARGEST).read_to_end(&mut bytes));
    let wanted = JOB_VARIABLE.as_bytes();
    read.is_ok() && bytes.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn peer__is_an_ancestor_or_nobody() {
        // Both ends are this process's own: open, but no launcher's.
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(find_peer(socket.as_raw_fd()), None);
        let file = File::open("/dev/null").unwrap();
        assert_eq!(find_peer(file.as_raw_fd()), None);
        assert_eq!(find_peer(1 << 20), None);
        // The kernel does not tell whose a TCP socket is.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(find_peer(listener.as_raw_fd()), Some(String::new()));
    }

    #[test]
    fn task_of_slurm__is_nobody_elses_rank() {
        let own = std::process::id().to_string();
        assert!(is_task_of_slurm(Some(&own), Some("prterun-a-1@1")));
        assert!(!is_task_of_slurm(Some(&own), Some("slurm.pmix.1.0")));
        assert!(!is_task_of_slurm(Some("1"), Some("prterun-a-1@1")));
        assert!(!is_task_of_slurm(Some(&own), None) && !is_task_of_slurm(None, Some("a")));
    }

    #[test]
    fn quote__gives_what_a_shell_reads_back() {
        assert_eq!(quote("./prog-1.x"), "./prog-1.x");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }

    #[test]
    fn command__is_one_line_that_a_shell_reads_back() {
        let line = |words: &[&str]| describe_command((words.join("\0") + "\0").as_bytes());
        assert_eq!(line(&["./prog", "-n", "two words", ""]), "./prog -n 'two words' ''");
        assert_eq!(line(&["python3", "-c", "import mpi\nmpi.run()"]), "python3 ...");
        assert_eq!(line(&["./prog", &"x".repeat(1000)]), "./prog ...");
        assert_eq!(describe_command(b""), "PROGRAM");
    }

    #[test]
    fn own_command__names_the_program() {
        let own = std::env::args().next().unwrap();
        assert!(own_command().starts_with(&quote(&own)));
        assert!(own_file().is_some_and(|file| file.exists()));
    }

    #[test]
    fn mpiexec__of_another_mpi_is_not_ours() {
        assert!(!is_ours(Path::new("/bin/sh")));
        assert!(!is_ours(Path::new("/proc/none/mpiexec")));
        // This program sets the variable too.
        assert!(is_ours(&std::env::current_exe().unwrap()));
    }
}
