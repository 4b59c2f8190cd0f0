//! Ports: where processes of one job that share no communicator meet (MPI-5.0 section 11.9).
//!
//! A port is a word in the page of the rank that has opened it: its number, and its caller. A root that connects puts
//! its own number there when the place is free, and is accepted when the accepting root has taken it away; then both
//! agree as two leaders of an intercommunicator do. Processes of other jobs come over the network ([`super::door`]).

use super::door::{self, Door, DoorAddress};
use super::{CALLS, Timeout, ask, foreign, wait};
use crate::coll;
use crate::coll::words;
use crate::comm_creation::inter::{self, Bridge, Pact};
use crate::comm_creation::meeting::{Meeting, Purpose};
use crate::comm_creation::publish;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::process::{Process, ProcessPart};
use fastpath_base::clock;
use fastpath_base::config::{Key, Origin};
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::control::{Answer, Knocked, Request, Visit};
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::PORTS;
use fastpath_transport::setup::allowed::is_listed;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// The name of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    job: u64,
    rank: u32,
    /// Counted by the rank, from 1.
    number: u32,
    /// Where processes of other jobs come to it, if they can.
    way: Option<DoorAddress>,
}

/// The doors of this process's ports, by the numbers of the ports.
static DOORS: ProcessPart<RefCell<BTreeMap<u32, Door>>> =
    ProcessPart::new(RefCell::new(BTreeMap::new()));

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { job, rank, number, way } = self;
        write!(f, "fastpath:{job:016x}:{rank}:{number}")?;
        way.iter().try_for_each(|way| write!(f, ":{way}"))
    }
}

impl Port {
    fn parse(name: &str) -> Option<Port> {
        let mut fields = name.splitn(5, ':');
        let mut next = || fields.next();
        let (mark, job, rank, number) = (next()?, next()?, next()?, next()?);
        Some(Port {
            job: u64::from_str_radix(job, 16).ok().filter(|_| mark == "fastpath")?,
            rank: rank.parse().ok()?,
            number: number.parse().ok().filter(|&number| number > 0)?,
            way: match next() {
                None => None,
                Some(way) => Some(DoorAddress::parse(way)?),
            },
        })
    }

    /// The port that a name says; of this job, the rank is one.
    fn find(job: &Job, name: &str) -> Result<Port> {
        let refuse = |text: String| Err(Error::new(MPI_ERR_PORT, text));
        match Port::parse(name) {
            None => refuse(format!("{name:?} is no name that MPI_Open_port gave")),
            Some(port) if port.job == job.job_id() && port.rank as usize >= job.present() => {
                refuse(format!("{name:?} is not a port of a rank of this job"))
            }
            Some(port) => Ok(port),
        }
    }

    /// Whether a word on this process's page is its own.
    fn is_at(&self, job: &Job, word: u64) -> bool {
        let is_own = self.job == job.job_id() && self.rank as usize == job.rank();
        is_own && number_in(word) == self.number
    }

    /// Where processes of other jobs come to it.
    fn door(&self) -> door::Number {
        door::Number { job: self.job, port: self.number }
    }
}

/// The caller of a port, or the port that this process called.
enum Met {
    /// A rank of this job, with which the root has agreed.
    Rank(Pact),
    /// A process of another job.
    Foreign(OwnedFd, [u8; 32]),
}

/// A port's word: its number, and its caller.
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
        let text = format!("{PORTS} ports are open, the most that a process can have: close some");
        return Err(Error::new(MPI_ERR_OTHER, text));
    };
    let number = CALLS.of(p).next();
    // Relaxed: whoever learns the name by a message sees the word.
    free.store(word(number, 0), Ordering::Relaxed);
    let mut port = Port { job: job.job_id(), rank: job.rank() as u32, number, way: None };
    let config = p.running()?.config;
    let is_asked = |key| config.setting(key).origin != Origin::Default;
    if is_listed(config, "tcp") {
        match Door::open(config, port.door()) {
            Ok((door, way)) => {
                DOORS.of(p).borrow_mut().insert(number, door);
                port.way = Some(way);
            }
            Err(text) if is_asked(Key::Ports) || is_asked(Key::Interfaces) => {
                free.store(0, Ordering::Relaxed);
                return Err(Error::new(MPI_ERR_OTHER, text));
            }
            // Without it the port is for this job alone.
            Err(_) => {}
        }
    }
    Ok(port.to_string())
}

