//! Peers that are reached by connections of the kernel's network, and what must be told to those of other memories.

use super::Interfaces;
use crate::tcp::{self, TcpIface};
use fastpath_base::config::Config;
use fastpath_base::wait;
use fastpath_bootstrap::segment::Phase;

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
        let job = self.domain.job;
        job.open_network(config)?;
        let settings = tcp::Settings {
            bulk: !config.is_disabled("bulk"),
            ..tcp::Settings::default()
        };
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

    /// Rounds of progress that take about as long as so many polls of memory; at least one.
    #[inline]
    pub fn polls(&self, at_memory: u32) -> u32 {
        match self.tcp {
            Some(_) => tcp::polls(at_memory),
            None => at_memory,
        }
    }

    /// The adapter or the connections by which peers are reached, for people.
    pub fn outside(&self) -> Option<String> {
        match &self.tcp {
            Some(_) => Some(self.describe_tcp()),
            None => self.adapter.as_ref().map(|(adapter, _)| adapter.describe()),
        }
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
            Some(tcp) if self.is_outside(peer) => tcp.has_come(peer, phase),
            _ => self.domain.page(peer).phase() >= phase || self.has_left(peer),
        }
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
