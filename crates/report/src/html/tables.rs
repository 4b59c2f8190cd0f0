//! Parts of a page without axes: single values, ablation, instructions, and tests without a result.

use fastpath_base::tell::count;
use maud::{Markup, html};

use super::svg::shorten;
use crate::ablation;
use crate::document::html::text;
use crate::document::{Cell, Column, Table};
use crate::format::{size, three_digits, time};
use crate::lists::unique;
use crate::record::{Breakdown, Case, Level, Quantity, Report};

const NOTHING: &str = "\u{2013}";

fn section(title: &str, is_there: bool, contents: &dyn Fn() -> Markup) -> Markup {
    html! { @if is_there { section { h2 { (title) } (contents()) } } }
}

/// Formats a table of the cases that have no curve, because each is the only case of its test.
pub fn show_singles(reports: &[Report]) -> Markup {
    let all = || reports.iter().flat_map(|r| r.cases.iter().map(move |c| (r, c)));
    let is_alone = |case: &Case| {
        let test = |c: &Case| (c.test.clone(), c.of, c.unit.clone(), c.window);
        let place = |c: &Case| (c.bytes, c.ranks);
        all().all(|(_, o)| test(o) != test(case) || place(o) == place(case))
    };
    let shown = |(_, c): &(&Report, &Case)| c.samples.count() > 0 && c.test != "matrix";
    let mut rows: Vec<_> = all().filter(shown).filter(|(_, c)| is_alone(c)).collect();
    rows.sort_by_key(|(_, c)| &c.test);
    let mut table = Table::of("test|MPI|of|min>|median>|mean>|p99>|max>|floor, median>");
    rows.iter().for_each(|(report, case)| add_single(report, case, &mut table));
    section("Single values", !rows.is_empty(), &|| table.to_card())
}

fn add_single(report: &Report, case: &Case, table: &mut Table) {
    let Some(s) = case.samples.summarize() else {
        return;
    };
    let show = |v: f64| show_value(v, &case.unit);
    let level = match case.level {
        Level::Mpi => String::new(),
        level => format!(", {}", level.name()),
    };
    // A case without a payload (memory, startup, a barrier) has no size.
    let payload = match case.bytes {
        0 if !matches!(case.of, Quantity::HalfRoundTrip | Quantity::Message | Quantity::Hop) => {
            String::new()
        }
        bytes => format!(", {}", size(bytes)),
    };
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5));
    let mut row = vec![
        format!("{} {}", case.test, case.variant),
        format!("{}{level}", report.run.mpi.name),
        format!("{}{payload}, {}", case.of.text(), count(case.ranks, "rank")),
    ];
    row.extend([s.min, s.median, s.mean, s.p99, s.max].map(show));
    row.push(floor.map_or(NOTHING.to_owned(), show));
    table.row(row);
}

fn show_value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "B" => size(value as u64),
        unit => format!("{} {unit}", three_digits(value)),
    }
}

const ABLATION: &str = "In the first row all optimisations are off; each further row enables one \
    more optimisation. Times are medians; a bar shows the share of the time in the first row. \
    Below each time is its ratio to the row above, from runs in the same pass, with the 95 % \
    interval. The ratio is bold if the interval excludes 1.";

pub fn show_ablation(reports: &[Report]) -> Markup {
    let shown = reports.iter().filter(|r| !r.ablation.is_empty());
    html! { @for report in shown {
        section {
            h2 { "Ablation" } p { (ABLATION) }
            (ablation::tabulate(&report.ablation).to_card())
        }
    } }
}

const LEVELS: [(&str, usize); 6] =
    [("abi", 3), ("mpi", 0), ("protocol", 1), ("transport", 2), ("base", 6), ("other", 7)];

fn color_of(level: &str) -> usize {
    LEVELS.iter().find(|(name, _)| *name == level).map_or(7, |(_, color)| *color)
}

/// Maximum number of functions that are listed by name for one call.
const FUNCTIONS_MAX: usize = 14;

const INSTRUCTIONS: &str = "Instructions per call, counted by callgrind. The counts are exact, and \
    equal in every run of one build. An inlined function counts in the file of its source.";

