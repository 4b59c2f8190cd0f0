//! Messages between the ranks of a node, and between nodes, as bytes. No function here has a side effect.

use fastpath_base::topology::CpuSet;

/// First message of a member: its rank, the number of ranks, and its processors.
#[derive(Debug, PartialEq, Eq)]
pub struct Hello {
    pub rank: usize,
    /// Number of ranks, as reported by the member's engine.
    pub size: usize,
    /// Process number of the member, in its own namespace.
    pub process: u32,
    pub processors: CpuSet,
}

impl Hello {
    /// Encodes the message: `RANK SIZE PROCESS PROCESSORS`.
    pub fn encode(&self) -> Vec<u8> {
        let Hello { rank, size, process, processors } = self;
        format!("{rank} {size} {process} {processors}").into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.splitn(4, ' ');
        Some(Hello {
            rank: words.next()?.parse().ok()?,
            size: words.next()?.parse().ok()?,
            process: words.next()?.parse().ok()?,
            processors: CpuSet::parse(words.next()?)?,
        })
    }
}

/// Message of the leader to a member, sent with the job's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Job number of the memory.
    pub job_id: u64,
    /// Lowest rank of the node.
    pub lowest: usize,
    /// Number of ranks of the node.
    pub members: usize,
}

impl Welcome {
    pub fn encode(&self) -> Vec<u8> {
        let words = [self.job_id, self.lowest as u64, self.members as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        let mut reader = Reader(bytes);
        let welcome = Welcome {
            job_id: reader.long()?,
            lowest: reader.long()? as usize,
            members: reader.long()? as usize,
        };
        reader.0.is_empty().then_some(welcome)
    }
}

/// A rank of a node, with its network address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCard {
    pub rank: usize,
    /// Network address (`RankPage::network`); empty if the rank cannot be reached.
    pub network: Vec<u8>,
}

/// Message of a node to all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCard {
    /// Job number that this node has drawn. All nodes use the number of the first node.
    pub job_id: u64,
    /// Secret for authentication that this node has drawn. All nodes use the secret of the first node.
    pub secret: [u8; SECRET_BYTES],
    /// Network address of the leader (`NetworkCard`), for the leader of the preceding node; empty if there is none.
    pub leader: Vec<u8>,
    /// Hash of the settings that must be equal in all ranks of the job.
    pub choices: u32,
    /// Ranks of the node, in order.
    pub ranks: Vec<RankCard>,
}

pub const SECRET_BYTES: usize = 32;

/// First byte of a card; it changes with the layout.
const CARD_VERSION: u8 = 2;

impl NodeCard {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![CARD_VERSION];
        bytes.extend_from_slice(&self.job_id.to_le_bytes());
        bytes.extend_from_slice(&self.secret);
        push_card(&mut bytes, &self.leader);
        bytes.extend_from_slice(&self.choices.to_le_bytes());
        let mut before: &[u8] = &[];
        for rank in &self.ranks {
            bytes.extend_from_slice(&(rank.rank as u32).to_le_bytes());
            match find_port(before, &rank.network) {
                Some(port) => bytes.extend_from_slice(&[AS_BEFORE, port[0], port[1]]),
                None => push_card(&mut bytes, &rank.network),
            }
            before = &rank.network;
        }
        bytes
    }

    /// Decodes the card; `None` if it is invalid or of another release.
    pub fn decode(bytes: &[u8]) -> Option<NodeCard> {
        let mut reader = Reader(bytes);
        if reader.bytes(1)? != [CARD_VERSION] {
            return None;
        }
        let job_id = reader.long()?;
        let secret = reader.bytes(SECRET_BYTES)?.try_into().ok()?;
        let leader = reader.card()?;
        let choices = u32::from_le_bytes(reader.bytes(4)?.try_into().ok()?);
        let mut ranks: Vec<RankCard> = Vec::new();
        while !reader.0.is_empty() {
            let rank = u32::from_le_bytes(reader.bytes(4)?.try_into().ok()?) as usize;
            let network = match reader.0.first() {
                Some(&AS_BEFORE) => {
                    let port = reader.bytes(3)?;
                    let mut network = ranks.last()?.network.clone();
                    network.get_mut(PORT)?.copy_from_slice(&port[1..]);
                    network
                }
                _ => reader.card()?,
            };
            if ranks.last().is_some_and(|last| last.rank >= rank) {
                return None;
            }
            ranks.push(RankCard { rank, network });
        }
        (!ranks.is_empty()).then_some(NodeCard { job_id, secret, leader, choices, ranks })
    }
}

