use super::*;
use fastpath_base::random::Random;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Destination of a peer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DialTarget {
    /// The address leads to the peer.
    There,
    /// No process listens, which is reported at once.
    Refused,
    /// An unreachable host: the kernel fails after a long time.
    Nowhere,
    /// Another process, which closes the connection.
    Stranger,
    /// Another process, which never answers.
    Silent,
}

const GIVES_UP_NS: u64 = 20_000_000_000;

/// Events on the wire.
#[derive(Debug, Clone, Copy)]
enum WireEvent {
    /// The dial with this index failed; sent to the dialing side.
    Failed(usize),
    Welcome(usize),
    /// A dial to the address with this index; sent to the other side.
    Call(usize),
    Confirm(usize),
    Gone(usize),
}

struct ConnectSide {
    connect: Connect,
    leads: Vec<DialTarget>,
    open: Vec<usize>,
    /// Connection that this side uses, if any: its dialing side and the index of its address.
    uses: Option<(usize, usize)>,
    failed: bool,
}

/// Two sides, and the events in flight between them.
struct ConnectingPair {
    sides: [ConnectSide; 2],
    wire: BTreeMap<(u64, u64), (usize, WireEvent)>,
    now_ns: u64,
    sent: u64,
    random: Random,
    /// Arrival time of the last event of each connection, whose events stay in order.
    last: BTreeMap<(usize, usize, usize), u64>,
    /// Time until which a side computes and processes no events.
    busy_until: [u64; 2],
}

impl ConnectingPair {
    fn new(leads: [Vec<DialTarget>; 2], seed: u64) -> Self {
        let mut ranks = [true, false].into_iter();
        ConnectingPair {
            sides: leads.map(|leads| ConnectSide {
                connect: Connect::new(ranks.next().unwrap()),
                leads,
                open: Vec::new(),
                uses: None,
                failed: false,
            }),
            wire: BTreeMap::new(),
            now_ns: 0,
            sent: 0,
            random: Random::new(seed),
            last: BTreeMap::new(),
            busy_until: [0; 2],
        }
    }

    /// Sends an event; `dialler` and `dial` identify the connection.
    fn send(&mut self, to: usize, dialler: usize, dial: usize, what: WireEvent, delay: u64) {
        let last = self.last.entry((to, dialler, dial)).or_default();
        let at = (self.now_ns + delay).max(*last).max(self.busy_until[to]);
        *last = at;
        self.sent += 1;
        self.wire.insert((at, self.sent), (to, what));
    }

    fn apply(&mut self, me: usize, actions: Vec<ConnectAction>) {
        let peer = 1 - me;
        for action in actions {
            let delay = 1 + self.random.below(3_000_000);
            match action {
                ConnectAction::Dial(dial) => {
                    self.sides[me].open.push(dial);
                    match self.sides[me].leads[dial] {
                        DialTarget::There => {
                            self.send(peer, me, dial, WireEvent::Call(dial), delay)
                        }
                        DialTarget::Refused | DialTarget::Stranger => {
                            self.send(me, me, dial, WireEvent::Failed(dial), delay);
                        }
                        DialTarget::Nowhere => {
                            self.send(me, me, dial, WireEvent::Failed(dial), GIVES_UP_NS);
                        }
                        DialTarget::Silent => {}
                    }
                }
                ConnectAction::HangUp(dial) => {
                    self.sides[me].open.retain(|&open| open != dial);
                    if self.sides[me].leads[dial] == DialTarget::There {
                        self.send(peer, me, dial, WireEvent::Gone(dial), delay);
                    }
                }
                ConnectAction::Confirm(dial) => {
                    self.sides[me].open.retain(|&open| open != dial);
                    self.adopt(me, (me, dial));
                    self.send(peer, me, dial, WireEvent::Confirm(dial), delay);
                }
                ConnectAction::Welcome(id) => {
                    self.send(peer, peer, id as usize, WireEvent::Welcome(id as usize), delay);
                }
                ConnectAction::Dismiss(id) => {
                    self.send(peer, peer, id as usize, WireEvent::Failed(id as usize), delay);
                }
                ConnectAction::Adopt(id) => self.adopt(me, (peer, id as usize)),
                ConnectAction::Fail => self.sides[me].failed = true,
            }
        }
    }

    fn adopt(&mut self, me: usize, connection: (usize, usize)) {
        assert_eq!(self.sides[me].uses, None, "a second connection");
        assert!(!self.sides[me].failed, "after it had failed");
        self.sides[me].uses = Some(connection);
    }

