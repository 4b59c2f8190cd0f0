//! Reads tables out of pasted text: rows of numbers, with or without headings, units and labels.
//!
//! Nothing here knows a tool. A row is a line that holds more numbers than words; rows that follow
//! each other with equally many numbers make a table; a line above with one name for each column
//! names the columns. Numbers are separated by blanks, tabs, commas, semicolons, bars or slashes.

/// A longer input is cut off here; a table pasted by a person is far below.
const BYTES_MAX: usize = 1 << 20;

/// More numbers in a line than this are no table.
const COLUMNS_MAX: usize = 32;

/// One printed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its value.
    pub value: f64,
    /// What one more in its last printed digit would add; 0 for a size with K, M or G.
    pub quantum: f64,
}

impl Cell {
    /// The same in another unit.
    pub fn scaled(self, factor: f64) -> Cell {
        Cell {
            value: self.value * factor,
            quantum: self.quantum * factor,
        }
    }
}

impl std::fmt::Display for Cell {
    /// With the decimals that it was printed with.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = (-self.quantum.log10()).round().clamp(0.0, 12.0);
        let text = format!("{:.*}", decimals as usize, self.value);
        f.pad(&text)
    }
}

/// A time unit, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    /// `ns`, `us`, `ms`, `s`.
    pub name: &'static str,
    /// Its length.
    pub ns: f64,
}

const UNITS: [(&[&str], TimeUnit); 4] = [
    (&["ns", "nsec", "nsecs", "nanoseconds"], unit("ns", 1.0)),
    (
        &["us", "usec", "usecs", "\u{b5}s", "\u{3bc}s", "microseconds"],
        unit("us", 1e3),
    ),
    (&["ms", "msec", "msecs", "milliseconds"], unit("ms", 1e6)),
    (&["s", "sec", "secs", "seconds"], unit("s", 1e9)),
];

const fn unit(name: &'static str, ns: f64) -> TimeUnit {
    TimeUnit { name, ns }
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Its heading; empty if it has none.
    pub name: String,
    /// The time unit that heading or numbers carry.
    pub unit: Option<TimeUnit>,
    /// Its numbers.
    pub cells: Vec<Cell>,
}

/// A table of the text.
#[derive(Clone, Debug)]
pub struct Table {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    /// All equally long.
    pub columns: Vec<Column>,
}

/// What one line holds.
struct Line {
    cells: Vec<(Cell, Option<TimeUnit>)>,
    words: Vec<String>,
}

