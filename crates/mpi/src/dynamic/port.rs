//! Ports: meeting points of processes of one job that share no communicator (MPI 5.0, section 11.9).
//!
//! A port is a word in the page of the rank that opened it: the port's number, and the number of its caller. A
//! connecting root stores its number in the caller's part if that part is empty. The accepting root clears the part to
//! accept the call. Both roots then agree like the leaders of an intercommunicator. Processes of other jobs connect
//! over the network ([`super::door`]).

use super::door::{self, ListenerAddress, PortListener};
use super::{CALLS, Timeout, ask, foreign, wait};
use crate::coll;
use crate::coll::words;
use crate::comm_creation::inter::{self, Bridge, LeaderAgreement};
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
use fastpath_job::Job;
use fastpath_job::control::{Answer, CallOutcome, PortRequest, Request};
use fastpath_segment::PORTS;
use fastpath_transport::allowed::is_listed;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// Remedy for a port that no other job can reach.
const ALLOW_TCP: &str = "add tcp to FASTPATH_TRANSPORTS";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    job: u64,
    rank: u32,
    /// Number of the port at its rank, from 1.
    number: u32,
    /// Network address for processes of other jobs; `None` if they cannot connect.
    way: Option<ListenerAddress>,
}

/// Network listeners of this process's ports, by port number.
static DOORS: ProcessPart<RefCell<BTreeMap<u32, PortListener>>> =
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
                Some(way) => Some(ListenerAddress::parse(way)?),
            },
        })
    }

    /// Parses a port name. If the port is of this job, its rank must exist.
    fn find(job: &Job, name: &str) -> Result<Port> {
        let refuse = |text: String| Err(Error::new(MPI_ERR_PORT, text));
        match Port::parse(name) {
            None => refuse(format!("{name:?} is not a port name from MPI_Open_port")),
            Some(port) if port.job == job.job_id() && port.rank as usize >= job.present() => {
                refuse(format!("{name:?} is not a port of a rank of this job"))
            }
            Some(port) => Ok(port),
        }
    }

    /// Returns whether `word`, in this process's page, is the word of this port.
    fn is_at(&self, job: &Job, word: u64) -> bool {
        let is_own = self.job == job.job_id() && self.rank as usize == job.rank();
        is_own && number_in(word) == self.number
    }

    fn door(&self) -> door::Number {
        door::Number { job: self.job, port: self.number }
    }
}

/// Peer of a connection through a port.
enum PortPeer {
    Rank(LeaderAgreement),
    /// A process of another job: its socket, and the key of the port.
    Foreign(OwnedFd, [u8; 32]),
}

fn word(number: u32, caller: u32) -> u64 {
    u64::from(number) << 32 | u64::from(caller)
}

fn number_in(word: u64) -> u32 {
    (word >> 32) as u32
}

fn caller_in(word: u64) -> u32 {
    word as u32
}

/// Number of bits for a caller's rank plus 1, in the caller's half of the port's word.
const RANK_BITS: u32 = 21;

/// Encodes the caller's half of a port's word: the caller's rank, and the number of its call modulo 2^11.
fn caller(rank: u32, call: u32) -> u32 {
    (call << RANK_BITS) | (rank + 1)
}

fn rank_in(caller: u32) -> u32 {
    (caller & ((1 << RANK_BITS) - 1)).wrapping_sub(1)
}

const _: () = assert!(fastpath_segment::MAX_JOB_RANKS < 1 << RANK_BITS);

