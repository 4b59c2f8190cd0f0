#![allow(unsafe_code)]
//! `MPI_Comm_spawn`: the root asks the launcher, all parents make an intercommunicator, and the root tells the first of
//! the new processes, which waits for that in `MPI_Init`, who they are. No parent waits for a child.

mod foreign;

use super::soft::read_soft;
use super::{ask, wait};
use crate::coll;
use crate::coll::words::{self, Members};
use crate::comm_creation::inter::{self, Pact};
use crate::comm_creation::meeting::{Meeting, Purpose};
use crate::comm_creation::{departed, publish};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::objects::comm::contexts::Block;
use crate::objects::group::Group;
use crate::objects::info::find_info;
use crate::p2p::channel::Channel;
use crate::process::Process;
use fastpath_base::clock;
use fastpath_bootstrap::control::{Answer, Cause, Program, Request};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

/// Words that the root passes on before the codes: error class, first rank and number of the new processes, a block of
/// contexts, number of codes.
const NEWS: usize = 5;
/// Words of the root's letter to the first child before the ranks: mark, number of parents, a block of contexts.
const LETTER: usize = 3;

/// One program that a spawn asks for, as the root has it.
#[derive(Debug)]
pub struct Asked {
    /// Program and arguments; the program comes first.
    pub argv: Vec<Vec<u8>>,
    /// How many processes.
    pub most: i32,
    /// Handle of the info object.
    pub info: usize,
}

/// What a spawn gives.
#[derive(Debug)]
pub struct SpawnResult {
    /// The intercommunicator.
    pub comm: Result<usize>,
    /// An error code for each process that was asked for; none where that is not known.
    pub codes: Vec<i32>,
}

/// Longest wait for processes that have disconnected to end, in nanoseconds.
const EXIT_WAIT_NS: u64 = 2_000_000_000;
/// Time between two requests of [`ask_for_room`], in nanoseconds.
const RETRY_PAUSE_NS: u64 = 2_000_000;

/// What the root has found out.
struct Started {
    first: u32,
    ranks: u32,
    codes: Vec<i32>,
}

/// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`. `asked` counts only at the root.
pub fn spawn(
    p: &Process, comm: &Comm, root: i32, asked: impl FnOnce() -> Result<Vec<Asked>>,
) -> SpawnResult {
    let mut codes = Vec::new();
    let comm = spawn_all(p, comm, root, asked, &mut codes);
    SpawnResult { comm, codes }
}

fn spawn_all(
    p: &Process, comm: &Comm, root: i32, asked: impl FnOnce() -> Result<Vec<Asked>>,
    codes: &mut Vec<i32>,
) -> Result<usize> {
    comm.require_intra()?;
    let root = coll::check_root(comm, root)?;
    let job = p.running()?.job;
    let mut ranks = comm.group.world_ranks().iter();
    if ranks.any(|&rank| job.is_foreign(rank as usize)) {
        let text = "the communicator has processes of several jobs: spawn from one job's own";
        return Err(Error::new(MPI_ERR_COMM, text));
    }
    coll::compare_calls(p, comm)?;
    departed::release(p);
    if job.launcher().is_none() {
        return foreign::spawn(p, comm, root, asked, codes);
    }
    if comm.rank != root {
        return spawn_here(p, comm, root, None::<fn() -> _>, codes);
    }
    // From before the children run: their own pages count their parents then too.
    job.note_link(true);
    let made = spawn_here(p, comm, root, Some(asked), codes);
    job.note_link(false);
    made
}

