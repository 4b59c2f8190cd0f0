//! Parses tables of unknown tools in pasted text: rows of numbers, with or without headings, units and labels.
//!
//! A row is a line with at least as many numbers as words. Consecutive rows with equally many numbers make a table. A
//! line above with one name for each column has the headings. Numbers are separated by blanks, tabs, commas,
//! semicolons, bars or slashes.

use super::statistics::named_statistic;
use super::table::{Cell, Column, ParsedTable, Unit, read_number};

/// Largest number of columns of a table.
const COLUMNS_MAX: usize = 32;

/// Number of lines above the first row that are tried as its heading.
const HEADINGS_MAX: usize = 6;

/// Units of rates, by the beginning of the word in a heading; `MB/s` stands for two units.
const RATES: [(&str, Unit); 10] = [
    ("KiB/s", Unit::new("KiB/s (2^10)")),
    ("MiB/s", Unit::new("MiB/s (2^20)")),
    ("GiB/s", Unit::new("GiB/s (2^30)")),
    ("Kb/s", Unit::new("kbit/s (10^3)")),
    ("Mb/s", Unit::new("Mbit/s (10^6)")),
    ("Gb/s", Unit::new("Gbit/s (10^9)")),
    ("Mbit/s", Unit::new("Mbit/s (10^6)")),
    ("Gbit/s", Unit::new("Gbit/s (10^9)")),
    ("MB/s", Unit::unsettled("MB/s (10^6 or 2^20)")),
    ("GB/s", Unit::unsettled("GB/s (10^9 or 2^30)")),
];

struct ParsedLine {
    cells: Vec<(Cell, Option<Unit>)>,
    words: usize,
}

/// Returns the tables in the lines that `skip` does not exclude, in the order of the text.
pub fn find_tables(text: &str, skip: &[bool]) -> Vec<ParsedTable> {
    let mut tables = Vec::new();
    let mut headings: Vec<&str> = Vec::new();
    let mut open: Option<ParsedTable> = None;
    for (index, raw) in text.lines().enumerate() {
        if skip.get(index).copied().unwrap_or(false) {
            tables.extend(open.take());
            headings.clear();
            continue;
        }
        let line = split_line(raw);
        if !line.is_row() || is_json(raw) {
            if open.is_some() {
                headings.clear();
            }
            tables.extend(open.take());
            if (line.words >= 2 || raw.trim_start().starts_with('#')) && !is_banner(raw) {
                headings.push(raw);
            }
            continue;
        }
        let fits = |t: &ParsedTable| t.columns.len() == line.cells.len();
        if !open.as_ref().is_some_and(fits) {
            tables.extend(open.take());
            open = Some(open_table(index + 1, line.cells.len(), &headings));
        }
        if let Some(table) = open.as_mut() {
            table.push(index + 1, &line);
        }
    }
    tables.extend(open);
    tables
}

/// Whether a line gives the value of a setting: `# Datatype: MPI_CHAR.`, ` TX depth        : 1`.
fn is_banner(line: &str) -> bool {
    line.split_whitespace().any(|word| word.ends_with(':'))
}

fn is_json(line: &str) -> bool {
    line.trim_start().starts_with('"') && line.contains("\":")
}

fn open_table(line: usize, count: usize, headings: &[&str]) -> ParsedTable {
    let nearest = headings.iter().rev().take(HEADINGS_MAX);
    let names = nearest.filter_map(|h| split_heading(h, count)).next();
    let names = names.unwrap_or_else(|| vec![String::new(); count]);
    let columns = names.into_iter().map(|name| Column {
        units: unit_in_heading(&name).into_iter().collect(),
        statistic: named_statistic(&name),
        name,
        ..Column::default()
    });
    ParsedTable { lines: (line, line), columns: columns.collect(), ..ParsedTable::default() }
}

impl ParsedTable {
    fn push(&mut self, number: usize, line: &ParsedLine) {
        self.lines.1 = number;
        for (column, (cell, unit)) in self.columns.iter_mut().zip(&line.cells) {
            column.cells.push(*cell);
            if column.units.is_empty() {
                column.units.extend(*unit);
            }
        }
    }
}

impl ParsedLine {
    fn is_row(&self) -> bool {
        let cells = self.cells.len();
        (1..=COLUMNS_MAX).contains(&cells) && self.words <= cells
    }
}

