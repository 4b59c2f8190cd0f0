//! Lines that hold values behind their names, and lines of a fixed form: HPCC, `osu_init`, qperf, NetPIPE.

use super::super::formats::{
    HPCC, HPCC_MAJOR, HPCC_SUMMARY, NETPIPE_3, NETPIPE_3_VALUES, NETPIPE_5, NETPIPE_5_VALUES,
    Named, OSU, OSU_INIT_VALUES, QPERF, QPERF_VALUES, matches, written_unit,
};
use super::super::table::{Cell, Column, Role, Table, Unit};
use super::read_value;

/// A value with its name.
pub struct Value {
    name: String,
    unit: Option<Unit>,
    statistic: &'static str,
    role: Role,
    digits: Option<u32>,
    cell: Cell,
}

impl Value {
    /// Whether the row, from 0, of a table has a value of its name already.
    pub fn is_in(&self, table: &Table, row: usize) -> bool {
        let named = table.columns.iter().find(|c| c.name == self.name);
        named.is_some_and(|c| c.cells.len() > row)
    }

    /// Adds it to the column of its name, in the last row, which has none of this name yet.
    pub fn push_to(self, table: &mut Table, row: usize) {
        let known = table.columns.iter().position(|c| c.name == self.name);
        let index = known.unwrap_or_else(|| {
            table.columns.push(Column {
                name: self.name,
                statistic: (!self.statistic.is_empty()).then_some(self.statistic),
                role: self.role,
                digits: self.digits,
                ..Column::default()
            });
            table.columns.len() - 1
        });
        let column = &mut table.columns[index];
        // Lines of rows above were not read.
        column.fill(row);
        column.cells.push(self.cell);
        self.unit.into_iter().for_each(|unit| column.add_unit(unit));
    }
}

/// What a line of named values holds.
pub struct Values {
    pub tool: &'static str,
    /// None: as the lines above say.
    pub title: Option<&'static str>,
    pub values: Vec<Value>,
    pub known: &'static [&'static str],
    pub unknown: &'static str,
}

fn find_named(all: &'static [Named], name: &str) -> Option<&'static Named> {
    all.iter().find(|n| matches(n.pattern, name))
}

fn make_value(name: &str, named: &Named, unit: Option<Unit>, cell: Cell) -> Value {
    Value {
        name: name.to_owned(),
        unit: named.unit.or(unit),
        statistic: named.statistic,
        role: if named.is_exact {
            Role::Parameter
        } else {
            Role::Measured
        },
        digits: None,
        cell,
    }
}

pub fn read_hpcc_summary(line: &str) -> Option<Values> {
    let (name, value) = line.trim().split_once('=')?;
    let named = find_named(&HPCC_SUMMARY, name)?;
    let mut value = make_value(name, named, None, read_value(value)?);
    value.digits = Some(6);
    Some(Values {
        tool: HPCC,
        title: Some("Summary"),
        values: vec![value],
        known: &[
            "GBytes and GBs are 10^9 bytes a second; values not listed are parameters and checks",
            "a ping-pong takes half a round trip; pairs and rings count with the best of a few measurements",
        ],
        unknown: "the spread: one value of each",
    })
}

pub fn read_hpcc_major(line: &str) -> Option<Values> {
    let (name, value) = line.split_once(':')?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = find_named(&HPCC_MAJOR, &name)?;
    let (value, unit) = value.trim().split_once(' ')?;
    let unit = written_unit(HPCC, unit.trim())?;
    Some(Values {
        tool: HPCC,
        title: Some("LatencyBandwidth"),
        values: vec![make_value(&name, named, Some(unit), read_value(value)?)],
        known: &[
            "a latency is of 8 bytes, a bandwidth of 2000000, MB is 10^6 bytes",
            "a ping-pong takes half a round trip; pairs and rings count with the best of a few measurements",
        ],
        unknown: "the spread: one value of each",
    })
}

pub fn read_osu_init(line: &str) -> Option<Values> {
    let rest = line.trim().strip_prefix("nprocs: ")?;
    let parts: Vec<&str> = rest.split(',').skip(1).collect();
    if parts.len() != OSU_INIT_VALUES.len() {
        return None;
    }
    let parts = parts
        .into_iter()
        .zip(&OSU_INIT_VALUES)
        .map(|(part, named)| {
            let (name, value) = part.trim().split_once(": ")?;
            let value = value.strip_suffix(" ms").unwrap_or(value);
            let cell = read_value(value)?;
            (name == named.pattern).then(|| make_value(name, named, None, cell))
        });
    Some(Values {
        tool: OSU,
        title: Some("MPI Init"),
        values: parts.collect::<Option<Vec<Value>>>()?,
        known: &["the time of MPI_Init in each rank, cut to whole milliseconds"],
        unknown: "the spread: one start",
    })
}

pub fn read_qperf(test: &str, line: &str) -> Option<Values> {
    let (name, value) = line.strip_prefix("    ")?.split_once('=')?;
    let named = find_named(&QPERF_VALUES, name.trim())?;
    let value = value.trim();
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    // `64 KiB (65,536)`
    let unit = unit.split('(').next().unwrap_or("").trim();
    let cell = read_value(&number.replace(',', ""))?;
    let is_test = test.contains('_') && !test.contains(' ');
    let unit = match unit {
        "" => None,
        unit => Some(written_unit(QPERF, unit)?),
    };
    let mut value = make_value(name.trim(), named, unit, cell);
    value.digits = Some(3);
    is_test.then_some(Values {
        tool: QPERF,
        title: None,
        values: vec![value],
        known: &["units are powers of 1000; a latency is half a round trip"],
        unknown: "the spread: each value is one run; the message size, unless -v or -vu printed it",
    })
}

/// NetPIPE's lines on the screen (3.x and 5.x), and those of 3.x in `np.out`.
pub fn read_netpipe(line: &str) -> Option<Values> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (old, parts): (bool, Vec<[&str; 3]>) = match words[..] {
        [
            number,
            size,
            unit,
            times,
            "times",
            "-->",
            rate,
            rate_unit,
            "in",
            time,
            time_unit,
        ] if number.ends_with(':') => {
            let repeats = ["repeats", times, ""];
            let rate = ["throughput", rate, rate_unit];
            let parts = vec![
                ["size", size, unit],
                repeats,
                rate,
                ["time", time, time_unit],
            ];
            (unit == "bytes", parts)
        }
        [size, rate, time] if is_np_out(line, size, rate, time) => {
            let rate = ["throughput", rate, "Mbps"];
            (
                true,
                vec![["size", size, "bytes"], rate, ["time", time, "sec"]],
            )
        }
        _ => return None,
    };
    let (tool, all) = if old {
        (NETPIPE_3, &NETPIPE_3_VALUES)
    } else {
        (NETPIPE_5, &NETPIPE_5_VALUES)
    };
    let values = parts.into_iter().map(|[name, word, unit]| {
        let unit = match unit {
            "" => None,
            unit => Some(written_unit(tool, unit)?),
        };
        Some(make_value(
            name,
            find_named(all, name)?,
            unit,
            read_value(word)?,
        ))
    });
    Some(Values {
        tool,
        title: Some(""),
        values: values.collect::<Option<Vec<Value>>>()?,
        known: if old {
            &["Mbps are 2^20 bits a second; a time is half a round trip, with -s or -2 one way"]
        } else {
            &["units are powers of 1000; a time is half a round trip"]
        },
        unknown: "the step of the clock; the spread of the repeats",
    })
}

/// Whether a line is NetPIPE 3's `%8d %lf %12.8lf`, and the throughput is the size by the time.
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
