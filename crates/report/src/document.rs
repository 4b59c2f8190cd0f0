//! Output of a command, independent of its medium: a terminal ([`terminal`]), a page ([`html`]) or Markdown. JSON is
//! created from the records themselves.

pub mod html;
pub mod terminal;

use std::io::{self, Write};

use serde::Serialize;

/// Writes results to standard output, as JSON or as text.
///
/// # Errors
/// Standard output is closed or full.
pub fn write(
    as_json: bool, found: &impl Serialize, describe: impl FnOnce() -> Document,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        serde_json::to_writer_pretty(&mut out, found)?;
        return writeln!(out);
    }
    out.write_all(describe().to_screen().as_bytes())
}

/// A part of a document.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Names and values.
    Pairs(Vec<(String, String)>),
    /// A table.
    Table(Table),
}

/// Parts in order.
#[derive(Clone, Debug, Default)]
pub struct Document(pub Vec<Block>);

impl Document {
    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.0.push(Block::Heading(text.into()));
    }

    /// Adds a paragraph, which is a separate line on a terminal.
    pub fn text(&mut self, text: impl Into<String>) {
        self.0.push(Block::Text(text.into()));
    }

    /// Adds a name and its value.
    pub fn pair(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let pair = (name.into(), value.into());
        match self.0.last_mut() {
            Some(Block::Pairs(pairs)) => pairs.push(pair),
            _ => self.0.push(Block::Pairs(vec![pair])),
        }
    }

    /// Adds another value to the last name.
    pub fn go_on(&mut self, value: impl Into<String>) {
        self.pair("", value);
    }

    /// Adds a table, if it has rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.0.push(Block::Table(table));
        }
    }

    /// Formats the document as Markdown.
    pub fn to_markdown(&self) -> String {
        let block = |block: &Block| match block {
            Block::Heading(text) => format!("## {text}\n"),
            Block::Text(text) => wrap_prose(text),
            Block::Pairs(pairs) => pairs.iter().map(|(n, v)| format!("- {n}: {v}\n")).collect(),
            Block::Table(table) => table.to_markdown(),
        };
        self.0.iter().map(block).collect::<Vec<String>>().join("\n")
    }
}

/// Largest width of a line of prose in Markdown, in columns.
const PROSE_COLUMNS: usize = 120;

/// Wraps the long lines of a text in Markdown; headings and rows of tables stay unchanged.
pub fn wrap_prose(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.starts_with(['|', '#']) || line.chars().count() <= PROSE_COLUMNS {
            true => out.extend([line, "\n"]),
            false => out += &wrap(line, PROSE_COLUMNS, 0, 0),
        }
    }
    out
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, which may have fewer cells than columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Heading.
    pub head: Cell,
    /// Whether the column holds text, which is left-aligned.
    pub is_text: bool,
    /// Least width on a terminal, in characters.
    pub width: usize,
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The value.
    pub text: String,
    /// Second line, in a smaller font.
    pub below: String,
    /// Whether the second line is emphasized.
    pub is_strong: bool,
    /// Share of a whole, from 0 to 1, drawn as a bar; None: no bar.
    pub share: Option<f64>,
    /// Number of the colour of a square before the text; None: no square.
    pub swatch: Option<usize>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        let text = text.into();
        Cell { text, ..Cell::default() }
    }
}

impl Column {
    fn of(text: &str) -> Column {
        let (head, width) = text.rsplit_once(['<', '>']).unwrap_or((text, ""));
        Column {
            head: head.into(),
            is_text: !text[head.len()..].starts_with('>'),
            width: width.parse().unwrap_or(0),
        }
    }

    /// Creates a column of numbers.
    pub fn number(head: impl Into<Cell>, width: usize) -> Column {
        let head = head.into();
        Column { head, is_text: false, width }
    }

    /// Creates a column of text.
    pub fn text(head: impl Into<Cell>, width: usize) -> Column {
        let head = head.into();
        Column { head, is_text: true, width }
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        let columns = columns.into_iter().collect();
        Table { columns, rows: Vec::new() }
    }

    /// Creates a table without rows from a description such as `bytes>9|variant<14`: headings, alignment, least widths.
    pub fn of(columns: &str) -> Table {
        Table::new(columns.split('|').map(Column::of))
    }

    /// Adds columns, described as in [`Table::of`].
    pub fn add_columns(&mut self, columns: impl IntoIterator<Item = impl AsRef<str>>) {
        let columns = columns.into_iter().map(|text| Column::of(text.as_ref()));
        self.columns.extend(columns);
    }

    /// Adds a row.
    pub fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(T::into).collect());
    }

    /// Formats the table as Markdown. Vertical bars in cells are replaced, because Markdown separates columns by them.
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<&str>| {
            let cells: String =
                cells.iter().map(|c| format!(" {} |", c.replace('|', "/"))).collect();
            format!("|{cells}\n")
        };
        let head = line(self.columns.iter().map(|c| c.head.text.as_str()).collect());
        let rows = self.rows.iter().map(|row| line(row.iter().map(|c| c.text.as_str()).collect()));
        format!("{head}|{}\n{}", "---|".repeat(self.columns.len()), rows.collect::<String>())
    }
}

/// Wraps text in lines of at most `columns`, the first indented by `first` spaces and the others by `indent`.
pub fn wrap(text: &str, columns: usize, first: usize, indent: usize) -> String {
    let columns = columns.max(indent + 20);
    let mut out = " ".repeat(first);
    let mut used = first;
    let mut is_start = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !is_start && used + 1 + length > columns {
            out.push('\n');
            out += &" ".repeat(indent);
            used = indent;
            is_start = true;
        }
        if !is_start {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
        is_start = false;
    }
    out.push('\n');
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wrap__breaks_between_words_and_keeps_long_ones() {
        assert_eq!(wrap("one two three", 24, 0, 4), "one two three\n");
        let text = wrap("one two three four five six seven", 24, 2, 4);
        assert_eq!(text, "  one two three four\n    five six seven\n");
        let long = "x".repeat(50);
        assert_eq!(wrap(&long, 24, 0, 4), format!("{long}\n"));
    }
}