/// `MPI_Open_port`. Returns the port name. Errors: `MPI_ERR_OTHER` if this process has `PORTS` open ports.
pub fn open(p: &Process) -> Result<String> {
    let job = p.running()?.job;
    let ports = &job.own_page().ports;
    let Some(free) = ports.iter().find(|port| port.load(Ordering::Relaxed) == 0) else {
        let text = format!(
            "{PORTS} ports are open, which is the limit of a process: close some by MPI_Close_port"
        );
        return Err(Error::new(MPI_ERR_OTHER, text));
    };
    let number = CALLS.of(p).next();
    // Relaxed suffices: the message that carries the port's name orders this store before its receiver's access.
    free.store(word(number, 0), Ordering::Relaxed);
    let mut port = Port { job: job.job_id(), rank: job.rank() as u32, number, way: None };
    let config = p.running()?.config;
    let is_asked = |key| config.setting(key).origin != Origin::Default;
    if is_listed(config, "tcp") {
        match PortListener::open(config, port.door()) {
            Ok((door, way)) => {
                DOORS.of(p).borrow_mut().insert(number, door);
                port.way = Some(way);
            }
            Err(text) if is_asked(Key::Ports) || is_asked(Key::Interfaces) => {
                free.store(0, Ordering::Relaxed);
                return Err(Error::new(MPI_ERR_OTHER, text));
            }
            // Without a listener, only processes of this job can connect.
            Err(_) => {}
        }
    }
    Ok(port.to_string())
}

/// Opens a port that processes of other jobs can reach. Errors: see [`open`]; `MPI_ERR_PORT` if they cannot reach it.
pub fn open_to_others(p: &Process) -> Result<String> {
    let name = open(p)?;
    if Port::parse(&name).is_some_and(|port| port.way.is_some()) {
        return Ok(name);
    }
    close(p, &name)?;
    let text = "other jobs connect by tcp, but no socket could be opened, or FASTPATH_TRANSPORTS \
                does not list tcp";
    Err(Error::new(MPI_ERR_PORT, text).with_advice(Some(ALLOW_TCP)))
}

/// `MPI_Close_port`. Errors: `MPI_ERR_PORT` unless this process has the port open.
pub fn close(p: &Process, name: &str) -> Result {
    let job = p.running()?.job;
    let port = Port::find(job, name)?;
    let ports = &job.own_page().ports;
    let found = ports.iter().find(|at| port.is_at(job, at.load(Ordering::Relaxed)));
    let Some(found) = found else {
        let text = format!("{name:?} is not an open port of this process");
        return Err(Error::new(MPI_ERR_PORT, text));
    };
    found.store(0, Ordering::Relaxed);
    DOORS.of(p).borrow_mut().remove(&port.number);
    Ok(())
}

/// `MPI_Comm_accept`. Errors: `MPI_ERR_PORT` if the root has not opened the port, or if no process connects before the
/// root's timeout. `MPI_ERR_ROOT`. `MPI_ERR_COMM` if both sides have a process in common.
pub fn accept(
    p: &Process, name: impl FnOnce() -> Result<(String, Timeout)>, root: i32, comm: &Comm,
) -> Result<usize> {
    accept_while(p, name, root, comm, || None)
}

/// Accepts like [`accept`], but fails as soon as `is_vain` returns an error. Errors: see [`accept`]; that of `is_vain`.
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
            PortCaller::Rank(caller) => caller,
            PortCaller::Foreign(fd) => {
                let key = port.way.as_ref().map_or([0; 32], |way| way.key);
                return Ok(PortPeer::Foreign(fd, key));
            }
        };
        // The word comes from a peer, so the rank is checked.
        let peer = rank_in(caller);
        if peer as usize >= job.present() {
            return Err(Error::new(MPI_ERR_PORT, "no rank has connected to the port"));
        }
        greet(p, comm, peer, &port, caller).map(PortPeer::Rank)
    })
}

/// Caller of a port, before the agreement.
enum PortCaller {
    /// A rank of this job. The value is the caller's half of the port's word.
    Rank(u32),
    Foreign(OwnedFd),
}

