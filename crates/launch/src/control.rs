//! The launcher's socket, on which ranks request processes and services while the job runs.
//!
//! Other users cannot connect: the kernel reports the user of each connecting process. An invalid request is answered
//! with an error, and the connection closed. If a container forbids the socket, the job runs without it.

use crate::agent::peers::{AgentListener, NONCE, PROOF_BYTES};
use crate::poll::{self, CLIENTS, CONTROL, Interest, Poller};
use fastpath_job::control::{Answer, Cause, Request, ServiceNames, frame, socket_name, unframe};
use fastpath_job::socket::is_own_user;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

#[derive(Debug, Default)]
pub struct ControlServer {
    listener: Option<UnixListener>,
    door: Option<AgentListener>,
    clients: Vec<Client>,
    pub names: ServiceNames,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientKind {
    Rank,
    /// A caller that has yet to authenticate as an agent, with its nonce.
    Stranger([u8; NONCE]),
    Agent,
    /// An agent of another node, which keeps the connection open while ranks of its node run.
    Staying,
}

#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    who: ClientKind,
    read: Vec<u8>,
}

const STRANGERS_MOST: usize = 64;

impl ControlServer {
    pub fn listen(job_id: u64, poller: &Poller) -> ControlServer {
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
        ControlServer { listener, ..ControlServer::default() }
    }

    /// Accepts agents of other nodes too, on this listener.
    pub fn open_door(&mut self, door: AgentListener, poller: &Poller) {
        for listener in door.listeners() {
            poller.change(listener.as_fd(), CONTROL, Interest::Read);
        }
        self.door = Some(door);
    }

    pub fn staying(&self) -> usize {
        let stays = |client: &&Client| client.who == ClientKind::Staying;
        self.clients.iter().filter(stays).count()
    }

    fn accept_agents(&mut self, poller: &Poller) {
        let Some(door) = &self.door else {
            return;
        };
        let met = door.accept().unwrap_or_else(|_| {
            // Accepting failed, for instance because too many files are open. Stop polling the listeners, so that the
            // loop does not spin. Callers that wait to be accepted end at their time limit.
            for listener in door.listeners() {
                poller.change(listener.as_fd(), CONTROL, Interest::Nothing);
            }
            Vec::new()
        });
        for (socket, nonce) in met {
            let is_stranger = |client: &Client| matches!(client.who, ClientKind::Stranger(_));
            if self.clients.iter().filter(|c| is_stranger(c)).count() >= STRANGERS_MOST
                && let Some(oldest) = self.clients.iter().position(is_stranger)
            {
                let gone = self.clients.remove(oldest);
                poller.change(gone.socket.as_fd(), 0, Interest::Nothing);
            }
            poller.change(socket.as_fd(), CLIENTS, Interest::Read);
            self.clients.push(Client {
                socket,
                who: ClientKind::Stranger(nonce),
                read: Vec::new(),
            });
        }
    }

    pub fn accept(&mut self, poller: &Poller) {
        self.accept_agents(poller);
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((socket, _)) if is_own_user(socket.as_fd()) => {
                    if socket.set_nonblocking(true).is_ok() {
                        poller.change(socket.as_fd(), CLIENTS, Interest::Read);
                        self.clients.push(Client {
                            socket: socket.into(),
                            who: ClientKind::Rank,
                            read: Vec::new(),
                        });
                    }
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Accepting failed: stop polling, so that the loop does not spin. Callers that wait to be accepted end
                // at their time limit.
                Err(_) => {
                    poller.change(listener.as_fd(), CONTROL, Interest::Nothing);
                    self.listener = None;
                }
            }
        }
    }

    /// Reads from the clients, and returns those whose request is complete, with the request.
    pub fn read(&mut self, poller: &Poller) -> Vec<(Client, Option<Request>)> {
        let mut asked = Vec::new();
        let mut at = 0;
        while at < self.clients.len() {
            let state = self.clients[at].read_some(self.door.as_ref());
            match state {
                ClientState::Waits => at += 1,
                ClientState::Asks(request) => {
                    let client = self.clients.swap_remove(at);
                    poller.change(client.socket.as_fd(), 0, Interest::Nothing);
                    asked.push((client, request));
                }
                ClientState::Gone => {
                    let client = self.clients.swap_remove(at);
                    poller.change(client.socket.as_fd(), 0, Interest::Nothing);
                }
            }
        }
        asked
    }

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
            _ => {
                let text = "mpiexec does not know this kind of request; use mpiexec and the \
                            library of the same version";
                Err((Cause::Malformed, text.to_owned()))
            }
        };
        match result {
            Ok(()) => Answer::Done,
            Err((cause, text)) => Answer::refuse(cause, text),
        }
    }
}

enum ClientState {
    Waits,
    Asks(Option<Request>),
    Gone,
}

impl Client {
    pub fn is_agent(&self) -> bool {
        self.who == ClientKind::Agent
    }

    /// Whether the client has closed its end.
    pub fn has_left(&self) -> bool {
        poll::is_hung_up(self.socket.as_fd())
    }

    fn read_some(&mut self, door: Option<&AgentListener>) -> ClientState {
        let mut piece = [0; 4096];
        loop {
            match poll::read(self.socket.as_fd(), &mut piece) {
                Ok(0) => return ClientState::Gone,
                Ok(length) => self.read.extend_from_slice(&piece[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return ClientState::Waits,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return ClientState::Gone,
            }
            if let (ClientKind::Stranger(nonce), Some(door)) = (self.who, door) {
                let Some(proof) = self.read.first_chunk::<PROOF_BYTES>() else {
                    continue;
                };
                // The write does not block: the buffer of a new connection has room for the answer.
                match door.prove(&nonce, proof) {
                    Some(answer) if poll::write(self.socket.as_fd(), &answer).is_ok() => {}
                    _ => return ClientState::Gone,
                }
                self.read.drain(..PROOF_BYTES);
                self.who = ClientKind::Agent;
            }
            if self.who == ClientKind::Staying {
                self.read.clear();
                continue;
            }
            match unframe(&self.read) {
                Ok(Some(message))
                    if self.who == ClientKind::Agent
                        && Request::decode(message) == Some(Request::Stay) =>
                {
                    self.who = ClientKind::Staying;
                    // The write does not block: the buffer of a new connection has room for the answer.
                    let _ = poll::write(self.socket.as_fd(), &frame(&Answer::Done.encode()));
                }
                Ok(None) => {}
                Ok(Some(message)) => return ClientState::Asks(Request::decode(message)),
                Err(_) => return ClientState::Asks(None),
            }
        }
    }

    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Answers and closes the connection. An answer normally fits the socket's buffer. What does not fit is dropped,
    /// because the client does not read.
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
    use fastpath_job::network::proof::Pass;
    use fastpath_job::network::{self, Reach};
    use std::sync::mpsc::TryRecvError;

    #[test]
    fn agent__that_stays_goes_on_when_it_is_counted() {
        let pass = Pass { job_id: 7, secret: [3; 32] };
        let (listener, card) = network::open(&Config::defaults(), Reach::Node, 1).unwrap();
        let poller = poll::tests::poller();
        let mut control = ControlServer::default();
        control.open_door(AgentListener::new(listener, pass, 0), &poller);
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
