//! Report of a fatal error.

use crate::common::consts::*;
use crate::common::error::{Error, classes};
use crate::objects::comm::{self, Comm};
use crate::process::{ForkedChild, Process};
use fastpath_base::config::{Key, VARIABLES};
use fastpath_base::tell::{count, escape};
use fastpath_job::detect::LaunchPlace;
use fastpath_job::find_place;
use std::fmt::Write;

/// Describes a fatal error: rank, host, call, class, cause, message, communicator and remedy. Ends in a newline.
pub fn describe(p: &Process, call: &str, error: &Error, comm: Option<&Comm>) -> String {
    if error.is_told_elsewhere() {
        let advice = escape(error.advice().unwrap_or_default());
        let whereabouts = whereabouts(p);
        return format!(
            "fastpath: {call} failed on {whereabouts} for the same reason as on rank 0; to do: \
             {advice}\n"
        );
    }
    let class = p.codes.class(error.code());
    let known = classes::find(class);
    let mut text = format!("fastpath: fatal error in {call} on {}\n", whereabouts(p));
    let mut line = |label: &str, value: &str| {
        _ = writeln!(text, "fastpath:   {label:<14}{}", escape(value));
    };
    match known {
        Some(known) if class == error.code() => {
            line("error:", &format!("{}, {}", known.name, known.meaning))
        }
        Some(known) => line(
            "error:",
            &format!("code {} of class {}, {}", error.code(), known.name, known.meaning),
        ),
        None => line("error:", &format!("code {}, added by the program", error.code())),
    }
    line("cause:", error.message());
    if let Some((peer, tag, bytes)) = error.about() {
        let (peer, tag) = (peer_name(peer), tag_name(tag));
        line("message:", &format!("peer {peer}{tag}, {bytes} bytes"));
    }
    if let Some(comm) = comm {
        line("communicator:", &comm_name(comm));
    }
    // The remedy of an error class applies only to the program's own messages, not to messages of collective calls.
    let collective = matches!(error.about(), Some((_, ..=comm::FIRST_TAG, _)));
    let of_class = match known {
        Some(known) if !collective => known.advice,
        _ => "",
    };
    let advice = error.advice().unwrap_or(of_class);
    if !advice.is_empty() {
        line("to do:", advice);
    }
    text
}

/// Describes `MPI_Abort` for a job without a launcher.
pub fn describe_abort(p: &Process, comm: Option<&Comm>, code: i32) -> String {
    let comm = comm.map_or("an invalid communicator".into(), comm_name);
    format!(
        "fastpath: MPI_Abort with code {code} on {}\nfastpath:   communicator: {comm}\n",
        whereabouts(p)
    )
}

/// Returns the part of `MPI_Abort`'s report that the launcher does not know.
pub fn summarize_abort(p: &Process, comm: Option<&Comm>) -> String {
    let comm = comm.map_or("an invalid communicator".into(), |comm| match comm.handle.get() {
        MPI_COMM_WORLD => escape(&comm.title()).into_owned(),
        _ => format!("{} ({})", escape(&comm.title()), count(comm.size(), "rank")),
    });
    match p.comms.get(MPI_COMM_WORLD) {
        Some(world) => format!("MPI_Abort on {}, communicator {comm}", place(p, &world)),
        None => format!("MPI_Abort, communicator {comm}"),
    }
}

/// Describes a process by its rank in its world; for a spawned one also by its rank in the job.
fn place(p: &Process, world: &Comm) -> String {
    let place = format!("rank {} of {}", world.rank, world.size());
    match p.engine().map(|engine| engine.job) {
        Some(job) if job.parent().is_some() => {
            format!("{place} spawned processes, rank {} of the job", job.rank())
        }
        _ => place,
    }
}

fn whereabouts(p: &Process) -> String {
    let who = match (ForkedChild::find(), p.comms.get(MPI_COMM_WORLD)) {
        (Some(child), _) => format!("a process forked by rank {}", child.rank),
        (None, Some(world)) => place(p, &world),
        (None, None) => launched_as(),
    };
    format!("{who}, host {}, process {}", host_name(), std::process::id())
}

/// Describes the process before initialisation, by the launcher's environment.
fn launched_as() -> String {
    match find_place() {
        LaunchPlace::Own => {}
        LaunchPlace::Several(claim) => return claim.to_string(),
        LaunchPlace::Alone(_) => return "a process that mpiexec has not started".into(),
    }
    let told = |key: Key| std::env::var(VARIABLES[key as usize].name).ok();
    match (told(Key::Rank), told(Key::Size)) {
        (Some(rank), Some(size)) => format!("rank {rank} of {size}"),
        _ => "a rank that mpiexec has started".into(),
    }
}

fn comm_name(comm: &Comm) -> String {
    let title = comm.title();
    let name = escape(&title);
    match &comm.remote_group {
        Some(remote) => format!(
            "{name}, groups of {} and {}, this process is rank {}",
            comm.size(),
            count(remote.size(), "rank"),
            comm.rank
        ),
        None => {
            format!("{name}, {}, this process is rank {}", count(comm.size(), "rank"), comm.rank)
        }
    }
}

fn peer_name(peer: i32) -> String {
    match peer {
        MPI_ANY_SOURCE => "MPI_ANY_SOURCE".into(),
        MPI_PROC_NULL => "MPI_PROC_NULL".into(),
        MPI_ROOT => "MPI_ROOT".into(),
        _ => format!("rank {peer}"),
    }
}

/// Describes a tag. Tags of collective calls are internal, and are omitted.
fn tag_name(tag: i32) -> String {
    match tag {
        MPI_ANY_TAG => ", tag MPI_ANY_TAG".into(),
        ..=comm::FIRST_TAG => String::new(),
        _ => format!(", tag {tag}"),
    }
}

/// Returns the host's name from the kernel, without a look-up.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_string(),
        name => name.to_string(),
    }
}
