//! The report as text, in the sections of mpiP.

use crate::library::ByteKind;
use crate::report::{Report, SiteTotals, Totals};
use fastpath_base::tell::{count, escape};
use std::fmt::Write;

/// Rows of the sections that list the largest call sites.
const LARGEST: usize = 20;

/// Formats the report.
pub(crate) fn format(report: &Report) -> String {
    let mut out = String::new();
    write_head(report, &mut out);
    write_ranks(report, &mut out);
    write_functions(report, &mut out);
    write_sites(report, &mut out);
    write_times(report, &mut out);
    for (kind, title) in [
        (ByteKind::Sent, "Bytes sent, by call site"),
        (ByteKind::Window, "Bytes of windows, by call site"),
        (ByteKind::File, "Bytes of files, by call site"),
    ] {
        write_bytes(report, kind, title, &mut out);
    }
    write_by_rank(report, &mut out);
    out
}

fn write_head(report: &Report, out: &mut String) {
    let program = escape(&report.program);
    let ranks = count(report.ranks.len() as u64, "rank");
    let share = percent(report.mpi_seconds(), report.wall_seconds());
    let longest = report.ranks.iter().map(|rank| rank.wall_seconds).fold(0.0, f64::max);
    _ = writeln!(out, "Fastpath profile: {program}, {ranks}, {longest:.3} s");
    _ = match report.aborted_by {
        Some(rank) => writeln!(out, "Rank {rank} aborted the job: only its calls are listed."),
        None => writeln!(
            out,
            "MPI: {share:.1} % of the time; the slowest rank has {:.2} x the mean MPI time.",
            report.imbalance
        ),
    };
}

fn section(title: &str, out: &mut String) {
    let line = "-".repeat(75);
    _ = writeln!(
        out,
        "{line}\n@--- {title} {}\n{line}",
        "-".repeat(69_usize.saturating_sub(title.len()))
    );
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

fn write_ranks(report: &Report, out: &mut String) {
    section("MPI time by rank (seconds)", out);
    _ = writeln!(out, "{:>6} {:>12} {:>12} {:>7}  Host", "Rank", "Wall", "MPI", "MPI %");
    for rank in &report.ranks {
        let (wall, mpi) = (rank.wall_seconds, rank.mpi_seconds);
        let share = percent(mpi, wall);
        let host = escape(&rank.host);
        _ = writeln!(out, "{:>6} {wall:>12.6} {mpi:>12.6} {share:>7.2}  {host}", rank.rank);
    }
    let (wall, mpi) = (report.wall_seconds(), report.mpi_seconds());
    _ = writeln!(out, "{:>6} {wall:>12.6} {mpi:>12.6} {:>7.2}", "all", percent(mpi, wall));
}

/// Titles of [`time_columns`].
const TIME_TITLES: &str = "    Calls        Time  Wall%   MPI% Max/mean";

/// Width of the column of functions. With names of usual length, the lines have at most 80 columns.
fn name_width(report: &Report) -> usize {
    let names = report.functions.iter().map(|function| function.function.len());
    names.max().unwrap_or(0).max("Function".len())
}

/// Formats the number of calls, their time and the imbalance between ranks.
fn time_columns(report: &Report, totals: &Totals, imbalance: f64) -> String {
    let Totals { calls, seconds, .. } = *totals;
    let milliseconds = seconds * 1e3;
    let wall = percent(seconds, report.wall_seconds());
    let mpi = percent(seconds, report.mpi_seconds());
    format!("{calls:>9} {milliseconds:>11.3} {wall:>6.2} {mpi:>6.2} {imbalance:>8.2}")
}

fn write_functions(report: &Report, out: &mut String) {
    section("Time by function (all ranks, milliseconds)", out);
    let width = name_width(report);
    _ = writeln!(out, "{:<width$} {TIME_TITLES} {:>14}", "Function", "Bytes");
    for function in &report.functions {
        let times = time_columns(report, &function.totals, function.imbalance);
        let bytes = function.totals.bytes;
        _ = writeln!(out, "{:<width$} {times} {bytes:>14}", function.function);
    }
}

fn write_sites(report: &Report, out: &mut String) {
    section(&format!("Call sites: {}", report.sites.len()), out);
    _ = writeln!(out, "{:>4}  {:<36} Calling function", "Site", "Place");
    for site in &report.sites {
        let (place, function) = (site.place.describe(), site.place.function());
        _ = writeln!(out, "{:>4}  {place:<36} {function}", site.site);
    }
}

fn write_times(report: &Report, out: &mut String) {
    section("Time by call site (largest 20, milliseconds)", out);
    let width = name_width(report);
    _ = writeln!(out, "{:<width$} {:>4} {TIME_TITLES}", "Function", "Site");
    for call in report.calls.iter().take(LARGEST) {
        let times = time_columns(report, &call.totals, call.imbalance);
        _ = writeln!(out, "{:<width$} {:>4} {times}", call.function, call.site);
    }
}

fn write_bytes(report: &Report, kind: ByteKind, title: &str, out: &mut String) {
    let is_listed = |call: &&SiteTotals| call.bytes_of == kind && call.totals.bytes > 0;
    let mut calls: Vec<&SiteTotals> = report.calls.iter().filter(is_listed).collect();
    if calls.is_empty() {
        return;
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.totals.bytes));
    let all: u64 = calls.iter().map(|call| call.totals.bytes).sum();
    section(&format!("{title} (largest 20)"), out);
    let width = name_width(report);
    _ = writeln!(
        out,
        "{:<width$} {:>4} {:>10} {:>15} {:>13} {:>7}",
        "Function", "Site", "Calls", "Bytes", "Mean", "Bytes%"
    );
    for call in calls.iter().take(LARGEST) {
        let Totals { calls_with_bytes, bytes, .. } = call.totals;
        _ = writeln!(
            out,
            "{:<width$} {:>4} {calls_with_bytes:>10} {bytes:>15} {:>13.1} {:>7.2}",
            call.function,
            call.site,
            call.totals.mean_bytes(),
            percent(bytes as f64, all as f64),
        );
    }
}

