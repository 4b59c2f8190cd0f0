//! Manual page and shell completions of `mpiexec`, generated from the table of options.

use super::help::{EXAMPLES, EXIT_CODE, PURPOSE, RULES, SIGNALS, USAGE, describe_names};
use super::table::{Opt, OptionArguments, SECTIONS};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// First word of a command line that requests the files.
pub const GENERATE: &str = "--generate";

/// Writes the manual page and the completions into the folders that they have under `share`.
///
/// # Errors
/// A file cannot be written.
pub fn write_files(share: &Path) -> io::Result<()> {
    let files = [
        ("man/man1/mpiexec.1", write_manual()),
        ("bash-completion/completions/mpiexec", write_bash()),
        ("zsh/site-functions/_mpiexec", write_zsh()),
        ("fish/vendor_completions.d/mpiexec.fish", write_fish()),
    ];
    for (name, text) in files {
        let path = share.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

fn write_manual() -> String {
    let mut text =
        concat!(".TH MPIEXEC 1 \"\" \"Fastpath ", env!("BUILD_VERSION"), "\"\n").to_owned();
    let _ = writeln!(text, ".SH NAME\nmpiexec, mpirun \\- {}", roff(PURPOSE));
    let _ = writeln!(text, ".SH SYNOPSIS\n{}", roff(USAGE));
    let _ = writeln!(text, ".SH DESCRIPTION\n{}\n.SH EXAMPLES\n.nf", roff(RULES));
    EXAMPLES.iter().for_each(|example| _ = writeln!(text, "{}", roff(example)));
    text.push_str(".fi\n.SH OPTIONS\n");
    for section in SECTIONS {
        let _ = writeln!(text, ".SS {}", roff(section.title));
        if section.has_effect() {
            for option in section.options {
                let names = roff(&describe_names(option));
                let _ = writeln!(text, ".TP\n.B {names}\n{}", roff(option.help));
            }
        } else {
            for (reason, names) in section.group_by_reason() {
                let _ = writeln!(text, ".TP\n{}:\n{}", roff(reason), roff(&names));
            }
        }
        if !section.note.is_empty() {
            let _ = writeln!(text, ".P\n{}", roff(section.note));
        }
    }
    let _ = writeln!(text, ".SH EXIT STATUS\n{}\n.SH SIGNALS\n{}", roff(EXIT_CODE), roff(SIGNALS));
    text.push_str(".SH SEE ALSO\n.BR mpicc (1),\n.BR fastpath (1)\n");
    text
}

/// Completions of an option's argument.
#[derive(Clone, Copy)]
pub(super) enum Values {
    Any,
    Files,
    Folders,
    Hosts,
    Variables,
    /// Words separated by blanks.
    Words(&'static str),
}

/// Finds the completions by the name of the argument in the help.
pub(super) fn complete(takes: OptionArguments) -> Values {
    const PLACES: &str = "core hwthread l1cache l2cache l3cache node none numa socket";
    const MAPPINGS: &str = "core hwthread l1cache l2cache l3cache node numa slot socket";
    const ORDERS: &str = "core fill hwthread l1cache l2cache l3cache node numa slot socket span";
    match takes {
        OptionArguments::One("FILE") => Values::Files,
        OptionArguments::One(word) if word.starts_with("DIR") => Values::Folders,
        OptionArguments::One(word) if word.starts_with("HOST") => Values::Hosts,
        OptionArguments::One("NAME[=VALUE]" | "NAME,...") | OptionArguments::Pair => {
            Values::Variables
        }
        OptionArguments::One("PLACE[:N]") => Values::Words(PLACES),
        OptionArguments::One("PLACE[:MODIFIER]...") => Values::Words(MAPPINGS),
        OptionArguments::One("ORDER") => Values::Words(ORDERS),
        OptionArguments::One("ENGINE") => Values::Words("flux hydra prrte slurm"),
        OptionArguments::One("LAUNCHER") => {
            Values::Words("fork ll lsf manual pbs rsh sge slurm ssh")
        }
        OptionArguments::One("KIND,...") => Values::Words("allocation bindings map"),
        OptionArguments::One("FORMAT,...") => Values::Words("dir= file= merge tag timestamp"),
        OptionArguments::One("RANKS") => Values::Words("all none"),
        OptionArguments::One("SIZE") => Values::Words("INFINITE SYSTEM"),
        _ => Values::Any,
    }
}

/// Options that completion proposes: those that have an effect and are not internal.
pub(super) fn proposed() -> impl Iterator<Item = &'static Opt> {
    let sections = SECTIONS.iter().filter(|s| s.has_effect() && !s.title.ends_with("(internal)"));
    sections.flat_map(|s| s.options)
}

/// Returns the names of options, with dashes, that take `values` words.
fn names_with(values: usize) -> impl Iterator<Item = &'static str> {
    let options = SECTIONS.iter().flat_map(|s| s.options);
    let wanted = options.filter(move |o| count_values(o.takes) == values);
    wanted.flat_map(|o| o.names.split_whitespace())
}

fn count_values(takes: OptionArguments) -> usize {
    usize::from(takes != OptionArguments::Nothing)
        + usize::from(matches!(takes, OptionArguments::Two(..) | OptionArguments::Pair))
}

/// Returns the first clause of a description.
fn summarize(help: &str) -> String {
    let end = ["; ", ". ", " (default"].iter().filter_map(|mark| help.find(mark)).min();
    help[..end.unwrap_or(help.len())].replace('\'', "")
}

fn write_bash() -> String {
    let bare = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| name.trim_start_matches('-')).collect::<Vec<_>>().join("|")
    };
    let names: Vec<&str> = proposed().flat_map(|o| o.names.split_whitespace()).collect();
    let mut cases = String::new();
    for option in proposed() {
        let action = match complete(option.takes) {
            Values::Any => continue,
            Values::Files => "kind=(-o default)".to_owned(),
            Values::Folders => "kind=(-o dirnames)".to_owned(),
            Values::Hosts => "kind=(-A hostname)".to_owned(),
            Values::Variables => "kind=(-A export)".to_owned(),
            Values::Words(words) => format!("kind=(-W '{words}')"),
        };
        let names = bare(&mut option.names.split_whitespace());
        let _ = writeln!(cases, "        {names}) {action} ;;");
    }
    include_str!("generate/mpiexec.bash")
        .replace("@ONE@", &bare(&mut names_with(1)))
        .replace("@TWO@", &bare(&mut names_with(2)))
        .replace("@OPTIONS@", &names.join(" "))
        .replace("        @CASES@\n", &cases)
}

