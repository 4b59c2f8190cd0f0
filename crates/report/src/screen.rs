//! Width of the output: `COLUMNS`, or the width of the terminal.

use std::io::{self, IsTerminal};

/// Width of tables if no width is known, as in a pipe.
pub const COLUMNS: usize = 80;
/// Smallest width in use. No table fits a narrower terminal, which then wraps lines itself.
const COLUMNS_MIN: usize = 40;

/// Width of the output in columns; `None` if it is neither a terminal nor set by `COLUMNS`. Text in a pipe is not
/// wrapped: `grep` then finds each statement in one line.
pub fn find_columns() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|text| parse_columns(&text));
    let measure = || Some(usize::from(console::Term::stdout().size_checked()?.1).max(COLUMNS_MIN));
    set.or_else(|| io::stdout().is_terminal().then(measure).flatten())
}

/// Width of a table whose columns are chosen by width.
pub fn find_table_columns() -> usize {
    find_columns().unwrap_or(COLUMNS)
}

/// Parses the variable `COLUMNS`. Widths below [`COLUMNS_MIN`] are ignored.
fn parse_columns(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|columns| (COLUMNS_MIN..=10_000).contains(columns))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn columns__are_a_plausible_number_or_unknown() {
        assert_eq!(parse_columns("80"), Some(80));
        for wrong in ["", "0", "39", "-80", "wide", "99999999999"] {
            assert_eq!(parse_columns(wrong), None, "{wrong}");
        }
    }
}
