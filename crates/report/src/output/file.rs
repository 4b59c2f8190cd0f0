//! A file that holds a result in the end or is as it was: written beside its place and moved there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use fastpath_base::stored::create_beside;

/// Where a result will be written.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    place: OutputPlace,
    _awaited: Awaited,
}

#[derive(Debug)]
enum OutputPlace {
    /// The standard output (`-`).
    Standard,
    /// What is no regular file: a pipe, a device.
    Special(File),
    /// A file, written beside its place first.
    Regular,
}

/// Results that files wait for.
static AWAITED: Mutex<usize> = Mutex::new(0);

/// A file waits for a result: the program continues even if its standard output is closed.
#[derive(Debug)]
pub struct Awaited(());

impl Awaited {
    /// From now on, until it is dropped.
    pub fn begin() -> Awaited {
        change_awaited(|n| n + 1);
        Awaited(())
    }

    /// Whether any file does.
    pub fn any() -> bool {
        change_awaited(|n| n) > 0
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        change_awaited(|n| n.saturating_sub(1));
    }
}

fn change_awaited(change: impl FnOnce(usize) -> usize) -> usize {
    // A number is whole even where a thread ended while it held it.
    let mut count = AWAITED.lock().unwrap_or_else(|e| e.into_inner());
    *count = change(*count);
    *count
}

/// Whether this path means the standard output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

impl Target {
    /// Makes sure that the file can be written, without touching what it holds, and without leaving anything
    /// beside it. `-` is the standard output.
    ///
    /// # Errors
    /// The folder is not there or may not be written.
    pub fn open(path: &Path) -> Result<Target> {
        let failed = || describe_failure(path);
        let special = fs::metadata(path).is_ok_and(|m| !m.is_file());
        let place = if is_standard(path) {
            OutputPlace::Standard
        } else if special {
            let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
            OutputPlace::Special(file)
        } else {
            let (part, _) = create_beside(path).with_context(failed)?;
            // It is made again for the result: one that is killed meanwhile leaves nothing.
            fs::remove_file(&part).with_context(failed)?;
            OutputPlace::Regular
        };
        Ok(Target { path: path.to_owned(), place, _awaited: Awaited::begin() })
    }

    /// Whether it is the standard output.
    pub fn is_standard(&self) -> bool {
        matches!(self.place, OutputPlace::Standard)
    }

    /// Keeps what is known so far, if the place is a file.
    ///
    /// # Errors
    /// No room, or the place cannot be written; the file then is as it was.
    pub fn save(&self, text: &str) -> Result<()> {
        let OutputPlace::Regular = &self.place else {
            return Ok(());
        };
        let failed = || describe_failure(&self.path);
        let (part, file) = create_beside(&self.path).with_context(failed)?;
        let written = write_part(file, text).and_then(|()| fs::rename(&part, &self.path));
        if written.is_err() {
            // Nothing can be done about a file that cannot be removed.
            let _ = fs::remove_file(&part);
        }
        written.with_context(failed)
    }

    /// Writes the result and moves it to its place. A reader of the standard output that has seen enough is
    /// no failure.
    ///
    /// # Errors
    /// No room, or the place cannot be written; the file then is as it was.
    pub fn finish(mut self, text: &str) -> Result<()> {
        match &mut self.place {
            OutputPlace::Standard => super::print(text),
            OutputPlace::Special(file) => {
                let written = file.write_all(text.as_bytes());
                written.with_context(|| describe_failure(&self.path))
            }
            OutputPlace::Regular => self.save(text),
        }
    }
}

fn describe_failure(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn write_part(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    // A full disk may say so only here.
    file.sync_all()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn make_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fastpath-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn target__that_is_not_finished_leaves_the_old_result() {
        let folder = make_folder("target");
        let path = folder.join("result.json");
        fs::write(&path, "old").unwrap();
        let target = Target::open(&path).unwrap();
        let entries = fs::read_dir(&folder).unwrap().count();
        assert_eq!(entries, 1, "one that is killed leaves nothing");
        drop(target);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        Target::open(&path).unwrap().finish("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no .part is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn target__on_a_full_device_says_so_and_names_it() {
        let target = Target::open(Path::new("/dev/full")).unwrap();
        let error = format!("{:#}", target.finish("a result").unwrap_err());
        assert!(error.contains("/dev/full"), "{error}");
        assert!(error.contains("No space left"), "{error}");
    }
}
