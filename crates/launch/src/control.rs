//! The launcher's socket, on which ranks ask for processes and services while the job runs.
//!
//! Other users cannot connect: the kernel says whose process is at the other end. A request that makes no sense is
//! answered so, and the connection closed. Where a container refuses the socket, the job runs without.

use crate::agent::peers::{Door, NONCE, PROOF_BYTES};
use crate::poll::{self, Interest, Poller};
use crate::watch::{CLIENTS, CONTROL};
use fastpath_bootstrap::control::client::is_own_user;
use fastpath_bootstrap::control::{Answer, Cause, Names, Request, frame, socket_name, unframe};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The socket, and what came by it.
#[derive(Debug, Default)]
pub struct Control {
    listener: Option<UnixListener>,
    /// Where agents of other nodes come in.
    door: Option<Door>,
    clients: Vec<Client>,
    /// The services that ranks have published.
    pub names: Names,
}

/// Who has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A rank of this node.
    Rank,
    /// A caller that has to prove that it is an agent, with the nonce it was sent.
    Stranger([u8; NONCE]),
    /// An agent of another node.
    Agent,
    /// The same, and its ranks run.
    Staying,
}

/// A process that has connected.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    who: Who,
    read: Vec<u8>,
}

/// Callers that have not proved who they are, at most; the oldest goes for the next one.
const STRANGERS_MOST: usize = 64;

impl Control {
    /// Listens for the ranks of a job.
    pub fn listen(job_id: u64, poller: &Poller) -> Control {
        let listen = || -> io::Result<UnixListener> {
            let address = SocketAddr::from_abstract_name(socket_name(job_id))?;
            let listener = UnixListener::bind_addr(&address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().ok();
        if let Some(listener) = &listener {
            poller.change(listener.as_fd(), CONTROL, Interest::Read);
        }
        Control { listener, ..Control::default() }
    }

    /// Listens for the agents of other nodes too.
    pub fn open_door(&mut self, door: Door, poller: &Poller) {
        for listener in door.listeners() {
            poller.change(listener.as_fd(), CONTROL, Interest::Read);
        }
        self.door = Some(door);
    }

    /// How many other nodes have ranks that run.
    pub fn staying(&self) -> usize {
        let stays = |client: &&Client| client.who == Who::Staying;
        self.clients.iter().filter(stays).count()
    }

    fn accept_agents(&mut self, poller: &Poller) {
        let Some(door) = &self.door else {
            return;
        };
        let met = door.accept().unwrap_or_else(|_| {
            // As below: who waits hears that nobody answers.
            for listener in door.listeners() {
                poller.change(listener.as_fd(), CONTROL, Interest::Nothing);
            }
            Vec::new()
        });
        for (socket, nonce) in met {
            let is_stranger = |client: &Client| matches!(client.who, Who::Stranger(_));
            if self.clients.iter().filter(|c| is_stranger(c)).count() >= STRANGERS_MOST
                && let Some(oldest) = self.clients.iter().position(is_stranger)
            {
                let gone = self.clients.remove(oldest);
                poller.change(gone.socket.as_fd(), 0, Interest::Nothing);
            }
            poller.change(socket.as_fd(), CLIENTS, Interest::Read);
            self.clients.push(Client { socket, who: Who::Stranger(nonce), read: Vec::new() });
        }
    }

    /// Accepts the connections that wait at the sockets.
    pub fn accept(&mut self, poller: &Poller) {
        self.accept_agents(poller);
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((socket, _)) if is_own_user(socket.as_fd()) => {
                    if socket.set_nonblocking(true).is_ok() {
                        poller.change(socket.as_fd(), CLIENTS, Interest::Read);
                        self.clients.push(Client {
                            socket: socket.into(),
                            who: Who::Rank,
                            read: Vec::new(),
                        });
                    }
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Too many open files, say: who waits hears that nobody answers.
                Err(_) => {
                    poller.change(listener.as_fd(), CONTROL, Interest::Nothing);
                    self.listener = None;
                }
            }
        }
    }

    /// Reads what clients have written; returns those that have asked, with what they ask for.
    pub fn read(&mut self, poller: &Poller) -> Vec<(Client, Option<Request>)> {
        let mut asked = Vec::new();
        let mut at = 0;
        while at < self.clients.len() {
            let state = self.clients[at].read_some(self.door.as_ref());
            match state {
                State::Waits => at += 1,
                State::Asks(request) => {
                    let client = self.clients.swap_remove(at);
                    poller.change(client.socket.as_fd(), 0, Interest::Nothing);
                    asked.push((client, request));
                }
                State::Gone => {
                    let client = self.clients.swap_remove(at);
                    poller.change(client.socket.as_fd(), 0, Interest::Nothing);
                }
            }
        }
        asked
    }

    /// What the launcher can answer by itself: all but a spawn.
    pub fn answer(&mut self, request: &Request) -> Answer {
        let result = match request {
            Request::Forget { owner } => {
                self.names.forget(*owner);
                Ok(())
            }
            Request::Publish { owner, service, port } => self.names.publish(service, port, *owner),
            Request::Unpublish { service, port } => self.names.unpublish(service, port),
            Request::Lookup { service } => match self.names.look_up(service) {
                Ok(port) => {
                    let port = port.to_vec();
                    return Answer::Found { port };
                }
                Err(refused) => Err(refused),
            },
            _ => Err((Cause::Malformed, "this launcher does not support that request".to_owned())),
        };
        match result {
            Ok(()) => Answer::Done,
            Err((cause, text)) => Answer::refuse(cause, text),
        }
    }
}

/// What became of a client.
enum State {
    Waits,
    /// A request; none: one that makes no sense.
    Asks(Option<Request>),
    Gone,
}

impl Client {
    /// Whether it is an agent of another node.
    pub fn is_agent(&self) -> bool {
        self.who == Who::Agent
    }