    fn want(&mut self, me: usize) {
        let mut out = Vec::new();
        let side = &mut self.sides[me];
        side.connect.want(side.leads.len(), self.now_ns, &mut out);
        self.apply(me, out);
    }

    fn handle(&mut self, me: usize, what: WireEvent) {
        let (mut out, now) = (Vec::new(), self.now_ns);
        let side = &mut self.sides[me];
        match what {
            // The end of a connection in use would mean that the peer is dead.
            WireEvent::Failed(dial) => {
                assert_ne!(side.uses, Some((me, dial)), "the peer has closed what is in use");
                side.open.retain(|&open| open != dial);
                side.connect.fail(dial, now, &mut out);
            }
            WireEvent::Welcome(dial) if side.open.contains(&dial) => {
                side.connect.welcomed(dial, &mut out);
            }
            WireEvent::Welcome(_) => {}
            WireEvent::Call(id) => side.connect.called(id as u64, now, &mut out),
            WireEvent::Confirm(id) => side.connect.confirmed(id as u64, &mut out),
            WireEvent::Gone(id) => side.connect.caller_gone(id as u64, now, &mut out),
        }
        self.apply(me, out);
    }

    /// Advances to the next event; returns false if there is none.
    fn step(&mut self) -> bool {
        let arrival = self.wire.first_key_value().map(|(at, _)| at.0);
        let due = |side: usize| {
            let due = self.sides[side].connect.deadline_ns();
            due.map(|due| due.max(self.busy_until[side]))
        };
        let due = [due(0), due(1)].into_iter().flatten().min();
        let Some(at) = arrival.into_iter().chain(due).min() else {
            return false;
        };
        self.now_ns = self.now_ns.max(at);
        while let Some(first) = self.wire.first_entry()
            && first.key().0 <= self.now_ns
        {
            let (to, what) = first.remove();
            self.handle(to, what);
        }
        for me in 0..2 {
            if self.now_ns >= self.busy_until[me] {
                let mut out = Vec::new();
                self.sides[me].connect.tick(self.now_ns, &mut out);
                self.apply(me, out);
            }
        }
        true
    }

    fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never comes to rest");
    }
}

fn leads() -> impl Strategy<Value = Vec<DialTarget>> {
    let one = prop_oneof![
        3 => Just(DialTarget::There),
        1 => Just(DialTarget::Refused),
        1 => Just(DialTarget::Nowhere),
        1 => Just(DialTarget::Stranger),
        1 => Just(DialTarget::Silent),
    ];
    prop::collection::vec(one, 1..6)
}

proptest! {
    /// Property: for any dials, destinations and delays, two sides that reach each other end with the same connection.
    #[test]
    fn pair__ends_with_one_connection(
        low in leads(),
        high in leads(),
        seed: u64,
        later in 0_u64..2_000_000_000,
        first in 0_usize..2,
        busy in prop::array::uniform2(0_u64..3_000_000_000),
    ) {
        let (mut low, mut high) = (low, high);
        for leads in [&mut low, &mut high] {
            if !leads.contains(&DialTarget::There) {
                leads.push(DialTarget::There);
            }
        }
        let mut pair = ConnectingPair::new([low, high], seed);
        pair.busy_until = busy;
        pair.want(first);
        while pair.now_ns < later && pair.step() {}
        pair.now_ns = pair.now_ns.max(later);
        pair.want(1 - first);
        pair.run();
        prop_assert_eq!(pair.sides[0].uses, pair.sides[1].uses);
        prop_assert!(pair.sides[0].uses.is_some());
        prop_assert!(pair.sides.iter().all(|side| side.open.is_empty()));
    }

    /// Property: if only one side reaches the other, and both dial, the two connect, unless the other side has failed
    /// before. They never use different connections.
    #[test]
    fn pair__meets_where_one_way_is_open(low in leads(), high in leads(), seed: u64, both: bool) {
        let mut pair = ConnectingPair::new([low, high], seed);
        pair.want(0);
        if both {
            pair.want(1);
        }
        pair.run();
        let [low, high] = &pair.sides;
        let one_gave_up = low.failed || high.failed;
        prop_assert!(one_gave_up || low.uses == high.uses);
    }

    #[test]
    fn any_events__are_survived(steps in prop::collection::vec((0_u8..7, 0_usize..4, any::<bool>()), 0..60), lower: bool) {
        let mut side = Connect::new(lower);
        let mut out = Vec::new();
        for (now, (what, number, _)) in steps.into_iter().enumerate() {
            let now = now as u64 * 100_000_000;
            match what {
                0 => side.want(3, now, &mut out),
                1 => side.fail(number, now, &mut out),
                2 => side.welcomed(number, &mut out),
                3 => side.called(number as u64, now, &mut out),
                4 => side.confirmed(number as u64, &mut out),
                5 => side.caller_gone(number as u64, now, &mut out),
                _ => side.tick(now, &mut out),
            }
        }
        let ends = out.iter().filter(|action| {
            matches!(action, ConnectAction::Confirm(_) | ConnectAction::Adopt(_) | ConnectAction::Fail)
        });
        prop_assert!(ends.count() <= 1);
    }
}

