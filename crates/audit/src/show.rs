//! Findings of an audit as text.

use fastpath_report::document::{Document, Table};
use fastpath_report::format::behind;

use super::lattice::Rounding;
use super::units::{Base, UnitFinding};
use super::{Audit, ClockStep, ColumnFindings, Comparison, TableFindings};

/// Largest number of compared rows that are printed.
const ROWS_MAX: usize = 40;

/// Least number of consecutive columns of equal unit, statistic and resolution that share one line.
const RUN_MIN: usize = 4;

pub fn describe(audit: &Audit) -> Document {
    let mut all = Document::default();
    let mut said: Vec<(&str, &str)> = Vec::new();
    for (index, table) in audit.tables.iter().enumerate() {
        all.heading(say_head(index, table));
        let like = |t: &TableFindings| t.tool == table.tool && t.columns == table.columns;
        match audit.tables[..index].iter().position(like) {
            Some(first) => all.pair("columns", format!("as in table {}", first + 1)),
            None => all.table(list_columns(&table.columns)),
        }
        let tool = table.tool.as_deref().unwrap_or("");
        let known = table.known.iter().map(|text| ("known", *text));
        for (what, text) in known.chain([("unknown", table.unknown)]) {
            if !text.is_empty() && !said.contains(&(tool, text)) {
                said.push((tool, text));
                all.pair(what, text);
            }
        }
        describe_findings(table, &mut all);
    }
    compare_tables(&audit.comparisons, &mut all);
    all
}

fn say_head(index: usize, table: &TableFindings) -> String {
    let tool = table.tool.as_deref().unwrap_or("no known tool");
    let title = behind(", ", &table.title);
    let lines = match table.lines {
        (from, to) if from == to => format!("line {from}"),
        (from, to) if table.rows == 1 => format!("lines {from} to {to}"),
        (from, to) => format!("lines {from} to {to}, {} rows", table.rows),
    };
    format!("table {}: {tool}{title}; {lines}", index + 1)
}

fn list_columns(columns: &[ColumnFindings]) -> Table {
    let mut table = Table::of("column|unit|statistic|resolution");
    let unit = |c: &ColumnFindings| c.unit.clone().unwrap_or_else(|| "-".into());
    let of = |c: &ColumnFindings| (unit(c), c.statistic, c.resolution.clone());
    for run in columns.chunk_by(|a, b| of(a) == of(b)) {
        let row = |name: String, c: &ColumnFindings| {
            let statistic = c.statistic.unwrap_or("-").to_owned();
            let [name, unit, statistic] = [name, unit(c), statistic].map(|text| text + " ");
            [name, unit, statistic, c.resolution.clone()]
        };
        match run {
            [first, .., last] if run.len() >= RUN_MIN => {
                table.row(row(format!("{} to {}", first.name, last.name), first));
            }
            _ => run.iter().for_each(|c| table.row(row(c.name.clone(), c))),
        }
    }
    table
}

fn describe_findings(table: &TableFindings, said: &mut Document) {
    if table.steps.is_empty() && table.tool.is_none() {
        said.pair("clock", "no tick found");
    }
    table.rounded.iter().for_each(|line| said.pair("rounding", line));
    table.steps.iter().for_each(|step| describe_step(table, step, said));
    table.units.iter().for_each(|unit| describe_unit(table, unit, said));
    table.statistics.iter().for_each(|line| said.pair("statistic", line));
    table.steps.iter().for_each(|step| describe_worth(table, step, said));
}

fn describe_step(table: &TableFindings, step: &ClockStep, said: &mut Document) {
    let names = step.columns.iter().map(|&c| format!("`{}`", table.columns[c].name));
    let unit = if step.unit == "ns" { "ns" } else { "in the column's own unit" };
    let (low, high) = step.between;
    // Enough digits to distinguish the two ends.
    let digits = (2.5 - (high - low).max(1e-9).log10()).clamp(3.0, 9.0) as usize;
    said.pair(
        "clock",
        format!(
            "{} in steps of {:.digits$} {unit} (the step is between {low:.digits$} and \
             {high:.digits$})",
            names.collect::<Vec<String>>().join(" and "),
            step.step
        ),
    );
    let rounding = match step.rounding {
        Rounding::Nearest => "rounded to the nearest digit",
        Rounding::Down => "truncated after the last digit",
        Rounding::Mixed => "to within one unit of the last digit",
    };
    let (values, chance) = (step.values, step.chance.max(1e-99));
    said.go_on(format!(
        "{values} distinct values are multiples of this step, {rounding}; probability of a \
         coincidence: {chance:.0e}"
    ));
    for clock in step.clocks.iter().take(2) {
        let by = match clock.operations {
            1 => "a whole step of".to_owned(),
            2 => "half a step (a round trip divided by 2) of".to_owned(),
            n => format!("1/{n} of a step (a time divided by {n} operations) of"),
        };
        let assumed =
            clock.supposes.map_or(String::new(), |unit| format!(", if the values are {unit}"));
        said.go_on(format!("{by} {}, {:.3} ns{assumed}", clock.clock, clock.clock_step_ns));
    }
    if step.clocks.is_empty() {
        said.go_on("no known clock has this step; rounding to fewer digits also causes steps");
    }
}

