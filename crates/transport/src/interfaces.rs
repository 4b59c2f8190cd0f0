//! Interfaces of a process, and the lane that each peer gets.

use crate::adapter::rc::RcIface;
use crate::adapter::{Adapter, AdapterTransport, PeerWords};
use crate::allowed::Allowed;
use crate::contract::{Address, Connection, Remote, RemoteError};
use crate::lane::Lane;
use crate::loopback::LoopbackEndpoint;
use crate::shm::arena::KEY_ARENA;
use crate::shm::{Arena, Domain, Iface, ShmEndpoint};
#[cfg(any(test, feature = "sim"))]
use crate::sim::Network;
use crate::sim::SimIface;
use crate::tcp::TcpIface;
use crate::verbs::inline::Overrides;
use crate::verbs::{PortCounter, VerbsError, open_device};
pub use counts::TransportCounts;
use fastpath_base::exit;
use fastpath_base::sync::Ordering;
use fastpath_job::Job;
use meeting::Meeting;
use network::WithoutAdapter;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use wireup_mailbox::WireupMailbox;

/// Number of rounds of progress between two polls of sockets that carry no messages. Each poll is a system call.
const SELDOM: u32 = 64;

/// Returns a function by which watcher threads wake this rank's thread or else, if it is awake, the progress thread.
fn call_outside(domain: &'static Domain) -> impl Fn() + Copy + Send + 'static {
    let (state, job) = (domain.state_word(domain.me), domain.job);
    let call = &job.own_page().call;
    move || {
        if !crate::shm::iface::wake(state) {
            call.ring();
        }
    }
}

/// Creates an unconnected lane to `peer` over an adapter. Fails if the device lacks resources.
fn make_adapter_lane(adapter: &Adapter, peer: u32, words: PeerWords) -> Result<Lane, VerbsError> {
    let PeerWords { state, polls } = words;
    let mut lane = match adapter {
        Adapter::Rc(iface) => Lane::Rc(Box::new(iface.endpoint(state)?)),
        Adapter::Ud(iface, _) => Lane::Ud(Box::new(iface.endpoint(state)?)),
        Adapter::Upgrade(iface) => Lane::Upgrade(Box::new(iface.endpoint(peer, state)?)),
    };
    match (&mut lane, polls) {
        (Lane::Ud(endpoint), Some(polls)) => endpoint.watch_polls(polls),
        (Lane::Upgrade(endpoint), Some(polls)) => endpoint.datagrams().watch_polls(polls),
        _ => {}
    }
    Ok(lane)
}

/// All open interfaces of this process.
pub struct Interfaces {
    domain: &'static Domain,
    shm: Iface,
    /// Permitted transports. Set them before the first lane is created.
    pub allowed: Allowed,
    sim: Option<SimIface>,
    adapter: Option<(Adapter, WireupMailbox)>,
    /// Sockets. They carry messages if there is no adapter. Otherwise they carry the adapter's wire-up between nodes.
    tcp: Option<TcpIface>,
    without_adapter: WithoutAdapter,
    meetings: BTreeMap<u32, Meeting>,
    unlooked: u32,
    no_adapter: Option<String>,
    port_counter: Option<PortCounter>,
    alive: bool,
    /// Memory of this process that peers on its node access by load and store.
    pub arena: Arena,
}

impl Interfaces {
    /// Opens shared memory with the default permissions.
    pub fn open(job: &'static Job) -> Self {
        let domain = exit::store(Domain::new(job));
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

    /// Creates interfaces that reach every peer through a simulated network, with the job's rank as port.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulate(job: &'static Job, network: &Network) -> Self {
        let sim = Some(network.iface(job.rank() as u32));
        Interfaces { sim, alive: true, ..Interfaces::open(job) }
    }

    /// Opens transport `by` of the adapter `device` (`mlx5_0` or `mlx5_0:1`), or of the first adapter with an active
    /// port. The transport serves peers on other hosts, and all peers if shared memory is not permitted. `inline` is
    /// the requested inline size. Set [`Interfaces::allowed`] before.
    ///
    /// # Errors
    /// Message with cause and remedy.
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

    pub(crate) fn neighbour(&self) -> Option<u32> {
        let job = self.shared_domain().job;
        let mut others = (0..job.present()).filter(|&rank| rank != job.rank());
        let found = others.find(|&rank| self.allowed.shm && !job.is_remote(rank));
        found.map(|rank| rank as u32)
    }

    fn is_outside(&self, peer: u32) -> bool {
        self.allowed.leads_outside(self.domain.job, peer as usize)
    }

    /// Declares that memory stays mapped until [`Interfaces::forget_memory`], so that one registration suffices.
    pub fn declare_memory(&mut self, range: Range<usize>) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.declare_lasting(range));
        }
    }

    /// Drops the registration of declared memory at `address`, before the memory is unmapped.
    pub fn forget_memory(&mut self, address: usize) {
        if let Some(iface) = self.connections() {
            iface.with_registrations(|all| all.forget(address));
        }
    }

    pub(crate) fn connections(&self) -> Option<&RcIface> {
        self.adapter.as_ref()?.0.connections()
    }

    /// Whether an adapter is in use.
    #[inline]
    pub fn has_adapter(&self) -> bool {
        self.allowed.adapter.is_some()
    }

    /// Counters of adapter, sockets and port; empty if there are none.
    pub fn adapter_counts(&self) -> Vec<TransportCounts> {
        let of_adapter =
            self.adapter.as_ref().map(|(adapter, _)| TransportCounts::of_adapter(adapter));
        let of_tcp = self.tcp.as_ref().map(|tcp| TransportCounts::of_tcp(&tcp.counters()));
        let of_port = self.port_counter.as_ref().map(TransportCounts::of_port);
        of_adapter
            .unwrap_or_default()
            .into_iter()
            .chain(of_tcp)
            .chain(self.without_adapter.counts())
            .chain(of_port)
            .collect()
    }

    /// Prepares a sleep of this rank or its progress thread: later arrivals by an adapter or sockets wake it. Call it
    /// after the sleep is announced and before the last poll. Returns the longest sleep; `None` if unlimited.
    pub fn arm(&mut self) -> Option<Duration> {
        if let Some(sim) = &self.sim {
            return sim.nap();
        }
        // The next poll must include the sockets.
        self.unlooked = SELDOM;
        let wake = call_outside(self.domain);
        let by_network = self.tcp.as_mut().and_then(|tcp| tcp.arm(wake));
        let by_adapter = self.adapter.as_mut().map(|(adapter, _)| adapter.arm(wake));
        by_network.into_iter().chain(by_adapter).min()
    }

    /// Function that wakes this rank, for another thread of its process.
    pub fn waker(&self) -> impl Fn() + Send + 'static {
        let state = self.domain.state_word(self.domain.me);
        move || _ = crate::shm::iface::wake(state)
    }

    /// Current time by the clock of the interfaces, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.sim.as_ref().map_or_else(fastpath_base::clock::now_ns, SimIface::now_ns)
    }

    /// Creates a lane for `peer`. If its transport opens each direction separately, neither direction is open yet.
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
                make_adapter_lane(adapter, peer, words).unwrap_or(Lane::Unconnected)
            }
            (adapter, Some(tcp)) if adapter.is_none() || self.allowed.fall_back => {
                Lane::Tcp(Box::new(tcp.endpoint(peer)))
            }
            // No transport reaches the peer; `connect` reports the cause.
            _ => Lane::Unconnected,
        }
    }

    /// Drops a shared-memory lane to a peer that has left, with all memory for that peer.
    pub fn release(&mut self, peer: u32, lane: &mut Lane) {
        if matches!(lane, Lane::Shm(_)) {
            *lane = Lane::Unconnected;
            self.shm.release(peer);
        }
    }

    /// Opens a lane for sending.
    ///
    /// # Errors
    /// Message that names the missing resource.
    pub fn connect(&self, lane: &mut Lane) -> Result<(), String> {
        match (lane, &self.adapter) {
            (Lane::Unconnected, Some((adapter, _))) => {
                let why = make_adapter_lane(adapter, u32::MAX, PeerWords::default()).err();
                let why = why.map(|error| error.to_string());
                Err(why.unwrap_or_else(|| "there was no queue pair a moment ago".to_owned()))
            }
            (lane, _) => self.connect_lane(lane),
        }
    }

    fn connect_lane(&self, lane: &mut Lane) -> Result<(), String> {
        match lane {
            Lane::Shm(endpoint) => {
                let opened = endpoint.connect(self.allowed.ring_tuning);
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

    /// Whether `peer`, to which no lane exists, has left the job.
    pub fn has_left(&self, peer: u32) -> bool {
        match (&self.sim, &self.tcp) {
            (Some(sim), _) => sim.has_left(peer),
            (None, Some(tcp)) if self.meets_by_network(peer) => tcp.has_left(peer),
            _ => self.domain.has_left(peer),
        }
    }

    /// Whether a peer may have connected since the last [`Interfaces::accept`], or an interface needs progress.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shm.has_news() | self.alive
    }

    /// Whether a peer has connected by shared memory since the last [`Interfaces::accept`]. No other transport signals.
    #[inline]
    pub fn has_signal(&self) -> bool {
        self.shm.has_news()
    }

    /// Calls `found` with each newly connected peer, and each peer that must be polled again ([`Connection::retire`]).
    pub fn accept(&mut self, mut found: impl FnMut(u32)) {
        if self.shm.has_news() {
            // A peer that uses an adapter raises this signal for a wire-up message, not for a connection: skip it.
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

    /// Processes arrivals at interfaces that serve all peers together; returns whether there were any.
    pub fn progress(&mut self) -> bool {
        self.progress_while(false)
    }

    /// Makes progress like [`Interfaces::progress`]. `connecting` says whether wire-up messages are expected.
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

    /// Sends a wire-up message, which may be lost, duplicated or reordered. Returns false if the message must be sent
    /// again later.
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
            // After an error, the wire-up sends the message again later, when memory may be free.
            Some((_, mail)) => mail.send(peer, step, &address).is_ok(),
            None => true,
        }
    }

    /// Whether the wire-up interface signals an arrival. Makes no system call.
    pub fn wireup_signals(&self) -> bool {
        let of_adapter = |(adapter, mail): &(Adapter, WireupMailbox)| {
            adapter.has_wireup_datagrams()
                || (!matches!(adapter, Adapter::Upgrade(_)) && mail.signals())
        };
        self.tcp.as_ref().is_some_and(TcpIface::has_wireup)
            || self.adapter.as_ref().is_some_and(of_adapter)
            || self.sim.as_ref().is_some_and(SimIface::wireup_signals)
    }

    /// Takes the next wire-up message, and returns its sender, step and address. `None` if there is none.
    pub fn receive_wireup(&mut self) -> Option<(u32, u8, Address)> {
        if let Some((adapter, mail)) = &mut self.adapter {
            // Take datagrams first: if a message is taken from a socket before its datagram, the datagram counts as
            // missing.
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
    /// Returns the credits owed to peers. Called while no message arrives; a transport may delay it. See
    /// [`Lane::return_credits`].
    #[inline]
    pub fn offer_credits(&mut self) {
        match self {
            Lane::Shm(endpoint) => endpoint.offer_credits(),
            _ => self.return_credits(),
        }
    }

    /// Whether the last refused message lacked memory, so that waiting is useless. The rank's page holds the number of
    /// missing bytes.
    #[cold]
    pub fn is_starved(&self) -> bool {
        matches!(self, Lane::Shm(endpoint) if endpoint.tx.is_starved())
    }

    /// Key for `len` bytes at `address`; `None` if peers cannot access them by load and store.
    pub fn share_memory(&self, arena: &Arena, address: usize, len: u64) -> Option<Remote> {
        match self {
            Lane::Shm(_) => arena.find(address, len),
            _ => None,
        }
    }

    /// Whether `remote` is a peer's memory that this process can access by load and store.
    pub fn is_shared(&self, remote: &Remote) -> bool {
        self.can_load_store() && remote.rkey & KEY_ARENA != 0
    }

    /// Visits, in order, the contiguous parts of the key's shared memory, to which other processes may write.
    ///
    /// # Errors
    /// See [`crate::contract::Endpoint::get`]; `visit` may have been called for some parts.
    pub fn visit_shared(
        &mut self, remote: Remote, len: usize, visit: impl FnMut(*mut u8, usize),
    ) -> Result<(), RemoteError> {
        match self {
            Lane::Shm(endpoint) => endpoint.visit_shared(remote, len, visit),
            _ => Err(RemoteError::Unsupported),
        }
    }

    /// Key of this process's memory for the peer; see [`crate::Remote`].
    pub fn memory_key(&self) -> u64 {
        std::process::id() as u64
    }
}

mod counts;
mod meeting;
mod network;
#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests;
mod upgrade;
mod wireup_mailbox;
