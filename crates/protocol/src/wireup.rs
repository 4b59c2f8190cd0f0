//! Wire-up of endpoints whose two ends need each other's addresses first.
//!
//! The state machine is pure: events and time come in, [`WireupAction`]s come out. Messages of the wire-up may be lost,
//! duplicated and reordered; each step is answered or sent again. One side starts, or both at once:
//!
//! ```text
//! A: connect                    B
//!    Request(address of A)  -->    opens its end to A
//!    opens, ready           <--    Reply(address of B)
//!    Confirm                -->    ready
//! ```
//!
//! *Open*: the local end accepts what the peer sends. *Ready*: data may be sent, because the peer's end is known to be
//! open. If both sides start at once, each answers the other's request, and each reply confirms the other side's
//! opening. A side that cannot open its end refuses each request and reply.

use fastpath_transport::Address;
use std::collections::BTreeMap;

/// A message of the wire-up.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireupMessage {
    /// Request for a connection, with the sender's address.
    Request = 1,
    /// The sender has opened its end; carries its address.
    Reply = 2,
    /// The sender has received the reply, and has opened its end too.
    Confirm = 3,
    /// There will be no connection.
    Refuse = 4,
}

impl WireupMessage {
    /// Decodes a step.
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

/// Action that the owner of the state machine must take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireupAction {
    /// Send this step to this peer, with the address of this process.
    Send(u32, WireupMessage),
    /// Open the local end for messages from this address of this peer.
    Open(u32, Address),
    /// The connection is open at both ends, so data may be sent to this peer.
    Ready(u32),
    /// The connection to this peer has failed.
    Fail(u32),
}

/// Timeouts and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Nanoseconds until a step is sent again. Doubles with each send, up to 64 times this value.
    pub timeout_ns: u64,
    /// Maximum number of times that one step is sent. Unlimited by default, because a peer answers only inside MPI and
    /// may compute for hours.
    pub sends: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { timeout_ns: 2_000_000, sends: u32::MAX }
    }
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request was sent.
    Requested,
    /// The local end is open, and the reply was sent.
    Accepted,
    /// Data may be sent both ways.
    Connected,
    /// The attempt has ended without a connection.
    Failed,
}

struct Attempt {
    stage: Stage,
    due_ns: u64,
    sends: u32,
}

/// Wire-ups of one worker.
#[derive(Default)]
pub struct Wireup {
    retry_policy: RetryPolicy,
    attempts: BTreeMap<u32, Attempt>,
    connecting: u32,
}

impl Wireup {
    /// Creates the state of a worker without connections.
    pub fn new(retry_policy: RetryPolicy) -> Self {
        Wireup { retry_policy, ..Wireup::default() }
    }

