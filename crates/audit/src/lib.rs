//! `fastpath audit`: what a pasted table of another tool says, and what its numbers betray.
//!
//! Tools that are known by their headings ([`formats`]) are recognised first: what their columns are
//! is known and not searched for. Of unknown tables the unit of a bandwidth is looked for in the
//! numbers ([`units`]), and in the times of both the step of a clock ([`lattice`]). What is found by
//! a search is reported only where the chance that it is an accident, of all that was tried, is
//! below [`CHANCE_MAX`].

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
use table::{Cell, Column, Role, Table, format_step};
use units::UnitFinding;

/// Options of `fastpath audit`.
#[derive(clap::Args, Debug)]
pub struct AuditOptions {
    /// File with the pasted table; -: standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The greatest chance of an accident at which something is reported. It is the chance that any of all steps, columns
/// and factors that were tried in the text fits by accident.
pub(crate) const CHANCE_MAX: f64 = 1e-3;

/// A longer input is refused.
const BYTES_MAX: u64 = 64 << 20;

/// Rows of an unknown table below this are taken for something else where the text is a known tool's.
const ROWS_BESIDE: usize = 3;

/// What was found in a text.
#[derive(Debug, Serialize)]
pub(crate) struct Audit {
    /// Always `fastpath.audit`.
    pub schema: &'static str,
    /// Version of the JSON form.
    pub version: u32,
    /// The tables, in the order of the text.
    pub tables: Vec<TableFindings>,
    /// Rows of one size in two tables, held against each other.
    pub comparisons: Vec<Comparison>,
}

/// What was found in one table.
#[derive(Debug, Serialize)]
pub(crate) struct TableFindings {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    /// Number of rows.
    pub rows: usize,
    /// The tool, with its version if the text gives it; null: not recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The test, as the tool calls it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The columns.
    pub columns: Vec<ColumnFindings>,
    /// What is known of the tool beside that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<&'static str>,
    /// What the table cannot say.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unknown: &'static str,
    /// Columns that were rounded further than their digits show, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounded: Vec<String>,
    /// The steps of clocks; empty: no tick found.
    pub steps: Vec<ClockStep>,
    /// Units of bandwidths that the numbers betray.
    pub units: Vec<UnitFinding>,
    /// What follows about the statistics, in sentences.
    pub statistics: Vec<String>,
    /// The columns themselves, for those who show them.
    #[serde(skip)]
    pub table: Table,
}

/// What is known of one column.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ColumnFindings {
    /// Its heading, or `column 1` without one.
    pub name: String,
    /// Whether it holds sizes, counts or ranks.
    pub parameter: bool,
    /// Its unit; several where the tool chooses one for each number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its statistic, if the tool or the heading names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistic: Option<&'static str>,
    /// One in the last printed digit, in the column's unit, or the number of digits.
    pub resolution: String,
}

/// The step of a clock in some columns of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClockStep {
    /// The columns, from 0.
    pub columns: Vec<usize>,
    /// The step, in `unit`.
    pub step: f64,
    /// The interval that certainly contains it.
    pub between: (f64, f64),
    /// `ns`, or `column` where the text gives no unit.
    pub unit: &'static str,
    /// Distinct values that are multiples of it.
    pub values: usize,
    /// How many such steps are expected by chance.
    pub chance: f64,
    /// How the printed digits came about.
    pub rounding: Rounding,
    /// Clocks that make it, simplest first.
    pub clocks: Vec<Explanation>,
    #[serde(skip)]
    lattice: Lattice,
}

/// A column that may show a clock: where it is, and its cells in nanoseconds if the unit is known.
struct Candidate {
    table: usize,
    column: usize,
    name: String,
    is_time: bool,
    cells: Vec<Cell>,
}

/// Finds all that the text says and its numbers betray.
pub(crate) fn audit(text: &str) -> Audit {
    audit_at(text, CHANCE_MAX)
}

