//! Peers reached by sockets, and the wire-up between nodes.

use super::Interfaces;
use super::counts::TransportCounts;
use crate::allowed::is_listed;
use crate::contract::Address;
use crate::tcp::{self, TcpIface, WireupHead};
use fastpath_base::clock;
use fastpath_base::config::Config;
use fastpath_base::sync::Ordering;
use fastpath_base::wait;
use fastpath_job::network::{NetworkCard, Reach};
use fastpath_segment::RankPhase;
use std::collections::BTreeMap;
use std::time::Duration;

const INTRODUCTION: u8 = 0;

/// Peers that the adapter does not reach: `why` holds the causes, `untold` the peers not yet reported.
#[derive(Debug, Default)]
pub(super) struct WithoutAdapter {
    why: BTreeMap<u32, String>,
    untold: Vec<u32>,
}

impl WithoutAdapter {
    pub fn has(&self, peer: u32) -> bool {
        self.why.contains_key(&peer)
    }

    pub fn is_empty(&self) -> bool {
        self.why.is_empty()
    }

    pub fn counts(&self) -> Option<TransportCounts> {
        let why = self.why.values().next()?;
        let pairs = match self.why.len() {
            1 => "1 pair communicates".to_owned(),
            n => format!("{n} pairs communicate"),
        };
        Some(TransportCounts {
            of: "without adapter",
            text: format!("{pairs} without the adapter: {why}"),
            numbers: vec![("pairs", self.why.len() as u64)],
        })
    }

    fn leave_out(&mut self, peer: u32) {
        let why = || format!("rank {peer} is of another job");
        self.why.entry(peer).or_insert_with(why);
    }

    fn note(&mut self, peer: u32, why: impl FnOnce() -> String) {
        if !self.has(peer) {
            self.why.insert(peer, why());
            self.untold.push(peer);
        }
    }
}

/// Peers on other nodes. If both ranks of a pair use the same adapter transport, the adapter carries messages, and a
/// socket carries the wire-up. Otherwise the socket carries the messages.
impl Interfaces {
    /// Whether this process and a peer wire up through a socket: they share no memory, or this process uses no adapter.
    pub(super) fn meets_by_network(&self, peer: u32) -> bool {
        let apart = self.adapter.is_none() || !self.domain.job.is_node_peer(peer as usize);
        self.tcp.is_some() && self.is_outside(peer) && apart
    }

    /// Whether the adapter has no lane to a peer, so that a request for such a lane is refused.
    pub fn refuses_adapter(&self, peer: u32) -> bool {
        self.meets_by_network(peer) && (self.adapter.is_none() || self.without_adapter.has(peer))
    }

    /// Takes a peer that the adapter does not reach; `None` if there is none. Each peer is returned once.
    pub fn take_without_adapter(&mut self) -> Option<u32> {
        self.without_adapter.untold.pop()
    }

    /// Excludes a peer from the adapter, so that a new lane uses sockets. Returns false if it has no other transport.
    pub fn leave_adapter(&mut self, peer: u32) -> bool {
        if !self.meets_by_network(peer) {
            return false;
        }
        let why = || format!("the adapters of this rank and of rank {peer} could not be connected");
        self.without_adapter.note(peer, why);
        self.without_adapter.untold.retain(|&untold| untold != peer);
        self.allowed.fall_back
    }

    /// Closes the socket of a peer that has reported a failure, and fails all operations that wait for it.
    pub fn hang_up(&mut self, peer: u32) {
        if let Some(tcp) = &mut self.tcp {
            tcp.hang_up(peer);
        }
    }

    /// Reason, for messages, why `peer` is unreachable. `None` if it is reachable, or if its lane has the reason.
    pub fn failure(&self, peer: u32) -> Option<String> {
        let tcp = self.tcp.as_ref()?;
        tcp.failure(peer).or_else(|| match self.allowed.fall_back {
            false => self.without_adapter.why.get(&peer).cloned(),
            true => None,
        })
    }

    fn number_adapter(&self) -> u8 {
        let by = self.adapter.as_ref().map(|(adapter, _)| adapter.by());
        by.map_or(0, |by| by as u8 + 1)
    }

