//! `fastpath ps`: this user's jobs on this host or on several, what each rank does, and which rank waits for which.
//!
//! It reads the job's segment and `/proc` without affecting a process. Only `--why` may stop a process: that of the
//! rank for which the others wait. It is stopped while its registers and the top of its stack are read.

mod fortran;
mod hosts;
mod memory;
mod metrics;
mod python;
mod queues;
mod stack;

use fastpath_base::clock::now_ns;
use fastpath_base::sync::Ordering;
use fastpath_base::tell::{count, escape};
use fastpath_base::topology::host_name;
use fastpath_job::engine::abort_job;
use fastpath_job::inspect::cause::{RankWaits, explain};
use fastpath_job::inspect::describe::{describe_rank, find_verdict};
use fastpath_job::inspect::facts::{Activity, Facts, look_at_ranks};
use fastpath_job::inspect::groups::{SINGLE_MAX, group_ranks, limit_groups};
use fastpath_job::inspect::jobs::{RunningJob, find_jobs};
use fastpath_job::inspect::{Member, ProcessEnd};
use fastpath_report::document::{self, Document};
use fastpath_report::output::print;
use fastpath_segment::{RankPhase, WaitNote};

use crate::info::machine::page_bytes;
use crate::on_hosts::HostOptions;
use anyhow::{Error, Result, bail};
use clap::Args;
use hosts::Hosts;
use queues::{Traffics, look_at_traffic};
use serde::{Deserialize, Serialize};
use std::fs;

/// Options of `fastpath ps`.
#[derive(Args, Debug)]
pub struct PsOptions {
    /// Job number, as listed by `fastpath ps`: the process number of its mpiexec [default: all jobs]
    #[arg(value_parser = parse_job)]
    pub job: Option<i32>,
    /// Find hangs: print the ranks of a deadlock, or the rank that the others wait for and its place in the program
    #[arg(long)]
    pub why: bool,
    /// List every rank, also where ranks do the same
    #[arg(long)]
    pub ranks: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Internal: print where in its program a process is (started by mpiexec)
    #[arg(long, value_name = "PROCESS", hide = true)]
    pub place: Option<i32>,
    /// Print metrics for monitoring: prometheus (the default) or openmetrics
    #[arg(
        long,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "prometheus",
        value_parser = ["prometheus", "openmetrics"],
        conflicts_with_all = ["why", "json", "hosts"]
    )]
    pub metrics: Option<String>,
    /// Several hosts
    #[command(flatten)]
    pub hosts: HostOptions,
}

fn parse_job(text: &str) -> Result<i32, String> {
    text.parse()
        .map_err(|_| "expected the number of a job; `fastpath ps` lists all jobs".to_owned())
}