/// The same, with what is less likely than `chance_max` to be an accident.
fn audit_at(text: &str, chance_max: f64) -> Audit {
    let tables = read_tables(text);
    let mut candidates = collect_candidates(&tables);
    let open: Vec<&Table> = tables.iter().collect();
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
            // Which of the two is the time their product does not say; a clock does.
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

/// The tables of known tools and, in the lines that these leave, those of others.
fn read_tables(text: &str) -> Vec<Table> {
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

fn open_findings(table: Table) -> TableFindings {
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

/// What coarse numbers say of a column: a power of ten is no clock's step, but printed digits or a conversion.
fn describe_rounding((index, column): (usize, &Column)) -> Option<String> {
    let coarse = format_step(column.coarse?);
    let unit = column.unit().map_or(String::new(), |u| format!(" {}", u.name));
    Some(format!(
        "`{}`: all values are multiples of {coarse}{unit}: rounded, or converted from a coarser \
         unit",
        column.label(index)
    ))
}

/// The columns in which the step of a clock may show: times, and of unknown tables whatever may be one.
fn collect_candidates(tables: &[Table]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (t, table) in tables.iter().enumerate() {
        for (c, column) in table.columns.iter().enumerate() {
            let ns = column.unit().and_then(|u| u.ns);
            let may_be = ns.is_some() || (table.tool.is_none() && column.units.is_empty());
            if !may_be || column.is_parameter() || column.role == Role::Derived {
                continue;
            }
            let named = !column.name.is_empty();
            all.push(Candidate {
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

/// Sets of columns that may share a clock: single ones, those of one name or place, pairs in a table, all of one unit.
fn group_candidates(all: &[Candidate]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = (0..all.len()).map(|i| vec![i]).collect();
    let matching = |test: &dyn Fn(&Candidate) -> bool| -> Vec<usize> {
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
    // A text of a great many columns is searched one by one only.
    groups.truncate(all.len().max(400));
    groups
}

/// The least accidental step of any set of columns, and all columns that agree with it.
fn find_lattice(all: &[Candidate], chance_max: f64) -> Option<(Lattice, Vec<usize>)> {
    let groups = group_candidates(all);
    let search = |group: &Vec<usize>| {
        let cells: Vec<Cell> = group.iter().flat_map(|&i| all[i].cells.clone()).collect();
        Some((lattice::find_step(&cells, groups.len(), chance_max)?, group.clone()))
    };
    // Of equal ones that of the most columns: the others of it add no value of their own.
    let better = |a: &(Lattice, Vec<usize>), b: &(Lattice, Vec<usize>)| {
        let chances = a.0.chance.total_cmp(&b.0.chance);
        chances.then(b.1.len().cmp(&a.1.len()))
    };
    let (lattice, group) = groups.iter().filter_map(search).min_by(better)?;
    let is_time = all[group[0]].is_time;
    let agrees = |c: &Candidate| {
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
    findings: &mut [TableFindings], all: &[Candidate], lattice: &Lattice, members: &[usize],
) {
    for (index, finding) in findings.iter_mut().enumerate() {
        let of_table = members.iter().map(|&m| &all[m]);
        let columns: Vec<&Candidate> = of_table.filter(|c| c.table == index).collect();
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

/// What the steps of a clock say of the columns on them and beside them.
fn judge_statistics(finding: &TableFindings) -> Vec<String> {
    let mut said = Vec::new();
    let name = |i: usize| finding.columns[i].name.as_str();
    for step in &finding.steps {
        for &column in &step.columns {
            let what = match finding.columns[column].statistic {
                Some(s) if s.contains(MEAN) => {
                    "is called a mean, and a mean of many samples does not fall on whole steps: \
                     it was divided in whole \
                     steps, and if that rounds down the truth is up to one step more"
                }
                Some(s) => {
                    &format!("is called a {s}, and falls on whole steps as single samples do")
                }
                None => {
                    "falls on whole steps: it is a single sample (minimum, median, maximum), or a \
                     mean that was divided in \
                     whole steps, so that the truth is up to one step more"
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
        let measured = !column.is_parameter() && column.role != Role::Derived;
        let same = ns(index).is_some() == ns(first).is_some();
        // What has neither heading nor unit may be anything, a share of the processor for one.
        let is_known = ns(index).is_some() || !column.name.is_empty();
        let in_unit = finding.units.iter().any(|u| u.bandwidth == index);
        let mut cells = column.cells.iter().map(|c| c.scaled(ns(index).unwrap_or(1.0)));
        let misses = cells.any(|c| step.lattice.multiple(c).is_none());
        if measured && same && is_known && !on(index) && !in_unit && misses {
            said.push(format!(
                "`{}` does not fall on the steps: a mean over several samples, or another clock",
                name(index)
            ));
        }
    }
    said
}

/// Does what `fastpath audit` was asked for.
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
                "this is JSON, whose fields say what they are: paste the table that the tool \
                 prints as text"
            }
            false => "no table found: rows of numbers are needed, as a tool prints them",
        };
        return Err(io::Error::other(why));
    }
    document::write(options.json, &found, || show::describe(&found))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
