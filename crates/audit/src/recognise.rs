//! Parses the outputs of tools with known headings, as described by [`formats`].
//!
//! Other lines of such an output, such as banners, are ignored. A row counts only below headings of its tool, with one
//! value for each heading.
//!
//! [`formats`]: super::formats

mod context;
mod values;

use super::formats::{
    FORMATS, Format, Heading, IPERF3, Iperf3Column, Note, OSU, QPERF, imb_megabytes, matches,
    written_unit,
};
use super::table::{Cell, Column, ColumnRole, ParsedTable, Unit, read_number};
use context::OutputContext;
use values::{Values, read_hpcc_major, read_hpcc_summary, read_netpipe, read_osu_init, read_qperf};

/// Tables of known tools in a text, and the lines that belong to them.
pub struct RecognisedTables {
    pub tables: Vec<ParsedTable>,
    /// For each line, whether it is a row or a heading of one of the tables.
    pub taken: Vec<bool>,
}

pub fn recognise(text: &str) -> RecognisedTables {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let took = reader.read_line(index + 1, line);
        reader.taken.push(took);
    }
    reader.close();
    RecognisedTables { tables: reader.tables, taken: reader.taken }
}

enum Rows {
    /// One value for each heading.
    Headed(Vec<&'static Heading>),
    /// Rows of iperf3, with the columns of its headings.
    Iperf3(Vec<usize>),
    /// A named value on each line, or a line of a fixed form. A row ends when a name repeats. Holds the row's number.
    Named(usize),
}

#[derive(Default)]
struct Reader {
    context: OutputContext,
    open: Option<(ParsedTable, Rows)>,
    tables: Vec<ParsedTable>,
    taken: Vec<bool>,
}

impl Reader {
    /// Parses a line; returns whether it belongs to a table.
    fn read_line(&mut self, number: usize, line: &str) -> bool {
        if self.context.read(line) {
            self.close();
            return false;
        }
        if let Some(opened) = self.open_headed(line).or_else(|| self.open_iperf3(line)) {
            self.close();
            self.open = Some(opened);
            return true;
        }
        let took = self.push_row(line) || self.push_named(line);
        if let (true, Some((table, _))) = (took, &mut self.open) {
            let first = if table.lines.0 == 0 { number } else { table.lines.0 };
            table.lines = (first, number);
        }
        took
    }

    fn close(&mut self) {
        if let Some((mut table, _)) = self.open.take()
            && table.lines.0 > 0
        {
            table.fill(table.rows());
            self.tables.push(table);
        }
    }

    /// Returns a new table if the line holds exactly headings of a known tool.
    fn open_headed(&mut self, line: &str) -> Option<(ParsedTable, Rows)> {
        let mut formats = FORMATS.format.iter();
        let (format, layout) = formats.find_map(|f| Some((f, split_headings(f, line)?)))?;
        if format.tool == OSU && self.context.osu.is_none() && !is_osu_width(line) {
            return None;
        }
        let version = self.context.version_of(&format.tool);
        let columns = layout.iter().filter(|(h, _)| !h.words).map(|(heading, name)| {
            let unit = match heading.text.as_str() {
                "Mbytes/sec" => Some(imb_megabytes(version)),
                _ => heading.unit,
            };
            Column {
                name: if name == "," { "sample".into() } else { name.clone() },
                units: unit.into_iter().collect(),
                statistic: heading.statistic.as_deref(),
                role: heading.role,
                ..Column::default()
            }
        });
        let mut table = ParsedTable {
            tool: Some(name_tool(&format.tool, version)),
            title: self.context.title_of(&format.tool).to_owned(),
            unknown: &format.unknown,
            columns: columns.collect(),
            ..ParsedTable::default()
        };
        table.known = choose_notes(format, &table);
        if std::mem::take(&mut self.context.ours) {
            table.tool = Some(format!("Fastpath, in the columns of {}", format.tool));
            table.known = vec!["the line above the headings explains the columns"];
            table.unknown = "";
            table.columns.iter_mut().for_each(|c| c.statistic = None);
        }
        let layout = layout.into_iter().map(|(heading, _)| heading).collect();
        Some((table, Rows::Headed(layout)))
    }

