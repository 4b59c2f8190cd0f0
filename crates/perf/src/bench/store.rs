//! Where a result is written: to a file that is whole at every moment, or to the standard output.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::BenchError;
use crate::output::file::{Awaited, is_standard};
use crate::output::{self, json};
use crate::record::Report;

/// The place for one result.
pub enum Store {
    /// Nothing is written.
    None,
    /// The standard output, at the end.
    StandardOutput,
    /// A file, replaced after each job.
    File(PathBuf, Awaited),
    /// A device or a pipe, written once at the end.
    Stream(PathBuf),
}

impl Store {
    /// Makes sure, before anything is measured, that the result can be written.
    ///
    /// # Errors
    /// It cannot.
    pub fn open(path: Option<&Path>) -> Result<Store, BenchError> {
        let Some(path) = path else {
            return Ok(Store::None);
        };
        if is_standard(path) {
            return Ok(Store::StandardOutput);
        }
        let failed = |e| BenchError::Write(path.to_owned(), e);
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                Err(failed(io::Error::from(io::ErrorKind::IsADirectory)))
            }
            Ok(found) if !found.is_file() => Ok(Store::Stream(path.to_owned())),
            _ => {
                let aside = aside(path);
                File::create(&aside).map_err(failed)?;
                fs::remove_file(&aside).map_err(failed)?;
                Ok(Store::File(path.to_owned(), Awaited::begin()))
            }
        }
    }

    /// Keeps what was measured so far.
    ///
    /// # Errors
    /// The file cannot be written; an earlier state of it is left whole.
    pub fn save(&mut self, report: &Report) -> Result<(), BenchError> {
        let Store::File(path, _) = self else {
            return Ok(());
        };
        let aside = aside(path);
        let written = write(&aside, report).and_then(|()| fs::rename(&aside, &*path));
        written.map_err(|e| {
            let _ = fs::remove_file(&aside);
            BenchError::Write(path.clone(), e)
        })
    }

    /// Writes the whole result.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self, report: &Report) -> Result<(), BenchError> {
        match self {
            Store::None => Ok(()),
            Store::File(..) => self.save(report),
            Store::Stream(path) => {
                write(path, report).map_err(|e| BenchError::Write(path.clone(), e))
            }
            Store::StandardOutput => {
                match output::print(&json::format_report(report)) {
                    Err(e) if !e.is_closed_pipe() => {
                        // The last place where it can be seen.
                        eprint!("{}", output::format_tables(report));
                        Err(BenchError::Output(e.to_string()))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The file beside `path` that takes its place when it is whole.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

fn write(path: &Path, report: &Report) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(json::format_report(report).as_bytes())?;
    // A full disk may say so only here; a device or a pipe knows nothing of it.
    match file.sync_all() {
        Err(e) if e.kind() != io::ErrorKind::InvalidInput => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::Run;

    #[test]
    fn file__that_cannot_be_written_is_known_before_anything_is_measured() {
        for path in ["/nonexistent/result.json", "/"] {
            let Err(e) = Store::open(Some(Path::new(path))) else {
                panic!("{path} can be written");
            };
            assert!(e.to_string().contains(path), "{e}");
        }
    }

    #[test]
    fn full_disk__is_an_error() {
        let mut store = Store::open(Some(Path::new("/dev/full"))).unwrap();
        let e = store.finish(&Report::new(Run::default())).unwrap_err();
        assert!(e.to_string().contains("/dev/full"), "{e}");
    }

    #[test]
    fn file__is_whole_after_each_job_and_nothing_lies_beside_it() {
        let folder = std::env::temp_dir().join(format!("fastpath-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("result.json");
        let mut store = Store::open(Some(&path)).unwrap();
        assert!(!path.exists());
        store.save(&Report::new(Run::default())).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            Report::from_json(&text).unwrap(),
            Report::new(Run::default())
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
