//! Hostile peer that sends forged messages with wrong lengths, requests and owners. The transport's tests cover invalid
//! ring words.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_protocol::matching::ANY_PEER;
use fastpath_protocol::tag::ANY_TAG;
use fastpath_protocol::wire;
use fastpath_protocol::worker::Thresholds;
use fastpath_protocol::{RequestState, StartOutcome};
use fastpath_transport::Header;
use fastpath_transport::contract::{Connection, Endpoint};
use fastpath_transport::sim::{Conditions, SimEndpoint};
use proptest::prelude::*;

/// Fill of memory that the library may no longer read.
const POISON: u8 = 0xdd;

#[derive(Debug, Clone)]
enum HostileAction {
    /// The honest rank posts a receive, from its peer or any source.
    Recv {
        any: bool,
        tag: i32,
        room: usize,
    },
    /// The honest rank sends.
    Send {
        len: usize,
        synchronous: bool,
    },
    /// The honest rank cancels its oldest receive.
    Cancel,
    /// A forged message. `key`: see [`ForgedTarget`].
    Forge {
        id: u8,
        imm: u32,
        aux: u16,
        key: ForgedTarget,
        payload: Vec<u8>,
    },
    /// A forged RTS.
    Announce {
        total: u64,
        early: u32,
        offer: [u8; 2],
        request: u32,
        len: usize,
    },
    /// A forged RTR.
    Answer {
        key: ForgedTarget,
        limit: u64,
        request: u32,
        cooperative: u32,
    },
    Progress,
}

/// Target of a forged message.
#[derive(Debug, Clone, Copy)]
enum ForgedTarget {
    Any(u64),
    /// A match key in `MPI_COMM_WORLD`.
    Match,
    /// A request that a message of the honest rank has named, or a number near it.
    Seen(usize, i8),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..200, 100_u64..3000, any::<u64>(), Just(u64::MAX)]
}

fn early() -> impl Strategy<Value = u32> {
    prop_oneof![2 => 0_u32..2000, 1 => any::<u32>(), 1 => Just(0)]
}

fn key() -> impl Strategy<Value = ForgedTarget> {
    prop_oneof![
        1 => any::<u64>().prop_map(ForgedTarget::Any),
        2 => Just(ForgedTarget::Match),
        5 => (0_usize..50, -2_i8..3).prop_map(|(index, off)| ForgedTarget::Seen(index, off)),
        3 => (0_usize..50).prop_map(|index| ForgedTarget::Seen(index, 0)),
    ]
}

fn deed() -> impl Strategy<Value = HostileAction> {
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        4 => (any::<bool>(), 0_i32..2, 0_usize..2000).prop_map(|(any, tag, room)| HostileAction::Recv { any, tag, room }),
        3 => (0_usize..2000, any::<bool>()).prop_map(|(len, synchronous)| HostileAction::Send { len, synchronous }),
        1 => Just(HostileAction::Cancel),
        6 => (0_u8..25, 0_u32..3, 0_u16..600, key(), payload)
            .prop_map(|(id, imm, aux, key, payload)| HostileAction::Forge { id, imm, aux, key, payload }),
        4 => (size(), early(), (0_u8..5, any::<u8>()), any::<u32>(), 0_usize..600).prop_map(
            |(total, early, (offer, index), request, len)| HostileAction::Announce { total, early, offer: [offer, index], request, len }
        ),
        4 => (key(), size(), any::<u32>(), 0_u32..2).prop_map(|(key, limit, request, cooperative)| HostileAction::Answer { key, limit, request, cooperative }),
        5 => Just(HostileAction::Progress),
    ]
}

/// Honest rank 0, and the messages that its peer reads.
struct Victim {
    world: World,
    peer: SimEndpoint,
    seen: Vec<u64>,
    receives: Vec<Receiving>,
    ended: Vec<(Receiving, Vec<u8>)>,
    sends: Vec<Sending>,
    spent: Vec<Sending>,
}

