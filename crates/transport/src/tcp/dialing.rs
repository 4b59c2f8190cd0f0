//! The calls of this process: to which addresses of a peer, and how far each has come.

use super::connect::{Action, DIALS_MOST};
use super::greeting::{HELLO, Pass, Said, WELCOME, draw_nonce};
use super::iface::{Core, dial_token};
use super::socket::{Moved, Socket};
use fastpath_base::clock;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// Most bytes of what is told of failed calls.
const TOLD_MOST: usize = 400;
/// Nanoseconds between two questions whether a peer is still there, at first and at most.
const ASK_FIRST_NS: u64 = 500_000_000;
const ASK_LAST_NS: u64 = 30_000_000_000;

/// The calls to one peer.
#[derive(Default)]
pub(super) struct Dialing {
    /// Whether there is something to say to the peer, or to be learnt of it.
    pub wanted: bool,
    /// Whether it is only to be learnt whether the peer is still there ([`Core::ask_after`]).
    pub asks: bool,
    /// When that may be asked next, and how long after that again.
    ask_due_ns: u64,
    ask_apart_ns: u64,
    addresses: Option<Vec<SocketAddr>>,
    dials: Vec<Option<Dial>>,
    /// What became of those that failed, for people.
    told: String,
    /// The addresses at which nobody listens, as their host says, and those that no way leads to: a bit for each.
    refused: u32,
    unroutable: u32,
}

/// One call.
struct Dial {
    socket: Socket,
    /// What was said, once it is connected, and by what this process proves itself.
    hello: Option<([u8; HELLO], Pass)>,
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

    /// Whether the peer's host says that the peer does not listen any more: it does from before its address is told
    /// until it leaves the job. Addresses that this host has too, as those of bridges, may lead back to it, and say
    /// nothing.
    fn proves_gone(&self, is_own: impl Fn(&SocketAddr) -> bool) -> bool {
        let addresses = self.addresses.iter().flatten().take(DIALS_MOST).enumerate();
        let others = addresses.filter(|(_, at)| !is_own(at));
        let others = others.fold(0, |bits, (dial, _)| bits | 1_u32 << dial);
        self.refused & others != 0 && others & !(self.refused | self.unroutable) == 0
    }

    /// What was asked got no answer that says anything; it may be asked again, and later each time.
    fn forget(&mut self) {
        *self = Dialing {
            ask_due_ns: self.ask_due_ns,
            ask_apart_ns: self.ask_apart_ns,
            ..Dialing::default()
        };
    }
}

/// Why a call came to nothing.
struct Missed {
    why: String,
    kind: ErrorKind,
    /// The other end hung up before it answered.
    dropped: bool,
}

impl Missed {
    fn at(why: impl ToString) -> Self {
        Missed { why: why.to_string(), kind: ErrorKind::Other, dropped: false }
    }

    fn by(error: &io::Error) -> Self {
        Missed { kind: error.kind(), ..Missed::at(error) }
    }

    fn dropped(why: impl ToString) -> Self {
        Missed { dropped: true, ..Missed::at(why) }
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
        let name = self.domain.name_peer(peer, &host);
        let known = self.peer(peer);
        known.link.borrow_mut().name = name;
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
                dialing.dials[dial] =
                    Some(Dial { socket, hello: None, welcome: [0; WELCOME], got: 0 });
            }
            Err(error) => self.fail_dial(peer, dial, Missed::by(&error), more),
        }
    }

    /// A call came to nothing.
    fn fail_dial(&mut self, peer: u32, dial: usize, missed: Missed, more: &mut Vec<Action>) {
        let Missed { why, kind, dropped } = missed;
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
        let (me, epoll) = (self.domain.me, self.domain.epoll.clone());
        let there = self.domain.job.origin(peer as usize).rank;
        let pass = self.domain.pass_to(peer);
        let dials = &mut self.peer(peer).dialing.dials;
        let Some(Some(call)) = dials.get_mut(dial) else {
            return Ok(false);
        };
        let Some((hello, pass)) = &call.hello else {
            let connected = call.socket.take_error();
            connected.map_err(|error| Missed::by(&error))?;
            let nonce = draw_nonce().ok_or_else(|| Missed::at("there are no random numbers"))?;
            let pass = pass.ok_or_else(|| Missed::at("it has published no secret"))?;
            let hello = pass.hello(me, there, nonce);
            let Moved::Bytes(HELLO) = call.socket.write(&hello) else {
                return Err(Missed::dropped("the greeting could not be sent"));
            };
            call.hello = Some((hello, pass));
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
        let said = pass.read_welcome(hello, &call.welcome);
        let wanted = Said { from: there, to: me };
        match said == Some(wanted) {
            true => Ok(true),
            false => Err(Missed::at("who answers there is somebody else")),
        }
    }

    /// Uses a call that is welcome.
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

    /// Called when a wait for `peer` has lasted a while: without a connection, makes one, so that the peer's end shows
    /// or its host says that it has left. Returns when to ask again; `None` once a connection is made or wanted.
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

    /// No address leads to the peer.
    pub fn give_up(&mut self, peer: u32) {
        let gone = match self.peers.get(&peer) {
            // Two jobs on one host are reached by its own addresses, and there is no other way.
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn gone__is_who_is_refused_by_its_own_host_at_every_address() {
        let at = |last| SocketAddr::new([10, 0, 0, last].into(), 7);
        // Whether the peer's addresses are this host's too; which refuse, and to which no way leads; what it proves.
        let cases = [
            (&[false][..], 0b1, 0b0, true),
            (&[false], 0b0, 0b0, false),
            (&[false], 0b0, 0b1, false),
            (&[false, false], 0b01, 0b00, false),
            (&[false, false], 0b01, 0b10, true),
            (&[false, false], 0b11, 0b00, true),
            (&[false, true], 0b10, 0b00, false),
            (&[false, true], 0b10, 0b01, false),
            (&[false, true], 0b01, 0b00, true),
            (&[true, true], 0b11, 0b00, false),
            (&[], 0b0, 0b0, false),
        ];
        for (own, refused, unroutable, gone) in cases {
            let addresses: Vec<_> = (0..own.len()).map(|i| at(i as u8)).collect();
            let is_own =
                |one: &SocketAddr| addresses.iter().position(|at| at == one).map(|i| own[i]);
            let dialing = Dialing {
                addresses: Some(addresses.clone()),
                refused,
                unroutable,
                ..Dialing::default()
            };
            let proved = dialing.proves_gone(|one| is_own(one).unwrap());
            assert_eq!(proved, gone, "{own:?} {refused:b} {unroutable:b}");
        }
    }
}
