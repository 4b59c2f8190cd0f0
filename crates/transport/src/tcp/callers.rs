//! Connections that others have made to this process, until they have said who they are and one is used.

use super::connect::Action;
use super::greeting::{CONFIRM, HELLO, Pass, WELCOME, draw_nonce};
use super::iface::{CALLER, Core, Counters, LISTENER};
use super::socket::{Moved, Socket};
use fastpath_base::fd::CheckedFd;
use fastpath_base::{clock, tell};
use fastpath_bootstrap::network::Listener;
use fastpath_bootstrap::segment::Notice;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

/// Connections at once whose maker has not said who it is; the oldest goes for the next one.
const STRANGERS_MOST: usize = 64;
/// Connections accepted in one round, so that a flood of them leaves time for messages.
const ACCEPTS_MOST: usize = 64;
/// Nanoseconds until it is tried again to accept, where the process has no descriptor left.
const PAUSE_NS: u64 = 100_000_000;

/// A connection that somebody has made.
struct Caller {
    socket: Socket,
    since_ns: u64,
    /// Which rank it is, once it has proved that, and by what.
    peer: Option<u32>,
    pass: Option<Pass>,
    hello: [u8; HELLO],
    /// What was answered.
    welcome: Option<[u8; WELCOME]>,
    confirm: [u8; CONFIRM],
    /// Bytes of the word that is awaited.
    got: usize,
}

/// Those connections.
pub(super) struct Callers {
    /// Listening sockets; empty once this process accepts no connection any more.
    listeners: &'static [CheckedFd],
    all: BTreeMap<u64, Caller>,
    strangers: usize,
    next: u64,
    /// Until when nobody is accepted, since that failed.
    paused_ns: Option<u64>,
}

impl Callers {
    pub fn new(listener: &'static Listener) -> Self {
        let listeners = listener.sockets();
        Callers { listeners, all: BTreeMap::new(), strangers: 0, next: 0, paused_ns: None }
    }

    /// Until when nobody is accepted, since that failed.
    pub fn paused_ns(&self) -> Option<u64> {
        self.paused_ns
    }

    /// Whether some have not said who they are.
    pub fn has_strangers(&self) -> bool {
        self.strangers != 0
    }

    /// Closes a connection.
    pub fn dismiss(&mut self, id: u64) {
        self.take(id);
    }

    fn take(&mut self, id: u64) -> Option<Caller> {
        let caller = self.all.remove(&id)?;
        self.strangers -= usize::from(caller.peer.is_none());
        Some(caller)
    }

    /// Closes those of strangers who have had their time.
    pub fn expire(&mut self, now_ns: u64, most_ns: u64, counters: &mut Counters) {
        if self.strangers == 0 {
            return;
        }
        let old = |caller: &Caller| {
            caller.peer.is_none() && now_ns.saturating_sub(caller.since_ns) >= most_ns
        };
        let old: Vec<u64> = self.find(old).collect();
        counters.strangers += old.len() as u64;
        old.into_iter().for_each(|id| self.dismiss(id));
    }

    fn find(&self, is_wanted: impl Fn(&Caller) -> bool) -> impl Iterator<Item = u64> {
        let found = self.all.iter().filter(move |(_, caller)| is_wanted(caller));
        found.map(|(&id, _)| id)
    }

    /// Nobody can connect any more, and who has not been answered is hung up on.
    pub fn stop(&mut self) {
        std::mem::take(&mut self.listeners).iter().for_each(super::socket::stop_listening);
        self.all.clear();
        (self.strangers, self.paused_ns) = (0, None);
    }
}

impl Core {
    /// Takes the connections that wait at the listening sockets.
    pub fn accept_callers(&mut self) -> bool {
        let mut any = false;
        for listener in self.callers.listeners {
            for _ in 0..ACCEPTS_MOST {
                let accepted = listener.get().map_err(io::Error::from);
                let accepted = accepted.and_then(|listener| Socket::accept(listener.as_fd()));
                match accepted {
                    Ok(Some(socket)) => self.add_caller(socket),
                    Ok(None) => break,
                    Err(error) => {
                        self.pause_accepting(&error);
                        return any;
                    }
                }
                any = true;
            }
        }
        any
    }

    /// Takes nobody for a while: who waits would be told of again and again.
    #[cold]
    fn pause_accepting(&mut self, error: &io::Error) {
        self.watch_listeners(false);
        self.callers.paused_ns = Some(clock::now_ns() + PAUSE_NS);
        if self.domain.job.header().is_first_notice(Notice::Connections) {
            let me = self.domain.me;
            tell!("fastpath: rank {me}: a connection cannot be accepted for now: {error}");
        }
    }

    /// Takes connections again, once that is due.
    pub fn resume_accepting(&mut self, now_ns: u64) {
        if self.callers.paused_ns.is_some_and(|until| until <= now_ns) {
            self.callers.paused_ns = None;
            self.watch_listeners(true);
        }
    }