/// Mark in place of a card's length: the card equals the preceding one except its port, which follows. Ranks of a node
/// have one host and the same addresses.
const AS_BEFORE: u8 = 255;

/// Position of the port in a card (`NetworkCard`).
const PORT: std::ops::Range<usize> = 1..3;

/// Returns the port of `card`, if the two cards differ at most in the port.
fn find_port(before: &[u8], card: &[u8]) -> Option<[u8; 2]> {
    let port = card.get(PORT)?.try_into().ok()?;
    let alike = before.len() == card.len()
        && before[..PORT.start] == card[..PORT.start]
        && before[PORT.end..] == card[PORT.end..];
    alike.then_some(port)
}

/// Appends a peer's card after its length. A card has at most 192 bytes, below [`AS_BEFORE`].
fn push_card(bytes: &mut Vec<u8>, card: &[u8]) {
    let card = card.get(..254).unwrap_or(card);
    bytes.push(card.len() as u8);
    bytes.extend_from_slice(card);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn card(&mut self) -> Option<Vec<u8>> {
        let length = self.bytes(1)?[0] as usize;
        Some(self.bytes(length)?.to_vec())
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn card() -> NodeCard {
        let rank = |rank, network: &[u8]| RankCard { rank, network: network.to_vec() };
        NodeCard {
            job_id: 7,
            secret: [3; SECRET_BYTES],
            leader: vec![5; 40],
            choices: 11,
            ranks: vec![rank(1, &[9; 192]), rank(4, b"")],
        }
    }

    #[test]
    fn hello__round_trips() {
        let hello =
            Hello { rank: 3, size: 8, process: 77, processors: CpuSet::parse("0-3,8").unwrap() };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        for text in ["", "1 2", "1 2 3", "1 2 3 x", "-1 2 3 0", "1 2 3 0 9"] {
            assert_eq!(Hello::decode(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn welcome__round_trips() {
        let welcome = Welcome { job_id: u64::MAX, lowest: 2, members: 9 };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        assert_eq!(Welcome::decode(&welcome.encode()[1..]), None);
    }

    #[test]
    fn card__round_trips_and_is_in_order() {
        assert_eq!(NodeCard::decode(&card().encode()), Some(card()));
        let mut twice = card();
        twice.ranks[1].rank = 1;
        assert_eq!(NodeCard::decode(&twice.encode()), None);
        let none = NodeCard { ranks: Vec::new(), ..card() };
        assert_eq!(NodeCard::decode(&none.encode()), None);
    }

    #[test]
    fn card__says_once_what_its_ranks_have_alike() {
        let network = |port: u8| [&[1, 0, port, 3][..], &[7; 100]].concat();
        let mut card = card();
        card.ranks = (0..64).map(|rank| RankCard { rank, network: network(rank as u8) }).collect();
        assert_eq!(NodeCard::decode(&card.encode()), Some(card.clone()));
        let alike = card.encode().len();
        card.ranks[1].network[50] = 8;
        assert_eq!(NodeCard::decode(&card.encode()), Some(card.clone()));
        // Two more cards are encoded whole, because the changed card and the next one differ from their predecessors.
        assert_eq!(card.encode().len(), alike + 2 * (104 - 2));
        let (mut first, last) = (card.encode(), [9, 0, 0, 0, AS_BEFORE, 1, 2]);
        first.truncate(1 + 8 + SECRET_BYTES + 1 + 40 + 4);
        assert_eq!(NodeCard::decode(&[&first[..], &last].concat()), None);
    }

    #[test]
    fn fuzz__words_of_a_node_are_understood_or_refused() {
        let welcome = Welcome { job_id: 1, lowest: 0, members: 2 };
        let corpus: &[&[u8]] = &[&card().encode(), b"0 2 1 0-3", &welcome.encode()];
        crate::mutate::run(corpus, |input| {
            if let Some(card) = NodeCard::decode(input) {
                assert_eq!(NodeCard::decode(&card.encode()), Some(card));
            }
            if let Some(hello) = Hello::decode(input) {
                assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            }
            if let Some(welcome) = Welcome::decode(input) {
                assert_eq!(welcome.encode(), input);
            }
        });
    }
}
