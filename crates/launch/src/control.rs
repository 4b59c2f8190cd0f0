//! The launcher's socket, on which ranks ask for processes and services while the job runs.
//!
//! Nobody else can come in: the kernel tells whose process is at the other end. A request that makes no sense is
//! answered so, and the connection closed. Where a container refuses the socket, the job runs without.

use crate::poll::{self, Interest, Poller};
use crate::watch::{CLIENTS, CONTROL};
use fastpath_bootstrap::control::client::is_own_user;
use fastpath_bootstrap::control::{Answer, Cause, Names, Request, frame, socket_name, unframe};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// The socket, and what came by it.
#[derive(Debug, Default)]
pub struct Control {
    listener: Option<UnixListener>,
    clients: Vec<Client>,
    /// The services that ranks have published.
    pub names: Names,
}

/// A rank that has connected.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    read: Vec<u8>,
}

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
        Control {
            listener,
            ..Control::default()
        }
    }

    /// Lets in who waits at the socket.
    pub fn accept(&mut self, poller: &Poller) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((socket, _)) if is_own_user(socket.as_fd()) => {
                    if socket.set_nonblocking(true).is_ok() {
                        poller.change(socket.as_fd(), CLIENTS, Interest::Read);
                        let read = Vec::new();
                        self.clients.push(Client { socket, read });
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
            let state = self.clients[at].read_some();
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
            Request::Spawn { .. } => Err((Cause::Malformed, "nothing to start".to_owned())),
            Request::Publish {
                owner,
                service,
                port,
            } => self.names.publish(service, port, *owner),
            Request::Unpublish { service, port } => self.names.unpublish(service, port),
            Request::Lookup { service } => match self.names.look_up(service) {
                Ok(port) => {
                    let port = port.to_vec();
                    return Answer::Found { port };
                }
                Err(refused) => Err(refused),
            },
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
    fn read_some(&mut self) -> State {
        let mut piece = [0; 16 << 10];
        loop {
            match poll::read(self.socket.as_fd(), &mut piece) {
                Ok(0) => return State::Gone,
                Ok(length) => self.read.extend_from_slice(&piece[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return State::Waits,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return State::Gone,
            }
            match unframe(&self.read) {
                Ok(None) => {}
                Ok(Some(message)) => return State::Asks(Request::decode(message)),
                Err(_) => return State::Asks(None),
            }
        }
    }

    /// Answers and closes the connection. An answer fits what the kernel takes at once; a client that does not read is
    /// left without.
    pub fn reply(mut self, answer: &Answer) {
        let _ = self.socket.write_all(&frame(&answer.encode()));
    }
}
