//! The command as started by a user.

#![allow(non_snake_case)]

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .expect("the command starts")
}

fn records(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|l| serde_json::from_str(l).expect("a line is JSON")).collect()
}

fn records_of_one(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn floor__states_unit_statistic_and_processors() {
    let arguments =
        ["bench", "floor", "--json", "--samples", "5", "--batch", "2us", "--sizes", "64,4K"];
    let output = run(&arguments, &[]);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        // The cache-line test needs two processors; with one, the command fails with this error.
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("one processor"));
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let records = records(&output);
    let of = |kind: &str| records.iter().filter(|r| r["record"] == kind).count();
    assert_eq!(
        (of("floor_line"), of("floor_copy"), of("floor_transfer")),
        (1, 2, 5),
        "the bare pipeline and four single copies"
    );
    assert_eq!(records[0]["unit"], "ns one way");
    assert_eq!(records[0]["time"]["samples"], 5);
    // The kernel may refuse to copy between processes; such a record has the reason and no time.
    for record in records.iter().filter(|r| r["refused"].is_null()) {
        let time = &record["time"];
        let [min, median, p99] = ["min", "median", "p99"].map(|s| time[s].as_f64().unwrap());
        assert!(min <= median && median <= p99, "{time}");
        // A difference of two measurements may be negative on a busy machine.
        let differs = record["what"].as_str().is_some_and(|w| w.ends_with("of a rank to itself"));
        assert!(differs || 0.0 < min, "{record}");
    }
    assert_eq!(records[3]["bytes"], 4096);
}

#[test]
fn copy__shows_each_loop_alone_and_marks_one_pipeline_of_a_size() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        let output = run(&["bench", "copy", "--sizes", "1K"], &[]);
        return assert!(!output.status.success());
    }
    let words = "bench copy --json --samples 1 --batch 1us --sizes 1K,4K --no-progress";
    let output = run(&words.split(' ').collect::<Vec<_>>(), &[]);
    assert!(output.status.success(), "{output:?}");
    let records = records(&output);
    let of =
        |kind: &str| -> Vec<&Value> { records.iter().filter(|r| r["record"] == kind).collect() };
    let loops = of("copy_pipeline").len() / 2;
    assert!(loops > 0);
    assert_eq!(of("copy_alone").len(), 2 * 2 * loops);
    for bytes in [1024, 4096] {
        let best = of("copy_pipeline").into_iter().filter(|r| r["best"] == true);
        assert_eq!(best.filter(|r| r["bytes"] == bytes).count(), 1);
    }
}

#[test]
fn floor__with_a_processor_that_is_not_there_fails_and_names_it() {
    let output = run(&["bench", "floor", "--processors", "0,99999"], &[]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("99999"));
}

#[test]
fn info__shows_the_origin_of_a_variable_and_warns_of_an_unknown_one() {
    let environment = [("FASTPATH_DISABLE", "cma"), ("FASTPATH_WIAT", "spin")];
    let output = run(&["info", "--json"], &environment);
    assert!(output.status.success(), "{output:?}");
    let info: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let entries = info["configuration"].as_array().unwrap();
    let disable = entries.iter().find(|e| e["name"] == "FASTPATH_DISABLE").unwrap();
    assert_eq!(
        (disable["value"].as_str(), disable["origin"].as_str()),
        (Some("cma"), Some("environment"))
    );
    assert!(info["warnings"][0].as_str().unwrap().contains("FASTPATH_WAIT"));
    let cma = info["transports"].as_array().unwrap().iter().find(|t| t["name"] == "cma").unwrap();
    assert_eq!(cma["usable"], false);
    assert!(cma["reason"].as_str().unwrap().contains("FASTPATH_DISABLE"));
}

