#![allow(non_snake_case)]
//! Jobs as a whole: programs, folders, variables, input, output, exit codes.

mod common;
use common::mpiexec;
use std::io::{Read, Write};

#[test]
fn exit_code__is_0_when_all_is_well() {
    let o = mpiexec(&["-n", "3", "true"]).run().expect_code(0);
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("", ""));
}

#[test]
fn ranks__know_who_they_are() {
    let o = mpiexec(&["-n", "3", "PROBE", "attach", "init", "where", "finalize"]).run();
    let o = o.expect_code(0);
    let line = |r| format!("rank {r} of 3 app Some(0) of 3 launcher true");
    assert_eq!(o.sorted_lines(), [line(0), line(1), line(2)]);
    assert_eq!(o.stderr, "");
}

#[test]
fn apps__share_one_job() {
    let words = "-n 1 PROBE attach init where finalize : -n 2 PROBE attach init where finalize";
    let words: Vec<&str> = words.split(' ').collect();
    let o = mpiexec(&words).run().expect_code(0);
    assert_eq!(
        o.sorted_lines(),
        [
            "rank 0 of 3 app Some(0) of 1 launcher true",
            "rank 1 of 3 app Some(1) of 2 launcher true",
            "rank 2 of 3 app Some(1) of 2 launcher true",
        ]
    );
}

#[test]
fn attach__works_when_the_descriptor_was_closed_on_the_way() {
    let words = ["-n", "2", "PROBE", "close", "60", "exec", "attach", "where"];
    let o = mpiexec(&words).run().expect_code(0);
    assert_eq!(o.stdout.lines().count(), 2, "{o:?}");
}

#[test]
fn attach__below_a_shell_is_the_rank() {
    let o = mpiexec(&["-n", "2", "sh", "-c", "PROBE attach init where finalize; exit $?"]).run();
    assert!(o.expect_code(0).stdout.contains("rank 1 of 2"));
}

#[test]
fn attach__by_a_program_that_a_rank_starts_is_a_job_of_one() {
    let o = mpiexec(&["-n", "1", "PROBE", "attach", "child", "attach", "where"]).run();
    assert!(o.expect_code(0).stdout.contains("rank 0 of 1 app None of 1 launcher false"));
}

/// Variables that Hydra sets for rank 0 of 2. The descriptor is closed, as if an intermediate program had closed it.
const HYDRA: &str = "PMI_FD=9 PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0";
const SRUN: &str = "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 \
    SLURM_PROCID=0 \
    SLURM_TASK_PID=1";

fn with_variables(job: common::TestJob, text: &str) -> common::TestJob {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.fold(job, |job, (name, value)| job.env(name, value))
}

#[test]
fn attach__in_another_launcher_that_a_rank_has_started_is_neither_the_rank_nor_alone() {
    for inner in [HYDRA, SRUN] {
        let script = format!("export {inner}; PROBE attach where");
        let o = mpiexec(&["-n", "1", "sh", "-c", &script]).run();
        let o = o.expect_code(99);
        assert!(o.stdout.contains("=2 shows that"), "{o:?}");
        assert!(!o.stdout.contains("rank 0 of 1 app"), "{o:?}");
        // The only rank of an inner job does not take a rank of the outer job, so a later process can take that rank.
        let single = inner.replace("=2", "=1");
        let script = format!("(export {single}; PROBE attach where); PROBE attach where");
        let o = mpiexec(&["-n", "2", "sh", "-c", &script]).run().expect_code(0);
        let alone = "rank 0 of 1 app None of 1 launcher false";
        assert_eq!(o.stdout.matches(alone).count(), 2, "{o:?}");
        assert!(o.stdout.contains("rank 1 of 2 app Some(0) of 2 launcher true"), "{o:?}");
    }
}

#[test]
fn ranks__see_no_identity_of_a_launcher_outside() {
    let outside = format!(
        "{HYDRA} {SRUN} PMIX_RANK=0 PMIX_NAMESPACE=x OMPI_COMM_WORLD_SIZE=2 FLUX_TASK_RANK=0"
    );
    let job = mpiexec(&["-n", "2", "-x", "PMI_DEBUG=1", "env"]);
    let o = with_variables(job, &format!("{outside} FASTPATH_SINGLETON=1 PMI_DEBUG=0")).run();
    let o = o.expect_code(0);
    let seen = |name: &str| o.stdout.lines().any(|line| line.starts_with(name));
    for name in
        ["PMI_FD", "PMI_RANK", "PMIX_", "OMPI_", "SLURM_PROCID", "FLUX_TASK", "FASTPATH_SINGLETON"]
    {
        assert!(!seen(name), "{name} in {o:?}");
    }
    // Variables about the allocation stay, and so do variables that the user requested.
    assert!(seen("SLURM_JOB_ID=1") && seen("SLURM_NTASKS=2") && seen("PMI_DEBUG=1"), "{o:?}");
}

