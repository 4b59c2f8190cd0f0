//! Commands that start the processes of another launcher as one job.

use super::environment::{find_place, read_variable};
use super::{Claim, LaunchPlace, Launcher};
use crate::identity::JOB_VARIABLE;
use fastpath_base::code::own_file;
use fastpath_base::config::{Key, VARIABLES};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the remedy if another launcher started several processes: a command that starts them as one job on a node.
pub fn describe_remedy(claim: &Claim) -> String {
    let mpiexec = find_mpiexec()
        .map_or_else(|| "Fastpath's mpiexec".to_owned(), |path| quote(&path.to_string_lossy()));
    let ranks = claim.size.map_or("N".into(), |size| size.to_string());
    format!(
        "{}{mpiexec} -n {ranks} {} (or set {}=1 to run each process as its own job)",
        prefix(claim),
        own_command(),
        VARIABLES[Key::Singleton as usize].name
    )
}

/// Returns a command that starts `ranks` processes of this program as one job.
pub fn describe_start(ranks: usize) -> String {
    let mpiexec =
        find_mpiexec().map_or_else(|| "mpiexec".to_owned(), |path| quote(&path.to_string_lossy()));
    format!("{mpiexec} -n {ranks} {}", own_command())
}

/// Returns the message of `mpiexec` if another launcher has started several copies of it. `None` if that is not
/// certain, or another copy prints the message.
pub fn describe_copies() -> Option<String> {
    let LaunchPlace::Several(claim) = find_place() else {
        return None;
    };
    if claim.rank.is_some_and(|rank| rank > 0) || claim.size.is_none() {
        return None;
    }
    let switch = VARIABLES[Key::Singleton as usize].name;
    Some(format!(
        "this mpiexec is {claim} ({}={}), and each copy starts its own job. For a single job, run: \
         {}{} (or set {switch}=1 to start several jobs)",
        claim.variable,
        claim.value,
        prefix(&claim),
        own_command(),
    ))
}

/// Returns the command to put before `mpiexec` if the launcher assigns processors: one task on one node, with the
/// processors of all tasks. Empty for other launchers.
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

/// Returns the command line of this process in shell syntax, on one line.
fn own_command() -> String {
    describe_command(&fs::read("/proc/self/cmdline").unwrap_or_default())
}

/// Describes a command line whose words each end in a zero. The result is only the program if the words are long or
/// have several lines (`python -c`).
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

/// Finds our `mpiexec`: beside the library, in a `bin` folder beside one of the library's folders, or in `PATH`.
pub fn find_mpiexec() -> Option<PathBuf> {
    let library = own_file().and_then(|file| fs::canonicalize(file).ok());
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

/// Returns whether a file is an `mpiexec` of Fastpath, which contains the name of the variable that it sets. The check
/// is needed because other MPIs have an `mpiexec` too, and our library may have replaced theirs.
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
        assert!(is_ours(&std::env::current_exe().unwrap()));
    }
}
