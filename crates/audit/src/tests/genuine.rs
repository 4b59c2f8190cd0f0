//! Outputs of perftest, OSU, IMB, HPCC, NetPIPE, iperf3, qperf and mpi4py as they were printed, in `tests/data`. The
//! expected results are in `expected` beside them. They list tool, test and number of rows of every table, and unit,
//! statistic and resolution of every column.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use super::super::*;

const TOOLS: [(&str, &str); 9] = [
    ("perftest", "perftest"),
    ("osu", "OSU Micro-Benchmarks"),
    ("imb", "Intel MPI Benchmarks"),
    ("hpcc", "HPCC"),
    ("netpipe3", "NetPIPE 3"),
    ("netpipe5", "NetPIPE 5"),
    ("iperf3", "iperf3"),
    ("qperf", "qperf"),
    ("mpi4py", ""),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Outputs by name, without `.txt`.
pub fn read_outputs() -> BTreeMap<String, String> {
    let files = fs::read_dir(folder()).expect("the outputs").flatten();
    let texts = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let text = fs::read_to_string(file.path()).expect("a text");
        Some((name.strip_suffix(".txt")?.to_owned(), text))
    });
    texts.collect()
}

fn describe(name: &str, found: &Audit) -> String {
    let mut text = format!("{name}\n");
    for table in &found.tables {
        let columns = table.columns.iter().map(|c| {
            let unit = c.unit.as_deref().unwrap_or("-");
            let statistic = c.statistic.unwrap_or("-");
            format!("{} [{unit}; {statistic}; {}]", c.name, c.resolution)
        });
        let columns = columns.collect::<Vec<_>>().join(" ");
        let tool = table.tool.as_deref().unwrap_or("-");
        let (title, rows) = (&table.title, table.rows);
        writeln!(text, "  {tool} | {title} | {rows} rows | {columns}").expect("written");
    }
    text
}

#[test]
fn genuine_outputs__are_read_as_listed() {
    let outputs = read_outputs();
    let tables: usize = outputs.values().map(|text| audit(text).tables.len()).sum();
    assert!(outputs.len() >= 40 && tables >= 40, "{} outputs, {tables} tables", outputs.len());
    let expected = fs::read_to_string(folder().join("expected")).expect("the list");
    let mut rest = expected.as_str();
    for (name, text) in &outputs {
        let found = describe(name, &audit(text));
        assert!(
            rest.starts_with(&found),
            "found:\n{found}expected:\n{}",
            &rest[..rest.len().min(600)]
        );
        rest = &rest[found.len()..];
    }
    assert_eq!(rest, "", "listed and not there");
}

#[test]
fn genuine_outputs__are_recognised_and_hold_no_finding() {
    for (name, text) in read_outputs() {
        let (_, tool) = TOOLS.iter().find(|(start, _)| name.starts_with(start)).expect("a tool");
        let found = audit(&text);
        assert!(!found.tables.is_empty() && found.comparisons.is_empty(), "{name}: {found:?}");
        for table in &found.tables {
            let named = table.tool.as_deref().unwrap_or("");
            assert!(named.starts_with(tool), "{name}: {table:?}");
            assert!(table.steps.is_empty() && table.statistics.is_empty(), "{name}: {table:?}");
            // If the tool has no entry in `formats.toml`, its unit is inferred from the numbers.
            let looked_for = tool.is_empty().then_some(units::Base::Decimal);
            let bases = table.units.iter().map(|u| u.base);
            assert!(bases.eq(looked_for), "{name}: {table:?}");
            let measured = table.columns.iter().filter(|c| !c.parameter);
            assert!(measured.clone().all(|c| c.unit.is_some()), "{name}: {table:?}");
            let known = measured.filter(|c| c.statistic.is_none()).count();
            assert!(tool.is_empty() || known == 0, "{name}: {table:?}");
        }
        let shown = super::show_text(&text);
        assert!(!shown.contains("chance") || tool.is_empty(), "{name}: {shown}");
    }
}

/// Rows of a table as bare numbers, without incomplete rows.
pub fn write_bare(table: &ParsedTable) -> String {
    let mut text = String::new();
    for row in 0..table.rows() {
        let cells = table.columns.iter().map(|c| c.cells.get(row));
        let cells: Option<Vec<&Cell>> = cells.collect();
        let Some(cells) = cells.filter(|cells| cells.iter().all(|c| c.value.is_finite())) else {
            continue;
        };
        let words: Vec<String> = cells.iter().map(|c| c.to_string()).collect();
        text += &format!("{}\n", words.join("  "));
    }
    text
}

/// Without headings no column is known, so all are searched; what is found must be true.
#[test]
fn genuine_numbers_without_headings__betray_nothing_that_is_not_so() {
    let mut betrayed = 0;
    for (name, text) in read_outputs() {
        for table in recognise::recognise(&text).tables {
            let found = audit(&write_bare(&table));
            for bare in &found.tables {
                assert!(bare.steps.is_empty(), "{name}: {bare:?}");
                for unit in &bare.units {
                    let of = |i: usize| table.columns[i].unit().filter(|u| u.ns.is_none());
                    // If the relation is bandwidth * time = size, its factors cannot be told apart without headings, so
                    // the column taken for the time may be the bandwidth.
                    let by_time = unit.by_time.then(|| of(unit.other)).flatten();
                    let known = of(unit.bandwidth).or(by_time).map_or("", |u| u.name);
                    let expected: &[units::Base] = match known {
                        "MB/s (10^6)" => &[units::Base::Decimal, units::Base::Twice],
                        "MiB/s (2^20)" => &[units::Base::Mebi],
                        "Gbit/s (10^9)" => &[units::Base::Bits],
                        _ => &[],
                    };
                    assert!(expected.contains(&unit.base), "{name}: {known} {unit:?}");
                    betrayed += 1;
                }
            }
        }
    }
    assert!(betrayed >= 10, "{betrayed}: the search finds what is there");
}

