//! Connecting endpoints whose two ends must know each other's addresses first.
//!
//! Pure: events and time come in, [`Action`]s come out. Messages of the wire-up may be lost, doubled
//! and overtaken; each step is answered or sent again. One side asks, or both at once:
//!
//! ```text
//! A: connect                    B
//!    Request(address of A)  -->    opens its end to A
//!    opens, ready           <--    Reply(address of B)
//!    Confirm                -->    ready
//! ```
//!
//! *Open* says that the local end takes what the peer sends, *ready* that the peer's end is known
//! to be open, so that data may flow. Where both ask at once, each answers the other's request, and
//! each reply confirms the other side's opening. Who cannot open its end says so, to each request and reply.

use fastpath_transport::Address;
use std::collections::BTreeMap;

/// A message of the wire-up.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireupMessage {
    /// I want to talk; this is my address.
    Request = 1,
    /// I have opened my end to you; this is my address.
    Reply = 2,
    /// I have opened mine too.
    Confirm = 3,
    /// There will be no connection.
    Refuse = 4,
}

impl WireupMessage {
    /// The step of a number on the wire.
    pub fn from_wire(step: u8) -> Option<Self> {
        [
            WireupMessage::Request,
            WireupMessage::Reply,
            WireupMessage::Confirm,
            WireupMessage::Refuse,
        ]
        .into_iter()
        .find(|known| *known as u8 == step)
    }
}

/// What the owner of the state machine must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send this step, with the own address, to this peer.
    Send(u32, WireupMessage),
    /// Open the local end for what comes from that address of this peer.
    Open(u32, Address),
    /// Data may be sent to this peer.
    Ready(u32),
    /// This peer does not answer.
    Fail(u32),
}

/// How patient the wire-up is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Nanoseconds until a step is sent again; doubled each time up to 64 times this.
    pub timeout_ns: u64,
    /// Sends of one step before the peer is given up. Without end unless set: a peer answers only while
    /// it is inside MPI, and may compute for hours before that.
    pub sends: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { timeout_ns: 2_000_000, sends: u32::MAX }
    }
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request is out.
    Requested,
    /// The local end is open, and the reply is out.
    Accepted,
    /// Data may flow both ways.
    Connected,
    /// Given up.
    Failed,
}

struct Attempt {
    stage: Stage,
    due_ns: u64,
    sends: u32,
}

/// The connections of one worker that need a wire-up.
#[derive(Default)]
pub struct Wireup {
    retry_policy: RetryPolicy,
    attempts: BTreeMap<u32, Attempt>,
    connecting: u32,
}

impl Wireup {
    /// Nothing is connecting.
    pub fn new(retry_policy: RetryPolicy) -> Self {
        Wireup { retry_policy, ..Wireup::default() }
    }

