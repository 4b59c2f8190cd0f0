//! How a result leaves the tool: a table for people, comma-separated values, JSON, and the columns
//! that people know from OSU and perftest.
//!
//! A table grows line by line while the run goes on, so that what was measured is seen even where
//! the run, or the writing of its result, fails.

pub mod csv;
pub mod file;
pub mod format;
pub mod json;
pub mod style;
pub mod table;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cliffs::{self, Boundary};
use crate::record::{Case, Missing, Report, Run};
use file::Target;

/// Stands for the standard output where a file is expected.
const STANDARD_OUTPUT: &str = "-";

/// In which form, and where to.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputOptions {
    /// Write everything to this file as JSON; `-`: to the standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the statistics as comma-separated values to this file; `-`: in place of the table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the columns of another tool, with the statistic named
    #[arg(long, value_enum, default_value_t)]
    pub style: Style,
}

/// Whose columns a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// This tool's own: every statistic, and the floor
    #[default]
    Fastpath,
    /// OSU micro-benchmarks: us, MB/s of 10^6 bytes
    Osu,
    /// perftest: us, MiB/s
    Perftest,
}

/// Why a result did not get where it should.
#[derive(Debug)]
pub enum OutputError {
    /// A file could not be made or written.
    File(PathBuf, io::Error),
    /// The standard output takes no more.
    Standard(io::Error),
    /// Two forms at once on the standard output.
    Twice,
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputError::File(path, e) => write!(f, "cannot write {}: {e}", path.display()),
            OutputError::Standard(e) => write!(f, "cannot write to the standard output: {e}"),
            OutputError::Twice => {
                f.write_str("--json and --csv both on the standard output: give one of them a file")
            }
        }
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    /// Whether whoever read the output has seen enough; that is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, OutputError::Standard(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// What goes to the standard output.
enum Form {
    Table(table::Table),
    Style(style::Styled),
    Csv,
    Json,
}

/// Where a result goes.
pub struct Output {
    form: Form,
    json: Option<Target>,
    csv: Option<Target>,
    boundaries: Vec<Boundary>,
}

impl Output {
    /// Opens the files, so that one that cannot be written is found before anything is measured.
    ///
    /// # Errors
    /// A file that cannot be made; two forms for the standard output.
    pub fn open(options: &OutputOptions) -> Result<Output, OutputError> {
        let is_standard =
            |path: &Option<PathBuf>| path.as_deref() == Some(Path::new(STANDARD_OUTPUT));
        let form = match (is_standard(&options.json), is_standard(&options.csv)) {
            (true, true) => return Err(OutputError::Twice),
            (true, false) => Form::Json,
            (false, true) => Form::Csv,
            (false, false) if options.style == Style::Fastpath => Form::Table(table::Table::new()),
            (false, false) => Form::Style(style::Styled::new(options.style)),
        };
        let open = |path: &Option<PathBuf>| match path {
            Some(path) if path.as_path() != Path::new(STANDARD_OUTPUT) => {
                Target::open(path).map(Some)
            }
            _ => Ok(None),
        };
        Ok(Output {
            form,
            json: open(&options.json)?,
            csv: open(&options.csv)?,
            boundaries: Vec::new(),
        })
    }

    /// Sizes at which something changes, to name beside the steps of a sweep.
    pub fn set_boundaries(&mut self, boundaries: Vec<Boundary>) {
        self.boundaries = boundaries;
    }

    /// The head of the run.
    ///
    /// # Errors
    /// The standard output takes no more.
    pub fn start(&mut self, run: &Run) -> Result<(), OutputError> {
        let text = match &self.form {
            Form::Table(_) => table::describe_run(run),
            Form::Style(styled) => styled.describe_run(run),
            Form::Csv => csv::HEAD.to_owned() + "\n",
            Form::Json => String::new(),
        };
        print(&text)
    }

    /// A case, as soon as it is measured.
    ///
    /// # Errors
    /// The standard output takes no more.
    pub fn add(&mut self, run: &Run, case: &Case) -> Result<(), OutputError> {
        let text = match &mut self.form {
            Form::Table(table) => table.add(case),
            Form::Style(styled) => styled.add(case),
            Form::Csv => csv::format_case(run, case),
            Form::Json => String::new(),
        };
        print(&text)
    }

    /// What was not measured.
    ///
    /// # Errors
    /// The standard output takes no more.
    pub fn add_missing(&mut self, missing: &Missing) -> Result<(), OutputError> {
        match self.form {
            Form::Table(_) | Form::Style(_) => print(&table::describe_missing(missing)),
            // It is in the JSON; comma-separated values have no place for it.
            Form::Json => Ok(()),
            Form::Csv => {
                eprint!("{}", table::describe_missing(missing));
                Ok(())
            }
        }
    }

    /// The end of a run: steps of the sweeps, and the files.
    ///
    /// # Errors
    /// The first output that could not be written; the others are written all the same.
    pub fn finish(self, report: &Report) -> Result<(), OutputError> {
        let standard = match &self.form {
            Form::Table(_) => {
                let steps = cliffs::describe(&report.cases, &self.boundaries);
                print(&format!("\n{}{steps}", table::LEGEND))
            }
            Form::Json => print(&json::format_report(report)),
            Form::Style(_) | Form::Csv => Ok(()),
        };
        if standard.as_ref().is_err_and(|e| !e.is_closed_pipe()) {
            // The last place where the result can be seen.
            eprint!("{}", table::format_report(report));
        }
        let json = self
            .json
            .map_or(Ok(()), |file| file.finish(&json::format_report(report)));
        let csv = self
            .csv
            .map_or(Ok(()), |file| file.finish(&csv::format_report(report)));
        standard.and(json).and(csv)
    }
}

/// Writes to the standard output at once.
///
/// # Errors
/// It takes no more.
pub fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(OutputError::Standard)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn two_forms_on_the_standard_output__are_refused() {
        let options = OutputOptions {
            json: Some("-".into()),
            csv: Some("-".into()),
            style: Style::Fastpath,
        };
        assert!(matches!(Output::open(&options), Err(OutputError::Twice)));
    }

    #[test]
    fn file_in_a_folder_that_is_not_there__is_refused_before_the_run() {
        let options = OutputOptions {
            json: Some("/nonexistent/folder/result.json".into()),
            ..OutputOptions::default()
        };
        let error = Output::open(&options).err().unwrap().to_string();
        assert!(error.contains("/nonexistent/folder/result.json"), "{error}");
    }
}