/// Waits until a process connects to this process's port, and accepts it.
fn await_caller(
    p: &Process, job: &Job, port: &Port, comm: &Comm, name: &str,
    mut is_vain: impl FnMut() -> Option<Error>,
) -> Result<PortCaller> {
    let ports = &job.own_page().ports;
    let mut outcome = None;
    let alone = !p.has_threads();
    wait(p, comm.handle.get(), |worker| {
        // The first outcome is final.
        if outcome.is_some() {
            return true;
        }
        let is_it = |word: u64| port.is_at(job, word);
        // ORDERING: acquire, pairs with the release in `RankPage::knock`: earlier writes of the caller are visible.
        let found = ports.iter().find(|at| is_it(at.load(Ordering::Acquire)));
        let Some(found) = found else {
            let text = format!("{name:?} is not an open port of this process");
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
                Some(door) => outcome = door.poll().map(|fd| Ok(PortCaller::Foreign(fd))),
                None if alone && others.all(has_left) => {
                    let text = "no process can connect to the port: no other process of this job \
                                is left, and tcp, by which other jobs connect, is not available";
                    let error = Error::new(MPI_ERR_PORT, text).with_advice(Some(ALLOW_TCP));
                    outcome = Some(Err(error));
                }
                None => {}
            }
            outcome = outcome.take().or_else(|| is_vain().map(Err));
            return outcome.is_some();
        }
        // ORDERING: acquire, pairs with the release in `RankPage::knock`. Release, pairs with the acquire of the next
        // caller in `RankPage::knock`.
        let taken = found.compare_exchange(seen, empty, Ordering::AcqRel, Ordering::Relaxed);
        outcome = taken.ok().map(|word| Ok(PortCaller::Rank(caller_in(word))));
        outcome.is_some()
    })?;
    let none = "no process has connected to the port";
    outcome.unwrap_or_else(|| Err(Error::new(MPI_ERR_INTERN, none)))
}

/// `MPI_Comm_connect`. Errors: see [`accept`]; also `MPI_ERR_PORT` if the port is closed or its process has left.
pub fn connect(
    p: &Process, name: impl FnOnce() -> Result<(String, Timeout)>, root: i32, comm: &Comm,
) -> Result<usize> {
    create(p, root, comm, || {
        let (name, timeout) = name()?;
        let job = p.running()?.job;
        let port = Port::find(job, &name)?;
        // Without a launcher of this project, a port on another host is reached only over the network, like a port of
        // another job.
        let is_elsewhere = job.launcher().is_none() && !job.is_node_peer(port.rank as usize);
        if port.job != job.job_id() || is_elsewhere {
            let Some(way) = &port.way else {
                let text = format!(
                    "{name:?} is a port of another job or host, and the name has no address: add \
                     tcp to FASTPATH_TRANSPORTS of the job that opened the port"
                );
                return Err(Error::new(MPI_ERR_PORT, text));
            };
            let fd = door::call(p, way, port.door(), timeout)?;
            return Ok(PortPeer::Foreign(fd, way.key));
        }
        let caller = caller(job.rank() as u32, CALLS.of(p).next());
        let call = PortCall { port: &port, name: &name, caller, comm: comm.handle.get(), timeout };
        claim(p, job, &call)?;
        greet(p, comm, port.rank, &port, caller).map(PortPeer::Rank)
    })
}

struct PortCall<'a> {
    port: &'a Port,
    name: &'a str,
    caller: u32,
    comm: usize,
    timeout: Timeout,
}

const NOT_ACCEPTED: &str = "the port is open, but no process has accepted the connection";

/// Calls a port and waits until the call is accepted.
fn claim(p: &Process, job: &Job, call: &PortCall<'_>) -> Result {
    let PortCall { port, name, .. } = call;
    let Some(page) = job.rank_page(port.rank as usize) else {
        return Err(Error::new(
            MPI_ERR_PORT,
            "the port belongs to a rank that this job does not have",
        ));
    };
    if !job.is_node_peer(port.rank as usize) {
        return claim_elsewhere(p, call);
    }
    let mut visit = PortRequest::Comes;
    let mut outcome = None;
    let refuse = |why| Err(Error::new(MPI_ERR_PORT, format!("{name:?} {why}")));
    wait(p, call.comm, |worker| {
        // The first outcome is final.
        if outcome.is_some() {
            return true;
        }
        if worker.peer_has_left(port.rank) {
            outcome = Some(refuse("is a port of a process that has finalized MPI"));
            return true;
        }
        match page.knock(port.number, call.caller, visit) {
            None => outcome = Some(refuse("is closed")),
            Some(CallOutcome::LetIn) => outcome = Some(Ok(())),
            Some(CallOutcome::Stands) if visit == PortRequest::Comes => {
                visit = PortRequest::Asks;
                worker.interfaces().wake(port.rank);
            }
            Some(CallOutcome::Stands | CallOutcome::Waits) => {
                if let Some(error) = call.timeout.check(NOT_ACCEPTED) {
                    let left = match visit {
                        PortRequest::Comes => None,
                        _ => page.knock(port.number, call.caller, PortRequest::Leaves),
                    };
                    // The call may have been accepted just before it was withdrawn.
                    let is_let_in = left == Some(CallOutcome::LetIn);
                    outcome = Some(if is_let_in { Ok(()) } else { Err(error) });
                }
            }
        }
        outcome.is_some()
    })?;
    outcome.unwrap_or(Ok(()))
}

