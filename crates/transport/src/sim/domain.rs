//! The network: its clock, its ports and what is under way.

use super::adapter::Machines;
use super::wire::{Datagram, Message, Packet};
use super::{Conditions, SimIface};
use crate::contract::Header;
use crate::reliable::{Receiver, Sender, Settings};
use fastpath_base::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// What has happened on a network so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages accepted from users.
    pub posted: u64,
    /// Posts refused by chance or for want of room.
    pub refused: u64,
    /// Packets and messages of the wire-up lost.
    pub dropped: u64,
    /// Packets and messages of the wire-up that arrived twice.
    pub doubled: u64,
    /// Packets sent again by the reliability sublayer.
    pub resent: u64,
    /// Messages sent to an end that was not open yet, and lost. A right wire-up never does this.
    pub astray: u64,
    /// Posts that answered [`crate::Post::Wake`] while the answer to the one before was not heeded.
    pub unheeded: u64,
}

/// Things that arrive at a given time; of one time in the order sent.
pub(super) type Schedule<T> = BTreeMap<(u64, u64), (u32, T)>;

/// What one rank keeps about its connection with another.
pub(super) struct Link {
    /// Tells this end from an end that was there before; part of its address.
    pub number: u64,
    /// The peer's number, once known.
    pub peer_number: Option<u64>,
    pub send_open: bool,
    /// The last post asked for a [`crate::contract::Endpoint::wake`].
    pub must_wake: bool,
    pub recv_open: bool,
    /// Posts that will not be refused, because their sender has been told that there is room.
    pub promised: u32,
    /// Sent, in order, and not taken; reliable networks.
    pub queue: VecDeque<(u64, Rc<Message>)>,
    /// Room in use: sent, and not given back by the receiver.
    pub in_use: usize,
    /// Received and taken, and not given back to the sender.
    pub owed: usize,
    pub sender: Sender<Rc<Message>>,
    pub receiver: Receiver<Rc<Message>>,
}

#[derive(Default)]
pub(super) struct Port {
    pub packets: Schedule<Packet>,
    pub datagrams: Schedule<Datagram>,
    /// Peers that have connected and not been accepted, where no wire-up is needed.
    pub callers: Vec<u32>,
    pub gone: bool,
    pub wireup_polls: u64,
}

pub(super) struct Fabric {
    pub conditions: Conditions,
    pub now_ns: u64,
    pub random: Random,
    pub counts: Counts,
    pub ports: Vec<Port>,
    pub machines: Option<Box<Machines>>,
    links: Vec<Link>,
    sent: u64,
}

impl Fabric {
    pub fn link(&mut self, me: u32, peer: u32) -> &mut Link {
        &mut self.links[me as usize * self.ports.len() + peer as usize]
    }

    /// Time of arrival of what is sent now.
    pub fn draw_arrival(&mut self) -> u64 {
        let (least, most) = (*self.conditions.delay_ns.start(), *self.conditions.delay_ns.end());
        self.now_ns + least + self.random.below(most - least + 1)
    }

    /// Sends something that may be lost, doubled and overtaken.
    pub fn send_badly<T: Clone>(
        &mut self, to: u32, from: u32, item: T, of: fn(&mut Port) -> &mut Schedule<T>,
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

    /// When something will next happen by itself, after now.
    fn next_event(&mut self) -> Option<u64> {
        let planned = self.next_planned();
        let machines = self.machines.as_mut();
        let delivery = machines.and_then(|m| m.next_delivery(planned.unwrap_or(u64::MAX)));
        let delivery = delivery.map(|at| at.max(self.now_ns + 1));
        delivery.into_iter().chain(planned).min()
    }

    /// When something will next happen whose time is known already.
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

/// A network of a given number of ranks. Clones are handles of the same one.
#[derive(Clone)]
pub struct Network(pub(super) Rc<RefCell<Fabric>>);

impl Network {
    /// A network at time 0.
    pub fn new(ranks: u32, conditions: Conditions) -> Self {
        let mut random = Random::new(conditions.seed);
        let retry = Settings { window: conditions.slots as u32, ..conditions.retry };
        // Sequence numbers start close before their wrap-around now and then.
        let link = |first: u32| Link {
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
        let mut links: Vec<Link> = (0..ranks * ranks).map(|_| link(first)).collect();
        links.iter_mut().for_each(|link| link.number = random.next_u64());
        let machines = conditions.hardware.filter(|_| conditions.reliable);
        let machines = machines.map(|hardware| Box::new(Machines::new(ranks, &hardware)));
        Network(Rc::new(RefCell::new(Fabric {
            machines,
            conditions,
            now_ns: 0,
            random,
            counts: Counts::default(),
            ports: (0..ranks).map(|_| Port::default()).collect(),
            links,
            sent: 0,
        })))
    }

    /// The interface of one rank.
    pub fn iface(&self, rank: u32) -> SimIface {
        SimIface::new(self.clone(), rank)
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// Lets time pass.
    pub fn advance(&self, ns: u64) {
        let mut fabric = self.0.borrow_mut();
        fabric.now_ns += ns;
        fabric.settle_machines();
    }

    /// Lets time pass until something arrives or is due; false where nothing will.
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

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    /// How often a rank has asked its wire-up interface for messages.
    pub fn wireup_polls(&self, rank: u32) -> u64 {
        self.0.borrow().ports[rank as usize].wireup_polls
    }

    /// Changes how often posts are refused and packets lost, from now on.
    pub fn set_faults(&self, refuse: f64, drop: f64, double: f64) {
        let conditions = &mut self.0.borrow_mut().conditions;
        (conditions.refuse, conditions.drop, conditions.double) = (refuse, drop, double);
    }

    /// A rank leaves: posts to it answer [`crate::Post::PeerGone`].
    pub fn leave(&self, rank: u32) {
        self.0.borrow_mut().ports[rank as usize].gone = true;
    }

    /// Everything of `from`'s sending that `to` can observe, now or later, as a number.
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

    /// Puts a message that nobody sent into the queue from `from` to `to` of a reliable network, as
    /// a hostile peer would.
    pub fn forge(&self, from: u32, to: u32, header: Header, data: &[u8]) {
        let mut fabric = self.0.borrow_mut();
        let now = fabric.now_ns;
        let message = Rc::new(Message { header, data: data.to_vec() });
        let link = fabric.link(from, to);
        link.in_use += 1;
        let at = link.queue.back().map_or(now, |(at, _)| now.max(*at));
        link.queue.push_back((at, message));
    }
}