    pub(super) fn send_wireup_by_network(&mut self, peer: u32, step: u8, address: Address) -> bool {
        let by = match self.without_adapter.has(peer) {
            true => 0,
            false => self.number_adapter(),
        };
        let Some(tcp) = &mut self.tcp else {
            return true;
        };
        let mut also = false;
        if let Some((adapter, _)) = self.adapter.as_mut().filter(|_| by != 0)
            && let Some((ud, addresses)) = adapter.datagrams()
        {
            let meeting = self.meetings.entry(peer).or_default();
            // A datagram that the adapter refuses counts as lost.
            also = addresses.find(peer).is_some();
            addresses.send(ud, peer, step, address);
            meeting.waiting = (!also).then_some((step, address));
            if !meeting.is_told {
                let head = WireupHead::plain(INTRODUCTION, by);
                meeting.is_told = tcp.send_wireup(peer, head, addresses.own());
            }
        }
        let meeting = self.meetings.entry(peer).or_default();
        let alone = (!also).then_some(step);
        if alone.is_some() && meeting.sent == alone {
            return true;
        }
        let sent = tcp.send_wireup(peer, WireupHead { step, by, also }, address);
        meeting.sent = alone.filter(|_| sent);
        sent
    }

    pub(super) fn receive_wireup_by_network(&mut self) -> Option<(u32, u8, Address)> {
        loop {
            let (peer, head, address) = self.tcp.as_mut()?.receive_wireup()?;
            let own = self.number_adapter();
            if own != 0 && head.by != own {
                self.without_adapter.note(peer, || match head.by {
                    0 => format!("rank {peer} has no usable adapter"),
                    _ => format!(
                        "rank {peer} uses other transports of its adapter than this rank: set \
                         FASTPATH_TRANSPORTS to the same value on all ranks"
                    ),
                });
            }
            let is_refused = self.refuses_adapter(peer);
            let adapter = self.adapter.as_mut().filter(|_| !is_refused);
            let Some((ud, addresses)) = adapter.and_then(|(adapter, _)| adapter.datagrams()) else {
                match head.step {
                    INTRODUCTION => continue,
                    step => return Some((peer, step, address)),
                }
            };
            let meeting = self.meetings.entry(peer).or_default();
            if head.step == INTRODUCTION {
                addresses.learn(peer, address);
                self.answer_introduction(peer);
                continue;
            }
            if meeting.is_vain(head.also, clock::now_ns()) {
                // First process datagrams that arrived while this process computed, because they prove the path.
                ud.progress();
                if !ud.has_wireup_datagrams() {
                    let why = || {
                        format!(
                            "packets from the adapter of rank {peer} do not reach this rank's \
                             adapter"
                        )
                    };
                    self.without_adapter.note(peer, why);
                    return Some((peer, head.step, address));
                }
            }
        }
    }

    fn answer_introduction(&mut self, peer: u32) {
        let by = self.number_adapter();
        let meeting = self.meetings.entry(peer).or_default();
        let waiting = meeting.waiting.take();
        let adapter = self.adapter.as_mut().and_then(|(adapter, _)| adapter.datagrams());
        if let (false, Some(tcp), Some((_, addresses))) = (meeting.is_told, &mut self.tcp, adapter)
        {
            let head = WireupHead::plain(INTRODUCTION, by);
            meeting.is_told = tcp.send_wireup(peer, head, addresses.own());
        }
        if let Some((step, address)) = waiting {
            self.send_wireup_by_network(peer, step, address);
        }
    }

    pub(super) fn note_datagram(&mut self, peer: u32) {
        if self.meets_by_network(peer) {
            self.meetings.entry(peer).or_default().is_proven = true;
        }
    }

    pub(super) fn accept_network(&mut self, found: &mut impl FnMut(u32)) {
        let Some(tcp) = &mut self.tcp else {
            return;
        };
        if self.adapter.is_none() {
            return tcp.accept(found);
        }
        let mut all = Vec::new();
        tcp.accept(|peer| all.push(peer));
        for peer in all {
            if !self.without_adapter.has(peer) && !tcp.has_message(peer) {
                continue;
            }
            // A peer that sends messages through a socket has no other transport.
            let why = || format!("rank {peer} has no usable adapter");
            self.without_adapter.note(peer, why);
            found(peer);
        }
    }
}

impl Interfaces {
    pub(crate) fn note_no_adapter(&mut self, why: String) {
        self.no_adapter = Some(why);
    }

    /// Opens sockets for peers on other hosts, and for all peers if shared memory is not permitted. Set
    /// [`Interfaces::allowed`] before.
    ///
    /// # Errors
    /// Message with cause and remedy.
    pub fn open_tcp(&mut self, config: &Config) -> Result<(), String> {
        self.domain.job.open_network(config)?;
        self.listen(config)
    }

    /// Listens for ranks of other jobs, which only sockets reach. Returns this process's network address.
    ///
    /// # Errors
    /// An error of [`Interfaces::open_tcp`], or `FASTPATH_TRANSPORTS` does not list tcp.
    pub fn open_for_foreign(&mut self, config: &Config) -> Result<NetworkCard, String> {
        if !is_listed(config, "tcp") {
            return Err(
                "ranks of two jobs connect by tcp: add tcp to FASTPATH_TRANSPORTS".to_owned()
            );
        }
        let job = self.domain.job;
        job.open_network_to(config, Reach::Network)?;
        if self.tcp.is_none() {
            self.listen(config)?;
        }
        (self.allowed.tcp, self.allowed.fall_back) = (self.adapter.is_none(), true);
        job.own_page().by_adapter.store(1, Ordering::Relaxed);
        let card = job.network_card(job.rank());
        card.ok_or_else(|| {
            "this process has not published the address of its listening socket".to_owned()
        })
    }

