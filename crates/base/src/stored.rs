//! Files of measured constants of a machine: names, folders, reading and writing.

use crate::config::{Config, Key};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file of tuning constants, in bytes.
const LONGEST: u64 = 16 * 1024;

/// Largest file with a line for each processor of a host, in bytes.
const LONGEST_BY_PROCESSOR: u64 = 4 << 20;

/// Machine on which constants were measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Returns this process's machine.
    pub fn current() -> Machine {
        let cpuinfo = read_begin(Path::new("/proc/cpuinfo"), 4096).unwrap_or_default();
        let kernel = read_begin(Path::new("/proc/sys/kernel/osrelease"), 256).unwrap_or_default();
        Machine { processor: find_processor(&cpuinfo), kernel: one_line(&kernel) }
    }

    fn file_name(&self, subject: &str) -> String {
        safe_name(&format!("{subject}-{}-{}", self.processor, self.kernel))
    }
}

/// Replaces every character that is not a letter, a digit or a safe sign.
pub fn safe_name(whole: &str) -> String {
    let safe = |c: char| match c {
        c if c.is_ascii_alphanumeric() || ".-_".contains(c) => c,
        _ => '-',
    };
    let mut name: String = whole.chars().take(200).map(safe).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    name
}

/// Returns the name in the text of /proc/cpuinfo: `model name` on most processors, several numbers on ARM.
fn find_processor(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| one_line(value))
    };
    let numbers = || {
        let names = ["CPU implementer", "CPU architecture", "CPU variant", "CPU part"];
        let found: Vec<String> = names.into_iter().filter_map(value).collect();
        (!found.is_empty()).then(|| found.join(" "))
    };
    let name = value("model name").or_else(numbers);
    name.unwrap_or_else(|| "unknown".to_owned())
}

fn one_line(text: &str) -> String {
    let first = text.trim().lines().next().unwrap_or("").trim();
    let name: String = first.chars().filter(|c| !c.is_control()).take(100).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

fn read_begin(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Source of the constants, as selected by `FASTPATH_TUNING`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TuningSource {
    /// No constants are read or measured.
    Off,
    /// A file named by the user.
    Named(PathBuf),
    /// The machine's file in this folder; it may be missing.
    Cache(PathBuf),
    /// There is no cache directory, so no constants are read.
    Homeless,
}

impl TuningSource {
    /// Returns the source that `config` selects.
    pub fn of(config: &Config) -> TuningSource {
        match config.text(Key::Tuning) {
            "none" => TuningSource::Off,
            "auto" | "" => find_cache(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
                .map_or(TuningSource::Homeless, TuningSource::Cache),
            path => TuningSource::Named(path.into()),
        }
    }

    /// Returns the path of the file of line times (`fastpath tune lines`) in the cache directory; `None` if constants
    /// are not read from there.
    pub fn lines_path(&self, machine: &Machine) -> Option<PathBuf> {
        match self {
            TuningSource::Cache(folder) => Some(folder.join(machine.file_name("lines"))),
            _ => None,
        }
    }

    /// Returns the path of the file; `None` without a file.
    pub fn path(&self, machine: &Machine) -> Option<PathBuf> {
        match self {
            TuningSource::Named(path) => Some(path.clone()),
            TuningSource::Cache(folder) => Some(folder.join(machine.file_name("tuning"))),
            TuningSource::Off | TuningSource::Homeless => None,
        }
    }
}

/// Folder of this program's files, by the XDG base directory specification.
fn find_cache(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let folder = xdg.and_then(absolute);
    let folder = folder.or_else(|| Some(home.and_then(absolute)?.join(".cache")));
    folder.map(|folder| folder.join("fastpath"))
}

/// Reads a file. Opens only regular files, because a pipe might never end.
pub fn read_file(path: &Path) -> io::Result<String> {
    read_up_to(path, LONGEST)
}

/// Reads a file that may have a line for each processor of the host. See [`read_file`].
pub fn read_long_file(path: &Path) -> io::Result<String> {
    read_up_to(path, LONGEST_BY_PROCESSOR)
}

fn read_up_to(path: &Path, longest: u64) -> io::Result<String> {
    let other = |why: &str| io::Error::other(why.to_owned());
    if !fs::metadata(path)?.is_file() {
        return Err(other("the path does not lead to a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(other(&format!("the file has more than {longest} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| other("the file is not UTF-8 text"))
}

/// Writes a file and creates its folder. See [`replace_file`].
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    replace_file(path, text)
}

/// Writes a file in a folder that exists. A concurrent reader sees the old file or the new one.
///
/// # Errors
/// The folder is missing or not writable, or the disk is full.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let (fresh, mut file) = create_beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

const NAMES: u32 = 100;

/// Creates the file that is to replace `path`, in the same folder. The file is always new: an existing one, such as a
/// link placed by another user, is left unchanged.
///
/// # Errors
/// The folder is missing or not writable.
pub fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{number}.part", std::process::id()));
        let fresh = PathBuf::from(name);
        match File::create_new(&fresh) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < NAMES => number += 1,
            made => return made.map(|file| (fresh, file)),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn processor__is_found_on_every_kind() {
        let intel =
            "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(find_processor(intel), "Some CPU @ 2 GHz");
        let arm = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n";
        assert_eq!(find_processor(arm), "0x41 8 0xd0c");
        assert_eq!(find_processor(""), "unknown");
    }

    #[test]
    fn write_file__follows_no_link_that_others_have_put_in_its_way() {
        let folder = std::env::temp_dir().join(format!("fastpath-beside-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (path, other) = (folder.join("result"), folder.join("other"));
        fs::write(&other, "precious").unwrap();
        let (name, file) = create_beside(&path).unwrap();
        drop(file);
        fs::remove_file(&name).unwrap();
        std::os::unix::fs::symlink(&other, &name).unwrap();
        write_file(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        fs::remove_file(&name).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left");
        assert!(replace_file(&folder.join("none").join("result"), "new").is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn file_name__is_safe_whatever_the_machine_says() {
        let odd =
            Machine { processor: "../../etc\n/A (R)  B".to_owned(), kernel: "x".repeat(1000) };
        let name = odd.file_name("tuning");
        assert!(name.starts_with("tuning-..-..-etc-A-R-B-xxx"), "{name}");
        assert!(name.len() <= 200 && !name.contains('/'));
    }

    #[test]
    fn cache__follows_the_specification() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            find_cache(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(of(Some("/x"), Some("/h")), Some("/x/fastpath".into()));
        assert_eq!(of(Some("x"), Some("/h")), Some("/h/.cache/fastpath".into()), "not absolute");
        assert_eq!(of(None, Some("/h")), Some("/h/.cache/fastpath".into()));
        assert_eq!((of(None, None), of(None, Some(""))), (None, None));
    }
}
