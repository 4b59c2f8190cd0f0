//! Dials of this process: addresses of a peer, and the state of each dial.

use super::connect::{ConnectAction, DIALS_MOST};
use super::core::{Core, dial_token};
use super::dials::{Dial, DialError};
use super::greeting::{HELLO, VerifiedGreeting, WELCOME, draw_nonce};
use super::socket::{IoOutcome, Socket};
use fastpath_base::clock;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum length, in bytes, of the text about failed dials.
const TOLD_MOST: usize = 400;
/// First and longest interval between two checks of a peer, in nanoseconds.
const ASK_FIRST_NS: u64 = 500_000_000;
const ASK_LAST_NS: u64 = 30_000_000_000;

impl Core {
    pub fn dial_wanted(&mut self, peer: u32, now_ns: u64) {
        if !self.peer(peer).dialing.awaits_card() {
            return;
        }
        let Some((addresses, host)) = self.domain.find_peer(peer) else {
            return;
        };
        let count = addresses.len().min(DIALS_MOST);
        let mut actions = Vec::new();
        let name = self.domain.name_peer(peer, &host);
        let known = self.peer(peer);
        known.link.borrow_mut().name = name;
        known.dialing.dials.resize_with(count, || None);
        known.dialing.addresses = Some(addresses);
        known.connect.want(count, now_ns, &mut actions);
        self.apply(peer, actions);
    }

    pub fn dial(&mut self, peer: u32, dial: usize, more: &mut Vec<ConnectAction>) {
        let epoll = self.domain.epoll.clone();
        let dialing = &mut self.peer(peer).dialing;
        let address = dialing.addresses.as_ref().and_then(|all| all.get(dial));
        let Some(&address) = address else {
            return self.fail_dial(peer, dial, DialError::at("the peer has no such address"), more);
        };
        let dialled = Socket::dial(address).and_then(|socket| {
            epoll.add(socket.fd(), dial_token(peer, dial), true)?;
            Ok(socket)
        });
        match dialled {
            Ok(socket) => {
                dialing.dials[dial] =
                    Some(Dial { socket, hello: None, welcome: [0; WELCOME], got: 0 });
            }
            Err(error) => self.fail_dial(peer, dial, DialError::by(&error), more),
        }
    }

    fn fail_dial(
        &mut self, peer: u32, dial: usize, missed: DialError, more: &mut Vec<ConnectAction>,
    ) {
        let DialError { why, kind, dropped } = missed;
        self.counters.failed += 1;
        let known = self.peer(peer);
        let dialing = &mut known.dialing;
        dialing.hang_up(dial);
        match kind {
            ErrorKind::ConnectionRefused => dialing.refused |= 1 << dial,
            ErrorKind::NetworkUnreachable => dialing.unroutable |= 1 << dial,
            _ => {}
        }
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

    /// Sends a hello on an accepted dial, or reads the answer; returns whether the answer is a welcome.
    fn go_on(&mut self, peer: u32, dial: usize) -> Result<bool, DialError> {
        let (me, epoll) = (self.domain.me, self.domain.epoll.clone());
        let there = self.domain.job.origin(peer as usize).rank;
        let pass = self.domain.pass_to(peer);
        let dials = &mut self.peer(peer).dialing.dials;
        let Some(Some(call)) = dials.get_mut(dial) else {
            return Ok(false);
        };
        let Some((hello, pass)) = &call.hello else {
            let connected = call.socket.take_error();
            connected.map_err(|error| DialError::by(&error))?;
            let nonce =
                draw_nonce().ok_or_else(|| DialError::at("the system gave no random numbers"))?;
            let pass = pass.ok_or_else(|| DialError::at("the peer has published no secret"))?;
            let hello = pass.hello(me, there, nonce);
            let IoOutcome::Bytes(HELLO) = call.socket.write(&hello) else {
                return Err(DialError::dropped(
                    "the connection ended before this rank's greeting was sent",
                ));
            };
            call.hello = Some((hello, pass));
            let watched = epoll.change(call.socket.fd(), dial_token(peer, dial), false);
            watched.map_err(DialError::at)?;
            return Ok(false);
        };
        match call.socket.read(&mut call.welcome[call.got..]) {
            IoOutcome::Bytes(bytes) => call.got += bytes,
            IoOutcome::Later => {}
            IoOutcome::Ended(None) => {
                return Err(DialError::dropped(
                    "the process at this address closed the connection",
                ));
            }
            IoOutcome::Ended(Some(error)) => return Err(DialError::dropped(error)),
        }
        if call.got < WELCOME {
            return Ok(false);
        }
        let said = pass.read_welcome(hello, &call.welcome);
        let wanted = VerifiedGreeting { from: there, to: me };
        match said == Some(wanted) {
            true => Ok(true),
            false => Err(DialError::at("another process listens at this address")),
        }
    }

    pub fn confirm(&mut self, peer: u32, dial: usize) {
        let Some(call) = self.peer(peer).dialing.take(dial) else {
            return;
        };
        let Some((hello, pass)) = call.hello else {
            return;
        };
        let confirm = pass.confirm(&hello, &call.welcome);
        self.use_socket(peer, call.socket, &confirm);
    }

    /// Checks whether `peer` is still there, after a wait for it has lasted a while. Without a connection, this side
    /// dials: either the peer accepts the dial, or its host reports that the peer has left. Returns when to check
    /// again; `None` once a connection exists or is requested.
    pub fn ask_after(&mut self, peer: u32, now_ns: u64) -> Option<Duration> {
        let known = self.peer(peer);
        if known.connect.is_settled() || known.dialing.wanted {
            return None;
        }
        let dialing = &mut known.dialing;
        if now_ns >= dialing.ask_due_ns {
            let apart_ns = (2 * dialing.ask_apart_ns).clamp(ASK_FIRST_NS, ASK_LAST_NS);
            (dialing.ask_apart_ns, dialing.ask_due_ns) = (apart_ns, now_ns + apart_ns);
            if self.domain.find_peer(peer).is_some() {
                self.peer(peer).dialing.asks = true;
                self.begin_calling(peer);
            }
        }
        let dialing = &self.peer(peer).dialing;
        let nap = Duration::from_nanos(dialing.ask_due_ns.saturating_sub(now_ns));
        (!dialing.wanted).then_some(nap)
    }

    pub fn give_up(&mut self, peer: u32) {
        let gone = match self.peers.get(&peer) {
            // Within a job, a dial to an address that this host also has may lead back to this host, and proves
            // nothing. Between two jobs on one host such addresses count, because they may be the peer's.
            Some(known) => {
                let is_foreign = self.domain.job.is_foreign(peer as usize);
                let leads_back = |at: &SocketAddr| !is_foreign && self.domain.is_own(at.ip());
                known.dialing.proves_gone(leads_back)
            }
            None => false,
        };
        let known = self.peer(peer);
        if gone {
            let mut link = known.link.borrow_mut();
            link.announce();
            return link.close();
        }
        if known.dialing.asks {
            known.dialing.forget();
            return known.connect.forget();
        }
        let mut link = known.link.borrow_mut();
        // Announce the peer, so that a waiting rank learns why it is unreachable.
        link.announce();
        let why = match known.dialing.told.as_str() {
            "" => "the rank has published no address",
            told => told,
        };
        let why = format!("{} cannot be reached: {why}", link.name);
        link.fail(why);
    }
}
