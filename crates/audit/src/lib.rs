//! `fastpath audit`: interprets a pasted table of another tool, and detects hidden properties of its numbers.
//!
//! Tools with known headings ([`formats`]) are recognised first: their columns are known and not searched. In unknown
//! tables the unit of a bandwidth is inferred from the numbers ([`units`]). In the times of known and unknown tables,
//! the step of a clock is searched ([`lattice`]). A search result is reported only if the chance of an accident, over
//! all that was tried, is below [`CHANCE_MAX`].

mod clocks;
mod compare;
mod formats;
mod lattice;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
mod parse;
mod recognise;
mod show;
mod statistics;
mod table;
mod units;

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use clocks::Explanation;
use compare::{Comparison, compare_tables};
use fastpath_report::document;
use fastpath_report::files::read_input;
use lattice::{Lattice, Rounding};
use statistics::MEAN;
use table::{Cell, Column, ColumnRole, ParsedTable, format_step};
use units::UnitFinding;

/// Options of `fastpath audit`.
#[derive(clap::Args, Debug)]
pub struct AuditOptions {
    /// File with the pasted table; `-`: standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Largest chance of an accident at which a result is reported, over all steps, columns and factors that were tried.
pub(crate) const CHANCE_MAX: f64 = 1e-3;

/// Largest input, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// Minimum size of a table of an unknown tool: in rows if the text has tables of a known tool, else in values.
const ROWS_BESIDE: usize = 3;

#[derive(Debug, Serialize)]
pub(crate) struct Audit {
    /// Always `fastpath.audit`.
    pub schema: &'static str,
    pub version: u32,
    pub tables: Vec<TableFindings>,
    pub comparisons: Vec<Comparison>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TableFindings {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    pub rows: usize,
    /// The tool, with its version if the text has it; null: not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    pub columns: Vec<ColumnFindings>,
    /// Further facts about the tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<&'static str>,
    /// Facts that the table does not show.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unknown: &'static str,
    /// Sentences about columns that were rounded further than their digits show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounded: Vec<String>,
    /// Steps of clocks; empty if none was found.
    pub steps: Vec<ClockStep>,
    pub units: Vec<UnitFinding>,
    /// Conclusions about the statistics, in sentences.
    pub statistics: Vec<String>,
    #[serde(skip)]
    pub table: ParsedTable,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ColumnFindings {
    /// Heading, or `column 1` without one.
    pub name: String,
    /// Whether the column holds sizes, counts or ranks.
    pub parameter: bool,
    /// Unit; several if the tool chooses one for each number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<&'static str>,
    /// Value of one in the last printed digit, in the column's unit; or the number of printed digits.
    pub resolution: String,
}

/// Step of a clock in some columns of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClockStep {
    /// Columns, from 0.
    pub columns: Vec<usize>,
    pub step: f64,
    /// Interval that certainly contains the step.
    pub between: (f64, f64),
    /// `ns`, or `column` if the text gives no unit.
    pub unit: &'static str,
    /// Number of distinct values that are multiples of the step.
    pub values: usize,
    /// Expected number of such steps by chance.
    pub chance: f64,
    pub rounding: Rounding,
    /// Clocks that explain the step, simplest first.
    pub clocks: Vec<Explanation>,
    #[serde(skip)]
    lattice: Lattice,
}

/// A column that may show a clock: its position, and its cells in nanoseconds if the unit is known.
struct ClockCandidate {
    table: usize,
    column: usize,
    name: String,
    is_time: bool,
    cells: Vec<Cell>,
}

pub(crate) fn audit(text: &str) -> Audit {
    audit_at(text, CHANCE_MAX)
}

/// Finds every property of a text whose chance of being an accident is below `chance_max`.
fn audit_at(text: &str, chance_max: f64) -> Audit {
    let tables = read_tables(text);
    let mut candidates = collect_candidates(&tables);
    let open: Vec<&ParsedTable> = tables.iter().collect();
    let units = units::find_units(&open, chance_max);
    let mut findings: Vec<TableFindings> = tables.into_iter().map(open_findings).collect();
    while let Some((lattice, members)) = find_lattice(&candidates, chance_max) {
        record_step(&mut findings, &candidates, &lattice, &members);
        let mut index = 0;
        candidates.retain(|_| {
            index += 1;
            !members.contains(&(index - 1))
        });
    }
    for (finding, units) in findings.iter_mut().zip(units) {
        finding.units = units;
        let on_steps = |c: usize| finding.steps.iter().any(|s| s.columns.contains(&c));
        for unit in &mut finding.units {
            // The product of the two columns does not show which of them is the time; the step of a clock does.
            if unit.by_time && on_steps(unit.bandwidth) && !on_steps(unit.other) {
                std::mem::swap(&mut unit.bandwidth, &mut unit.other);
            }
        }
        finding.statistics = judge_statistics(finding);
    }
    Audit {
        schema: "fastpath.audit",
        version: 2,
        comparisons: compare_tables(&findings),
        tables: findings,
    }
}

/// Reads the tables of known tools and, from the remaining lines, the tables of unknown tools.
fn read_tables(text: &str) -> Vec<ParsedTable> {
    let known = recognise::recognise(text);
    let mut others = parse::find_tables(text, &known.taken);
    let is_alone = known.tables.is_empty();
    others.retain(|t| match is_alone {
        true => t.rows() * t.columns.len() >= ROWS_BESIDE,
        false => t.rows() >= ROWS_BESIDE && t.columns.len() > 1,
    });
    let mut tables = known.tables;
    tables.extend(others);
    tables.sort_by_key(|t| t.lines);
    let columns = tables.iter_mut().flat_map(|t| &mut t.columns);
    columns.for_each(|c| c.coarsen(CHANCE_MAX));
    tables
}

fn open_findings(table: ParsedTable) -> TableFindings {
    let rounded = table.columns.iter().enumerate().filter_map(describe_rounding);
    let describe = |(i, c): (usize, &Column)| {
        let units: Vec<&str> = c.units.iter().map(|u| u.name).collect();
        ColumnFindings {
            name: c.label(i),
            parameter: c.is_parameter(),
            unit: (!units.is_empty()).then(|| units.join(", ")),
            statistic: c.statistic,
            resolution: c.resolution().to_string(),
        }
    };
    TableFindings {
        rounded: rounded.collect(),
        lines: table.lines,
        rows: table.rows(),
        tool: table.tool.clone(),
        title: table.title.clone(),
        columns: table.columns.iter().enumerate().map(describe).collect(),
        known: table.known.clone(),
        unknown: table.unknown,
        steps: Vec::new(),
        units: Vec::new(),
        statistics: Vec::new(),
        table,
    }
}

/// Describes coarse numbers of a column: a power of ten is not a clock's step, but a property of the output or of a
/// conversion.
fn describe_rounding((index, column): (usize, &Column)) -> Option<String> {
    let coarse = format_step(column.coarse?);
    let unit = column.unit().map_or(String::new(), |u| format!(" {}", u.name));
    Some(format!(
        "`{}`: all values are multiples of {coarse}{unit}, so they were rounded, or converted from \
         a coarser unit",
        column.label(index)
    ))
}

/// Lists the columns whose values may show the step of a clock: columns with a unit of time and, in tables of unknown
/// tools, columns without a unit. Parameters and derived values are left out.
fn collect_candidates(tables: &[ParsedTable]) -> Vec<ClockCandidate> {
    let mut all = Vec::new();
    for (t, table) in tables.iter().enumerate() {
        for (c, column) in table.columns.iter().enumerate() {
            let ns = column.unit().and_then(|u| u.ns);
            let may_be = ns.is_some() || (table.tool.is_none() && column.units.is_empty());
            if !may_be || column.is_parameter() || column.role == ColumnRole::Derived {
                continue;
            }
            let named = !column.name.is_empty();
            all.push(ClockCandidate {
                table: t,
                column: c,
                name: if named { column.name.clone() } else { format!("{c}") },
                is_time: ns.is_some(),
                cells: column.cells.iter().map(|c| c.scaled(ns.unwrap_or(1.0))).collect(),
            });
        }
    }
    all
}

/// Sets of columns that may share a clock: single columns, columns of one name, position or unit, and pairs in a table.
fn group_candidates(all: &[ClockCandidate]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = (0..all.len()).map(|i| vec![i]).collect();
    let matching = |test: &dyn Fn(&ClockCandidate) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|&i| test(&all[i])).collect()
    };
    for (i, a) in all.iter().enumerate() {
        groups.push(matching(&|b| b.is_time == a.is_time && b.name == a.name));
        groups.push(matching(&|b| b.is_time == a.is_time));
        groups.push(matching(&|b| b.is_time == a.is_time && b.table == a.table));
        for (j, b) in all.iter().enumerate().skip(i + 1) {
            if b.table == a.table && b.is_time == a.is_time {
                groups.push(vec![i, j]);
            }
        }
    }
    groups.retain(|g| !g.is_empty());
    groups.sort();
    groups.dedup();
    // In a text with very many columns, the columns are searched only one by one.
    groups.truncate(all.len().max(400));
    groups
}

