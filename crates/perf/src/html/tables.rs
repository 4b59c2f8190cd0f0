//! The parts of the page that are tables: single values, ablation, instructions, what is missing.

use std::fmt::Write as _;

use super::svg::{escape, shorten, size, three_digits, time};
use crate::compare::interval::{Ratio, Verdict};
use crate::record::{Breakdown, Case, Level, Of, Report};

/// Cases of a test that were measured at one size and one number of ranks: no curve.
pub fn write_singles(reports: &[Report], out: &mut String) {
    let mut rows: Vec<(&Report, &Case)> = Vec::new();
    for report in reports {
        for case in report
            .cases
            .iter()
            .filter(|c| c.samples.count() > 0 && c.test != "matrix")
        {
            let alone = reports.iter().flat_map(|r| &r.cases).all(|o| {
                let same = (&o.test, o.of, &o.unit, o.window)
                    == (&case.test, case.of, &case.unit, case.window);
                !same || (o.bytes, o.ranks) == (case.bytes, case.ranks)
            });
            if alone {
                rows.push((report, case));
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|(_, c)| c.test.clone());
    out.push_str(
        "<section><h2>Single values</h2><div class=\"card wide\"><table><thead><tr><th scope=\"col\" class=\"text\">test</th>\
         <th scope=\"col\" class=\"text\">MPI</th><th scope=\"col\" class=\"text\">of</th>",
    );
    for name in ["min", "median", "mean", "p99", "max", "floor, median"] {
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (report, case) in rows {
        write_single(report, case, out);
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn write_single(report: &Report, case: &Case, out: &mut String) {
    let Some(s) = case.samples.summarize() else {
        return;
    };
    let show = |v: f64| show_value(v, &case.unit);
    let level = match case.level.name() {
        "mpi" => String::new(),
        level => format!(", {level}"),
    };
    // A case without a payload (memory, start-up, a barrier) has no size.
    let payload = match case.bytes {
        0 if !matches!(case.of, Of::HalfRoundTrip | Of::Message | Of::Hop) => String::new(),
        bytes => format!(", {}", size(bytes)),
    };
    let _ = write!(
        out,
        "<tr><th scope=\"row\" class=\"text\">{} {}</th><td class=\"text\">{}{level}</td><td class=\"text\">{}{payload}, {} ranks</td>",
        escape(&case.test),
        escape(&case.variant),
        escape(&report.run.mpi.name),
        case.of.text(),
        case.ranks
    );
    for v in [s.min, s.median, s.mean, s.p99, s.max] {
        let _ = write!(out, "<td>{}</td>", escape(&show(v)));
    }
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5));
    let _ = write!(
        out,
        "<td>{}</td></tr>",
        floor.map_or("\u{2013}".to_owned(), |v| escape(&show(v)))
    );
}

fn show_value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "B" => size(value as u64),
        unit => format!("{} {unit}", three_digits(value)),
    }
}

/// What each optimisation gives: everything off, then one after the other on.
pub fn write_ablation(reports: &[Report], out: &mut String) {
    for report in reports.iter().filter(|r| !r.ablation.is_empty()) {
        let first = &report.ablation[0];
        out.push_str(
            "<section><h2>Ablation</h2><p>Everything off that can be switched off, then one optimisation after the other on. \
             Times are medians; the bar is the share of the first row. Below a time stands its ratio to the row above with the 95 % interval, \
             of runs in the same turn: bold where the interval does not hold 1.</p><div class=\"card wide\"><table><thead><tr>\
             <th scope=\"col\" class=\"text\">step</th>",
        );
        for case in &first.cases {
            let of = case.of.text();
            let _ = write!(
                out,
                "<th scope=\"col\">{} {}<br/><small>{}, {of}</small></th>",
                escape(&case.test),
                escape(&case.variant),
                size(case.bytes)
            );
        }
        for b in &first.instructions {
            let _ = write!(
                out,
                "<th scope=\"col\">{}<br/><small>{}, instructions</small></th>",
                escape(&b.operation),
                size(b.bytes)
            );
        }
        out.push_str("</tr></thead><tbody>");
        for step in &report.ablation {
            let name = if step.added.is_empty() {
                "all off".to_owned()
            } else {
                format!("+ {}", step.added)
            };
            let _ = write!(
                out,
                "<tr><th scope=\"row\" class=\"text\">{}</th>",
                escape(&name)
            );
            for case in &first.cases {
                let same = step.cases.iter().find(|c| c.key() == case.key());
                let value = same.and_then(|c| c.samples.quantile(0.5));
                let change = step.find_change(case).map(|c| &c.ratio);
                write_bar_cell(value, case.samples.quantile(0.5), time, change, out);
            }
            for b in &first.instructions {
                let same = step
                    .instructions
                    .iter()
                    .find(|o| (&o.operation, o.bytes) == (&b.operation, b.bytes));
                write_bar_cell(
                    same.map(|o| o.total),
                    Some(b.total),
                    |v| format!("{v:.1}"),
                    None,
                    out,
                );
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div></section>\n");
    }
}

fn write_bar_cell(
    value: Option<f64>,
    whole: Option<f64>,
    show: fn(f64) -> String,
    change: Option<&Ratio>,
    out: &mut String,
) {
    let (Some(value), Some(whole)) = (value, whole) else {
        out.push_str("<td>\u{2013}</td>");
        return;
    };
    let share = if whole > 0.0 {
        (value / whole * 100.0).clamp(0.0, 100.0)
    } else {
        0.0
    };
    let _ = write!(
        out,
        "<td class=\"bar\"><span style=\"width:{share:.1}%\"></span>{}{}</td>",
        escape(&show(value)),
        change.map(write_change).unwrap_or_default()
    );
}

/// A ratio with its interval, below a figure.
fn write_change(ratio: &Ratio) -> String {
    let interval = match ratio.interval {
        Some([low, high]) => format!(" [{low:.2}, {high:.2}]"),
        None => String::new(),
    };
    let text = format!("\u{d7}{:.2}{interval}", ratio.ratio);
    match ratio.judge() {
        Verdict::CannotTell => format!("<br/><small>{text}</small>"),
        _ => format!("<br/><small><b>{text}</b></small>"),
    }
}

/// The order of levels from the program down to the bytes, with the index of their colour.
const LEVELS: [(&str, usize); 6] = [
    ("abi", 3),
    ("mpi", 0),
    ("protocol", 1),
    ("transport", 2),
    ("base", 6),
    ("other", 7),
];

fn color_of(level: &str) -> usize {
    LEVELS
        .iter()
        .find(|(name, _)| *name == level)
        .map_or(7, |(_, color)| *color)
}

/// Functions of one operation that are listed.
const FUNCTIONS_MAX: usize = 14;

/// Where the instructions of each operation go, and the totals of all libraries.
pub fn write_breakdowns(reports: &[Report], out: &mut String) {
    let all: Vec<&Breakdown> = reports.iter().flat_map(|r| &r.breakdowns).collect();
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Instructions</h2><p>Instructions per call, counted by callgrind: exact, and the same on every run of one build. \
         An inlined function counts where its source stands.</p>",
    );
    let parted: Vec<&&Breakdown> = all.iter().filter(|b| !b.parts.is_empty()).collect();
    if !parted.is_empty() {
        let most = parted.iter().map(|b| b.total).fold(0.0, f64::max);
        out.push_str("<div class=\"card\"><ul class=\"key\">");
        for (level, color) in LEVELS {
            let _ = write!(
                out,
                "<li><span class=\"swatch c{color}\"></span>{level}</li>"
            );
        }
        out.push_str("</ul>");
        for b in parted {
            write_breakdown(b, most, out);
        }
        out.push_str("</div>");
    }
    if all.iter().any(|b| b.mpi != all[0].mpi) || all.iter().all(|b| b.parts.is_empty()) {
        write_totals(&all, out);
    }
    out.push_str("</section>\n");
}

/// One row an operation, one column a library.
fn write_totals(all: &[&Breakdown], out: &mut String) {
    let mut names: Vec<&str> = Vec::new();
    let mut operations: Vec<(String, u64)> = Vec::new();
    for b in all {
        if !names.contains(&b.mpi.as_str()) {
            names.push(&b.mpi);
        }
        let operation = (name_operation(b), b.bytes);
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    out.push_str("<div class=\"card wide totals\"><table><thead><tr><th scope=\"col\" class=\"text\">total per call</th>");
    for name in &names {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
    }
    out.push_str("</tr></thead><tbody>");
    for (operation, bytes) in operations {
        let _ = write!(
            out,
            "<tr><th scope=\"row\" class=\"text\">{}, {}</th>",
            escape(&operation),
            size(bytes)
        );
        for name in &names {
            let same = |b: &&&Breakdown| {
                b.mpi == *name && name_operation(b) == operation && b.bytes == bytes
            };
            let total = all.iter().find(same).map(|b| b.total);
            let _ = write!(
                out,
                "<td>{}</td>",
                total.map_or("\u{2013}".to_owned(), |t| format!("{t:.1}"))
            );
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

/// The operation, and its level where that is not MPI.
fn name_operation(b: &Breakdown) -> String {
    match b.level {
        Level::Mpi => b.operation.clone(),
        Level::Protocol => format!("{} (protocol)", b.operation),
        Level::Transport => format!("{} (transport)", b.operation),
        Level::Verbs => format!("{} (verbs)", b.operation),
    }
}

fn write_breakdown(b: &Breakdown, most: f64, out: &mut String) {
    let share = |v: f64| if most > 0.0 { v / most * 100.0 } else { 0.0 };
    let _ = write!(
        out,
        "<div class=\"stack\"><p><b>{}</b> {}, {} <b class=\"count\">{:.1}</b></p><div class=\"row\">",
        escape(&name_operation(b)),
        size(b.bytes),
        escape(&b.mpi),
        b.total
    );
    let mut rest = b.total;
    for (level, color) in LEVELS {
        let sum: f64 = b
            .parts
            .iter()
            .filter(|p| p.level == level)
            .map(|p| p.instructions)
            .sum();
        rest -= sum;
        if sum > 0.0 {
            let _ = write!(
                out,
                "<span class=\"c{color}\" style=\"width:{:.2}%\" title=\"{level}: {sum:.1}\"><i>{}</i></span>",
                share(sum),
                if share(sum) > 5.0 {
                    format!("{sum:.0}")
                } else {
                    String::new()
                }
            );
        }
    }
    if rest > 0.05 {
        let _ = write!(
            out,
            "<span class=\"c7\" style=\"width:{:.2}%\" title=\"not broken down\"></span>",
            share(rest)
        );
    }
    out.push_str("</div>");
    if !b.parts.is_empty() {
        write_functions(b, out);
    }
    out.push_str("</div>");
}

fn write_functions(b: &Breakdown, out: &mut String) {
    out.push_str(
        "<details><summary>By function</summary><div class=\"wide\"><table><thead><tr><th scope=\"col\" class=\"text\">level</th>\
         <th scope=\"col\" class=\"text\">function</th><th scope=\"col\">instructions</th></tr></thead><tbody>",
    );
    for part in b.parts.iter().take(FUNCTIONS_MAX) {
        let _ = write!(
            out,
            "<tr><td class=\"text\"><span class=\"swatch c{}\"></span>{}</td><td class=\"text\"><code>{}</code></td><td>{:.1}</td></tr>",
            color_of(&part.level),
            escape(&part.level),
            escape(&shorten(&part.function, 70)),
            part.instructions
        );
    }
    let left: f64 = b
        .parts
        .iter()
        .skip(FUNCTIONS_MAX)
        .map(|p| p.instructions)
        .sum();
    if left > 0.0 {
        let count = b.parts.len() - FUNCTIONS_MAX;
        let _ = write!(
            out,
            "<tr><td class=\"text\"></td><td class=\"text\">{count} others</td><td>{left:.1}</td></tr>"
        );
    }
    out.push_str("</tbody></table></div></details>");
}

/// What was asked for and is not there.
pub fn write_missing(reports: &[Report], out: &mut String) {
    if reports.iter().all(|r| r.missing.is_empty()) {
        return;
    }
    out.push_str("<section><h2>Not measured</h2><ul class=\"card\">");
    for report in reports {
        for m in &report.missing {
            let _ = write!(
                out,
                "<li><b>{}</b> ({}, {}): {}</li>",
                escape(&m.test),
                escape(&report.run.mpi.name),
                m.level.name(),
                escape(&m.reason)
            );
        }
    }
    out.push_str("</ul></section>\n");
}
