//! Accepts connections, verifies their ranks, uses one connection for each peer. A *stranger* has not proved its rank.

use super::callers::Caller;
use super::connect::ConnectAction;
use super::core::{CALLER, Core, LISTENER};
use super::domain::HelloSender;
use super::greeting::{CONFIRM, HELLO, WELCOME, draw_nonce};
use super::socket::{IoOutcome, Socket};
use fastpath_base::{clock, tell};
use fastpath_segment::Notice;
use std::io;
use std::os::fd::AsFd;

const STRANGERS_MOST: usize = 64;
const ACCEPTS_MOST: usize = 64;
/// Time, in nanoseconds, for which no connection is accepted after the process has run out of descriptors.
const PAUSE_NS: u64 = 100_000_000;

impl Core {
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

    /// Stops accepting for a while, because epoll would report the same waiting connection again and again.
    #[cold]
    fn pause_accepting(&mut self, error: &io::Error) {
        self.watch_listeners(false);
        self.callers.paused_ns = Some(clock::now_ns() + PAUSE_NS);
        if self.domain.job.header().is_first_notice(Notice::Connections) {
            let me = self.domain.me;
            tell!(
                "fastpath: rank {me} cannot accept a TCP connection of another rank yet, and will \
                 try again: {error}"
            );
        }
    }

    pub fn resume_accepting(&mut self, now_ns: u64) {
        if self.callers.paused_ns.is_some_and(|until| until <= now_ns) {
            self.callers.paused_ns = None;
            self.watch_listeners(true);
        }
    }

    fn watch_listeners(&self, read: bool) {
        for listener in self.callers.listeners {
            // After an error the watch is unchanged.
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
            future_rank: None,
            hello: [0; HELLO],
            welcome: None,
            confirm: [0; CONFIRM],
            got: 0,
        };
        self.callers.all.insert(id, caller);
        // The caller's hello has usually arrived already.
        self.handle_caller(id);
    }

    pub fn handle_caller(&mut self, id: u64) -> bool {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return false;
        };
        let known = caller.peer;
        let has_hello = known.is_some() || caller.future_rank.is_some();
        let (word, full) = match (has_hello, caller.welcome) {
            (false, _) => (&mut caller.hello[..], HELLO),
            (true, Some(_)) => (&mut caller.confirm[..], CONFIRM),
            // The caller sends nothing before it gets the answer, so this read only detects the end of the connection.
            (true, None) => (&mut caller.confirm[..1], 1),
        };
        match caller.socket.read(&mut word[caller.got..]) {
            IoOutcome::Bytes(bytes) => caller.got += bytes,
            IoOutcome::Later => return false,
            IoOutcome::Ended(_) => {
                self.lose_caller(id, known);
                return true;
            }
        }
        if caller.got < full {
            return false;
        }
        caller.got = 0;
        match (known, caller.welcome) {
            (None, _) if !has_hello => self.greet_caller(id),
            (Some(peer), Some(_)) => self.check_caller(id, peer),
            _ => self.lose_caller(id, known),
        }
        true
    }

    fn greet_caller(&mut self, id: u64) {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return;
        };
        let (pass, peer) = match self.domain.find_caller(&caller.hello) {
            HelloSender::Rank(pass, peer) => (pass, peer),
            // The dialing rank would regard a closed connection as the end of this process.
            HelloSender::FutureRank(rank) => return caller.future_rank = Some(rank),
            HelloSender::Stranger => return self.lose_caller(id, None),
        };
        (caller.peer, caller.pass, caller.future_rank) = (Some(peer), Some(pass), None);
        self.callers.strangers -= 1;
        let mut actions = Vec::new();
        let now_ns = clock::now_ns();
        self.peer(peer).connect.called(id, now_ns, &mut actions);
        self.apply(peer, actions);
    }

    /// Greets the callers that this host's launcher has added since their hello. Returns whether there are any.
    pub fn greet_added_ranks(&mut self) -> bool {
        if !self.callers.has_future_rank() {
            return false;
        }
        let is_added =
            |caller: &Caller| caller.future_rank.is_some_and(|rank| self.domain.is_present(rank));
        let added: Vec<u64> = self.callers.find(is_added).collect();
        added.iter().for_each(|&id| self.greet_caller(id));
        !added.is_empty()
    }

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

    pub fn welcome_caller(&mut self, id: u64, more: &mut Vec<ConnectAction>) {
        let Some(caller) = self.callers.all.get_mut(&id) else {
            return;
        };
        let me = self.domain.me;
        let answer = |nonce| Some(caller.pass.as_ref()?.welcome(&caller.hello, me, nonce));
        let (welcome, peer) = (draw_nonce().and_then(answer), caller.peer);
        match welcome.map(|welcome| (welcome, caller.socket.write(&welcome))) {
            Some((welcome, IoOutcome::Bytes(WELCOME))) => caller.welcome = Some(welcome),
            _ => {
                self.callers.dismiss(id);
                if let Some(peer) = peer {
                    let now_ns = clock::now_ns();
                    self.peer(peer).connect.caller_gone(id, now_ns, more);
                }
            }
        }
    }

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
