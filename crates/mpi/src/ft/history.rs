//! The agreements of one communicator, and when a decision may be dropped.

use super::agreement::{Agreement, AgreementEvent, AgreementOutput, Guarantee};
use super::failed_set::FailedSet;
use super::message::{AgreementMessage, Contribution, Decision};
use std::collections::VecDeque;

/// Number of agreements by which a member may be ahead of another. Messages of later ones are ignored.
const MOST_AHEAD: u64 = 1 << 16;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreementEnvelope {
    /// Number of the agreement.
    pub sequence: u64,
    /// The receiver.
    pub to: usize,
    /// The message.
    pub message: AgreementMessage,
}

/// The agreements of one member on one communicator, numbered from 0 in the order in which all members start them.
///
/// A decision is kept while a living member may need it. Each contribution states from which agreements its member has
/// returned, and each decision the lowest of these numbers. All living members have contributed to a decision. A member
/// that has the decision of one agreement can therefore drop all agreements below that number.
///
/// The decision of the last agreement stays. Keep the history, and pass it messages, until each living member has left
/// the communicator, which may be after this member has freed it.
#[derive(Debug)]
pub struct AgreementHistory {
    members: usize,
    me: usize,
    guarantee: Guarantee,
    failed: FailedSet,
    /// The agreements that are kept, with their numbers, in ascending order.
    agreements: VecDeque<(u64, Agreement)>,
    /// Agreements that this member has started and not returned from, in ascending order.
    outstanding: VecDeque<u64>,
    /// Number of the next agreement that this member starts.
    next: u64,
    /// All agreements below this number have been dropped.
    dropped_below: u64,
    /// Empty memory for messages.
    messages: AgreementOutput,
}

impl AgreementHistory {
    /// Creates the history of member `me` of `members`.
    pub fn new(members: usize, me: usize, guarantee: Guarantee) -> Self {
        AgreementHistory {
            members,
            me,
            guarantee,
            failed: FailedSet::new(),
            agreements: VecDeque::new(),
            outstanding: VecDeque::new(),
            next: 0,
            dropped_below: 0,
            messages: Vec::new(),
        }
    }

    /// Starts the next agreement and returns its number. `acknowledged` are the members whose failure this member has
    /// acknowledged. See [`Contribution`] for `flag` and `offer`.
    pub fn start(
        &mut self, flag: i64, offer: u64, acknowledged: FailedSet, out: &mut Vec<AgreementEnvelope>,
    ) -> u64 {
        let returned_below = self.returned_below();
        let sequence = self.next;
        self.next += 1;
        self.outstanding.push_back(sequence);
        let failed = self.failed.clone();
        let contribution = Contribution { flag, offer, failed, acknowledged, returned_below };
        self.handle(sequence, AgreementEvent::Start(contribution), out);
        sequence
    }

    /// Handles a message of agreement `sequence`. A message of a dropped agreement is ignored.
    pub fn receive(
        &mut self, sequence: u64, from: usize, message: AgreementMessage,
        out: &mut Vec<AgreementEnvelope>,
    ) {
        if (self.dropped_below..self.next.saturating_add(MOST_AHEAD)).contains(&sequence) {
            self.handle(sequence, AgreementEvent::Message { from, message }, out);
        }
    }

    /// Handles the failure of a member.
    pub fn report_failed(&mut self, member: usize, out: &mut Vec<AgreementEnvelope>) {
        if member < self.members && member != self.me && self.failed.insert(member) {
            let kept: Vec<_> = self.agreements.iter().map(|(sequence, _)| *sequence).collect();
            for sequence in kept {
                self.handle(sequence, AgreementEvent::Failed(member), out);
            }
        }
    }

    /// Returns from agreement `sequence`, if it has a decision and this member has not returned from it. Drops the
    /// agreements that no living member needs.
    pub fn take_decision(&mut self, sequence: u64) -> Option<Decision> {
        let at = self.find(sequence).ok()?;
        let decision = self.agreements[at].1.decision()?;
        let started = self.outstanding.iter().position(|&started| started == sequence)?;
        let decision = decision.clone();
        self.outstanding.remove(started);
        // This member has contributed too, so it has returned from the agreements that are dropped. A decision from
        // outside that claims more is limited to them.
        let end = decision.returned_below.min(self.returned_below()).min(sequence);
        self.dropped_below = self.dropped_below.max(end);
        while self.agreements.front().is_some_and(|(first, _)| *first < self.dropped_below) {
            self.agreements.pop_front();
        }
        Some(decision)
    }

    /// The number below which this member has returned from each agreement.
    pub fn returned_below(&self) -> u64 {
        self.outstanding.front().copied().unwrap_or(self.next)
    }

    /// The number below which all agreements have been dropped.
    pub fn dropped_below(&self) -> u64 {
        self.dropped_below
    }

    /// Number of agreements that are kept.
    pub fn kept(&self) -> usize {
        self.agreements.len()
    }

    /// Returns the place of agreement `sequence`, or the place where it belongs if it is not kept.
    fn find(&self, sequence: u64) -> Result<usize, usize> {
        self.agreements.binary_search_by_key(&sequence, |(known, _)| *known)
    }

    fn handle(&mut self, sequence: u64, event: AgreementEvent, out: &mut Vec<AgreementEnvelope>) {
        let at = self.find(sequence).unwrap_or_else(|at| {
            let new = Agreement::new(self.members, self.me, self.guarantee, &self.failed);
            self.agreements.insert(at, (sequence, new));
            at
        });
        let messages = &mut self.messages;
        self.agreements[at].1.handle(event, messages);
        let envelope = |(to, message)| AgreementEnvelope { sequence, to, message };
        out.extend(messages.drain(..).map(envelope));
    }
}