/// Shortest and longest pause between two queries about a call to a port on another host, in nanoseconds.
const ASK_AGAIN_NS: [u64; 2] = [200_000, 20_000_000];

/// Calls a port on another host through the launcher, and waits until the call is accepted.
fn claim_elsewhere(p: &Process, call: &PortCall<'_>) -> Result {
    let PortCall { port, name, .. } = call;
    let [mut pause_ns, most_ns] = ASK_AGAIN_NS;
    let mut visit = PortRequest::Comes;
    loop {
        let mut over = call.timeout.check(NOT_ACCEPTED);
        if over.is_some() && visit == PortRequest::Asks {
            visit = PortRequest::Leaves;
        }
        let request =
            Request::Knock { rank: port.rank, number: port.number, caller: call.caller, visit };
        match ask(p, MPI_ERR_PORT, "reach ports of other hosts", &request)? {
            Answer::Knocked(CallOutcome::LetIn) => return Ok(()),
            Answer::Knocked(CallOutcome::Stands) => {
                visit = PortRequest::Asks;
                over = None;
            }
            Answer::Knocked(CallOutcome::Waits) => {}
            Answer::Refused { text, .. } => {
                return Err(Error::new(MPI_ERR_PORT, format!("{name:?} {text}")));
            }
            _ => return Err(Error::new(MPI_ERR_INTERN, "unexpected answer from mpiexec")),
        }
        if let Some(error) = over {
            return Err(error);
        }
        let until_ns = clock::now_ns() + pause_ns;
        wait(p, call.comm, |_| clock::now_ns() >= until_ns)?;
        pause_ns = (2 * pause_ns).min(most_ns);
    }
}

/// Agrees with the peer's root on an intercommunicator, as the leaders of its groups.
fn greet(p: &Process, comm: &Comm, peer: u32, port: &Port, caller: u32) -> Result<LeaderAgreement> {
    let me = comm.my_world_rank();
    if peer == me {
        let text = "this process would connect to itself";
        let advice = "connect to a port of another process";
        return Err(Error::new(MPI_ERR_COMM, text).with_advice(Some(advice)));
    }
    let text = format!("{} {} {caller}", port.rank, port.number);
    let (meeting, leader) = Meeting::of_pair(p, (me, peer), text.as_bytes(), Purpose::Port);
    let channel = meeting.channel(p);
    inter::greet(p, &comm.group, Bridge { channel, leader })
}

/// Makes the intercommunicator of the group of `comm` and the peer's group. Only the root calls `meet`.
fn create(
    p: &Process, root: i32, comm: &Comm, meet: impl FnOnce() -> Result<PortPeer>,
) -> Result<usize> {
    comm.require_intra()?;
    let root = coll::check_root(comm, root)?;
    coll::compare_calls(p, comm)?;
    let members = Channel::next(p, comm);
    let (mut pact, mut socket) = (None, None);
    if comm.rank == root {
        match meet() {
            Ok(PortPeer::Foreign(fd, key)) => socket = Some((fd, key)),
            Ok(PortPeer::Rank(met)) => pact = Some(Ok(met)),
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
        const LAST: u32 = fastpath_segment::MAX_JOB_RANKS as u32 - 1;
        let caller = caller(LAST, 70_000);
        let word = word(9, caller);
        assert_eq!((number_in(word), caller_in(word)), (9, caller));
        assert_eq!(rank_in(caller), LAST);
    }
}
