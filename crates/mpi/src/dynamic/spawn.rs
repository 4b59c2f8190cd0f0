#![allow(unsafe_code)]
//! `MPI_Comm_spawn`. The root sends the request to the launcher, and all parents make an intercommunicator. The root
//! sends the parents' ranks to the first child, which waits for them in `MPI_Init`. No parent waits for a child.

mod foreign;

use super::soft::read_soft;
use super::{ask, wait};
use crate::coll;
use crate::coll::words::{self, Members};
use crate::comm_creation::inter::{self, LeaderAgreement};
use crate::comm_creation::meeting::{Meeting, Purpose};
use crate::comm_creation::{departed, publish};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::ContextBlock;
use crate::objects::group::Group;
use crate::objects::info::find_info;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::clock;
use fastpath_job::control::{Answer, Cause, Program, Request};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

/// Number of words broadcast before the error codes: first rank and number of the children, and a block of contexts.
const HEAD: usize = 3;
/// Number of words before the ranks in the message to the first child: mark, number of parents, and a block of
/// contexts.
const LETTER: usize = 3;

/// A program requested by a spawn, known at the root.
#[derive(Debug)]
pub struct SpawnRequest {
    /// Program, then its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Requested number of processes.
    pub most: i32,
    /// Handle of the info object.
    pub info: usize,
}

/// Result of a spawn: communicator and error codes.
#[derive(Debug)]
pub struct SpawnResult {
    /// The intercommunicator.
    pub comm: Result<usize>,
    /// An error code for each requested process; empty if their number is unknown.
    pub codes: Vec<i32>,
}

/// Maximum wait for disconnected processes to exit, in nanoseconds.
const EXIT_WAIT_NS: u64 = 2_000_000_000;
/// Pause between repeated requests of [`ask_for_room`], in nanoseconds.
const RETRY_PAUSE_NS: u64 = 2_000_000;

struct SpawnOutcome {
    first: u32,
    ranks: u32,
}

/// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`. `asked` is called only at the root.
pub fn spawn(
    p: &Process, comm: &Comm, root: i32, asked: impl FnOnce() -> Result<Vec<SpawnRequest>>,
) -> SpawnResult {
    let mut codes = Vec::new();
    let comm = spawn_all(p, comm, root, asked, &mut codes);
    SpawnResult { comm, codes }
}

fn spawn_all(
    p: &Process, comm: &Comm, root: i32, asked: impl FnOnce() -> Result<Vec<SpawnRequest>>,
    codes: &mut Vec<i32>,
) -> Result<usize> {
    comm.require_intra()?;
    let root = coll::check_root(comm, root)?;
    let job = p.running()?.job;
    let mut ranks = comm.group.world_ranks().iter();
    if ranks.any(|&rank| job.is_foreign(rank as usize)) {
        let text = "the communicator has processes of several jobs";
        let advice = "pass a communicator whose processes are of one job";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(advice)));
    }
    coll::compare_calls(p, comm)?;
    departed::release(p);
    if job.launcher().is_none() {
        return foreign::spawn(p, comm, root, asked, codes);
    }
    if comm.rank != root {
        return spawn_here(p, comm, root, None::<fn() -> _>, codes);
    }
    // Count the link before the children run, as the launcher counts their side. `spawn_here` counts the link again, so
    // remove one count.
    job.note_link(true);
    let made = spawn_here(p, comm, root, Some(asked), codes);
    job.note_link(false);
    made
}

/// Starts processes by the launcher of this project. Only the root passes `asked`.
fn spawn_here(
    p: &Process, comm: &Comm, root: u32, asked: Option<impl FnOnce() -> Result<Vec<SpawnRequest>>>,
    codes: &mut Vec<i32>,
) -> Result<usize> {
    let members = Channel::next(p, comm);
    let started = asked.map(|asked| start(p, comm, asked, codes));
    let (remote, block) = pass_on(comm, &members, root, started, codes, p)?;
    let group = Rc::new(Group::new(remote, comm.my_world_rank()));
    let made = inter::assemble(p, comm.group.clone(), group.clone(), block)?;
    made.errhandler.set(comm.errhandler.get());
    let handle = publish(p, made)?;
    if comm.rank == root {
        write_letter(p, comm, group.world_ranks()[0], block)?;
    }
    Ok(handle)
}