/// As [`open`], of a port that processes of other jobs can come to.
///
/// # Errors
/// As there; `MPI_ERR_PORT` where they cannot.
pub fn open_to_others(p: &Process) -> Result<String> {
    let name = open(p)?;
    if Port::parse(&name).is_some_and(|port| port.way.is_some()) {
        return Ok(name);
    }
    close(p, &name)?;
    let text = "processes of another job come by tcp, which could not be opened, or is left out of \
        FASTPATH_TRANSPORTS";
    Err(Error::new(MPI_ERR_PORT, text))
}

/// `MPI_Close_port`.
///
/// # Errors
/// `MPI_ERR_PORT` for a name of no port that this process has open.
pub fn close(p: &Process, name: &str) -> Result {
    let job = p.running()?.job;
    let port = Port::find(job, name)?;
    let ports = &job.own_page().ports;
    let found = ports.iter().find(|at| port.is_at(job, at.load(Ordering::Relaxed)));
    let Some(found) = found else {
        let text = format!("{name:?} is no port that this process has open");
        return Err(Error::new(MPI_ERR_PORT, text));
    };
    found.store(0, Ordering::Relaxed);
    DOORS.of(p).borrow_mut().remove(&port.number);
    Ok(())
}

/// `MPI_Comm_accept`.
///
/// # Errors
/// `MPI_ERR_PORT` for a port that the root has not opened, and if no process connects before the root's timeout;
/// `MPI_ERR_ROOT`; `MPI_ERR_COMM` where both sides have a process in common.
pub fn accept(
    p: &Process, name: impl FnOnce() -> Result<(String, Timeout)>, root: i32, comm: &Comm,
) -> Result<usize> {
    accept_while(p, name, root, comm, || None)
}

/// As [`accept`]; ends with what `is_vain` says, once it does.
///
/// # Errors
/// As there.
pub fn accept_while(
    p: &Process, name: impl FnOnce() -> Result<(String, Timeout)>, root: i32, comm: &Comm,
    mut is_vain: impl FnMut() -> Option<Error>,
) -> Result<usize> {
    create(p, root, comm, || {
        let (name, timeout) = name()?;
        let is_vain =
            || is_vain().or_else(|| timeout.check("no process has connected to the port"));
        let job = p.running()?.job;
        let port = Port::find(job, &name)?;
        let caller = match await_caller(p, job, &port, comm, &name, is_vain)? {
            Came::Rank(caller) => caller,
            Came::Foreign(fd) => {
                let key = port.way.as_ref().map_or([0; 32], |way| way.key);
                return Ok(Met::Foreign(fd, key));
            }
        };
        // A peer wrote it.
        let peer = rank_in(caller);
        if peer as usize >= job.present() {
            return Err(Error::new(MPI_ERR_PORT, "no rank has come to the port"));
        }
        greet(p, comm, peer, &port, caller).map(Met::Rank)
    })
}

/// The caller of a port.
enum Came {
    /// A rank of this job: what it has written into the port's word.
    Rank(u32),
    /// A process of another job, at the other end of the socket.
    Foreign(OwnedFd),
}