fn write_zsh() -> String {
    let mut specs = String::new();
    for option in proposed() {
        let help = summarize(option.help).replace('[', "\\[").replace(']', "\\]");
        let action = match complete(option.takes) {
            Values::Any => " ".to_owned(),
            Values::Files => "_files".to_owned(),
            Values::Folders => "_files -/".to_owned(),
            Values::Hosts => "_sequence _hosts".to_owned(),
            Values::Variables => "_sequence _parameters -g \"*export*\"".to_owned(),
            Values::Words(words) => format!("({words})"),
        };
        let values = [String::new(), format!(":value:{action}"), format!(":name:{action}:value: ")];
        for name in option.names.split_whitespace() {
            let values = &values[count_values(option.takes)];
            let _ = writeln!(specs, "    '*{name}[{help}]{values}' \\");
        }
    }
    include_str!("generate/mpiexec.zsh").replace("    @SPECS@\n", &specs)
}

fn write_fish() -> String {
    let values = names_with(1).chain(names_with(2)).collect::<Vec<_>>().join(" ");
    let mut text = format!(
        "# fish completion of mpiexec and mpirun, generated by mpiexec\n\
         for command in mpiexec mpirun\n    \
             complete -c $command -x -a '(__fish_complete_subcommand -- {values})'\n"
    );
    for option in proposed() {
        let action = match complete(option.takes) {
            Values::Any if option.takes == OptionArguments::Nothing => String::new(),
            Values::Any => " -x".to_owned(),
            Values::Files => " -r -F".to_owned(),
            Values::Folders => " -x -a '(__fish_complete_directories)'".to_owned(),
            Values::Hosts => " -x -a '(__fish_print_hostnames)'".to_owned(),
            Values::Variables => " -x -a '(set -nx)'".to_owned(),
            Values::Words(words) => format!(" -x -a '{words}'"),
        };
        for name in option.names.split_whitespace() {
            let bare = name.trim_start_matches('-');
            let kind = match (name.starts_with("--"), bare.len()) {
                (true, _) => "-l",
                (false, 1) => "-s",
                (false, _) => "-o",
            };
            let help = summarize(option.help);
            let _ = writeln!(text, "    complete -c $command {kind} {bare}{action} -d '{help}'");
        }
    }
    text.push_str("end\n");
    text
}