#[test]
fn info__as_text_has_every_section() {
    let output = run(&["info"], &[]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for section in ["\nconfiguration\n", "\nmachine\n", "\ntransports\n", "\nwaiting\n"] {
        assert!(text.contains(section), "{section} in {text}");
    }
    assert!(text.starts_with("Fastpath 0.1.0, MPI 5.0; transports loopback, shm"), "{text}");
    let cma = text.lines().find(|l| l.trim_start().starts_with("cma")).unwrap();
    assert!(!cma.contains("not tried"), "{cma}");
}

#[test]
fn info__with_an_invalid_value__names_the_variable_first() {
    let output = run(&["info"], &[("FASTPATH_WAIT", "nosuch")]);
    let text = text_of(&output);
    assert!(text.contains("FASTPATH_WAIT has an invalid value"), "{text}");
    assert!(text.contains("FASTPATH_WAIT=nosuch: "), "{text}");
    assert!(!text.contains("every variable has its default"), "{text}");
}

#[test]
fn info__fits_80_columns_and_explains_on_request() {
    let print = |words: &[&str]| {
        let output = run(&[&["info"], words].concat(), &[("COLUMNS", "80")]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (brief, explained) = (print(&[]), print(&["--explain"]));
    for text in [&brief, &explained] {
        let wide = text.lines().find(|line| line.chars().count() > 80 && line.contains(' '));
        assert_eq!(wide, None, "{text}");
    }
    let meaning = "how a rank waits";
    assert!(!brief.contains(meaning) && explained.contains(meaning), "{explained}");
}

#[test]
fn audit__reads_the_standard_input_and_says_what_it_found() {
    use std::io::Write;
    let start = |arguments: &[&str], text: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fastpath"))
            .arg("audit")
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("the text is read");
        drop(input);
        child.wait_with_output().expect("the command ends")
    };
    let table = "437\n499\n562\n812\n874\n937\n1500\n1562\n1687\n1750\n1812\n2688\n";
    let output = start(&["-", "--json"], table);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let step = found["tables"][0]["steps"][0]["step"].as_f64().expect("a step");
    assert!((step - 62.5).abs() < 0.1, "{found}");
    let output = start(&[], "no numbers here\n");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no table"));
}

#[test]
fn page__is_made_of_stored_results_and_names_a_file_that_is_none() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [result, broken, page] =
        ["result.json", "broken.json", "page.html"].map(|n| folder.join(n));
    let mut run_of = fastpath_report::record::Run::default();
    run_of.mpi.name = "A library".into();
    let report = fastpath_report::record::Report::new(run_of);
    std::fs::write(&result, fastpath_report::output::json::format_report(&report))
        .expect("written");
    std::fs::write(&broken, "{\"schema\":\"other\",\"version\":1}").expect("written");
    let make = |from: &std::path::Path, to: &str| {
        run(&["page", from.to_str().expect("a path"), "-o", to], &[])
    };
    let output = make(&result, page.to_str().expect("a path"));
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains("A library, measured"));
    let said = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let over_itself = make(&result, result.to_str().expect("a path"));
    assert!(!over_itself.status.success());
    let kept = std::fs::read_to_string(&result).expect("the result");
    assert!(kept.starts_with('{'), "{kept}");
    let output = make(&broken, page.to_str().expect("a path"));
    assert!(!output.status.success());
    assert!(said(output).contains("broken.json"));
    let output = make(&result, "/dev/full");
    assert!(!output.status.success());
    assert!(said(output).contains("/dev/full"));
}

