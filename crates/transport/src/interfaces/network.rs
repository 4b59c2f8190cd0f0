//! Peers that are reached by connections of the kernel's network, and what must be told to those of other memories.

use super::Interfaces;
use crate::adapter::Counts;
use crate::contract::Address;
use crate::setup::allowed::is_listed;
use crate::tcp::{self, TcpIface, WireupHead};
use fastpath_base::clock;
use fastpath_base::config::Config;
use fastpath_base::sync::Ordering;
use fastpath_base::wait;
use fastpath_bootstrap::network::{NetworkCard, Reach};
use fastpath_bootstrap::segment::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// In place of a step: where the sender's queue pair for datagrams is.
const INTRODUCTION: u8 = 0;

/// Peers that the adapter does not lead to, and why; those of which nobody has been told yet.
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

    /// What a report says of them; nothing where there are none.
    pub fn counts(&self) -> Option<Counts> {
        let why = self.why.values().next()?;
        let pairs = match self.why.len() {
            1 => "1 pair goes".to_owned(),
            n => format!("{n} pairs go"),
        };
        Some(Counts {
            of: "without adapter",
            text: format!("{pairs} without it: {why}"),
            numbers: vec![("pairs", self.why.len() as u64)],
        })
    }

    /// The adapter is not asked for a peer: nobody needs to be told.
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

/// Peers of other memories: an adapter carries their messages, if both sides have the same, and a connection of the
/// kernel's network what it needs to begin. If not, the connection carries the messages too.
impl Interfaces {
    /// Whether a peer and this process know of each other by a connection of the network: they share no memory, or
    /// nothing else carries their messages.
    pub(super) fn meets_by_network(&self, peer: u32) -> bool {
        let apart = self.adapter.is_none() || !self.domain.job.is_node_peer(peer as usize);
        self.tcp.is_some() && self.is_outside(peer) && apart
    }

    /// Whether no lane of the adapter leads to a peer, so that one that is asked for is refused.
    pub fn refuses_adapter(&self, peer: u32) -> bool {
        self.meets_by_network(peer) && (self.adapter.is_none() || self.without_adapter.has(peer))
    }

    /// A peer that the adapter has turned out not to lead to; each is told of once.
    pub fn take_without_adapter(&mut self) -> Option<u32> {
        self.without_adapter.untold.pop()
    }

    /// The adapter does not lead to a peer; a new lane goes by the network. `false` where nothing else leads there.
    pub fn leave_adapter(&mut self, peer: u32) -> bool {
        if !self.meets_by_network(peer) {
            return false;
        }
        let why = || "no connection of both adapters could be made".to_owned();
        self.without_adapter.note(peer, why);
        self.without_adapter.untold.retain(|&untold| untold != peer);
        self.allowed.fall_back
    }

    /// A peer has said what it cannot: its connection ends, and so does what waits for it.
    pub fn hang_up(&mut self, peer: u32) {
        if let Some(tcp) = &mut self.tcp {
            tcp.hang_up(peer);
        }
    }

    /// Why a peer is not reached, where its lane does not say, for people.
    pub fn failure(&self, peer: u32) -> Option<String> {
        let tcp = self.tcp.as_ref()?;
        tcp.failure(peer).or_else(|| match self.allowed.fall_back {
            false => self.without_adapter.why.get(&peer).cloned(),
            true => None,
        })
    }

    /// A number for what an adapter's lanes are of; 0 where there is no adapter.
    fn number_adapter(&self) -> u8 {
        let by = self.adapter.as_ref().map(|(adapter, _)| adapter.by());
        by.map_or(0, |by| by as u8 + 1)
    }

    /// Sends a message of the wire-up by the pair's connection, and as a datagram too where the adapter sends such.
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
            // What the adapter refuses to send counts as lost on the way.
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

    /// A message of the wire-up that has come by a connection, and not as a datagram where it could.
    pub(super) fn receive_wireup_by_network(&mut self) -> Option<(u32, u8, Address)> {
        loop {
            let (peer, head, address) = self.tcp.as_mut()?.receive_wireup()?;
            let own = self.number_adapter();
            if own != 0 && head.by != own {
                self.without_adapter.note(peer, || match head.by {
                    0 => format!("rank {peer} has no adapter that it could use"),
                    _ => format!(
                        "rank {peer} uses its adapter by other transports than this rank: give \
                         both the same FASTPATH_TRANSPORTS"
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
                // Those that have come while this process computed are seen first.
                ud.progress();
                if !ud.has_wireup_datagrams() {
                    let why = || format!("what the adapter of rank {peer} sends does not arrive");
                    self.without_adapter.note(peer, why);
                    return Some((peer, head.step, address));
                }
            }
        }
    }

    /// A peer has told where its queue pair is: what waits for that goes, and it is told the same.
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

    /// A datagram of a rank has come.
    pub(super) fn note_datagram(&mut self, peer: u32) {
        if self.meets_by_network(peer) {
            self.meetings.entry(peer).or_default().is_proven = true;
        }
    }

    /// Peers that something has come of by connections of the network.
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
            // Whoever sends messages this way has no other.
            let why = || format!("rank {peer} has no adapter that it could use");
            self.without_adapter.note(peer, why);
            found(peer);
        }
    }
}

impl Interfaces {
    /// No adapter is used, for that reason.
    pub(crate) fn note_no_adapter(&mut self, why: String) {
        self.no_adapter = Some(why);
    }