    fn open_iperf3(&self, line: &str) -> Option<(ParsedTable, Rows)> {
        let mut rest = line.trim().strip_prefix("[ ID]")?;
        rest = rest.strip_prefix("[Role]").unwrap_or(rest).trim_start();
        rest = rest.strip_prefix("Interval")?.trim_start();
        let mut layout = Vec::new();
        while !rest.is_empty() {
            let known = FORMATS.iperf3.iter().position(|c| rest.starts_with(&c.name))?;
            layout.push(known);
            rest = rest[FORMATS.iperf3[known].name.len()..].trim_start();
        }
        let columns = layout.iter().map(|&known| {
            let Iperf3Column { name, statistic, words } = &FORMATS.iperf3[known];
            Column {
                name: name.clone(),
                statistic: Some(statistic.as_str()),
                role: if *words == 2 { ColumnRole::Measured } else { ColumnRole::Parameter },
                digits: (*words == 2 && name != "Jitter").then_some(3),
                ..Column::default()
            }
        });
        let table = ParsedTable {
            tool: Some(IPERF3.into()),
            known: vec![
                "units of bytes are powers of 1024, units of bits are powers of 1000",
                "a row is one interval; the rows named sender and receiver cover the whole run",
            ],
            unknown: "the spread within an interval",
            columns: columns.collect(),
            ..ParsedTable::default()
        };
        Some((table, Rows::Iperf3(layout)))
    }

    /// Adds the line to the open table, if the line is a row.
    fn push_row(&mut self, line: &str) -> bool {
        let Some((table, rows)) = &mut self.open else {
            return false;
        };
        match rows {
            Rows::Headed(layout) => match read_headed(layout, line) {
                Some(cells) => {
                    let columns = table.columns.iter_mut();
                    columns.zip(cells).for_each(|(c, cell)| c.cells.push(cell));
                    true
                }
                None => false,
            },
            Rows::Iperf3(layout) => match read_iperf3(layout, line) {
                Some(cells) => {
                    for (column, (cell, unit)) in table.columns.iter_mut().zip(cells) {
                        column.cells.push(cell);
                        unit.into_iter().for_each(|unit| column.add_unit(unit));
                    }
                    true
                }
                None => false,
            },
            Rows::Named(_) => false,
        }
    }

