//! `--html FILE` and `fastpath page`: one page that shows reports, whole in one file.
//!
//! The page has no script and asks no host for anything; its policy forbids both. Every curve has
//! its numbers in a table below it.

mod charts;
mod curves;
mod heat;
mod scale;
pub(crate) mod svg;
mod tables;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::output::file::Target;
use crate::record::{Case, Level, Report};
use charts::Figure;
use svg::{decimal, escape, size, time};

/// Colours of curves.
const COLORS: usize = 8;

/// Nothing is loaded, from nowhere; the page's own style is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("html/page.css");

/// Options of `fastpath page`.
#[derive(clap::Args, Debug)]
pub struct PageOptions {
    /// Stored results (of --json)
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// The page to write; `-`: to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Its title
    #[arg(long)]
    pub title: Option<String>,
}

/// Does what `fastpath page` was asked for.
///
/// # Errors
/// A result cannot be read or the page not be written; the message names the file.
pub fn run(options: &PageOptions) -> io::Result<()> {
    let place = std::fs::canonicalize(&options.output).ok();
    let is_place = |p: &&PathBuf| place.is_some() && std::fs::canonicalize(p).ok() == place;
    if let Some(result) = options.results.iter().find(is_place) {
        let why = format!("{} is a result: name another file", result.display());
        return Err(io::Error::other(why));
    }
    let reports: Vec<Report> = options
        .results
        .iter()
        .map(|p| read_report(p))
        .collect::<io::Result<_>>()?;
    let page = write_page(&reports, options.title.as_deref());
    let written = Target::open(&options.output).and_then(|file| file.finish(&page));
    written.map_err(|e| io::Error::other(e.to_string()))
}

fn read_report(path: &Path) -> io::Result<Report> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(named)?;
    Report::from_json(&text).map_err(|e| named(io::Error::other(e)))
}

/// The page of some reports; curves of several reports share a chart where they are of one test.
pub fn write_page(reports: &[Report], title: Option<&str>) -> String {
    let title = title.map_or_else(|| make_title(reports), str::to_owned);
    let mut out = String::with_capacity(64 << 10);
    open_page(&title, &mut out);
    write_summary(reports, &mut out);
    out.push_str("</header>\n<main>");
    write_figures(reports, &mut out);
    tables::write_singles(reports, &mut out);
    tables::write_ablation(reports, &mut out);
    tables::write_breakdowns(reports, &mut out);
    tables::write_missing(reports, &mut out);
    write_runs(reports, &mut out);
    out.push_str(
        "</main>\n<footer>MB is 10<sup>6</sup> bytes; K, M and G of sizes are powers of 1024. Every sample counts; percentiles are nearest \
         rank. Point at a mark for its statistics.</footer></body></html>\n",
    );
    out
}

/// All of a page before what stands below its title.
pub(crate) fn open_page(title: &str, out: &mut String) {
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>{t}</title>\n<style>{STYLE}</style></head>\n\
         <body><header><h1>{t}</h1>",
        t = escape(title)
    );
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

fn write_figures(reports: &[Report], out: &mut String) {
    let figures = charts::make_figures(reports);
    if figures.is_empty() {
        return;
    }
    out.push_str("<section><h2>Curves</h2><div class=\"charts\">\n");
    for (id, figure) in figures.iter().enumerate() {
        match figure {
            Figure::Curves(chart) => chart.write(id, out),
            Figure::Map(map) => map.write(id, out),
        }
    }
    out.push_str("</div></section>\n");
}

