//! Parses lines of named values, and lines of a fixed form: HPCC, `osu_init`, qperf, NetPIPE.

use super::super::formats::{FORMATS, NamedSet, matches, written_unit};
use super::super::table::{Cell, Column, ColumnRole, ParsedTable, Unit};
use super::read_value;

pub struct ReportedValue {
    name: String,
    unit: Option<Unit>,
    statistic: Option<&'static str>,
    role: ColumnRole,
    digits: Option<u32>,
    cell: Cell,
}

impl ReportedValue {
    /// Whether a row (from 0) of a table already has a value of this name.
    pub fn is_in(&self, table: &ParsedTable, row: usize) -> bool {
        let named = table.columns.iter().find(|c| c.name == self.name);
        named.is_some_and(|c| c.cells.len() > row)
    }

    /// Adds the value to the column of its name, in the last row, which must have none of this name.
    pub fn push_to(self, table: &mut ParsedTable, row: usize) {
        let known = table.columns.iter().position(|c| c.name == self.name);
        let index = known.unwrap_or_else(|| {
            table.columns.push(Column {
                name: self.name,
                statistic: self.statistic,
                role: self.role,
                digits: self.digits,
                ..Column::default()
            });
            table.columns.len() - 1
        });
        let column = &mut table.columns[index];
        column.fill(row);
        column.cells.push(self.cell);
        self.unit.into_iter().for_each(|unit| column.add_unit(unit));
    }
}

pub struct Values {
    pub set: &'static NamedSet,
    pub values: Vec<ReportedValue>,
}

fn make_value(
    set: &'static NamedSet, name: &str, unit: Option<Unit>, cell: Cell,
) -> Option<ReportedValue> {
    let named = set.value.iter().find(|n| matches(&n.pattern, name))?;
    Some(ReportedValue {
        name: name.to_owned(),
        unit: named.unit.or(unit),
        statistic: named.statistic.as_deref(),
        role: if named.exact { ColumnRole::Parameter } else { ColumnRole::Measured },
        digits: set.digits,
        cell,
    })
}

fn one(set: &'static NamedSet, value: ReportedValue) -> Option<Values> {
    let values = vec![value];
    Some(Values { set, values })
}

pub fn read_hpcc_summary(line: &str) -> Option<Values> {
    let set = FORMATS.set("hpcc_summary");
    let (name, value) = line.trim().split_once('=')?;
    one(set, make_value(set, name, None, read_value(value)?)?)
}

pub fn read_hpcc_major(line: &str) -> Option<Values> {
    let set = FORMATS.set("hpcc_major");
    let (name, value) = line.split_once(':')?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let (value, unit) = value.trim().split_once(' ')?;
    let unit = written_unit(&set.tool, unit.trim())?;
    one(set, make_value(set, &name, Some(unit), read_value(value)?)?)
}

pub fn read_osu_init(line: &str) -> Option<Values> {
    let set = FORMATS.set("osu_init");
    let rest = line.trim().strip_prefix("nprocs: ")?;
    let parts: Vec<&str> = rest.split(',').skip(1).collect();
    let values = parts.iter().zip(&set.value).map(|(part, named)| {
        let (name, value) = part.trim().split_once(": ")?;
        let cell = read_value(value.strip_suffix(" ms").unwrap_or(value))?;
        make_value(set, name, None, cell).filter(|_| name == named.pattern)
    });
    let values = values.collect::<Option<Vec<ReportedValue>>>()?;
    (parts.len() == set.value.len()).then_some(Values { set, values })
}

pub fn read_qperf(test: &str, line: &str) -> Option<Values> {
    let set = FORMATS.set("qperf");
    let (name, value) = line.strip_prefix("    ")?.split_once('=')?;
    let (number, unit) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    // `64 KiB (65,536)`
    let unit = unit.split('(').next().unwrap_or("").trim();
    let cell = read_value(&number.replace(',', ""))?;
    let is_test = test.contains('_') && !test.contains(' ');
    let value = make_value(set, name.trim(), read_unit(set, unit)?, cell)?;
    one(set, value).filter(|_| is_test)
}

/// Parses an optional unit; None if the tool has no such unit.
fn read_unit(set: &NamedSet, word: &str) -> Option<Option<Unit>> {
    match word {
        "" => Some(None),
        word => written_unit(&set.tool, word).map(Some),
    }
}

/// Parses a line of NetPIPE: as on the screen (3.x and 5.x), or as in `np.out` (3.x).
pub fn read_netpipe(line: &str) -> Option<Values> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (is_old, parts) = match words[..] {
        [
            number,
            size,
            size_unit,
            times,
            "times",
            "-->",
            rate,
            rate_unit,
            "in",
            time,
            time_unit,
        ] if number.ends_with(':') => {
            let first = [["size", size, size_unit], ["repeats", times, ""]];
            let second = [["throughput", rate, rate_unit], ["time", time, time_unit]];
            (size_unit == "bytes", [first, second].concat())
        }
        [size, rate, time] if is_np_out(line, size, rate, time) => {
            let parts =
                [["size", size, "bytes"], ["throughput", rate, "Mbps"], ["time", time, "sec"]];
            (true, parts.to_vec())
        }
        _ => return None,
    };
    let set = FORMATS.set(if is_old { "netpipe_3" } else { "netpipe_5" });
    let make = |[name, word, unit]: [&str; 3]| {
        make_value(set, name, read_unit(set, unit)?, read_value(word)?)
    };
    let values = parts.into_iter().map(make).collect::<Option<Vec<ReportedValue>>>()?;
    Some(Values { set, values })
}

/// Whether a line is NetPIPE 3's `%8d %lf %12.8lf`, with a throughput of size divided by time.
fn is_np_out(line: &str, size: &str, rate: &str, time: &str) -> bool {
    let decimals = |word: &str, count| word.split_once('.').is_some_and(|(_, d)| d.len() == count);
    let formed = line == format!("{size:>8} {rate} {time:>12}");
    let [Some(bytes), Some(mbps), Some(seconds)] = [size, rate, time].map(read_value) else {
        return false;
    };
    let printed = (mbps.value * 1_048_576.0 / 8.0) * seconds.value / bytes.value;
    let error = seconds.quantum / seconds.value + mbps.quantum / mbps.value;
    formed && decimals(rate, 6) && decimals(time, 8) && (printed - 1.0).abs() <= error
}
