#![allow(non_snake_case)]
//! Binding to processors. The claims lie in a folder of the test, so that other jobs on the machine do not matter.

mod common;
use common::TestJob;
use fastpath_base::topology::{affinity, list_cores};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

const MASK: &str = "grep Cpus_allowed_list /proc/self/status | tr -d '\\t'";

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("launch-{name}-{}", std::process::id()))
}

fn claims() -> PathBuf {
    folder("claims")
}

fn mpiexec(words: &[&str]) -> TestJob {
    common::mpiexec(words).env("FASTPATH_INTERNAL_CLAIMS", claims().to_str().unwrap())
}

fn masks(words: &[&str]) -> Vec<String> {
    let words = [words, &["sh", "-c", MASK]].concat();
    let o = mpiexec(&words).run().expect_code(0);
    o.stdout.lines().map(|l| l.rsplit(':').next().unwrap().to_owned()).collect()
}

#[test]
fn binding__follows_the_options_and_leaves_other_jobs_their_cores() {
    let all = affinity();
    std::fs::create_dir_all(claims()).unwrap();
    let cores = list_cores(&all).len();

    assert_eq!(masks(&["-n", "2", "--bind-to", "none"]), [all.to_string(), all.to_string()]);
    assert_eq!(masks(&["-n", "1"]), [all.to_string()]);
    let many = (all.len() + 1).to_string();
    assert!(masks(&["-n", &many]).iter().all(|m| *m == all.to_string()));
    mpiexec(&["-n", &many, "--bind-to", "core", "true"])
        .run()
        .expect_code(0)
        .expect_stderr("not possible");
    mpiexec(&["-n", "1", "--bind-to", "numa", "--report-bindings", "true"])
        .run()
        .expect_code(0)
        .expect_stderr("rank 0 is bound to processor");
    mpiexec(&["-n", "1", "--report-bindings", "true"])
        .run()
        .expect_code(0)
        .expect_stderr("is not bound");

    for place in ["socket", "numa", "node", "l9cache"] {
        let o = mpiexec(&["-n", "2", "--bind-to", place, "--report-bindings", "true"]).run();
        match place {
            "l9cache" => o.expect_code(2).expect_stderr("use none, hwthread"),
            _ => o.expect_code(0).expect_stderr("rank 1 is bound to processor"),
        };
    }
    let first = all.iter().next().unwrap().to_string();
    assert_eq!(masks(&["-n", "1", "--bind-to", &format!("user:{first}")]), [first.as_str()]);
    assert_eq!(masks(&["-n", "1", "--bind-to", "hwthread"]), [first.as_str()]);
    assert_eq!(masks(&["-n", "1", "--cpu-set", &first]), [first.as_str()]);
    mpiexec(&["--cpu-set", "65535", "true"])
        .run()
        .expect_code(2)
        .expect_stderr("--cpu-set 65535: ")
        .expect_stderr("; choose from processors ");

    // One job holds a core until its input ends; another job then gets a different core.
    let mut job = mpiexec(&["-n", "1", "--bind-to", "core", "sh", "-c", &format!("{MASK}; cat")]);
    job.command.stdin(Stdio::piped());
    let mut holder = job.start();
    let held = holder.read_until("Cpus_allowed").trim().rsplit(':').next().unwrap().to_owned();
    assert_ne!(held, all.to_string());
    if cores > 1 {
        let other = masks(&["-n", "1", "--bind-to", "core"]);
        assert_ne!(other[0], held);
        assert_ne!(other[0], all.to_string());
    }
    let o = mpiexec(&["-n", &cores.to_string(), "--bind-to", "core", "--report-bindings", "true"]);
    o.run().expect_code(0).expect_stderr("other jobs have claimed");
    let mut input = holder.child.stdin.take().unwrap();
    input.write_all(b"done\n").unwrap();
    drop(input);
    holder.finish().expect_code(0);
    assert_eq!(masks(&["-n", "1", "--bind-to", "core"]), [held]);
    std::fs::remove_dir_all(claims()).unwrap();
}

#[test]
fn jobs__that_start_at_once_never_bind_to_the_same_core() {
    let folder = folder("claims-at-once");
    std::fs::create_dir_all(&folder).unwrap();
    let cores = list_cores(&affinity()).len();
    for _ in 0..5 {
        let start = |_| {
            let script = format!("{MASK}; cat");
            let words = ["-n", "1", "--bind-to", "core", "sh", "-c", &script];
            let mut job = common::mpiexec(&words);
            job.command.stdin(Stdio::piped());
            job.env("FASTPATH_INTERNAL_CLAIMS", folder.to_str().unwrap()).start()
        };
        let mut jobs: Vec<_> = (0..cores + 2).map(start).collect();
        let mut masks: Vec<String> = jobs
            .iter_mut()
            .map(|job| job.read_until("Cpus_allowed"))
            .map(|line| line.trim().rsplit(':').next().unwrap().to_owned())
            .filter(|mask| *mask != affinity().to_string())
            .collect();
        let bound = masks.len();
        masks.sort();
        masks.dedup();
        assert_eq!(masks.len(), bound, "two jobs on one core");
        assert!(bound > 0 || cores == 1, "no job is bound");
        for job in jobs {
            let mut job = job;
            drop(job.child.stdin.take());
            job.finish().expect_code(0);
        }
    }
    std::fs::remove_dir(&folder).unwrap();
}