#[test]
fn ranks__under_another_launcher_are_those_of_our_job() {
    for outside in [HYDRA, SRUN] {
        let job = mpiexec(&["-n", "2", "PROBE", "attach", "init", "where", "finalize"]);
        let o = with_variables(job, outside).run().expect_code(0);
        assert!(o.stdout.contains("rank 1 of 2"), "{o:?}");
    }
}

#[test]
fn mpiexec__says_once_that_another_launcher_has_started_several_of_it() {
    let say = |text: &str| {
        with_variables(mpiexec(&["-n", "1", "true"]), text).run().expect_code(0).stderr
    };
    let said = say(SRUN);
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in
        ["srun of Slurm", "SLURM_STEP_NUM_TASKS=2", "srun -N 1 -n 1 -c 2 ", "FASTPATH_SINGLETON"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(say(HYDRA).contains("PMI_SIZE=2"));
    let quiet = [
        SRUN.replace("PROCID=0", "PROCID=1"),
        SRUN.replace("=2", "=1"),
        format!("{SRUN} FASTPATH_SINGLETON=1"),
        SRUN.replace("SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 ", ""),
    ];
    for text in quiet {
        assert_eq!(say(&text), "", "{text}");
    }
}

#[test]
fn attach__twice_in_a_row_is_an_error() {
    let script = "PROBE attach init finalize; PROBE attach";
    let o = mpiexec(&["-n", "1", "sh", "-c", script]).run().expect_code(99);
    assert!(o.stdout.contains("has been rank 0 of this job already"), "{o:?}");
}

#[test]
fn wdir__of_each_app() {
    let o = mpiexec(&["-n", "1", "-wdir", "/usr", "pwd", ":", "-wdir", "/proc/..", "pwd"]).run();
    assert_eq!(o.expect_code(0).sorted_lines(), ["/", "/usr"]);
}

#[test]
fn program__relative_to_its_folder() {
    let o = mpiexec(&["-wdir", "/usr/bin", "./env", "-i", "echo", "ok"]).run();
    assert_eq!(o.expect_code(0).stdout, "ok\n");
}

#[test]
fn environment__app_over_job_over_inherited() {
    let script = "echo $A $B $C";
    let words = [
        "-genv", "A", "job", "-x", "B=job", "-env", "A", "app", "sh", "-c", script, ":", "sh",
        "-c", script,
    ];
    let o = mpiexec(&words).env("B", "inherited").env("C", "inherited").run().expect_code(0);
    assert_eq!(o.sorted_lines(), ["app job inherited", "job job inherited"]);
}

#[test]
fn export__of_what_is_not_set_is_said() {
    mpiexec(&["-x", "NOT_SET_ANYWHERE", "true"])
        .run()
        .expect_code(0)
        .expect_stderr("NOT_SET_ANYWHERE: the variable is not set");
}

#[test]
fn stdin__goes_to_rank_0_alone() {
    let o = mpiexec(&["-n", "3", "-l", "cat"]).run_with_input("one\ntwo\n").expect_code(0);
    assert_eq!(o.stdout, "[0] one\n[0] two\n");
}

#[test]
fn stdin__is_not_read_ahead() {
    let mpi = env!("CARGO_BIN_EXE_mpiexec");
    let script = format!("{mpi} -n 2 true; {mpi} -n 2 head -c 4; cat");
    let mut job = mpiexec(&["-n", "1", "sh", "-c", &script]);
    let input = std::env::temp_dir().join(format!("launch-input-{}", std::process::id()));
    std::fs::write(&input, "one\ntwo\n").unwrap();
    job.command.stdin(std::fs::File::open(&input).unwrap());
    let o = job.run().expect_code(0);
    std::fs::remove_file(&input).unwrap();
    assert_eq!(o.stdout, "one\ntwo\n");
}

#[test]
fn output__without_tags_is_byte_for_byte() {
    let o = mpiexec(&["printf", "a\\nno end"]).run().expect_code(0);
    assert_eq!(o.stdout, "a\nno end");
}

#[test]
fn output__lines_are_never_torn() {
    let o = mpiexec(&["-n", "4", "-l", "PROBE", "print", "2000"]).run().expect_code(0);
    let mut next = [0usize; 4];
    for line in o.stdout.lines() {
        let rank: usize = line[1..2].parse().unwrap();
        let n = next[rank];
        let filler = rank.to_string().repeat(n % 300);
        assert_eq!(line, format!("[{rank}] <{rank} {n} {filler}>"));
        next[rank] += 1;
    }
    assert_eq!(next, [2000; 4]);
}

#[test]
fn output__both_streams_into_one_file_keep_their_lines() {
    let script = r#"i=0; while [ $i -lt 300 ]; do echo "out $FASTPATH_RANK end"; echo "err $FASTPATH_RANK end" >&2; i=$((i+1)); done"#;
    let path = std::env::temp_dir().join(format!("launch-both-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let mut job = mpiexec(&["-n", "3", "sh", "-c", script]);
    job.command.stdout(file.try_clone().unwrap()).stderr(file);
    assert!(job.command.status().unwrap().success());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text.lines().count(), 1800);
    assert!(text.lines().all(|l| l.len() == 9 && l.ends_with(" end")));
}

#[test]
fn output__more_than_any_buffer_comes_through() {
    let o = mpiexec(&["-n", "2", "PROBE", "flood", "12"]).run().expect_code(0);
    assert_eq!(o.stdout.len(), 24 << 20);
    assert!(o.stdout.lines().all(|l| l.len() == 1023));
}

#[test]
fn output__without_reader__ends_the_job() {
    let mut running = mpiexec(&["-n", "2", "yes"]).start();
    running.read_until("y");
    drop(running.child.stdout.replace(empty()));
    let o = running.finish();
    assert_eq!(o.code(), Some(128 + libc::SIGPIPE), "{o:?}");
}

#[test]
fn output__that_cannot_be_written_is_said() {
    let mpi = env!("CARGO_BIN_EXE_mpiexec");
    let script = format!("{mpi} -n 2 echo result > /dev/full");
    mpiexec(&["-n", "1", "sh", "-c", &script])
        .run()
        .expect_code(1)
        .expect_stderr("cannot write to standard output, and output is lost: No space left");
}

#[test]
fn prompt__without_its_line_end__comes_through_a_pipe_unless_lines_are_tagged() {
    // The rank ends only when the prompt has been read, or its input ends.
    let script = "printf 'name? '; read name; echo \"hello $name\"";
    let mut job = mpiexec(&["-n", "1", "sh", "-c", script]);
    job.command.stdin(std::process::Stdio::piped());
    let mut running = job.start();
    let mut prompt = [0; 6];
    running.child.stdout.as_mut().unwrap().read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"name? ");
    running.child.stdin.take().unwrap().write_all(b"you\n").unwrap();
    assert_eq!(running.finish().expect_code(0).stdout, "hello you\n");
    let tagged = mpiexec(&["-l", "-n", "1", "sh", "-c", script]).run_with_input("you\n");
    assert_eq!(tagged.expect_code(0).stdout, "[0] name? hello you\n");
}

#[test]
fn messages__that_cannot_be_written__change_no_exit_code() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let code = |words: &[&str]| {
        let mut job = mpiexec(words);
        job.command.stderr(full());
        job.command.output().unwrap().status.code()
    };
    assert_eq!(code(&["--nosuch"]), Some(2));
    assert_eq!(code(&["-n", "1", "/proc/none/program"]), Some(127));
    assert_eq!(code(&["-x", "NO_SUCH_VARIABLE", "-disable-auto-cleanup", "true"]), Some(0));
    assert_eq!(code(&["--do-not-launch", "true"]), Some(0));
    for option in ["--help", "--version"] {
        let mut job = mpiexec(&[option]);
        let output = job.command.stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("cannot write to the standard output: No space left"), "{said}");
    }
}

