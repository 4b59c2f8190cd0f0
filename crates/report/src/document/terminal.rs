//! A document on a terminal or in a pipe: plain lines, with columns of fitting width. On a terminal, lines are wrapped.

use super::{Block, Cell, Column, Document, Table, wrap};
use crate::format::behind;
use crate::screen;

fn plain(cell: &Cell) -> String {
    cell.text.clone() + &behind(" ", &cell.below)
}

impl Table {
    /// Returns the width of each column: that of its longest cell, and at least the column's minimum width.
    fn measure(&self) -> Vec<usize> {
        let wide = |(i, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(i));
            let texts = cells.chain([&column.head]).map(|c| plain(c).chars().count());
            texts.max().unwrap_or(0).max(column.width)
        };
        self.columns.iter().enumerate().map(wide).collect()
    }

    /// Width of the longest line.
    pub fn width(&self) -> usize {
        self.measure().iter().map(|width| width + 1).sum::<usize>().saturating_sub(1)
    }

    /// Removes the columns at these places, as far as there are such columns.
    pub fn drop_columns(&mut self, places: &[usize]) {
        fn keep<T>(items: &mut Vec<T>, places: &[usize]) {
            let mut at = 0..;
            items.retain(|_| at.next().is_some_and(|at| !places.contains(&at)));
        }
        keep(&mut self.columns, places);
        self.rows.iter_mut().for_each(|row| keep(row, places));
    }

    /// Removes the columns of each item of `order`, in turn, until the table fits into `columns`. An item counts the
    /// columns that the items before it have left.
    pub fn narrow(&mut self, columns: usize, order: &[&[usize]]) {
        for places in order {
            if self.width() <= columns {
                break;
            }
            self.drop_columns(places);
        }
    }

    fn line<'a>(&self, widths: &[usize], cells: impl Iterator<Item = &'a Cell>) -> String {
        let columns = self.columns.iter().zip(widths);
        let cells = columns.zip(cells).map(|((column, width), cell)| match column.is_text {
            true => format!("{:<width$}", plain(cell)),
            false => format!("{:>width$}", plain(cell)),
        });
        cells.collect::<Vec<String>>().join(" ").trim_end().to_owned()
    }

    /// The line of headings.
    pub fn head(&self) -> String {
        self.line(&self.measure(), self.columns.iter().map(|c| &c.head))
    }

    /// The rows, one a line.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.measure();
        self.rows.iter().map(|row| self.line(&widths, row.iter())).collect()
    }

    /// Formats a row without adding it, for a table that is printed during a measurement.
    pub fn format_row<T: Into<Cell>>(&self, cells: impl IntoIterator<Item = T>) -> String {
        let widths: Vec<usize> = self.columns.iter().map(|c| c.width).collect();
        let cells: Vec<Cell> = cells.into_iter().map(T::into).collect();
        self.line(&widths, cells.iter())
    }

    /// Formats a row without adding it. A last column of text is wrapped if the row exceeds `columns`.
    pub fn format_row_within<T: Into<Cell>>(
        &self, cells: impl IntoIterator<Item = T>, columns: Option<usize>,
    ) -> String {
        let before: usize = self.columns.iter().rev().skip(1).map(|c| c.width + 1).sum();
        fit_line(&self.format_row(cells), before, columns).trim_end().to_owned()
    }

    /// Headings and rows.
    pub fn to_text(&self) -> String {
        self.to_text_within(None)
    }

    /// Headings and rows in lines of at most `columns`, if the last column is text, which is then wrapped: beside the
    /// other columns if at least [`LAST_MIN`] columns are left, else below them.
    pub fn to_text_within(&self, columns: Option<usize>) -> String {
        let widths = self.measure();
        let heads = self.columns.iter().map(|column| &column.head);
        let mut lines = vec![self.line(&widths, heads)];
        lines.extend(self.rows.iter().map(|row| self.line(&widths, row.iter())));
        lines.retain(|line| !line.is_empty());
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 1).sum();
        let has_text = self.columns.last().is_some_and(|column| column.is_text);
        let columns = columns.filter(|_| has_text);
        lines.iter().map(|line| fit_line(line, before, columns)).collect()
    }
}

/// Least width of a wrapped last column that stays beside the other columns.
const LAST_MIN: usize = 28;
/// Indentation of a last column below the others.
const BELOW: usize = 4;

/// Wraps the text that begins at column `before` of a line, if the line exceeds `columns`. A text without room beside
/// the other columns follows them more closely if the line then fits.
fn fit_line(line: &str, before: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|&columns| line.chars().count() > columns) else {
        return format!("{line}\n");
    };
    let at = line.char_indices().nth(before).map_or(line.len(), |(at, _)| at);
    let (others, last) = line.split_at(at);
    if before + LAST_MIN <= columns {
        return others.to_owned() + wrap(last, columns, before, before).trim_start();
    }
    let closer = format!("{}  {last}\n", others.trim_end());
    if closer.chars().count() <= columns {
        return closer;
    }
    format!("{}\n{}", others.trim_end(), wrap(last, columns, BELOW, BELOW))
}

