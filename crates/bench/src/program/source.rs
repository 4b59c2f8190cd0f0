//! Source of the program, and its compilation: once for each compiler wrapper.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use fastpath_base::tell;

use super::job::await_end;

macro_rules! sources {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../program/", $name)))),*]
    };
}

pub(super) const SOURCES: &[(&str, &str)] = sources!(
    "bench.h" "engine.h" "share.h"
    "main.c" "options.c" "events.c" "engine.c" "cases.c" "clock.c" "histogram.c" "buffers.c"
        "share.c" "floor.c" "wire.c" "connect.c" "rest.c"
    "pairwise.c" "rma.c" "collectives.c" "hpcc.c" "scaling.c" "resources.c" "deliver.c" "first.c"
        "files.c"
);

const FLAGS: [&str; 2] = ["-O2", "-std=gnu11"];

/// Time limit of a compilation, which may run on a busy machine.
const COMPILING: Duration = Duration::from_secs(300);

/// Time limit of a query to a wrapper.
const ANSWERING: Duration = Duration::from_secs(60);

fn run_wrapper(mpicc: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(mpicc);
    finish(command.args(arguments), ANSWERING)
}

/// Runs a compiler, and ends it at the time limit.
fn finish(command: &mut Command, limit: Duration) -> Result<Output> {
    let name = PathBuf::from(command.get_program());
    let failed = || format!("cannot run {}", name.display());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(failed)?;
    // A process that the compiler leaves running may hold its pipes open, so their end is not awaited.
    let (out, err) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let Some(status) = await_end(&mut child, limit).with_context(failed)? else {
        let killed = child.kill().and_then(|()| child.wait());
        killed.with_context(failed)?;
        let (name, s) = (name.display(), limit.as_secs_f64());
        bail!("{name} did not finish within {s} s, so fastpath ended it");
    };
    let said = |from: Receiver<Vec<u8>>| from.recv_timeout(LINGER).unwrap_or_default();
    Ok(Output { status, stdout: said(out), stderr: said(err) })
}

/// Time to wait for a compiler's output after the compiler has ended.
const LINGER: Duration = Duration::from_secs(2);

fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (to, from) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        // If reading fails, the text read so far is used.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        let _ = to.send(text);
    });
    from
}

/// Hash that identifies a compiled program: the source, the wrapper, and the wrapper's commands.
fn identify(mpicc: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS).hash(&mut hasher);
    mpicc.hash(&mut hasher);
    // Each family of wrappers has one of the two options. The error message about the other option also identifies the
    // wrapper.
    for option in ["-show", "--version"] {
        run_wrapper(mpicc, &[option])?.stdout.hash(&mut hasher);
    }
    let changed = fs::metadata(mpicc).ok().map(|m| (m.mtime(), m.size()));
    changed.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Folder of compiled programs: the user's cache, or a folder of the user among the temporary files.
fn find_cache() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let home = || set("HOME").map(|h| PathBuf::from(h).join(".cache"));
    if let Some(base) = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home) {
        let folder = base.join("fastpath");
        if make_folder(&folder).is_ok() {
            return folder;
        }
    }
    std::env::temp_dir().join(format!("fastpath-{}", user_id()))
}

fn user_id() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid())
}

/// Creates a folder that only the user can write to; rejects one of another user.
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == user_id();
    if own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = "the folder belongs to another user, or other users may write to it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Compiles the program unless it exists, and returns its path.
pub(super) fn compile(mpicc: &Path) -> Result<PathBuf> {
    let identity = identify(mpicc)?;
    let cache = find_cache();
    let failed = || no_place(&cache);
    make_folder(&cache).with_context(failed)?;
    let program = cache.join(format!("bench-{identity:016x}"));
    if let Ok(found) = fs::File::open(&program) {
        // Marks the program as recently used.
        let _ = found.set_modified(SystemTime::now());
        return Ok(program);
    }
    announce(mpicc);
    remove_stale(&cache, SystemTime::now());
    // Compiled in a separate folder, so that no other process starts an incomplete program.
    let folder = cache.join(format!("bench-{identity:016x}.{}", std::process::id()));
    make_folder(&folder).with_context(failed)?;
    let made = compile_in(mpicc, &folder, &program);
    let _ = fs::remove_dir_all(&folder);
    made.map(|()| program)
}

/// Prints, once, the reason for a delay of some seconds.
fn announce(mpicc: &Path) {
    let mpicc = mpicc.display();
    tell!("fastpath: compiling the benchmark program with {mpicc} (only the first time)");
}

/// Time for which an unused program is kept.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Age from which a folder of a compilation counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes leftovers of earlier versions of the tool, and of killed compilations.
fn remove_stale(cache: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(cache) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with("bench-");
        let Some(found) = entry.metadata().ok().filter(|_| ours) else {
            continue;
        };
        let changed = found.modified().unwrap_or(now);
        let age = now.duration_since(changed).unwrap_or_default();
        let _ = match found.is_dir() {
            true if age > ABANDONED => fs::remove_dir_all(entry.path()),
            false if age > UNUSED => fs::remove_file(entry.path()),
            _ => Ok(()),
        };
    }
}

