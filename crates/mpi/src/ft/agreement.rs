//! Early returning agreement (Herault and others, "Practical scalable consensus for pseudo-synchronous distributed
//! systems", SC 2015) over the members of one communicator, some of which fail.
//!
//! Contributions go up a binary tree (UP). The root, the lowest living member, decides when each member has contributed
//! or failed. The decision goes down (DOWN). When the parent of a member fails, the member repeats its last message to
//! the new parent. When the root fails, members without a decision contribute again, to the new root. A new root that
//! contributed to a former one first learns from every living member whether a decision is known (RESULT_REQUEST).
//!
//! Failure reports must be true and must reach all living members at some time. Messages between living members must
//! arrive, in order for each pair. Messages of a failed member may arrive late or not at all.
//!
//! # Why living members never have two decisions
//!
//! Every message names a root. A member accepts a decision only from its current root: the lowest member that it does
//! not know to have failed. UP therefore promises to accept no decision of a former root. A root makes a new decision
//! only after it has UP, directly or combined by others, from each member that it does not know to have failed. Then no
//! living member has a decision, and none will accept one of a former root. A root that has the decision of a former
//! root, or receives it ([`AgreementMessage::Known`]), sends that one.
//!
//! A member that returned and then failed is another matter: see [`Guarantee`].

use super::failed_set::FailedSet;
use super::member_set::MemberSet;
use super::message::{AgreementMessage, Contribution, Decision, Tally};
use super::tree::MemberTree;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Which members return the same decision.
///
/// 2(n - 1) messages without failures, of which the last ones bring the decision, cannot give more than
/// [`Guarantee::Survivors`]. Example with 3 members: the root fails after it has sent the decision to member 1.
/// Member 1 returns and fails. Member 2 cannot know what both have contributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// All members that do not fail. 2(n - 1) messages without failures. A member returns when it receives the
    /// decision. If it then fails before a living member has the decision, the others may decide differently.
    Survivors,
    /// All members that return, also if they fail later. 4(n - 1) messages without failures. A member returns when it
    /// knows that each living member has the decision.
    Uniform,
}

/// Input of [`Agreement::handle`].
#[derive(Debug, Clone)]
pub enum AgreementEvent {
    /// This member enters the agreement.
    Start(Contribution),
    /// A message has arrived.
    Message {
        /// The sender.
        from: usize,
        /// The message.
        message: AgreementMessage,
    },
    /// A member has failed.
    Failed(usize),
}

/// Messages to send: receiver and message. They must be sent in this order.
pub type AgreementOutput = Vec<(usize, AgreementMessage)>;

/// One agreement at one member.
///
/// The agreement must exist when a message of it arrives, even before [`AgreementEvent::Start`]. It must continue to
/// handle events after it has a decision, until the decision may be dropped
/// ([`AgreementHistory`](super::history::AgreementHistory)).
#[derive(Debug)]
pub struct Agreement {
    guarantee: Guarantee,
    tree: MemberTree,
    contribution: Option<Contribution>,
    /// Whether an UP has been sent, so that a root may have decided.
    has_contributed: bool,
    decision: Option<Decision>,
    /// Root from which the decision was last received.
    decision_root: Option<usize>,
    /// Whether every living member is known to have the decision.
    is_stable: bool,
    /// State that begins anew with each root.
    round: Round,
}

/// What a member has received and sent while one member was the root.
#[derive(Debug, Default)]
struct Round {
    /// Tallies received, by sender.
    tallies: BTreeMap<usize, Tally>,
    /// Living children without a tally.
    untallied: MemberSet,
    /// Decision of a former root, received from below.
    known: Option<Decision>,
    /// Whether another member needs the decision, so that a member that has returned takes part.
    is_needed: bool,
    /// Receivers of requests.
    requested: MemberSet,
    /// Receiver of the last UP, and whether it was [`AgreementMessage::Known`].
    reported: Option<(usize, bool)>,
    /// Members that regard this member as their parent, without its children in the tree of all members. This member
    /// may not know yet that the members between have failed.
    attached: MemberSet,
    /// Members to which the decision of this root was sent. Only for [`Guarantee::Uniform`].
    informed: MemberSet,
    /// Senders of confirmations. Only for [`Guarantee::Uniform`].
    confirmed: MemberSet,
    /// Living children without a confirmation. Only for [`Guarantee::Uniform`].
    unconfirmed: MemberSet,
    /// Receiver of the last confirmation.
    confirmation: Option<usize>,
}

impl Agreement {
    /// Creates the agreement at member `me` of `members`, which knows the members `failed`.
    pub fn new(members: usize, me: usize, guarantee: Guarantee, failed: &FailedSet) -> Self {
        assert!(me < members, "member {me} of {members}");
        let mut tree = MemberTree::new(members, me);
        tree.add_failed(failed);
        let mut agreement = Agreement {
            guarantee,
            tree,
            contribution: None,
            has_contributed: false,
            decision: None,
            decision_root: None,
            is_stable: false,
            round: Round::default(),
        };
        agreement.update_children();
        agreement
    }

