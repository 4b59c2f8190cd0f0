//! Output files of a result: complete after each job, or written once at the end.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use fastpath_base::tell;

use fastpath_report::html;
use fastpath_report::output::file::{OutputFile, is_standard};
use fastpath_report::output::{self, csv, json};
use fastpath_report::record::Report;

/// Output of a result besides the table.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct ResultOptions {
    /// Write the result to this file as JSON; `-`: to standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with charts to this file (HTML); `-`: to standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl ResultOptions {
    /// Whether a result goes to standard output, instead of the table.
    pub fn take_standard(&self) -> bool {
        [&self.json, &self.html].into_iter().flatten().any(|path| is_standard(path))
    }
}

/// Output files of one result.
pub struct ResultFiles {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    page: Option<OutputFile>,
}

impl ResultFiles {
    /// Checks, before anything is measured, that the result can be written.
    pub fn open(options: &ResultOptions, csv: Option<&Path>) -> Result<ResultFiles> {
        let open = |path: Option<&Path>| path.map(OutputFile::open).transpose();
        Ok(ResultFiles {
            json: open(options.json.as_deref())?,
            csv: open(csv)?,
            page: open(options.html.as_deref())?,
        })
    }

    /// Saves the results so far to the JSON file. If that fails, the file keeps its earlier contents.
    pub fn save(&self, report: &Report) -> Result<()> {
        let saved = self.json.iter().map(|target| target.save(&json::format_report(report)));
        saved.collect()
    }

    /// Writes the whole result to each output, even if others fail. Returns the first failure.
    pub fn finish(self, report: &Report) -> Result<()> {
        let is_standard = self.json.as_ref().is_some_and(OutputFile::is_standard);
        let written = self.json.map_or(Ok(()), |f| f.finish(&json::format_report(report)));
        if is_standard && written.is_err() {
            // Standard output failed; print the result to standard error instead, so that it is not lost.
            tell::lines(&output::format_tables(report));
        }
        let csv = self.csv.map_or(Ok(()), |f| f.finish(&csv::format_report(report)));
        let page = || html::write_page(std::slice::from_ref(report), None);
        let page = self.page.map_or(Ok(()), |f| f.finish(&page()));
        written.and(csv).and(page)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::fs;

    use super::*;
    use fastpath_report::record::Run;

    fn open(path: &str) -> Result<ResultFiles> {
        let options = ResultOptions { json: Some(path.into()), html: None };
        ResultFiles::open(&options, None)
    }

    #[test]
    fn file__that_cannot_be_written_is_known_before_anything_is_measured() {
        for path in ["/proc/none/result.json", "/"] {
            let Err(e) = open(path) else {
                panic!("{path} can be written");
            };
            assert!(e.to_string().contains(path), "{e}");
        }
    }

    #[test]
    fn full_disk__is_an_error() {
        let store = open("/dev/full").unwrap();
        let e = store.finish(&Report::new(Run::default())).unwrap_err();
        assert!(e.to_string().contains("/dev/full"), "{e}");
    }

    #[test]
    fn file__is_whole_after_each_job_and_nothing_lies_beside_it() {
        let folder = std::env::temp_dir().join(format!("fastpath-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("result.json");
        let store = open(&path.to_string_lossy()).unwrap();
        assert!(!path.exists());
        store.save(&Report::new(Run::default())).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(Report::from_json(&text).unwrap(), Report::new(Run::default()));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