/// Returns the index of the program of each requested process; empty if a requested number of processes is invalid.
/// Fills `codes` with `MPI_ERR_SPAWN` for each of these processes.
fn list_codes(asked: &[SpawnRequest], codes: &mut Vec<i32>) -> Vec<usize> {
    let is_possible = |asked: &SpawnRequest| (0..=MOST as i32).contains(&asked.most);
    let of_program: Vec<usize> = match asked.iter().all(is_possible) {
        true => (asked.iter().enumerate())
            .flat_map(|(number, asked)| vec![number; asked.most as usize])
            .collect(),
        false => Vec::new(),
    };
    *codes = vec![MPI_ERR_SPAWN; of_program.len()];
    of_program
}

fn read_programs(p: &Process, asked: &[SpawnRequest]) -> Result<Vec<Program>> {
    asked.iter().map(|asked| read_asked(p, asked)).collect()
}

/// Returns the error codes after `counts` processes of each program have started.
fn codes_of(asked: &[SpawnRequest], counts: &[u32]) -> Vec<i32> {
    let each = asked.iter().zip(counts).flat_map(|(asked, &count)| {
        let code = move |own| match own < count as i32 {
            true => MPI_SUCCESS,
            false => MPI_ERR_SPAWN,
        };
        (0..asked.most).map(code)
    });
    each.collect()
}

fn start(
    p: &Process, comm: &Comm, asked: impl FnOnce() -> Result<Vec<SpawnRequest>>,
    codes: &mut Vec<i32>,
) -> Result<SpawnOutcome> {
    let asked = asked()?;
    let of_program = list_codes(&asked, codes);
    let programs = read_programs(p, &asked)?;
    let request = Request::Spawn { root: comm.my_world_rank(), programs };
    match ask_for_room(p, comm, &request)? {
        Answer::Spawned { first, counts } if counts.len() == asked.len() => {
            *codes = codes_of(&asked, &counts);
            Ok(SpawnOutcome { first, ranks: counts.iter().sum() })
        }
        Answer::Refused { program, text, .. } => {
            let program = program as usize;
            let Some(blamed) = asked.get(program) else {
                return Err(Error::new(MPI_ERR_SPAWN, text));
            };
            for (code, &of) in codes.iter_mut().zip(&of_program) {
                // The other programs were not started because this one failed.
                *code = if of == program { MPI_ERR_SPAWN } else { MPI_ERR_OTHER };
            }
            let name = String::from_utf8_lossy(&blamed.argv[0]).into_owned();
            let text = match asked.len() {
                1 => format!("{name:?}: {text}"),
                _ => format!("program {program}, {name:?}: {text}"),
            };
            Err(Error::new(MPI_ERR_SPAWN, text))
        }
        _ => Err(Error::new(MPI_ERR_INTERN, "unexpected answer from mpiexec")),
    }
}

/// Requests processes from the launcher. If no place is free, but disconnected processes are about to exit, repeats the
/// request for at most [`EXIT_WAIT_NS`].
fn ask_for_room(p: &Process, comm: &Comm, request: &Request) -> Result<Answer> {
    let begun = clock::now_ns();
    loop {
        let asked = clock::now_ns();
        let answer = ask(p, MPI_ERR_SPAWN, "start other processes", request)?;
        let is_full = matches!(answer, Answer::Refused { cause: Cause::PlacesBusy, .. });
        if !is_full || asked - begun >= EXIT_WAIT_NS {
            return Ok(answer);
        }
        let until = clock::now_ns() + RETRY_PAUSE_NS;
        wait(p, comm.handle.get(), |_| clock::now_ns() >= until)?;
        departed::release(p);
    }
}