fn sample(name: &str) -> String {
    format!("{}/../machine/src/pci/samples/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn explain_lspci__answers_in_text_json_and_a_page() {
    let path = sample("connectx2-2012.txt");
    let measured = ["explain", "lspci", &path, "--measured", "3552MiB/s"];
    let text = text_of(&run(&measured, &[]));
    for part in [
        "PCIe 2.0 x8",
        "24 B around each 256 B",
        "nothing is left to explain",
        "`Latency: 0`",
        "`Cache Line Size: 32 bytes`",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let page = folder.join("explained.html");
    let html = ["--json", "--html", page.to_str().expect("a path")];
    let output = run(&[&measured[..], &html[..]].concat(), &[]);
    assert!(output.status.success(), "{output:?}");
    let found = records(&output);
    assert_eq!(found.len(), 1);
    fastpath_report::testing::schema::validate(fastpath_explain::SCHEMA_TEXT, &found[0])
        .expect("it fits");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("<svg") && page.contains("MT26428"));
}

#[test]
fn explain_lspci__of_a_host_lists_its_devices() {
    let path = sample("host.txt");
    let text = text_of(&run(&["explain", "lspci", &path], &[]));
    for part in ["0000:17:00.0", "0000:41:00.0", "8 of the 16 lanes", "--device"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let found = records(&run(&["explain", "lspci", &path, "--json"], &[]));
    assert_eq!(found.len(), 3);
    let one = ["explain", "lspci", &path, "--device", "17:00.0"];
    let text = text_of(&run(&one, &[]));
    assert!(text.contains("16:00.0, supports x16"), "{text}");
}

#[test]
fn explain__refuses_nonsense_and_says_what_was_expected() {
    let path = sample("connectx2-2012.txt");
    let host = sample("host.txt");
    let cases: [(&[&str], &str); 16] = [
        (&["--measured", "3552"], "needs its unit"),
        (&["--measured=-3552MiB/s"], "cannot be negative"),
        (&["--measured", "0MB/s"], "more than 0"),
        (&["--pcie", "2.0x3"], "x1, x2, x4, x8"),
        (&["--pcie", "9.0x8"], "one from 1 to 7"),
        (&["--pcie", "fast"], "such as 2.0x8"),
        (&["--mps", "300"], "a power of two from 128 to 4096"),
        (&["--mps=-256"], "negative"),
        (&["--mrrs", "64"], "a power of two from 128 to 4096"),
        (&["--address", "48"], "32 or 64"),
        (&["--direction", "up"], "write"),
        (&["--ratio", "2:1"], "--direction both"),
        (&["--direction", "both", "--ratio", "0:1"], "as 2:1"),
        (&["--device", "99:00.0"], "41:00.0"),
        (&["--html", "/proc/none/page.html"], "/proc/none"),
        (&["--html", "/dev/full"], "/dev/full"),
    ];
    for (options, expected) in cases {
        let output = run(&[&["explain", "lspci", &path], options].concat(), &[]);
        assert!(!output.status.success(), "{options:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{options:?}: {said}");
    }
    let several = ["explain", "lspci", &host, "--measured", "3552MiB/s"];
    let other = format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    let cases: [(&[&str], &str); 4] = [
        (&several, "--device"),
        (&["explain", "lspci", &other], "run `lspci -vv` as root and pass its output"),
        (&["explain", "lspci", "/proc/none"], "/proc/none"),
        (&["explain", "device", "../etc"], "not a device name"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments, &[]);
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn explain_probe__without_a_driver_says_that_nothing_was_measured() {
    let output = run(&["explain", "probe", "--gpu", "4096"], &[]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nothing was measured"), "{said}");
    assert!(
        said.contains("no CUDA driver here")
            || said.contains("no GPU 4096")
            || said.contains("cuInit"),
        "{said}"
    );
}

#[test]
fn messages__that_cannot_be_written__change_no_exit_code() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fastpath"));
        command.args(words).env("FASTPATH_TUNING", "/proc/none/file");
        command
    };
    for (words, code) in [
        (&["bench", "nosuch"][..], 2),
        (&["ps", "999999999"], 1),
        (&["compare", "/proc/none/a", "/proc/none/b"], 2),
        (&["--nosuch"], 2),
        (&["info", "--protocols"], 0),
    ] {
        let output = command(words).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}");
    }
    let printing: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["bench", "--help"],
        &["bench", "--list"],
        &["info"],
        &["tune", "--dry-run"],
    ];
    for words in printing {
        let output = command(words).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        // With one processor, or with both busy, `tune` ends before it prints.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let causes = ["No space left", "one processor", "another program ran on"];
        assert!(causes.iter().any(|cause| said.contains(cause)), "{said}");
    }
}

#[test]
fn tune__on_a_busy_machine__stores_nothing_unless_it_is_allowed() {
    let affinity = std::fs::read_to_string("/proc/self/status").expect("a status");
    let allowed = affinity.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    if allowed.is_none_or(|list| !list.contains(['-', ','])) {
        return; // `tune` needs two processors
    }
    let file = std::env::temp_dir().join(format!("fastpath-busy-{}", std::process::id()));
    let environment = [("FASTPATH_TUNING", file.to_str().expect("a path"))];
    // Threads that use every processor all the time.
    let ends = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !ends.load(relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let refused = run(&["tune"], &environment);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let stored = file.exists();
        // A measurement between threads that share a processor may be implausible, and is repeated then.
        let allowed = (0..5).map(|_| run(&["tune", "--allow-busy", "--json"], &environment));
        let allowed = allowed.into_iter().find(|output| output.status.success());
        let info = run(&["info", "--json"], &environment);
        ends.store(true, relaxed);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(!stored && said.contains("no value is stored"), "{said}");
        let result = &records_of_one(&allowed.expect("a plausible measurement"));
        assert!(result["busy"].as_str().is_some_and(|why| why.contains("busy")), "{result}");
        let facts = &records_of_one(&info)["tuning"];
        assert!(facts["share"].as_f64().is_some_and(|share| share < 0.9), "{facts}");
        assert!(facts["holds"].is_null() && facts["age_s"].is_u64(), "{facts}");
        assert_eq!(facts["not_measured"][0], "post_ns");
    });
    std::fs::remove_file(file).expect("the file was stored");
}

