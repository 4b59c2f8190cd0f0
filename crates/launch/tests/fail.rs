#![allow(unsafe_code, non_snake_case)]
//! Ranks that fail and jobs that are interrupted. No process may be left.

mod common;
use common::{CleanFolder, marked, mpiexec, wait_gone};
use std::os::unix::process::CommandExt;

#[test]
fn exit_code__is_that_of_the_rank_that_failed() {
    let o = mpiexec(&["-n", "1", "sleep", "1000", ":", "-n", "1", "sh", "-c", "exit 7"]).run();
    o.expect_code(7).expect_stderr("rank 1 on").expect_stderr("exited with code 7");
}

#[test]
fn signal__is_named_and_gives_128_and_more() {
    let words = ["-n", "2", "PROBE", "attach", "init", "wait", "MPI_Recv", ":"];
    let words = [&words[..], &["PROBE", "attach", "init", "signal", "6"]].concat();
    let o = mpiexec(&words).run().expect_code(134);
    o.expect_stderr("rank 2 on").expect_stderr("SIGABRT");
}

#[test]
fn killed_rank__is_reported_with_the_call_it_was_in() {
    let mut running =
        mpiexec(&["-n", "2", "-l", "PROBE", "attach", "init", "wait", "MPI_Bcast"]).start();
    running.read_until("waiting");
    running.read_until("waiting");
    let ranks = marked(&running.mark);
    let victim = ranks.iter().find(|p| p.contains("probe") && !p.contains("mpiexec")).unwrap();
    let pid: i32 = victim.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: kill takes no pointers, and the target is a process of this test's job.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    let o = running.finish().expect_code(137);
    o.expect_stderr("SIGKILL").expect_stderr("while waiting in MPI_Bcast, peer 1, tag 7");
}

#[test]
fn leaving_without_finalize__is_a_failure() {
    let words = ["-n", "1", "PROBE", "attach", "init", "wait", "MPI_Recv", ":"];
    let words = [&words[..], &["PROBE", "attach", "init", "exit", "0"]].concat();
    mpiexec(&words)
        .run()
        .expect_code(1)
        .expect_stderr("exited with code 0 before calling MPI_Finalize");
}

#[test]
fn leaving_before_init__wakes_those_who_wait() {
    let words = ["-n", "1", "PROBE", "attach", "init", "until-dead", "1", "finalize", ":", "true"];
    let o = mpiexec(&words).run().expect_code(0);
    assert_eq!(o.stdout, "rank 1 is dead\n");
}

#[test]
fn abort__gives_code_and_message() {
    let words = ["-n", "1", "PROBE", "attach", "init", "wait", "MPI_Recv", ":"];
    let words = [&words[..], &["PROBE", "attach", "init", "abort", "5", "no input file"]].concat();
    let o = mpiexec(&words).run().expect_code(5);
    o.expect_stderr("rank 1 on")
        .expect_stderr("aborted the job with code 5")
        .expect_stderr("no input file");
}

#[test]
fn failure_after_finalize__counts_and_lets_the_others_finish() {
    let done = "sleep 0.1; echo done";
    let words = ["-n", "1", "PROBE", "attach", "init", "finalize", "exit", "3", ":"];
    let words = [&words[..], &["-n", "2", "sh", "-c", done]].concat();
    let o = mpiexec(&words).run().expect_code(3);
    assert_eq!(o.stdout, "done\ndone\n");
}

#[test]
fn ranks_that_ignore_sigterm__are_killed() {
    let stubborn = "trap '' TERM; while :; do sleep 1000; done";
    mpiexec(&["-n", "2", "sh", "-c", stubborn, ":", "false"]).run().expect_code(1);
}

#[test]
fn failure__ends_what_has_left_its_group_too() {
    let words = ["-n", "1", "PROBE", "orphan", "1000", ":", "sh", "-c", "sleep 0.1; exit 4"];
    mpiexec(&words).run().expect_code(4);
}

#[test]
fn timeout__says_what_each_rank_was_doing() {
    let words = ["--timeout", "0.5", "-n", "1", "PROBE", "attach", "init", "wait", "MPI_Recv", ":"];
    let words = [&words[..], &["sleep", "1000", ":", "true"]].concat();
    let o = mpiexec(&words).run().expect_code(124);
    o.expect_stderr("waits in MPI_Recv, peer 1, tag 7")
        .expect_stderr("has not called MPI_Init")
        .expect_stderr("has exited with code 0");
}

/// The kernel's letter for a process's state.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, s)| s.chars().next())
}