fn read_asked(p: &Process, asked: &SpawnRequest) -> Result<Program> {
    let most = match u32::try_from(asked.most) {
        Ok(most) if (1..=MOST).contains(&most) => most,
        _ => {
            let text = format!(
                "maxprocs is {}: pass a number from 1 to {MOST}, the largest number of ranks in a \
                 job",
                asked.most
            );
            return Err(Error::new(MPI_ERR_ARG, text));
        }
    };
    if asked.argv.first().is_none_or(|name| name.is_empty()) {
        return Err(Error::new(MPI_ERR_ARG, "the command is empty: pass the name of a program"));
    }
    let hints = Hints::read(p, asked.info)?;
    let counts = match hints.get("soft") {
        None => vec![most],
        Some(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            let counts = read_soft(&text, most).ok_or_else(|| {
                let text = format!(
                    "the info key soft is {text:?}: list numbers, or ranges such as 1:9 or 1:9:2, \
                     separated by commas"
                );
                Error::new(MPI_ERR_INFO_VALUE, text)
            })?;
            if counts.is_empty() {
                let text =
                    format!("the info key soft is {text:?}, which has no number from 1 to {most}");
                let advice = "add a number from 1 to maxprocs to the info key soft";
                return Err(Error::new(MPI_ERR_SPAWN, text).with_advice(Some(advice)));
            }
            counts
        }
    };
    Ok(Program {
        argv: asked.argv.clone(),
        counts,
        wdir: find_folder(hints.get("wdir")),
        path: hints.get("path"),
        host: hints.get("host"),
    })
}

const MOST: u32 = fastpath_segment::MAX_JOB_RANKS as u32;

/// Returns the working folder of a program: this process's folder, or the hinted one relative to it. Returns the hint
/// itself if this process's folder is unknown.
fn find_folder(hint: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let own = std::env::current_dir().ok();
    let folder = match (own, hint) {
        (Some(own), Some(hint)) => own.join(Path::new(OsStr::from_bytes(&hint))),
        (Some(own), None) => own,
        (None, hint) => return hint,
    };
    Some(folder.into_os_string().into_vec())
}

/// Hints of an info object, and of the file that it may name.
struct Hints {
    info: Option<Rc<crate::objects::info::Info>>,
    file: Vec<(String, Vec<u8>)>,
}

impl Hints {
    fn read(p: &Process, info: usize) -> Result<Hints> {
        let info = match info {
            MPI_INFO_NULL => None,
            handle => Some(find_info(&p.infos, handle)?),
        };
        let mut hints = Hints { info, file: Vec::new() };
        if let Some(name) = hints.get("file") {
            let path = Path::new(OsStr::from_bytes(&name)).to_owned();
            let text = fs::read(&path).map_err(|e| {
                let text = format!(
                    "the file {}, named by the info key file, cannot be read: {e}",
                    path.display()
                );
                Error::new(MPI_ERR_SPAWN, text).with_advice(Some("name a file that can be read"))
            })?;
            hints.file = read_pairs(&text);
        }
        Ok(hints)
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let info = self.info.as_ref();
        let said = info.and_then(|info| info.get(key.as_bytes()).ok().flatten());
        let of_file = || {
            let found = self.file.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.clone())
        };
        said.map(Vec::from).or_else(of_file)
    }
}

/// Parses lines `key = value`. Ignores empty lines and comments, which begin with `#`.
fn read_pairs(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let pair = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=')?;
        let key = String::from_utf8_lossy(line[..at].trim_ascii()).into_owned();
        Some((key, line[at + 1..].trim_ascii().to_vec()))
    };
    lines.filter(|line| !line.starts_with(b"#")).filter_map(pair).collect()
}

/// Broadcasts the outcome of the root's request. Returns the children's ranks and a block of contexts.
fn pass_on(
    comm: &Comm, members: &impl Members, root: u32, started: Option<Result<SpawnOutcome>>,
    codes: &mut Vec<i32>, p: &Process,
) -> Result<(Vec<u32>, ContextBlock)> {
    let mut words = vec![0; HEAD];
    if let Some(Ok(started)) = &started {
        let leader = comm.group.world_ranks()[root as usize];
        let block = p.contexts.reserve(leader);
        words = vec![started.first.into(), started.ranks.into(), block.to_wire()];
    }
    words.extend(codes.iter().map(|&code| code as u64));
    let failure = started.as_ref().and_then(|started| started.as_ref().err());
    let told = words::broadcast_outcome(members, root, failure, &mut words);
    let Some((&[first, count, block], words)) = words.split_first_chunk::<HEAD>() else {
        told?;
        return Err(Error::new(MPI_ERR_INTERN, "the root sent an incomplete result"));
    };
    *codes = words.iter().map(|&word| word as i32).collect();
    started.transpose()?;
    told?;
    let there = p.running()?.job.present() as u64;
    if count == 0 || first.saturating_add(count) > there {
        return Err(Error::new(MPI_ERR_INTERN, "the root sent invalid ranks of the new processes"));
    }
    let remote: Vec<u32> = (first as u32..(first + count) as u32).collect();
    inter::require_reach(p.running()?.job, &remote)?;
    Ok((remote, ContextBlock::from_wire(block)))
}