/// Shortens a compiler's output, which may repeat a message for each file.
fn shorten(text: &str) -> String {
    const KEPT: usize = 12;
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = lines[..lines.len().min(KEPT)].join("\n");
    if lines.len() > KEPT {
        kept += &format!("\n({} further lines)", lines.len() - KEPT);
    }
    kept
}

fn no_place(folder: &Path) -> String {
    format!("cannot store the benchmark program in {}", folder.display())
}

fn compile_in(mpicc: &Path, folder: &Path, program: &Path) -> Result<()> {
    let failed = || no_place(folder);
    let aside = folder.join("bench");
    let mut command = Command::new(mpicc);
    command.args(FLAGS).arg("-o").arg(&aside);
    for (name, text) in SOURCES {
        let path = folder.join(name);
        fs::write(&path, text).with_context(failed)?;
        if name.ends_with(".c") {
            command.arg(path);
        }
    }
    let output = finish(command.arg("-lm"), COMPILING)?;
    if !output.status.success() {
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        said += &String::from_utf8_lossy(&output.stdout);
        let said = match said.trim_end() {
            "" => format!("the compiler printed no message and ended with {}", output.status),
            text => shorten(text),
        };
        bail!("{} cannot compile the benchmark program:\n{said}", mpicc.display());
    }
    fs::rename(aside, program).with_context(failed)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use fastpath_report::catalogue;

    /// Name and `of` of each test in the program's tables, in this order.
    fn read_program() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("program");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            // Expands an abbreviation of the tables.
            let text = text.replace("OF_ALL", ".of = \"call\"");
            for part in text.split("{.name = \"").skip(1) {
                let end = part.find("},\n").unwrap();
                let field = |name: &str| {
                    let at = part[..end].find(name).unwrap() + name.len();
                    part[at..].split('"').next().unwrap().to_owned()
                };
                let name = part.split('"').next().unwrap().to_owned();
                found.push((name, field(".of = \"")));
            }
        }
        found
    }

    #[test]
    fn tests_of_the_program__are_the_tests_of_the_table() {
        let program = read_program();
        assert!(program.len() > 5);
        let known: BTreeSet<_> = program.iter().map(|p| p.0.as_str()).collect();
        for test in catalogue::list() {
            assert!(known.contains(test.name), "{} is not in C", test.name);
        }
        for (name, of) in &program {
            let test =
                catalogue::find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
            let said = serde_json::to_string(&test.of).unwrap();
            assert_eq!(said.trim_matches('"'), of, "{name}");
        }
    }

    #[test]
    fn sources__are_all_that_lie_in_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("program");
        let mut there: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".c") || name.ends_with(".h"))
            .collect();
        there.sort();
        let mut known: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(there, known);
    }

    #[test]
    fn compile__with_a_wrapper_that_is_not_there_names_it() {
        let e = compile(Path::new("/proc/none/mpicc")).unwrap_err();
        assert!(e.to_string().contains("/proc/none/mpicc"), "{e}");
    }

    #[test]
    fn cache__loses_only_unused_entries() {
        let name = format!("fastpath-stale-{}", std::process::id());
        let cache = std::env::temp_dir().join(name);
        fs::create_dir_all(cache.join("bench-1.99")).unwrap();
        for name in ["bench-1", "tuning.json"] {
            fs::write(cache.join(name), "").unwrap();
        }
        let names = || {
            let entries = fs::read_dir(&cache).unwrap();
            let mut names: Vec<String> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let now = SystemTime::now();
        remove_stale(&cache, now);
        assert_eq!(names(), ["bench-1", "bench-1.99", "tuning.json"]);
        remove_stale(&cache, now + 2 * ABANDONED);
        assert_eq!(names(), ["bench-1", "tuning.json"]);
        remove_stale(&cache, now + 2 * UNUSED);
        assert_eq!(names(), ["tuning.json"]);
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn long_messages__are_cut_and_say_so() {
        let long = "error\n".repeat(100);
        assert!(shorten(&long).ends_with("(88 further lines)"));
        assert_eq!(shorten("one\ntwo"), "one\ntwo");
    }

    #[test]
    fn compiler__that_hangs_is_ended_and_named() {
        let mut command = Command::new("/bin/sh");
        let hung = finish(command.args(["-c", "exec sleep 1000"]), Duration::from_millis(100));
        let said = hung.unwrap_err().to_string();
        assert!(said.contains("/bin/sh did not finish within 0.1 s"), "{said}");
    }

    #[test]
    fn compiler__whose_children_stay_is_not_waited_for() {
        let mut command = Command::new("/bin/sh");
        let script = "sleep 5 & exit 3";
        let output = finish(command.args(["-c", script]), Duration::from_secs(60)).unwrap();
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn compile__that_fails_shows_what_the_compiler_said() {
        let e = compile(Path::new("/bin/false")).unwrap_err();
        assert!(e.to_string().contains("printed no message"), "{e}");
    }
}