    /// Whether anything is connecting: only then need the wire-up interface be progressed.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.connecting != 0
    }

    /// Where the connection to a peer stands; `None` where there has been no attempt.
    pub fn stage(&self, peer: u32) -> Option<Stage> {
        self.attempts.get(&peer).map(|attempt| attempt.stage)
    }

    /// The local side wants to talk to `peer`.
    pub fn connect(&mut self, peer: u32, now_ns: u64, out: &mut Vec<Action>) {
        if !self.attempts.contains_key(&peer) {
            self.begin(peer, Stage::Requested, now_ns);
            out.push(Action::Send(peer, WireupMessage::Request));
        }
    }

    /// A message of the wire-up has come from `peer`.
    pub fn receive(
        &mut self, peer: u32, step: WireupMessage, address: Address, now_ns: u64,
        out: &mut Vec<Action>,
    ) {
        match (self.stage(peer), step) {
            (None, WireupMessage::Request) | (Some(Stage::Requested), WireupMessage::Request) => {
                self.begin(peer, Stage::Accepted, now_ns);
                out.extend([Action::Open(peer, address), Action::Send(peer, WireupMessage::Reply)]);
            }
            (Some(Stage::Requested), WireupMessage::Reply) => {
                self.end(peer, Stage::Connected);
                let confirm = Action::Send(peer, WireupMessage::Confirm);
                out.extend([Action::Open(peer, address), Action::Ready(peer), confirm]);
            }
            // It sent this before it had our reply, or our reply was lost.
            (Some(Stage::Accepted), WireupMessage::Request) => {
                out.push(Action::Send(peer, WireupMessage::Reply))
            }
            (Some(Stage::Accepted), WireupMessage::Reply) => {
                self.end(peer, Stage::Connected);
                out.extend([Action::Ready(peer), Action::Send(peer, WireupMessage::Confirm)]);
            }
            (Some(Stage::Accepted), WireupMessage::Confirm) => {
                self.end(peer, Stage::Connected);
                out.push(Action::Ready(peer));
            }
            (Some(Stage::Requested | Stage::Accepted), WireupMessage::Refuse) => {
                self.give_up(peer, out)
            }
            // Our refusal was lost.
            (Some(Stage::Failed), WireupMessage::Request | WireupMessage::Reply) => {
                out.push(Action::Send(peer, WireupMessage::Refuse));
            }
            // Our confirmation was lost.
            (Some(Stage::Connected), WireupMessage::Reply) => {
                out.push(Action::Send(peer, WireupMessage::Confirm))
            }
            // Late copies, and what no healthy peer sends.
            _ => {}
        }
    }

    /// Time has passed: what has gone unanswered is sent again, or given up.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        for (&peer, attempt) in &mut self.attempts {
            let step = match attempt.stage {
                Stage::Requested => WireupMessage::Request,
                Stage::Accepted => WireupMessage::Reply,
                Stage::Connected | Stage::Failed => continue,
            };
            if attempt.due_ns > now_ns {
                continue;
            }
            if attempt.sends >= self.retry_policy.sends {
                attempt.stage = Stage::Failed;
                self.connecting -= 1;
                out.push(Action::Fail(peer));
                continue;
            }
            attempt.due_ns = now_ns + (self.retry_policy.timeout_ns << attempt.sends.min(6));
            attempt.sends = attempt.sends.saturating_add(1);
            out.push(Action::Send(peer, step));
        }
    }

    /// This side cannot open its end: the peer is told so, now and whenever it asks.
    pub fn refuse(&mut self, peer: u32, out: &mut Vec<Action>) {
        match self.stage(peer) {
            Some(Stage::Requested | Stage::Accepted) => self.end(peer, Stage::Failed),
            _ => {
                let attempt = Attempt { stage: Stage::Failed, due_ns: 0, sends: 0 };
                self.attempts.insert(peer, attempt);
            }
        }
        out.push(Action::Send(peer, WireupMessage::Refuse));
    }

    /// What was to be sent to this peer has not even left: it is tried again soon.
    pub fn postpone(&mut self, peer: u32, now_ns: u64) {
        if let Some(attempt) = self.attempts.get_mut(&peer) {
            attempt.due_ns = now_ns + self.retry_policy.timeout_ns;
            attempt.sends = attempt.sends.min(1);
        }
    }

    /// This peer has left and will never answer, or has said that it will not connect.
    pub fn give_up(&mut self, peer: u32, out: &mut Vec<Action>) {
        if matches!(self.stage(peer), Some(Stage::Requested | Stage::Accepted)) {
            self.end(peer, Stage::Failed);
            out.push(Action::Fail(peer));
        }
    }

    /// The attempts that wait for an answer.
    fn pending(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        let attempts = self.attempts.iter().map(|(&peer, attempt)| (peer, attempt));
        attempts.filter(|(_, a)| matches!(a.stage, Stage::Requested | Stage::Accepted))
    }

    /// The peers that are being connected.
    pub fn connecting(&self) -> impl Iterator<Item = u32> {
        self.pending().map(|(peer, _)| peer)
    }

    fn begin(&mut self, peer: u32, stage: Stage, now_ns: u64) {
        let attempt = Attempt { stage, due_ns: now_ns + self.retry_policy.timeout_ns, sends: 1 };
        if self.attempts.insert(peer, attempt).is_none() {
            self.connecting += 1;
        }
    }

    fn end(&mut self, peer: u32, stage: Stage) {
        if let Some(attempt) = self.attempts.get_mut(&peer) {
            attempt.stage = stage;
            self.connecting -= 1;
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::random::Random;
    use proptest::prelude::*;

    impl Wireup {
        /// When [`Wireup::tick`] will next have something to do; `None` while nothing is connecting.
        fn deadline_ns(&self) -> Option<u64> {
            self.pending().map(|(_, attempt)| attempt.due_ns).min()
        }
    }

    const RETRY_POLICY: RetryPolicy = RetryPolicy { timeout_ns: 1000, sends: 1000 };

    fn address(rank: u32) -> Address {
        Address::new(&rank.to_le_bytes()).unwrap()
    }

    /// Two sides and a bad wire between them.
    struct WireupPair {
        sides: [Wireup; 2],
        open: [bool; 2],
        ready: [bool; 2],
        wire: Vec<(u64, usize, WireupMessage)>,
        random: Random,
        now: u64,
        loss: f64,
        /// The side that cannot open its end, and the one that has been told so.
        refuses: Option<usize>,
        failed: [bool; 2],
    }

    impl WireupPair {
        fn new(seed: u64, loss: f64) -> Self {
            WireupPair {
                sides: [Wireup::new(RETRY_POLICY), Wireup::new(RETRY_POLICY)],
                open: [false; 2],
                ready: [false; 2],
                wire: Vec::new(),
                random: Random::new(seed),
                now: 0,
                loss,
                refuses: None,
                failed: [false; 2],
            }
        }

        fn apply(&mut self, me: usize, actions: Vec<Action>) {
            let peer = 1 - me;
            for action in actions {
                let cut = self.refuses.is_some()
                    && self.sides[me].stage(peer as u32) == Some(Stage::Failed);
                match action {
                    Action::Send(_, step) if cut && step != WireupMessage::Refuse => {}
                    Action::Open(..) if self.refuses == Some(me) => {
                        let mut out = Vec::new();
                        self.sides[me].refuse(peer as u32, &mut out);
                        self.apply(me, out);
                    }
                    Action::Ready(_) if cut => {}
                    Action::Fail(_) if self.refuses == Some(peer) => self.failed[me] = true,
                    Action::Send(to, step) => {
                        assert_eq!(to as usize, peer);
                        let copies = if self.random.chance(self.loss) {
                            0
                        } else {
                            1 + self.random.below(2)
                        };
                        for _ in 0..copies {
                            self.wire.push((self.now + self.random.below(3000), peer, step));
                        }
                    }
                    Action::Open(from, at) => {
                        assert_eq!((from as usize, at), (peer, address(peer as u32)));
                        assert!(!self.open[me], "opened twice");
                        self.open[me] = true;
                    }
                    Action::Ready(to) => {
                        assert_eq!(to as usize, peer);
                        assert!(!self.ready[me], "ready twice");
                        assert!(self.open[peer], "data would meet a closed end");
                        self.ready[me] = true;
                    }
                    Action::Fail(_) => panic!("gave up"),
                }
            }
        }

        fn connect(&mut self, me: usize) {
            let mut out = Vec::new();
            self.sides[me].connect(1 - me as u32, self.now, &mut out);
            self.apply(me, out);
        }

        fn step(&mut self) {
            self.now += 1 + self.random.below(500);
            for me in 0..2 {
                let mut out = Vec::new();
                while let Some(index) =
                    self.wire.iter().position(|(at, to, _)| *at <= self.now && *to == me)
                {
                    let (_, _, step) = self.wire.swap_remove(index);
                    let peer = 1 - me as u32;
                    self.sides[me].receive(peer, step, address(peer), self.now, &mut out);
                }
                self.sides[me].tick(self.now, &mut out);
                self.apply(me, out);
            }
        }

        fn is_settled(&self) -> bool {
            self.wire.is_empty() && !self.sides.iter().any(Wireup::is_active)
        }
    }

    proptest! {
        #[test]
        fn pair__both_become_ready_once_whoever_asks(seed: u64, loss in 0.0..0.7, first in 0_usize..2, both: bool, later in 0_usize..20) {
            let mut pair = WireupPair::new(seed, loss);
            pair.connect(first);
            for step in 0..200_000 {
                if both && step == later {
                    pair.connect(1 - first);
                }
                if pair.is_settled() && step > later {
                    break;
                }
                pair.step();
            }
            prop_assert!(pair.is_settled());
            prop_assert_eq!((pair.open, pair.ready), ([true; 2], [true; 2]));
            for side in &pair.sides {
                prop_assert_eq!(side.deadline_ns(), None);
            }
        }

        #[test]
        fn receive__any_message_at_any_time_is_survived(steps in prop::collection::vec((0_u32..3, 0_u8..6, any::<bool>()), 0..60)) {
            let mut side = Wireup::new(RETRY_POLICY);
            let mut out = Vec::new();
            for (now, (peer, step, connect)) in steps.into_iter().enumerate() {
                if connect {
                    side.connect(peer, now as u64, &mut out);
                } else if let Some(step) = WireupMessage::from_wire(step) {
                    side.receive(peer, step, address(peer), now as u64, &mut out);
                }
                side.tick(now as u64 * 700, &mut out);
            }
            for peer in 0..3 {
                let opened = out.iter().filter(|a| matches!(a, Action::Open(p, _) if *p == peer)).count();
                let ready = out.iter().filter(|a| **a == Action::Ready(peer)).count();
                prop_assert!(opened <= 1 && ready <= opened);
            }
        }
    }

    proptest! {
        /// Whoever asks and whatever is lost: where one side cannot open its end, neither is left waiting.
        #[test]
        fn refuse__ends_both_sides(seed: u64, loss in 0.0..0.7, both: bool) {
            let mut pair = WireupPair::new(seed, loss);
            pair.refuses = Some(1);
            pair.connect(0);
            if both {
                pair.connect(1);
            }
            for _ in 0..200_000 {
                if pair.is_settled() && pair.sides[0].stage(1) == Some(Stage::Failed) {
                    break;
                }
                pair.step();
            }
            prop_assert!(pair.is_settled());
            prop_assert_eq!(pair.sides[0].stage(1), Some(Stage::Failed));
            prop_assert_eq!(pair.ready, [false; 2]);
        }
    }

    #[test]
    fn refuse__of_what_was_connected_but_for_the_own_end_is_told() {
        let mut side = Wireup::new(RETRY_POLICY);
        let mut out = Vec::new();
        side.connect(1, 0, &mut out);
        side.receive(1, WireupMessage::Reply, address(1), 1, &mut out);
        assert_eq!(side.stage(1), Some(Stage::Connected));
        out.clear();
        side.refuse(1, &mut out);
        assert_eq!(out, [Action::Send(1, WireupMessage::Refuse)]);
        assert!(!side.is_active() && side.deadline_ns().is_none());
        // The peer repeats what it said.
        side.receive(1, WireupMessage::Reply, address(1), 2, &mut out);
        assert_eq!(out, [Action::Send(1, WireupMessage::Refuse); 2]);
    }

    #[test]
    fn postpone__asks_again_soon_however_often() {
        let mut side = Wireup::new(RETRY_POLICY);
        let mut out = Vec::new();
        side.connect(1, 0, &mut out);
        for now in [0, 1000, 2000, 3000] {
            side.postpone(1, now);
            assert_eq!(side.deadline_ns(), Some(now + RETRY_POLICY.timeout_ns));
            side.tick(now + RETRY_POLICY.timeout_ns, &mut out);
        }
    }

    #[test]
    fn connect__on_a_good_wire_takes_three_messages() {
        let mut sides = [Wireup::new(RETRY_POLICY), Wireup::new(RETRY_POLICY)];
        let mut out = Vec::new();
        sides[0].connect(1, 0, &mut out);
        sides[0].connect(1, 0, &mut out);
        assert_eq!(out, [Action::Send(1, WireupMessage::Request)]);
        out.clear();
        sides[1].receive(0, WireupMessage::Request, address(0), 1, &mut out);
        assert_eq!(out, [Action::Open(0, address(0)), Action::Send(0, WireupMessage::Reply)]);
        out.clear();
        sides[0].receive(1, WireupMessage::Reply, address(1), 2, &mut out);
        assert_eq!(
            out,
            [
                Action::Open(1, address(1)),
                Action::Ready(1),
                Action::Send(1, WireupMessage::Confirm)
            ]
        );
        assert!(!sides[0].is_active() && sides[1].is_active());
        out.clear();
        sides[1].receive(0, WireupMessage::Confirm, Address::default(), 3, &mut out);
        assert_eq!(out, [Action::Ready(0)]);
        assert!(!sides[1].is_active());
    }

    #[test]
    fn tick__an_unanswered_request_is_sent_again_ever_later_and_then_given_up() {
        let mut side = Wireup::new(RetryPolicy { timeout_ns: 10, sends: 4 });
        let mut out = Vec::new();
        side.connect(1, 0, &mut out);
        let mut times = Vec::new();
        while let Some(due) = side.deadline_ns() {
            out.clear();
            side.tick(due - 1, &mut out);
            assert!(out.is_empty());
            side.tick(due, &mut out);
            assert_eq!(out.len(), 1);
            times.push(due);
        }
        assert_eq!(times, [10, 30, 70, 150]);
        assert_eq!(
            (out[0], side.stage(1), side.is_active()),
            (Action::Fail(1), Some(Stage::Failed), false)
        );
    }
}