/// Returns the report of a job that ends after ranks 0 and 1 have waited for rank 1 for `seconds` seconds.
fn report_after(seconds: &str, others: &[&str]) -> String {
    let words = ["-n", "2", "PROBE", "attach", "init"];
    let words = [&words[..], &["wait-since", seconds, "MPI_Recv"], others].concat();
    let mut running = mpiexec(&words).start();
    running.read_until("waiting");
    running.read_until("waiting");
    for process in marked(&running.mark) {
        let pid = process.split(' ').next().unwrap().parse().unwrap();
        while state(pid) != Some('S') {
            std::thread::yield_now();
        }
    }
    running.signal(libc::SIGTERM);
    running.finish().expect_code(143).stderr
}

#[test]
fn terminate__calls_a_deadlock_by_its_name() {
    for others in [&[][..], &[":", "sleep", "1000"]] {
        let text = report_after("9", others);
        let verdict = "mpiexec: deadlock: rank 1 waits for itself (MPI_Recv, tag 7, 9.";
        assert!(text.contains(verdict), "{text}");
    }
}

#[test]
fn terminate__calls_nothing_a_deadlock_that_has_just_begun() {
    let text = report_after("0", &[]);
    assert!(text.contains("waits in MPI_Recv, peer 1, tag 7"), "{text}");
    assert!(!text.contains("deadlock:"), "{text}");
}

#[test]
fn timeout__in_time_changes_nothing() {
    let o = mpiexec(&["--timeout", "50", "-n", "2", "true"]).run().expect_code(0);
    assert_eq!(o.stderr, "");
}

#[test]
fn user_signals__reach_every_rank() {
    let script = "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let mut running = mpiexec(&["-n", "2", "sh", "-c", script]).start();
    running.read_until("ready");
    running.read_until("ready");
    running.signal(libc::SIGUSR1);
    let o = running.finish().expect_code(0);
    assert_eq!(o.stdout, "got\ngot\n");
}

#[test]
fn terminate__ends_the_job() {
    let mut running = mpiexec(&["-n", "3", "PROBE", "attach", "init", "wait", "MPI_Recv"]).start();
    running.read_until("waiting");
    running.signal(libc::SIGTERM);
    running
        .finish()
        .expect_code(143)
        .expect_stderr("ended by signal 15")
        .expect_stderr(" for rank 1")
        .expect_stderr("rank 2 (process");
}

#[test]
fn terminate__that_ranks_ignore__kills_them_after_the_grace() {
    let script = "trap '' $0; echo ready; while :; do sleep 0.01; done";
    for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGHUP, "HUP")] {
        let ends = ["echo ready; while :; do sleep 0.01; done", "none"];
        let words = ["--kill-after", "1", "-n", "1", "sh", "-c", script, name, ":", "-n", "1"];
        let words = [&words[..], &["sh", "-c"], &ends, &[":", "sh", "-c", script, name]].concat();
        let mut running = mpiexec(&words).start();
        for _ in 0..3 {
            running.read_until("ready");
        }
        running.signal(signal);
        let o = running.finish().expect_code(128 + signal);
        o.expect_stderr("mpiexec: the job was ended by signal")
            .expect_stderr("mpiexec: killed ranks 0,2, which still ran 1 s after");
    }
}

