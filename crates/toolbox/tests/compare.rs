//! `fastpath compare` with stored results, and with scripts as compilers and launchers of MPIs. Real MPIs: `make
//! bench`.

#![allow(non_snake_case)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn make_events(library: &str, ns: u64) -> String {
    let bound = ns * 1000;
    [
        format!(r#"{{"event":"start","program":1,"library":"{library}","ranks":2,"processors":[0,1],"host":"h","clock":{{"source":"tsc","frequency_hz":2e9,"frequency_error_ppm":1,"resolution_ns":1,"read_ns":20}},"overhead_ns_each":20}}"#),
        format!(r#"{{"event":"case","test":"latency","variant":"","operation":"MPI_Send/MPI_Recv","of":"half-round-trip","unit":"ns","bytes":8,"ranks":2,"window":null,"timing":{{"operations_per_sample":16,"warmup_operations":1000,"overhead_ns":0.4}},"checked":null,"processors":[0,1],"samples":{{"count":100,"min":{ns},"mean":{ns},"max":{ns},"buckets":[[{bound},100]]}}}}"#),
        r#"{"event":"end","clock":{"source":"tsc","frequency_hz":2e9,"frequency_error_ppm":1,"resolution_ns":1,"read_ns":20}}"#.to_owned(),
    ]
    .join("\n")
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("fastpath-compare-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("cache")).unwrap();
        Folder(path)
    }

    /// Adds an MPI whose `mpicc` creates a program that does nothing and whose `mpiexec` is this script.
    fn add_mpi(&self, name: &str, mpiexec: &str) -> PathBuf {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder).unwrap();
        let compile = r#"while [ $# -gt 0 ]; do [ "$1" = -o ] && cp /bin/true "$2"; shift; done"#;
        for (file, text) in [("mpicc", compile), ("mpiexec", mpiexec)] {
            // Move the script into place, so that it is never open for writing when it is started.
            let (path, aside) = (folder.join(file), folder.join("new"));
            fs::write(&aside, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&aside, &path).unwrap();
        }
        folder.join("mpicc")
    }

    fn add_steady(&self, name: &str, ns: u64) -> PathBuf {
        let events = make_events(&format!("{name} 1.0"), ns);
        self.add_mpi(name, &format!("cat <<'END'\n{events}\nEND"))
    }

    fn compare(&self, ours: &Path, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_fastpath"))
            .args(["compare", "--tests", "latency", "--sizes=0,8", "--rounds", "3"])
            .arg("--mpicc")
            .arg(ours)
            .args(arguments)
            .env("XDG_CACHE_HOME", self.0.join("cache"))
            .output()
            .expect("the command starts")
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_valid(value: &Value, schema: &str) {
    let path = format!("{}/../../docs/schema/{schema}", env!("CARGO_MANIFEST_DIR"));
    fastpath_report::testing::schema::validate(&fs::read_to_string(path).unwrap(), value).unwrap();
}

#[test]
fn peers__that_are_slower_and_faster_are_told_apart_and_stored() {
    let folder = Folder::new("verdicts");
    let ours = folder.add_steady("ours", 100);
    let slow = format!("--peer=slow={}", folder.add_steady("slow", 200).display());
    let fast = format!("--peer=fast={}", folder.add_steady("fast", 80).display());
    let file = folder.0.join("result.json");
    let json = format!("--json={}", file.display());
    let output = folder.compare(&ours, &[&slow, &fast, &json]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("0.500 [0.500, 0.500] faster"), "{text}");
    assert!(text.contains("1.250 [1.250, 1.250] slower"), "{text}");
    assert!(text.contains("against slow (slow 1.0)"), "{text}");
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_valid(&value, "compare-1.json");
    assert_eq!(value["rows"][0]["pairs"].as_array().unwrap().len(), 3);
    for report in value["reports"].as_array().unwrap() {
        assert_valid(report, "bench-1.json");
    }
    let page = folder.0.join("page.md");
    let again = Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(["compare", file.to_str().unwrap(), "--markdown"])
        .arg(&page)
        .output()
        .unwrap();
    assert_eq!(stdout(&again), text);
    assert!(fs::read_to_string(page).unwrap().contains("80.00 (**1.25 [1.25, 1.25]**)"));
}

#[test]
fn peers__whose_compiler_or_job_fails_are_named_and_the_others_compared() {
    let folder = Folder::new("failures");
    let ours = folder.add_steady("ours", 100);
    let good = format!("--peer=good={}", folder.add_steady("good", 200).display());
    let dying = folder.add_mpi("dying", "echo 'rank 1 is gone' >&2; exit 9");
    let dying = format!("--peer=dying={}", dying.display());
    let none = "--peer=none=/proc/none/mpicc";
    let output = folder.compare(&ours, &[&dying, none, &good]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let (text, said) = (stdout(&output), stderr(&output));
    assert!(text.contains("faster"), "{text}");
    assert!(
        text.contains("none: not compared: the compiler wrapper /proc/none/mpicc does not exist"),
        "{text}"
    );
    assert!(text.contains("dying, latency, 2 ranks: not compared"), "{text}");
    assert!(said.contains("fastpath: none is not compared; the reason follows"), "{said}");
    assert!(!said.contains("/proc/none/mpicc"), "the reason is printed once: {said}");
    assert!(said.contains("rank 1 is gone"), "{said}");
}

/// Adds an MPI that records each start in a file, and runs `before` before it prints.
fn add_counted(folder: &Folder, name: &str, ns: u64, before: &str) -> PathBuf {
    let events = make_events(&format!("{name} 1.0"), ns);
    let starts = folder.0.join(format!("{name}.starts"));
    let starts = starts.display();
    let script = format!(
        "echo start >> '{starts}'\nn=$(wc -l < '{starts}')\n{before}\ncat <<'END'\n{events}\nEND"
    );
    folder.add_mpi(name, &script)
}

fn count_starts(folder: &Folder, name: &str) -> usize {
    let text = fs::read_to_string(folder.0.join(format!("{name}.starts"))).unwrap();
    text.lines().count()
}

#[test]
fn time_limit__stops_between_turns_and_the_next_start_goes_on() {
    let folder = Folder::new("stop");
    let ours = add_counted(&folder, "ours", 100, "");
    let theirs = add_counted(&folder, "theirs", 200, "");
    let peer = format!("--peer=theirs={}", theirs.display());
    let keep = format!("--keep={}", folder.0.join("kept").display());
    let page = folder.0.join("page.md");
    let markdown = format!("--markdown={}", page.display());
    let start = || folder.compare(&ours, &[&peer, &keep, &markdown, "--stop-after=1us"]);
    for round in 1..=2 {
        let output = start();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(&format!("{round} of 3 turns")), "{said}");
        assert!(!page.exists(), "a page of a part would pass for the whole");
    }
    let output = start();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(fs::read_to_string(&page).unwrap().contains("latency"));
    for name in ["ours", "theirs"] {
        assert_eq!(count_starts(&folder, name), 3, "each turn was made once");
    }
    // All turns are stored: the result is printed again, and no job is started.
    let again = start();
    assert_eq!(stdout(&again), stdout(&output));
    assert_eq!(count_starts(&folder, "theirs"), 3);
    // With other options, the tool reports the difference and starts anew.
    let other = folder.compare(&ours, &[&peer, &keep, "--sizes=8"]);
    assert_eq!(other.status.code(), Some(0), "{}", stderr(&other));
    assert!(stderr(&other).contains("contains another comparison"), "{}", stderr(&other));
    assert_eq!(count_starts(&folder, "theirs"), 6);
}

#[test]
fn comparison__that_is_killed_goes_on_after_the_last_whole_turn() {
    let folder = Folder::new("killed");
    let ours = add_counted(&folder, "ours", 100, "");
    let kill = "[ $n = 2 ] && kill -9 $PPID";
    let theirs = add_counted(&folder, "theirs", 200, kill);
    let peer = format!("--peer=theirs={}", theirs.display());
    let keep = format!("--keep={}", folder.0.join("kept").display());
    let killed = folder.compare(&ours, &[&peer, &keep]);
    assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
    let output = folder.compare(&ours, &[&peer, &keep]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 of 3 turns are already stored"), "{}", stderr(&output));
    assert!(stdout(&output).contains("0.500 [0.500, 0.500]"));
    assert_eq!(count_starts(&folder, "theirs"), 4, "three, and the one killed");
}

#[test]
fn peer__that_a_signal_ends_is_a_line_of_the_page() {
    let folder = Folder::new("signal");
    let ours = folder.add_steady("ours", 100);
    let progress = r#"{"event":"progress","test":"latency","bytes":64,"done":0,"total":1}"#;
    let dying = folder.add_mpi("dying", &format!("echo '{progress}'; exit 139"));
    let dying = format!("--peer=dying={}", dying.display());
    let good = format!("--peer=good={}", folder.add_steady("good", 200).display());
    let page = folder.0.join("page.md");
    let markdown = format!("--markdown={}", page.display());
    let output = folder.compare(&ours, &[&dying, &good, &markdown]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(&page).unwrap();
    let line =
        "- dying, latency, 2 ranks: the job failed: ended by signal 11, in latency at 64 B\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("| good | 1 | 0 | 0 |"), "{text}");
}

#[test]
fn variables_and_arguments__reach_the_launcher() {
    let folder = Folder::new("arguments");
    let ours = folder.add_steady("ours", 100);
    let events = make_events("theirs 1.0", 200);
    let script = format!(
        "echo \"$GREETING $*\" > '{}'\ncat <<'END'\n{events}\nEND",
        folder.0.join("seen").display()
    );
    let mpicc = folder.add_mpi("theirs", &script);
    let file = folder.0.join("peers");
    let words = format!(
        "--peer=theirs={}\n--peer-env=theirs:GREETING=hello\n--peer-arg=theirs:--bind-to,core\n",
        mpicc.display()
    );
    fs::write(&file, words).unwrap();
    let output = folder.compare(&ours, &["--peers", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let seen = fs::read_to_string(folder.0.join("seen")).unwrap();
    assert!(seen.starts_with("hello --bind-to core -n 2 "), "{seen}");
    assert!(seen.contains("latency") && seen.contains("--timing batch=16"), "{seen}");
}

#[test]
fn peer__that_runs_on_our_library_is_found_out() {
    let folder = Folder::new("same");
    let ours = folder.add_steady("ours", 100);
    let events = make_events("ours 1.0", 100);
    let twin = folder.add_mpi("twin", &format!("cat <<'END'\n{events}\nEND"));
    let twin = format!("--peer=twin={}", twin.display());
    let output = folder.compare(&ours, &[&twin]);
    assert!(stdout(&output).contains("loads the library of the first MPI"), "{}", stdout(&output));
}

#[test]
fn peer__that_is_another_build_of_our_library_is_compared() {
    let folder = Folder::new("build");
    let say = format!("cat <<'END'\n{}\nEND", make_events("ours 1.0", 100));
    let [ours, before] = ["now", "before"].map(|name| {
        fs::create_dir_all(folder.0.join(name).join("lib")).unwrap();
        fs::write(folder.0.join(name).join("lib/libmpi_abi.so.1"), name).unwrap();
        folder.add_mpi(&format!("{name}/bin"), &say)
    });
    let output = folder.compare(&ours, &[&format!("--peer=before={}", before.display())]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stdout(&output).contains("loads the library of the first MPI"), "{}", stdout(&output));
}

#[test]
fn full_disk__is_told_and_the_comparison_still_printed() {
    let folder = Folder::new("full");
    let ours = folder.add_steady("ours", 100);
    let slow = format!("--peer=slow={}", folder.add_steady("slow", 200).display());
    let output = folder.compare(&ours, &[&slow, "--json=/dev/full"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("faster"), "{}", stdout(&output));
    let said = stderr(&output);
    assert!(said.contains("/dev/full") && said.contains("No space left"), "{said}");
}

/// A stored result whose samples all take `ns` nanoseconds, from the tool itself.
fn store(folder: &Folder, name: &str, ns: u64) -> String {
    let mpicc = folder.add_steady(name, ns);
    let file = folder.0.join(format!("{name}.json"));
    let output = Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(["bench", "latency", "--mpicc"])
        .arg(mpicc)
        .arg(format!("--json={}", file.display()))
        .env("XDG_CACHE_HOME", folder.0.join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_valid(&value, "bench-1.json");
    file.to_str().unwrap().to_owned()
}

fn compare_stored(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastpath")).arg("compare").args(arguments).output().unwrap()
}

#[test]
fn stored_results__set_the_exit_code() {
    let folder = Folder::new("stored");
    let (before, now) = (store(&folder, "before", 100), store(&folder, "now", 120));
    let code = |arguments: &[&str]| compare_stored(arguments).status.code();
    assert_eq!(code(&[&before, &before]), Some(0));
    assert_eq!(code(&[&before, &now]), Some(1));
    assert_eq!(code(&[&now, &before]), Some(0));
    assert_eq!(code(&[&before, &now, "--threshold", "25"]), Some(0));
    let text = stdout(&compare_stored(&[&before, &now]));
    assert!(text.contains("1.200") && text.contains("slower"), "{text}");
    let text = fs::read_to_string(&now).unwrap();
    fs::write(&now, text.replace("\"bytes\":8,", "\"bytes\":16,")).unwrap();
    let refused = compare_stored(&[&before, &now]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stdout(&refused).contains("lacks this size"), "{}", stdout(&refused));
}

#[test]
fn stored_results__are_compared_in_json_and_markdown_too() {
    let folder = Folder::new("written");
    let (before, now) = (store(&folder, "before", 100), store(&folder, "now", 120));
    let [json, page] = ["out.json", "out.md"].map(|name| folder.0.join(name));
    let words = ["--json", json.to_str().unwrap(), "--markdown", page.to_str().unwrap()];
    let output = compare_stored(&[&[before.as_str(), &now], &words[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("slower"), "the table is printed");
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_valid(&value, "changes-1.json");
    let change = &value["changes"][0];
    assert_eq!((&change["worse"], &change["says"]), (&true.into(), &"slower".into()), "{value}");
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("| latency") && page.contains("slower"), "{page}");
    let output = compare_stored(&[&before, &now, "--json", "-"]);
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap(), value);
    let output = compare_stored(&[&before, &now, "--markdown", "-"]);
    assert_eq!(stdout(&output), page, "the table is not printed");
    let output = compare_stored(&[&before, &now, "--markdown", "-", "--json", "-"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    for option in ["--keep", "--readme"] {
        let output = compare_stored(&[&before, &now, option, json.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("with other MPIs"), "{}", stderr(&output));
    }
}

#[test]
fn stored_results__that_are_none_are_refused() {
    let folder = Folder::new("none");
    let before = store(&folder, "before", 100);
    let wrong = folder.0.join("wrong.json");
    fs::write(&wrong, "{\"schema\":\"something\",\"version\":1}").unwrap();
    for (arguments, part) in [
        (vec![before.as_str(), "/proc/none.json"], "/proc/none.json"),
        (vec![before.as_str(), wrong.to_str().unwrap()], "something"),
        (vec![], "nothing to compare"),
        (vec![&before, &before, &before], "exactly two results"),
    ] {
        let output = compare_stored(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}
