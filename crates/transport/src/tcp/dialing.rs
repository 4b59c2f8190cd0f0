//! The calls of this process: to which addresses of a peer, and how far each has come.

use super::connect::{Action, DIALS_MOST};
use super::greeting::{HELLO, Said, WELCOME, draw_nonce};
use super::iface::{Core, dial_token};
use super::socket::{Moved, Socket};
use fastpath_base::clock;
use std::net::SocketAddr;

/// Most bytes of what is told of failed calls.
const TOLD_MOST: usize = 400;

/// The calls to one peer.
#[derive(Default)]
pub(super) struct Dialing {
    /// Whether there is something to say to the peer.
    pub wanted: bool,
    addresses: Option<Vec<SocketAddr>>,
    dials: Vec<Option<Dial>>,
    /// What became of those that failed, for people.
    told: String,
}

/// One call.
struct Dial {
    socket: Socket,
    /// What was said, once it is connected.
    hello: Option<[u8; HELLO]>,
    welcome: [u8; WELCOME],
    got: usize,
}

impl Dialing {
    /// Whether the peer has not said yet where it is.
    pub fn awaits_card(&self) -> bool {
        self.wanted && self.addresses.is_none()
    }

    pub fn hang_up(&mut self, dial: usize) {
        if let Some(dial) = self.dials.get_mut(dial) {
            *dial = None;
        }
    }

    fn take(&mut self, dial: usize) -> Option<Dial> {
        self.dials.get_mut(dial)?.take()
    }
}

/// Why a call came to nothing.
struct Missed {
    why: String,
    /// The other end hung up before it answered.
    dropped: bool,
}

impl Missed {
    fn at(why: impl ToString) -> Self {
        Missed {
            why: why.to_string(),
            dropped: false,
        }
    }

    fn dropped(why: impl ToString) -> Self {
        Missed {
            dropped: true,
            ..Missed::at(why)
        }
    }
}

impl Core {
    /// Begins to call a peer that is wanted, as soon as it has said where it is.
    pub fn dial_wanted(&mut self, peer: u32, now_ns: u64) {
        if !self.peer(peer).dialing.awaits_card() {
            return;
        }
        let Some((addresses, host)) = self.domain.find_peer(peer) else {
            return;
        };
        let count = addresses.len().min(DIALS_MOST);
        let mut actions = Vec::new();
        let known = self.peer(peer);
        known.link.borrow_mut().name = format!("rank {peer} on {host}");
        known.dialing.dials.resize_with(count, || None);
        known.dialing.addresses = Some(addresses);
        known.connect.want(count, now_ns, &mut actions);
        self.apply(peer, actions);
    }

    pub fn dial(&mut self, peer: u32, dial: usize, more: &mut Vec<Action>) {
        let epoll = self.domain.epoll.clone();
        let dialing = &mut self.peer(peer).dialing;
        let address = dialing.addresses.as_ref().and_then(|all| all.get(dial));
        let Some(&address) = address else {
            return self.fail_dial(peer, dial, Missed::at("there is no such address"), more);
        };
        let dialled = Socket::dial(address).and_then(|socket| {
            epoll.add(socket.fd(), dial_token(peer, dial), true)?;
            Ok(socket)
        });
        match dialled {
            Ok(socket) => {
                dialing.dials[dial] = Some(Dial {
                    socket,
                    hello: None,
                    welcome: [0; WELCOME],
                    got: 0,
                });
            }
            Err(error) => self.fail_dial(peer, dial, Missed::at(error), more),
        }
    }

    /// A call came to nothing.
    fn fail_dial(&mut self, peer: u32, dial: usize, missed: Missed, more: &mut Vec<Action>) {
        let Missed { why, dropped } = missed;
        self.counters.failed += 1;
        let known = self.peer(peer);
        let dialing = &mut known.dialing;
        dialing.hang_up(dial);
        let address = dialing.addresses.as_ref().and_then(|all| all.get(dial));
        if let Some(address) = address
            && dialing.told.len() < TOLD_MOST
        {
            let comma = if dialing.told.is_empty() { "" } else { ", " };
            dialing.told += &format!("{comma}{address}: {why}");
        }
        match dropped {
            true => known.connect.dropped(dial, clock::now_ns(), more),
            false => known.connect.fail(dial, clock::now_ns(), more),
        }
    }

    /// Something has happened to a call; says whether it led on.
    pub fn handle_dial(&mut self, peer: u32, dial: usize) -> bool {
        let mut actions = Vec::new();
        match self.go_on(peer, dial) {
            Ok(false) => return false,
            Ok(true) => self.peer(peer).connect.welcomed(dial, &mut actions),
            Err(missed) => self.fail_dial(peer, dial, missed, &mut actions),
        }
        self.apply(peer, actions);
        true
    }

    /// Greets where the peer has accepted, and reads its answer; says whether that is a welcome.
    fn go_on(&mut self, peer: u32, dial: usize) -> Result<bool, Missed> {
        let (me, pass, epoll) = (
            self.domain.me,
            self.domain.pass.clone(),
            self.domain.epoll.clone(),
        );
        let dials = &mut self.peer(peer).dialing.dials;
        let Some(Some(call)) = dials.get_mut(dial) else {
            return Ok(false);
        };
        let Some(hello) = call.hello else {
            call.socket.take_error().map_err(Missed::at)?;
            let nonce = draw_nonce().ok_or_else(|| Missed::at("there are no random numbers"))?;
            let hello = pass.hello(me, peer, nonce);
            let Moved::Bytes(HELLO) = call.socket.write(&hello) else {
                return Err(Missed::dropped("the greeting could not be sent"));
            };
            call.hello = Some(hello);
            let watched = epoll.change(call.socket.fd(), dial_token(peer, dial), false);
            watched.map_err(Missed::at)?;
            return Ok(false);
        };
        match call.socket.read(&mut call.welcome[call.got..]) {
            Moved::Bytes(bytes) => call.got += bytes,
            Moved::Later => {}
            Moved::Ended(None) => return Err(Missed::dropped("who answers there hangs up")),
            Moved::Ended(Some(error)) => return Err(Missed::dropped(error)),
        }
        if call.got < WELCOME {
            return Ok(false);
        }
        let said = pass.read_welcome(&hello, &call.welcome);
        match said == Some(Said { from: peer, to: me }) {
            true => Ok(true),
            false => Err(Missed::at("who answers there is not of this job")),
        }
    }

    /// Uses a call that is welcome.
    pub fn confirm(&mut self, peer: u32, dial: usize) {
        let Some(call) = self.peer(peer).dialing.take(dial) else {
            return;
        };
        let Some(hello) = call.hello else { return };
        let confirm = self.domain.pass.confirm(&hello, &call.welcome);
        self.use_socket(peer, call.socket, &confirm);
    }

    /// No address leads to the peer.
    pub fn give_up(&mut self, peer: u32) {
        let known = self.peer(peer);
        let mut link = known.link.borrow_mut();
        // Whoever waits for it asks why.
        link.announce();
        let why = match known.dialing.told.as_str() {
            "" => "it has no address",
            told => told,
        };
        let why = format!("{} cannot be reached: {why}", link.name);
        link.fail(why);
    }
}