fn split_line(raw: &str) -> ParsedLine {
    let mut line = ParsedLine { cells: Vec::new(), words: 0 };
    let comment = raw.trim_start().starts_with('#');
    let cut = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|' | '/' | '=');
    for token in raw.split(cut) {
        // A colon ends a label; inside a word it separates an address or a time of day.
        let token = token.trim_end_matches(':');
        if token.is_empty() {
            continue;
        }
        match parse_cell(token) {
            Some(cell) if !comment => line.cells.push(cell),
            _ => match (Unit::of_time(token), line.cells.last_mut()) {
                (Some(unit), Some((_, slot @ None))) => *slot = Some(unit),
                _ => line.words += 1,
            },
        }
    }
    line
}

/// Parses a number with its printed precision, and its unit.
fn parse_cell(token: &str) -> Option<(Cell, Option<Unit>)> {
    let (cell, suffix) = read_number(token)?;
    let scaled = |factor: f64| Cell { value: cell.value * factor, quantum: 0.0 };
    match suffix {
        "" | "%" => Some((cell, None)),
        "K" | "k" | "KiB" | "KB" => Some((scaled(1024.0), None)),
        "M" | "MiB" | "MB" => Some((scaled(1048576.0), None)),
        "G" | "GiB" | "GB" => Some((scaled(1073741824.0), None)),
        other => Unit::of_time(other).map(|u| (cell, Some(u))),
    }
}

/// Unit in a heading such as `t_min[usec]`, `Latency (us)` or `BW [MiB/s]`.
fn unit_in_heading(name: &str) -> Option<Unit> {
    if name.contains("/s") {
        let rate = RATES.iter().find(|(word, _)| name.contains(word));
        return rate.map(|(_, unit)| *unit);
    }
    let cut = |c: char| !c.is_alphanumeric();
    name.split(cut).rev().find_map(Unit::of_time)
}

/// Names of `count` columns, if the line has that many. Names may contain blanks: a unit in brackets belongs to the
/// word before it, and the widest gaps between words separate the names.
fn split_heading(line: &str, count: usize) -> Option<Vec<String>> {
    let line = line.replace('\t', "        ");
    let line = line.replace(['|', '\u{b1}'], "    ");
    let words = join_units(&line);
    if words.len() >= count {
        return split_at_gaps(&line, &words, count);
    }
    let trim = |s: &str| s.trim().trim_start_matches('#').trim().to_owned();
    let parts: Vec<String> = line.split([',', ';', '/']).map(trim).collect();
    let full = parts.len() == count && parts.iter().all(|p| !p.is_empty());
    full.then_some(parts)
}

/// Words of a line as ranges, each with the unit in brackets that follows it.
fn join_units(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut words: Vec<std::ops::Range<usize>> = Vec::new();
    for word in line.split_whitespace() {
        let start = word.as_ptr() as usize - line.as_ptr() as usize;
        let end = start + word.len();
        let open = |text: &str| text.matches(['(', '[']).count() > text.matches([')', ']']).count();
        match words.last_mut() {
            Some(last) if word.starts_with(['(', '[']) || open(&line[last.clone()]) => {
                last.end = end;
            }
            _ => words.push(start..end),
        }
    }
    words.retain(|w| !line[w.clone()].trim_matches('#').is_empty());
    words
}

