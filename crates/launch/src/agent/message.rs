//! Message that a node's agent sends to the agents of the other nodes.

/// Version of the message and of everything that ranks of different nodes must share.
const VERSION: u8 = 4;

/// Largest card of a rank, in bytes.
const CARD_MOST: usize = 255;

/// Message of one node. Encoding: version, job number, secret, processors, then the cards of the agent and of each
/// rank. The length of a card precedes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMessage {
    /// Number of the job. All nodes use the first node's number.
    pub job_id: u64,
    /// Secret by which ranks authenticate. All nodes use the first node's secret.
    pub secret: [u8; 32],
    /// Number of processors that the ranks of the node have together.
    pub processors: u32,
    pub agent: Vec<u8>,
    /// Network card of each rank of the node.
    pub cards: Vec<Vec<u8>>,
}

impl NodeMessage {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.job_id.to_le_bytes());
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(&self.processors.to_le_bytes());
        for card in [&self.agent].into_iter().chain(&self.cards) {
            let card = card.get(..CARD_MOST).unwrap_or(card);
            bytes.push(card.len() as u8);
            bytes.extend_from_slice(card);
        }
        bytes
    }

    /// Decodes a message; None if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<NodeMessage> {
        let (&version, rest) = bytes.split_first()?;
        let (job_id, rest) = rest.split_first_chunk::<8>()?;
        let (secret, rest) = rest.split_first_chunk::<32>()?;
        let (processors, mut rest) = rest.split_first_chunk::<4>()?;
        if version != VERSION {
            return None;
        }
        let mut cards = Vec::new();
        while let Some((&length, after)) = rest.split_first() {
            let (card, after) = after.split_at_checked(length as usize)?;
            cards.push(card.to_vec());
            rest = after;
        }
        if cards.is_empty() {
            return None;
        }
        Some(NodeMessage {
            processors: u32::from_le_bytes(*processors),
            agent: cards.remove(0),
            job_id: u64::from_le_bytes(*job_id),
            secret: *secret,
            cards,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn message() -> NodeMessage {
        NodeMessage {
            job_id: 0x1234_5678_9abc_def0,
            secret: std::array::from_fn(|i| i as u8),
            processors: 6,
            agent: vec![5; 7],
            cards: vec![vec![1, 2, 3], Vec::new(), vec![9; CARD_MOST]],
        }
    }

    #[test]
    fn message__is_read_as_it_was_written() {
        let message = message();
        assert_eq!(NodeMessage::decode(&message.encode()), Some(message));
    }

    #[test]
    fn message__of_another_version_or_cut_is_none() {
        let bytes = message().encode();
        let mut other = bytes.clone();
        other[0] += 1;
        assert_eq!(NodeMessage::decode(&other), None);
        for end in 0..46 {
            assert_eq!(NodeMessage::decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(NodeMessage::decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn fuzz__message_is_understood_or_refused() {
        crate::mutate::run(&[&message().encode(), &[VERSION; 60]], |input| {
            if let Some(message) = NodeMessage::decode(input) {
                assert_eq!(message.encode(), input);
            }
        });
    }
}
