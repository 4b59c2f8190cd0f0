#![allow(unsafe_code)]
//! A test rank that attaches to a job as the MPI library does, and executes the words of its command line in order:
//! `attach`, `init`, `finalize`, `say TEXT`, `print N` (lines of growing length, written in pieces), `flood MIB`, `wait
//! CALL` (sleeps forever), `wait-since SECONDS CALL` (reports a sleep that began SECONDS ago), `until-dead RANK`,
//! `abort CODE TEXT`, `exit CODE`, `signal N` (to itself), `where`, `close FD`, `exec WORD...`, `orphan SECONDS`
//! (leaves a process in a separate session), `limit` (open files), `arena MIB` (memory for the rank's arena).

use fastpath_base::clock::now_ns;
use fastpath_base::sync::Ordering;
use fastpath_base::wait::{futex_wait, yield_now};
use fastpath_job::Job;
use fastpath_segment::{AwaitedRanks, RankPhase, STATE_AWAKE, STATE_SLEEPING, WaitNoteRef};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut job: Option<Job> = None;
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("a word is missing");
        match word.as_str() {
            "attach" => match Job::attach() {
                Ok(j) => job = Some(j),
                Err(e) => {
                    println!("attach: {e}");
                    std::process::exit(99);
                }
            },
            "init" => of(&job).set_phase(RankPhase::Initialized),
            "finalize" => of(&job).set_phase(RankPhase::Finalized),
            "say" => println!("{}", next()),
            "print" => print_torn(next().parse().unwrap()),
            "flood" => flood(next().parse().unwrap()),
            "wait" => sleep_in(of(&job), &next(), 0),
            "wait-since" => {
                let seconds = next().parse().unwrap();
                sleep_in(of(&job), &next(), seconds);
            }
            "until-dead" => wait_for_death(of(&job), next().parse().unwrap()),
            "abort" => {
                let code = next().parse().unwrap();
                of(&job).record_abort(code, &next());
                std::process::exit(fastpath_job::exit_code(code));
            }
            "exit" => std::process::exit(next().parse().unwrap()),
            // SAFETY: kill takes no pointers, and the target is this process.
            "signal" => unsafe {
                libc::kill(libc::getpid(), next().parse().unwrap());
            },
            "where" => {
                let j = of(&job);
                println!(
                    "rank {} of {} app {:?} of {} launcher {}",
                    j.rank(),
                    j.world().len(),
                    j.appnum(),
                    j.app_size(),
                    j.launcher().is_some()
                );
            }
            // SAFETY: close takes no pointers, and no code of this process uses that descriptor.
            "close" => unsafe {
                libc::close(next().parse().unwrap());
            },
            "exec" => {
                let e = Command::new(std::env::current_exe().unwrap()).args(words).exec();
                panic!("exec: {e}");
            }
            "child" => {
                let status = Command::new(std::env::current_exe().unwrap()).args(words).status();
                std::process::exit(status.unwrap().code().unwrap_or(98));
            }
            "orphan" => leave_orphan(&next()),
            "limit" => print_limit(),
            "arena" => {
                let mib: u64 = next().parse().unwrap();
                let range = of(&job).arena(of(&job).rank()).unwrap();
                match of(&job).segment().ensure_backed(range.start, mib << 20) {
                    Ok(()) => println!("{mib} MiB backed"),
                    Err(e) => println!("{e}"),
                }
            }
            _ => panic!("unknown word {word}"),
        }
    }
}

fn of(job: &Option<Job>) -> &Job {
    job.as_ref().expect("attach comes first")
}

/// Prints lines of growing length, in writes that end anywhere within a line.
fn print_torn(lines: usize) {
    let rank = std::env::var("FASTPATH_RANK").unwrap_or_default();
    let mut text = Vec::new();
    for n in 0..lines {
        let filler = rank.repeat(n % 300);
        text.extend_from_slice(format!("<{rank} {n} {filler}>\n").as_bytes());
    }
    let mut out = std::io::stdout().lock();
    let mut step = 1;
    let mut rest = &text[..];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(step));
        out.write_all(piece).unwrap();
        out.flush().unwrap();
        rest = after;
        step = step * 7 % 1009 + 1;
    }
}

fn flood(mib: usize) {
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    let block = line.repeat(64);
    let mut out = std::io::stdout().lock();
    for _ in 0..mib * 16 {
        out.write_all(&block).unwrap();
    }
}

/// Sleeps as a rank that has waited `seconds` for a message which never arrives.
fn sleep_in(job: &Job, call: &str, seconds: u64) {
    job.note_waiting(
        0,
        WaitNoteRef {
            call,
            peer: 1,
            tag: 7,
            comm: "halo",
            bytes: 8,
            since_ns: now_ns().saturating_sub(seconds * 1_000_000_000),
            awaited: AwaitedRanks::of(&[1]),
            multiple: false,
            thread: 0,
        },
    );
    let word = &job.own_page().state;
    word.store(STATE_SLEEPING, Ordering::Relaxed);
    job.own_page().set_asleep(1);
    println!("waiting");
    loop {
        word.store(STATE_SLEEPING, Ordering::Relaxed);
        futex_wait(word, STATE_SLEEPING, None);
    }
}

fn wait_for_death(job: &Job, rank: usize) {
    let word = &job.own_page().state;
    job.note_waiting(
        0,
        WaitNoteRef {
            call: "MPI_Recv",
            peer: rank as i32,
            tag: 0,
            comm: "",
            bytes: 0,
            since_ns: now_ns(),
            awaited: AwaitedRanks::of(&[rank as u32]),
            multiple: false,
            thread: 0,
        },
    );
    loop {
        // ORDERING: SeqCst, before the read of the peer's state; partner is the launcher, which marks the peer dead and
        // then wakes sleepers.
        word.store(STATE_SLEEPING, Ordering::SeqCst);
        if job.is_dead(rank) {
            break;
        }
        futex_wait(word, STATE_SLEEPING, None);
    }
    word.store(STATE_AWAKE, Ordering::Relaxed);
    job.clear_waiting(0);
    println!("rank {rank} is dead");
}

/// Starts a process outside the group and the session of its rank.
#[allow(clippy::zombie_processes)]
fn leave_orphan(seconds: &str) {
    let mut command = Command::new("sleep");
    command.arg(seconds);
    // SAFETY: setsid is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    println!("orphan {}", child.id());
    yield_now();
}

fn print_limit() {
    // SAFETY: all zeros is a valid rlimit, and getrlimit fills it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit
    };
    println!("limit {}", limit.rlim_cur);
}
