//! Messages of an agreement, and their encoding.
//!
//! All numbers are little endian. Received bytes are not trusted: [`AgreementMessage::decode`] refuses whatever
//! [`AgreementMessage::encode`] does not write.

use super::failed_set::FailedSet;

/// What a member brings into an agreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// Bits that the agreement combines by AND. On an intercommunicator, whose groups return each other's flag, each
    /// group can use one half and leave the bits of the other half 1.
    pub flag: i64,
    /// Value that the agreement takes over from the member that decides, such as a context for a new communicator.
    pub offer: u64,
    /// Members that this member knows to have failed.
    pub failed: FailedSet,
    /// Members whose failure this member has acknowledged.
    pub acknowledged: FailedSet,
    /// Number of an agreement: this member has returned from all earlier ones of the communicator.
    pub returned_below: u64,
}

/// Outcome of an agreement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// AND of the flags of the contributors.
    pub flag: i64,
    /// Offer of the lowest member that the decision does not count as failed.
    pub offer: u64,
    /// Members that the decision counts as failed: those that a contributor reported, and all members that did not
    /// contribute.
    pub failed: FailedSet,
    /// Whether a contributor had not acknowledged the failure of a member that did not contribute.
    pub unacknowledged: bool,
    /// Number of an agreement: every contributor has returned from all earlier ones.
    pub returned_below: u64,
}

/// Combined contributions of the members of a subtree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// AND of the flags.
    pub flag: i64,
    /// Failed members that the sender knows, in the whole communicator.
    pub failed: FailedSet,
    /// Failed members of the subtree that did not contribute.
    pub missing: FailedSet,
    /// Members whose failure each contributor has acknowledged.
    pub acknowledged: FailedSet,
    /// Lowest `returned_below` of the contributors.
    pub returned_below: u64,
}

impl Tally {
    /// Adds the contributions of another subtree. `failed` stays: it is the sender's own knowledge.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.flag &= other.flag;
        self.missing.union_with(&other.missing);
        self.acknowledged.intersect_with(&other.acknowledged);
        self.returned_below = self.returned_below.min(other.returned_below);
    }
}

/// A message of an agreement. Each names the root for which it is meant, and thereby that all members below it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgreementMessage {
    /// UP: every member of the sender's subtree has contributed or failed, and none has a decision.
    Up {
        /// Lowest living member.
        root: usize,
        /// The contributions.
        tally: Tally,
    },
    /// UP in place of a tally: the decision is known in the sender's subtree, from a former root.
    Known {
        /// Lowest living member.
        root: usize,
        /// The decision.
        decision: Decision,
    },
    /// RESULT_REQUEST: a new root needs the state of the receiver's subtree, including decisions of former roots.
    Request {
        /// The new root.
        root: usize,
    },
    /// DOWN: the decision.
    Down {
        /// Root that sent the decision.
        root: usize,
        /// The decision.
        decision: Decision,
        /// Whether every living member has the decision. Always false for [`Guarantee::Survivors`].
        ///
        /// [`Guarantee::Survivors`]: super::agreement::Guarantee::Survivors
        stable: bool,
    },
    /// Every living member of the sender's subtree has the decision. Only for [`Guarantee::Uniform`].
    ///
    /// [`Guarantee::Uniform`]: super::agreement::Guarantee::Uniform
    Confirm {
        /// Root that sent the decision.
        root: usize,
    },
}

const UP: u8 = 1;
const KNOWN: u8 = 2;
const REQUEST: u8 = 3;
const DOWN: u8 = 4;
const DOWN_STABLE: u8 = 5;
const CONFIRM: u8 = 6;

impl AgreementMessage {
    /// The root for which the message is meant.
    pub fn root(&self) -> usize {
        match self {
            AgreementMessage::Up { root, .. }
            | AgreementMessage::Known { root, .. }
            | AgreementMessage::Request { root }
            | AgreementMessage::Down { root, .. }
            | AgreementMessage::Confirm { root } => *root,
        }
    }

