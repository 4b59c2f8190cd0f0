//! The findings of an audit as text.

use std::io::{self, Write};

use super::lattice::Rounding;
use super::units::{Base, UnitFinding};
use super::{Audit, ColumnFindings, Comparison, Step, TableFindings};

/// Rows of which the worth is printed, at most.
const ROWS_MAX: usize = 40;

/// So many columns that follow each other with the same unit, statistic and resolution take one line.
const RUN_MIN: usize = 4;

/// Writes everything that was found.
pub fn write_text(audit: &Audit, out: &mut dyn Write) -> io::Result<()> {
    // What was said of a tool's table is not said again.
    let mut said: Vec<(&str, &str)> = Vec::new();
    for (index, table) in audit.tables.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_head(index, table, out)?;
        let like = |t: &TableFindings| t.tool == table.tool && t.columns == table.columns;
        match audit.tables[..index].iter().position(like) {
            Some(first) => writeln!(out, "  columns    as in table {}", first + 1)?,
            None => write_columns(&table.columns, out)?,
        }
        let tool = table.tool.as_deref().unwrap_or("");
        let known = table.known.iter().map(|text| ("known", *text));
        for (what, text) in known.chain([("unknown", table.unknown)]) {
            if !text.is_empty() && !said.contains(&(tool, text)) {
                said.push((tool, text));
                writeln!(out, "  {what:<9}  {text}")?;
            }
        }
        write_findings(table, out)?;
    }
    write_comparisons(&audit.comparisons, out)
}

fn write_head(index: usize, table: &TableFindings, out: &mut dyn Write) -> io::Result<()> {
    let tool = table.tool.as_deref().unwrap_or("no known tool");
    let title = match table.title.as_str() {
        "" => String::new(),
        title => format!(", {title}"),
    };
    let lines = match table.lines {
        (from, to) if from == to => format!("line {from}"),
        (from, to) if table.rows == 1 => format!("lines {from} to {to}"),
        (from, to) => format!("lines {from} to {to}, {} rows", table.rows),
    };
    writeln!(out, "table {}: {tool}{title}; {lines}", index + 1)
}

fn write_columns(columns: &[ColumnFindings], out: &mut dyn Write) -> io::Result<()> {
    let unit = |c: &ColumnFindings| c.unit.clone().unwrap_or_else(|| "-".into());
    let alike = |a: &ColumnFindings, b: &ColumnFindings| {
        let of = |c: &ColumnFindings| (unit(c), c.statistic, c.resolution.clone());
        of(a) == of(b)
    };
    let mut rows = vec![["column", "unit", "statistic", "resolution"].map(str::to_owned)];
    for run in columns.chunk_by(alike) {
        let row = |name: String, c: &ColumnFindings| {
            let statistic = c.statistic.unwrap_or("-").to_owned();
            [name, unit(c), statistic, c.resolution.clone()]
        };
        match run {
            [first, .., last] if run.len() >= RUN_MIN => {
                rows.push(row(format!("{} to {}", first.name, last.name), first));
            }
            _ => rows.extend(run.iter().map(|c| row(c.name.clone(), c))),
        }
    }
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let (names, units, statistics) = (width(0), width(1), width(2));
    for [name, unit, statistic, resolution] in &rows {
        writeln!(
            out,
            "  {name:names$}  {unit:units$}  {statistic:statistics$}  {resolution}"
        )?;
    }
    Ok(())
}

fn write_findings(table: &TableFindings, out: &mut dyn Write) -> io::Result<()> {
    if table.steps.is_empty() && table.tool.is_none() {
        writeln!(out, "  clock      no tick found")?;
    }
    for line in &table.rounded {
        writeln!(out, "  rounding   {line}")?;
    }
    for step in &table.steps {
        write_step(table, step, out)?;
    }
    for unit in &table.units {
        write_unit(table, unit, out)?;
    }
    for line in &table.statistics {
        writeln!(out, "  statistic  {line}")?;
    }
    for step in &table.steps {
        write_worth(table, step, out)?;
    }
    Ok(())
}

fn write_step(table: &TableFindings, step: &Step, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<String> = step
        .columns
        .iter()
        .map(|&c| format!("`{}`", table.columns[c].name))
        .collect();
    let unit = if step.unit == "ns" {
        "ns"
    } else {
        "in the column's own unit"
    };
    let (low, high) = step.between;
    // Enough digits to part the two ends.
    let digits = (2.5 - (high - low).max(1e-9).log10()).clamp(3.0, 9.0) as usize;
    writeln!(
        out,
        "  clock      {} in steps of {:.digits$} {unit} (between {low:.digits$} and {high:.digits$})",
        names.join(" and "),
        step.step
    )?;
    let rounding = match step.rounding {
        Rounding::Nearest => "rounded to the nearest digit",
        Rounding::Down => "cut off after the last digit",
        Rounding::Mixed => "to one in the last digit",
    };
    let chance = if step.chance < 1e-99 {
        1e-99
    } else {
        step.chance
    };
    writeln!(
        out,
        "             {} distinct values are whole multiples, {rounding}; chance of an accident: {chance:.0e}",
        step.values
    )?;
    for clock in step.clocks.iter().take(2) {
        let by = match clock.operations {
            1 => "a whole step of".to_owned(),
            2 => "half a step (a round trip divided by 2) of".to_owned(),
            n => format!("1/{n} of a step (a time divided by {n} operations) of"),
        };
        let assumed = clock
            .supposes
            .map_or(String::new(), |unit| format!(", if these are {unit}"));
        writeln!(
            out,
            "             {by} {}, {:.3} ns{assumed}",
            clock.clock, clock.clock_step_ns
        )?;
    }
    if step.clocks.is_empty() {
        writeln!(
            out,
            "             no known clock has this step; digits that were rounded further make one too"
        )?;
    }
    Ok(())
}

