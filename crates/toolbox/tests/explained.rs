//! The worked examples of docs/explained.md: each command is run, each figure and sentence compared.
#![allow(non_snake_case)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastpath_explain::command::{ExplainCommand, ExplainOptions};
use fastpath_explain::{AGREES, Explanation, StepKind, bandwidth, cliff, latency, page, percent};
use fastpath_pcie::formulas::{DataLink, read_rate, write_rate};
use fastpath_pcie::wire::{Transport, Verb};
use fastpath_pcie::{Bytes, Link, MibPerS, Rate, RateUnit, descriptor, profile};
use fastpath_report::testing::parse_options;

const PAGE: &str = include_str!("../../../docs/explained.md");

/// Returns the explanation of a command of the page; None if it needs a device or a file.
fn run(line: &str) -> Option<Explanation> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(words) = words.strip_prefix(&["fastpath", "explain"]) else {
        panic!("{line}: no explanation");
    };
    let options = match parse_options::<ExplainOptions>(words) {
        Ok(options) => options,
        Err(e) => panic!("{line}: {e}"),
    };
    let made = match &options.what {
        ExplainCommand::Bandwidth(options) => bandwidth::explain(options),
        ExplainCommand::Latency(options) => latency::explain(options),
        ExplainCommand::Cliff(options) => cliff::explain(options),
        _ => return None,
    };
    Some(made.unwrap_or_else(|e| panic!("{line}: {e}")))
}

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
    let written: f64 = cells[1].parse().unwrap_or_else(|_| panic!("no figure: {row}"));
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
            let said = |f: &fastpath_explain::Finding| f.text == text;
            assert!(made.findings.iter().any(said), "not said: {text}\n{:#?}", made.findings);
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
    assert!(commands >= 11 && rows >= 16 && sentences >= 15, "{commands} {rows} {sentences}");
}

/// Runs the commands for devices with sample devices. They print what the page quotes below them.
#[test]
fn devices__are_answered_as_the_page_says() {
    let tree = make_tree();
    let adapter = sample("connectx2-2012.txt");
    let saved = tree.join("saved.txt");
    let cut = adapter.find("\tCapabilities: [60]").expect("a capability");
    std::fs::write(&saved, &adapter[..cut]).expect("a file");
    let (mut commands, mut sentences, mut answer) = (0, 0, String::new());
    for line in PAGE.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let (input, command) = match line.split_once("| fastpath explain lspci -") {
            Some((from, rest)) if from.contains("-s ") => {
                (Some(&adapter), format!("lspci -{rest}"))
            }
            Some((_, rest)) => (None, format!("lspci -{rest}")),
            None => match line.strip_prefix("fastpath explain ") {
                Some(rest) if rest.starts_with("lspci") || rest.starts_with("device") => {
                    (None, rest.replace("saved.txt", &saved.to_string_lossy()))
                }
                Some(_) => {
                    answer.clear();
                    continue;
                }
                None => {
                    let text = line.strip_prefix("> ").filter(|_| !answer.is_empty());
                    if let Some(text) = text {
                        assert!(answer.contains(text), "not said: {text}\n{answer}");
                        sentences += 1;
                    }
                    continue;
                }
            },
        };
        let host = sample("host.txt");
        let made = ask(&command, input.unwrap_or(&host), &tree);
        if answer.is_empty() || command.contains("--measured") || command.starts_with("device") {
            answer = made;
        }
        commands += 1;
    }
    assert!(commands >= 4 && sentences >= 4, "{commands} {sentences}");
    std::fs::remove_dir_all(tree).expect("removed");
}

fn sample(name: &str) -> String {
    let path = format!("{}/../machine/src/pci/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a sample")
}

/// Output of the tool, with each finding complete.
fn ask(command: &str, input: &str, tree: &Path) -> String {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_fastpath"));
    tool.arg("explain").args(command.split_whitespace());
    if command.starts_with("device") {
        tool.arg("--sysfs").arg(tree);
    }
    let tool = tool.arg("--json").stdin(Stdio::piped());
    let tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = tool.spawn().expect("the tool starts");
    let mut stdin = started.stdin.take().expect("a pipe");
    // A command that reads a file closes its standard input unread, so this write may fail.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = started.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{command}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let made = text.lines().map(|line| {
        let made: Explanation = serde_json::from_str(line).expect("an explanation");
        let findings = made.findings.into_iter().map(|f| f.text);
        findings.collect::<Vec<_>>().join("\n")
    });
    made.collect::<Vec<_>>().join("\n")
}

