//! The worked examples of docs/explained.md: each command is run, each figure and sentence compared.
#![allow(non_snake_case)]

use clap::Parser;
use fastpath_perf::cli::{Cli, Command};
use fastpath_perf::explain::command::What;
use fastpath_perf::explain::{Explanation, StepKind, bandwidth, cliff, latency, page};

const PAGE: &str = include_str!("../../../docs/explained.md");

/// What a command of the page answers; none where it needs a device or a file.
fn run(line: &str) -> Option<Explanation> {
    let command = match Cli::try_parse_from(line.split_whitespace()) {
        Ok(cli) => cli.command,
        Err(e) => panic!("{line}: {e}"),
    };
    let Command::Explain(options) = command else {
        panic!("{line}: no explanation");
    };
    let made = match &options.what {
        What::Bandwidth(options) => bandwidth::explain(options),
        What::Latency(options) => latency::explain(options),
        What::Cliff(options) => cliff::explain(options),
        _ => return None,
    };
    Some(made.unwrap_or_else(|e| panic!("{line}: {e}")))
}

/// Holds a row of a table against the step of that name.
fn compare_row(made: &Explanation, title: &str, row: &str) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let waterfall = made.waterfalls.iter().find(|w| w.title.starts_with(title));
    let waterfall = waterfall.unwrap_or_else(|| panic!("no waterfall {title}"));
    let step = waterfall.steps.iter().find(|s| s.name == cells[0]);
    let step = step.unwrap_or_else(|| panic!("no step {row}"));
    let found = match step.kind {
        StepKind::Left => step.change,
        _ => step.level,
    };
    let written: f64 = cells[1]
        .parse()
        .unwrap_or_else(|_| panic!("no figure: {row}"));
    let near = (found / written - 1.0).abs() < 5e-4 || (found - written).abs() < 0.06;
    assert!(near, "{title}, {row}: {found}");
}

#[test]
fn examples__say_what_the_commands_answer() {
    let (mut answer, mut title) = (None, None);
    let (mut commands, mut rows, mut sentences) = (0, 0, 0);
    for line in PAGE.lines() {
        if line.starts_with("fastpath explain") {
            let line = line.split('#').next().unwrap_or_default();
            let made = run(line);
            if let Some(made) = &made {
                let page = page::write_page(std::slice::from_ref(made));
                assert!(!page.contains('\u{2026}'), "{line}: a label is cut");
            }
            commands += usize::from(made.is_some());
            answer = made;
        } else if line.starts_with("## ") {
            answer = None;
        } else if let (Some(made), Some(text)) = (&answer, line.strip_prefix("> ")) {
            let said = |f: &fastpath_perf::explain::Finding| f.text == text;
            assert!(
                made.findings.iter().any(said),
                "not said: {text}\n{:#?}",
                made.findings
            );
            sentences += 1;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match (&answer, cells.as_slice()) {
            (Some(_), ["", name, "MiB/s" | "ns" | "Gb/s", ..]) => title = Some(name.to_string()),
            (Some(_), ["", "---", ..]) => (),
            (Some(made), ["", _, ..]) if title.is_some() => {
                compare_row(made, title.as_deref().unwrap_or_default(), line);
                rows += 1;
            }
            _ => title = None,
        }
    }
    assert!(
        commands >= 11 && rows >= 16 && sentences >= 15,
        "{commands} {rows} {sentences}"
    );
}