pub fn show_breakdowns(reports: &[Report]) -> Markup {
    let all: Vec<&Breakdown> = reports.iter().flat_map(|r| &r.breakdowns).collect();
    let parted: Vec<&&Breakdown> = all.iter().filter(|b| !b.parts.is_empty()).collect();
    let most = parted.iter().map(|b| b.total).fold(0.0, f64::max);
    let has_totals = parted.is_empty() || all.iter().any(|b| b.mpi != all[0].mpi);
    section("Instructions", !all.is_empty(), &|| {
        html! {
            p { (INSTRUCTIONS) }
            @if !parted.is_empty() { div class="card" {
                ul class="key" { @for (level, color) in LEVELS {
                    li { span class={ "swatch c" (color) } {} (level) }
                } }
                @for b in &parted { (show_breakdown(b, most)) }
            } }
            @if has_totals { div class="totals" { (tabulate_totals(&all).to_card()) } }
        }
    })
}

fn tabulate_totals(all: &[&Breakdown]) -> Table {
    let names = unique(all.iter().map(|b| b.mpi.as_str()));
    let operations = unique(all.iter().map(|b| (name_operation(b), b.bytes)));
    let mut table = Table::of("total per call");
    table.columns.extend(names.iter().map(|name| Column::number(*name, 0)));
    for (operation, bytes) in operations {
        let total = |name: &&str| {
            let is_same = |b: &&&Breakdown| {
                b.mpi == *name && b.bytes == bytes && name_operation(b) == operation
            };
            all.iter().find(is_same).map_or(NOTHING.to_owned(), |b| format!("{:.1}", b.total))
        };
        let first = format!("{operation}, {}", size(bytes));
        table.row([first].into_iter().chain(names.iter().map(total)));
    }
    table
}

fn name_operation(b: &Breakdown) -> String {
    match b.level {
        Level::Mpi => b.operation.clone(),
        level => format!("{} ({})", b.operation, level.name()),
    }
}

fn show_breakdown(b: &Breakdown, most: f64) -> Markup {
    let share = |v: f64| if most > 0.0 { v / most * 100.0 } else { 0.0 };
    let of_level = |level: &str| {
        let parts = b.parts.iter().filter(|p| p.level == level);
        parts.fold(0.0, |sum, p| sum + p.instructions)
    };
    let sums = LEVELS.map(|(level, color)| (level, color, of_level(level)));
    let rest = b.total - sums.iter().map(|(_, _, sum)| sum).sum::<f64>();
    html! { div class="stack" {
        p {
            b { (text(&name_operation(b))) } " " (size(b.bytes)) ", " (text(&b.mpi)) " "
            b class="count" { (format!("{:.1}", b.total)) }
        }
        div class="row" {
            @for (level, color, sum) in sums.iter().filter(|(_, _, sum)| *sum > 0.0) {
                span class={ "c" (color) } style=(format!("width:{:.2}%",
                    share(*sum))) title=(format!("{level}: {sum:.1}")) {
                    i { @if share(*sum) > 5.0 { (format!("{sum:.0}")) } }
                }
            }
            @if rest > 0.05 {
                span class="c7" style=(format!("width:{:.2}%",
                    share(rest))) title="not broken down" {}
            }
        }
        @if !b.parts.is_empty() { (tabulate_functions(b).to_fold("By function")) }
    } }
}

fn tabulate_functions(b: &Breakdown) -> Table {
    let mut table = Table::of("level|function|instructions>");
    for part in b.parts.iter().take(FUNCTIONS_MAX) {
        let swatch = Some(color_of(&part.level));
        let level = Cell { swatch, ..part.level.clone().into() };
        let count = format!("{:.1}", part.instructions);
        table.row([level, shorten(&part.function, 70).into(), count.into()]);
    }
    let others = b.parts.iter().skip(FUNCTIONS_MAX);
    let left: f64 = others.map(|p| p.instructions).sum();
    if left > 0.0 {
        let count = b.parts.len() - FUNCTIONS_MAX;
        table.row([String::new(), format!("{count} others"), format!("{left:.1}")]);
    }
    table
}

pub fn show_missing(reports: &[Report]) -> Markup {
    let missing =
        || reports.iter().flat_map(|r| r.missing.iter().map(move |m| (&r.run.mpi.name, m)));
    section("Not measured", missing().next().is_some(), &|| {
        html! { ul class="card" { @for (mpi, m) in missing() {
            li { b { (text(&m.test)) } " (" (text(mpi)) ", " (m.level.name()) "): "
                (text(&m.reason)) }
        } } }
    })
}
