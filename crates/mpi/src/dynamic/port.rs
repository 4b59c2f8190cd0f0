//! Ports: where processes of one job that share no communicator meet (MPI-5.0 section 11.9).
//!
//! A port is a word in the page of the rank that has opened it: its number, and who has come to it. A root that
//! connects puts itself there when nobody is, and has been let in when the accepting root has taken it away; then both
//! agree as two leaders of an intercommunicator do.

use super::{CALLS, ask, wait};
use crate::channel::Channel;
use crate::coll;
use crate::comm::inter::{self, Bridge, Pact};
use crate::comm::{Comm, publish};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::process::Process;
use crate::session::meeting::{Meeting, Purpose};
use fastpath_base::clock;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::control::{Answer, Knocked, Request};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::PORTS;
use std::fmt;
use std::rc::Rc;

/// The name of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    job: u64,
    rank: u32,
    /// Counted by the rank, from 1.
    number: u32,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { job, rank, number } = self;
        write!(f, "fastpath:{job:016x}:{rank}:{number}")
    }
}

impl Port {
    fn parse(name: &str) -> Option<Port> {
        let fields: Vec<&str> = name.split(':').collect();
        let ["fastpath", job, rank, number] = fields[..] else {
            return None;
        };
        Some(Port {
            job: u64::from_str_radix(job, 16).ok()?,
            rank: rank.parse().ok()?,
            number: number.parse().ok().filter(|&number| number > 0)?,
        })
    }

    /// The port of this job that a name says.
    fn find(job: &Job, name: &str) -> Result<Port> {
        let refuse = |text: String| Err(Error::new(MPI_ERR_PORT, text));
        match Port::parse(name) {
            None => refuse(format!("{name:?} is no name that MPI_Open_port gave")),
            Some(port) if port.job != job.job_id() => refuse(format!(
                "{name:?} is a port of another job: jobs cannot be connected yet, only processes \
                 that one mpiexec has started, those that they have spawned among them"
            )),
            Some(port) if port.rank as usize >= job.present() => {
                refuse(format!("{name:?} is a port of no rank of this job"))
            }
            Some(port) => Ok(port),
        }
    }
}

/// A port's word: its number, and who has come.
fn word(number: u32, caller: u32) -> u64 {
    u64::from(number) << 32 | u64::from(caller)
}

fn number_in(word: u64) -> u32 {
    (word >> 32) as u32
}

fn caller_in(word: u64) -> u32 {
    word as u32
}

/// Bits of a caller's rank plus 1.
const RANK_BITS: u32 = 21;

/// A caller's half of a port's word: its rank, and which of its calls, modulo 2^11.
fn caller(rank: u32, call: u32) -> u32 {
    (call << RANK_BITS) | (rank + 1)
}

/// The rank in it.
fn rank_in(caller: u32) -> u32 {
    (caller & ((1 << RANK_BITS) - 1)).wrapping_sub(1)
}

const _: () = assert!(fastpath_bootstrap::segment::MAX_JOB_RANKS < 1 << RANK_BITS);

/// `MPI_Open_port`: the port's name.
///
/// # Errors
/// `MPI_ERR_OTHER` where this process has as many open as it can.
pub fn open(p: &Process) -> Result<String> {
    let job = p.running()?.job;
    let ports = &job.own_page().ports;
    let Some(free) = ports.iter().find(|port| port.load(Ordering::Relaxed) == 0) else {
        let text = format!("{PORTS} ports are open, more a process cannot have: close some");
        return Err(Error::new(MPI_ERR_OTHER, text));
    };
    let number = CALLS.of(p).next();
    // Relaxed: whoever learns the name by a message sees the word.
    free.store(word(number, 0), Ordering::Relaxed);
    let port = Port {
        job: job.job_id(),
        rank: job.rank() as u32,
        number,
    };
    Ok(port.to_string())
}

/// `MPI_Close_port`.
///
/// # Errors
/// `MPI_ERR_PORT` for a name of no port that this process has open.
pub fn close(p: &Process, name: &str) -> Result {
    let job = p.running()?.job;
    let port = Port::find(job, name)?;
    let ports = &job.own_page().ports;
    let is_it = |word: u64| port.rank as usize == job.rank() && number_in(word) == port.number;
    let found = ports.iter().find(|at| is_it(at.load(Ordering::Relaxed)));
    let Some(found) = found else {
        let text = format!("{name:?} is no port that this process has open");
        return Err(Error::new(MPI_ERR_PORT, text));
    };
    found.store(0, Ordering::Relaxed);
    Ok(())
}

