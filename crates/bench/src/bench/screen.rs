//! Tables of a run on the standard output, as they grow, and the conditions of the run.

use fastpath_report::catalogue;
use fastpath_report::document::Document;
use fastpath_report::output::table::{OPTIONS, TableView};
use fastpath_report::output::{Printer, Style, print_line};
use fastpath_report::record::{Case, Level, MissingTest, Report};
use indicatif::ProgressBar;

use crate::levels;

/// Output of a run. Prints nothing if the standard output gets a result or a summary.
pub struct Screen {
    pub bar: ProgressBar,
    printer: Printer,
    view: TableView,
    is_shown: bool,
    /// Whether conditions stand below the tables, because headlines come first.
    has_headlines: bool,
    conditions: Vec<String>,
}

impl Screen {
    /// Creates an output without tables.
    pub fn new(bar: ProgressBar, style: Style, view: TableView, is_shown: bool) -> Screen {
        let has_headlines = style == Style::Fastpath && !view.streams;
        let printer = Printer::new(style, view);
        Screen { bar, printer, view, is_shown, has_headlines, conditions: Vec::new() }
    }

    fn print(&self, lines: &[String]) {
        if self.is_shown {
            self.bar.suspend(|| lines.iter().for_each(|line| print_line(line)));
        }
    }

    /// Prints a condition of the run: at once, or below the tables.
    pub fn note(&mut self, text: &str) {
        match self.has_headlines {
            true => text.lines().for_each(|line| self.keep(line)),
            false => self.print(&self.printer.comment(text)),
        }
    }

    /// Keeps a condition once, and only the last check of the clock.
    fn keep(&mut self, line: &str) {
        const CLOCK: &str = "clock ";
        let is_clock = line.starts_with(CLOCK);
        self.conditions.retain(|known| known != line && !(is_clock && known.starts_with(CLOCK)));
        self.conditions.push(line.to_owned());
    }

    /// Prints a table about the conditions, which only `--explain` shows beside headlines.
    pub fn note_table(&mut self, table: &Document) {
        if !self.has_headlines {
            table.to_text().lines().for_each(|line| self.note(line));
        } else if self.view.explains {
            self.conditions.push(table.to_text_within(self.view.wraps_at));
        }
    }

    /// Adds a case, and prints the lines that are complete.
    pub fn add(&mut self, case: &Case) {
        let lines = self.printer.add(case);
        self.print(&lines);
    }

    /// Prints the last table and the text below the tables.
    pub fn finish(&mut self, report: &Report) {
        let lines = self.printer.finish();
        self.print(&lines);
        self.bar.finish_and_clear();
        if !self.is_shown || report.cases.is_empty() && report.missing.is_empty() {
            return;
        }
        let mut said = Document::default();
        for missing in &report.missing {
            said.text(format!("\n{}", describe_absence(missing)));
        }
        said.0.extend(levels::describe_levels(report).0);
        said.to_text_within(self.view.wraps_at).lines().for_each(print_line);
        if report.cases.is_empty() {
            return;
        }
        let end = self.printer.describe_end(report, self.view);
        end.lines().for_each(print_line);
        if self.has_headlines {
            let mut said = Document::default();
            said.text("");
            self.conditions.iter().for_each(|text| said.text(text.trim_end()));
            self.view.describe_options(OPTIONS).iter().for_each(|options| said.text(options));
            said.to_text_within(self.view.wraps_at).lines().for_each(print_line);
        }
    }
}

fn describe_absence(missing: &MissingTest) -> String {
    let lower = catalogue::find(&missing.test).is_some_and(|t| t.levels.contains(&Level::Protocol));
    let elsewhere = match missing.level == Level::Mpi && missing.reason.contains("of Fastpath") {
        true if lower => " (the test exists at levels below MPI; pass --level transport,protocol)",
        _ => "",
    };
    format!("{} is missing: {}{elsewhere}", missing.test, missing.reason)
}