#[test]
fn names__with_control_characters__forge_no_line_and_command_no_terminal() {
    let name = "/proc/none/a\nmpiexec: rank 7 has won\u{1b}[2J";
    let shown = r"a\nmpiexec: rank 7 has won\u{1b}[2J";
    let no_such: &[&[&str]] = &[
        &["-n", "1", name],
        &["--hostfile", name, "true"],
        &["-x", name, "true"],
        &["-configfile", name],
        &[&format!("--no-{name}")],
        &["-v", "-n", "1", "true", name],
        &["-wdir", name, "true"],
        &["-outfile-pattern", "/dev/null/a\nmpiexec: rank 7 has won\u{1b}[2J", "true"],
        &["--do-not-launch", "-v", "true", name],
    ];
    for words in no_such {
        let o = mpiexec(words).run().expect_stderr(shown);
        assert!(o.stderr.lines().all(|line| !line.contains(char::is_control)), "{o:?}");
        assert!(!o.stderr.contains("\nmpiexec: rank 7"), "{o:?}");
    }
    // The name of a failed program is escaped too.
    let folder = std::env::temp_dir().join(format!("fastpath-names-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("a\nmpiexec: rank 7 has won\u{1b}[2J");
    std::os::unix::fs::symlink("/bin/false", &program).unwrap();
    let o = mpiexec(&["-n", "1", program.to_str().unwrap()]).run().expect_code(1);
    o.expect_stderr(shown);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn small_stack__is_enough_to_pass_input_on() {
    let script = "ulimit -s 64; exec \"$0\" --stdin all -n 2 cat";
    let mut job = mpiexec(&[]);
    let mpi = env!("CARGO_BIN_EXE_mpiexec");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, mpi]).env(common::MARK, &job.mark);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    job.command = command;
    let o = job.run_with_input("hello\n").expect_code(0);
    assert_eq!(o.stdout, "hello\nhello\n");
}

/// Returns an empty pipe without a writer, in place of an output that was closed.
fn empty() -> std::process::ChildStdout {
    let (reader, _) = std::io::pipe().unwrap();
    std::os::fd::OwnedFd::from(reader).into()
}

#[test]
fn many_ranks__on_few_processors() {
    let o = mpiexec(&["-n", "100", "PROBE", "attach", "init", "say", "here", "finalize"]).run();
    assert_eq!(o.expect_code(0).stdout.lines().count(), 100);
}

#[test]
fn file_limit__is_raised_for_the_launcher_and_kept_for_the_ranks() {
    let mpi = env!("CARGO_BIN_EXE_mpiexec");
    let script = format!("ulimit -Sn 100; exec {mpi} -n 60 PROBE limit");
    let o = mpiexec(&["-n", "1", "sh", "-c", &script]).run().expect_code(0);
    assert_eq!(o.stdout, "limit 100\n".repeat(60));
}

#[test]
fn hostile_surroundings__do_not_matter() {
    let long = format!("/tmp/{}", "x".repeat(200));
    let words = ["-n", "2", "--oversubscribe", "--allow-run-as-root", "--host", "localhost:2"];
    let words = [&words[..], &["PROBE", "attach", "init", "where", "finalize"]].concat();
    let o = mpiexec(&words)
        .env("TMPDIR", &long)
        .env("HOSTNAME", "no.such.host")
        .env("HOME", "/nx")
        .run();
    assert_eq!(o.expect_code(0).stdout.lines().count(), 2);
}

#[test]
fn mistakes__are_one_clear_line() {
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "no program"),
        (&["-n", "0", "true"], 2, "number of ranks"),
        (&["-n", "1000000", "true"], 2, "at most 8192"),
        (&["-n", "9000000", "true"], 2, "1 to 1048576"),
        (&["--frobnicate", "true"], 2, "unknown option"),
        (&["-wdir", "/proc/none", "true"], 2, "/proc/none"),
        (&["no-such-program"], 127, "no-such-program"),
        (&["/proc/none/program"], 127, "/proc/none/program"),
        (&["/etc"], 126, "folder"),
        (&["/etc/passwd"], 126, "not executable"),
        (&["--host", "far", "--engine", "none", "true"], 1, "--engine"),
        (&["-genv", "FASTPATH_WAIT", "spni", "true"], 2, "FASTPATH_WAIT=spni"),
    ];
    for (words, code, part) in cases {
        let o = mpiexec(words).run().expect_code(*code).expect_stderr(part);
        assert_eq!(o.stderr.lines().count(), 1, "{o:?}");
    }
}

#[test]
fn programs_that_cannot_run__say_why() {
    let dir = std::env::temp_dir().join(format!("launch-exec-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let make = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (lost, plain) = (make("lost", "#!/proc/none/interpreter\n"), make("plain", "echo hi\n"));
    mpiexec(&["-n", "2", &lost]).run().expect_code(127).expect_stderr("the interpreter in");
    mpiexec(&["-n", "2", &plain]).run().expect_code(126).expect_stderr("#!");
    // Ranks that run already are ended when a later one cannot be started.
    mpiexec(&["-n", "2", "sleep", "1000", ":", &lost]).run().expect_code(127);
    std::fs::remove_dir_all(&dir).unwrap();
}