/// Waits until a process connects to a port of this process, and accepts it.
fn await_caller(
    p: &Process, job: &Job, port: &Port, comm: &Comm, name: &str,
    mut is_vain: impl FnMut() -> Option<Error>,
) -> Result<Came> {
    let ports = &job.own_page().ports;
    let mut outcome = None;
    let alone = !p.has_threads();
    wait(p, comm.handle.get(), |worker| {
        // Asked again, it answers the same.
        if outcome.is_some() {
            return true;
        }
        let is_it = |word: u64| port.is_at(job, word);
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
            let mut doors = DOORS.of(p).borrow_mut();
            let (me, mut others) = (worker.rank, 0..worker.present());
            let has_left = |rank| rank == me || worker.peer_has_left(rank);
            match doors.get_mut(&port.number) {
                Some(door) => outcome = door.poll().map(|fd| Ok(Came::Foreign(fd))),
                None if alone && others.all(has_left) => {
                    let text = "no process can connect to the port: no other process of this job \
                                is left, and those of other jobs connect by tcp, which could not \
                                be opened or is left out";
                    outcome = Some(Err(Error::new(MPI_ERR_PORT, text)));
                }
                None => {}
            }
            outcome = outcome.take().or_else(|| is_vain().map(Err));
            return outcome.is_some();
        }
        // ORDERING: acquire as above; release: partner is the acquire of the next one in `RankPage::knock`.
        let taken = found.compare_exchange(seen, empty, Ordering::AcqRel, Ordering::Relaxed);
        outcome = taken.ok().map(|word| Ok(Came::Rank(caller_in(word))));
        outcome.is_some()
    })?;
    let none = "no process has connected to the port";
    outcome.unwrap_or_else(|| Err(Error::new(MPI_ERR_INTERN, none)))
}

/// `MPI_Comm_connect`.
///
/// # Errors
/// As [`accept`]; `MPI_ERR_PORT` also where the port is closed, or its process has left.
pub fn connect(
    p: &Process, name: impl FnOnce() -> Result<(String, Timeout)>, root: i32, comm: &Comm,
) -> Result<usize> {
    create(p, root, comm, || {
        let (name, timeout) = name()?;
        let job = p.running()?.job;
        let port = Port::find(job, &name)?;
        // On another host where no launcher of ours comes to it: as a process of another job does.
        let is_elsewhere = job.launcher().is_none() && !job.is_node_peer(port.rank as usize);
        if port.job != job.job_id() || is_elsewhere {
            let Some(way) = &port.way else {
                let text = format!(
                    "{name:?} is a port of another job or host, which does not say where it is \
                     reached: was tcp left out of its FASTPATH_TRANSPORTS?"
                );
                return Err(Error::new(MPI_ERR_PORT, text));
            };
            let fd = door::call(p, way, port.door(), timeout)?;
            return Ok(Met::Foreign(fd, way.key));
        }
        let caller = caller(job.rank() as u32, CALLS.of(p).next());
        let call = Call { port: &port, name: &name, caller, comm: comm.handle.get(), timeout };
        claim(p, job, &call)?;
        greet(p, comm, port.rank, &port, caller).map(Met::Rank)
    })
}

/// A caller of a port of this job.
struct Call<'a> {
    port: &'a Port,
    name: &'a str,
    caller: u32,
    comm: usize,
    timeout: Timeout,
}

/// The error if no process accepts a caller.
const NOBODY_ACCEPTS: &str = "the port is open, but no process has accepted there";

/// Comes to a port, and waits to be let in.
fn claim(p: &Process, job: &Job, call: &Call<'_>) -> Result {
    let Call { port, name, .. } = call;
    let Some(page) = job.rank_page(port.rank as usize) else {
        return Err(Error::new(MPI_ERR_PORT, "no such rank"));
    };
    if !job.is_node_peer(port.rank as usize) {
        return claim_elsewhere(p, call);
    }
    let mut visit = Visit::Comes;
    let mut outcome = None;
    let refuse = |why| Err(Error::new(MPI_ERR_PORT, format!("{name:?} {why}")));
    wait(p, call.comm, |worker| {
        // Asked again, it answers the same.
        if outcome.is_some() {
            return true;
        }
        if worker.peer_has_left(port.rank) {
            outcome = Some(refuse("is of a process that has left MPI"));
            return true;
        }
        match page.knock(port.number, call.caller, visit) {
            None => outcome = Some(refuse("is closed")),
            Some(Knocked::LetIn) => outcome = Some(Ok(())),
            Some(Knocked::Stands) if visit == Visit::Comes => {
                visit = Visit::Asks;
                worker.interfaces().wake_all(port.rank);
            }
            Some(Knocked::Stands | Knocked::Waits) => {
                if let Some(error) = call.timeout.check(NOBODY_ACCEPTS) {
                    let left = match visit {
                        Visit::Comes => None,
                        _ => page.knock(port.number, call.caller, Visit::Leaves),
                    };
                    // At the last moment.
                    let is_let_in = left == Some(Knocked::LetIn);
                    outcome = Some(if is_let_in { Ok(()) } else { Err(error) });
                }
            }
        }
        outcome.is_some()
    })?;
    outcome.unwrap_or(Ok(()))
}

