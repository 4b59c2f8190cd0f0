//! Messages to the user. A message never ends the program that it is printed by: one that cannot be written is lost.

use std::borrow::Cow;
use std::fmt::{self, Arguments, Display, Formatter, Write as _};
use std::io::{Write, stderr};

/// Writes one line to standard error, formatted as by `format!`. Control characters in it, which names given by the
/// program or the user may contain, are escaped: they can neither begin another line nor command a terminal.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::tell::line(format_args!($($words)*)) };
}

/// See [`tell!`].
pub fn line(text: Arguments<'_>) {
    write(&format!("{}\n", escape(&text.to_string())));
}

/// Writes lines to standard error, each with its newline. Control characters other than newlines are escaped; names in
/// the text must have passed through [`escape`].
pub fn lines(text: &str) {
    write(&escape_lines(text));
}

/// Writes `text` with one call, so that lines of processes that share a standard error do not mix. `eprint!` would
/// panic if the write fails.
fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// A name, a path or a value as it stands in a message: control characters become `\n`, `\u{1b}` and the like. Nothing
/// is allocated to display it.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

/// See [`Escaped`].
pub fn escape(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(Escaped(text).to_string()),
        false => Cow::Borrowed(text),
    }
}

/// Several lines of a message: see [`Escaped`], except that newlines stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    match text.contains(|c: char| c.is_control() && c != '\n') {
        true => Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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
