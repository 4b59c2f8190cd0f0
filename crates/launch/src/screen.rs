#![allow(unsafe_code)]
//! Width of the terminal at standard error, and wrapping of long messages. In a pipe or a file each message is one
//! line, which `grep` finds.

use fastpath_base::tell;
use std::io::IsTerminal;

const PREFIX: &str = "mpiexec: ";
/// Smallest width in use. A narrower terminal wraps lines itself.
const COLUMNS_MIN: usize = 40;

/// Writes one message to standard error. Control characters are escaped, as by [`tell!`].
pub fn tell(text: &str) {
    tell::lines(&wrap(&format!("{PREFIX}{}", tell::escape(text)), find_columns()));
}

/// Returns the width of the terminal; `None` if standard error is no terminal, or has no known width.
pub fn find_columns() -> Option<usize> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes to `size`, which lives during the call.
    let answer = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col).max(COLUMNS_MIN))
}

/// Wraps a line that exceeds `columns`, and ends each line with a newline. Continuations begin with `mpiexec:`, and are
/// indented by two columns more than their line.
pub fn wrap(line: &str, columns: Option<usize>) -> String {
    let rest = line.strip_prefix(PREFIX).unwrap_or(line);
    let start = line.len() - rest.trim_start_matches(' ').len();
    let (indent, words) = line.split_at(start);
    let mut text = indent.to_owned();
    let mut used = indent.chars().count();
    for (number, word) in words.split(' ').enumerate() {
        let width = word.chars().count();
        if number > 0 && columns.is_some_and(|columns| used + 1 + width > columns) {
            text += "\n";
            text += indent;
            text += "  ";
            used = indent.chars().count() + 2;
        } else if number > 0 {
            text += " ";
            used += 1;
        }
        text += word;
        used += width;
    }
    text + "\n"
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn line__is_wrapped_between_words_below_its_own_indent() {
        let line = "mpiexec:   rank 0 waits for rank 1, which waits for rank 0";
        assert_eq!(wrap(line, None), format!("{line}\n"));
        assert_eq!(wrap(line, Some(line.len())), format!("{line}\n"));
        let wrapped = "mpiexec:   rank 0 waits for rank 1,\nmpiexec:     which waits for rank 0\n";
        assert_eq!(wrap(line, Some(40)), wrapped);
        let word = "a".repeat(50);
        assert_eq!(wrap(&format!("mpiexec: {word}"), Some(40)), format!("mpiexec: {word}\n"));
        assert_eq!(wrap("", Some(40)), "\n");
    }
}