/// Nanoseconds between two questions what has become of a caller at a port of another host: at first, and at most.
const ASK_AGAIN_NS: [u64; 2] = [200_000, 20_000_000];

/// The same for a port of a rank on another host, whose launcher calls it for this process.
fn claim_elsewhere(p: &Process, call: &Call<'_>) -> Result {
    let Call { port, name, .. } = call;
    let [mut pause_ns, most_ns] = ASK_AGAIN_NS;
    let mut visit = Visit::Comes;
    loop {
        let mut over = call.timeout.check(NOBODY_ACCEPTS);
        if over.is_some() && visit == Visit::Asks {
            visit = Visit::Leaves;
        }
        let request =
            Request::Knock { rank: port.rank, number: port.number, caller: call.caller, visit };
        match ask(p, MPI_ERR_PORT, "reach ports of other hosts", &request)? {
            Answer::Knocked(Knocked::LetIn) => return Ok(()),
            Answer::Knocked(Knocked::Stands) => {
                visit = Visit::Asks;
                over = None;
            }
            Answer::Knocked(Knocked::Waits) => {}
            Answer::Refused { text, .. } => {
                return Err(Error::new(MPI_ERR_PORT, format!("{name:?} {text}")));
            }
            _ => return Err(Error::new(MPI_ERR_INTERN, "unexpected answer of mpiexec")),
        }
        if let Some(error) = over {
            return Err(error);
        }
        let until_ns = clock::now_ns() + pause_ns;
        wait(p, call.comm, |_| clock::now_ns() >= until_ns)?;
        pause_ns = (2 * pause_ns).min(most_ns);
    }
}

/// Both roots agree as leaders do.
fn greet(p: &Process, comm: &Comm, peer: u32, port: &Port, caller: u32) -> Result<Pact> {
    let me = comm.my_world_rank();
    if peer == me {
        let text = "both sides of the connection are one process";
        return Err(Error::new(MPI_ERR_COMM, text));
    }
    let text = format!("{} {} {caller}", port.rank, port.number);
    let (meeting, leader) = Meeting::of_pair(p, (me, peer), text.as_bytes(), Purpose::Port);
    let channel = meeting.channel(p);
    inter::greet(p, &comm.group, Bridge { channel, leader })
}

/// The intercommunicator of all members of `comm` and those whom the root has met.
fn create(
    p: &Process, root: i32, comm: &Comm, meet: impl FnOnce() -> Result<Met>,
) -> Result<usize> {
    comm.require_intra()?;
    let root = coll::check_root(comm, root)?;
    coll::compare_calls(p, comm)?;
    let members = Channel::next(p, comm);
    let (mut pact, mut socket) = (None, None);
    if comm.rank == root {
        match meet() {
            Ok(Met::Foreign(fd, key)) => socket = Some((fd, key)),
            Ok(Met::Rank(met)) => pact = Some(Ok(met)),
            Err(error) => pact = Some(Err(error)),
        }
    }
    let mut is_foreign = [u64::from(socket.is_some())];
    words::broadcast_from(&members, root, &mut is_foreign)?;
    let (remote, block) = match is_foreign {
        [0] => inter::pass_on(p, &members, &comm.group, root, pact)?,
        _ => {
            let bridge =
                socket.as_ref().map(|(fd, key)| foreign::Bridge { fd: fd.as_raw_fd(), key: *key });
            foreign::connect(p, &members, &comm.group, root, bridge)?
        }
    };
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
        let port = Port { job: 0xabc, rank: 7, number: 3, way: None };
        assert_eq!(Port::parse(&port.to_string()), Some(port.clone()));
        assert!(port.to_string().len() < MPI_MAX_PORT_NAME as usize);
        for name in ["", "fastpath", "fastpath:1:2:0", "fastpath:1:2:3:4", "other:1:2:3"] {
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
