#![allow(non_snake_case)]
//! Options of other launchers in whole jobs: hosts, output files, input for several ranks, reports.

mod common;
use common::{JobOutput, mpiexec};
use std::fs::File;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("launch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        let path = self.0.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Each rank prints its number to standard output and to standard error.
const SAY: [&str; 3] = ["sh", "-c", "echo out $FASTPATH_RANK; echo err $FASTPATH_RANK >&2"];

#[track_caller]
fn say(options: &[&str]) -> JobOutput {
    mpiexec(&[options, &SAY].concat()).run().expect_code(0)
}

#[test]
fn notice__is_one_line_that_quiet_hides() {
    let words = ["-n", "2", "--mca", "btl", "self", "--mca", "pml", "ob1"];
    let o = mpiexec(&[&words[..], &["true"]].concat()).run().expect_code(0);
    assert_eq!(o.stderr.lines().count(), 1, "{o:?}");
    assert!(o.stderr.starts_with("mpiexec: --mca btl self, --mca pml ob1: no effect ("));
    let o = mpiexec(&[&words[..], &["-quiet", "true"]].concat()).run().expect_code(0);
    assert_eq!(o.stderr, "");
}

#[test]
fn hostfile__of_this_node_gives_the_ranks() {
    let dir = Folder::new("hostfile");
    let hosts = dir.file("hosts", "# here\nlocalhost slots=2\n127.0.0.1:1\n");
    let o = mpiexec(&["--hostfile", &hosts, "echo", "x"]).run().expect_code(0);
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("x\nx\nx\n", ""));
    let own = fastpath_base::topology::host_name();
    let hosts = dir.file("own", &own);
    mpiexec(&["-f", &hosts, "true"]).run().expect_code(0);
    let far = dir.file("far", "localhost\nfar.invalid slots=4\n");
    mpiexec(&["-machinefile", &far, "--engine", "none", "true"])
        .run()
        .expect_code(1)
        .expect_stderr("--engine none: unknown launch engine; use one of");
    mpiexec(&["-f", &dir.path("none"), "true"]).run().expect_code(2).expect_stderr("No such file");
}

#[test]
fn config_file__starts_its_programs() {
    let dir = Folder::new("config");
    let file =
        dir.file("programs", "# two\n-n 1 echo 'a  b'\n-n 2 -env X y \\\n  sh -c 'echo $X'\n");
    let o = mpiexec(&["-l", "-configfile", &file]).run().expect_code(0);
    assert_eq!(o.sorted_lines(), ["[0] a  b", "[1] y", "[2] y"]);
}

#[test]
fn output__goes_to_a_folder_of_the_rank_as_well() {
    let dir = Folder::new("output");
    let o = say(&["-n", "2", "--output-filename", &dir.path("log")]);
    assert_eq!(o.sorted_lines(), ["out 0", "out 1"]);
    assert_eq!(o.stderr.lines().count(), 2);
    for rank in 0..2 {
        assert_eq!(dir.read(&format!("log/1/rank.{rank}/stdout")), format!("out {rank}\n"));
        assert_eq!(dir.read(&format!("log/1/rank.{rank}/stderr")), format!("err {rank}\n"));
    }
    // Output goes only to files, with both streams merged and tagged. Leading zeros keep the folders in order.
    let log = dir.path("log2");
    let o = say(&["-n", "11", "--output", &format!("tag,merge,dir={log}:nocopy")]);
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("", ""));
    let text = dir.read("log2/1/rank.07/stdout");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[7] err 7", "[7] out 7"]);
}

#[test]
fn output__goes_to_files_by_pattern() {
    let dir = Folder::new("pattern");
    let (out, err) = (dir.path("o.%r.%g"), dir.path("all"));
    let o = say(&["-l", "-n", "3", "-outfile-pattern", &out, "-errfile-pattern", &err]);
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("", ""));
    assert_eq!(dir.read("o.2.0"), "[2] out 2\n");
    let text = dir.read("all");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] err 0", "[1] err 1", "[2] err 2"]);
    let o = say(&["-n", "1", "-outfile-pattern", &dir.path("one")]);
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("", "err 0\n"));
    mpiexec(&["-outfile-pattern", "/proc/no/%r", "true"])
        .run()
        .expect_code(2)
        .expect_stderr("output file /proc/no/0: ");
}

#[test]
fn output__to_a_file_that_is_full_is_said() {
    let words = ["-n", "1", "-outfile-pattern", "/dev/full", "echo", "lost"];
    mpiexec(&words)
        .run()
        .expect_code(1)
        .expect_stderr("cannot write to /dev/full, and output is lost");
}

#[test]
fn output__has_times_and_patterns_before_its_lines() {
    let o = say(&[
        "-n",
        "1",
        "-prepend-pattern",
        "<%r>",
        "--timestamp-output",
        "--merge-stderr-to-stdout",
    ]);
    assert_eq!(o.stderr, "");
    for line in o.stdout.lines() {
        let (date, rest) = line.strip_prefix("<0>").unwrap().split_at(19);
        assert!(date.starts_with("20") && date.matches(':').count() == 2, "{line}");
        assert!([" out 0", " err 0"].contains(&rest), "{line}");
    }
    assert_eq!(o.stdout.lines().count(), 2);
}

/// Input larger than a pipe's capacity.
fn long_input() -> String {
    (0..200_000).map(|n| format!("{n}\n")).collect()
}