fn run_alone(leads: &[DialTarget]) -> (ConnectingPair, u64) {
    let mut pair = ConnectingPair::new([leads.to_vec(), vec![DialTarget::Refused]], 1);
    pair.want(0);
    while pair.sides[0].uses.is_none() && !pair.sides[0].failed && pair.step() {}
    let now = pair.now_ns;
    (pair, now)
}

#[test]
fn dead_addresses__cost_a_quarter_of_a_second_each() {
    use DialTarget::*;
    for (leads, most_ms) in [
        (&[There][..], 20),
        (&[Nowhere, There], 270),
        (&[Silent, Nowhere, There], 520),
        (&[Refused, Stranger, Refused, There], 40),
    ] {
        let (pair, now_ns) = run_alone(leads);
        assert_eq!(pair.sides[0].uses, Some((0, leads.len() - 1)));
        assert!(now_ns < most_ms * 1_000_000, "{leads:?}: {now_ns} ns");
    }
}

#[test]
fn peer__that_nothing_leads_to_is_given_up() {
    use DialTarget::*;
    for leads in [&[Refused][..], &[Refused, Stranger], &[Nowhere, Refused]] {
        assert!(run_alone(leads).0.sides[0].failed, "{leads:?}");
    }
}

#[test]
fn both_at_once__use_the_call_of_the_lower_rank() {
    let mut pair = ConnectingPair::new([vec![DialTarget::There], vec![DialTarget::There]], 1);
    pair.want(1);
    pair.want(0);
    pair.run();
    assert_eq!(pair.sides[0].uses, Some((0, 0)));
    assert_eq!(pair.sides[1].uses, Some((0, 0)));
}

#[test]
fn lower_rank__whose_calls_are_not_answered_takes_the_peers() {
    let mut pair = ConnectingPair::new([vec![DialTarget::Silent], vec![DialTarget::There]], 1);
    pair.want(0);
    pair.want(1);
    pair.run();
    assert_eq!(pair.sides[0].uses, Some((1, 0)));
    assert_eq!(pair.sides[1].uses, Some((1, 0)));
    assert!(pair.now_ns < HELD_NS + 100_000_000);
}

#[test]
fn call__that_is_dropped_is_made_again_a_few_times() {
    let (mut connect, mut out) = (Connect::new(true), Vec::new());
    connect.want(1, 0, &mut out);
    for _ in 0..AGAIN_MOST {
        out.clear();
        connect.dropped(0, 0, &mut out);
        assert_eq!(out, [ConnectAction::Dial(0)]);
    }
    out.clear();
    connect.dropped(0, 0, &mut out);
    assert_eq!(out, [ConnectAction::Fail]);
}

#[test]
fn callers__that_never_confirm_are_bounded() {
    for lower in [true, false] {
        let mut connect = Connect::new(lower);
        let mut waiting = std::collections::BTreeSet::new();
        for id in 0..1000 {
            let mut out = Vec::new();
            connect.called(id, id, &mut out);
            waiting.insert(id);
            for action in out {
                if let ConnectAction::Dismiss(id) = action {
                    waiting.remove(&id);
                }
            }
            assert!(waiting.len() <= CALLERS_MOST && waiting.contains(&id));
        }
        let mut out = Vec::new();
        connect.confirmed(999, &mut out);
        assert_eq!(out[0], ConnectAction::Adopt(999));
    }
}

#[test]
fn forgotten__pair_is_as_new_where_its_calls_have_failed() {
    for lower in [true, false] {
        let (mut connect, mut out) = (Connect::new(lower), Vec::new());
        connect.want(1, 0, &mut out);
        connect.forget();
        assert_eq!(out, [ConnectAction::Dial(0)], "it is still under way");
        connect.fail(0, 0, &mut out);
        connect.forget();
        assert!(!connect.is_settled() && connect.deadline_ns().is_none());
        out.clear();
        connect.called(7, 0, &mut out);
        assert_eq!(out, [ConnectAction::Welcome(7)]);
    }
}