fn split_at_gaps(
    line: &str, words: &[std::ops::Range<usize>], count: usize,
) -> Option<Vec<String>> {
    let gap = |i: usize| words[i + 1].start - words[i].end;
    let mut widths: Vec<usize> = (0..words.len().saturating_sub(1)).map(gap).collect();
    widths.sort_unstable_by(|a, b| b.cmp(a));
    // Gaps of this width separate two names; a narrower one is a blank in a name.
    let least = match count.checked_sub(2) {
        Some(last) => widths[last],
        None => usize::MAX,
    };
    if widths.iter().filter(|&&w| w >= least).count() + 1 != count {
        return None;
    }
    let mut names = Vec::new();
    let mut from = words.first()?.start;
    for i in 0..words.len() {
        if i + 1 == words.len() || gap(i) >= least {
            let name = line[from..words[i].end].trim_start_matches('#').trim();
            names.push(name.to_owned());
            from = words.get(i + 1).map_or(0, |w| w.start);
        }
    }
    Some(names)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heading__names_columns_and_units() {
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n\
                    2       1000          1.26           20.95         1.40\n\
                    4       1000          1.26           5.17          1.40\n";
        let tables = find_tables(text, &[]);
        let [table] = &tables[..] else {
            panic!("{tables:?}");
        };
        assert_eq!((table.rows(), table.lines), (2, (2, 3)));
        let names: Vec<_> = table.columns.iter().map(|c| c.name.as_str()).collect();
        let wanted = ["bytes", "iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]"];
        assert_eq!(names, wanted);
        assert_eq!(table.columns[4].unit().unwrap().name, "us");
        assert_eq!(table.columns[2].cells[0], Cell { value: 1.26, quantum: 0.01 });
        assert!(table.columns[0].is_parameter() && table.columns[1].is_parameter());
        assert!(!table.columns[4].is_parameter());
    }

    #[test]
    fn row__may_have_labels_units_and_slashes() {
        let tables =
            find_tables("np 2   2.688/2.719/2.750 us\nnp 40  4.062/6.753/10.187 us\n", &[]);
        assert_eq!(tables[0].columns.len(), 4);
        assert_eq!(tables[0].columns[3].unit().unwrap().name, "us");
        assert_eq!(tables[0].columns[1].cells[1].value, 4.062);
    }

    #[test]
    fn numbers__know_their_last_digit() {
        for (text, value, quantum) in [
            ("437", 437.0, 1.0),
            ("0.051485", 0.051485, 1e-6),
            ("1.5e3", 1500.0, 100.0),
            ("64K", 65536.0, 0.0),
        ] {
            let (cell, _) = parse_cell(text).unwrap();
            assert!((cell.value / value - 1.0).abs() < 1e-12, "{text}: {cell:?}");
            assert!((cell.quantum - quantum).abs() <= quantum * 1e-9, "{text}: {cell:?}");
        }
        for text in ["nan", "inf", "1e400", "--3", "1.2.3", "0x10", "e5", "."] {
            assert_eq!(parse_cell(text), None, "{text}");
        }
    }

    #[test]
    fn heading__may_have_blanks_in_names() {
        let names = |line: &str, count| split_heading(line, count).unwrap_or_default();
        assert_eq!(names("# Size Latency (us)", 2), ["Size", "Latency (us)"]);
        assert_eq!(
            names("# Size [B]  Bandwidth [MB/s] | Time Mean [s] \u{b1} StdDev [s]  Samples", 5),
            ["Size [B]", "Bandwidth [MB/s]", "Time Mean [s]", "StdDev [s]", "Samples"]
        );
        assert_eq!(
            names("message size    mean time   99 % of them", 3),
            ["message size", "mean time", "99 % of them"]
        );
        assert_eq!(names("size,us", 2), ["size", "us"]);
        // Ambiguous: gaps within names and gaps between names are both one blank wide.
        assert_eq!(split_heading("message size mean time", 2), None);
    }

    #[test]
    fn banner__is_no_heading_and_no_row() {
        let text = "# Size          Latency (us)\n# Datatype: MPI_CHAR.\n1                       \
            0.12\n2                       0.13\n";
        let tables = find_tables(text, &[]);
        assert_eq!(tables[0].columns[1].name, "Latency (us)");
        let text = " TX depth        : 1\n Mtu             : 4096[B]\n Number of qps   : \
            1\t\tTransport type : IB
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:02\nCurrent time (1795438424) is Mon Nov 23 12:53:44 2026\n";
        assert!(find_tables(text, &[]).is_empty(), "{:?}", find_tables(text, &[]));
    }

    #[test]
    fn prose__is_no_table() {
        let text = "We ran it on 2 nodes with the patch that Stan sent, and saw 40 percent\nless.";
        assert!(find_tables(text, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn any_text__makes_tables_of_equal_columns(text in "(\\PC|\n|\t| \
            |[0-9./,eE+-]{1,12}){0,200}") {
            for table in find_tables(&text, &[]) {
                prop_assert!(table.rows() > 0);
                for column in &table.columns {
                    prop_assert_eq!(column.cells.len(), table.rows());
                    prop_assert!(column.cells.iter().all(|c| c.value.is_finite() && c.quantum >= 0.0));
                }
            }
        }
    }
}