#[test]
fn stdin__of_a_pipe_goes_to_all() {
    let input = long_input();
    // A rank that reads little, or that reads nothing and stays alive, does not block other readers.
    let dir = Folder::new("all");
    let done = dir.path("done");
    let script = format!(
        "case $FASTPATH_RANK in 1) head -c 1 >&2;; 2) until [ -e {done} ]; do :; done;; \
         *) cksum; : >{done};; esac"
    );
    let words = ["-n", "4", "--stdin", "all", "sh", "-c", &script];
    let o = mpiexec(&words).run_with_input(&input).expect_code(0);
    let lines: Vec<&str> = o.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{o:?}");
    assert!(lines[0] == lines[1] && lines[0].ends_with(&format!(" {}", input.len())), "{o:?}");
}

#[test]
fn stdin__of_a_file_goes_to_all() {
    let dir = Folder::new("stdin");
    let input = long_input();
    let path = dir.file("input", &input);
    for (path, length) in [(Path::new(&path), input.len()), (Path::new("/dev/null"), 0)] {
        let mut job = mpiexec(&["-n", "3", "-s", "all", "wc", "-c"]);
        job.command.stdin(File::open(path).unwrap());
        assert_eq!(job.run().expect_code(0).stdout, format!("{length}\n").repeat(3));
    }
}

#[test]
fn stdin__goes_to_whom_it_is_meant_for() {
    for (who, lines) in [
        ("2", &["[2] x"][..]),
        ("1-2", &["[1] x", "[2] x"]),
        ("none", &[]),
        ("all", &["[0] x", "[1] x", "[2] x"]),
    ] {
        let words = ["-l", "-n", "3", "--stdin", who, "cat"];
        let o = mpiexec(&words).run_with_input("x\n").expect_code(0);
        assert_eq!(o.sorted_lines(), lines, "{who}");
    }
}

#[test]
fn variables__that_are_listed_are_passed_on_alone() {
    let run = |words: &[&str]| {
        let job = mpiexec(&[words, &["env"]].concat());
        let o = job.env("A", "1").env("B", "2").env("FASTPATH_WAIT", "auto").run();
        let o = o.expect_code(0);
        let mut names: Vec<String> =
            o.stdout.lines().map(|l| l.split('=').next().unwrap().to_owned()).collect();
        names.retain(|n| !n.starts_with("FASTPATH_") && n != "PWD" && n != "_");
        names.sort_unstable();
        assert!(o.stdout.contains("FASTPATH_WAIT=auto") && o.stdout.contains("FASTPATH_RANK=0"));
        names
    };
    // Keep the mark in the environment, so that the watchdog finds the processes.
    let mark = common::MARK;
    assert_eq!(run(&["-genvlist", &format!("A,{mark}")]), ["A", mark]);
    assert_eq!(run(&["-genvnone", "-x", mark, "-env", "C", "3"]), ["C", mark]);
    let all = run(&["-genvexcl", "A"]);
    assert!(all.contains(&"B".to_owned()) && !all.contains(&"A".to_owned()));
    assert!(run(&["-genvlist", mark, "-envall"]).contains(&"B".to_owned()));
}

#[test]
fn path__is_searched_before_the_other() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Folder::new("path");
    let program = dir.file("true", "#!/bin/sh\necho mine\n");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let o = mpiexec(&["-path", &dir.path(""), "true", ":", "true"]).run().expect_code(0);
    assert_eq!(o.stdout, "mine\n");
}

#[test]
fn map__says_what_runs_where() {
    for option in ["-v", "--display-map", "-print-rank-map", "--do-not-launch"] {
        let words = [option, "--display", "map", "-n", "2", "-wdir", "/", "echo", "x", ":", "true"];
        let o = mpiexec(&words).run().expect_code(0);
        let started = option != "--do-not-launch";
        assert_eq!(o.stdout, if started { "x\nx\n" } else { "" }, "{option}");
        let lines: Vec<&str> = o.stderr.lines().collect();
        assert_eq!(lines.len(), 6, "{o:?}");
        let host = fastpath_base::topology::host_name();
        assert!(lines[0].starts_with(&format!("mpiexec: node {host}, ")), "{o:?}");
        assert!(
            lines[1].starts_with("mpiexec: ranks 0-1: /") && lines[1].ends_with("echo x, in /")
        );
        assert!(lines[2].starts_with("mpiexec: rank 2: /") && lines[2].ends_with("/true"));
        assert!(lines[5].starts_with("mpiexec: rank 2 "), "{o:?}");
    }
}

#[test]
fn exit_codes__of_all_ranks_are_said() {
    let o = mpiexec(&["-print-all-exitcodes", "-n", "3", "true"]).run().expect_code(0);
    let line = |rank| format!("mpiexec: rank {rank} exited with code 0\n");
    assert_eq!(o.stderr, line(0) + &line(1) + &line(2));
    mpiexec(&["-print-all-exitcodes", "sh", "-c", "kill -9 $$"])
        .run()
        .expect_code(137)
        .expect_stderr("mpiexec: rank 0 was ended by signal 9");
}

#[test]
fn process_number__is_reported() {
    let dir = Folder::new("pid");
    let file = dir.path("pid");
    for (place, script) in [("-", "true"), (file.as_str(), "true")] {
        let job = mpiexec(&["--report-pid", place, "-n", "1", script]).start();
        let pid = format!("{}\n", job.child.id());
        let o = job.finish().expect_code(0);
        let said = if place == "-" { o.stdout } else { dir.read("pid") };
        assert_eq!(said, pid);
    }
}

#[test]
fn help__lists_what_is_accepted() {
    let o = mpiexec(&["--help"]).run().expect_code(0);
    for part in ["Examples", "--hostfile", "-genvlist NAME,...", "--mca", "-outfile-pattern"] {
        assert!(o.stdout.contains(part), "{part}");
    }
}