fn write_by_rank(report: &Report, out: &mut String) {
    section("Calls by site and rank (all; time of a call in milliseconds)", out);
    let width = name_width(report);
    _ = writeln!(
        out,
        "{:<width$} {:>4} {:>5} {:>8} {:>9} {:>9} {:>9} {:>12}",
        "Function", "Site", "Rank", "Calls", "Max", "Mean", "Min", "Bytes"
    );
    for call in &report.calls {
        for rank in &call.by_rank {
            let totals = &rank.totals;
            let [max, mean, min] = [totals.max_seconds, totals.mean_seconds(), totals.min_seconds]
                .map(|seconds| seconds * 1e3);
            _ = writeln!(
                out,
                "{:<width$} {:>4} {:>5} {:>8} {max:>9.4} {mean:>9.4} {min:>9.4} {:>12}",
                call.function, call.site, rank.rank, totals.calls, totals.bytes
            );
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::report::tests::rank;

    #[test]
    fn text__has_each_section_with_its_numbers() {
        let ranks = vec![rank(0, &[("MPI_Send", 1, 1_000_000, 8)]), rank(1, &[])];
        let text = format(&Report::new(ranks, None));
        assert!(text.starts_with("Fastpath profile: /p, 2 ranks, 1.000 s\n"), "{text}");
        assert!(text.contains("the slowest rank has 2.00 x the mean MPI time"), "{text}");
        let sections = text.lines().filter(|line| line.starts_with("@--- ")).count();
        assert_eq!(sections, 6, "{text}");
        let row = "MPI_Send    1          1               8           8.0  100.00";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("of windows"));
    }

    #[test]
    fn text__of_usual_functions_fits_80_columns() {
        let calls = [("MPI_Allreduce", 1, 1_000_000, 8), ("MPI_Sendrecv", 2, 99_000_000, 1 << 33)];
        let text = format(&Report::new(vec![rank(0, &calls), rank(1, &calls)], None));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 80), "{text}");
    }

    #[test]
    fn text__of_an_aborted_job_names_the_rank() {
        let text = format(&Report::new(vec![rank(3, &[])], Some(3)));
        assert!(text.contains("Rank 3 aborted the job"), "{text}");
    }
}
