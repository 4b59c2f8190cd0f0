//! Options for the ranks' output: `--output-filename`, `--output`.

use super::parser_state::Parser;
use super::values::{GivenOption, escape};
use super::{UsageError, wrong};
use crate::pattern::{LETTERS, find_unknown};

pub fn prefix(parser: &mut Parser<'_>, pattern: &[u8]) {
    parser.spec.output.prefix.extend_from_slice(pattern);
}

pub fn read_pattern(given: &GivenOption) -> Result<Vec<u8>, UsageError> {
    let pattern = given.value().as_encoded_bytes();
    match find_unknown(pattern) {
        Some(letter) => wrong(format!("{}: %{letter} is unknown; use {LETTERS}", given.typed())),
        None => Ok(pattern.to_vec()),
    }
}

/// Checks the words of `--display LIST`. They select nothing, because all displays are printed together.
pub fn check_display(given: &GivenOption) -> Result<(), UsageError> {
    const KNOWN: [&str; 7] = ["map", "map-devel", "bind", "bindings", "allocation", "topo", "cpus"];
    for word in given.text().split(',') {
        // Open MPI's qualifiers affect only the layout.
        let name = word.split([':', '=']).next().unwrap_or("");
        if !KNOWN.contains(&name.to_ascii_lowercase().as_str()) {
            return wrong(format!(
                "{}: {name:?} is unknown; use {}",
                given.typed(),
                KNOWN.join(", ")
            ));
        }
    }
    Ok(())
}

/// Applies `DIR[:nocopy,nojobid]`, a folder for the output files of the ranks.
pub fn take_directory(parser: &mut Parser<'_>, text: &str) -> Result<(), UsageError> {
    let (dir, words) = text.split_once(':').unwrap_or((text, ""));
    let (mut copy, mut job) = (true, "/1");
    for word in words.split(',').filter(|w| !w.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "nocopy" => copy = false,
            "nojobid" => job = "",
            "raw" => {}
            _ => {
                return wrong(format!(
                    "{text}: unknown word {word:?} after the colon; use nocopy or nojobid"
                ));
            }
        }
    }
    let file = |name: &str| {
        let mut pattern = escape(dir.as_ref());
        pattern.extend_from_slice(format!("{job}/rank.%R/{name}").as_bytes());
        Some(pattern)
    };
    parser.spec.output.files = [file("stdout"), file("stderr")];
    parser.spec.output.copy = copy;
    Ok(())
}

/// Applies `--output LIST`. The words may be shortened, as in Open MPI.
pub fn take_list(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text();
    // Qualifiers follow the last word, but apply to the output file.
    let (list, qualifiers) = text.split_once(':').unwrap_or((&text, ""));
    for word in list.split(',').filter(|w| !w.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let key = key.to_ascii_lowercase();
        match key.as_str() {
            "dir" if !value.is_empty() => take_directory(parser, &format!("{value}:{qualifiers}"))?,
            "file" if !value.is_empty() => {
                let file = |end: &str| Some([&escape(value.as_ref()), end.as_bytes()].concat());
                parser.spec.output.files = [file(".%R.out"), file(".%R.err")];
                parser.spec.output.copy = !qualifiers.eq_ignore_ascii_case("nocopy");
            }
            "tag" | "tag-detailed" | "tag-fullname" => prefix(parser, b"[%r] "),
            _ if key.len() > 1 && "timestamp".starts_with(&key) => prefix(parser, b"%T "),
            _ if key.len() > 1 && "merge-stderr-to-stdout".starts_with(&key) => {
                parser.spec.output.merge = true;
            }
            "xml" => parser.note("output is always plain text", given.typed()),
            _ => {
                return wrong(format!(
                    "{}: unknown word {word:?}; use tag, timestamp, merge, dir=DIR or file=NAME",
                    given.typed()
                ));
            }
        }
    }
    Ok(())
}
