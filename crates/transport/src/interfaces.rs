//! The interfaces of a process, and the choice of a lane for each peer.

pub use crate::adapter::Counts;
use crate::adapter::rc::RcIface;
use crate::adapter::{Adapter, AdapterTransport, PeerWords};
use crate::contract::{Address, Connection, Remote, RemoteError};
use crate::lane::Lane;
use crate::loopback::LoopbackEndpoint;
use crate::setup::allowed::Allowed;
use crate::shm::arena::KEY_ARENA;
use crate::shm::{Arena, Domain, Iface, ShmEndpoint};
#[cfg(any(test, feature = "sim"))]
use crate::sim::Network;
use crate::sim::SimIface;
use crate::tcp::TcpIface;
use crate::verbs::inline::Overrides;
use crate::verbs::{PortCounter, open_device};
use crate::wireup_mailbox::WireupMailbox;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::job::Job;
use fastpath_bootstrap::segment::FURTHER;
use meeting::Meeting;
use network::WithoutAdapter;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

/// Rounds of progress after which connections that carry no messages are looked at: each look is a call of the kernel.
const SELDOM: u32 = 64;

/// What another thread of this process does when something has come from outside: it wakes the thread of the program
/// that sleeps for it, or else calls the progress thread, if there is one.
fn call_outside(domain: &'static Domain) -> impl Fn() + Copy + Send + 'static {
    let (state, job) = (domain.state_word(domain.me), domain.job);
    let call = &job.own_page().call;
    move || {
        if !crate::shm::iface::wake(state) {
            call.ring();
        }
    }
}

/// Every interface that this process has opened.
pub struct Interfaces {
    domain: &'static Domain,
    shm: Iface,
    /// To be set before the first lane is made.
    pub allowed: Allowed,
    sim: Option<SimIface>,
    /// An adapter, and how ranks that are reached by it find each other.
    adapter: Option<(Adapter, WireupMailbox)>,
    /// Connections of the kernel's network: for messages where there is no adapter, and between memories for what an
    /// adapter needs to begin.
    tcp: Option<TcpIface>,
    /// Peers that messages go to by those though there is an adapter, and why.
    without_adapter: WithoutAdapter,
    /// What is known of peers of other memories that datagrams are to reach.
    meetings: BTreeMap<u32, Meeting>,
    /// Rounds of progress since the connections were looked at.
    unlooked: u32,
    /// Why no adapter is used, where one would have been.
    no_adapter: Option<String>,
    /// What the kernel counts at its port.
    port_counter: Option<PortCounter>,
    /// Whether an interface other than shared memory's wants to be asked for news.
    alive: bool,
    /// Memory of this process that its peers can reach by load and store.
    pub arena: Arena,
}

impl Interfaces {
    /// Opens what the job allows.
    pub fn open(job: &'static Job) -> Self {
        let domain: &'static Domain = Box::leak(Box::new(Domain::new(job)));
        let allowed = Allowed::default();
        let (shm, arena) = (Iface::new(domain), Arena::new(domain));
        Interfaces {
            domain,
            shm,
            allowed,
            sim: None,
            adapter: None,
            tcp: None,
            without_adapter: WithoutAdapter::default(),
            meetings: BTreeMap::new(),
            unlooked: 0,
            no_adapter: None,
            port_counter: None,
            alive: false,
            arena,
        }
    }

    /// Those of a further worker, which reaches peers through shared memory alone, by rings of its own (see
    /// [`Domain::further`]). No memory of the process can be reached by load and store through them.
    pub fn further(&self, place: u32, area: NonNull<u8>) -> Self {
        let domain: &'static Domain = Box::leak(Box::new(self.domain.further(place, area)));
        Interfaces {
            domain,
            shm: Iface::new(domain),
            allowed: self.allowed,
            sim: None,
            adapter: None,
            tcp: None,
            without_adapter: WithoutAdapter::default(),
            meetings: BTreeMap::new(),
            unlooked: 0,
            no_adapter: None,
            port_counter: None,
            alive: false,
            arena: Arena::new(domain),
        }
    }

    /// Whether all peers are reached within this host and without a simulated network.
    pub fn is_within_host(&self) -> bool {
        self.allowed.outside().is_none() && self.sim.is_none()
    }

    /// Reaches every peer through a simulated network, with the job's rank as its port.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulate(job: &'static Job, network: &Network) -> Self {
        let sim = Some(network.iface(job.rank() as u32));
        Interfaces { sim, alive: true, ..Interfaces::open(job) }
    }

    /// Reaches peers by a transport of the adapter `device` (`mlx5_0` or `mlx5_0:1`), or of the first that
    /// has an active port: those of other hosts, and all where shared memory is not allowed. `inline`: how much inline
    /// data to ask for. [`Interfaces::allowed`] has been set.
    ///
    /// # Errors
    /// For people: what is missing and what to do.
    pub fn open_adapter(
        &mut self, by: AdapterTransport, device: Option<&str>, inline: &Overrides<'_>,
    ) -> Result<(), String> {
        let job = self.domain.job;
        let opened =
            open_device(device, |context, port| Adapter::new(by, context, port, inline, job));
        self.use_adapter(opened.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn use_adapter(&mut self, adapter: Adapter) {
        self.allowed.adapter = Some(adapter.by());
        let (device, port) = adapter.port();
        self.port_counter = PortCounter::find(&device, port);
        self.adapter = Some((adapter, WireupMailbox::new(self.domain.job, self.allowed)));
        self.alive = true;
    }

    pub(crate) fn shared_domain(&self) -> &Domain {
        self.domain
    }

    /// Whether `peer` is reached by an adapter or over the network.
    fn is_outside(&self, peer: u32) -> bool {
        self.allowed.leads_outside(self.domain.job, peer as usize)
    }

    /// Memory of this process that stays as it is until [`Interfaces::forget_memory`]: an adapter needs to be told of
    /// it but once.
    pub fn declare_memory(&mut self, range: Range<usize>) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.declare_lasting(range));
        }
    }

    /// The declared memory that begins at `address`, if there is any, is about to go.
    pub fn forget_memory(&mut self, address: usize) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.forget(address));
        }
    }

    /// The connections of an adapter, where peers are reached by any.
    pub(crate) fn connections(&self) -> Option<&RcIface> {
        self.adapter.as_ref()?.0.connections()
    }

    /// Whether peers are reached by an adapter.
    #[inline]
    pub fn has_adapter(&self) -> bool {
        self.allowed.adapter.is_some()
    }

    /// What the adapter has counted so far; nothing where there is none.
    pub fn adapter_counts(&self) -> Vec<Counts> {
        let of_adapter = self.adapter.as_ref().map(|(adapter, _)| adapter.counts());
        let of_tcp = self.tcp.as_ref().map(|tcp| Counts::of_tcp(&tcp.counters()));
        let of_port = self.port_counter.as_ref().map(Counts::of_port);
        of_adapter
            .unwrap_or_default()
            .into_iter()
            .chain(of_tcp)
            .chain(self.without_adapter.counts())
            .chain(of_port)
            .collect()
    }

    /// To be called when this rank has announced its sleep, or its progress thread is about to sleep, before its last
    /// look: from now on what comes through an adapter or over the network wakes the rank or calls the thread. Says how
    /// long the sleep may last at most; `None` where there is no limit.
    pub fn arm(&mut self) -> Option<Duration> {
        if let Some(sim) = &self.sim {
            return sim.nap();
        }
        // An event of the connections is looked for by the next look.
        self.unlooked = SELDOM;
        let wake = call_outside(self.domain);
        let by_network = self.tcp.as_mut().and_then(|tcp| tcp.arm(wake));
        let by_adapter = self.adapter.as_mut().map(|(adapter, _)| adapter.arm(wake));
        by_network.into_iter().chain(by_adapter).min()
    }

    /// What wakes this rank where it sleeps, for another thread of its process.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let state = self.domain.state_word(self.domain.me);
        move || _ = crate::shm::iface::wake(state)
    }

    /// The time by which interfaces measure, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.sim.as_ref().map_or_else(fastpath_base::clock::now_ns, SimIface::now_ns)
    }

    /// A lane for `peer`, open in neither direction where directions are opened one by one.
    pub fn make_lane(&self, peer: u32) -> Lane {
        if peer == self.domain.me && self.allowed.loopback {
            let state = self.domain.state_word(peer);
            return Lane::Loopback(Box::new(LoopbackEndpoint::of_rank(state)));
        }
        if self.is_outside(peer) {
            return self.make_outside_lane(peer);
        }
        match &self.sim {
            #[cfg(any(test, feature = "sim"))]
            Some(sim) => Lane::Sim(Box::new(sim.endpoint(peer))),
            _ => {
                let mut endpoint = ShmEndpoint::new(self.domain, peer);
                if !self.allowed.cma {
                    endpoint.refuse_single_copy();
                }
                Lane::Shm(endpoint)
            }
        }
    }

    fn make_outside_lane(&self, peer: u32) -> Lane {
        match (&self.adapter, &self.tcp) {
            (Some((adapter, _)), tcp) if !self.without_adapter.has(peer) => {
                let words = match tcp.as_ref().filter(|_| self.meets_by_network(peer)) {
                    Some(tcp) => PeerWords { state: Some(tcp.state_word(peer)), polls: None },
                    None => {
                        self.domain.job.header().is_pinned.store(1, Ordering::Relaxed);
                        PeerWords::on_page(self.domain.page(peer))
                    }
                };
                adapter.make_lane(peer, words).unwrap_or(Lane::Unconnected)
            }
            (adapter, Some(tcp)) if adapter.is_none() || self.allowed.fall_back => {
                Lane::Tcp(Box::new(tcp.endpoint(peer)))
            }
            // `connect` says why there is none.
            _ => Lane::Unconnected,
        }
    }

    /// Drops the lane to a peer of this host that has left, if it is one of shared memory, with all that this process
    /// has of that peer.
    pub fn release(&mut self, peer: u32, lane: &mut Lane) {
        if matches!(lane, Lane::Shm(_)) {
            *lane = Lane::Unconnected;
            self.shm.release(peer);
        }
    }

    /// Opens a lane for sending.
    ///
    /// # Errors
    /// For people: what there is not enough of.
    pub fn connect(&self, lane: &mut Lane) -> Result<(), String> {
        match (lane, &self.adapter) {
            (Lane::Unconnected, Some((adapter, _))) => {
                let why = adapter.make_lane(u32::MAX, PeerWords::default()).err();
                let why = why.map(|error| error.to_string());
                Err(why.unwrap_or_else(|| "there was no queue pair a moment ago".to_owned()))
            }
            (lane, _) => self.connect_lane(lane),
        }
    }

    fn connect_lane(&self, lane: &mut Lane) -> Result<(), String> {
        match lane {
            Lane::Shm(endpoint) => {
                let opened = endpoint.connect(self.allowed.ahead);
                opened.map_err(|error| error.to_string())
            }
            #[cfg(any(test, feature = "sim"))]
            Lane::Sim(endpoint) => {
                endpoint.connect();
                Ok(())
            }
            Lane::Tcp(endpoint) => {
                endpoint.connect();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Wakes `peer` if it sleeps.
    pub fn wake(&self, peer: u32) {
        self.domain.wake(peer);
    }

    /// Wakes every thread of `peer` that sleeps.
    pub fn wake_all(&self, peer: u32) {
        (0..=FURTHER).for_each(|place| self.domain.page(peer).wake(place));
    }

    /// Whether `peer` has left the job; for one that has no lane yet.
    pub fn has_left(&self, peer: u32) -> bool {
        match (&self.sim, &self.tcp) {
            (Some(sim), _) => sim.has_left(peer),
            (None, Some(tcp)) if self.meets_by_network(peer) => tcp.has_left(peer),
            _ => self.domain.has_left(peer),
        }
    }

    /// Whether a peer may have connected to this process since the last [`Interfaces::accept`], or
    /// an interface may have something to do.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shm.has_news() | self.alive
    }

    /// Whether a peer has connected through shared memory since the last [`Interfaces::accept`]. Other interfaces do
    /// not say by themselves that they have something to do.
    #[inline]
    pub fn has_signal(&self) -> bool {
        self.shm.has_news()
    }

    /// Calls `found` with each peer that has newly connected to this process, or is to be looked at again
    /// ([`Connection::retire`]).
    pub fn accept(&mut self, mut found: impl FnMut(u32)) {
        if self.shm.has_news() {
            // The same signal says that mail has come from one that is reached by an adapter.
            let (allowed, job) = (self.allowed, self.domain.job);
            let is_outside = |peer| allowed.leads_outside(job, peer as usize);
            self.shm.accept(|peer| {
                if !is_outside(peer) {
                    found(peer);
                }
            });
        }
        self.accept_network(&mut found);
        if let Some(sim) = &mut self.sim {
            sim.accept(found);
        }
    }

    /// Handles what has arrived at interfaces that serve all peers at once; says whether anything had.
    pub fn progress(&mut self) -> bool {
        self.progress_while(false)
    }

    /// As [`Interfaces::progress`]. `connecting`: messages of the wire-up are waited for.
    pub fn progress_while(&mut self, connecting: bool) -> bool {
        let wake = call_outside(self.domain);
        match (&mut self.adapter, &mut self.tcp) {
            (Some((adapter, _)), tcp) => {
                let moved = adapter.progress(connecting, wake);
                let seldom = !connecting && self.without_adapter.is_empty();
                self.unlooked += 1;
                match tcp {
                    Some(tcp) if !seldom || self.unlooked >= SELDOM => {
                        self.unlooked = 0;
                        moved | tcp.progress()
                    }
                    _ => moved,
                }
            }
            (None, Some(tcp)) => tcp.progress(),
            (None, None) => self.sim.as_mut().is_some_and(SimIface::progress),
        }
    }

    /// Sends a message of the wire-up. It may be lost, doubled or overtaken. False where it did not even leave, as it
    /// may do soon.
    pub fn send_wireup(&mut self, peer: u32, step: u8, address: Address) -> bool {
        if let Some(sim) = &self.sim {
            sim.send_wireup(peer, step, address);
        }
        if self.meets_by_network(peer) {
            return self.send_wireup_by_network(peer, step, address);
        }
        match &mut self.adapter {
            Some((Adapter::Upgrade(iface), _)) => {
                let (ud, addresses) = iface.datagrams();
                addresses.send(ud, peer, step, address)
            }
            // Memory may be there when the wire-up asks again.
            Some((_, mail)) => mail.send(peer, step, &address).is_ok(),
            None => true,
        }
    }

    /// Whether the wire-up interface signals an arrival, without asking it.
    pub fn wireup_signals(&self) -> bool {
        let of_adapter = |(adapter, mail): &(Adapter, WireupMailbox)| {
            adapter.has_wireup_datagrams()
                || (!matches!(adapter, Adapter::Upgrade(_)) && mail.signals())
        };
        self.tcp.as_ref().is_some_and(TcpIface::has_wireup)
            || self.adapter.as_ref().is_some_and(of_adapter)
            || self.sim.as_ref().is_some_and(SimIface::wireup_signals)
    }

    /// Asks the wire-up interface for a message: sender, step, address.
    pub fn receive_wireup(&mut self) -> Option<(u32, u8, Address)> {
        if let Some((adapter, mail)) = &mut self.adapter {
            // Before what has come by the network, which counts those that do not come.
            let datagram = adapter.datagrams().and_then(|(ud, addresses)| addresses.take(ud));
            if let Some(received) = datagram {
                self.note_datagram(received.0);
                return Some(received);
            }
            let mail = match adapter {
                Adapter::Upgrade(_) => None,
                _ => mail.receive(),
            };
            if mail.is_some() {
                return mail;
            }
        }
        let by_network = self.receive_wireup_by_network();
        by_network.or_else(|| self.sim.as_mut()?.receive_wireup())
    }
}

impl Lane {
    /// As [`Lane::return_credits`], where nothing has arrived for the moment: it need not be at once.
    #[inline]
    pub fn offer_credits(&mut self) {
        match self {
            Lane::Shm(endpoint) => endpoint.offer_credits(),
            _ => self.return_credits(),
        }
    }

    /// Whether the message refused last found no memory: waiting for room is in vain. The rank's page says how much is
    /// missing.
    #[cold]
    pub fn is_starved(&self) -> bool {
        matches!(self, Lane::Shm(endpoint) if endpoint.tx.is_starved())
    }

    /// What names `len` bytes at `address` for the peer, where it can reach them by load and store.
    pub fn share_memory(&self, arena: &Arena, address: usize, len: u64) -> Option<Remote> {
        match self {
            Lane::Shm(_) => arena.find(address, len),
            _ => None,
        }
    }

    /// Whether the peer says that its memory can be reached by load and store.
    pub fn is_shared(&self, remote: &Remote) -> bool {
        self.can_load_store() && remote.rkey & KEY_ARENA != 0
    }

    /// Calls `visit` with each stretch of shared memory that the peer's key names, in order. Others
    /// may write there at any time.
    ///
    /// # Errors
    /// As [`crate::contract::Endpoint::get`]; `visit` may have been called for a part of it.
    pub fn visit_shared(
        &mut self, remote: Remote, len: usize, visit: impl FnMut(*mut u8, usize),
    ) -> Result<(), RemoteError> {
        match self {
            Lane::Shm(endpoint) => endpoint.visit_shared(remote, len, visit),
            _ => Err(RemoteError::Unsupported),
        }
    }

    /// Key of this process's memory for the peer (see [`crate::Remote`]).
    pub fn memory_key(&self) -> u64 {
        std::process::id() as u64
    }
}

mod meeting;
mod network;
#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests;
mod upgrade;
