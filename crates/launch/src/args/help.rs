//! The help, made from the table of options.

use super::table::{Does, Opt, SECTIONS, Section, Takes};
use std::fmt::Write as _;

const HEAD: &str = "\
mpiexec starts an MPI program, on this host or on several (--host, --hostfile).

  mpiexec -n N [options] PROGRAM [ARGUMENTS] [: -n N [options] PROGRAM [ARGUMENTS]]...

The first word that is not an option is the program; what follows, up to a lone `:`, are its
arguments. A lone `:` begins another program of the same job. Ranks are numbered across all
programs. Each option may be written with one dash or two.

Examples
  mpiexec -n 4 ./program input.txt
  mpiexec -n 2 --bind-to core --report-bindings -x OMP_NUM_THREADS=4 ./hybrid
  mpiexec -l --timeout 600 -n 1 ./master : -n 3 ./worker
";

const TAIL: &str = "
Exit code: 0 when every rank ended with 0; else that of the first rank that failed,
128 + N for signal N; 124 after a timeout; 2 for a wrong command line, 126 for a
program that cannot be run, 127 for one that is not there; 1 for anything else, such as
output that cannot be written.

SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT are passed on to all ranks, which may end as
they like; a second one kills them. After SIGTERM and SIGHUP they have 10 s (--kill-after).
";

/// Columns of the text.
const WIDTH: usize = 98;
/// Where the descriptions begin.
const INDENT: usize = 26;

/// Text of `--help`.
pub fn write_help() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        let _ = writeln!(text, "\n{}", section.title);
        match section.options.first().map(|o| o.does) {
            Some(Does::Apply(_) | Does::Set(_)) => {
                section.options.iter().for_each(|o| write_option(&mut text, o))
            }
            _ => write_accepted(&mut text, section),
        }
        if !section.note.is_empty() {
            wrap(&mut text, 2, section.note);
        }
    }
    text.push_str(TAIL);
    text
}

fn describe_names(option: &Opt) -> String {
    let names = option.names.replace(' ', ", ");
    match option.takes {
        Takes::Nothing => names,
        Takes::One(word) => format!("{names} {word}"),
        Takes::Two(first, second) => format!("{names} {first} {second}"),
        Takes::Pair => format!("{names} NAME VALUE"),
    }
}

fn write_option(text: &mut String, option: &Opt) {
    let names = describe_names(option);
    let start = text.len();
    wrap(text, 2, &names);
    // The description goes on in the line of the names where there is room.
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

/// Options that do nothing: the reason once, then all names.
fn write_accepted(text: &mut String, section: &Section) {
    let mut reasons: Vec<&str> = section.options.iter().map(|o| o.help).collect();
    reasons.dedup();
    for reason in reasons {
        let same = section.options.iter().filter(|o| o.help == reason);
        let names: Vec<String> = same.map(describe_names).collect();
        wrap(text, 2, &format!("{reason}:"));
        wrap(text, 6, &names.join(", "));
    }
}

/// Lines of at most WIDTH columns that begin at column `indent`.
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
    fn help__names_every_option_and_three_examples() {
        let text = write_help();
        for option in SECTIONS.iter().flat_map(|s| s.options) {
            for name in option.names.split(' ') {
                let words = text.split([' ', ',', '\n']);
                assert!(words.into_iter().any(|w| w == name), "{name} is missing in the help");
            }
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("  mpiexec -")).count(), 4);
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