fn write_unit(table: &TableFindings, unit: &UnitFinding, out: &mut dyn Write) -> io::Result<()> {
    let name = |i: usize| &table.columns[i].name;
    let means = match unit.base {
        Base::Decimal => "units of 10^n bytes (MB = 10^6)",
        Base::Kibi => "units with a factor of 1024: KiB, or a mixed unit",
        Base::Mebi => "units of 2^20 bytes: MiB, whatever the heading says",
        Base::Gibi => "units of 2^30 bytes: GiB, whatever the heading says",
        Base::Bits => "bits, not bytes",
        Base::Twice => {
            "units of 10^n bytes with a factor of two: both directions, or half a round trip"
        }
    };
    let (bandwidth, size, other) = (name(unit.bandwidth), name(unit.size), name(unit.other));
    let relation = if unit.by_time { "divided by" } else { "times" };
    writeln!(out, "  unit       `{bandwidth}` is in {means}")?;
    writeln!(
        out,
        "             `{size}` {relation} `{other}` gives it in all {} rows; chance of an accident: {:.0e}",
        unit.rows, unit.chance
    )?;
    let cells = &table.table.columns[unit.bandwidth].cells;
    let top = cells.iter().map(|c| c.value).fold(0.0, f64::max);
    if unit.base == Base::Mebi {
        writeln!(
            out,
            "             its {top} are {:.1} of 10^6; hold it against a limit in the same unit (4000 of 10^6 are 3814.7)",
            top * unit.base.factor()
        )?;
    }
    Ok(())
}

fn write_worth(table: &TableFindings, step: &Step, out: &mut dyn Write) -> io::Result<()> {
    let parameter = table.columns.iter().position(|c| c.parameter);
    for &index in &step.columns {
        let column = &table.table.columns[index];
        let time = column.unit().and_then(|u| Some((u.name, u.ns?)));
        let scale = time.map_or(1.0, |(_, ns)| ns);
        let unit = time.map_or(String::new(), |(name, _)| format!(" {name}"));
        writeln!(
            out,
            "  worth      `{}`: printed, steps, what is known of the difference to the row above",
            table.columns[index].name
        )?;
        let mut above: Option<u64> = None;
        for (row, cell) in column.cells.iter().enumerate().take(ROWS_MAX) {
            let Some(steps) = step.lattice.multiple(cell.scaled(scale)) else {
                continue;
            };
            let at = parameter.and_then(|p| table.table.columns[p].cells.get(row));
            let at = at.map_or(String::new(), |at| format!("{:>9}", at.value));
            let said = match above {
                None => String::new(),
                Some(before) => {
                    say_difference(steps as i64 - before as i64, step.step / scale, &unit)
                }
            };
            writeln!(out, "             {at} {cell:>12}{unit} {steps:>8}  {said}")?;
            above = Some(steps);
        }
    }
    Ok(())
}

fn say_difference(steps: i64, step: f64, unit: &str) -> String {
    match steps {
        0 => "the same step".to_owned(),
        -1 | 1 => "one step: cannot tell".to_owned(),
        n => {
            let digits = if step < 10.0 { 3 } else { 0 };
            let (near, far) = ((n.abs() - 1) as f64 * step, (n.abs() + 1) as f64 * step);
            let word = if n < 0 { "less" } else { "more" };
            format!("{near:.digits$} to {far:.digits$}{unit} {word}")
        }
    }
}

fn write_comparisons(all: &[Comparison], out: &mut dyn Write) -> io::Result<()> {
    let mut last = None;
    for c in all {
        if last != Some(c.tables) {
            let (a, b) = (c.tables.0 + 1, c.tables.1 + 1);
            writeln!(
                out,
                "\ntable {a} and table {b}, row by row (only if both are the same statistic of the same operation)"
            )?;
            last = Some(c.tables);
        }
        let verdict = if c.tells { "" } else { "  cannot tell" };
        writeln!(
            out,
            "  {:>9} {:>10} -> {:<10} difference {:+.3}: truly between {:+.3} and {:+.3}{verdict}",
            c.at, c.values.0, c.values.1, c.difference, c.between.0, c.between.1
        )?;
    }
    Ok(())
}
