//! Examples below the help of each command, and in its manual page.

use clap::Command;
use fastpath_report::screen;
use std::fmt::Write as _;

/// A command, by its words after `fastpath`, and its examples: command line and purpose.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: &[Examples] = &[
    (
        "",
        &[
            ("fastpath info", "installation, settings, machine, transports"),
            ("fastpath doctor", "check RDMA adapters, libraries and limits"),
            ("fastpath ps --why", "why running jobs wait"),
            ("fastpath bench pingpong --summary", "latency and its floor, in some seconds"),
        ],
    ),
    (
        "bench",
        &[
            ("fastpath bench --list", "list all tests"),
            ("fastpath bench pingpong", "half a round trip of 2 ranks, all sizes"),
            ("fastpath bench pingpong --summary", "one screen: latency, floor, chart"),
            ("fastpath bench latency --sizes 8,4K,1M --touch", "write and read each buffer"),
            ("fastpath bench allreduce -n 2,4,8 --json r.json", "store the result"),
            ("fastpath bench latency --host node1,node2", "two hosts; floor: a bare socket"),
            ("fastpath bench latency --level mpi,transport", "cost of each library level"),
            ("fastpath bench latency --mpicc /opt/other/bin/mpicc", "measure another MPI"),
        ],
    ),
    (
        "bench floor",
        &[
            ("fastpath bench floor", "cache-line time and copy time"),
            ("fastpath bench floor --sizes 8,4K --processors 0,1", "these sizes and processors"),
        ],
    ),
    (
        "bench copy",
        &[
            ("fastpath bench copy", "copy loops by size and page offset"),
            ("fastpath bench copy --sizes 64K,1M --all", "all pairs of copy loops"),
        ],
    ),
    (
        "bench instructions",
        &[
            ("fastpath bench instructions", "instructions of each MPI call, for 8 bytes"),
            ("fastpath bench instructions --level transport,mpi", "instructions by level"),
            ("fastpath bench instructions --peer other=/opt/other/bin/mpicc", "with another MPI"),
        ],
    ),
    (
        "bench ablation",
        &[("fastpath bench ablation --html gain.html", "gain of each optimisation, as a page")],
    ),
    (
        "audit",
        &[
            ("fastpath audit table.txt", "unit, statistic and clock of each column"),
            ("fastpath audit table.txt --json", "one JSON object"),
        ],
    ),
    (
        "explain",
        &[
            ("fastpath explain bandwidth --pcie 2.0x8 --measured 24Gb/s", "gap to the limit"),
            ("fastpath explain latency --adapter connectx5", "one-way time, part by part"),
            ("fastpath explain device mlx5_0", "the link of an adapter of this machine"),
        ],
    ),
    (
        "explain bandwidth",
        &[
            ("fastpath explain bandwidth --pcie 3.0x16 --adapter connectx5", "limits of a link"),
            ("fastpath explain bandwidth --pcie 2.0x8 --measured 24Gb/s", "gap to the limit"),
            ("fastpath explain bandwidth --pcie 2.0x8 --direction both", "both directions at once"),
        ],
    ),
    (
        "explain latency",
        &[
            ("fastpath explain latency --adapter connectx5 --host 2016", "one-way time by part"),
            ("fastpath explain latency --measured 1.117us --tick acpi", "with a measured time"),
        ],
    ),
    (
        "explain cliff",
        &[("fastpath explain cliff --at 1728 --transport ud", "why 1729 bytes behave differently")],
    ),
    (
        "explain lspci",
        &[
            ("lspci -vv | fastpath explain lspci -", "every device that has a link"),
            ("fastpath explain lspci saved.txt --device 41:00.0", "one device of a saved text"),
        ],
    ),
    (
        "explain device",
        &[
            ("fastpath explain device mlx5_0", "an RDMA adapter"),
            ("fastpath explain device eth0 --measured 9.4Gb/s", "with a measured bandwidth"),
        ],
    ),
    ("explain probe", &[("fastpath explain probe --gpu 1", "copies to and from the second GPU")]),
    ("page", &[("fastpath page before.json now.json -o page.html", "two results, one page")]),
    (
        "compare",
        &[
            ("fastpath compare before.json now.json", "two stored results"),
            ("fastpath compare a1.json,a2.json b1.json", "several runs of one side"),
            ("fastpath compare --peer other=/opt/other/bin/mpicc", "two MPIs in one run"),
            ("fastpath compare --peers peers.conf --loads", "application-like loads"),
        ],
    ),
    (
        "info",
        &[
            ("fastpath info", "installation, settings, machine, transports"),
            ("fastpath info --protocols", "protocol by message size"),
            ("fastpath info --mpit", "variables of the tool interface"),
        ],
    ),
    (
        "doctor",
        &[
            ("fastpath doctor", "check this machine"),
            ("fastpath doctor --host node1,node2", "check the connections between hosts"),
        ],
    ),
    (
        "ps",
        &[
            ("fastpath ps", "all jobs of this user"),
            ("fastpath ps 12345 --why", "why this job waits"),
            ("fastpath ps --host node1,node2", "jobs on several hosts"),
        ],
    ),
    (
        "tune",
        &[
            ("fastpath tune --dry-run", "measure and print; store nothing"),
            ("fastpath tune", "measure and store"),
        ],
    ),
    (
        "tune inline",
        &[("fastpath tune inline --device mlx5_0 --dry-run", "best inline size of an adapter")],
    ),
    (
        "tune lines",
        &[("fastpath tune lines --matrix --dry-run", "times between all cores; store nothing")],
    ),
];

