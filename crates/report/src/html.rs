//! `--html FILE` and `fastpath page`: reports as one self-contained page.
//!
//! The page has no script and loads nothing; its content security policy forbids scripts and loading. Every curve has a
//! table of its numbers below it.

mod charts;
mod curves;
mod heat;
pub mod svg;
mod tables;

use std::io;
use std::path::{Path, PathBuf};

use maud::{Markup, html};

use crate::compare::changed::SCHEMA as CHANGES;
use crate::compare::comparison::{self, Comparison, NotCompared};
use crate::compare::show::{describe_result, tabulate_peer};
use crate::document::html::{page, text};
use crate::format::{decimal, size, three_digits, time};
use crate::headline;
use crate::output::file::OutputFile;
use crate::output::head::list_facts;
use crate::record::{Case, Level, Report};
use crate::refuse_usage;
use charts::Figure;

const COLORS: usize = 8;

/// Options of `fastpath page`.
#[derive(clap::Args, Debug)]
pub struct PageOptions {
    /// Stored results of `fastpath bench`, and comparisons of MPIs by `fastpath compare` (written by --json)
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// HTML page to write; `-`: to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Title of the page
    #[arg(long)]
    pub title: Option<String>,
}

/// Runs `fastpath page`.
///
/// # Errors
/// A result cannot be read, or the page cannot be written; the message names the file.
pub fn run(options: &PageOptions) -> io::Result<()> {
    let place = std::fs::canonicalize(&options.output).ok();
    let is_place = |p: &&PathBuf| place.is_some() && std::fs::canonicalize(p).ok() == place;
    if let Some(result) = options.results.iter().find(is_place) {
        refuse_usage!("{} is one of the results; pass another file to --output", result.display());
    }
    let mut content = PageContent::default();
    options.results.iter().try_for_each(|path| content.read(path))?;
    let page = content.write_page(options.title.as_deref());
    let written = OutputFile::open(&options.output).and_then(|file| file.finish(&page));
    written.map_err(|e| io::Error::other(format!("{e:#}")))
}

/// Results of a page.
#[derive(Default)]
struct PageContent {
    reports: Vec<Report>,
    comparisons: Vec<Comparison>,
}

impl PageContent {
    /// Reads a stored result, or a stored comparison with the results of its MPIs.
    fn read(&mut self, path: &Path) -> io::Result<()> {
        let named =
            |e: &dyn std::fmt::Display| io::Error::other(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
        match find_schema(&text).as_deref() {
            Some(comparison::SCHEMA) => {
                let comparison = Comparison::from_json(&text).map_err(|e| named(&e))?;
                self.reports.extend(comparison.reports.iter().cloned());
                self.comparisons.push(comparison);
            }
            Some(CHANGES) => {
                let why = "changes between two results have no page; pass the two results";
                return Err(named(&why));
            }
            _ => self.reports.push(Report::from_json(&text).map_err(|e| named(&e))?),
        }
        Ok(())
    }

    fn write_page(&self, title: Option<&str>) -> String {
        let main = html! { @for comparison in &self.comparisons { (show_comparison(comparison)) } };
        write_with(&self.reports, title, main)
    }
}

/// Returns the schema that a JSON text states.
fn find_schema(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(value.get("schema")?.as_str()?.to_owned())
}

fn show_comparison(comparison: &Comparison) -> Markup {
    html! {
        section { h2 { "Comparison" }
            @for peer in comparison.list_peers() {
                p { (text(&describe_result(comparison, peer))) }
                (tabulate_peer(comparison, peer).to_card())
            }
            @for NotCompared { mpi, what, reason } in &comparison.missing {
                p { (text(&format!("{mpi} {what}: not compared: {reason}"))) }
            }
        }
    }
}

const FOOTER: &str =
    "Every sample counts; percentiles are nearest rank. Point at a mark for its statistics.";

/// Formats the page of some results.
pub fn write_page(reports: &[Report], title: Option<&str>) -> String {
    write_with(reports, title, html! {})
}

/// Formats the page of some results, with other content above the curves.
fn write_with(reports: &[Report], title: Option<&str>, above: Markup) -> String {
    let title = title.map_or_else(|| make_title(reports), str::to_owned);
    let figures = charts::make_figures(reports);
    let main = html! {
        (above)
        @if !figures.is_empty() {
            section { h2 { "Curves" } div class="charts" {
                @for (id, figure) in figures.iter().enumerate() {
                    @match figure {
                        Figure::Curves(chart) => (chart.show(id)),
                        Figure::Map(map) => (map.show(id)),
                    }
                }
            } }
        }
        (tables::show_singles(reports))
        (tables::show_ablation(reports))
        (tables::show_breakdowns(reports))
        (tables::show_missing(reports))
        section { h2 { "How it was measured" } div class="charts" {
            @for (index, report) in reports.iter().enumerate() { (show_run(index, report)) }
        } }
    };
    let footer = html! {
        "MB is 10" sup { "6" } " bytes; K, M and G of sizes are powers of 1024. " (FOOTER)
    };
    page(&title, show_summary(reports), main, footer)
}

fn make_title(reports: &[Report]) -> String {
    let mut names: Vec<&str> = reports.iter().map(|r| r.run.mpi.name.as_str()).collect();
    names.retain(|n| !n.is_empty());
    names.dedup();
    match names.as_slice() {
        [] => "Message passing, measured".to_owned(),
        [one] => format!("{one}, measured"),
        [first, rest @ ..] => format!("{first} beside {}", rest.join(", ")),
    }
}

fn show_summary(reports: &[Report]) -> Markup {
    let Some(report) = reports.first() else {
        return html! { p { "No results." } };
    };
    let m = &report.run.machine;
    let mut facts = vec![m.host.clone(), m.processor.clone()];
    if m.processors > 0 {
        facts.push(format!("{} processors", m.processors));
    }
    facts.push(m.kernel.clone());
    facts.retain(|f| !f.is_empty());
    let of_test = |test: &'static str| {
        report.cases.iter().filter(move |c| c.test == test && c.variant.is_empty())
    };
    let small = |c: &&Case| (c.level, c.bytes != 8, c.bytes);
    let speed = |c: &&Case| {
        let per_s = |ns| c.bytes as f64 / ns * 1e9;
        c.samples.quantile(0.5).map_or(0, |ns| per_s(ns) as u64)
    };
    let best = of_test("bandwidth").max_by_key(speed);
    let bytes = best.map_or(0.0, |c| c.bytes as f64);
    html! {
        @for headline in list_headlines(reports) { p { b { (text(&headline)) } } }
        p { (text(&facts.join(" \u{b7} "))) }
        @if reports.len() == 1 { div class="tiles" {
            (show_tile(of_test("latency").min_by_key(small), "latency", time))
            (show_tile(of_test("rate").min_by_key(small), "message rate", |ns| decimal(1e9 / ns,
                "/s")))
            (show_tile(best, "bandwidth", |ns| decimal(bytes / ns * 1e9, "B/s")))
            (show_tile(of_test("barrier").min_by_key(|c| c.ranks), "barrier", time))
        } }
    }
}