    /// The decision, once this member may return it.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref().filter(|_| self.has_returned())
    }

    /// Failed members that this agreement knows.
    pub fn failed(&self) -> &FailedSet {
        self.tree.failed()
    }

    fn has_returned(&self) -> bool {
        match self.guarantee {
            Guarantee::Survivors => self.decision.is_some(),
            Guarantee::Uniform => self.is_stable,
        }
    }

    /// Whether this member has the decision of its current root.
    fn is_settled(&self) -> bool {
        self.decision_root == Some(self.tree.root())
    }

    /// Handles an event and appends the messages to send. Messages that no correct member sends are ignored.
    pub fn handle(&mut self, event: AgreementEvent, out: &mut AgreementOutput) {
        match event {
            AgreementEvent::Start(contribution) => {
                if self.contribution.is_none() {
                    self.add_failed(|tree| tree.add_failed(&contribution.failed));
                    self.contribution = Some(contribution);
                }
            }
            AgreementEvent::Failed(member) => {
                self.add_failed(|tree| tree.add_failed(&[member].into_iter().collect()));
            }
            AgreementEvent::Message { from, message } => self.receive(from, message, out),
        }
        self.advance(out);
    }

    /// Adds failed members by `add`, which returns whether one is new. A new root begins a new round.
    fn add_failed(&mut self, add: impl FnOnce(&mut MemberTree) -> bool) {
        let root = self.tree.root();
        if !add(&mut self.tree) {
            return;
        }
        if self.tree.root() != root {
            self.round = Round::default();
        }
        self.update_children();
    }

    fn update_children(&mut self) {
        let Agreement { tree, round, guarantee, .. } = self;
        round.untallied.clear();
        tree.visit(|member| {
            let is_covered = round.tallies.contains_key(&member);
            if !is_covered && !tree.failed().contains(member) {
                round.untallied.insert(member);
            }
            is_covered
        });
        if *guarantee != Guarantee::Uniform {
            return;
        }
        round.unconfirmed.clear();
        tree.visit(|member| {
            let is_covered = round.confirmed.contains(member);
            if !is_covered && !tree.failed().contains(member) {
                round.unconfirmed.insert(member);
            }
            is_covered
        });
    }

    fn receive(&mut self, from: usize, message: AgreementMessage, out: &mut AgreementOutput) {
        let (me, root) = (self.tree.me(), message.root());
        if from >= self.tree.members() || from == me || root > me {
            return;
        }
        self.add_failed(|tree| tree.add_failed_below(root));
        if let AgreementMessage::Up { tally, .. } = &message {
            self.add_failed(|tree| tree.add_failed(&tally.failed));
        }
        if self.is_stable {
            // The answer to every message, except to one that says the same.
            if !matches!(message, AgreementMessage::Down { stable: true, .. }) {
                out.push((from, self.down()));
            }
            return;
        }
        if let AgreementMessage::Down { decision, stable, .. } = message {
            self.receive_decision(from, root, decision, stable, out);
            return;
        }
        if root != self.tree.root() {
            return; // The sender will learn that this root has failed, and send another message.
        }
        if !matches!(message, AgreementMessage::Request { .. }) && !self.tree.is_own_child(from) {
            self.round.attached.insert(from);
        }
        match message {
            AgreementMessage::Confirm { .. } => {
                self.round.unconfirmed.remove(from);
                self.round.confirmed.insert(from);
            }
            _ if self.is_settled() => out.push((from, self.down())),
            AgreementMessage::Up { tally, .. } => {
                self.round.is_needed = true;
                self.round.untallied.remove(from);
                self.round.tallies.insert(from, tally);
            }
            AgreementMessage::Known { decision, .. } => {
                self.round.is_needed = true;
                self.round.known = Some(decision);
            }
            _ => self.round.is_needed = true,
        }
    }

    fn receive_decision(
        &mut self, from: usize, root: usize, decision: Decision, stable: bool,
        out: &mut AgreementOutput,
    ) {
        // A decision that each living member has is that of every later root too.
        let stable = stable && self.guarantee == Guarantee::Uniform;
        let is_new = root == self.tree.root() && !self.is_settled();
        // No decision is correct without the contribution of this member, because it lives.
        if self.contribution.is_none() || !stable && !is_new {
            return;
        }
        self.settle(root, decision, stable, out);
        // A parent of a later root may wait for the confirmation of this member.
        if let Some(parent) = self.tree.parent().filter(|parent| stable && *parent != from) {
            out.push((parent, self.down()));
        }
    }

    /// Stores the decision of `root` and sends it to the children.
    fn settle(&mut self, root: usize, decision: Decision, stable: bool, out: &mut AgreementOutput) {
        self.decision.get_or_insert(decision);
        self.decision_root = Some(root);
        self.is_stable |= stable;
        self.round.tallies = BTreeMap::new();
        self.round.known = None;
        self.inform_children(out);
    }

    /// Sends the decision to all children.
    fn inform_children(&mut self, out: &mut AgreementOutput) {
        let is_living = |member: &usize| !self.tree.failed().contains(*member);
        let mut children = MemberSet::default();
        self.tree.visit(|member| {
            if is_living(&member) {
                children.insert(member);
            }
            false
        });
        children.extend(self.round.attached.iter().filter(is_living));
        out.extend(children.iter().map(|child| (child, self.down())));
        if self.guarantee == Guarantee::Uniform {
            self.round.informed.extend(children.iter());
        }
    }

    /// Returns the message with the decision, which this member has.
    fn down(&self) -> AgreementMessage {
        let (Some(root), Some(decision)) = (self.decision_root, self.decision.clone()) else {
            unreachable!("no decision is sent before there is one");
        };
        AgreementMessage::Down { root, decision, stable: self.is_stable }
    }

    /// Sends what the state now allows.
    fn advance(&mut self, out: &mut AgreementOutput) {
        if self.contribution.is_none() || self.is_stable {
            return;
        }
        if !self.is_settled() && (self.round.is_needed || !self.has_returned()) {
            match self.tree.parent() {
                None => self.advance_root(out),
                Some(parent) => self.report(parent, out),
            }
        }
        if self.guarantee == Guarantee::Uniform && self.is_settled() {
            self.confirm(out);
        }
    }

    /// At the root: decides, or requests what is missing.
    fn advance_root(&mut self, out: &mut AgreementOutput) {
        let root = self.tree.me();
        let known = self.decision.clone().or_else(|| self.round.known.clone());
        if let Some(decision) = known {
            self.settle(root, decision, false, out);
        } else if self.round.untallied.is_empty() {
            let decision = self.decide();
            self.settle(root, decision, false, out);
        } else if self.has_contributed {
            // A former root may have decided. Members that have returned send no UP unless it is requested.
            let Round { untallied, requested, .. } = &mut self.round;
            for child in untallied.iter() {
                if !requested.contains(child) {
                    out.push((child, AgreementMessage::Request { root }));
                }
            }
            requested.extend(untallied.iter());
        }
    }

    /// Returns a new decision, at a root that has all contributions.
    fn decide(&self) -> Decision {
        let Tally { flag, failed, missing, acknowledged, returned_below } = self.tally();
        let offer = self.contribution.as_ref().map_or(0, |own| own.offer);
        let unacknowledged = !missing.is_subset(&acknowledged);
        Decision { flag, offer, failed, unacknowledged, returned_below }
    }

    /// Sends UP to `parent`, once the subtree is complete or a decision is known.
    fn report(&mut self, parent: usize, out: &mut AgreementOutput) {
        let root = self.tree.root();
        let known = self.decision.as_ref().or(self.round.known.as_ref());
        let kind = Some((parent, known.is_some()));
        if kind == self.round.reported || known.is_none() && !self.round.untallied.is_empty() {
            return;
        }
        let message = match known {
            Some(decision) => AgreementMessage::Known { root, decision: decision.clone() },
            None => AgreementMessage::Up { root, tally: self.tally() },
        };
        self.has_contributed = true;
        self.round.reported = kind;
        out.push((parent, message));
    }

    /// Combines the contributions of the subtree, which is complete.
    fn tally(&self) -> Tally {
        let Some(own) = &self.contribution else {
            unreachable!("a member combines contributions after its own");
        };
        let mut total = Tally {
            flag: own.flag,
            failed: self.tree.failed().clone(),
            missing: FailedSet::new(),
            acknowledged: own.acknowledged.clone(),
            returned_below: own.returned_below,
        };
        self.tree.visit(|member| match self.round.tallies.get(&member) {
            Some(tally) => {
                total.merge(tally);
                true
            }
            None => {
                total.missing.insert(member);
                false
            }
        });
        total
    }

    /// Reports that each living member of the subtree has the decision, once this is known.
    fn confirm(&mut self, out: &mut AgreementOutput) {
        // A new child, whose parent has failed, sends nothing of its own accord if it has returned.
        let is_new = |member: &usize| !self.round.informed.contains(*member);
        let new: Vec<_> = self.round.unconfirmed.iter().filter(is_new).collect();
        out.extend(new.iter().map(|child| (*child, self.down())));
        self.round.informed.extend(new);
        if !self.round.unconfirmed.is_empty() {
            return;
        }
        match self.tree.parent() {
            None => {
                self.is_stable = true;
                self.inform_children(out);
            }
            Some(parent) if self.round.confirmation != Some(parent) => {
                self.round.confirmation = Some(parent);
                let root = self.tree.root();
                out.push((parent, AgreementMessage::Confirm { root }));
            }
            Some(_) => {}
        }
    }
}
