//! `fastpath bench` with scripts as compiler wrapper and launcher: jobs that fail, print wrong data or stall. Real jobs
//! are in `tests/jobs/bench.py`.

#![allow(non_snake_case)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const START: &str = r#"{"event":"start","program":1,"library":"Stand-in 1.0, of a test","ranks":2,"processors":[0,1],"host":"h","clock":{"source":"tsc","frequency_hz":2e9,"frequency_error_ppm":1,"resolution_ns":1,"read_ns":20},"overhead_ns_each":20}"#;

const CASE: &str = r#"{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":8,"ranks":2,"window":null,"timing":{"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4},"checked":null,"processors":[0,1],"samples":{"count":3,"min":100,"mean":200,"max":300,"buckets":[[100000,1],[199936,1],[299904,1]]}}"#;

/// A ping-pong of 64 KiB with its floor and the time of a cache line.
const LARGE: &str = r#"{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":65536,"ranks":2,"window":null,"timing":{"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4},"checked":null,"processors":[0,1],"lines":[1e-3,1e-3],"samples":{"count":3,"min":100,"mean":200,"max":300,"buckets":[[100000,1],[199936,1],[299904,1]]},"floor_of":"memory copy","floor":{"count":1,"min":100,"mean":100,"max":100,"buckets":[[100000,1]]}}"#;

/// A folder with an `mpicc` and an `mpiexec`, removed at the end.
struct Mpi(PathBuf);