/// The machine in a line, and what people ask first, of the first report.
fn write_summary(reports: &[Report], out: &mut String) {
    let Some(report) = reports.first() else {
        out.push_str("<p>No results.</p>");
        return;
    };
    let m = &report.run.machine;
    let mut facts = vec![m.host.clone(), m.processor.clone()];
    if m.processors > 0 {
        facts.push(format!("{} processors", m.processors));
    }
    facts.push(m.kernel.clone());
    facts.retain(|f| !f.is_empty());
    let _ = write!(
        out,
        "<p>{}</p><div class=\"tiles\">",
        escape(&facts.join(" \u{b7} "))
    );
    let of_test = |test: &'static str| {
        report
            .cases
            .iter()
            .filter(move |c| c.test == test && c.variant.is_empty())
    };
    let small = |c: &&Case| (c.level, if c.bytes == 8 { 0 } else { 1 }, c.bytes);
    if let Some(case) = of_test("latency").min_by_key(small) {
        write_tile(case, "latency", time, out);
    }
    if let Some(case) = of_test("rate").min_by_key(small) {
        write_tile(case, "message rate", |ns| decimal(1e9 / ns, "/s"), out);
    }
    let speed = |c: &&Case| {
        c.samples
            .quantile(0.5)
            .map_or(0, |ns| (c.bytes as f64 / ns * 1e9) as u64)
    };
    if let Some(case) = of_test("bandwidth").max_by_key(speed) {
        let bytes = case.bytes as f64;
        write_tile(
            case,
            "bandwidth",
            |ns| decimal(bytes / ns * 1e9, "B/s"),
            out,
        );
    }
    if let Some(case) = of_test("barrier").min_by_key(|c| c.ranks) {
        write_tile(case, "barrier", time, out);
    }
    out.push_str("</div>");
}

fn write_tile(case: &Case, what: &str, show: impl Fn(f64) -> String, out: &mut String) {
    let Some(s) = case.samples.summarize().filter(|s| s.median > 0.0) else {
        return;
    };
    let floor = case
        .floor
        .as_ref()
        .and_then(|f| f.quantile(0.5))
        .filter(|f| *f > 0.0);
    let floor = floor.map_or(String::new(), |f| {
        format!("; {:.2} times its floor", s.median / f)
    });
    let size = if case.bytes > 0 || what != "barrier" {
        format!("{}, ", size(case.bytes))
    } else {
        String::new()
    };
    let _ = write!(
        out,
        "<div class=\"card\"><span class=\"what\">{what}</span><b>{}</b><span>median of {} samples, {size}{}, {}{floor}</span></div>",
        escape(&show(s.median)),
        s.count,
        case.of.text(),
        match case.level {
            Level::Mpi => format!("{} ranks", case.ranks),
            level => format!("{} ranks, level of the {}", case.ranks, level.name()),
        }
    );
}

fn write_runs(reports: &[Report], out: &mut String) {
    out.push_str("<section><h2>How it was measured</h2><div class=\"charts\">");
    for (index, report) in reports.iter().enumerate() {
        let run = &report.run;
        let name = if run.mpi.name.is_empty() {
            format!("run {}", index + 1)
        } else {
            run.mpi.name.clone()
        };
        let _ = write!(out, "<div class=\"card\"><h3>{}</h3><dl>", escape(&name));
        let clock = &run.clock;
        let environment: Vec<String> = run
            .environment
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let unknown = || "not readable".to_owned();
        let facts = [
            ("library", run.mpi.version.clone()),
            ("at", run.mpi.path.clone()),
            ("command", run.command.join(" ")),
            ("host", run.machine.host.clone()),
            ("processor", run.machine.processor.clone()),
            ("kernel", run.machine.kernel.clone()),
            (
                "governor",
                run.machine.governor.clone().unwrap_or_else(unknown),
            ),
            (
                "hypervisor",
                run.machine
                    .hypervisor
                    .clone()
                    .unwrap_or_else(|| "none seen".to_owned()),
            ),
            (
                "clock",
                format!(
                    "{}, {:.4} GHz within {:.1} ppm, resolution {} ns, {} ns a reading",
                    clock.source,
                    clock.frequency_hz / 1e9,
                    clock.frequency_error_ppm,
                    svg::three_digits(clock.resolution_ns),
                    svg::three_digits(clock.read_ns)
                ),
            ),
            ("measuring adds", most_overhead(report)),
            ("environment", environment.join(" ")),
            ("tool", run.tool.clone()),
        ];
        for (name, value) in facts.iter().filter(|(_, v)| !v.is_empty()) {
            let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(value));
        }
        out.push_str("</dl></div>");
    }
    out.push_str("</div></section>\n");
}

fn most_overhead(report: &Report) -> String {
    let most = report
        .cases
        .iter()
        .map(|c| c.timing.overhead_ns)
        .fold(0.0, f64::max);
    if report.cases.is_empty() {
        return String::new();
    }
    format!("at most {} ns an operation", svg::three_digits(most))
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests;
