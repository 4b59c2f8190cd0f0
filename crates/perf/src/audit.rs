//! `fastpath audit`: what a pasted table of another tool says about how it was made.
//!
//! Nothing is recognised by name: steps of a clock ([`lattice`]) and units ([`units`]) are found
//! in the numbers. Headings only add what is known of the method behind them.

pub mod clocks;
pub mod lattice;
pub mod parse;
mod show;
pub mod statistics;
pub mod units;

use std::io::{self, Read};
use std::path::PathBuf;

use serde::Serialize;

use clocks::Explanation;
use lattice::{Lattice, Rounding};
use parse::{Cell, Column, Table, TimeUnit};
use units::UnitFinding;

/// Options of `fastpath audit`.
#[derive(clap::Args, Debug)]
pub struct AuditOptions {
    /// File with the pasted table; - is the standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A column whose values all fit a step that others show is taken to share it, unless its values
/// would fit any step with more than this chance.
const AGREES_BELOW: f64 = 0.2;

/// What was found in a text.
#[derive(Debug, Serialize)]
pub struct Audit {
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
pub struct TableFindings {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    /// Number of rows.
    pub rows: usize,
    /// Headings, or `column 1` where there is none.
    pub columns: Vec<String>,
    /// Columns that hold sizes, counts or ranks.
    pub parameters: Vec<usize>,
    /// The steps of clocks; empty: no tick found.
    pub steps: Vec<Step>,
    /// Units of bandwidths.
    pub units: Vec<UnitFinding>,
    /// What is known or follows about the statistics, in sentences.
    pub statistics: Vec<String>,
    /// The columns themselves, for those who show them.
    #[serde(skip)]
    pub table: Table,
}

/// The step of a clock in some columns of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The columns, from 0.
    pub columns: Vec<usize>,
    /// The step, in `unit`.
    pub step: f64,
    /// The interval in which it lies for certain.
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

/// One size in two tables.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The two tables, from 0.
    pub tables: (usize, usize),
    /// The size (or what the first column of parameters holds).
    pub at: f64,
    /// The printed values.
    pub values: (f64, f64),
    /// Their difference, in the unit of the column.
    pub difference: f64,
    /// What the steps of the clock leave of it: an interval in the unit of the column.
    pub between: (f64, f64),
    /// Whether that interval excludes no difference at all.
    pub tells: bool,
}

/// A column that may show a clock: where it is, and its cells in nanoseconds if the unit is known.
struct Candidate {
    table: usize,
    column: usize,
    name: String,
    unit: Option<TimeUnit>,
    cells: Vec<Cell>,
}

/// Finds all that the text's numbers betray.
pub fn audit(text: &str) -> Audit {
    let tables = parse::find_tables(text);
    let mut candidates = collect_candidates(&tables);
    let mut findings: Vec<TableFindings> = tables.into_iter().map(open_findings).collect();
    while let Some((lattice, members)) = find_lattice(&candidates) {
        record_step(&mut findings, &candidates, &lattice, &members);
        let mut index = 0;
        candidates.retain(|_| {
            index += 1;
            !members.contains(&(index - 1))
        });
    }
    for finding in &mut findings {
        finding.units = units::find_units(&finding.table);
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
        version: 1,
        comparisons: compare_tables(&findings),
        tables: findings,
    }
}

fn open_findings(table: Table) -> TableFindings {
    let name = |(i, c): (usize, &Column)| match c.name.as_str() {
        "" => format!("column {}", i + 1),
        name => name.to_owned(),
    };
    let parameters = (0..table.columns.len()).filter(|&i| table.columns[i].is_parameter());
    TableFindings {
        lines: table.lines,
        rows: table.rows(),
        columns: table.columns.iter().enumerate().map(name).collect(),
        parameters: parameters.collect(),
        steps: Vec::new(),
        units: Vec::new(),
        statistics: Vec::new(),
        table,
    }
}

fn collect_candidates(tables: &[Table]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (t, table) in tables.iter().enumerate() {
        for (c, column) in table.columns.iter().enumerate() {
            if column.is_parameter() {
                continue;
            }
            let scale = column.unit.map_or(1.0, |u| u.ns);
            let named = !column.name.is_empty();
            all.push(Candidate {
                table: t,
                column: c,
                name: if named {
                    column.name.clone()
                } else {
                    format!("{c}")
                },
                unit: column.unit,
                cells: column.cells.iter().map(|c| c.scaled(scale)).collect(),
            });
        }
    }
    all
}

/// Sets of columns that may share a clock: each alone, those of one name or place, pairs in a
/// table, all of one unit.
fn group_candidates(all: &[Candidate]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = (0..all.len()).map(|i| vec![i]).collect();
    let matching = |test: &dyn Fn(&Candidate) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|&i| test(&all[i])).collect()
    };
    for (i, a) in all.iter().enumerate() {
        groups.push(matching(&|b| b.unit == a.unit && b.name == a.name));
        groups.push(matching(&|b| b.unit == a.unit));
        groups.push(matching(&|b| b.unit == a.unit && b.table == a.table));
        for (j, b) in all.iter().enumerate().skip(i + 1) {
            if b.table == a.table && b.unit == a.unit {
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
fn find_lattice(all: &[Candidate]) -> Option<(Lattice, Vec<usize>)> {
    let groups = group_candidates(all);
    let search = |group: &Vec<usize>| {
        let cells: Vec<Cell> = group.iter().flat_map(|&i| all[i].cells.clone()).collect();
        Some((lattice::find_step(&cells, groups.len())?, group.clone()))
    };
    let found = groups.iter().filter_map(search);
    let (lattice, group) = found.min_by(|a, b| a.0.chance.total_cmp(&b.0.chance))?;
    let unit = all[group[0]].unit;
    let agrees = |c: &Candidate| {
        let fits = c.cells.iter().all(|&v| lattice.multiple(v).is_some());
        let chance = |v: &Cell| (2.0 * v.quantum / lattice.step()).min(1.0);
        let mut distinct = c.cells.clone();
        distinct.sort_by(|a, b| a.value.total_cmp(&b.value));
        distinct.dedup();
        fits && c.unit == unit && distinct.iter().map(chance).product::<f64>() < AGREES_BELOW
    };
    let members = (0..all.len()).filter(|i| group.contains(i) || agrees(&all[*i]));
    Some((lattice, members.collect()))
}

fn record_step(
    findings: &mut [TableFindings],
    all: &[Candidate],
    lattice: &Lattice,
    members: &[usize],
) {
    for (index, finding) in findings.iter_mut().enumerate() {
        let of_table = members.iter().map(|&m| &all[m]);
        let columns: Vec<&Candidate> = of_table.filter(|c| c.table == index).collect();
        let Some(first) = columns.first() else {
            continue;
        };
        finding.steps.push(Step {
            columns: columns.iter().map(|c| c.column).collect(),
            step: lattice.step(),
            between: (lattice.low, lattice.high),
            unit: if first.unit.is_some() { "ns" } else { "column" },
            values: lattice.values,
            chance: lattice.chance,
            rounding: lattice.rounding,
            clocks: match first.unit {
                Some(_) => clocks::explain_step(lattice.low, lattice.high),
                None => clocks::explain_bare_step(lattice.low, lattice.high),
            },
            lattice: *lattice,
        });
    }
}

fn judge_statistics(finding: &TableFindings) -> Vec<String> {
    let mut said = Vec::new();
    let name = |i: usize| finding.columns[i].as_str();
    let bandwidths: Vec<usize> = finding.units.iter().map(|u| u.bandwidth).collect();
    if let Some((low, high)) = statistics::find_extremes(&finding.table, &bandwidths) {
        said.push(format!(
            "`{}` is the smallest and `{}` the largest of the measured columns in every row: minimum and maximum",
            name(low),
            name(high)
        ));
    }
    for step in &finding.steps {
        for &column in &step.columns {
            let what = match statistics::named_statistic(name(column)) {
                Some(statistics::Statistic::Mean) => {
                    "is called a mean, and a mean of many samples does not fall on whole steps: it was divided in whole \
                     steps, and if that rounds down the truth is up to one step more"
                }
                Some(s) => &format!(
                    "is called a {}, and falls on whole steps as single samples do",
                    s.name()
                ),
                None => {
                    "falls on whole steps: it is a single sample (minimum, median, maximum), or a mean that was divided in \
                     whole steps, so that the truth is up to one step more"
                }
            };
            said.push(format!("`{}` {what}", name(column)));
        }
    }
    if let Some(step) = finding.steps.first() {
        let measured = (0..finding.columns.len()).filter(|i| !finding.parameters.contains(i));
        let unit = |i: usize| finding.table.columns[i].unit;
        let same = measured.filter(|&i| step.columns.first().is_some_and(|&f| unit(f) == unit(i)));
        let on = |i: &usize| finding.steps.iter().any(|s| s.columns.contains(i));
        let in_unit = |i: &usize| !finding.units.iter().any(|u| u.bandwidth == *i);
        let scale = |i: usize| unit(i).map_or(1.0, |u| u.ns);
        let misses = |i: &usize| {
            let cells = finding.table.columns[*i].cells.iter();
            let scaled = |c: &Cell| c.scaled(scale(*i));
            cells
                .map(scaled)
                .any(|c| step.lattice.multiple(c).is_none())
        };
        // What has neither heading nor unit may be anything, a share of the processor for one.
        let is_known = |&i: &usize| unit(i).is_some() || !finding.table.columns[i].name.is_empty();
        let others = same.filter(|i| !on(i) && is_known(i) && in_unit(i) && misses(i));
        for column in others {
            said.push(format!(
                "`{}` does not fall on the steps: a mean over several samples, or another clock",
                name(column)
            ));
        }
    }
    said.extend(statistics::known_method(&finding.table).map(str::to_owned));
    said
}

/// Rows with the same parameter in two tables that follow each other, by their last columns with a
/// step.
fn compare_tables(findings: &[TableFindings]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for (second, b) in findings.iter().enumerate() {
        for (first, a) in findings[..second].iter().enumerate() {
            let (Some(x), Some(y)) = (stepped(a), stepped(b)) else {
                continue;
            };
            let resolution = x.2.max(y.2);
            for (at, value) in x.0.iter().zip(x.1) {
                let same = y.0.iter().position(|o| o.value == at.value);
                let Some(other) = same.map(|row| y.1[row]) else {
                    continue;
                };
                let difference = other.value - value.value;
                all.push(Comparison {
                    tables: (first, second),
                    at: at.value,
                    values: (value.value, other.value),
                    difference,
                    between: (difference - resolution, difference + resolution),
                    tells: difference.abs() > resolution * 1.05,
                });
            }
        }
    }
    all
}

/// The parameters, the values and the step (in the column's unit) of a table's typical column.
fn stepped(finding: &TableFindings) -> Option<(&[Cell], &[Cell], f64)> {
    let step = finding.steps.first()?;
    let is_median = |&&c: &&usize| {
        let statistic = statistics::named_statistic(&finding.columns[c]);
        statistic == Some(statistics::Statistic::Median)
    };
    let column = step
        .columns
        .iter()
        .find(is_median)
        .or(step.columns.first())?;
    let at = finding.parameters.first()?;
    let column = &finding.table.columns[*column];
    let scale = column.unit.map_or(1.0, |u| u.ns);
    Some((
        &finding.table.columns[*at].cells,
        &column.cells,
        step.step / scale,
    ))
}

/// Does what `fastpath audit` was asked for.
///
/// # Errors
/// The text cannot be read, holds no table, or the findings cannot be written.
pub fn run(options: &AuditOptions) -> io::Result<()> {
    let mut bytes = Vec::new();
    if options.file.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(&options.file)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", options.file.display())))?;
    }
    let found = audit(&String::from_utf8_lossy(&bytes));
    if found.tables.is_empty() {
        let why = "no table found: rows of numbers are needed, as a tool prints them";
        return Err(io::Error::other(why));
    }
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer(&mut out, &found)?;
        io::Write::write_all(&mut out, b"\n")
    } else {
        show::write_text(&found, &mut out)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
