//! Comparison of rows of one size in two tables that both show a clock's step.

use serde::Serialize;

use super::TableFindings;
use super::statistics::MEDIAN;
use super::table::Cell;

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Numbers of the two tables, from 0.
    pub tables: (usize, usize),
    /// The size (or the value of the first parameter column).
    pub at: f64,
    pub values: (f64, f64),
    /// Difference, in the unit of the column.
    pub difference: f64,
    /// Interval of the true difference, given the steps of the clock, in the unit of the column.
    pub between: (f64, f64),
    /// Whether `between` excludes zero.
    pub tells: bool,
}

/// Compares rows with equal parameters in each pair of tables that show a step, by the columns of [`stepped`].
pub fn compare_tables(findings: &[TableFindings]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for (second, b) in findings.iter().enumerate() {
        for (first, a) in findings[..second].iter().enumerate() {
            let (Some(x), Some(y)) = (stepped(a), stepped(b)) else {
                continue;
            };
            let resolution = x.2.max(y.2);
            for (at, value) in x.0.iter().zip(x.1) {
                let same = y.0.iter().position(|o| o.value == at.value);
                let Some(other) = same.and_then(|row| y.1.get(row)) else {
                    continue;
                };
                let difference = other.value - value.value;
                if !difference.is_finite() {
                    continue;
                }
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

/// Parameters, values and step (in the column's unit) of the median column with a step, else of the first such column.
fn stepped(finding: &TableFindings) -> Option<(&[Cell], &[Cell], f64)> {
    let step = finding.steps.first()?;
    let is_median = |&&c: &&usize| finding.columns[c].statistic == Some(MEDIAN);
    let column = step.columns.iter().find(is_median);
    let column = column.or(step.columns.first())?;
    let at = finding.columns.iter().position(|c| c.parameter)?;
    let column = &finding.table.columns[*column];
    let scale = column.unit().and_then(|u| u.ns).unwrap_or(1.0);
    let at = &finding.table.columns[at].cells;
    Some((at, &column.cells, step.step / scale))
}
