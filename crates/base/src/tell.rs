//! Messages to the user. A message that cannot be written is lost, and never ends the program.

use std::borrow::Cow;
use std::fmt::{self, Arguments, Display, Formatter, Write as _};
use std::io::{Write, stderr};

/// Writes one line to standard error, formatted as by `format!`. Control characters, which names from the program or
/// user may have, are escaped. Escaped, they neither begin another line nor control the terminal.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::tell::line(format_args!($($words)*)) };
}

/// Writes one line; see [`tell!`].
pub fn line(text: Arguments<'_>) {
    write(&format!("{}\n", escape(&text.to_string())));
}

/// Writes lines to standard error, each with its newline. Control characters except newlines are escaped. Names in the
/// text must have passed through [`escape`].
pub fn lines(text: &str) {
    write(&escape_lines(text));
}

/// Writes `text` with one call, so that lines of processes with a common standard error do not mix. Unlike `eprint!`,
/// it does not panic if the write fails.
fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// A name, path or value as shown in a message: control characters become `\n`, `\u{1b}`. Does not allocate.
#[derive(Clone, Copy, Debug)]
pub struct EscapedText<'a>(pub &'a str);

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

/// Returns a number and its noun, in the plural unless the number is 1.
pub fn count(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// Escapes control characters; see [`EscapedText`].
pub fn escape(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(EscapedText(text).to_string()),
        false => Cow::Borrowed(text),
    }
}

/// Escapes control characters other than newlines; see [`EscapedText`].
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    match text.contains(|c: char| c.is_control() && c != '\n') {
        true => Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n")),
        false => Cow::Borrowed(text),
    }
}

/// A string of at most `N` bytes that is written without an allocation, in a signal handler or on the message path. A
/// longer text is cut at the border of a character.
#[derive(Debug)]
pub struct FixedString<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for FixedString<N> {
    fn default() -> Self {
        FixedString { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> FixedString<N> {
    /// Returns the text written so far.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for FixedString<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(N - self.len);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn count__of_one_is_singular() {
        assert_eq!((count(1u32, "rank"), count(0u32, "rank")), ("1 rank".into(), "0 ranks".into()));
    }

    #[test]
    fn fixed_string__is_cut_at_a_border_of_a_character() {
        let mut text = FixedString::<6>::default();
        assert_eq!(text.as_str(), "");
        let _ = text.write_str("abcd\u{e9}e\u{e9}");
        assert_eq!(text.as_str(), "abcd\u{e9}");
        let _ = text.write_str("f");
        assert_eq!(text.as_str(), "abcd\u{e9}");
        let mut text = FixedString::<5>::default();
        let _ = text.write_str("abcd\u{e9}");
        assert_eq!(text.as_str(), "abcd");
    }

    #[test]
    fn escape__leaves_no_control_character_and_all_other_text() {
        assert_eq!(escape("a\nmpiexec: b\r\u{1b}[2J\u{9b}\t\0"), {
            r"a\nmpiexec: b\r\u{1b}[2J\u{9b}\t\u{0}"
        });
        assert!(matches!(
            escape("d\u{e9}j\u{e0} \\n \"x\""),
            Cow::Borrowed("d\u{e9}j\u{e0} \\n \"x\"")
        ));
        let once = escape("\u{7f}\\\n").into_owned();
        assert_eq!(escape(&once), once, "what is escaped stays as it is");
    }

    #[test]
    fn escape_lines__keeps_newlines_alone() {
        assert_eq!(escape_lines("a\n\tb\u{1b}\n"), "a\n\\tb\\u{1b}\n");
    }
}