#[test]
fn hpcc_whole__is_its_parts() {
    let outputs = read_outputs();
    let parts = ["hpcc-1-begin", "hpcc-2-middle", "hpcc-3-end"];
    let whole: String = parts.iter().map(|p| outputs[*p].as_str()).collect();
    let of_parts: usize = parts.iter().map(|p| audit(&outputs[*p]).tables.len()).sum();
    let found = audit(&whole);
    assert_eq!(found.tables.len(), of_parts);
    let tool = |t: &TableFindings| t.tool.as_deref() == Some("HPCC 1.5.0");
    assert!(found.tables.iter().all(tool), "{found:?}");
}

/// Cells of the only table, by column, and its output.
fn read_only_table(text: &str) -> (Vec<(String, Vec<String>)>, String) {
    let found = audit(text);
    let [table] = &found.tables[..] else {
        panic!("{found:?}");
    };
    let columns = table.table.columns.iter().map(|c| {
        let cells = c.cells.iter().map(Cell::to_string).collect();
        (c.name.clone(), cells)
    });
    (columns.collect(), super::show_text(text))
}

#[test]
fn bad_row__is_none_and_shifts_no_other() {
    let head =
        "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams\n";
    let row = |rest: &str| format!("[  5]   0.00-3.00   sec  {rest}\n");
    let first = row("71.5 MBytes   200 Mbits/sec  0.001 ms  1/2289 (0%)  sender");
    let last = row("71.3 MBytes   199 Mbits/sec  0.009 ms  6/2289 (0.26%)  receiver");
    let good = read_only_table(&format!("{head}{first}\n{last}"));
    assert!(good.0.iter().all(|(_, cells)| cells.len() == 2), "{good:?}");
    for bad in [
        "71.4 MBytes   200 Mfurlongs  0.000 ms  0/2289 (0%)",
        "71.4 MBytes   200 Mbits/sec  0.005 moons  0/2289 (0%)",
        "71.4 MBytes   20x0 Mbits/sec  0.005 ms  0/2289 (0%)",
        "71.4 MBytes   200 Mbits/sec  0.0x05 ms  0/2289 (0%)",
        "71.4 MBytes   200 Mbits/sec  0.005",
        "71.4 MBytes",
        "",
    ] {
        let found = read_only_table(&format!("{head}{first}{}{last}", row(bad)));
        assert_eq!(found, good, "{bad}");
    }
}

#[test]
fn bad_value_with_a_name__leaves_its_own_cell_empty() {
    let block = |n: u32| {
        format!(
            "tcp_lat:\n    latency   =  {n} us\n    msg_size  =  {n} bytes\n    time  =  {n} sec\n"
        )
    };
    let good = [block(1), block(2), block(3)].concat();
    for (bad, column, row) in [
        ("latency   =  1 us", 0, 0),
        ("latency   =  2 us", 0, 1),
        ("msg_size  =  2 bytes", 1, 1),
        ("time  =  3 sec", 2, 2),
    ] {
        let (mut columns, _) = read_only_table(&good.replace(bad, "latency = 1 furlong"));
        columns.sort_by_key(|(name, _)| {
            ["latency", "msg_size", "time"].iter().position(|n| n == name)
        });
        let mut expected = vec![vec!["1", "2", "3"]; 3];
        expected[column][row] = "NaN";
        let cells: Vec<Vec<String>> = columns.into_iter().map(|(_, cells)| cells).collect();
        assert_eq!(cells, expected, "{bad}");
    }
}

#[test]
fn line_of_osu_init__has_all_of_its_values_or_none() {
    let good = "nprocs: 2, min: 147 ms, max: 150 ms, avg: 148 ms\n";
    for bad in [
        "nprocs: 2\n",
        "nprocs: 2, min: 1 ms\n",
        "nprocs: 2, max: 1 ms, min: 1 ms, avg: 1 ms\n",
        "nprocs: 2, min: 1 ms, min: 1 ms, avg: 1 ms\n",
    ] {
        let (columns, _) = read_only_table(&[bad, good].concat());
        let lengths = columns.iter().map(|(_, cells)| cells.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [1, 1, 1], "{bad}");
    }
}

#[test]
fn fuzz__damaged_outputs_make_tables_of_equal_columns() {
    let outputs = read_outputs();
    let corpus: Vec<&[u8]> = outputs.values().map(|text| text.as_bytes()).collect();
    let mut round = 0;
    crate::mutate::run(&corpus, |input| {
        // Use only one of 16 passes over the outputs: parsing is slow, and the analysis is slower.
        let turn = round / corpus.len();
        round += 1;
        if !turn.is_multiple_of(16) {
            return;
        }
        let text = String::from_utf8_lossy(input);
        for table in recognise::recognise(&text).tables {
            let rows = table.rows();
            let is_full = |c: &Column| c.cells.len() == rows;
            assert!(rows > 0 && table.columns.iter().all(is_full), "{table:?}");
            // Damage removes rows; no line makes more than one row.
            assert!(rows <= table.lines.1 + 1 - table.lines.0, "{table:?}");
        }
        if turn.is_multiple_of(64) {
            super::show_text(&text);
        }
    });
}