/// Adds each command's examples to the help of that command.
pub fn attach(command: Command) -> Command {
    let columns = screen::find_columns();
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let text = format!("Examples:\n{}", format_examples(examples, columns));
        let words: Vec<&str> = path.split_whitespace().collect();
        add(command, &words, &text)
    })
}

fn add(command: Command, path: &[&'static str], text: &str) -> Command {
    match path {
        [] => command.after_help(text.to_owned()),
        [first, rest @ ..] => command.mut_subcommand(first, |inner| add(inner, rest, text)),
    }
}

/// Finds the examples of a command by its name with dashes, such as `fastpath-bench-floor`.
pub fn find(name: &str) -> Option<String> {
    let words = name.strip_prefix("fastpath")?.trim_start_matches('-').replace('-', " ");
    let (_, examples) = EXAMPLES.iter().find(|(path, _)| *path == words)?;
    Some(format_examples(examples, None))
}

/// Formats examples, with the purpose behind each line, or below it if a row exceeds `columns`.
fn format_examples(examples: &[(&str, &str)], columns: Option<usize>) -> String {
    let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let longest = examples.iter().map(|(_, purpose)| purpose.len()).max().unwrap_or(0);
    let is_narrow = columns.is_some_and(|columns| width + longest + 4 > columns);
    let mut text = String::new();
    for (line, purpose) in examples {
        let _ = match is_narrow {
            true => writeln!(text, "  {line}\n      {purpose}"),
            false => writeln!(text, "  {line:width$}  {purpose}"),
        };
    }
    text
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_command__has_examples_that_parse() {
        fn check(command: &Command, path: &str) {
            assert!(EXAMPLES.iter().any(|(known, _)| *known == path), "no examples of {path:?}");
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                check(inner, format!("{path} {}", inner.get_name()).trim_start());
            }
        }
        check(&Cli::command(), "");
        for (path, examples) in EXAMPLES {
            for (line, _) in *examples {
                let words = line.rsplit("| ").next().unwrap().split_whitespace();
                Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
                assert!(line.contains(&format!("fastpath {path}")) || path.is_empty(), "{line}");
            }
        }
        attach(Cli::command()).debug_assert();
    }

    #[test]
    fn examples__fit_80_columns_with_each_purpose_behind_or_below_its_line() {
        for (path, examples) in EXAMPLES {
            let text = format_examples(examples, Some(80));
            assert!(text.lines().all(|line| line.len() <= 80), "{path}: {text}");
        }
        let examples = [("fastpath info", "settings"), ("fastpath ps --why", "reasons")];
        let rows = "  fastpath info      settings\n  fastpath ps --why  reasons\n";
        assert_eq!(format_examples(&examples, Some(29)), rows);
        let below = "  fastpath info\n      settings\n  fastpath ps --why\n      reasons\n";
        assert_eq!(format_examples(&examples, Some(28)), below);
    }
}
