//! The program's source, and its compilation: once for each compiler wrapper.

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

/// Name and text of each file.
pub(super) const SOURCES: &[(&str, &str)] = sources!(
    "bench.h" "engine.h" "share.h"
    "main.c" "options.c" "events.c" "engine.c" "cases.c" "clock.c" "histogram.c" "buffers.c"
        "share.c" "floor.c" "wire.c" "connect.c" "rest.c"
    "pairwise.c" "rma.c" "collectives.c" "hpcc.c" "scaling.c" "resources.c" "deliver.c" "first.c"
        "files.c"
);

const FLAGS: [&str; 2] = ["-O2", "-std=gnu11"];

/// What a compiler is given to compile the program, on a machine that is busy with other things too.
const COMPILING: Duration = Duration::from_secs(300);

/// What a wrapper is given to say what it would do.
const ANSWERING: Duration = Duration::from_secs(60);

fn run_wrapper(mpicc: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(mpicc);
    finish(command.args(arguments), ANSWERING)
}

/// Runs a compiler to its end; one that takes longer is ended.
fn finish(command: &mut Command, limit: Duration) -> Result<Output> {
    let name = PathBuf::from(command.get_program());
    let failed = || format!("cannot run {}", name.display());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(failed)?;
    // What it leaves running may hold its pipes open: nobody waits for these then.
    let (out, err) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let Some(status) = await_end(&mut child, limit).with_context(failed)? else {
        let killed = child.kill().and_then(|()| child.wait());
        killed.with_context(failed)?;
        let (name, s) = (name.display(), limit.as_secs_f64());
        bail!("{name} did not come to an end in {s} s and was ended");
    };
    let said = |from: Receiver<Vec<u8>>| from.recv_timeout(LINGER).unwrap_or_default();
    Ok(Output { status, stdout: said(out), stderr: said(err) })
}

/// After a compiler has ended, how long its output is waited for.
const LINGER: Duration = Duration::from_secs(2);

fn read_all(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (to, from) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        // What came before an error is as good as all.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        let _ = to.send(text);
    });
    from
}

/// What identifies a compiled program: the source, the wrapper, and what the wrapper would do.
fn identify(mpicc: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS).hash(&mut hasher);
    mpicc.hash(&mut hasher);
    // Each family knows one of the two; what an unknown option prints is as good as any.
    for option in ["-show", "--version"] {
        run_wrapper(mpicc, &[option])?.stdout.hash(&mut hasher);
    }
    let changed = fs::metadata(mpicc).ok().map(|m| (m.mtime(), m.size()));
    changed.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Where compiled programs are kept: the user's cache, or a folder of the user's own among the
/// temporary files.
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

/// The user as whom this process acts.
fn user_id() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid())
}

/// Makes a folder that only the user can write to; refuses one of another user.
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    let own = found.is_dir() && found.uid() == user_id();
    if own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = "it belongs to somebody else, or others may write to it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// The path of the compiled program.
pub(super) fn compile(mpicc: &Path) -> Result<PathBuf> {
    let identity = identify(mpicc)?;
    let cache = find_cache();
    let failed = || no_place(&cache);
    make_folder(&cache).with_context(failed)?;
    let program = cache.join(format!("bench-{identity:016x}"));
    if let Ok(found) = fs::File::open(&program) {
        // So that it is not taken for one that nobody starts any more.
        let _ = found.set_modified(SystemTime::now());
        return Ok(program);
    }
    announce(mpicc);
    remove_stale(&cache, SystemTime::now());
    // Compiled aside, so that nobody ever starts half a program.
    let folder = cache.join(format!("bench-{identity:016x}.{}", std::process::id()));
    make_folder(&folder).with_context(failed)?;
    let made = compile_in(mpicc, &folder, &program);
    let _ = fs::remove_dir_all(&folder);
    made.map(|()| program)
}

/// Says, once, why nothing happens for some seconds.
fn announce(mpicc: &Path) {
    let mpicc = mpicc.display();
    tell!("fastpath: compiling the benchmark program with {mpicc}, once");
}

/// How long an unused program is kept.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Age from which a folder of a compilation counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes what earlier versions of the tool, and compilations that were killed, have left.
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
        // What cannot be removed harms nobody.
        let _ = match found.is_dir() {
            true if age > ABANDONED => fs::remove_dir_all(entry.path()),
            false if age > UNUSED => fs::remove_file(entry.path()),
            _ => Ok(()),
        };
    }
}

/// The beginning of what a compiler said; it may say the same of each file.
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
    format!("no place for the benchmark program in {}", folder.display())
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
            "" => format!("it said nothing; {}", output.status),
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

    /// Name and `of` of each test in the program's tables, which give them in this order.
    fn read_program() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("program");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            // What the tables abbreviate.
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
    fn cache__loses_what_nobody_uses_and_nothing_else() {
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
        assert!(said.contains("/bin/sh did not come to an end in 0.1 s"), "{said}");
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
        assert!(e.to_string().contains("said nothing"), "{e}");
    }
}
