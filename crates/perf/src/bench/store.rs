//! Where a result is written: to a file that is whole after each job, or once at the end.

use std::path::Path;

use super::BenchError;
use crate::output::file::Target;
use crate::output::{self, json};
use crate::record::Report;

/// The place for one result, if one was named.
pub struct Store(Option<Target>);

impl Store {
    /// Makes sure, before anything is measured, that the result can be written.
    ///
    /// # Errors
    /// It cannot.
    pub fn open(path: Option<&Path>) -> Result<Store, BenchError> {
        Ok(Store(path.map(Target::open).transpose()?))
    }

    /// Keeps what was measured so far, in a file.
    ///
    /// # Errors
    /// The file cannot be written; an earlier state of it is left whole.
    pub fn save(&self, report: &Report) -> Result<(), BenchError> {
        let saved = self
            .0
            .iter()
            .map(|target| target.save(&json::format_report(report)));
        Ok(saved.collect::<Result<(), _>>()?)
    }

    /// Writes the whole result.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self, report: &Report) -> Result<(), BenchError> {
        let Some(target) = self.0 else {
            return Ok(());
        };
        let is_standard = target.is_standard();
        let written = target.finish(&json::format_report(report));
        if is_standard && written.is_err() {
            // The last place where it can be seen.
            eprint!("{}", output::format_tables(report));
        }
        Ok(written?)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::fs;

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
        let store = Store::open(Some(Path::new("/dev/full"))).unwrap();
        let e = store.finish(&Report::new(Run::default())).unwrap_err();
        assert!(e.to_string().contains("/dev/full"), "{e}");
    }

    #[test]
    fn file__is_whole_after_each_job_and_nothing_lies_beside_it() {
        let folder = std::env::temp_dir().join(format!("fastpath-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("result.json");
        let store = Store::open(Some(&path)).unwrap();
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
