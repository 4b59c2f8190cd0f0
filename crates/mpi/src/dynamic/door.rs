//! Connections from processes of other jobs to a port: over the network, with a key that is part of the port's name.
//!
//! Any process that knows the name may connect. A connection without a proof of the key is closed after 5 seconds. At
//! most 64 such connections wait at a time. The key is never sent. Each end proves that it knows the key by a tag over
//! the other end's random number.

use super::line::move_bytes;
use super::{Timeout, wait};
use crate::common::consts::MPI_ERR_PORT;
use crate::common::error::{Error, Result};
use crate::process::Process;
use fastpath_base::clock;
use fastpath_base::config::Config;
use fastpath_base::entropy::draw_random;
use fastpath_base::fd::CheckedHandle;
use fastpath_job::network::interfaces::list_addresses;
use fastpath_job::network::ports::{dial, keep_alive};
use fastpath_job::network::proof::{Pass, TAG};
use fastpath_job::network::{self, Reach};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

/// Number of random bytes of a key. Its other bytes are 0, because port names must stay short.
const KEY: usize = 16;
/// Maximum bytes of the addresses in a port name, because engines publish only short names.
const ADDRESSES: usize = 120;
const NONCE: usize = 32;
/// Maximum number of connections without a proof of the key. A further connection replaces the oldest.
const STRANGERS_MOST: usize = 64;
/// Time limit for the proof of a connection, in nanoseconds.
const STRANGER_NS: u64 = 5_000_000_000;
/// Time limit for connecting to one address, in nanoseconds. The next address is then tried.
const CALL_NS: u64 = 5_000_000_000;

/// Network address and key of a port: the last part of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    pub key: [u8; 32],
    port: u16,
    addresses: Vec<IpAddr>,
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key[..KEY].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ":{}:", self.port)?;
        for (number, address) in self.addresses.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl ListenerAddress {
    /// Parses the text of a [`ListenerAddress`]; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<ListenerAddress> {
        let mut fields = text.splitn(3, ':');
        let (digits, port, addresses) = (fields.next()?, fields.next()?, fields.next()?);
        let mut key = [0; 32];
        if digits.len() != 2 * KEY || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, two) in key.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
        }
        let addresses = addresses.split(',').map(|address| address.parse().ok());
        Some(ListenerAddress {
            key,
            port: port.parse().ok().filter(|&port| port != 0)?,
            addresses: addresses.collect::<Option<Vec<IpAddr>>>()?,
        })
    }
}

/// Keeps as many addresses as fit a port name, the best first, but at least one.
fn shorten(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut bytes = 0;
    let mut fits = |address: &IpAddr| {
        bytes += address.to_string().len() + 1;
        bytes <= ADDRESSES
    };
    let count = addresses.iter().take_while(|&address| fits(address)).count();
    addresses.truncate(count.max(1));
    addresses
}

#[derive(Clone, Copy)]
pub struct Number {
    pub job: u64,
    pub port: u32,
}

struct Proof {
    pass: Pass,
    port: u32,
}

impl Proof {
    fn new(key: [u8; 32], number: Number) -> Proof {
        let pass = Pass { job_id: number.job, secret: key };
        let port = number.port;
        Proof { pass, port }
    }

    fn call(&self, nonce: &[u8]) -> [u8; TAG] {
        self.pass.tag(b"port call", nonce, 0, self.port)
    }

    fn answer(&self, nonces: &[u8]) -> [u8; TAG] {
        self.pass.tag(b"port answer", nonces, self.port, 0)
    }

    fn confirm(&self, nonces: &[u8]) -> [u8; TAG] {
        self.pass.tag(b"port confirm", nonces, 0, self.port)
    }

    fn is_call(&self, call: &[u8; NONCE + TAG]) -> bool {
        let (nonce, tag) = call.split_at(NONCE);
        let tag = tag.try_into().unwrap_or(&[0; TAG]);
        self.pass.is_tag(tag, b"port call", nonce, (0, self.port))
    }

