//! Network: clock, ports and messages in flight.

use super::Conditions;
use super::adapter::Machines;
use super::wire::{Datagram, Packet, SimMessage};
use crate::contract::Header;
use crate::reliable::{Receiver, Sender, Settings};
use fastpath_base::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// Event counts of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Messages accepted from users.
    pub posted: u64,
    /// Posts refused by chance or for lack of room.
    pub refused: u64,
    /// Lost packets and wire-up messages.
    pub dropped: u64,
    /// Duplicated packets and wire-up messages.
    pub doubled: u64,
    /// Packets retransmitted by the reliability sublayer.
    pub resent: u64,
    /// Messages lost because the receiving end was not open. Always 0 if the wire-up is correct.
    pub astray: u64,
    /// Posts made before the wake that an earlier [`crate::Post::Wake`] of the same direction required.
    pub unheeded: u64,
}

/// Arrivals by time, and those of one time by the order in which they were sent.
pub(super) type Schedule<T> = BTreeMap<(u64, u64), (u32, T)>;

pub(super) struct SimLink {
    /// Number that distinguishes this end from earlier ends, as part of its address.
    pub number: u64,
    pub peer_number: Option<u64>,
    pub send_open: bool,
    /// Whether the last post requires an [`crate::contract::Endpoint::wake`].
    pub must_wake: bool,
    pub recv_open: bool,
    /// Posts that must succeed, because `has_room` has reported room for them.
    pub promised: u32,
    /// Messages of a reliable network that have not been taken, in order.
    pub queue: VecDeque<(u64, Rc<SimMessage>)>,
    /// Messages sent whose credit has not returned.
    pub in_use: usize,
    pub owed: usize,
    pub sender: Sender<Rc<SimMessage>>,
    pub receiver: Receiver<Rc<SimMessage>>,
}

#[derive(Default)]
pub(super) struct SimPort {
    pub packets: Schedule<Packet>,
    pub datagrams: Schedule<Datagram>,
    pub callers: Vec<u32>,
    pub gone: bool,
    pub wireup_polls: u64,
}

pub(super) struct SimFabric {
    pub conditions: Conditions,
    pub now_ns: u64,
    pub random: Random,
    pub counts: NetworkCounts,
    pub ports: Vec<SimPort>,
    pub machines: Option<Box<Machines>>,
    links: Vec<SimLink>,
    sent: u64,
}

impl SimFabric {
    pub fn link(&mut self, me: u32, peer: u32) -> &mut SimLink {
        &mut self.links[me as usize * self.ports.len() + peer as usize]
    }

    pub fn draw_arrival(&mut self) -> u64 {
        let (least, most) = (*self.conditions.delay_ns.start(), *self.conditions.delay_ns.end());
        self.now_ns + least + self.random.below(most - least + 1)
    }

    pub fn send_badly<T: Clone>(
        &mut self, to: u32, from: u32, item: T, of: fn(&mut SimPort) -> &mut Schedule<T>,
    ) {
        let mut copies = 1;
        if self.random.chance(self.conditions.drop) {
            self.counts.dropped += 1;
            copies = 0;
        } else if self.random.chance(self.conditions.double) {
            self.counts.doubled += 1;
            copies = 2;
        }
        for _ in 0..copies {
            self.sent += 1;
            let at = (self.draw_arrival(), self.sent);
            of(&mut self.ports[to as usize]).insert(at, (from, item.clone()));
        }
    }

    fn settle_machines(&mut self) {
        let machines = self.machines.as_mut();
        let delivered = machines.map(|machines| machines.take_delivered(self.now_ns));
        for (from, to, at) in delivered.unwrap_or_default() {
            let queue = &mut self.link(from, to).queue;
            if let Some(message) = queue.iter_mut().find(|m| m.0 == u64::MAX) {
                message.0 = at;
            }
        }
    }

    fn next_event(&mut self) -> Option<u64> {
        let planned = self.next_planned();
        let machines = self.machines.as_mut();
        let delivery = machines.and_then(|m| m.next_delivery(planned.unwrap_or(u64::MAX)));
        let delivery = delivery.map(|at| at.max(self.now_ns + 1));
        delivery.into_iter().chain(planned).min()
    }