    /// Whether it waits for an answer no longer.
    pub fn has_left(&self) -> bool {
        poll::is_hung_up(self.socket.as_fd())
    }

    fn read_some(&mut self, door: Option<&Door>) -> State {
        let mut piece = [0; 4096];
        loop {
            match poll::read(self.socket.as_fd(), &mut piece) {
                Ok(0) => return State::Gone,
                Ok(length) => self.read.extend_from_slice(&piece[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return State::Waits,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return State::Gone,
            }
            if let (Who::Stranger(nonce), Some(door)) = (self.who, door) {
                let Some(proof) = self.read.first_chunk::<PROOF_BYTES>() else {
                    continue;
                };
                // An answer of that length finds room in a new connection.
                match door.prove(&nonce, proof) {
                    Some(answer) if poll::write(self.socket.as_fd(), &answer).is_ok() => {}
                    _ => return State::Gone,
                }
                self.read.drain(..PROOF_BYTES);
                self.who = Who::Agent;
            }
            if self.who == Who::Staying {
                self.read.clear();
                continue;
            }
            match unframe(&self.read) {
                Ok(Some(message))
                    if self.who == Who::Agent
                        && Request::decode(message) == Some(Request::Stay) =>
                {
                    self.who = Who::Staying;
                    // An answer of that length finds room in a new connection.
                    let _ = poll::write(self.socket.as_fd(), &frame(&Answer::Done.encode()));
                }
                Ok(None) => {}
                Ok(Some(message)) => return State::Asks(Request::decode(message)),
                Err(_) => return State::Asks(None),
            }
        }
    }

    /// The connection itself.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Answers and closes the connection. An answer fits what the kernel takes at once; a client that does not read is
    /// left without.
    pub fn reply(self, answer: &Answer) {
        let bytes = frame(&answer.encode());
        let mut left = &bytes[..];
        while !left.is_empty() {
            match poll::write(self.socket.as_fd(), left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::agent::peers::Peers;
    use fastpath_base::config::Config;
    use fastpath_bootstrap::network::proof::Pass;
    use fastpath_bootstrap::network::{self, Reach};
    use std::sync::mpsc::TryRecvError;

    #[test]
    fn agent__that_stays_goes_on_when_it_is_counted() {
        let pass = Pass { job_id: 7, secret: [3; 32] };
        let (listener, card) = network::open(&Config::defaults(), Reach::Node, 1).unwrap();
        let poller = poll::tests::poller();
        let mut control = Control::default();
        control.open_door(Door::new(listener, pass, 0), &poller);
        let counted = Peers::new(pass, 1, vec![card]).stay();
        while control.staying() == 0 {
            assert_eq!(counted.try_recv(), Err(TryRecvError::Empty));
            poller.wait(None);
            control.accept(&poller);
            assert!(control.read(&poller).is_empty());
        }
        assert!(counted.recv().is_err());
    }
}