/// Finds, over all sets of columns, the step that is least likely to be an accident, and all columns that agree with
/// this step.
fn find_lattice(all: &[ClockCandidate], chance_max: f64) -> Option<(Lattice, Vec<usize>)> {
    let groups = group_candidates(all);
    let search = |group: &Vec<usize>| {
        let cells: Vec<Cell> = group.iter().flat_map(|&i| all[i].cells.clone()).collect();
        Some((lattice::find_step(&cells, groups.len(), chance_max)?, group.clone()))
    };
    // Among equal chances, prefer the set with the most columns: its further columns add no new values.
    let better = |a: &(Lattice, Vec<usize>), b: &(Lattice, Vec<usize>)| {
        let chances = a.0.chance.total_cmp(&b.0.chance);
        chances.then(b.1.len().cmp(&a.1.len()))
    };
    let (lattice, group) = groups.iter().filter_map(search).min_by(better)?;
    let is_time = all[group[0]].is_time;
    let agrees = |c: &ClockCandidate| {
        let fits = c.cells.iter().all(|&v| lattice.multiple(v).is_some());
        let chance = |v: &Cell| (2.0 * v.quantum / lattice.step()).min(1.0);
        let mut distinct = c.cells.clone();
        distinct.sort_by(|a, b| a.value.total_cmp(&b.value));
        distinct.dedup();
        let accident = distinct.iter().map(chance).product::<f64>() * all.len() as f64;
        fits && c.is_time == is_time && accident < chance_max
    };
    let members = (0..all.len()).filter(|i| group.contains(i) || agrees(&all[*i]));
    Some((lattice, members.collect()))
}

