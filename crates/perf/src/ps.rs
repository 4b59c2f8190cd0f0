//! `fastpath ps`: this user's jobs on this host, what each rank does, and who waits for whom.
//!
//! What the job's memory and `/proc` say is read without touching a process. Only `--why` may stop one, the rank that
//! the others wait for, for as long as its registers and the top of its stack are read.

mod stack;

use crate::document::{self, Document};
use anyhow::{Result, bail};
use clap::Args;
use fastpath_base::clock::now_ns;
use fastpath_base::topology::host_name;
use fastpath_bootstrap::inspect::Member;
use fastpath_bootstrap::inspect::describe::{describe_rank, describe_verdict, find_verdict};
use fastpath_bootstrap::inspect::facts::{Activity, Facts, look_at_ranks};
use fastpath_bootstrap::inspect::jobs::{RunningJob, find_jobs};
use fastpath_bootstrap::segment::{Phase, WaitNote};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;

/// Options of `fastpath ps`.
#[derive(Args, Debug)]
pub struct PsOptions {
    /// Number of a job, as `fastpath ps` lists it: the process number of its mpiexec [default: all jobs]
    pub job: Option<i32>,
    /// Say which ranks wait for each other for ever, or where the rank is that the others wait for
    #[arg(long)]
    pub why: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// All that is said.
#[derive(Debug, Serialize)]
struct Listing {
    host: String,
    jobs: Vec<JobEntry>,
}

/// One job.
#[derive(Debug, Serialize)]
struct JobEntry {
    job: i32,
    command: String,
    /// Since the launcher was started; none where there is no launcher.
    seconds: Option<f64>,
    /// Memory behind the job's shared file.
    shared_bytes: u64,
    ranks: Vec<RankEntry>,
    /// With `--why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// One rank.
#[derive(Debug, Serialize)]
struct RankEntry {
    rank: usize,
    process: i32,
    phase: &'static str,
    activity: &'static str,
    resident_bytes: u64,
    waits: Vec<WaitEntry>,
    #[serde(skip)]
    doing: String,
}

/// What one thread of a rank waits for.
#[derive(Debug, Serialize)]
struct WaitEntry {
    thread: String,
    call: String,
    peer: Option<i32>,
    tag: Option<i32>,
    communicator: Option<String>,
    bytes: u64,
    seconds: f64,
    /// Ranks of the job that could end the wait; empty where it may be any.
    awaited: Vec<u32>,
}

/// Does what `fastpath ps` was asked for.
///
/// # Errors
/// No such job, or the output cannot be written.
pub fn run(options: &PsOptions) -> Result<()> {
    let mut jobs = find_jobs();
    if let Some(number) = options.job {
        jobs.retain(|job| job.number == number);
        if jobs.is_empty() {
            bail!(
                "no job {number} of this user runs on {}: `fastpath ps` lists those that do",
                host_name()
            );
        }
    }
    let listing = Listing {
        host: host_name(),
        jobs: jobs.iter().map(|job| list_job(job, options.why)).collect(),
    };
    Ok(document::write(options.json, &listing, || {
        describe(&listing)
    })?)
}

fn list_job(job: &RunningJob, why: bool) -> JobEntry {
    let facts = look_at_ranks(&job.members, &job.segment);
    let now_ns = now_ns();
    let rank = |(rank, (member, facts)): (usize, (&Member, &Facts))| RankEntry {
        rank,
        process: facts.pid,
        phase: name_phase(facts.phase),
        activity: name_activity(facts.activity),
        resident_bytes: resident_bytes(facts.pid),
        waits: list_waits(facts, now_ns),
        doing: describe_rank(member, facts, now_ns),
    };
    let members = job.members.iter().zip(&facts).enumerate();
    JobEntry {
        job: job.number,
        command: command_line(job.number),
        seconds: run_time(job.number),
        shared_bytes: job.segment.used_bytes().unwrap_or(0),
        ranks: members.map(rank).collect(),
        why: why.then(|| explain(job, &facts, now_ns)),
    }
}

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

/// Why the job does not go on, as far as that can be said.
fn explain(job: &RunningJob, facts: &[Facts], now_ns: u64) -> String {
    if let Some(verdict) = find_verdict(&job.members, &job.segment, facts, now_ns) {
        return describe_verdict(&verdict, &job.members, facts, now_ns);
    }
    let Some((awaited, waiters)) = find_awaited(facts) else {
        return "no rank waits for one rank that does not wait itself".to_owned();
    };
    let waiters = name_ranks(&waiters);
    let place = match stack::find_place(facts[awaited].pid) {
        Ok(place) => format!("is in {place}"),
        Err(why) => format!("is not in a wait of MPI; where it is cannot be read: {why}"),
    };
    let pid = facts[awaited].pid;
    match facts[awaited].activity {
        Activity::Stopped => format!(
            "{waiters} for rank {awaited} (process {pid}), which a signal has stopped: `kill \
             -CONT {pid}` resumes it; it {place}"
        ),
        _ => format!("{waiters} for rank {awaited} (process {pid}), which {place}"),
    }
}

/// The rank outside of any wait that most ranks wait for, directly or by way of others, and those ranks.
fn find_awaited(facts: &[Facts]) -> Option<(usize, Vec<usize>)> {
    let next = |rank: usize| {
        let mut named = facts[rank].notes.iter().flat_map(|n| n.awaited.named());
        let first = *named.next()? as usize;
        let is_one = named.all(|&other| other as usize == first);
        (is_one && first < facts.len()).then_some(first)
    };
    let mut waiters: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for start in (0..facts.len()).filter(|&rank| !facts[rank].notes.is_empty()) {
        let mut rank = start;
        // A cycle has no end, and one that is proved is a verdict.
        for _ in 0..facts.len() {
            match next(rank) {
                Some(peer) => rank = peer,
                None => break,
            }
        }
        let found = &facts[rank];
        if rank != start && found.notes.is_empty() && !found.has_left {
            waiters.entry(rank).or_default().push(start);
        }
    }
    waiters.into_iter().max_by_key(|(_, waiters)| waiters.len())
}

fn name_ranks(ranks: &[usize]) -> String {
    const NAMED_MOST: usize = 8;
    let named: Vec<String> = ranks
        .iter()
        .take(NAMED_MOST)
        .map(usize::to_string)
        .collect();
    match ranks.len() {
        1 => format!("rank {} waits", named[0]),
        n if n > NAMED_MOST => format!("{n} ranks wait ({}, and others)", named.join(", ")),
        _ => format!("ranks {} wait", named.join(", ")),
    }
}

fn describe(listing: &Listing) -> Document {
    let mut said = Document::default();
    if listing.jobs.is_empty() {
        said.text(format!("no job of this user runs on {}", listing.host));
    }
    for job in &listing.jobs {
        let ranks = match job.ranks.len() {
            1 => "1 rank".to_owned(),
            n => format!("{n} ranks"),
        };
        let since = job
            .seconds
            .map_or(String::new(), |s| format!(", for {s:.0} s"));
        said.heading(format!(
            "job {} on {}: {ranks}{since}, {} shared: {}",
            job.job,
            listing.host,
            size(job.shared_bytes),
            job.command
        ));
        for rank in &job.ranks {
            said.text(format!(
                "rank {} (process {}, {}) {}",
                rank.rank,
                rank.process,
                size(rank.resident_bytes),
                rank.doing
            ));
        }
        job.why.iter().for_each(|why| said.text(why.clone()));
    }
    said
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
    }
}

fn name_phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Launched => "before MPI_Init",
        Phase::Attached => "in MPI_Init",
        Phase::Initialized => "initialized",
        Phase::Silent | Phase::Settled => "in MPI_Finalize",
        Phase::Finalized => "finalized",
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
    let words: Vec<String> = words
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect();
    let shown = |c: char| if c.is_control() { '?' } else { c };
    words.join(" ").chars().map(shown).collect()
}

fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.unwrap_or(0_u64) * stack::page_bytes()
}

/// Seconds since a process was started (proc_pid_stat(5), field 22).
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
    use fastpath_bootstrap::segment::Awaited;

    fn facts(awaited: &[u32]) -> Facts {
        let note = WaitNote {
            call: "MPI_Recv".to_owned(),
            peer: -1,
            tag: 7,
            comm: String::new(),
            bytes: 8,
            since_ns: 0,
            awaited: Awaited::of(awaited),
            multiple: false,
            thread: 0,
            sequence: 2,
        };
        Facts {
            pid: 1,
            phase: Phase::Initialized,
            has_left: false,
            activity: Activity::Running,
            is_settled: false,
            names: vec!["thread \"main\"".to_owned(); usize::from(!awaited.is_empty())],
            notes: match awaited {
                [] => Vec::new(),
                _ => vec![note],
            },
            unnoted: 0,
            locks: None,
        }
    }

    #[test]
    fn awaited__is_the_rank_at_the_end_of_most_chains() {
        let ranks = [
            facts(&[1]),
            facts(&[3]),
            facts(&[4]),
            facts(&[]),
            facts(&[]),
        ];
        assert_eq!(find_awaited(&ranks), Some((3, vec![0, 1])));
        assert_eq!(find_awaited(&[facts(&[1]), facts(&[0])]), None);
        assert_eq!(find_awaited(&[facts(&[]), facts(&[])]), None);
        assert_eq!(find_awaited(&[facts(&[9])]), None, "no such rank");
    }

    #[test]
    fn ranks__are_named_up_to_a_number() {
        assert_eq!(name_ranks(&[3]), "rank 3 waits");
        assert_eq!(name_ranks(&[0, 2]), "ranks 0, 2 wait");
        let many: Vec<usize> = (0..20).collect();
        assert_eq!(
            name_ranks(&many),
            "20 ranks wait (0, 1, 2, 3, 4, 5, 6, 7, and others)"
        );
    }

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
