//! Text of `mpiexec --help`, from the table of options.

use super::table::{Opt, OptionArguments, OptionEffect, SECTIONS, Section};
use std::fmt::Write as _;

/// Purpose of the program, in one line.
pub const PURPOSE: &str = "start the ranks of an MPI program, on this host or on several hosts";

/// Words of a command line.
pub const USAGE: &str =
    "mpiexec [-n N] [OPTION]... PROGRAM [ARGUMENT]... [: [-n N] PROGRAM ...]...";

pub const RULES: &str = "The first word that is not an option is the program. A lone colon starts \
    the options of the next program of the same job. Ranks are numbered across all programs. Each \
    option may be written with one dash or two.";

pub const EXAMPLES: &[&str] = &[
    "mpiexec -n 4 ./program input.txt",
    "mpiexec --host node1:4,node2:4 ./program",
    "mpiexec -n 2 --bind-to core --report-bindings -x OMP_NUM_THREADS=4 ./hybrid",
    "mpiexec -l --timeout 600 -n 1 ./master : -n 3 ./worker",
];

pub const EXIT_CODE: &str = "0 if every rank exited with 0. Otherwise the code of the first rank \
    that failed, or 128 + N if signal N ended that rank. Codes of mpiexec itself: 2 for an \
    invalid command line, 16 if collective calls can never complete, 124 after a timeout, 126 for \
    a program that cannot be executed, 127 for a program that is not found, 1 for any other \
    error, such as output that cannot be written. A rank that an MPI error ends exits with the \
    error class, so 2 may also be MPI_ERR_COUNT, and 16 MPI_ERR_OTHER.";

pub const SIGNALS: &str = "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT are forwarded to all \
    ranks. A second signal kills the ranks. After SIGTERM or SIGHUP, ranks that still run are \
    killed after 10 s (--kill-after).";

/// Width of the help, in columns: that of the narrowest usual terminal.
const WIDTH: usize = 80;
/// Column of the descriptions.
const INDENT: usize = 26;

pub fn write_help() -> String {
    let mut text = format!("mpiexec: {PURPOSE}\n\nUsage\n  {USAGE}\n\n");
    wrap(&mut text, 2, RULES);
    text.push_str("\nExamples\n");
    for example in EXAMPLES {
        let _ = writeln!(text, "  {example}");
    }
    for section in SECTIONS {
        let _ = writeln!(text, "\n{}", section.title);
        match section.has_effect() {
            true => section.options.iter().for_each(|o| write_option(&mut text, o)),
            false => write_accepted(&mut text, section),
        }
        if !section.note.is_empty() {
            wrap(&mut text, 2, section.note);
        }
    }
    for (title, words) in [("Exit code", EXIT_CODE), ("Signals", SIGNALS)] {
        let _ = writeln!(text, "\n{title}");
        wrap(&mut text, 2, words);
    }
    text
}

/// Returns an option's names and its arguments, such as `-n, -np N`.
pub fn describe_names(option: &Opt) -> String {
    let names = option.names.replace(' ', ", ");
    match describe_values(option.takes) {
        values if values.is_empty() => names,
        values => format!("{names} {values}"),
    }
}

fn describe_values(takes: OptionArguments) -> String {
    match takes {
        OptionArguments::Nothing => String::new(),
        OptionArguments::One(word) => word.to_owned(),
        OptionArguments::Two(first, second) => format!("{first} {second}"),
        OptionArguments::Pair => "NAME VALUE".to_owned(),
    }
}

fn write_option(text: &mut String, option: &Opt) {
    let names = describe_names(option);
    let start = text.len();
    wrap(text, 2, &names);
    let last = text[start..].trim_end().rsplit('\n').next().unwrap_or("").len();
    let mut described = String::new();
    wrap(&mut described, INDENT, option.help);
    if last + 1 < INDENT {
        text.truncate(text.trim_end().len());
        text.push_str(&described[last..]);
    } else {
        text.push_str(&described);
    }
}

/// Writes options without effect: each reason once, then all its names.
fn write_accepted(text: &mut String, section: &Section) {
    for (reason, names) in section.group_by_reason() {
        wrap(text, 2, &format!("{reason}:"));
        wrap(text, 6, &names);
    }
}

impl Section {
    pub fn has_effect(&self) -> bool {
        matches!(
            self.options.first().map(|o| o.does),
            Some(OptionEffect::Apply(_) | OptionEffect::Set(_))
        )
    }

    /// Groups options without effect by reason. Returns each reason with the names of its options.
    pub fn group_by_reason(&self) -> Vec<(&'static str, String)> {
        let mut reasons: Vec<&str> = self.options.iter().map(|o| o.help).collect();
        reasons.dedup();
        let names_of = |reason| {
            let options = self.options.iter().filter(|o| o.help == reason);
            options.map(describe_names).collect::<Vec<_>>().join(", ")
        };
        reasons.into_iter().map(|reason| (reason, names_of(reason))).collect()
    }
}

/// Appends `words` in lines of at most WIDTH columns that begin at column `indent`.
fn wrap(text: &mut String, indent: usize, words: &str) {
    let mut column = 0;
    for word in words.split_whitespace() {
        if column > 0 && column + 1 + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            let _ = write!(text, "{:indent$}{word}", "");
            column = indent + word.len();
        } else {
            let _ = write!(text, " {word}");
            column += 1 + word.len();
        }
    }
    text.push('\n');
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn help__names_every_option_and_every_example() {
        let text = write_help();
        for option in SECTIONS.iter().flat_map(|s| s.options) {
            for name in option.names.split(' ') {
                let words = text.split([' ', ',', '\n']);
                assert!(words.into_iter().any(|w| w == name), "{name} is missing in the help");
            }
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("  mpiexec -")).count(), EXAMPLES.len());
        assert!(text.lines().all(|l| l.len() <= WIDTH), "{text}");
    }

    #[test]
    fn names__are_of_one_option_each() {
        let names = SECTIONS.iter().flat_map(|s| s.options).flat_map(|o| o.names.split(' '));
        let mut bare: Vec<&str> = names.map(|n| n.trim_start_matches('-')).collect();
        let all = bare.len();
        bare.sort_unstable();
        bare.dedup();
        assert_eq!(bare.len(), all);
    }
}