    fn next_planned(&self) -> Option<u64> {
        let now = self.now_ns;
        let arrivals = self.ports.iter().flat_map(|port| {
            let packets = port.packets.keys().map(|at| at.0);
            packets.chain(port.datagrams.keys().map(|at| at.0))
        });
        let queued = self
            .links
            .iter()
            .flat_map(|link| link.queue.iter().map(|(at, _)| *at))
            .filter(|at| *at < u64::MAX);
        let resends = self.links.iter().filter_map(|link| link.sender.deadline_ns());
        arrivals.chain(queued).chain(resends).filter(|at| *at > now).min()
    }
}

/// Network of ranks. Clones are handles of the same network.
#[derive(Clone)]
pub struct Network(pub(super) Rc<RefCell<SimFabric>>);

impl Network {
    /// Creates a network at time 0.
    pub fn new(ranks: u32, conditions: Conditions) -> Self {
        let mut random = Random::new(conditions.seed);
        let retry = Settings { window: conditions.slots as u32, ..conditions.retry };
        // In some networks, the first sequence number is so large that the numbers soon wrap.
        let link = |first: u32| SimLink {
            number: 0,
            peer_number: None,
            send_open: false,
            must_wake: false,
            promised: 0,
            recv_open: false,
            queue: VecDeque::new(),
            in_use: 0,
            owed: 0,
            sender: Sender::new(retry, first),
            receiver: Receiver::new(retry.window, first),
        };
        let first = if random.chance(0.5) { u32::MAX - 100 } else { 0 };
        let mut links: Vec<SimLink> = (0..ranks * ranks).map(|_| link(first)).collect();
        links.iter_mut().for_each(|link| link.number = random.next_u64());
        let machines = conditions.hardware.filter(|_| conditions.reliable);
        let machines = machines.map(|hardware| Box::new(Machines::new(ranks, &hardware)));
        Network(Rc::new(RefCell::new(SimFabric {
            machines,
            conditions,
            now_ns: 0,
            random,
            counts: NetworkCounts::default(),
            ports: (0..ranks).map(|_| SimPort::default()).collect(),
            links,
            sent: 0,
        })))
    }

    /// Virtual time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// Advances time by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        let mut fabric = self.0.borrow_mut();
        fabric.now_ns += ns;
        fabric.settle_machines();
    }

    /// Advances time to the next event; returns false if there is none.
    pub fn advance_to_next(&self) -> bool {
        let mut fabric = self.0.borrow_mut();
        match fabric.next_event() {
            Some(at) => {
                fabric.now_ns = at;
                fabric.settle_machines();
                true
            }
            None => false,
        }
    }

    /// Event counts.
    pub fn counts(&self) -> NetworkCounts {
        self.0.borrow().counts
    }

    /// Number of times that a rank has polled its wire-up interface.
    pub fn wireup_polls(&self, rank: u32) -> u64 {
        self.0.borrow().ports[rank as usize].wireup_polls
    }

    /// Sets the probabilities (0 to 1) of refused posts, lost packets and duplicated packets.
    pub fn set_faults(&self, refuse: f64, drop: f64, double: f64) {
        let conditions = &mut self.0.borrow_mut().conditions;
        (conditions.refuse, conditions.drop, conditions.double) = (refuse, drop, double);
    }

    /// Makes a rank leave: posts to it return [`crate::Post::PeerGone`].
    pub fn leave(&self, rank: u32) {
        self.0.borrow_mut().ports[rank as usize].gone = true;
    }

    /// Hash of everything from `from` that `to` can observe now or later.
    pub fn fingerprint(&self, from: u32, to: u32) -> u64 {
        let mut fabric = self.0.borrow_mut();
        let mut hasher = DefaultHasher::new();
        for (at, (sender, packet)) in &fabric.ports[to as usize].packets {
            if *sender == from {
                (at, packet).hash(&mut hasher);
            }
        }
        let link = fabric.link(from, to);
        link.queue.hash(&mut hasher);
        (link.sender.next_seq(), link.sender.in_flight(), link.in_use).hash(&mut hasher);
        (link.send_open, link.recv_open).hash(&mut hasher);
        hasher.finish()
    }

    /// Adds a forged message to the queue from `from` to `to` of a reliable network, as a hostile peer would.
    pub fn forge(&self, from: u32, to: u32, header: Header, data: &[u8]) {
        let mut fabric = self.0.borrow_mut();
        let now = fabric.now_ns;
        let message = Rc::new(SimMessage { header, data: data.to_vec() });
        let link = fabric.link(from, to);
        link.in_use += 1;
        let at = link.queue.back().map_or(now, |(at, _)| now.max(*at));
        link.queue.push_back((at, message));
    }
}
