//! Output of results: a table for people, comma-separated values, JSON, and the columns of OSU, perftest and IMB.
//!
//! The table of a test is printed as soon as the test is measured. Measurements are therefore visible even if the run
//! fails or its result cannot be written.

pub mod chart;
pub mod csv;
pub mod file;
pub mod head;
pub mod json;
pub mod paths;
pub mod plot;
pub mod style;
pub mod table;

use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use clap::ValueEnum;
use fastpath_base::tell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cliffs;
use crate::document::terminal::wrap_lines;
use crate::record::{Case, Report};
use file::PendingResult;
use style::StyledTable;
use table::{CaseTable, TableView};

/// Tool whose columns a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// Every statistic, and the floor
    #[default]
    Fastpath,
    /// OSU micro-benchmarks: us, MB/s of 10^6 bytes
    Osu,
    /// perftest: us, MiB/s
    Perftest,
    /// Intel MPI Benchmarks: us, MB/s of 10^6 bytes
    Imb,
}

/// A table that grows with each case.
pub enum Printer {
    /// A table with this tool's columns.
    Table(CaseTable),
    /// A table with another tool's columns.
    Styled(StyledTable),
}

impl Printer {
    /// An empty table. `view` is the form of a table with this tool's columns.
    pub fn new(style: Style, view: TableView) -> Printer {
        match style {
            Style::Fastpath => Printer::Table(CaseTable::new(view)),
            other => Printer::Styled(StyledTable::new(other)),
        }
    }

    /// Formats lines about the run for the top of the table.
    pub fn comment(&self, text: &str) -> Vec<String> {
        let mark = match self {
            Printer::Table(_) => "",
            Printer::Styled(_) => "# ",
        };
        text.lines().map(|line| format!("{mark}{line}")).collect()
    }

    /// Returns the lines of cases that have been added and not printed.
    pub fn finish(&mut self) -> Vec<String> {
        match self {
            Printer::Table(table) => table.finish(),
            Printer::Styled(_) => Vec::new(),
        }
    }

    /// Adds a case, and returns the lines to print: those of the case, or those of all cases of the previous test.
    pub fn add(&mut self, case: &Case) -> Vec<String> {
        match self {
            Printer::Table(table) => table.add(case),
            Printer::Styled(styled) => styled.add(case).lines().map(str::to_owned).collect(),
        }
    }

    /// Text below the last table: meaning of the columns, protocols, and steps in the sweeps; empty unless the view
    /// `explains`.
    pub fn describe_end(&self, report: &Report, view: TableView) -> String {
        let boundaries = cliffs::list_cache_boundaries();
        let steps = cliffs::describe(&report.cases, &boundaries);
        match self {
            Printer::Table(_) => {
                if !view.explains {
                    return String::new();
                }
                let overhead = table::describe_overhead(&report.cases);
                let ways = paths::describe(&report.cases);
                let text = format!("\n{}{overhead}\n{ways}{steps}", table::LEGEND);
                wrap_lines(text.trim_end(), view.wraps_at)
            }
            Printer::Styled(_) => steps.lines().map(|l| format!("# {l}\n")).collect(),
        }
    }
}

/// Complete tables of a result, for results that were not printed line by line.
pub fn format_tables(report: &Report) -> String {
    let mut table = CaseTable::default();
    let mut lines: Vec<String> = report.cases.iter().flat_map(|case| table.add(case)).collect();
    lines.extend(table.finish());
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Prints a text. A reader that closes the output early is not an error.
///
/// # Errors
/// The standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    write(text).or_else(|e| if is_closed_pipe(&e) { Ok(()) } else { Err(e) })
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to standard output")
}

/// Returns whether `error` is a closed pipe: the reader has closed the output, which is not a failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Error after which [`print_line`] stopped writing to standard output; unset while writing works.
static GIVEN_UP: OnceLock<String> = OnceLock::new();

/// Prints a line to the standard output. If its reader has closed the output, the program ends, or only stops printing
/// if a result must still be written to a file. If the output cannot be written (a full disk), this line and all later
/// ones go to the standard error.
pub fn print_line(line: &str) {
    if GIVEN_UP.get().is_none() {
        match write(&format!("{line}\n")) {
            Ok(()) => return,
            Err(e) if is_closed_pipe(&e) => match PendingResult::any() {
                true => return,
                false => std::process::exit(0),
            },
            Err(e) => {
                let why = GIVEN_UP.get_or_init(|| format!("{e:#}"));
                tell!("fastpath: {why}");
            }
        }
    }
    tell!("{line}");
}

/// Reason for which [`print_line`] gave up the standard output; None if it did not.
pub fn find_failure() -> Option<&'static str> {
    GIVEN_UP.get().map(String::as_str)
}

/// Template of the remaining time, at the end of a progress bar whose steps take equally long.
pub const LEFT: &str = ", {eta} left";

/// Progress bar on the standard error; hidden if that is not a terminal.
pub fn make_bar(length: u64, wanted: bool, left: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if !wanted {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let template = format!("{{bar:30}} {{pos}}/{{len}} {{msg}} {{elapsed}}{left}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_report;

    #[test]
    fn printers__show_every_case_and_its_steps() {
        let mut report = make_report();
        report.cases[1].bytes = 1;
        report.cases[1].samples = [1500.0; 3].into_iter().collect();
        for style in [Style::Fastpath, Style::Osu, Style::Perftest, Style::Imb] {
            let mut printer = Printer::new(style, TableView::default());
            let mut lines: Vec<String> = report.cases.iter().flat_map(|c| printer.add(c)).collect();
            lines.extend(printer.finish());
            assert!(lines.len() > 2 * report.cases.len() - 1, "{lines:?}");
            let end =
                printer.describe_end(&report, TableView { explains: true, ..TableView::default() });
            assert!(end.contains("0 to 1 B"), "{end}");
        }
        assert!(format_tables(&report).contains("latency"));
    }
}