/// Describes the latency of each report in a sentence, or its first test if it has no latency.
fn list_headlines(reports: &[Report]) -> Vec<String> {
    let describe = |(index, report): (usize, &Report)| {
        let latency = report.cases.iter().find(|case| case.test == "latency");
        let first = latency.or(report.cases.first())?;
        let group = |case: &&Case| {
            (&case.test, case.ranks, case.level) == (&first.test, first.ranks, first.level)
        };
        let headline = headline::describe(report.cases.iter().filter(group))?;
        Some(format!("{}: {}: {headline}", name_run(index, report), first.test))
    };
    reports.iter().enumerate().filter_map(describe).collect()
}

/// Name of a result: its MPI, or its number.
fn name_run(index: usize, report: &Report) -> String {
    match report.run.mpi.name.as_str() {
        "" => format!("run {}", index + 1),
        name => name.to_owned(),
    }
}

fn show_tile(case: Option<&Case>, what: &str, show: impl Fn(f64) -> String) -> Markup {
    let Some((case, s)) = case.and_then(|c| Some((c, c.samples.summarize()?))) else {
        return html! {};
    };
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5)).filter(|f| *f > 0.0);
    let floor = floor.map_or(String::new(), |f| format!("; {:.2} times its floor", s.median / f));
    let size = match case.bytes {
        0 if what == "barrier" => String::new(),
        bytes => format!("{}, ", size(bytes)),
    };
    let level = match case.level {
        Level::Mpi => String::new(),
        level => format!(", level of the {}", level.name()),
    };
    html! { @if s.median > 0.0 {
        div class="card" {
            span class="what" { (what) }
            b { (text(&show(s.median))) }
            span {
                "median of " (s.count) " samples, " (size) (case.of.text()) ", " (case.ranks)
                    " ranks" (level) (floor)
            }
        }
    } }
}

fn show_run(index: usize, report: &Report) -> Markup {
    let run = &report.run;
    let name = name_run(index, report);
    let mut facts = list_facts(run);
    let most = report.cases.iter().map(|c| c.timing.overhead_ns);
    if let Some(ns) = most.reduce(f64::max) {
        let adds = format!("at most {} ns an operation", three_digits(ns));
        facts.push(("measuring adds", adds));
    }
    html! { div class="card" { h3 { (text(&name)) } dl {
        @for (name, value) in facts.iter().filter(|(_, v)| !v.is_empty()) {
            dt { (name) } dd { (text(value)) }
        }
    } } }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