    /// Reaches peers by connections of the kernel's network: those of other hosts, and all where shared memory is not
    /// allowed. [`Interfaces::allowed`] has been set.
    ///
    /// # Errors
    /// For people: what is missing and what to do.
    pub fn open_tcp(&mut self, config: &Config) -> Result<(), String> {
        self.domain.job.open_network(config)?;
        self.listen(config)
    }

    /// Listens for ranks of other jobs, which are reached by connections of the kernel's network alone. Says how this
    /// process is reached.
    ///
    /// # Errors
    /// As [`Interfaces::open_tcp`]; or the user has left tcp out.
    pub fn open_for_foreign(&mut self, config: &Config) -> Result<NetworkCard, String> {
        if !is_listed(config, "tcp") {
            return Err(
                "ranks of two jobs reach each other by tcp, which FASTPATH_TRANSPORTS leaves out"
                    .to_owned(),
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
        card.ok_or_else(|| "this process has not said where it listens".to_owned())
    }

    /// Those ranks are of another job.
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
        let domain = domain.map_err(|e| format!("too many files are open: {e}"))?;
        self.tcp = Some(TcpIface::new(domain)?);
        self.alive = true;
        Ok(())
    }

    /// Whether peers are reached by an adapter or over the network: then a thread wakes this rank for them.
    #[inline]
    pub fn has_outside(&self) -> bool {
        self.adapter.is_some() || self.tcp.is_some()
    }

    /// The number of rounds of progress that take about as long as `at_memory` polls of memory; at least one.
    #[inline]
    pub fn polls(&self, at_memory: u32) -> u32 {
        match (&self.tcp, &self.adapter) {
            (Some(_), adapter) if adapter.is_none() || !self.without_adapter.is_empty() => {
                tcp::polls(at_memory)
            }
            _ => at_memory,
        }
    }

    /// The adapter or the connections by which peers are reached, for people.
    pub fn outside(&self) -> Option<String> {
        let by_adapter = self.adapter.as_ref().map(|(adapter, _)| adapter.describe());
        by_adapter.or_else(|| self.tcp.as_ref().map(|_| self.describe_tcp()))
    }

    /// Whether connections of the kernel's network take long messages from where they lie.
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

    /// Whether `peer`, or this process itself, has come so far with leaving the job, or has left it.
    pub fn has_come(&self, peer: u32, phase: Phase) -> bool {
        match &self.tcp {
            Some(tcp) if self.meets_by_network(peer) => tcp.has_come(peer, phase),
            _ => self.domain.page(peer).phase() >= phase || self.has_left(peer),
        }
    }

    /// Called when a wait for `peer` has lasted a while: asks whether it has left the job, where nothing else would
    /// show that. Returns when to call again; `None` if the answer will wake this rank.
    pub fn ask_after(&mut self, peer: u32) -> Option<Duration> {
        let tells = !self.meets_by_network(peer) || self.domain.job.is_node_peer(peer as usize);
        self.tcp.as_mut().filter(|_| !tells)?.ask_after(peer)
    }

    /// Whether the process may end as far as its connections are concerned; see [`crate::Connection::may_leave`].
    pub fn may_leave(&mut self) -> bool {
        self.tcp.as_mut().is_none_or(TcpIface::may_leave)
    }

    /// Says how far this process has come with leaving the job to peers that cannot see it on its page, and wakes those
    /// that can.
    pub fn tell_phase(&mut self, phase: Phase) {
        if let Some(tcp) = &mut self.tcp {
            tcp.tell_phase(phase);
            // A process may end after that, and what its kernel has not sent would go with it.
            while phase == Phase::Finalized && !tcp.is_settled() {
                tcp.progress();
                wait::yield_now();
            }
        }
        self.domain.job.set_phase(phase);
        let job = self.domain.job;
        let peers = job.node_ranks().filter(|&peer| job.is_node_peer(peer));
        peers.for_each(|peer| self.wake_all(peer as u32));
    }
}
