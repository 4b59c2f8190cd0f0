//! What the ranks of a node send each other, and what a node sends the others. Pure.

use fastpath_base::topology::CpuSet;

/// A member's first words: which rank it is, of how many, and where it may run.
#[derive(Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its rank.
    pub rank: usize,
    /// The number of ranks by its engine.
    pub size: usize,
    /// Its process, as it numbers itself.
    pub process: u32,
    /// The processors that it may use.
    pub processors: CpuSet,
}

impl Hello {
    /// As it travels: `RANK SIZE PROCESS PROCESSORS`.
    pub fn encode(&self) -> Vec<u8> {
        let Hello { rank, size, process, processors } = self;
        format!("{rank} {size} {process} {processors}").into_bytes()
    }

    /// None if it is invalid.
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

/// What the leader sends a member with the job's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The number that the memory has.
    pub job_id: u64,
    /// The lowest rank of the node.
    pub lowest: usize,
    /// How many ranks it has.
    pub members: usize,
}

impl Welcome {
    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        let words = [self.job_id, self.lowest as u64, self.members as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// None if it is invalid.
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

/// A rank of a node, and how it is reached over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The rank.
    pub rank: usize,
    /// What its card says (`RankPage::network`); empty where it cannot be reached.
    pub network: Vec<u8>,
}

/// What a node sends all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCard {
    /// The job's number, if this is the first node: all take it.
    pub job_id: u64,
    /// The secret of those who connect, if this is the first node.
    pub secret: [u8; SECRET_BYTES],
    /// Where its leader is reached by that of the node before (`NetworkCard`); empty where it is not.
    pub leader: Vec<u8>,
    /// A number for what all ranks of the job must have chosen alike.
    pub choices: u32,
    /// Its ranks, in order.
    pub ranks: Vec<Rank>,
}

/// Bytes of the job's secret.
pub const SECRET_BYTES: usize = 32;

/// The first byte of a card: another one, another layout.
const CARD_VERSION: u8 = 2;

impl NodeCard {
    /// As it travels.
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

    /// None if it is invalid, or of another release.
    pub fn decode(bytes: &[u8]) -> Option<NodeCard> {
        let mut reader = Reader(bytes);
        if reader.bytes(1)? != [CARD_VERSION] {
            return None;
        }
        let job_id = reader.long()?;
        let secret = reader.bytes(SECRET_BYTES)?.try_into().ok()?;
        let leader = reader.card()?;
        let choices = u32::from_le_bytes(reader.bytes(4)?.try_into().ok()?);
        let mut ranks: Vec<Rank> = Vec::new();
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
            ranks.push(Rank { rank, network });
        }
        (!ranks.is_empty()).then_some(NodeCard { job_id, secret, leader, choices, ranks })
    }
}

/// In place of a card's length: it is as that of the rank before, but for the port, which follows. Ranks of a node have
/// the same host and the same addresses.
const AS_BEFORE: u8 = 255;

/// Where the port is in a card (`NetworkCard`).
const PORT: std::ops::Range<usize> = 1..3;

/// The port, if that is all that two cards do not have alike.
fn find_port(before: &[u8], card: &[u8]) -> Option<[u8; 2]> {
    let port = card.get(PORT)?.try_into().ok()?;
    let alike = before.len() == card.len()
        && before[..PORT.start] == card[..PORT.start]
        && before[PORT.end..] == card[PORT.end..];
    alike.then_some(port)
}

/// How a peer is reached: at most 192 bytes.
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
        let rank = |rank, network: &[u8]| Rank { rank, network: network.to_vec() };
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
        card.ranks = (0..64).map(|rank| Rank { rank, network: network(rank as u8) }).collect();
        assert_eq!(NodeCard::decode(&card.encode()), Some(card.clone()));
        let alike = card.encode().len();
        card.ranks[1].network[50] = 8;
        assert_eq!(NodeCard::decode(&card.encode()), Some(card.clone()));
        // Twice: this rank and the next are no more as the one before.
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