/// `MPI_Comm_accept`.
///
/// # Errors
/// `MPI_ERR_PORT` for a port that the root has not opened, `MPI_ERR_ROOT`; `MPI_ERR_COMM` where both sides have a
/// process in common.
pub fn accept(
    p: &Process,
    name: impl FnOnce() -> Result<String>,
    root: i32,
    comm: &Comm,
) -> Result<usize> {
    create(p, root, comm, || {
        let name = name()?;
        let job = p.running()?.job;
        let port = Port::find(job, &name)?;
        let caller = await_caller(p, job, port, comm, &name)?;
        // A peer wrote it.
        let peer = rank_in(caller);
        if peer as usize >= job.present() {
            return Err(Error::new(MPI_ERR_PORT, "no rank has come to the port"));
        }
        greet(p, comm, peer, port, caller)
    })
}

/// Waits until somebody comes to a port of this process, and lets it in.
fn await_caller(p: &Process, job: &Job, port: Port, comm: &Comm, name: &str) -> Result<u32> {
    let ports = &job.own_page().ports;
    let mut outcome = None;
    let alone = !p.has_threads();
    wait(p, comm.handle.get(), |worker| {
        // Asked again, it answers the same.
        if outcome.is_some() {
            return true;
        }
        let is_it = |word: u64| port.rank as usize == job.rank() && number_in(word) == port.number;
        // ORDERING: partner is the release in `RankPage::knock`: what the caller wrote before it came is seen.
        let found = ports.iter().find(|at| is_it(at.load(Ordering::Acquire)));
        let Some(found) = found else {
            let text = format!("{name:?} is no port that this process has open");
            outcome = Some(Err(Error::new(MPI_ERR_PORT, text)));
            return true;
        };
        let seen = found.load(Ordering::Relaxed);
        let empty = word(port.number, 0);
        if !is_it(seen) || seen == empty {
            let (me, others) = (worker.rank, 0..worker.present());
            if alone
                && others
                    .into_iter()
                    .all(|rank| rank == me || worker.peer_has_left(rank))
            {
                let text = "nobody can come to the port: no other process of this job is left, and \
                    jobs cannot be connected with each other yet";
                outcome = Some(Err(Error::new(MPI_ERR_PORT, text)));
            }
            return outcome.is_some();
        }
        // ORDERING: acquire as above; release: partner is the acquire of the next one in `RankPage::knock`.
        let taken = found.compare_exchange(seen, empty, Ordering::AcqRel, Ordering::Relaxed);
        outcome = taken.ok().map(|word| Ok(caller_in(word)));
        outcome.is_some()
    })?;
    outcome.unwrap_or_else(|| Err(Error::new(MPI_ERR_INTERN, "nobody has come to the port")))
}

/// `MPI_Comm_connect`.
///
/// # Errors
/// As [`accept`]; `MPI_ERR_PORT` also where the port is closed, or its process has left.
pub fn connect(
    p: &Process,
    name: impl FnOnce() -> Result<String>,
    root: i32,
    comm: &Comm,
) -> Result<usize> {
    create(p, root, comm, || {
        let name = name()?;
        let job = p.running()?.job;
        let port = Port::find(job, &name)?;
        let caller = caller(job.rank() as u32, CALLS.of(p).next());
        claim(p, job, port, caller, comm, &name)?;
        greet(p, comm, port.rank, port, caller)
    })
}

/// Comes to a port, and waits to be let in.
fn claim(p: &Process, job: &Job, port: Port, caller: u32, comm: &Comm, name: &str) -> Result {
    let Some(page) = job.rank_page(port.rank as usize) else {
        return Err(Error::new(MPI_ERR_PORT, "no such rank"));
    };
    if !job.is_node_peer(port.rank as usize) {
        return claim_elsewhere(p, port, caller, comm, name);
    }
    let (mut has_come, mut is_over) = (false, false);
    let mut why = None;
    wait(p, comm.handle.get(), |worker| {
        // Asked again, it answers the same.
        if is_over || why.is_some() {
            return true;
        }
        if worker.peer_has_left(port.rank) {
            why = Some("is of a process that has left MPI");
            return true;
        }
        match page.knock(port.number, caller, has_come) {
            None => why = Some("is closed"),
            Some(Knocked::LetIn) => is_over = true,
            Some(Knocked::Stands) if !has_come => {
                has_come = true;
                worker.interfaces().wake_all(port.rank);
            }
            Some(Knocked::Stands | Knocked::Waits) => {}
        }
        is_over || why.is_some()
    })?;
    match why {
        None => Ok(()),
        Some(why) => Err(Error::new(MPI_ERR_PORT, format!("{name:?} {why}"))),
    }
}