impl Victim {
    fn new() -> Self {
        let thresholds = Thresholds {
            eager: 100,
            first: 400,
            fragment: 60,
            single_copy: 1000,
            ..Thresholds::default()
        };
        let mut world =
            World::new(2, Conditions { delay_ns: 0..=0, slots: 16, ..Conditions::default() });
        world.rank(0).planner.thresholds = thresholds;
        let mut peer = world.network.iface(1).endpoint(0);
        peer.connect();
        peer.open_receive();
        let (receives, ended, sends, spent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Victim { world, peer, seen: Vec::new(), receives, ended, sends, spent }
    }

    /// Makes progress, then checks all buffers.
    fn turn(&mut self) {
        self.world.rank(0).progress();
        self.collect();
        self.spy();
        self.check();
    }

    fn forge(&mut self, id: u8, key: u64, payload: &[u8]) {
        self.world.network.forge(1, 0, Header::new(id, 1, key), payload);
    }

    fn key(&self, key: ForgedTarget) -> u64 {
        match key {
            ForgedTarget::Any(key) => key,
            ForgedTarget::Match => WORLD.key(1),
            ForgedTarget::Seen(index, off) => match self.seen.len() {
                0 => 0,
                len => self.seen[len - 1 - index % len].wrapping_add_signed(off as i64),
            },
        }
    }

    /// Reads the honest rank's messages. Collects the requests that they name, and checks that they contain no poison.
    fn spy(&mut self) {
        while let Some(arrival) = self.peer.look() {
            // SAFETY: the arrival is valid until it is taken.
            let data = unsafe { std::slice::from_raw_parts(arrival.data(), arrival.len()) };
            let poisoned = data.windows(8).any(|run| run.iter().all(|&byte| byte == POISON));
            assert!(
                !poisoned,
                "read a buffer after its send had completed: id {}",
                arrival.header.id
            );
            self.seen.extend(
                data.chunks_exact(4)
                    .take(9)
                    .map(|word| u32::from_le_bytes(word.try_into().unwrap()) as u64),
            );
            self.seen.push(arrival.header.key);
            self.peer.take();
        }
        self.seen.retain(|seen| seen >> 30 == 1);
        self.peer.return_credits();
    }

    /// Collects completed receives, whose buffers belong to their user again.
    fn collect(&mut self) {
        let worker = &mut self.world.workers[0];
        for index in (0..self.receives.len()).rev() {
            if worker.requests.get(self.receives[index].id).state == RequestState::Complete {
                let receiving = self.receives.remove(index);
                let request = worker.requests.get(receiving.id);
                assert!(request.received <= receiving.room as u64);
                worker.requests.free(receiving.id);
                let now = receiving.data.to_vec();
                assert!(
                    now[receiving.room..].iter().all(|&byte| byte == FILL),
                    "wrote beyond the buffer"
                );
                self.ended.push((receiving, now));
            }
        }
        for index in (0..self.sends.len()).rev() {
            let done = match self.sends[index].started {
                StartOutcome::Done => true,
                StartOutcome::Request(id) => {
                    worker.requests.get(id).state == RequestState::Complete
                }
            };
            if done {
                let mut sending = self.sends.remove(index);
                if let StartOutcome::Request(id) = sending.started {
                    worker.requests.free(id);
                }
                sending.data.fill(POISON);
                self.spent.push(sending);
            }
        }
    }

    fn check(&self) {
        for (receiving, then) in &self.ended {
            assert!(
                receiving.data[..] == then[..],
                "wrote to a buffer after its receive had completed"
            );
        }
        for receiving in &self.receives {
            assert!(
                receiving.data[receiving.room..].iter().all(|&byte| byte == FILL),
                "wrote beyond the buffer"
            );
        }
    }

    fn act(&mut self, deed: HostileAction) {
        match deed {
            HostileAction::Recv { any, tag, room } => {
                let tag = if tag == 0 { ANY_TAG } else { tag };
                let receiving = match any {
                    true => self.world.recv(0, ANY_PEER, tag, room),
                    // Take the path of `MPI_Irecv`, if possible.
                    false if room % 2 == 0 => self.world.recv_short(0, 1, tag, room),
                    false => self.world.recv(0, 1, tag, room),
                };
                self.receives.push(receiving);
            }
            HostileAction::Send { len, synchronous } => {
                let data = vec![1; len];
                self.sends.push(self.world.send_as(0, 1, 1, &data, synchronous));
            }
            HostileAction::Cancel => {
                if let Some(receiving) = self.receives.first() {
                    self.world.workers[0].cancel_recv(receiving.id);
                }
            }
            HostileAction::Forge { id, imm, aux, key, payload } => {
                let header = Header { aux, ..Header::new(id, imm, self.key(key)) };
                self.world.network.forge(1, 0, header, &payload);
            }
            HostileAction::Announce { total, early, offer, request, len } => {
                let mut payload = Vec::new();
                payload.extend(total.to_le_bytes());
                payload.extend([0, 1_u64].map(u64::to_le_bytes).concat());
                payload.extend(request.to_le_bytes());
                payload.extend(early.to_le_bytes());
                payload.extend([0; 4]);
                payload.extend(offer);
                payload.resize(wire::RTS_HEADER + len, 2);
                let header = Header::new(4, 1, WORLD.key(1));
                self.world.network.forge(1, 0, header, &payload);
            }
            HostileAction::Answer { key, limit, request, cooperative } => {
                let mut payload = Vec::new();
                payload.extend(limit.to_le_bytes());
                payload.extend(request.to_le_bytes());
                payload.extend(cooperative.to_le_bytes());
                payload.extend([0; 16]);
                let header = Header::new(5, 0, self.key(key));
                self.world.network.forge(1, 0, header, &payload);
            }
            HostileAction::Progress => {
                self.world.rank(0).progress();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages__that_are_forged__affect_only_their_sender(deeds in prop::collection::vec(deed(), 0..200)) {
        let mut victim = Victim::new();
        for deed in deeds {
            victim.act(deed);
            victim.collect();
            victim.spy();
            victim.check();
        }
        for _ in 0..20 {
            victim.turn();
        }
    }
}

#[test]
fn cancelled__receive_has_got_nothing_of_the_one_before() {
    let mut victim = Victim::new();
    let recv = |room| HostileAction::Recv { any: false, tag: 0, room };
    let message = HostileAction::Forge {
        id: wire::EAGER,
        imm: 1,
        aux: 0,
        key: ForgedTarget::Match,
        payload: vec![0; 35],
    };
    for deed in
        [message, recv(35), HostileAction::Progress, recv(20), recv(0), HostileAction::Cancel]
    {
        victim.act(deed);
        victim.collect();
    }
    assert_eq!(victim.receives.len(), 1);
}

/// Creates a victim that has posted a receive of 1000 bytes and has an RTS of a message of 1000 bytes. The RTS brings
/// the first 60 of 200 eager bytes.
fn victim_of_an_rts() -> Victim {
    let mut victim = Victim::new();
    victim.act(HostileAction::Recv { any: false, tag: 1, room: 1000 });
    victim.act(HostileAction::Announce {
        total: 1000,
        early: 200,
        offer: [0, 0],
        request: 1,
        len: 60,
    });
    victim.turn();
    victim
}

#[test]
fn fragment__does_not_end_a_receive_whose_early_bytes_are_still_to_come() {
    let mut victim = victim_of_an_rts();
    let handle = victim.world.rank(0).requests.get(victim.receives[0].id).handle as u64;
    victim.forge(wire::FRAG, handle, &[3; 940]);
    victim.turn();
    // If the receive were complete already, these bytes would be written to a buffer that its user may reuse.
    victim.forge(wire::EAGER_MIDDLE, 0, &[4; 140]);
    victim.turn();
    assert_eq!(victim.receives.len(), 1, "still under way");
    victim.forge(wire::FRAG, handle, &[5; 800]);
    victim.turn();
    assert!(victim.receives.is_empty(), "{:?}", victim.world.rank(0).counters);
    assert_eq!(victim.world.rank(0).counters.violations, 1);
}

#[test]
fn early_bytes__of_a_receive_that_was_given_up_go_nowhere() {
    let mut victim = victim_of_an_rts();
    victim.world.network.leave(1);
    let id = victim.receives[0].id;
    assert!(victim.world.rank(0).give_up(id, 1));
    victim.turn();
    assert!(victim.receives.is_empty(), "its buffer is its user's again");
    // `turn` compares the buffer.
    victim.forge(wire::EAGER_MIDDLE, 0, &[4; 140]);
    victim.turn();
    assert_eq!(victim.world.rank(0).counters.violations, 1);
}

#[test]
fn fragment__for_a_posted_receive_is_refused_whatever_its_request_was_before() {
    let mut victim = Victim::new();
    // The peer requests fewer bytes of a long send than it has received already.
    victim.act(HostileAction::Send { len: 900, synchronous: false });
    victim.spy();
    let StartOutcome::Request(id) = victim.sends[0].started else { panic!("it has no request") };
    let handle = victim.world.rank(0).requests.get(id).handle as u64;
    let mut answer = [0; 32];
    answer[0] = 1;
    victim.forge(wire::RTR, handle, &answer);
    (0..5).for_each(|_| victim.turn());
    assert!(victim.sends.is_empty(), "it has ended");
    let receiving = victim.world.recv_short(0, 1, 1, 100);
    assert_eq!(receiving.id, id);
    victim.receives.push(receiving);
    let handle = victim.world.rank(0).requests.get(id).handle as u64;
    victim.forge(wire::FRAG, handle, &[3; 50]);
    victim.turn();
    assert_eq!(victim.receives.len(), 1, "it waits");
    assert_eq!(victim.world.rank(0).counters.violations, 1);
}

#[test]
fn answer__to_what_was_never_sent_completes_nothing() {
    for id in [wire::ACK, wire::ATS, wire::RTR] {
        for synchronous in [false, true] {
            for len in [90, 300, 5000] {
                let mut victim = Victim::new();
                for _ in 0..20 {
                    victim.act(HostileAction::Send { len: 50, synchronous: false });
                }
                victim.act(HostileAction::Send { len, synchronous });
                victim.collect();
                // The send waits for space; a peer can only guess its request.
                let StartOutcome::Request(last) = victim.sends.last().unwrap().started else {
                    panic!("there was room")
                };
                let handle = victim.world.rank(0).requests.get(last).handle as u64;
                let mut payload = [0; 32];
                payload[..8].copy_from_slice(&(len as u64).to_le_bytes());
                victim.forge(id, handle, &payload);
                victim.world.rank(0).progress();
                assert_eq!(
                    victim.world.rank(0).requests.get(last).state,
                    RequestState::Active,
                    "{id} {synchronous} {len}"
                );
                (0..20).for_each(|_| victim.turn());
            }
        }
    }
}