#[test]
fn terminate__without_a_grace__leaves_ranks_their_time() {
    let script = "trap 'touch told' TERM; echo ready; while :; do sleep 0.01; done";
    let folder = std::env::temp_dir().join(format!("fastpath-grace-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let words = ["--kill-after", "0", "-n", "1", "-wdir", folder.to_str().unwrap(), "sh", "-c"];
    let mut running = mpiexec(&[&words[..], &[script]].concat()).start();
    running.read_until("ready");
    running.signal(libc::SIGTERM);
    while !folder.join("told").exists() {
        std::thread::yield_now();
    }
    running.signal(libc::SIGTERM);
    let o = running.finish().expect_code(143);
    assert!(!o.stderr.contains("--kill-after"), "{o:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn interrupt__that_ranks_outlive__is_followed_by_what_a_second_one_does() {
    let script = "trap '' INT; echo ready; while :; do sleep 0.01; done";
    // Ranks that ignore Ctrl-C are not killed: no grace period begins.
    let words = ["--kill-after", "0.01", "-n", "2", "sh", "-c", script];
    let mut running = mpiexec(&words).start();
    running.read_until("ready");
    running.read_until("ready");
    running.signal(libc::SIGINT);
    running.await_error("mpiexec: ranks still run; a second Ctrl-C kills them");
    running.signal(libc::SIGINT);
    let o = running.finish().expect_code(130);
    assert!(!o.stderr.contains("--kill-after"), "{o:?}");
}

#[test]
fn interrupt__lets_ranks_end_in_their_own_way() {
    let script = "trap 'echo bye; exit 0' INT; echo ready; while :; do sleep 0.01; done";
    let mut running = mpiexec(&["-n", "2", "sh", "-c", script]).start();
    running.read_until("ready");
    running.read_until("ready");
    running.signal(libc::SIGINT);
    let o = running.finish().expect_code(0);
    assert_eq!(o.stdout, "bye\nbye\n");
}

#[test]
fn interrupt_twice__kills() {
    let script = "trap '' INT; echo ready; while :; do sleep 0.01; done";
    let mut running = mpiexec(&["-n", "2", "sh", "-c", script]).start();
    running.read_until("ready");
    running.read_until("ready");
    running.signal(libc::SIGINT);
    // Send the second signal repeatedly: while the first one is pending, the kernel merges both into one.
    while running.child.try_wait().unwrap().is_none() {
        running.signal(libc::SIGINT);
        std::thread::yield_now();
    }
    running.finish().expect_code(130);
}

#[test]
fn stop_and_continue__reach_every_rank() {
    expect_stop_and_continue("core");
    expect_stop_and_continue("none");
}

fn expect_stop_and_continue(binding: &str) {
    let script = "echo ready; while :; do sleep 0.01; done";
    let words = ["--bind-to", binding, "-n", "1", "sh", "-c", script];
    let mut running = mpiexec(&words).start();
    running.read_until("ready");
    let sh: i32 = {
        let found = marked(&running.mark);
        let sh = found.iter().find(|p| p.contains("sh -c")).unwrap();
        sh.split(' ').next().unwrap().parse().unwrap()
    };
    running.signal(libc::SIGTSTP);
    while state(sh) != Some('T') || state(running.child.id() as i32) != Some('T') {
        std::thread::yield_now();
    }
    running.signal(libc::SIGCONT);
    while state(sh) == Some('T') {
        std::thread::yield_now();
    }
    running.signal(libc::SIGTERM);
    running.finish().expect_code(143);
}

#[test]
fn stop__of_a_rank_that_handles_it__is_the_handlers() {
    let script = "trap 'echo stopping' TSTP; echo ready; while :; do :; done";
    let mut running = mpiexec(&["--bind-to", "core", "-n", "1", "sh", "-c", script]).start();
    running.read_until("ready");
    running.signal(libc::SIGTSTP);
    while state(running.child.id() as i32) != Some('T') {
        std::thread::yield_now();
    }
    // Wait until the rank has taken SIGTSTP, because SIGCONT would discard the pending signal.
    let found = marked(&running.mark);
    let sh = found
        .iter()
        .find(|p| p.contains("sh -c") && !p.contains("mpiexec"))
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{sh}/status")).unwrap();
    while !status().contains("ShdPnd:\t0000000000000000") {
        std::thread::yield_now();
    }
    running.signal(libc::SIGCONT);
    running.read_until("stopping");
    running.signal(libc::SIGTERM);
    running.finish().expect_code(143);
}

#[test]
fn session__is_a_dedicated_ranks_own_or_the_jobs_or_the_launchers_if_niced() {
    // Fields 1, 5 and 6: process, process group and session.
    // The claims of other jobs do not matter in a folder of the test.
    let claims = std::env::temp_dir().join(format!("launch-session-claims-{}", std::process::id()));
    std::fs::create_dir_all(&claims).unwrap();
    let script =
        "read pid a b c group session rest < /proc/self/stat; echo $((pid)) $group $session";
    // Groups and sessions of the ranks.
    let run = |binding: &str, ranks: &str, nice: i32| -> Vec<(i32, i32)> {
        let mut job = mpiexec(&["--bind-to", binding, "-n", ranks, "sh", "-c", script])
            .env("FASTPATH_INTERNAL_CLAIMS", claims.to_str().unwrap());
        // SAFETY: setpriority is async-signal-safe.
        unsafe {
            job.command.pre_exec(move || {
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                Ok(())
            });
        }
        let output = job.run().expect_code(0).stdout;
        let ids = output.lines().map(|line| {
            let fields: Vec<i32> = line.split_whitespace().map(|f| f.parse().unwrap()).collect();
            // `sh` has read the fields of its own process, which leads its process group.
            assert_eq!(fields[0], fields[1], "{output}");
            (fields[1], fields[2])
        });
        ids.collect()
    };
    // SAFETY: getpriority and getsid take no pointers and change nothing.
    let (is_niced, ours) =
        unsafe { (libc::getpriority(libc::PRIO_PROCESS, 0) > 0, libc::getsid(0)) };
    let dedicated = run("core", "1", 0);
    let shared = run("none", "2", 0);
    assert!(shared.iter().all(|ids| ids.1 == shared[0].1), "{shared:?}");
    if is_niced {
        assert_eq!((dedicated[0].1, shared[0].1), (ours, ours));
    } else {
        assert_eq!(dedicated[0].0, dedicated[0].1);
        assert!(shared.iter().all(|ids| ids.1 != ids.0 && ids.1 != ours), "{shared:?}");
    }
    assert_eq!((run("core", "1", 5)[0].1, run("none", "1", 5)[0].1), (ours, ours));
    std::fs::remove_dir_all(claims).unwrap();
}

#[test]
fn killed_launcher__leaves_no_process() {
    let script = "sleep 1000 & echo ready; wait";
    let mut running = mpiexec(&["-n", "3", "sh", "-c", script]).start();
    (0..3).for_each(|_| drop(running.read_until("ready")));
    running.signal(libc::SIGKILL);
    running.child.wait().unwrap();
    wait_gone(&running.mark);
}

#[test]
fn killed_launcher__at_any_moment__leaves_no_process() {
    let folder = CleanFolder::new("launch-any");
    let script = "sleep 1000 & wait";
    for step in 0..60u32 {
        let mut running = folder.serve(mpiexec(&["-n", "4", "sh", "-c", script])).start();
        let until =
            std::time::Instant::now() + std::time::Duration::from_micros(u64::from(step) * 150);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        running.signal(libc::SIGKILL);
        running.child.wait().unwrap();
        wait_gone(&running.mark);
    }
    folder.expect_empty();
}

#[test]
fn killed_rank__at_any_moment_ends_the_job() {
    for _ in 0..40 {
        let running = mpiexec(&["-n", "4", "PROBE", "attach", "init", "wait", "MPI_Recv"]).start();
        let victim = loop {
            let found = marked(&running.mark);
            if let Some(p) = found.iter().find(|p| p.contains("probe") && !p.contains("mpiexec")) {
                break p.split(' ').next().unwrap().parse::<i32>().unwrap();
            }
        };
        // SAFETY: kill takes no pointers. The target is a process of this test's job, and only this kill ends it.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        running.finish().expect_code(137).expect_stderr("SIGKILL");
    }
}

#[test]
fn killed_guard__does_not_disturb_the_job() {
    let script = "echo ready; read x; echo done";
    let mut job = mpiexec(&["-n", "1", "sh", "-c", script]);
    job.command.stdin(std::process::Stdio::piped());
    let mut running = job.start();
    running.read_until("ready");
    let launcher = running.child.id().to_string();
    let child = |pid: &str| {
        let path = format!("/proc/{launcher}/task/{launcher}/children");
        std::fs::read_to_string(path).unwrap().split(' ').any(|word| word == pid)
    };
    // The guard may write its name after the rank has begun.
    let guard = loop {
        assert!(running.child.try_wait().unwrap().is_none(), "the job has no guard");
        let processes = marked(&running.mark);
        let guards = processes.iter().filter(|p| p.contains("mpi-guard"));
        if let Some(pid) = guards.map(|p| p.split(' ').next().unwrap()).find(|pid| child(pid)) {
            break pid.to_owned();
        }
        std::thread::yield_now();
    };
    // SAFETY: kill takes no pointers, and the target is a process of this test's job.
    assert_eq!(unsafe { libc::kill(guard.parse().unwrap(), libc::SIGKILL) }, 0);
    running.await_error("the guard process, which ends the job if mpiexec is killed, was ended by signal 9, SIGKILL");
    drop(running.child.stdin.take());
    assert_eq!(running.finish().expect_code(0).stdout, "done\n");
}

#[test]
fn everything_killed_at_once__leaves_nothing() {
    let folder = CleanFolder::new("launch-all");
    for _ in 0..10 {
        let job = mpiexec(&["-n", "3", "PROBE", "attach", "init", "wait", "MPI_Recv"]);
        let mut running = folder.serve(job).start();
        running.read_until("waiting");
        for process in marked(&running.mark) {
            let pid: i32 = process.split(' ').next().unwrap().parse().unwrap();
            // SAFETY: kill takes no pointers, and the target is a process of this test's job.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        running.child.wait().unwrap();
        wait_gone(&running.mark);
    }
    folder.expect_empty();
}

#[test]
fn hundred_jobs_in_a_row__leave_nothing() {
    let folder = CleanFolder::new("launch-hundred");
    for _ in 0..100 {
        let job = mpiexec(&["-n", "4", "PROBE", "attach", "init", "finalize"]);
        let o = folder.serve(job).run().expect_code(0);
        assert_eq!(o.stderr, "");
    }
    folder.expect_empty();
}