const NAME: usize = 16;

impl Document {
    /// Formats the document as lines. An empty line precedes each heading but the first; the content below is indented.
    pub fn to_text(&self) -> String {
        self.to_text_within(None)
    }

    /// Formats the document for the standard output, as wide as its terminal.
    pub fn to_screen(&self) -> String {
        self.to_text_within(screen::find_columns())
    }

    /// Formats the document in lines of at most `columns`. Columns of numbers are not wrapped.
    pub fn to_text_within(&self, columns: Option<usize>) -> String {
        let mut text = String::new();
        let mut indent = "";
        for block in &self.0 {
            let begins = matches!(block, Block::Heading(_));
            if begins {
                text += if text.is_empty() { "" } else { "\n" };
                indent = "";
            }
            let room = columns.map(|columns| columns.saturating_sub(indent.len()));
            let lines = match block {
                Block::Heading(line) | Block::Text(line) => wrap_lines(line, room),
                Block::Pairs(pairs) => format_pairs(pairs, room),
                Block::Table(table) => table.to_text_within(room),
            };
            text.extend(lines.lines().map(|line| format!("{indent}{line}\n")));
            indent = if begins { "  " } else { indent };
        }
        text
    }
}

/// Wraps the lines of a text that exceed `columns`. Continuations are indented by two columns more than their line. If
/// a line has columns, at least two spaces apart, only the last column is wrapped.
pub fn wrap_lines(text: &str, columns: Option<usize>) -> String {
    let wrap_line = |line: &str| match columns {
        Some(columns) if line.chars().count() > columns => {
            let indent = line.len() - line.trim_start_matches(' ').len();
            if let Some(gap) = line[indent..].rfind("  ") {
                let before = line[..indent + gap].chars().count() + 2;
                return fit_line(line, before, Some(columns));
            }
            wrap(line, columns, indent, indent + 2)
        }
        _ => format!("{line}\n"),
    };
    match text.is_empty() {
        true => "\n".to_owned(),
        false => text.lines().map(wrap_line).collect(),
    }
}

fn format_pairs(pairs: &[(String, String)], columns: Option<usize>) -> String {
    let widest = pairs.iter().map(|(name, _)| name.chars().count()).max();
    let width = widest.unwrap_or(0).max(NAME);
    let format = |(name, value): &(String, String)| {
        fit_line(format!("{name:<width$} {value}").trim_end(), width + 1, columns)
    };
    pairs.iter().map(format).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn make_document() -> Document {
        let mut said = Document::default();
        let prose = "a value of several words that does not fit into the given width of a line";
        said.heading(format!("heading: {prose}"));
        said.text(format!("  indented: {prose}"));
        said.pair("name", prose);
        let mut table = Table::of("size>8|what<10|");
        table.row(["8", "first", prose]);
        table.row(["16", "second", "short"]);
        said.table(table);
        said
    }

    #[test]
    fn document__fits_its_columns_and_keeps_every_word() {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let whole = make_document().to_text();
        for columns in [40, 60, 80] {
            let text = make_document().to_text_within(Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert_eq!(words(&text), words(&whole), "{text}");
        }
        assert_eq!(make_document().to_text_within(Some(200)), whole);
    }

    #[test]
    fn columns_in_a_text__stay_and_the_last_is_wrapped() {
        let prose = "the first bytes are sent with the request, the rest in fragments";
        let wrap = |line: &str| wrap_lines(line, Some(60));
        let wide = format!("  49 to 16384 B        eager          284 ns   {prose}");
        let below = format!("  49 to 16384 B        eager          284 ns\n    {}", &prose[..55]);
        assert!(wrap(&wide).starts_with(below.trim_end()), "{}", wrap(&wide));
        let beside = wrap(&format!("  upgrades      {prose}"));
        assert!(beside.starts_with("  upgrades      the first"), "{beside}");
        assert!(beside.contains("\n                "), "{beside}");
    }

    #[test]
    fn short_last_column__is_closer_to_a_short_one_that_precedes_it() {
        let mut table = Table::of("name<10|value<10|origin<");
        table.row(["payload", "256 B", "assumed"]);
        table.row(["network", "unknown, so not modelled; pass --wire", "assumed"]);
        let text = table.to_text_within(Some(50));
        let rows: Vec<&str> = text.lines().skip(1).collect();
        let long = "network    unknown, so not modelled; pass --wire";
        assert_eq!(rows, ["payload    256 B  assumed", long, "    assumed"], "{text}");
    }

    #[test]
    fn last_column__is_beside_the_others_or_below_them() {
        let text = make_document().to_text_within(Some(60));
        assert!(text.contains("\n         8 first      a value"), "{text}");
        assert!(text.contains(&format!("\n  {:20}", "")), "aligned: {text}");
        let text = make_document().to_text_within(Some(40));
        assert!(text.contains("\n         8 first\n      a value"), "{text}");
    }
}