fn meet(p: &Process, root: u32, child: u32, me: u32) -> Meeting {
    let pair = Rc::new(Group::new(vec![root, child], me));
    Meeting::new(p, pair, b"", Purpose::Parent)
}

fn write_letter(p: &Process, comm: &Comm, child: u32, block: ContextBlock) -> Result {
    let me = comm.my_world_rank();
    let meeting = meet(p, me, child, me);
    let parents = comm.group.world_ranks();
    let head: [u64; LETTER] = [meeting.mark(), parents.len() as u64, block.to_wire()];
    let ranks: Vec<u64> = parents.iter().map(|&rank| rank.into()).collect();
    let channel = meeting.channel(p);
    let sent = channel.send_words(1, &head);
    let sent = sent.and_then(|()| channel.send_words(1, &ranks));
    // SAFETY: the worker lives while MPI runs.
    let has_left = unsafe { (*p.worker()?).peer_has_left(child) };
    match sent {
        // The child left before `MPI_Init`. Ranks that wait for the child get an error, as they would if the child left
        // a moment later.
        Err(_) if has_left => Ok(()),
        sent => sent,
    }
}

/// Makes the communicator of `MPI_Comm_get_parent`, in `MPI_Init` of a spawned process.
pub(crate) fn meet_parent(p: &Process) -> Result {
    let job = p.running()?.job;
    let Some(root) = job.parent() else {
        return match job.is_spawned_by_other() {
            true => foreign::meet_parent(p),
            false => Ok(()),
        };
    };
    let world = p.comm(MPI_COMM_WORLD)?;
    let pact = (world.rank == 0).then(|| read_letter(p, root as u32, world.my_world_rank()));
    let members = Channel::next(p, &world);
    let (remote, block) = inter::pass_on(p, &members, &world.group, 0, pact)?;
    let made = inter::assemble(p, world.group.clone(), Rc::new(remote), block)?;
    made.set_name("MPI_COMM_PARENT".to_owned());
    p.parent.set(publish(p, made)?);
    // Remove one count of this link: the launcher and `publish` have both counted it.
    job.note_link(false);
    Ok(())
}

fn read_letter(p: &Process, root: u32, me: u32) -> Result<LeaderAgreement> {
    let meeting = meet(p, root, me, me);
    let channel = meeting.channel(p);
    let mut head = [0; LETTER];
    channel.recv_words(0, &mut head)?;
    let [mark, parents, block] = head;
    meeting.check(mark)?;
    if parents == 0 || parents > p.running()?.job.present() as u64 {
        let text = format!("the parent process sent an invalid number of parent ranks: {parents}");
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let mut ranks = vec![0; parents as usize];
    channel.recv_words(0, &mut ranks)?;
    Ok(LeaderAgreement {
        // An invalid rank becomes `u32::MAX`: all members check the ranks after the broadcast.
        remote: (ranks.iter()).map(|&rank| u32::try_from(rank).unwrap_or(u32::MAX)).collect(),
        block: ContextBlock::from_wire(block),
    })
}

/// `MPI_Comm_get_parent`: `MPI_COMM_NULL` if the process was not spawned, or has freed the communicator.
pub fn get_parent(p: &Process) -> usize {
    p.parent.get()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn file__has_keys_and_values_in_lines() {
        let text = b"# where\nwdir = /tmp/a b \n\nsoft=1:4\nnothing\n";
        let pairs = read_pairs(text);
        let pair = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
        assert_eq!(pairs, [pair("wdir", "/tmp/a b"), pair("soft", "1:4")]);
    }

    #[test]
    fn folder__is_this_process_own_or_starts_there() {
        let own = std::env::current_dir().unwrap().into_os_string().into_vec();
        assert_eq!(find_folder(None), Some(own.clone()));
        let below = [&own[..], b"/a"].concat();
        assert_eq!(find_folder(Some(b"a".to_vec())), Some(below));
        assert_eq!(find_folder(Some(b"/a".to_vec())), Some(b"/a".to_vec()));
    }
}
