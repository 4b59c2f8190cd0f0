//! Atomic output files: a result is written to a temporary file and then renamed, so that the file is complete or
//! unchanged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use fastpath_base::stored::create_beside;

/// Target of a result.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    place: OutputPlace,
    _awaited: PendingResult,
}

#[derive(Debug)]
enum OutputPlace {
    /// Standard output (`-`).
    Standard,
    /// Not a regular file: a pipe, a device.
    Special(File),
    /// A regular file, written to a temporary file first.
    Regular,
}

/// Number of results that are still to be written to files.
static AWAITED: Mutex<usize> = Mutex::new(0);

/// A result still to be written to a file. While one exists, a closed standard output does not end the program.
#[derive(Debug)]
pub struct PendingResult(());

impl PendingResult {
    /// Registers a result that is still to be written; dropping the value unregisters it.
    pub fn begin() -> PendingResult {
        change_awaited(|n| n + 1);
        PendingResult(())
    }

    /// Returns whether any result is still to be written to a file.
    pub fn any() -> bool {
        change_awaited(|n| n) > 0
    }
}

impl Drop for PendingResult {
    fn drop(&mut self) {
        change_awaited(|n| n.saturating_sub(1));
    }
}

fn change_awaited(change: impl FnOnce(usize) -> usize) -> usize {
    // A poisoned lock is harmless: the number is always valid.
    let mut count = AWAITED.lock().unwrap_or_else(|e| e.into_inner());
    *count = change(*count);
    *count
}

/// Whether the path means standard output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

impl OutputFile {
    /// Checks that the file can be written, without changing it or leaving a temporary file. `-` is standard output.
    ///
    /// # Errors
    /// The folder is missing or not writable.
    pub fn open(path: &Path) -> Result<OutputFile> {
        let failed = || describe_failure(path);
        let special = fs::metadata(path).is_ok_and(|m| !m.is_file());
        let place = if is_standard(path) {
            OutputPlace::Standard
        } else if special {
            let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
            OutputPlace::Special(file)
        } else {
            let (part, _) = create_beside(path).with_context(failed)?;
            // The file is created again for the result, so that a killed program leaves no file.
            fs::remove_file(&part).with_context(failed)?;
            OutputPlace::Regular
        };
        Ok(OutputFile { path: path.to_owned(), place, _awaited: PendingResult::begin() })
    }

    /// Whether the target is standard output.
    pub fn is_standard(&self) -> bool {
        matches!(self.place, OutputPlace::Standard)
    }

    /// Saves the results so far, if the target is a regular file.
    ///
    /// # Errors
    /// The disk is full, or the target cannot be written; the file is then unchanged.
    pub fn save(&self, text: &str) -> Result<()> {
        let OutputPlace::Regular = &self.place else {
            return Ok(());
        };
        let failed = || describe_failure(&self.path);
        let (part, file) = create_beside(&self.path).with_context(failed)?;
        let written = write_part(file, text).and_then(|()| fs::rename(&part, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.with_context(failed)
    }

    /// Writes the result and moves it to the target. A reader that closes standard output early is not an error.
    ///
    /// # Errors
    /// The disk is full, or the target cannot be written; the file is then unchanged.
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
    // Some file systems report a full disk only when the data is synchronized.
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
        let target = OutputFile::open(&path).unwrap();
        let entries = fs::read_dir(&folder).unwrap().count();
        assert_eq!(entries, 1, "one that is killed leaves nothing");
        drop(target);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        OutputFile::open(&path).unwrap().finish("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no .part is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn target__on_a_full_device_says_so_and_names_it() {
        let target = OutputFile::open(Path::new("/dev/full")).unwrap();
        let error = format!("{:#}", target.finish("a result").unwrap_err());
        assert!(error.contains("/dev/full"), "{error}");
        assert!(error.contains("No space left"), "{error}");
    }
}
