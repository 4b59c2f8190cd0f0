//! Connections that peers have made and that are not used yet.

use super::greeting::{CONFIRM, HELLO, Pass, WELCOME};
use super::socket::{Socket, stop_listening};
use fastpath_base::fd::CheckedFd;
use fastpath_job::network::Listener;
use std::collections::BTreeMap;

pub(super) struct Caller {
    pub socket: Socket,
    pub since_ns: u64,
    pub peer: Option<u32>,
    pub pass: Option<Pass>,
    /// The rank of this job that has sent the hello, if this host's launcher has not added that rank yet.
    pub future_rank: Option<u32>,
    pub hello: [u8; HELLO],
    pub welcome: Option<[u8; WELCOME]>,
    pub confirm: [u8; CONFIRM],
    pub got: usize,
}

pub(super) struct Callers {
    /// Listening sockets; empty once this process accepts no connections.
    pub listeners: &'static [CheckedFd],
    pub all: BTreeMap<u64, Caller>,
    pub strangers: usize,
    pub next: u64,
    /// Time until which no connection is accepted, because an accept failed; `None` if connections are accepted.
    pub paused_ns: Option<u64>,
}

impl Callers {
    pub fn new(listener: &'static Listener) -> Self {
        let listeners = listener.sockets();
        Callers { listeners, all: BTreeMap::new(), strangers: 0, next: 0, paused_ns: None }
    }

    pub fn has_strangers(&self) -> bool {
        self.strangers != 0
    }

    /// Whether a caller is a rank that this host's launcher has not added yet.
    pub fn has_future_rank(&self) -> bool {
        self.strangers != 0 && self.all.values().any(|caller| caller.future_rank.is_some())
    }

    pub fn dismiss(&mut self, id: u64) {
        self.take(id);
    }

    pub fn take(&mut self, id: u64) -> Option<Caller> {
        let caller = self.all.remove(&id)?;
        self.strangers -= usize::from(caller.peer.is_none());
        Some(caller)
    }

    /// Closes connections that have not proved their rank within `most_ns`; returns their number.
    pub fn expire(&mut self, now_ns: u64, most_ns: u64) -> u64 {
        if self.strangers == 0 {
            return 0;
        }
        let is_old = |caller: &Caller| {
            caller.peer.is_none() && now_ns.saturating_sub(caller.since_ns) >= most_ns
        };
        let old: Vec<u64> = self.find(is_old).collect();
        old.iter().for_each(|&id| self.dismiss(id));
        old.len() as u64
    }

    pub fn find(&self, is_wanted: impl Fn(&Caller) -> bool) -> impl Iterator<Item = u64> {
        let found = self.all.iter().filter(move |(_, caller)| is_wanted(caller));
        found.map(|(&id, _)| id)
    }

    pub fn stop(&mut self) {
        std::mem::take(&mut self.listeners).iter().for_each(stop_listening);
        self.all.clear();
        (self.strangers, self.paused_ns) = (0, None);
    }
}