    /// Returns whether any peer is connecting. If none is, the wire-up interface need not be polled.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.connecting != 0
    }

    /// Returns the state of the connection to a peer; `None` if there was no attempt.
    pub fn stage(&self, peer: u32) -> Option<Stage> {
        self.attempts.get(&peer).map(|attempt| attempt.stage)
    }

    /// Starts a connection to `peer`, if there was no attempt.
    pub fn connect(&mut self, peer: u32, now_ns: u64, out: &mut Vec<WireupAction>) {
        if !self.attempts.contains_key(&peer) {
            self.begin(peer, Stage::Requested, now_ns);
            out.push(WireupAction::Send(peer, WireupMessage::Request));
        }
    }

    /// Handles a wire-up message from `peer`.
    pub fn receive(
        &mut self, peer: u32, step: WireupMessage, address: Address, now_ns: u64,
        out: &mut Vec<WireupAction>,
    ) {
        match (self.stage(peer), step) {
            (None, WireupMessage::Request) | (Some(Stage::Requested), WireupMessage::Request) => {
                self.begin(peer, Stage::Accepted, now_ns);
                out.extend([
                    WireupAction::Open(peer, address),
                    WireupAction::Send(peer, WireupMessage::Reply),
                ]);
            }
            (Some(Stage::Requested), WireupMessage::Reply) => {
                self.end(peer, Stage::Connected);
                let confirm = WireupAction::Send(peer, WireupMessage::Confirm);
                out.extend([WireupAction::Open(peer, address), WireupAction::Ready(peer), confirm]);
            }
            // The peer sent this request before it had our reply, or our reply was lost. Send the reply again.
            (Some(Stage::Accepted), WireupMessage::Request) => {
                out.push(WireupAction::Send(peer, WireupMessage::Reply))
            }
            (Some(Stage::Accepted), WireupMessage::Reply) => {
                self.end(peer, Stage::Connected);
                out.extend([
                    WireupAction::Ready(peer),
                    WireupAction::Send(peer, WireupMessage::Confirm),
                ]);
            }
            (Some(Stage::Accepted), WireupMessage::Confirm) => {
                self.end(peer, Stage::Connected);
                out.push(WireupAction::Ready(peer));
            }
            (Some(Stage::Requested | Stage::Accepted), WireupMessage::Refuse) => {
                self.give_up(peer, out)
            }
            // Our refusal was lost, so send it again.
            (Some(Stage::Failed), WireupMessage::Request | WireupMessage::Reply) => {
                out.push(WireupAction::Send(peer, WireupMessage::Refuse));
            }
            // Our confirmation was lost, so send it again.
            (Some(Stage::Connected), WireupMessage::Reply) => {
                out.push(WireupAction::Send(peer, WireupMessage::Confirm))
            }
            // Ignore late copies and violations.
            _ => {}
        }
    }

    /// Sends steps again that have not been answered in time, or gives up their peers after too many sends.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<WireupAction>) {
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
                out.push(WireupAction::Fail(peer));
                continue;
            }
            attempt.due_ns = now_ns + (self.retry_policy.timeout_ns << attempt.sends.min(6));
            attempt.sends = attempt.sends.saturating_add(1);
            out.push(WireupAction::Send(peer, step));
        }
    }

    /// Refuses a peer to which this side cannot open its end. Later requests are refused too.
    pub fn refuse(&mut self, peer: u32, out: &mut Vec<WireupAction>) {
        match self.stage(peer) {
            Some(Stage::Requested | Stage::Accepted) => self.end(peer, Stage::Failed),
            _ => {
                let attempt = Attempt { stage: Stage::Failed, due_ns: 0, sends: 0 };
                self.attempts.insert(peer, attempt);
            }
        }
        out.push(WireupAction::Send(peer, WireupMessage::Refuse));
    }

    /// Notes that a step's message could not be sent, so that [`Wireup::tick`] soon sends it again.
    pub fn postpone(&mut self, peer: u32, now_ns: u64) {
        if let Some(attempt) = self.attempts.get_mut(&peer) {
            attempt.due_ns = now_ns + self.retry_policy.timeout_ns;
            attempt.sends = attempt.sends.min(1);
        }
    }

    /// Gives up a peer that has left or has refused.
    pub fn give_up(&mut self, peer: u32, out: &mut Vec<WireupAction>) {
        if matches!(self.stage(peer), Some(Stage::Requested | Stage::Accepted)) {
            self.end(peer, Stage::Failed);
            out.push(WireupAction::Fail(peer));
        }
    }

    fn pending(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        let attempts = self.attempts.iter().map(|(&peer, attempt)| (peer, attempt));
        attempts.filter(|(_, a)| matches!(a.stage, Stage::Requested | Stage::Accepted))
    }

    /// Returns the peers that are connecting.
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
        /// Returns the time at which [`Wireup::tick`] next has work. `None` if no peer is connecting.
        fn deadline_ns(&self) -> Option<u64> {
            self.pending().map(|(_, attempt)| attempt.due_ns).min()
        }
    }

    const RETRY_POLICY: RetryPolicy = RetryPolicy { timeout_ns: 1000, sends: 1000 };

    fn address(rank: u32) -> Address {
        Address::new(&rank.to_le_bytes()).unwrap()
    }

    struct WireupPair {
        sides: [Wireup; 2],
        open: [bool; 2],
        ready: [bool; 2],
        wire: Vec<(u64, usize, WireupMessage)>,
        random: Random,
        now: u64,
        loss: f64,
        /// Index of the side that cannot open its end, if any.
        refuses: Option<usize>,
        /// Whether each side has failed.
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

        fn apply(&mut self, me: usize, actions: Vec<WireupAction>) {
            let peer = 1 - me;
            for action in actions {
                let cut = self.refuses.is_some()
                    && self.sides[me].stage(peer as u32) == Some(Stage::Failed);
                match action {
                    WireupAction::Send(_, step) if cut && step != WireupMessage::Refuse => {}
                    WireupAction::Open(..) if self.refuses == Some(me) => {
                        let mut out = Vec::new();
                        self.sides[me].refuse(peer as u32, &mut out);
                        self.apply(me, out);
                    }
                    WireupAction::Ready(_) if cut => {}
                    WireupAction::Fail(_) if self.refuses == Some(peer) => self.failed[me] = true,
                    WireupAction::Send(to, step) => {
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
                    WireupAction::Open(from, at) => {
                        assert_eq!((from as usize, at), (peer, address(peer as u32)));
                        assert!(!self.open[me], "opened twice");
                        self.open[me] = true;
                    }
                    WireupAction::Ready(to) => {
                        assert_eq!(to as usize, peer);
                        assert!(!self.ready[me], "ready twice");
                        assert!(self.open[peer], "data would meet a closed end");
                        self.ready[me] = true;
                    }
                    WireupAction::Fail(_) => panic!("gave up"),
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
        fn pair__for_any_first_request__becomes_ready_once(seed: u64, loss in 0.0..0.7, first in 0_usize..2, both: bool, later in 0_usize..20) {
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
                let opened = out.iter().filter(|a| matches!(a, WireupAction::Open(p, _) if *p == peer)).count();
                let ready = out.iter().filter(|a| **a == WireupAction::Ready(peer)).count();
                prop_assert!(opened <= 1 && ready <= opened);
            }
        }
    }

    proptest! {
        /// Property: if one side cannot open its end, both sides end, for any first request and any losses.
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
        assert_eq!(out, [WireupAction::Send(1, WireupMessage::Refuse)]);
        assert!(!side.is_active() && side.deadline_ns().is_none());
        side.receive(1, WireupMessage::Reply, address(1), 2, &mut out);
        assert_eq!(out, [WireupAction::Send(1, WireupMessage::Refuse); 2]);
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
        assert_eq!(out, [WireupAction::Send(1, WireupMessage::Request)]);
        out.clear();
        sides[1].receive(0, WireupMessage::Request, address(0), 1, &mut out);
        assert_eq!(
            out,
            [WireupAction::Open(0, address(0)), WireupAction::Send(0, WireupMessage::Reply)]
        );
        out.clear();
        sides[0].receive(1, WireupMessage::Reply, address(1), 2, &mut out);
        assert_eq!(
            out,
            [
                WireupAction::Open(1, address(1)),
                WireupAction::Ready(1),
                WireupAction::Send(1, WireupMessage::Confirm)
            ]
        );
        assert!(!sides[0].is_active() && sides[1].is_active());
        out.clear();
        sides[1].receive(0, WireupMessage::Confirm, Address::default(), 3, &mut out);
        assert_eq!(out, [WireupAction::Ready(0)]);
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
            (WireupAction::Fail(1), Some(Stage::Failed), false)
        );
    }
}