    fn is_answer(&self, nonces: &[u8], tag: &[u8; TAG]) -> bool {
        self.pass.is_tag(tag, b"port answer", nonces, (self.port, 0))
    }

    fn is_confirm(&self, nonces: &[u8], tag: &[u8; TAG]) -> bool {
        self.pass.is_tag(tag, b"port confirm", nonces, (0, self.port))
    }
}

/// Connection that has not proved the key yet.
struct Caller {
    stream: TcpStream,
    since_ns: u64,
    call: [u8; NONCE + TAG],
    got: usize,
    /// Answer to the caller's message; `None` until that message has arrived.
    answer: Option<[u8; NONCE + TAG]>,
    sent: usize,
    confirm: [u8; TAG],
    confirmed: usize,
}

impl Caller {
    /// Continues the handshake. Returns true after the caller has proved that it knows the key.
    fn advance(&mut self, proof: &Proof) -> io::Result<bool> {
        let fd = self.stream.as_raw_fd();
        if self.answer.is_none() {
            move_bytes(fd, (&[], &mut 0), (&mut self.call, &mut self.got))?;
            if self.got < self.call.len() {
                return Ok(false);
            }
            if !proof.is_call(&self.call) {
                return Err(ErrorKind::PermissionDenied.into());
            }
            let nonce: [u8; NONCE] = draw_random()?;
            let nonces = [&self.call[..NONCE], &nonce].concat();
            let mut answer = [0; NONCE + TAG];
            answer[..NONCE].copy_from_slice(&nonce);
            answer[NONCE..].copy_from_slice(&proof.answer(&nonces));
            self.answer = Some(answer);
        }
        let Some(answer) = &self.answer else {
            return Ok(false);
        };
        let into = (&mut self.confirm[..], &mut self.confirmed);
        move_bytes(fd, (answer, &mut self.sent), into)?;
        if self.confirmed < TAG {
            return Ok(false);
        }
        let nonces = [&self.call[..NONCE], &answer[..NONCE]].concat();
        match proof.is_confirm(&nonces, &self.confirm) {
            true => Ok(true),
            false => Err(ErrorKind::PermissionDenied.into()),
        }
    }
}

/// Network listener of an open port, for processes of other jobs.
pub struct PortListener {
    listeners: Vec<CheckedHandle<TcpListener>>,
    proof: Proof,
    callers: Vec<Caller>,
}

impl PortListener {
    /// Listens for processes of other jobs, on any host. Errors: a text for users, if no socket can be opened or the
    /// settings exclude all addresses.
    pub fn open(
        config: &Config, number: Number,
    ) -> std::result::Result<(PortListener, ListenerAddress), String> {
        let random: [u8; KEY] =
            draw_random().map_err(|e| format!("the system gave no random numbers: {e}"))?;
        let mut key = [0; 32];
        key[..KEY].copy_from_slice(&random);
        let (listener, card) = network::open(config, Reach::Network, 1)?;
        let listeners = Vec::<OwnedFd>::from(listener);
        let door = PortListener {
            listeners: listeners
                .into_iter()
                .map(|fd| CheckedHandle::keep(fd, "an open port"))
                .collect(),
            proof: Proof::new(key, number),
            callers: Vec::new(),
        };
        let way = ListenerAddress { key, port: card.port, addresses: shorten(card.addresses) };
        Ok((door, way))
    }