impl Drop for Mpi {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write_script(path: &Path, text: &str) {
    // Move the script into place, so that it is never open for writing when it is started.
    let aside = path.with_extension("new");
    fs::write(&aside, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&aside, path).unwrap();
}

impl Mpi {
    /// `mpicc` creates a program that does nothing; `mpiexec` is this script.
    fn new(name: &str, mpiexec: &str) -> Mpi {
        let folder =
            std::env::temp_dir().join(format!("fastpath-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("cache")).unwrap();
        let compile = r#"while [ $# -gt 0 ]; do [ "$1" = -o ] && cp /bin/true "$2"; shift; done"#;
        write_script(&folder.join("mpicc"), compile);
        write_script(&folder.join("mpiexec"), mpiexec);
        Mpi(folder)
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        // Do not measure the floor: its search for large messages takes a second.
        self.bench_with_floor(&[arguments, &["--no-floor"]].concat())
    }

    fn bench_with_floor(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_fastpath"))
            .arg("bench")
            .args(arguments)
            .arg("--mpicc")
            .arg(self.0.join("mpicc"))
            .env("XDG_CACHE_HOME", self.0.join("cache"))
            .env("COLUMNS", "80")
            .output()
            .expect("the command starts")
    }
}

fn say(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|l| format!("echo '{l}'")).collect();
    lines.join("\n")
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("the output is one report")
}

#[test]
fn table__has_every_statistic() {
    let mpi = Mpi::new("table", &say(&[START, CASE]));
    let output = mpi.bench(&["pingpong", "--wide"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in [
        "min",
        "median",
        "mean",
        "p90",
        "p99",
        "p99.9",
        "max",
        "samples",
        "half a round trip",
        "tsc",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn headline__comes_first_and_lines_fit_80_columns() {
    let mpi = Mpi::new("headline", &say(&[START, CASE, LARGE]));
    for options in [&[][..], &["--explain"], &["--plot"], &["--explain", "--plot"]] {
        let output = mpi.bench(&[&["latency"], options].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let headline = "8 B: 200 ns half round trip; 64 KiB: 328 GB/s, 0.50 of the copy limit\n";
        assert!(text.starts_with(headline), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.contains("nearest rank"), options.contains(&"--explain"), "{text}");
        assert_eq!(text.contains("Time by size"), options.contains(&"--plot"), "{text}");
    }
}

#[test]
fn ping_pong__of_large_messages_stands_beside_the_bare_pipeline() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let mpi = Mpi::new("pipeline", &say(&[START, CASE, LARGE]));
    let json = mpi.0.join("result.json");
    let words = ["latency", "--sizes", "8,64K", "--wide", "--explain", "--json"];
    let output = mpi.bench_with_floor(&[&words[..], &[json.to_str().unwrap()]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("0/0!"), "a line like none here: {text}");
    assert!(text.contains("bare pipeline between processors 0 and 1"), "{text}");
    let rows = |when: &str| text.lines().filter(|l| l.contains(when)).count();
    assert!(rows(" before  ") == 1 && rows(" after  ") == 1, "{text}");
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert!(cases[0]["floor_of"].is_null());
    assert_eq!(cases[1]["floor_of"], "bare pipeline and a cache line one way");
    assert!(cases[1]["floor_line"].as_f64().unwrap() > 0.0);
}

#[test]
fn rank_that_dies__leaves_what_was_measured() {
    let end = "echo 'mpiexec: rank 1 was ended by signal 9' >&2; exit 137";
    let mpi = Mpi::new("dies", &format!("{}\n{end}", say(&[START, CASE])));
    let output = mpi.bench(&["latency", "rate", "--json", "-"]);
    let said = error_of(&output);
    assert!(
        said.contains("the job failed") && said.contains("rank 1 was ended by signal 9"),
        "{said}"
    );
    let report = report_of(&output);
    assert_eq!(report["cases"][0]["test"], "latency");
    let missing = report["missing"].as_array().unwrap();
    assert!(missing.iter().any(|m| m["test"] == "rate"), "{missing:?}");
}

#[test]
fn damaged_line__is_an_error_and_the_rest_is_kept() {
    let damaged = r#"{"event":"case","test":"late"#;
    let mpi = Mpi::new("damaged", &say(&[START, damaged, CASE]));
    let output = mpi.bench(&["latency", "--json", "-"]);
    assert!(error_of(&output).contains("unexpected output"));
    assert_eq!(report_of(&output)["cases"].as_array().unwrap().len(), 1);
}

#[test]
fn wrong_contents__are_an_error() {
    let wrong = CASE.replace("\"checked\":null", "\"checked\":false");
    let mpi = Mpi::new("wrong", &format!("{}\nexit 3", say(&[START, &wrong])));
    let output = mpi.bench(&["latency", "--check"]);
    assert!(error_of(&output).contains("wrong contents"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("WRONG CONTENTS"));
}

#[test]
fn missing_test__is_shown_with_its_reason() {
    let missing = r#"{"event":"missing","test":"put","reason":"MPI_Win_create: error class 55"}"#;
    let mpi = Mpi::new("missing", &say(&[START, CASE, missing, missing]));
    let output = mpi.bench(&["latency"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("put is missing: MPI_Win_create").count(), 1, "{text}");
}

#[test]
fn job_that_measures_nothing__is_an_error() {
    for (name, script, message) in
        [("nothing", "exit 0", "without a result"), ("fails", "exit 5", "the job failed")]
    {
        let mpi = Mpi::new(name, script);
        let said = error_of(&mpi.bench(&["barrier"]));
        assert!(said.contains(message), "{said}");
    }
}

#[test]
fn compiler_that_fails__is_shown_with_its_message() {
    let mpi = Mpi::new("compiler", "exit 0");
    write_script(&mpi.0.join("mpicc"), "echo 'mpi.h: no such file' >&2; exit 1");
    let said = error_of(&mpi.bench(&["latency"]));
    assert!(said.contains("mpi.h: no such file"), "{said}");
}

#[test]
fn mpi_that_is_not_there__is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(["bench", "latency", "--mpicc", "/proc/none/mpicc"])
        .output()
        .unwrap();
    assert!(error_of(&output).contains("/proc/none/mpicc"));
}

#[test]
fn program__is_compiled_once_for_a_wrapper() {
    let mpi = Mpi::new("once", &say(&[START, CASE]));
    let compile = fs::read_to_string(mpi.0.join("mpicc")).unwrap();
    let count = mpi.0.join("count");
    let counting = format!("case $* in *-o*) echo >> {} ;; esac\n{compile}", count.display());
    write_script(&mpi.0.join("mpicc"), &counting);
    for _ in 0..3 {
        assert!(mpi.bench(&["latency"]).status.success());
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 1);
}

#[test]
fn bad_input__is_refused_before_anything_runs() {
    let mpi = Mpi::new("input", "touch $0.ran; exit 0");
    for arguments in [
        &["latency", "--sizes", "2G"][..],
        &["latency", "--sizes", "eight"],
        &["latency", "--iterations", "0"],
        &["latency", "-n", "0"],
        &["latency", "--window", "0"],
        &["latncy"],
        &["latency", "--json", "/proc/none/folder/result.json"],
        &[],
    ] {
        error_of(&mpi.bench(arguments));
    }
    assert!(!mpi.0.join("mpiexec.ran").exists());
}

#[test]
fn full_disk__is_an_error_and_the_table_is_shown() {
    let mpi = Mpi::new("full", &say(&[START, CASE]));
    let output = mpi.bench(&["latency", "--json", "/dev/full"]);
    assert!(error_of(&output).contains("/dev/full"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("median"));
}

#[test]
fn list__names_the_tests_without_an_mpi() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fastpath")).args(["bench", "--list"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["latency", "rate", "floor", "copy"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn styles__have_the_columns_of_other_tools_and_the_same_numbers() {
    let mpi = Mpi::new("styles", &say(&[START, CASE]));
    let osu = mpi.bench(&["latency", "--style", "osu"]);
    let text = String::from_utf8_lossy(&osu.stdout).into_owned();
    assert!(text.contains("# Size       Avg Latency(us)"), "{text}");
    let numbers: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(numbers.iter().any(|l| l.starts_with("8 ") && l.contains("0.200")), "{text}");
    let perftest = mpi.bench(&["latency", "--style", "perftest"]);
    let text = String::from_utf8_lossy(&perftest.stdout).into_owned();
    assert!(text.contains("t_typical[usec]") && text.contains("is the median"), "{text}");
    let imb = mpi.bench(&["latency", "--style", "imb"]);
    let text = String::from_utf8_lossy(&imb.stdout).into_owned();
    assert!(text.contains("# Benchmarking PingPong"), "{text}");
    assert!(text.contains("       #bytes #repetitions      t[usec]   Mbytes/sec"), "{text}");
}

#[test]
fn comma_separated_values__are_written_beside_the_table() {
    let mpi = Mpi::new("csv", &say(&[START, CASE]));
    let file = mpi.0.join("result.csv");
    let output = mpi.bench(&["latency", "--csv", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("test,variant,operation,"), "{text}");
    assert!(
        lines[1].starts_with("latency,,MPI_Send/MPI_Recv,mpi,half-round-trip,ns,8,2,,3,100.000,"),
        "{text}"
    );
}

/// Reads the first line and closes the pipe; returns the line and the exit status.
fn read_one_line(mpi: &Mpi, arguments: &[&str]) -> (String, std::process::ExitStatus) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .arg("bench")
        .args(arguments)
        .arg("--mpicc")
        .arg(mpi.0.join("mpicc"))
        .env("XDG_CACHE_HOME", mpi.0.join("cache"))
        .current_dir(&mpi.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    drop(out);
    (line, child.wait().unwrap())
}

fn list_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn reader_that_has_seen_enough__leaves_no_part_of_a_file() {
    // Many cases: the pipe is closed long before the last.
    let lines: Vec<&str> = std::iter::once(START).chain(std::iter::repeat_n(CASE, 500)).collect();
    let mpi = Mpi::new("closed", &say(&lines));
    let before = list_files(&mpi.0);
    let (line, status) = read_one_line(&mpi, &["latency", "--csv", "-"]);
    assert!(line.starts_with("test,"), "{line}");
    assert!(status.success(), "{status}");
    assert_eq!(list_files(&mpi.0), before);
    // A requested file is complete all the same.
    let (_, status) = read_one_line(&mpi, &["latency", "--csv", "result.csv"]);
    assert!(status.success(), "{status}");
    let text = fs::read_to_string(mpi.0.join("result.csv")).unwrap();
    assert_eq!(text.lines().filter(|l| l.starts_with("latency,")).count(), 500);
    assert_eq!(list_files(&mpi.0).len(), before.len() + 1);
}

#[test]
fn first_run__without_terminal__reports_that_it_compiles() {
    let mpi = Mpi::new("announced", &say(&[START, CASE]));
    let said = || String::from_utf8_lossy(&mpi.bench(&["latency"]).stderr).into_owned();
    assert!(said().contains("compiling the benchmark program"));
    assert_eq!(said(), "");
}

#[test]
fn standard_output__that_is_full_is_told_and_the_table_still_seen() {
    let mpi = Mpi::new("standard", &say(&[START, CASE]));
    for json in [&[][..], &["--json", "-"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fastpath"))
            .args(["bench", "latency"])
            .args(json)
            .arg("--mpicc")
            .arg(mpi.0.join("mpicc"))
            .env("XDG_CACHE_HOME", mpi.0.join("cache"))
            .stdout(full)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("No space left"), "{said}");
        assert!(said.contains("median") && said.contains("200.0"), "{said}");
    }
}

#[test]
fn levels__below_mpi_are_for_two_ranks_and_say_so_before_anything_is_started() {
    let mpi = Mpi::new("levels", "echo started >&2; exit 9");
    let output = mpi.bench(&["latency", "--level", "transport", "-n", "3"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("exactly two ranks, not 3"), "{said}");
    let error = error_of(&output);
    assert!(!error.contains("started"), "{error}");
}

#[test]
fn level__at_which_a_job_failed_is_the_one_that_is_missing() {
    let mpi = Mpi::new("failed-level", "exit 9");
    let output = mpi.bench(&["latency", "--level", "protocol", "--json", "-"]);
    error_of(&output);
    let missing = &report_of(&output)["missing"][0];
    assert_eq!(missing["level"], "protocol", "{missing}");
}
