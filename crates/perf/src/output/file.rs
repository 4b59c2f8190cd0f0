//! A file that holds a result in the end or is as it was: written beside its place and moved there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::OutputError;

/// Where a result will be written.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: File,
    /// The file beside it that is written first; None for what is no regular file (a pipe, a device).
    part: Option<PathBuf>,
}

impl Target {
    /// Makes sure that the file can be written, without touching what it holds.
    ///
    /// # Errors
    /// The folder is not there or may not be written.
    pub fn open(path: &Path) -> Result<Target, OutputError> {
        let failed = |e: io::Error| OutputError::File(path.to_owned(), e);
        let special = fs::metadata(path).is_ok_and(|m| !m.is_file());
        if special {
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok(Target {
                path: path.to_owned(),
                file,
                part: None,
            });
        }
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        let file = File::create(&part).map_err(failed)?;
        Ok(Target {
            path: path.to_owned(),
            file,
            part: Some(part),
        })
    }

    /// Writes the result and moves it to its place.
    ///
    /// # Errors
    /// No room, or the place cannot be written; the file then is as it was.
    pub fn finish(mut self, text: &str) -> Result<(), OutputError> {
        let done = self.write(text);
        done.map_err(|e| OutputError::File(self.path.clone(), e))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        if let Some(part) = &self.part {
            // A full disk may say so only here.
            self.file.sync_all()?;
            fs::rename(part, &self.path)?;
            self.part = None;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing can be done about a file that cannot be removed.
            let _ = fs::remove_file(part);
        }
    }
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
        drop(Target::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        Target::open(&path).unwrap().finish("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "no .part is left"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn target__on_a_full_device_says_so_and_names_it() {
        let target = Target::open(Path::new("/dev/full")).unwrap();
        let error = target.finish("a result").unwrap_err().to_string();
        assert!(error.contains("/dev/full"), "{error}");
        assert!(error.contains("No space left"), "{error}");
    }
}