    fn watch_listeners(&self, read: bool) {
        for listener in self.callers.listeners {
            // Where the kernel refuses, things stay as they are.
            let _ = self.domain.epoll.set_reading(listener.number_unchecked(), LISTENER, read);
        }
    }

    fn add_caller(&mut self, socket: Socket) {
        if self.callers.strangers >= STRANGERS_MOST {
            let oldest = self.callers.find(|caller| caller.peer.is_none()).next();
            if let Some(oldest) = oldest {
                self.callers.dismiss(oldest);
                self.counters.strangers += 1;
            }
        }
        let id = self.callers.next;
        if self.domain.epoll.add(socket.fd(), CALLER | id, false).is_err() {
            return;
        }
        self.callers.next += 1;
        self.callers.strangers += 1;
        let caller = Caller {
            socket,
            since_ns: clock::now_ns(),
            peer: None,
            pass: None,
            hello: [0; HELLO],
            welcome: None,
            confirm: [0; CONFIRM],
            got: 0,
        };
        self.callers.all.insert(id, caller);
        // Its first word is there already, most often.
        self.handle_caller(id);
    }

    /// Something has come from a caller; says whether it led on.
    pub fn handle_caller(&mut self, id: u64) -> bool {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return false;
        };
        let known = caller.peer;
        let (word, full) = match (caller.peer, caller.welcome) {
            (None, _) => (&mut caller.hello[..], HELLO),
            (Some(_), Some(_)) => (&mut caller.confirm[..], CONFIRM),
            // Nothing may come before the answer; its end shows so.
            (Some(_), None) => (&mut caller.confirm[..1], 1),
        };
        match caller.socket.read(&mut word[caller.got..]) {
            Moved::Bytes(bytes) => caller.got += bytes,
            Moved::Later => return false,
            Moved::Ended(_) => {
                self.lose_caller(id, known);
                return true;
            }
        }
        if caller.got < full {
            return false;
        }
        caller.got = 0;
        match (known, caller.welcome) {
            (None, _) => self.greet_caller(id),
            (Some(peer), Some(_)) => self.check_caller(id, peer),
            (Some(_), None) => self.lose_caller(id, known),
        }
        true
    }

    /// A caller has said its first word.
    fn greet_caller(&mut self, id: u64) {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return;
        };
        let Some((pass, peer)) = self.domain.find_caller(&caller.hello) else {
            return self.lose_caller(id, None);
        };
        (caller.peer, caller.pass) = (Some(peer), Some(pass));
        self.callers.strangers -= 1;
        let mut actions = Vec::new();
        let now_ns = clock::now_ns();
        self.peer(peer).connect.called(id, now_ns, &mut actions);
        self.apply(peer, actions);
    }

    /// A caller has said its last word before its messages.
    fn check_caller(&mut self, id: u64, peer: u32) {
        let Some(caller) = self.callers.all.get(&id) else {
            return;
        };
        let (Some(welcome), Some(pass)) = (&caller.welcome, &caller.pass) else {
            return;
        };
        if !pass.is_confirm(&caller.hello, welcome, &caller.confirm) {
            self.counters.strangers += 1;
            return self.lose_caller(id, Some(peer));
        }
        let mut actions = Vec::new();
        self.peer(peer).connect.confirmed(id, &mut actions);
        self.apply(peer, actions);
    }

    fn lose_caller(&mut self, id: u64, peer: Option<u32>) {
        self.callers.dismiss(id);
        match peer {
            None => self.counters.strangers += 1,
            Some(peer) => {
                let mut actions = Vec::new();
                let now_ns = clock::now_ns();
                self.peer(peer).connect.caller_gone(id, now_ns, &mut actions);
                self.apply(peer, actions);
            }
        }
    }

    pub fn welcome_caller(&mut self, id: u64, more: &mut Vec<Action>) {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return;
        };
        let me = self.domain.me;
        let answer = |nonce| Some(caller.pass.as_ref()?.welcome(&caller.hello, me, nonce));
        let (welcome, peer) = (draw_nonce().and_then(answer), caller.peer);
        match welcome.map(|welcome| (welcome, caller.socket.write(&welcome))) {
            Some((welcome, Moved::Bytes(WELCOME))) => caller.welcome = Some(welcome),
            _ => {
                self.callers.dismiss(id);
                if let Some(peer) = peer {
                    let now_ns = clock::now_ns();
                    self.peer(peer).connect.caller_gone(id, now_ns, more);
                }
            }
        }
    }

    /// Uses a connection that its caller has confirmed.
    pub fn adopt(&mut self, peer: u32, id: u64) {
        let Some(caller) = self.callers.take(id) else {
            return;
        };
        self.counters.accepted += 1;
        if let Some((_, host)) = self.domain.find_peer(peer) {
            let name = self.domain.name_peer(peer, &host);
            self.peer(peer).link.borrow_mut().name = name;
        }
        self.use_socket(peer, caller.socket, &[]);
    }
}