    /// Returns the socket of a caller that has proved that it knows the key; `None` without one.
    pub fn poll(&mut self) -> Option<OwnedFd> {
        let now_ns = clock::now_ns();
        for listener in &self.listeners {
            // Connections that cannot be accepted now, for example for lack of descriptors, stay in the queue.
            while let Ok((stream, _)) =
                listener.get().map_err(io::Error::from).and_then(TcpListener::accept)
            {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if self.callers.len() >= STRANGERS_MOST {
                    self.callers.remove(0);
                }
                self.callers.push(Caller {
                    stream,
                    since_ns: now_ns,
                    call: [0; NONCE + TAG],
                    got: 0,
                    answer: None,
                    sent: 0,
                    confirm: [0; TAG],
                    confirmed: 0,
                });
            }
        }
        let is_old = |caller: &Caller| now_ns.saturating_sub(caller.since_ns) > STRANGER_NS;
        let mut proved = None;
        let mut place = 0;
        while place < self.callers.len() {
            match self.callers[place].advance(&self.proof) {
                Ok(false) if is_old(&self.callers[place]) => _ = self.callers.remove(place),
                Ok(false) => place += 1,
                Ok(true) if proved.is_none() => proved = Some(self.callers.remove(place)),
                // This poll returns another caller, and the next poll returns this one.
                Ok(true) => place += 1,
                Err(_) => _ = self.callers.remove(place),
            }
        }
        let stream = proved?.stream;
        let _ = keep_alive(&stream);
        Some(stream.into())
    }
}

/// Connects to a port of another job and waits for acceptance. Errors: `MPI_ERR_PORT` if no address is reachable, the
/// key is wrong, or no process accepts in time.
pub fn call(
    p: &Process, way: &ListenerAddress, number: Number, timeout: Timeout,
) -> Result<OwnedFd> {
    let own: Vec<IpAddr> =
        list_addresses().unwrap_or_default().into_iter().map(|found| found.address).collect();
    let mut addresses = way.addresses.clone();
    // Container bridges have equal addresses on all hosts, so this host itself would answer. Try them last.
    addresses.sort_by_key(|address| own.contains(address));
    let mut told = Vec::new();
    for address in addresses {
        let at = SocketAddr::new(address, way.port);
        let greeted = match connect(p, at, timeout)? {
            Ok(stream) => {
                let proof = Proof::new(way.key, number);
                greet(p, &stream, &proof, timeout)?.map(|()| stream)
            }
            Err(cause) => Err(cause),
        };
        match greeted {
            Ok(stream) => {
                let _ = keep_alive(&stream);
                return Ok(stream.into());
            }
            Err(cause) => told.push(format!("{at}: {cause}")),
        }
        if let Some(error) = timeout.check("no process has accepted the connection") {
            return Err(error);
        }
    }
    let text = format!(
        "the port {} of job {:016x} is closed, or cannot be reached: {}",
        number.port,
        number.job,
        told.join(", ")
    );
    Err(Error::new(MPI_ERR_PORT, text))
}

fn connect(p: &Process, at: SocketAddr, timeout: Timeout) -> Result<io::Result<TcpStream>> {
    let stream = match dial(at, None) {
        Ok(fd) => TcpStream::from(fd),
        Err(cause) => return Ok(Err(cause)),
    };
    let until_ns = clock::now_ns() + CALL_NS;
    let mut outcome = None;
    wait(p, 0, |_| {
        outcome = match stream.take_error() {
            Ok(Some(cause)) | Err(cause) => Some(Err(cause)),
            Ok(None) if stream.peer_addr().is_ok() => Some(Ok(())),
            Ok(None) if clock::now_ns() > until_ns.min(timeout.until_ns) => {
                Some(Err(ErrorKind::TimedOut.into()))
            }
            Ok(None) => return false,
        };
        true
    })?;
    Ok(outcome.unwrap_or(Ok(())).map(|()| stream))
}