    /// Appends the encoded message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            AgreementMessage::Up { .. } => UP,
            AgreementMessage::Known { .. } => KNOWN,
            AgreementMessage::Request { .. } => REQUEST,
            AgreementMessage::Down { stable: false, .. } => DOWN,
            AgreementMessage::Down { stable: true, .. } => DOWN_STABLE,
            AgreementMessage::Confirm { .. } => CONFIRM,
        });
        out.extend_from_slice(&(self.root() as u32).to_le_bytes());
        match self {
            AgreementMessage::Up { tally, .. } => {
                out.extend_from_slice(&tally.flag.to_le_bytes());
                out.extend_from_slice(&tally.returned_below.to_le_bytes());
                tally.failed.encode(out);
                tally.missing.encode(out);
                tally.acknowledged.encode(out);
            }
            AgreementMessage::Known { decision, .. } | AgreementMessage::Down { decision, .. } => {
                out.extend_from_slice(&decision.flag.to_le_bytes());
                out.extend_from_slice(&decision.offer.to_le_bytes());
                out.extend_from_slice(&decision.returned_below.to_le_bytes());
                out.push(decision.unacknowledged.into());
                decision.failed.encode(out);
            }
            AgreementMessage::Request { .. } | AgreementMessage::Confirm { .. } => {}
        }
    }

    /// Reads an encoded message in a communicator of `members` members. Returns `None` if `bytes` is not exactly one.
    pub fn decode(mut bytes: &[u8], members: usize) -> Option<AgreementMessage> {
        let bytes = &mut bytes;
        let [kind] = read(bytes)?;
        let root = u32::from_le_bytes(read(bytes)?) as usize;
        let message = match kind {
            UP => AgreementMessage::Up { root, tally: decode_tally(bytes, members)? },
            KNOWN => AgreementMessage::Known { root, decision: decode_decision(bytes, members)? },
            REQUEST => AgreementMessage::Request { root },
            DOWN | DOWN_STABLE => AgreementMessage::Down {
                root,
                decision: decode_decision(bytes, members)?,
                stable: kind == DOWN_STABLE,
            },
            CONFIRM => AgreementMessage::Confirm { root },
            _ => return None,
        };
        (bytes.is_empty() && root < members).then_some(message)
    }
}

/// Takes `N` bytes off the front of `bytes`.
fn read<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn decode_tally(bytes: &mut &[u8], members: usize) -> Option<Tally> {
    Some(Tally {
        flag: i64::from_le_bytes(read(bytes)?),
        returned_below: u64::from_le_bytes(read(bytes)?),
        failed: FailedSet::decode(bytes, members)?,
        missing: FailedSet::decode(bytes, members)?,
        acknowledged: FailedSet::decode(bytes, members)?,
    })
}

fn decode_decision(bytes: &mut &[u8], members: usize) -> Option<Decision> {
    Some(Decision {
        flag: i64::from_le_bytes(read(bytes)?),
        offer: u64::from_le_bytes(read(bytes)?),
        returned_below: u64::from_le_bytes(read(bytes)?),
        unacknowledged: match read(bytes)? {
            [0] => false,
            [1] => true,
            _ => return None,
        },
        failed: FailedSet::decode(bytes, members)?,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(super) mod tests {
    use super::*;

    /// Number of members in the samples.
    const MEMBERS: usize = 200;

    /// Returns one message of each kind.
    pub(in crate::ft) fn samples() -> Vec<AgreementMessage> {
        let set = |ranks: &[usize]| ranks.iter().copied().collect::<FailedSet>();
        let decision = Decision {
            flag: -2,
            offer: 1 << 63,
            failed: set(&[0, 6, 199]),
            unacknowledged: true,
            returned_below: 1 << 40,
        };
        let tally = Tally {
            flag: 7,
            failed: set(&[0, 1, 130]),
            missing: set(&[130]),
            acknowledged: set(&[]),
            returned_below: u64::MAX,
        };
        vec![
            AgreementMessage::Up { root: 2, tally },
            AgreementMessage::Known { root: 199, decision: decision.clone() },
            AgreementMessage::Request { root: 1 },
            AgreementMessage::Down { root: 0, decision: decision.clone(), stable: false },
            AgreementMessage::Down { root: 3, decision, stable: true },
            AgreementMessage::Confirm { root: 4 },
        ]
    }

    fn encoded(message: &AgreementMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn message__is_decoded_as_it_was_encoded() {
        for message in samples() {
            let bytes = encoded(&message);
            assert_eq!(AgreementMessage::decode(&bytes, MEMBERS), Some(message));
            for end in 0..bytes.len() {
                assert_eq!(AgreementMessage::decode(&bytes[..end], MEMBERS), None, "cut at {end}");
            }
            assert_eq!(
                AgreementMessage::decode(&[&bytes[..], &[0]].concat(), MEMBERS),
                None,
                "too long"
            );
        }
    }

    #[test]
    fn message__of_a_rank_out_of_range__is_refused() {
        for message in samples() {
            let refused = AgreementMessage::decode(&encoded(&message), message.root());
            assert_eq!(refused, None, "{message:?}");
        }
    }

    #[test]
    fn fuzz__agreement_message_is_understood_or_refused() {
        let corpus: Vec<_> = samples().iter().map(encoded).collect();
        let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
        crate::mutate::run(&corpus, |input| {
            if let Some(message) = AgreementMessage::decode(input, MEMBERS) {
                assert_eq!(encoded(&message), input);
            }
        });
    }
}