/// Nanoseconds between two questions what has become of a caller at a port of another host: at first, and at most.
const ASK_AGAIN_NS: [u64; 2] = [200_000, 20_000_000];

/// The same for a port of a rank on another host, whose launcher comes to it for this process.
fn claim_elsewhere(p: &Process, port: Port, caller: u32, comm: &Comm, name: &str) -> Result {
    let [mut pause_ns, most_ns] = ASK_AGAIN_NS;
    let mut has_come = false;
    loop {
        let request = Request::Knock {
            rank: port.rank,
            number: port.number,
            caller,
            has_come,
        };
        match ask(p, MPI_ERR_PORT, "reach ports of other hosts", &request)? {
            Answer::Knocked(Knocked::LetIn) => return Ok(()),
            Answer::Knocked(Knocked::Stands) => has_come = true,
            Answer::Knocked(Knocked::Waits) => {}
            Answer::Refused { text, .. } => {
                return Err(Error::new(MPI_ERR_PORT, format!("{name:?} {text}")));
            }
            _ => return Err(Error::new(MPI_ERR_INTERN, "mpiexec answers something else")),
        }
        let until_ns = clock::now_ns() + pause_ns;
        wait(p, comm.handle.get(), |_| clock::now_ns() >= until_ns)?;
        pause_ns = (2 * pause_ns).min(most_ns);
    }
}

/// Both roots agree as leaders do.
fn greet(p: &Process, comm: &Comm, peer: u32, port: Port, caller: u32) -> Result<Pact> {
    let me = comm.my_world_rank();
    if peer == me {
        let text = "both sides of the connection are one process";
        return Err(Error::new(MPI_ERR_COMM, text));
    }
    let pair = Rc::new(Group::new(vec![me.min(peer), me.max(peer)], me));
    let text = format!("{port} {caller}");
    let meeting = Meeting::new(p, pair, text.as_bytes(), Purpose::Port);
    let channel = meeting.channel(p);
    let leader = u32::from(peer > me);
    inter::greet(p, &comm.group, Bridge { channel, leader })
}

/// The intercommunicator of all members of `comm` and those whom the root has met.
fn create(
    p: &Process,
    root: i32,
    comm: &Comm,
    meet: impl FnOnce() -> Result<Pact>,
) -> Result<usize> {
    comm.require_intra()?;
    let root = coll::check_root(comm, root)?;
    coll::compare_calls(p, comm)?;
    let members = Channel::next(p, comm);
    let pact = (comm.rank == root).then(meet);
    let (remote, block) = inter::pass_on(p, &members, &comm.group, root, pact)?;
    let made = inter::assemble(p, comm.group.clone(), Rc::new(remote), block)?;
    made.errhandler.set(comm.errhandler.get());
    publish(p, made)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn name__comes_back_as_it_was() {
        let port = Port {
            job: 0xabc,
            rank: 7,
            number: 3,
        };
        assert_eq!(Port::parse(&port.to_string()), Some(port));
        assert!(port.to_string().len() < MPI_MAX_PORT_NAME as usize);
        for name in [
            "",
            "fastpath",
            "fastpath:1:2:0",
            "fastpath:1:2:3:4",
            "other:1:2:3",
        ] {
            assert_eq!(Port::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn fuzz__name_is_understood_or_refused() {
        let corpus: &[&[u8]] = &[b"fastpath:0000000000000abc:7:3", b"fastpath:0:0:1", b"x"];
        crate::mutate::run(corpus, |input| {
            if let Some(port) = Port::parse(&String::from_utf8_lossy(input)) {
                assert_eq!(Port::parse(&port.to_string()), Some(port));
            }
        });
    }

    #[test]
    fn word__keeps_number_and_caller_apart() {
        const LAST: u32 = fastpath_bootstrap::segment::MAX_JOB_RANKS as u32 - 1;
        let caller = caller(LAST, 70_000);
        let word = word(9, caller);
        assert_eq!((number_in(word), caller_in(word)), (9, caller));
        assert_eq!(rank_in(caller), LAST);
    }
}
