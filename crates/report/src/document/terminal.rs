//! A document on a terminal or in a pipe: plain lines, with columns of fitting width.

use super::{Block, Cell, Column, Document, Table};
use crate::format::behind;

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

    /// Headings and rows.
    pub fn to_text(&self) -> String {
        let lines = [self.head()].into_iter().chain(self.lines());
        lines.filter(|l| !l.is_empty()).map(|line| line + "\n").collect()
    }
}

const NAME: usize = 16;

impl Document {
    /// Formats the document as lines. An empty line precedes each heading but the first; the content below is indented.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut indent = "";
        for block in &self.0 {
            let (lines, begins) = match block {
                Block::Heading(heading) => (format!("{heading}\n"), true),
                Block::Text(line) => (format!("{line}\n"), false),
                Block::Pairs(pairs) => (format_pairs(pairs), false),
                Block::Table(table) => (table.to_text(), false),
            };
            if begins {
                text += if text.is_empty() { "" } else { "\n" };
                indent = "";
            }
            text.extend(lines.lines().map(|line| format!("{indent}{line}\n")));
            indent = if begins { "  " } else { indent };
        }
        text
    }
}

fn format_pairs(pairs: &[(String, String)]) -> String {
    let widest = pairs.iter().map(|(name, _)| name.chars().count()).max();
    let width = widest.unwrap_or(0).max(NAME);
    pairs
        .iter()
        .map(|(name, value)| format!("{name:<width$} {value}").trim_end().to_owned() + "\n")
        .collect()
}