/// All tables of a text, in its order.
pub fn find_tables(text: &str) -> Vec<Table> {
    let mut end = text.len().min(BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut tables = Vec::new();
    let mut heading: Option<String> = None;
    let mut open: Option<Table> = None;
    for (index, raw) in text[..end].lines().enumerate() {
        let line = split_line(raw);
        if !line.is_row() {
            tables.extend(open.take());
            if line.words.len() >= 2 || raw.trim_start().starts_with('#') {
                heading = Some(raw.to_owned());
            }
            continue;
        }
        let fits = |t: &Table| t.columns.len() == line.cells.len();
        if !open.as_ref().is_some_and(fits) {
            tables.extend(open.take());
            open = Some(open_table(index + 1, &line, heading.as_deref()));
        }
        if let Some(table) = open.as_mut() {
            table.push(index + 1, &line);
        }
    }
    tables.extend(open);
    tables
}

fn open_table(line: usize, first: &Line, heading: Option<&str>) -> Table {
    let count = first.cells.len();
    let names = heading.and_then(|h| split_heading(h, count));
    let names = names.unwrap_or_else(|| vec![String::new(); count]);
    let columns = names.into_iter().map(|name| Column {
        unit: unit_in_heading(&name),
        name,
        cells: Vec::new(),
    });
    Table {
        lines: (line, line),
        columns: columns.collect(),
    }
}

impl Table {
    fn push(&mut self, number: usize, line: &Line) {
        self.lines.1 = number;
        for (column, (cell, unit)) in self.columns.iter_mut().zip(&line.cells) {
            column.cells.push(*cell);
            column.unit = column.unit.or(*unit);
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |c| c.cells.len())
    }
}

impl Column {
    /// Whether these are sizes, counts or ranks rather than measurements: whole numbers that are
    /// powers of two or have at most two digits that are not zero.
    pub fn is_parameter(&self) -> bool {
        let round = |c: &Cell| {
            let whole = c.value.fract() == 0.0 && c.value.abs() < 1e15 && c.quantum <= 1.0;
            whole && (is_power_of_two(c.value) || digits(c.value) <= 2)
        };
        let named = self.name.to_lowercase();
        let says = ["iter", "bytes", "size", "rank", "np"].iter();
        let says = says.into_iter().any(|w| named.contains(w)) && !named.contains('/');
        says && self.unit.is_none() || (self.unit.is_none() && self.cells.iter().all(round))
    }
}

fn is_power_of_two(value: f64) -> bool {
    value == 0.0 || (value > 0.0 && (value as u64).is_power_of_two())
}

/// Digits of a whole number without the zeros at its end.
fn digits(value: f64) -> u32 {
    let mut rest = value.abs() as u64;
    while rest > 0 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest.checked_ilog10().map_or(0, |d| d + 1)
}

impl Line {
    fn is_row(&self) -> bool {
        let cells = self.cells.len();
        (1..=COLUMNS_MAX).contains(&cells) && self.words.len() <= cells.max(2)
    }
}

fn split_line(raw: &str) -> Line {
    let mut line = Line {
        cells: Vec::new(),
        words: Vec::new(),
    };
    let comment = raw.trim_start().starts_with('#');
    let cut = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|' | '/' | '=' | ':');
    for token in raw.split(cut).filter(|t| !t.is_empty()) {
        match parse_cell(token) {
            Some(cell) if !comment => line.cells.push(cell),
            _ => match (unit_named(token), line.cells.last_mut()) {
                (Some(unit), Some((_, slot @ None))) => *slot = Some(unit),
                _ => line.words.push(token.to_owned()),
            },
        }
    }
    line
}

/// A number with its printed precision, and the unit that is written to it.
fn parse_cell(token: &str) -> Option<(Cell, Option<TimeUnit>)> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let mut end = token.find(|c| !is_number(c)).unwrap_or(token.len());
    let exponent = token[end..].strip_prefix(['e', 'E']).and_then(|rest| {
        let stop = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let power = rest[..stop].parse::<i32>().ok()?;
        end += 1 + stop;
        Some(power)
    });
    let (number, suffix) = token.split_at(end);
    let value: f64 = number.parse().ok()?;
    if !value.is_finite() || value.abs() > 1e18 {
        return None;
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    let decimals = mantissa.split_once('.').map_or(0, |(_, d)| d.len()).min(18);
    let quantum = 10f64.powi(exponent.unwrap_or(0).clamp(-40, 40) - decimals as i32);
    let scaled = |factor: f64| Cell {
        value: value * factor,
        quantum: 0.0,
    };
    let cell = Cell { value, quantum };
    match suffix {
        "" | "%" => Some((cell, None)),
        "K" | "k" | "KiB" | "KB" => Some((scaled(1024.0), None)),
        "M" | "MiB" | "MB" => Some((scaled(1048576.0), None)),
        "G" | "GiB" | "GB" => Some((scaled(1073741824.0), None)),
        other => unit_named(other).map(|u| (cell, Some(u))),
    }
}

fn unit_named(word: &str) -> Option<TimeUnit> {
    let word = word.to_lowercase();
    let found = UNITS
        .iter()
        .find(|(names, _)| names.contains(&word.as_str()));
    found.map(|(_, unit)| *unit)
}

/// The time unit in a heading such as `t_min[usec]` or `Latency (us)`.
fn unit_in_heading(name: &str) -> Option<TimeUnit> {
    if name.contains("/s") {
        return None;
    }
    let cut = |c: char| !c.is_alphanumeric();
    name.split(cut).rev().find_map(unit_named)
}

/// The names of `count` columns, if the line has so many: parted by two blanks or more, or by one.
fn split_heading(line: &str, count: usize) -> Option<Vec<String>> {
    let trim = |s: &str| s.trim().trim_start_matches('#').trim().to_owned();
    let clean = |parts: Vec<&str>| -> Option<Vec<String>> {
        let parts: Vec<String> = parts.into_iter().map(trim).collect();
        let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        (parts.len() == count).then_some(parts)
    };
    let line = line.replace('\t', "  ");
    clean(line.split("  ").collect())
        .or_else(|| clean(line.split_whitespace().collect()))
        .or_else(|| clean(line.split([',', ';', '|', '/']).collect()))
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
        let tables = find_tables(text);
        let [table] = &tables[..] else {
            panic!("{tables:?}");
        };
        assert_eq!((table.rows(), table.lines), (2, (2, 3)));
        let names: Vec<_> = table.columns.iter().map(|c| c.name.as_str()).collect();
        let wanted = [
            "bytes",
            "iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
        ];
        assert_eq!(names, wanted);
        assert_eq!(table.columns[4].unit.unwrap().name, "us");
        assert_eq!(
            table.columns[2].cells[0],
            Cell {
                value: 1.26,
                quantum: 0.01
            }
        );
        assert!(table.columns[0].is_parameter() && table.columns[1].is_parameter());
        assert!(!table.columns[4].is_parameter());
    }

    #[test]
    fn row__may_have_labels_units_and_slashes() {
        let tables = find_tables("np 2   2.688/2.719/2.750 us\nnp 40  4.062/6.753/10.187 us\n");
        assert_eq!(tables[0].columns.len(), 4);
        assert_eq!(tables[0].columns[3].unit.unwrap().name, "us");
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
            assert!(
                (cell.quantum - quantum).abs() <= quantum * 1e-9,
                "{text}: {cell:?}"
            );
        }
        for text in ["nan", "inf", "1e400", "--3", "1.2.3", "0x10", "e5", "."] {
            assert_eq!(parse_cell(text), None, "{text}");
        }
    }

    #[test]
    fn prose__is_no_table() {
        let text = "We ran it on 2 nodes with the patch that Stan sent, and saw 40 percent\nless.";
        assert!(find_tables(text).is_empty());
    }

    proptest! {
        #[test]
        fn any_text__makes_tables_of_equal_columns(text in "(\\PC|\n|\t| |[0-9./,eE+-]{1,12}){0,200}") {
            for table in find_tables(&text) {
                prop_assert!(table.rows() > 0);
                for column in &table.columns {
                    prop_assert_eq!(column.cells.len(), table.rows());
                    prop_assert!(column.cells.iter().all(|c| c.value.is_finite() && c.quantum >= 0.0));
                }
            }
        }
    }
}