/// A sysfs tree for an ordinary user: an adapter with 8 of its 16 lanes.
fn make_tree() -> PathBuf {
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-{}", std::process::id()));
    let folder = tree.join("bus/pci/devices/0000:41:00.0");
    let class = tree.join("class/infiniband/mlx5_0");
    for made in [&folder, &class] {
        std::fs::create_dir_all(made).expect("a folder");
    }
    let mut config = [0u8; 64];
    config[0x06] = 0x10;
    std::fs::write(folder.join("config"), config).expect("a file");
    for (name, text) in [
        ("current_link_speed", "16.0 GT/s PCIe"),
        ("current_link_width", "8"),
        ("max_link_speed", "16.0 GT/s PCIe"),
        ("max_link_width", "16"),
    ] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    std::os::unix::fs::symlink(&folder, class.join("device")).expect("a link");
    tree
}

/// Checks the figures in the sentences between the examples.
#[test]
fn prose__has_the_figures_of_the_model() {
    let bus: Link = "2.0x8".parse().expect("a link");
    let size = Bytes(65536);
    let mib = |rate: Rate| rate.mib_per_s().0;
    let gigabytes = bus.raw().in_unit(RateUnit::GbytePerS);
    let expected = gigabytes * 1024.0 * 1024.0 / 1000.0;
    let unit = (expected - mib(bus.raw())) / (expected - 3552.0) * 100.0;
    let ramcloud = "fastpath explain bandwidth --pcie 2.0x8 --mps 256 --adapter connectx \
        --measured 3552MB/s --tool perftest --clients 3 --single 3218MB/s";
    let made = run(ramcloud).expect("an answer");
    let predicted = |made: &Explanation| {
        let step = made.waterfalls[0].steps.iter().find(|s| s.name == "predicted");
        step.expect("a prediction").level
    };
    let above = (3552.0 / predicted(&made) - 1.0) * 100.0;
    let seen = |experiment: usize, outcome: usize| -> String {
        let said = &made.experiments[experiment].outcomes[outcome].seen;
        said.chars().filter(char::is_ascii_digit).collect()
    };
    let between = |experiment: usize| {
        let (bus, process) = (seen(experiment, 0), seen(experiment, 1));
        format!("{bus} MiB/s if the sender's bus is the limit, {process} if")
    };
    let of_paper = run("fastpath explain bandwidth --pcie 2.0x8 --measured 24Gb/s");
    let write = predicted(&of_paper.expect("an answer")) / 8.0;
    let below = |reached: f64| (1.0 - reached / write) * 100.0;
    let reported = Rate::from(MibPerS(3020.0)).gb_per_s().0;
    let descriptor = |transport, verb| descriptor::pointing_descriptor(transport, verb, 1);
    let lost = |rate: fn(&Link, Bytes, DataLink) -> Rate, text: &str| {
        let link: Link = text.parse().expect("a link");
        (1.0 - rate(&link, size, DataLink::Directional) / rate(&link, size, DataLink::Ignored))
            * 100.0
    };
    let host = profile::host("2009").expect("a host");
    let takes = |work: f64| host.poll.ns() + work;
    let figures = [
        format!("The wrong unit explains {unit:.0} % of the difference"),
        format!("lies {above:.1} % above what this link can carry"),
        format!("server process: {}", between(0)),
        format!("server hosts: {}", between(1)),
        format!(
            "These rates are {:.0} to {:.0} % below the bus's {write:.2} GB/s",
            below(2.6),
            below(1.9)
        ),
        format!("3,020 MiB/s are {reported:.1} Gb/s"),
        format!(
            "takes {} B, of a write {} B, of a datagram {} B",
            descriptor(Transport::Rc, Verb::Send),
            descriptor(Transport::Rc, Verb::Write),
            descriptor(Transport::Ud, Verb::Send)
        ),
        format!("64 B more than a send, {:.1} % of 4096 B", 64.0 / 4096.0 * 100.0),
        format!("ticks every {:.0} ns", 1e9 / 3_579_545.0),
        format!("takes {:.0} ns for a datagram, and {:.0} once", takes(450.0), takes(520.0)),
        format!("A difference within {}, the uncertainty of usual tools,", percent(AGREES)),
        format!(
            "{:.1} % of the rate of one-way writes, and {:.1} % (x16) to {:.1} % (x1) of the rate of reads",
            lost(write_rate, "2.0x8"),
            lost(read_rate, "2.0x16"),
            lost(read_rate, "2.0x1")
        ),
    ];
    let page = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    for figure in figures {
        assert!(page.contains(&figure), "not in the page: {figure}");
    }
}