fn describe_unit(table: &TableFindings, unit: &UnitFinding, said: &mut Document) {
    let name = |i: usize| &table.columns[i].name;
    let means = match unit.base {
        Base::Decimal => "units of 10^n bytes (MB = 10^6)",
        Base::Kibi => "units with a factor of 1024: KiB, or a mixed unit",
        Base::Mebi => "units of 2^20 bytes (MiB), even if the heading names another unit",
        Base::Gibi => "units of 2^30 bytes (GiB), even if the heading names another unit",
        Base::Bits => "bits, not bytes",
        Base::Twice => {
            "units of 10^n bytes, but twice as large as expected: the value is the sum of both \
             directions, or the time is half a round trip"
        }
    };
    let (bandwidth, size, other) = (name(unit.bandwidth), name(unit.size), name(unit.other));
    let relation = if unit.by_time { "divided by" } else { "times" };
    let (rows, chance) = (unit.rows, unit.chance);
    said.pair("unit", format!("`{bandwidth}` is in {means}"));
    said.go_on(format!(
        "`{size}` {relation} `{other}` agrees with this unit in all {rows} rows; probability of a \
         coincidence: {chance:.0e}"
    ));
    let cells = &table.table.columns[unit.bandwidth].cells;
    let top = cells.iter().map(|c| c.value).fold(0.0, f64::max);
    if unit.base == Base::Mebi {
        let decimal = top * unit.base.factor();
        said.go_on(format!(
            "the largest value, {top} in units of 2^20 bytes, is {decimal:.1} in units of 10^6 \
             bytes; compare it with a limit in the same unit (4000 units of 10^6 bytes are 3814.7 \
             units of 2^20)"
        ));
    }
}

fn describe_worth(table: &TableFindings, step: &ClockStep, said: &mut Document) {
    let parameter = table.columns.iter().position(|c| c.parameter);
    for &index in &step.columns {
        let column = &table.table.columns[index];
        let time = column.unit().and_then(|u| Some((u.name, u.ns?)));
        let scale = time.map_or(1.0, |(_, ns)| ns);
        let unit = time.map_or(String::new(), |(name, _)| format!(" {name}"));
        said.pair(
            "difference",
            format!(
                "`{}`: printed value, steps, and true difference to the row above",
                table.columns[index].name
            ),
        );
        let mut rows = Table::of("<11|>9|>12|>8|");
        let mut above: Option<u64> = None;
        for (row, cell) in column.cells.iter().enumerate().take(ROWS_MAX) {
            let Some(steps) = step.lattice.multiple(cell.scaled(scale)) else {
                continue;
            };
            let at = parameter.and_then(|p| table.table.columns[p].cells.get(row));
            let at = at.map_or(String::new(), |at| at.value.to_string());
            let differs =
                |before| say_difference(steps as i64 - before as i64, step.step / scale, &unit);
            let differs = above.map_or(String::new(), |before| format!(" {}", differs(before)));
            rows.row([String::new(), at, format!("{cell}{unit}"), steps.to_string(), differs]);
            above = Some(steps);
        }
        said.table(rows);
    }
}

fn say_difference(steps: i64, step: f64, unit: &str) -> String {
    match steps {
        0 => "the same step".to_owned(),
        -1 | 1 => "one step: not enough to prove a difference".to_owned(),
        n => {
            let digits = if step < 10.0 { 3 } else { 0 };
            let (near, far) = ((n.abs() - 1) as f64 * step, (n.abs() + 1) as f64 * step);
            let word = if n < 0 { "less" } else { "more" };
            format!("{near:.digits$} to {far:.digits$}{unit} {word}")
        }
    }
}

fn compare_tables(all: &[Comparison], said: &mut Document) {
    for run in all.chunk_by(|a, b| a.tables == b.tables) {
        let (a, b) = (run[0].tables.0 + 1, run[0].tables.1 + 1);
        said.heading(format!(
            "table {a} and table {b}, row by row (comparable only if both are the same statistic \
             of the same operation)"
        ));
        let mut table = Table::of(">9|>10|<13|");
        for c in run {
            let verdict = if c.tells { "" } else { "  cannot tell" };
            let (low, high) = c.between;
            table.row([
                c.at.to_string(),
                c.values.0.to_string(),
                format!("-> {}", c.values.1),
                format!(
                    "difference {:+.3}, true difference between {low:+.3} and {high:+.3}{verdict}",
                    c.difference
                ),
            ]);
        }
        said.table(table);
    }
}