#[derive(Debug, Serialize, Deserialize)]
struct Listing {
    host: String,
    jobs: Vec<JobEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct JobEntry {
    job: i32,
    /// Identifier, equal on all hosts of a job.
    id: String,
    command: String,
    /// Time since the start of the launcher; None without a launcher.
    seconds: Option<f64>,
    shared_bytes: u64,
    ranks: Vec<RankEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RankEntry {
    rank: usize,
    process: i32,
    phase: String,
    activity: String,
    resident_bytes: u64,
    waits: Vec<WaitEntry>,
    /// Whether the rank only waits, as far as visible, and has waited for a second.
    #[serde(default)]
    is_idle: bool,
    /// Whether the rank sends no more messages: its process has ended, or it has finalized MPI.
    has_left: bool,
    doing: String,
    #[serde(default)]
    traffic: Traffics,
}

impl RankEntry {
    fn waits(&self) -> RankWaits {
        let named = self.waits.iter().flat_map(|wait| wait.awaited.clone());
        RankWaits {
            named: (!self.waits.is_empty()).then(|| named.collect()),
            is_idle: self.is_idle,
            // The hosts do not report how long a rank that may be idle has waited.
            is_new: false,
            has_left: self.has_left,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct WaitEntry {
    thread: String,
    call: String,
    peer: Option<i32>,
    tag: Option<i32>,
    communicator: Option<String>,
    bytes: u64,
    seconds: f64,
    /// Ranks of the job that could end the wait; empty if any rank may.
    awaited: Vec<u32>,
}

/// Runs `fastpath ps`.
///
/// # Errors
/// There is no such job, the output cannot be written, or the processes on other hosts fail.
pub fn run(options: &PsOptions) -> Result<()> {
    if let Some(pid) = options.place {
        return print(&(find_place(pid) + "\n"));
    }
    if options.hosts.probe {
        let listing = list(options, true);
        let probed = hosts::probe(&listing, options.why).inspect_err(|_| _ = abort_job(1));
        return probed.map_err(Error::msg);
    }
    if !options.hosts.hosts.is_empty() {
        let mut all: Hosts = options.hosts.start(&words(options)).map_err(Error::msg)?;
        if let Some(number) = options.job
            && !all.keep(number)
        {
            bail!(
                "this user has no job {number} on the hosts of --host; omit {number} to list all \
                 jobs"
            );
        }
        return Ok(document::write(options.json, &all, || all.describe(options.ranks))?);
    }
    let listing = list(options, false);
    if let (Some(number), []) = (options.job, &listing.jobs[..]) {
        bail!("this user has no job {number} on {}; `fastpath ps` lists all jobs", listing.host);
    }
    if let Some(format) = &options.metrics {
        return Ok(metrics::write(&listing, format)?);
    }
    Ok(document::write(options.json, &listing, || {
        let mut said = Document::default();
        describe_into(&mut said, &listing, options.ranks);
        said
    })?)
}

fn words(options: &PsOptions) -> Vec<&'static str> {
    let why = options.why.then_some("--why");
    ["ps"].into_iter().chain(why).collect()
}

/// Lists the jobs of this host. With `apart`, lists only their ranks here and no verdict, which needs all hosts.
fn list(options: &PsOptions, apart: bool) -> Listing {
    let mut jobs = find_jobs();
    jobs.retain(|job| options.job.is_none_or(|number| job.number == number));
    let why = options.why && !apart;
    Listing { host: host_name(), jobs: jobs.iter().map(|job| list_job(job, why, apart)).collect() }
}

fn list_job(job: &RunningJob, why: bool, apart: bool) -> JobEntry {
    let facts = look_at_ranks(&job.members, &job.segment);
    let now_ns = now_ns();
    let traffic = look_at_traffic(job, &facts);
    let rank = |((rank, (member, facts)), traffic): Row<'_>| RankEntry {
        rank,
        process: facts.pid,
        phase: name_phase(facts.phase).to_owned(),
        activity: name_activity(facts.activity).to_owned(),
        resident_bytes: resident_bytes(facts.pid),
        waits: list_waits(facts, now_ns),
        is_idle: facts.only_waits() && facts.has_waited_long(now_ns),
        has_left: facts.has_left,
        doing: describe_rank(member, facts, now_ns),
        traffic,
    };
    let members = job.members.iter().zip(&facts).enumerate().zip(traffic);
    let members = members.filter(|((_, (m, _)), _)| !apart || m.end != Some(ProcessEnd::Elsewhere));
    let mut ranks: Vec<RankEntry> = members.map(rank).collect();
    let why = why.then(|| {
        let verdict = find_verdict(&job.members, &job.segment, &facts, now_ns);
        let text = explain(&job.members, &facts, verdict.as_ref(), now_ns, find_place);
        text + &verdict.map_or(String::new(), |found| describe_python(found.ranks(), &facts))
    });
    ranks.retain(|entry| !job.segment.has_lost_place(entry.rank));
    JobEntry {
        job: job.number,
        id: format!("{:016x}", job.segment.header().job_id.load(Ordering::Relaxed)),
        command: command_line(job.number),
        seconds: run_time(job.number),
        shared_bytes: job.segment.used_bytes().unwrap_or(0),
        why,
        ranks,
    }
}

/// A rank's number, process, facts and traffic.
type Row<'a> = ((usize, (&'a Member, &'a Facts)), Traffics);

fn list_waits(facts: &Facts, now_ns: u64) -> Vec<WaitEntry> {
    let wait = |(note, name): (&WaitNote, &String)| WaitEntry {
        thread: name.clone(),
        call: note.call.clone(),
        peer: (note.peer >= 0).then_some(note.peer),
        tag: (note.tag >= 0).then_some(note.tag),
        communicator: (!note.comm.is_empty()).then(|| note.comm.clone()),
        bytes: note.bytes,
        seconds: now_ns.saturating_sub(note.since_ns) as f64 / 1e9,
        awaited: note.awaited.named().to_vec(),
    };
    facts.notes.iter().zip(&facts.names).map(wait).collect()
}

/// Describes where waiting ranks that run Python are in their programs, one rank per line. They sleep, and are not
/// stopped.
fn describe_python(ranks: &[usize], facts: &[Facts]) -> String {
    const DESCRIBED_MOST: usize = 8;
    let describe = |&rank: &usize| {
        let pid = facts[rank].pid;
        let frames = python::find_interpreter(pid)?.read_frames(pid).ok()?;
        Some(format!("\nrank {rank} is in {}", python::describe_frames(&frames)))
    };
    ranks.iter().take(DESCRIBED_MOST).filter_map(describe).collect()
}

/// Describes where a process that does not wait is in its program.
fn find_place(pid: i32) -> String {
    let place = match stack::find_place(pid) {
        Ok(place) => format!("is in {place}"),
        Err(why) => format!("does not wait in MPI; its stack cannot be read: {why}"),
    };
    match is_stopped(pid) {
        true => {
            format!("is stopped by a signal (`kill -CONT {pid}` resumes it) and {place}")
        }
        false => place,
    }
}

/// Whether a signal has stopped a process (proc_pid_stat(5), field 3).
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Describes the jobs of a host. `every` lists each rank, also where ranks do the same.
fn describe_into(said: &mut Document, listing: &Listing, every: bool) {
    if listing.jobs.is_empty() {
        said.text(format!("this user has no job on {}", listing.host));
    }
    for job in &listing.jobs {
        let ranks = count(job.ranks.len() as u64, "rank");
        let since = job.seconds.map_or(String::new(), |s| format!(", for {s:.0} s"));
        said.heading(format!(
            "job {} on {}: {ranks}{since}, {} shared: {}",
            job.job,
            listing.host,
            size(job.shared_bytes),
            job.command
        ));
        job.why.iter().for_each(|why| said.text(why.clone()));
        match every || job.ranks.len() <= SINGLE_MAX {
            true => job.ranks.iter().for_each(|rank| describe_rank_into(said, rank)),
            false => describe_groups_into(said, &job.ranks),
        }
    }
}

fn describe_rank_into(said: &mut Document, rank: &RankEntry) {
    said.text(format!(
        "rank {} (process {}, {}) {}",
        rank.rank,
        rank.process,
        size(rank.resident_bytes),
        rank.doing
    ));
    rank.traffic.describe("").into_iter().for_each(|line| said.text(line));
}

/// Describes ranks that do the same in one line, and their traffic in total.
fn describe_groups_into(said: &mut Document, ranks: &[RankEntry]) {
    let described: Vec<_> = ranks.iter().map(|rank| (rank.rank, &rank.doing[..])).collect();
    let end = ranks.iter().map(|rank| rank.rank + 1).max().unwrap_or(0);
    let (groups, others) = limit_groups(group_ranks(end, &described));
    for group in groups {
        let is_member = |rank: &&RankEntry| group.ranks.binary_search(&rank.rank).is_ok();
        let members = || ranks.iter().filter(is_member);
        match group.ranks.len() {
            1 => members().for_each(|rank| describe_rank_into(said, rank)),
            _ => said.text(format!("{} {}", group.name(), group.text)),
        }
    }
    others.iter().for_each(|line| said.text(line.clone()));
    let mut total = Traffics::default();
    ranks.iter().for_each(|rank| total.add(&rank.traffic));
    let resident = size(ranks.iter().map(|rank| rank.resident_bytes).sum());
    said.text(format!("all ranks: {resident} of memory"));
    total.describe(" in total").into_iter().for_each(|line| said.text(line));
    said.text("--ranks lists every rank with its process, messages and queues");
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
    }
}

fn name_phase(phase: RankPhase) -> &'static str {
    match phase {
        RankPhase::Launched => "before MPI_Init",
        RankPhase::Attached => "in MPI_Init",
        RankPhase::Initialized => "initialized",
        RankPhase::Silent | RankPhase::Settled => "in MPI_Finalize",
        RankPhase::Finalized => "finalized",
    }
}

fn name_activity(activity: Activity) -> &'static str {
    match activity {
        Activity::Unknown => "unknown",
        Activity::Stopped => "stopped",
        Activity::Traced => "stopped by a debugger",
        Activity::Running => "running",
        Activity::Asleep { .. } => "asleep",
    }
}

fn command_line(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = text.split(|&b| b == 0).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    escape(&words.join(" ")).into_owned()
}

fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.unwrap_or(0_u64) * page_bytes() as u64
}

/// Seconds since the start of a process (proc_pid_stat(5), field 22).
fn run_time(pid: i32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let start: f64 = rest.split(' ').nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some((uptime - start / stack::ticks_per_second()).max(0.0))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    #[test]
    fn process__tells_its_command_its_memory_and_its_age() {
        let own = std::process::id() as i32;
        assert!(!command_line(own).is_empty());
        assert!(resident_bytes(own) > 0);
        assert!(run_time(own).is_some());
        assert_eq!(resident_bytes(0), 0);
        assert_eq!(run_time(0), None);
    }
}