    /// Adds the line's values, if the line is a named value or has a fixed form.
    fn push_named(&mut self, line: &str) -> bool {
        let values = [read_hpcc_summary, read_hpcc_major, read_osu_init, read_netpipe]
            .into_iter()
            .find_map(|read| read(line))
            .or_else(|| read_qperf(self.context.title_of(QPERF), line));
        let Some(Values { set, values }) = values else {
            return false;
        };
        let tool = name_tool(&set.tool, self.context.version_of(&set.tool));
        let title = set.title.as_deref();
        let title = title.unwrap_or_else(|| self.context.title_of(&set.tool)).to_owned();
        let goes_on = |t: &ParsedTable| t.tool.as_ref() == Some(&tool) && t.title == title;
        let is_named =
            |(t, rows): &(ParsedTable, Rows)| matches!(rows, Rows::Named(_)) && goes_on(t);
        if !self.open.as_ref().is_some_and(is_named) {
            self.close();
            let goes_on = self.tables.pop_if(|t| set.tool == QPERF && goes_on(t));
            let table = goes_on.unwrap_or_else(|| ParsedTable {
                tool: Some(tool),
                title,
                known: set.known.iter().map(String::as_str).collect(),
                unknown: &set.unknown,
                ..ParsedTable::default()
            });
            let row = table.rows();
            self.open = Some((table, Rows::Named(row)));
        }
        if let Some((table, Rows::Named(row))) = &mut self.open {
            if values.iter().any(|v| v.is_in(table, *row)) {
                *row += 1;
            }
            values.into_iter().for_each(|v| v.push_to(table, *row));
        }
        true
    }
}

fn name_tool(tool: &str, version: Option<&str>) -> String {
    match version {
        Some(version) if !version.is_empty() => format!("{tool} {version}"),
        _ => tool.to_owned(),
    }
}

fn choose_notes(format: &'static Format, table: &ParsedTable) -> Vec<&'static str> {
    let is_test = |t: &String| match t.as_str() {
        "" => table.title.is_empty(),
        part => table.title.contains(part),
    };
    let has = |part: &str| table.columns.iter().any(|c| c.name.contains(part));
    let fits = |n: &&Note| (n.tests.is_empty() || n.tests.iter().any(is_test)) && has(&n.column);
    format.note.iter().filter(fits).map(|n| n.text.as_str()).collect()
}

/// Whether the headings have OSU's column widths, 10 and then 18.
fn is_osu_width(line: &str) -> bool {
    line.starts_with("# Size") && line.trim_end().len() % 18 == 10
}

/// Returns the headings of a line as printed, if all words belong to headings of the tool, and one identifies it.
fn split_headings(format: &'static Format, line: &str) -> Option<Vec<(&'static Heading, String)>> {
    let line = line.replace('#', " ");
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut found: Vec<(&'static Heading, String)> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let length = |h: &Heading| h.text.split(' ').count();
        let fits = |h: &&Heading| {
            let has = words.get(at..at + length(h));
            let mut parts = h.text.split(' ').zip(has.unwrap_or_default());
            let is_used = !h.text.contains('*') && found.iter().any(|(f, _)| std::ptr::eq(*f, *h));
            has.is_some() && !is_used && parts.all(|(p, w)| matches(p, w))
        };
        // The first of equally long headings is used: `max_by_key` returns its last maximum, and the order is reversed.
        let fitting = format.heading.iter().filter(fits).rev();
        let heading = fitting.max_by_key(|h| length(h))?;
        let count = length(heading);
        found.push((heading, words[at..at + count].join(" ")));
        at += count;
    }
    let marked = found.iter().any(|(h, _)| format.marks.contains(&h.text));
    marked.then_some(found)
}

/// Parses the numbers of a row below these headings.
fn read_headed(layout: &[&'static Heading], line: &str) -> Option<Vec<Cell>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() != layout.len() {
        return None;
    }
    let numbers = layout.iter().zip(words).filter(|(h, _)| !h.words);
    numbers.map(|(_, word)| read_value(word)).collect()
}

/// Parses a number that may be missing: `-nan`.
fn read_value(word: &str) -> Option<Cell> {
    let word = word.trim_end_matches([',', '%']);
    if ["nan", "-nan", "inf", "-inf"].contains(&word) {
        return Some(Cell::MISSING);
    }
    let (cell, rest) = read_number(word)?;
    rest.is_empty().then_some(cell)
}

/// Parses the values of iperf3's row with their units; None for another line. All rows have a total and a rate; other
/// columns may be missing at the end.
fn read_iperf3(layout: &[usize], line: &str) -> Option<Vec<(Cell, Option<Unit>)>> {
    let (_, values) = line.trim().strip_prefix('[')?.rsplit_once(']')?;
    let mut words = values.split_whitespace().peekable();
    words.next()?.split_once('-')?;
    words.next_if_eq(&"sec")?;
    let mut cells = Vec::new();
    for &known in layout {
        let column = &FORMATS.iperf3[known];
        let cell = words.peek().and_then(|w| read_value(w.split('/').next()?));
        let Some(cell) = cell else {
            if ["Transfer", "Bitrate"].contains(&column.name.as_str()) {
                return None;
            }
            cells.push((Cell::MISSING, None));
            continue;
        };
        words.next();
        let unit = match column.words {
            2 => Some(written_unit(IPERF3, words.next()?)?),
            _ => None,
        };
        cells.push((cell, unit));
    }
    // Remarks are the share of lost datagrams, `(omitted)`, and the side of a summary row.
    let is_remark = |w: &str| ["sender", "receiver"].contains(&w) || w.starts_with('(');
    words.all(is_remark).then_some(cells)
}