fn record_step(
    findings: &mut [TableFindings], all: &[ClockCandidate], lattice: &Lattice, members: &[usize],
) {
    for (index, finding) in findings.iter_mut().enumerate() {
        let of_table = members.iter().map(|&m| &all[m]);
        let columns: Vec<&ClockCandidate> = of_table.filter(|c| c.table == index).collect();
        let Some(first) = columns.first() else {
            continue;
        };
        finding.steps.push(ClockStep {
            columns: columns.iter().map(|c| c.column).collect(),
            step: lattice.step(),
            between: (lattice.low, lattice.high),
            unit: if first.is_time { "ns" } else { "column" },
            values: lattice.values,
            chance: lattice.chance,
            rounding: lattice.rounding,
            clocks: match first.is_time {
                true => clocks::explain_step(lattice.low, lattice.high),
                false => clocks::explain_bare_step(lattice.low, lattice.high),
            },
            lattice: *lattice,
        });
    }
}

/// Conclusions from the steps of a clock about the columns with and without the step.
fn judge_statistics(finding: &TableFindings) -> Vec<String> {
    let mut said = Vec::new();
    let name = |i: usize| finding.columns[i].name.as_str();
    for step in &finding.steps {
        for &column in &step.columns {
            let what = match finding.columns[column].statistic {
                Some(s) if s.contains(MEAN) => {
                    "is named as a mean, but all values are multiples of the clock step, so the \
                     tool computed the mean by integer division of clock steps. If this division \
                     rounds down, the true mean is up to one step larger"
                }
                Some(s) => &format!(
                    "is named as a {s}, and all values are multiples of the clock step, as \
                     expected of single samples"
                ),
                None => {
                    "has only multiples of the clock step, so it is a single sample (minimum, \
                     median, maximum), or a mean computed by integer division of clock steps. The \
                     true value of a mean may then be up to one step larger"
                }
            };
            said.push(format!("`{}` {what}", name(column)));
        }
    }
    let Some(step) = finding.steps.first() else {
        return said;
    };
    let columns = &finding.table.columns;
    let ns = |i: usize| columns[i].unit().and_then(|u| u.ns);
    let on = |i: usize| finding.steps.iter().any(|s| s.columns.contains(&i));
    let first = step.columns.first().copied().unwrap_or(0);
    for (index, column) in columns.iter().enumerate() {
        let measured = !column.is_parameter() && column.role != ColumnRole::Derived;
        let same = ns(index).is_some() == ns(first).is_some();
        // A column without heading and unit may be anything, for instance a share of the processor.
        let is_known = ns(index).is_some() || !column.name.is_empty();
        let in_unit = finding.units.iter().any(|u| u.bandwidth == index);
        let mut cells = column.cells.iter().map(|c| c.scaled(ns(index).unwrap_or(1.0)));
        let misses = cells.any(|c| step.lattice.multiple(c).is_none());
        if measured && same && is_known && !on(index) && !in_unit && misses {
            said.push(format!(
                "`{}` has values between the steps of the clock, so it is a mean over several \
                 samples, or comes from another clock",
                name(index)
            ));
        }
    }
    said
}

/// Runs `fastpath audit`.
///
/// # Errors
/// The text cannot be read, holds no table, or the findings cannot be written.
pub fn run(options: &AuditOptions) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", options.file.display()));
    let bytes = read_input(&options.file, BYTES_MAX).map_err(named)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = console::strip_ansi_codes(&text);
    let found = audit(&text);
    if found.tables.is_empty() {
        let why = match text.trim_start().starts_with(['{', '[']) {
            true => {
                "the text is JSON, whose fields need no audit; pass the table that the tool prints \
                 as text"
            }
            false => "the text contains no table; pass the rows of numbers that a tool prints",
        };
        return Err(io::Error::other(why));
    }
    document::write(options.json, &found, || show::describe(&found))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
