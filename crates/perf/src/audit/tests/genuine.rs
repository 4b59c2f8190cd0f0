//! Outputs of perftest, OSU, IMB, HPCC, NetPIPE, iperf3, qperf and mpi4py as they were printed, in
//! `tests/data/audit`. What is to be found in each stands in `expected` beside them: for every table the tool, the test
//! and the number of rows, for every column unit, statistic and resolution.

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
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/audit")
}

/// The outputs by name, without `.txt`.
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
    assert!(
        outputs.len() >= 40 && tables >= 40,
        "{} outputs, {tables} tables",
        outputs.len()
    );
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
        let (_, tool) = TOOLS
            .iter()
            .find(|(start, _)| name.starts_with(start))
            .expect("a tool");
        let found = audit(&text);
        assert!(
            !found.tables.is_empty() && found.comparisons.is_empty(),
            "{name}: {found:?}"
        );
        for table in &found.tables {
            let named = table.tool.as_deref().unwrap_or("");
            assert!(named.starts_with(tool), "{name}: {table:?}");
            assert!(
                table.steps.is_empty() && table.statistics.is_empty(),
                "{name}: {table:?}"
            );
            // That of a tool without a record is looked for, and there.
            let looked_for = tool.is_empty().then_some(units::Base::Decimal);
            let bases = table.units.iter().map(|u| u.base);
            assert!(bases.eq(looked_for), "{name}: {table:?}");
            // What is listed as a measurement has its unit.
            let measured = table.columns.iter().filter(|c| !c.parameter);
            assert!(
                measured.clone().all(|c| c.unit.is_some()),
                "{name}: {table:?}"
            );
            let known = measured.filter(|c| c.statistic.is_none()).count();
            assert!(tool.is_empty() || known == 0, "{name}: {table:?}");
        }
        let shown = super::show_text(&text);
        assert!(
            !shown.contains("chance") || tool.is_empty(),
            "{name}: {shown}"
        );
    }
}

/// The rows of a table as bare numbers, without those that lack one.
pub fn write_bare(table: &Table) -> String {
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

/// Without headings nothing is known, and everything is searched: what is found then must be true.
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
                    // A product reads the same both ways: either may be the bandwidth.
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