#[test]
fn usage_error__has_exit_code_2_and_other_errors_have_1() {
    let path = sample("connectx2-2012.txt");
    for words in [
        &["bench"][..],
        &["bench", "nosuch"],
        &["bench", "floor", "--processors", "0,0"],
        &["bench", "copy", "--processors", "0,1,2"],
        &["bench", "barrier", "--summary"],
        &["bench", "latency", "--json", "-", "--csv", "-"],
        &["bench", "latency", "--level", "verbs", "--transport", "shm"],
        &["bench", "latency", "--tx-depth", "4"],
        &["tune", "--processors", "0,0"],
        &["tune", "--processors", "0,99999"],
        &["doctor", "--host", "one"],
        &["compare", "a", "b", "c"],
        &["page", "/proc/version", "--output", "/proc/version"],
        &["explain"],
        &["explain", "latency", "--adapter", "nosuch"],
        &["explain", "bandwidth", "--adapter", "nosuch"],
        &["explain", "lspci", &path, "--mps", "300"],
        &["ps", "nosuch"],
    ] {
        assert_eq!(run(words, &[]).status.code(), Some(2), "{words:?}");
    }
    for words in [
        &["audit", "/proc/none"][..],
        &["explain", "lspci", "/proc/none"],
        &["page", "/proc/none", "--output", "/proc/none/page.html"],
        &["ps", "999999999"],
    ] {
        assert_eq!(run(words, &[]).status.code(), Some(1), "{words:?}");
    }
    // 1 means that a case became worse.
    for words in [&["compare", "/proc/none"][..], &["compare", "/proc/none", "/proc/none"]] {
        assert_eq!(run(words, &[]).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn usage_error__of_a_number__has_what_is_expected() {
    for (words, expected) in [
        (&["ps", "abc"][..], "expected the number of a job; `fastpath ps` lists all jobs"),
        (&["bench", "latency", "-n", "x"], "expected a number of ranks from 1 to 1048576"),
        (&["compare", "-n", "x"], "expected a number of ranks from 1 to 1048576"),
    ] {
        let said = String::from_utf8_lossy(&run(words, &[]).stderr).into_owned();
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn usage_error__escapes_the_control_characters_of_its_arguments() {
    for words in [&["a\u{1b}[2J"][..], &["info", "a\u{1b}[2J"], &["ps", "a\u{1b}[2J"]] {
        let said = String::from_utf8_lossy(&run(words, &[]).stderr).into_owned();
        assert!(said.contains("a\\u{1b}[2J"), "{said}");
    }
    // At a terminal, a tip repeats an unknown option.
    let output = run(&["ps", "--a\u{1b}[2J\u{7}"], &[("CLICOLOR_FORCE", "1")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("tip:") && said.contains("\u{1b}[0m"), "{said}");
    assert!(!said.contains("\u{1b}[2J") && !said.contains('\u{7}'), "{said}");
}

#[test]
fn error__of_several_lines__has_one_that_begins_as_the_tool_begins_its_own() {
    let output = run(&["compare", "/proc/none/a\nfastpath: all is well\u{1b}[2J", "b"], &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().filter(|line| line.starts_with("fastpath: ")).count(), 1, "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}
