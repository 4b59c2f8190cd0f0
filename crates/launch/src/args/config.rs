//! Files of programs (`-configfile`), one program a line (MPI 4.1, section 11.5).

use super::{UsageError, wrong};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Splits the text into lines of words, each with the number of its first line. A backslash at the end of a line
/// continues the line, and `#` at its start makes the line a comment. Quotes are those of a shell.
pub fn split_lines(text: &[u8], place: &str) -> Result<Vec<(usize, Vec<OsString>)>, UsageError> {
    let mut lines = Vec::new();
    let mut whole = Vec::new();
    let mut first = 1;
    for (at, line) in text.split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if whole.is_empty() {
            first = at + 1;
            if line.trim_ascii_start().starts_with(b"#") {
                continue;
            }
        }
        if let Some(part) = line.strip_suffix(b"\\") {
            whole.extend_from_slice(part);
            whole.push(b' ');
            continue;
        }
        whole.extend_from_slice(line);
        push_words(&mut lines, first, &whole, place)?;
        whole.clear();
    }
    push_words(&mut lines, first, &whole, place)?;
    Ok(lines)
}

fn push_words(
    lines: &mut Vec<(usize, Vec<OsString>)>, number: usize, line: &[u8], place: &str,
) -> Result<(), UsageError> {
    let Some(words) = shlex::bytes::split(line) else {
        return wrong(format!("{place} line {number}: a quotation mark is not closed"));
    };
    if !words.is_empty() {
        lines.push((number, words.into_iter().map(OsString::from_vec).collect()));
    }
    Ok(())
}