    /// Records that `ranks` belong to another job.
    pub fn note_foreign(&mut self, ranks: &[u32]) {
        if self.adapter.is_some() {
            ranks.iter().for_each(|&rank| self.without_adapter.leave_out(rank));
        }
    }

    fn listen(&mut self, config: &Config) -> Result<(), String> {
        let job = self.domain.job;
        let settings =
            tcp::Settings { bulk: !config.is_disabled("bulk"), ..tcp::Settings::default() };
        let domain = tcp::domain::Domain::new(job, settings);
        let domain = domain.map_err(|e| {
            format!(
                "cannot create an epoll descriptor for the connections to other ranks: {e}; if the \
                 limit on open files is reached, raise it (ulimit -n)"
            )
        })?;
        self.tcp = Some(TcpIface::new(domain)?);
        self.alive = true;
        Ok(())
    }

    /// Whether an adapter or sockets are in use. If so, a watcher thread wakes this rank when it sleeps.
    #[inline]
    pub fn has_outside(&self) -> bool {
        self.adapter.is_some() || self.tcp.is_some()
    }

    /// Number of rounds of progress that take about as long as `at_memory` polls of memory; at least one.
    #[inline]
    pub fn polls(&self, at_memory: u32) -> u32 {
        match (&self.tcp, &self.adapter) {
            (Some(_), adapter) if adapter.is_none() || !self.without_adapter.is_empty() => {
                tcp::polls(at_memory)
            }
            _ => at_memory,
        }
    }

    /// Description of the adapter or sockets in use, for messages; `None` if there are neither.
    pub fn outside(&self) -> Option<String> {
        let by_adapter = self.adapter.as_ref().map(|(adapter, _)| adapter.describe());
        by_adapter.or_else(|| self.tcp.as_ref().map(|_| self.describe_tcp()))
    }

    pub(crate) fn has_bulk(&self) -> bool {
        self.tcp.as_ref().is_some_and(TcpIface::has_bulk)
    }

    fn describe_tcp(&self) -> String {
        let job = self.domain.job;
        let Some(card) = job.network_card(job.rank()) else {
            return "the kernel's network".to_owned();
        };
        let addresses = card.addresses.iter().map(|address| address.to_string());
        let addresses: Vec<String> = addresses.collect();
        let why = match &self.no_adapter {
            Some(why) => format!("; no adapter: {why}"),
            None => String::new(),
        };
        format!("port {} of {}{why}", card.port, addresses.join(", "))
    }

    /// Whether `peer`, possibly this process, has reached `phase` of leaving the job.
    pub fn has_come(&self, peer: u32, phase: RankPhase) -> bool {
        match &self.tcp {
            Some(tcp) if self.meets_by_network(peer) => tcp.has_come(peer, phase),
            _ => self.domain.page(peer).phase() >= phase || self.has_left(peer),
        }
    }

    /// Queries whether `peer` has left the job, if no other event would show it. Call it when a wait for `peer` has
    /// lasted a while. Returns when to call again; `None` if the answer will wake this rank.
    pub fn ask_after(&mut self, peer: u32) -> Option<Duration> {
        let tells = !self.meets_by_network(peer) || self.domain.job.is_node_peer(peer as usize);
        self.tcp.as_mut().filter(|_| !tells)?.ask_after(peer)
    }

    /// Whether the process may end, as far as sockets are concerned. See [`crate::Connection::may_leave`].
    pub fn may_leave(&mut self) -> bool {
        self.tcp.as_mut().is_none_or(TcpIface::may_leave)
    }

    /// Publishes this process's phase of leaving the job. Sends the phase to peers that do not see this process's page,
    /// and wakes the other peers.
    pub fn tell_phase(&mut self, phase: RankPhase) {
        if let Some(tcp) = &mut self.tcp {
            tcp.tell_phase(phase);
            // The process may end after this phase, which would lose unsent data.
            while phase == RankPhase::Finalized && !tcp.is_settled() {
                tcp.progress();
                wait::yield_now();
            }
        }
        self.domain.job.set_phase(phase);
        let job = self.domain.job;
        let peers = job.node_ranks().filter(|&peer| job.is_node_peer(peer));
        peers.for_each(|peer| self.wake(peer as u32));
    }
}
