//! Table of an ablation, for terminals and pages: each row adds one optimisation to those of the rows above, with times
//! and instructions.

use crate::document::{Cell, Column, Table};
use crate::format::{size, time};
use crate::record::interval::{Ratio, Verdict};
use crate::record::{AblationStep, Breakdown, Case};

/// Name of a step, by the optimisation that it adds.
pub fn name_step(added: &str) -> String {
    match added {
        "" => "all off".to_owned(),
        added => format!("+ {added}"),
    }
}

/// Table of the steps, for terminals and pages.
pub fn tabulate(steps: &[AblationStep]) -> Table {
    let Some(first) = steps.iter().find(|step| !step.cases.is_empty()) else {
        return Table::default();
    };
    let head = |name: String, below: String| Column::number(Cell { below, ..name.into() }, 0);
    let of_case = |c: &Case| {
        head(format!("{} {}", c.test, c.variant), format!("{}, {}", size(c.bytes), c.of.text()))
    };
    let of_call =
        |b: &Breakdown| head(b.operation.clone(), format!("{}, instructions", size(b.bytes)));
    let columns = first.cases.iter().map(of_case).chain(first.instructions.iter().map(of_call));
    let mut table = Table::new([Column::text("step", 0)].into_iter().chain(columns));
    for step in steps {
        let times = first.cases.iter().map(|case| {
            let same = step.cases.iter().find(|c| c.key() == case.key());
            let value = same.and_then(|c| c.samples.quantile(0.5));
            let change = step.find_change(case).map(|c| &c.ratio);
            bar(value, case.samples.quantile(0.5), time, change)
        });
        let counts = first.instructions.iter().map(|b| {
            let is_same = |o: &&Breakdown| (&o.operation, o.bytes) == (&b.operation, b.bytes);
            let same = step.instructions.iter().find(is_same);
            bar(same.map(|o| o.total), Some(b.total), |v| format!("{v:.1}"), None)
        });
        table.row([Cell::from(name_step(&step.added))].into_iter().chain(times).chain(counts));
    }
    table
}

fn bar(
    value: Option<f64>, whole: Option<f64>, show: fn(f64) -> String, change: Option<&Ratio>,
) -> Cell {
    let (Some(value), Some(whole)) = (value, whole) else {
        return "-".into();
    };
    Cell {
        text: show(value),
        below: change.map_or(String::new(), |ratio| format!("\u{d7}{ratio}")),
        is_strong: change.is_some_and(|ratio| ratio.judge() != Verdict::CannotTell),
        share: Some(if whole > 0.0 { value / whole } else { 0.0 }),
        swatch: None,
    }
}