fn greet(
    p: &Process, stream: &TcpStream, proof: &Proof, timeout: Timeout,
) -> Result<io::Result<()>> {
    let nonce: [u8; NONCE] = match draw_random() {
        Ok(nonce) => nonce,
        Err(cause) => return Ok(Err(cause)),
    };
    let call = [&nonce[..], &proof.call(&nonce)].concat();
    let mut answer = [0; NONCE + TAG];
    let (mut sent, mut got) = (0, 0);
    let mut failed = None;
    let fd = stream.as_raw_fd();
    wait(p, 0, |_| {
        // The first error is final, so nothing is moved after it.
        if failed.is_none() {
            failed = move_bytes(fd, (&call, &mut sent), (&mut answer, &mut got)).err();
        }
        let is_here = got == answer.len();
        if !is_here && clock::now_ns() >= timeout.until_ns {
            failed = failed.take().or(Some(ErrorKind::TimedOut.into()));
        }
        failed.is_some() || is_here
    })?;
    if let Some(cause) = failed {
        let why = match cause.kind() {
            ErrorKind::UnexpectedEof => {
                "the process at that address closed the connection: the port is closed, or the key \
                 in the port name is wrong"
            }
            _ => return Ok(Err(cause)),
        };
        return Ok(Err(io::Error::new(cause.kind(), why)));
    }
    let (theirs, tag) = answer.split_at(NONCE);
    let nonces = [&nonce[..], theirs].concat();
    if !proof.is_answer(&nonces, tag.try_into().unwrap_or(&[0; TAG])) {
        let text = "the process at that address does not have the key of the port";
        return Ok(Err(io::Error::new(ErrorKind::PermissionDenied, text)));
    }
    let confirm = proof.confirm(&nonces);
    let mut sent = 0;
    let mut failed = None;
    wait(p, 0, |_| {
        if failed.is_none() {
            failed = move_bytes(fd, (&confirm, &mut sent), (&mut [], &mut 0)).err();
        }
        failed.is_some() || sent == confirm.len()
    })?;
    Ok(failed.map_or(Ok(()), Err))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn way() -> ListenerAddress {
        ListenerAddress {
            key: std::array::from_fn(|at| if at < KEY { at as u8 * 7 } else { 0 }),
            port: 40_001,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        }
    }

    #[test]
    fn way__comes_back_as_it_was() {
        let text = way().to_string();
        assert_eq!(ListenerAddress::parse(&text), Some(way()));
        for wrong in [&text[1..], "", "00:1:10.0.0.1", &text.replace("40001", "0")] {
            assert_eq!(ListenerAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn fuzz__way_is_understood_or_refused() {
        let text = way().to_string();
        crate::mutate::run(&[text.as_bytes()], |input| {
            if let Some(way) = ListenerAddress::parse(&String::from_utf8_lossy(input)) {
                assert_eq!(ListenerAddress::parse(&way.to_string()), Some(way));
            }
        });
    }

    const NUMBER: Number = Number { job: 7, port: 3 };

    fn try_door(proof: &Proof, confirms: bool) -> bool {
        let config = Config::defaults();
        let (mut door, way) = PortListener::open(&config, NUMBER).unwrap();
        door.proof = Proof::new([5; 32], NUMBER);
        let at = SocketAddr::new(way.addresses[0], way.port);
        let mut stream = TcpStream::connect(at).unwrap();
        let nonce = [9; NONCE];
        use std::io::{Read, Write};
        stream.write_all(&nonce).unwrap();
        stream.write_all(&proof.call(&nonce)).unwrap();
        let mut answer = [0; NONCE + TAG];
        let answered = std::thread::spawn(move || {
            let done = stream.read_exact(&mut answer);
            (done.is_ok(), answer, stream)
        });
        while !answered.is_finished() {
            assert!(door.poll().is_none());
            std::thread::yield_now();
        }
        let (is_answered, answer, mut stream) = answered.join().unwrap();
        if !is_answered {
            assert!(door.callers.is_empty());
            return false;
        }
        let nonces = [&nonce[..], &answer[..NONCE]].concat();
        assert!(proof.is_answer(&nonces, answer[NONCE..].try_into().unwrap()));
        let mut confirm = proof.confirm(&nonces);
        confirm[0] ^= u8::from(!confirms);
        stream.write_all(&confirm).unwrap();
        loop {
            if door.poll().is_some() {
                return true;
            }
            if door.callers.is_empty() {
                return false;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn door__opens_to_who_knows_its_key() {
        let right = Proof::new([5; 32], NUMBER);
        assert!(try_door(&right, true));
        assert!(!try_door(&right, false));
        assert!(!try_door(&Proof::new([6; 32], NUMBER), true));
        let other = Number { port: 4, ..NUMBER };
        assert!(!try_door(&Proof::new([5; 32], other), true));
    }
}