/// Has our launcher start processes; `asked` is the root's.
fn spawn_here(
    p: &Process, comm: &Comm, root: u32, asked: Option<impl FnOnce() -> Result<Vec<Asked>>>,
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

/// The number of the program of each requested process, none if that is not known; fills `codes` with that many
/// failures.
fn list_codes(asked: &[Asked], codes: &mut Vec<i32>) -> Vec<usize> {
    let is_possible = |asked: &Asked| (0..=MOST as i32).contains(&asked.most);
    let of_program: Vec<usize> = match asked.iter().all(is_possible) {
        true => (asked.iter().enumerate())
            .flat_map(|(number, asked)| vec![number; asked.most as usize])
            .collect(),
        false => Vec::new(),
    };
    *codes = vec![MPI_ERR_SPAWN; of_program.len()];
    of_program
}

fn read_programs(p: &Process, asked: &[Asked]) -> Result<Vec<Program>> {
    asked.iter().map(|asked| read_asked(p, asked)).collect()
}

/// The error codes if `counts` processes of each program run.
fn codes_of(asked: &[Asked], counts: &[u32]) -> Vec<i32> {
    let each = asked.iter().zip(counts).flat_map(|(asked, &count)| {
        let code = move |own| match own < count as i32 {
            true => MPI_SUCCESS,
            false => MPI_ERR_SPAWN,
        };
        (0..asked.most).map(code)
    });
    each.collect()
}

/// Has the launcher start what was asked for.
fn start(
    p: &Process, comm: &Comm, asked: impl FnOnce() -> Result<Vec<Asked>>, codes: &mut Vec<i32>,
) -> Result<Started> {
    let asked = asked()?;
    let of_program = list_codes(&asked, codes);
    let programs = read_programs(p, &asked)?;
    let request = Request::Spawn { root: comm.my_world_rank(), programs };
    match ask_for_room(p, comm, &request)? {
        Answer::Spawned { first, counts } if counts.len() == asked.len() => {
            *codes = codes_of(&asked, &counts);
            let (ranks, codes) = (counts.iter().sum(), codes.clone());
            Ok(Started { first, ranks, codes })
        }
        Answer::Refused { program, text, .. } => {
            let program = program as usize;
            let Some(blamed) = asked.get(program) else {
                return Err(Error::new(MPI_ERR_SPAWN, text));
            };
            for (code, &of) in codes.iter_mut().zip(&of_program) {
                // The others are not started because of that one.
                *code = if of == program { MPI_ERR_SPAWN } else { MPI_ERR_OTHER };
            }
            let name = String::from_utf8_lossy(&blamed.argv[0]).into_owned();
            let text = match asked.len() {
                1 => format!("{name:?}: {text}"),
                _ => format!("program {program}, {name:?}: {text}"),
            };
            Err(Error::new(MPI_ERR_SPAWN, text))
        }
        _ => Err(Error::new(MPI_ERR_INTERN, "unexpected answer of mpiexec")),
    }
}

/// Asks the launcher to start processes. If no place is free, but processes that have disconnected are about to exit,
/// asks again for at most [`EXIT_WAIT_NS`].
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

fn read_asked(p: &Process, asked: &Asked) -> Result<Program> {
    let most = match u32::try_from(asked.most) {
        Ok(most) if (1..=MOST).contains(&most) => most,
        _ => {
            let text = format!(
                "maxprocs is {}: it must be from 1 to {MOST}, the most ranks of a job",
                asked.most
            );
            return Err(Error::new(MPI_ERR_ARG, text));
        }
    };
    if asked.argv.first().is_none_or(|name| name.is_empty()) {
        return Err(Error::new(MPI_ERR_ARG, "the command is empty"));
    }
    let hints = Hints::read(p, asked.info)?;
    let counts = match hints.get("soft") {
        None => vec![most],
        Some(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            let counts = read_soft(&text, most).ok_or_else(|| {
                let text = format!(
                    "soft is {text:?}: it lists numbers, or ranges as 1:9 or 1:9:2, with commas"
                );
                Error::new(MPI_ERR_INFO_VALUE, text)
            })?;
            if counts.is_empty() {
                let text = format!("soft is {text:?}, which has no number from 1 to {most}");
                return Err(Error::new(MPI_ERR_SPAWN, text));
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

/// Most processes of one program: as many ranks as a job can have.
const MOST: u32 = fastpath_bootstrap::segment::MAX_JOB_RANKS as u32;

/// The folder that a program starts in: that of this process, unless the hint says another one.
fn find_folder(hint: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let own = std::env::current_dir().ok();
    let folder = match (own, hint) {
        (Some(own), Some(hint)) => own.join(Path::new(OsStr::from_bytes(&hint))),
        (Some(own), None) => own,
        (None, hint) => return hint,
    };
    Some(folder.into_os_string().into_vec())
}

/// What an info object says of a program, and the file that it may name.
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
                let text = format!("the file of info key file, {}: {e}", path.display());
                Error::new(MPI_ERR_SPAWN, text)
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

/// Lines `key = value`; empty ones and those that begin with `#` say nothing.
fn read_pairs(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let pair = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=')?;
        let key = String::from_utf8_lossy(line[..at].trim_ascii()).into_owned();
        Some((key, line[at + 1..].trim_ascii().to_vec()))
    };
    lines.filter(|line| !line.starts_with(b"#")).filter_map(pair).collect()
}

/// All members learn what became of the root's request: the ranks of the children, and contexts.
fn pass_on(
    comm: &Comm, members: &impl Members, root: u32, started: Option<Result<Started>>,
    codes: &mut Vec<i32>, p: &Process,
) -> Result<(Vec<u32>, Block)> {
    let leader = comm.group.world_ranks()[root as usize];
    let mut news = [0; NEWS];
    let mut failed = None;
    match started {
        Some(Ok(started)) => {
            let block = p.contexts.reserve(leader);
            let (first, ranks) = (started.first.into(), started.ranks.into());
            news = [0, first, ranks, block.to_wire(), started.codes.len() as u64];
        }
        Some(Err(error)) => {
            news = [error.code() as u64, 0, 0, 0, codes.len() as u64];
            failed = Some(error);
        }
        None => {}
    }
    words::broadcast_from(members, root, &mut news)?;
    let [class, first, count, block, length] = news;
    let mut words: Vec<u64> = codes.iter().map(|&code| code as u64).collect();
    words.resize((length as usize).min(MOST as usize * MOST as usize), 0);
    words::broadcast_from(members, root, &mut words)?;
    *codes = words.iter().map(|&word| word as i32).collect();
    if let Some(error) = failed {
        return Err(error);
    }
    if class != 0 {
        let text = format!("rank {root}, the root, could not start them: see its error");
        return Err(Error::new(class as i32, text));
    }
    let there = p.running()?.job.present() as u64;
    if count == 0 || first.saturating_add(count) > there {
        return Err(Error::new(MPI_ERR_INTERN, "the new processes are no ranks"));
    }
    let remote: Vec<u32> = (first as u32..(first + count) as u32).collect();
    inter::require_reach(p.running()?.job, &remote)?;
    Ok((remote, Block::from_wire(block)))
}

/// The two that a letter goes between.
fn meet(p: &Process, root: u32, child: u32, me: u32) -> Meeting {
    let pair = Rc::new(Group::new(vec![root, child], me));
    Meeting::new(p, pair, b"", Purpose::Parent)
}

/// The root tells the first child its parents.
fn write_letter(p: &Process, comm: &Comm, child: u32, block: Block) -> Result {
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
        // It has not called MPI_Init. Who waits for it is told, as if it had ended a moment later.
        Err(_) if has_left => Ok(()),
        sent => sent,
    }
}

/// In `MPI_Init` of a spawned process: makes the communicator of `MPI_Comm_get_parent`.
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
    *made.name.borrow_mut() = "MPI_COMM_PARENT".to_owned();
    p.parent.set(publish(p, made)?);
    // The launcher's own count of it.
    job.note_link(false);
    Ok(())
}

fn read_letter(p: &Process, root: u32, me: u32) -> Result<Pact> {
    let meeting = meet(p, root, me, me);
    let channel = meeting.channel(p);
    let mut head = [0; LETTER];
    channel.recv_words(0, &mut head)?;
    let [mark, parents, block] = head;
    meeting.check(mark)?;
    if parents == 0 || parents > p.running()?.job.present() as u64 {
        let text = format!("the process that spawned this one says that it is {parents} ranks");
        return Err(Error::new(MPI_ERR_OTHER, text));
    }
    let mut ranks = vec![0; parents as usize];
    channel.recv_words(0, &mut ranks)?;
    Ok(Pact {
        // Whether they are ranks is asked where all members learn them.
        remote: (ranks.iter()).map(|&rank| u32::try_from(rank).unwrap_or(u32::MAX)).collect(),
        block: Block::from_wire(block),
    })
}

/// `MPI_Comm_get_parent`: `MPI_COMM_NULL` for a process that was not spawned, or that has freed its communicator.
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
