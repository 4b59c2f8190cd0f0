//! The key of a memory region as it travels: what each way of reaching the memory needs, in 64 bytes.
//!
//! | bytes | little endian |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | which ways it describes: 1 arena, 2 process, 4 adapter |
//! | 2..4 | 0 |
//! | 4..8 | rank of the owner in the world |
//! | 8..16 | the region's number at its owner |
//! | 16..24 | bytes of the region |
//! | 24..32 | its address there |
//! | 32..40 | its offset in the owner's arena |
//! | 40..48 | number of the owner's process |
//! | 48..56 | the adapter's key |
//! | 56..64 | 0 |

use super::error::RmaError;

/// Bytes of a packed key.
pub const PACKED_BYTES: usize = 64;

const VERSION: u8 = 1;
const ARENA: u8 = 1;
const PROCESS: u8 = 2;
const ADAPTER: u8 = 4;

/// A key as it is given to peers.
pub type PackedKey = [u8; PACKED_BYTES];

/// Words of a packed key.
pub const KEY_WORDS: usize = PACKED_BYTES / 8;

/// A packed key as words, for messages that are made of them.
pub fn words_of_key(key: &PackedKey) -> [u64; KEY_WORDS] {
    std::array::from_fn(|at| {
        let bytes = key.as_chunks().0.get(at).copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    })
}

/// The key that such words are. Fewer are filled up with zeros.
pub fn key_of_words(words: &[u64]) -> PackedKey {
    let mut key = [0; PACKED_BYTES];
    for (to, word) in key.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// What a key says. Its numbers are the peer's word until they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Described {
    pub owner: u32,
    pub region: u64,
    pub len: u64,
    pub address: u64,
    /// Offset in the owner's arena.
    pub arena: Option<u64>,
    /// Number of the owner's process.
    pub process: Option<u64>,
    pub adapter: Option<u64>,
}

impl Described {
    pub fn pack(&self) -> PackedKey {
        let mut bytes = [0; PACKED_BYTES];
        let ways = [(self.arena, ARENA), (self.process, PROCESS), (self.adapter, ADAPTER)];
        bytes[0] = VERSION;
        bytes[1] = ways.iter().filter(|(way, _)| way.is_some()).map(|(_, bit)| bit).sum();
        bytes[4..8].copy_from_slice(&self.owner.to_le_bytes());
        let words = [self.region, self.len, self.address]
            .into_iter()
            .chain(ways.map(|(way, _)| way.unwrap_or(0)));
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the bytes of a key that `owner` has made say.
    pub fn unpack(bytes: &[u8], owner: u32) -> Result<Described, RmaError> {
        let bad = |why| Err(RmaError::BadKey(why));
        let Ok(bytes) = <&PackedKey>::try_from(bytes) else {
            return bad("it has another length");
        };
        if bytes[0] != VERSION {
            return bad("it is of another version");
        }
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_le_bytes(word)
        };
        let ways = bytes[1];
        if ways & !(ARENA | PROCESS | ADAPTER) != 0 || bytes[2..4] != [0; 2] || word(7) != 0 {
            return bad("it says what this version does not know");
        }
        if word(0) >> 32 != u64::from(owner) {
            return bad("it is another rank's");
        }
        let way = |bit: u8, index| (ways & bit != 0).then(|| word(index));
        let key = Described {
            owner,
            region: word(1),
            len: word(2),
            address: word(3),
            arena: way(ARENA, 4),
            process: way(PROCESS, 5),
            adapter: way(ADAPTER, 6),
        };
        let ends = [Some(key.address), key.arena].map(|at| at.unwrap_or(0).checked_add(key.len));
        if ends.contains(&None) || key.len > isize::MAX as u64 {
            return bad("its region does not end");
        }
        if key.adapter.is_some_and(|rkey| rkey > u64::from(u32::MAX)) {
            return bad("its adapter key is too large");
        }
        Ok(key)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Described> {
        let way = || prop::option::of(0..u64::MAX >> 1);
        let adapter = prop::option::of(0..=u64::from(u32::MAX));
        (any::<u32>(), any::<u64>(), 0..u64::MAX >> 2, 0..u64::MAX >> 1, way(), way(), adapter)
            .prop_map(|(owner, region, len, address, arena, process, adapter)| Described {
                owner,
                region,
                len,
                address,
                arena,
                process,
                adapter,
            })
    }

    proptest! {
        #[test]
        fn key__says_after_its_journey_what_it_said_before(key in key()) {
            prop_assert_eq!(Described::unpack(&key.pack(), key.owner), Ok(key));
        }

        #[test]
        fn key__of_any_bytes_is_refused_or_ends_somewhere(bytes in prop::collection::vec(any::<u8>(), 0..80), valid: bool) {
            let mut bytes = bytes;
            if valid {
                bytes.resize(PACKED_BYTES, 0);
                let ways = bytes[1] & 7;
                bytes[..8].copy_from_slice(&[VERSION, ways, 0, 0, 3, 0, 0, 0]);
                bytes[56..].fill(0);
            }
            if let Ok(key) = Described::unpack(&bytes, 3) {
                prop_assert!(key.address.checked_add(key.len).is_some());
                prop_assert!(key.arena.unwrap_or(0).checked_add(key.len).is_some());
                prop_assert_eq!(key.pack()[..8].to_vec(), bytes[..8].to_vec());
            }
        }
    }

    #[test]
    fn key__that_is_changed_in_what_it_must_say_is_refused() {
        let key = Described {
            owner: 2,
            region: 5,
            len: 100,
            address: 1000,
            arena: Some(64),
            process: None,
            adapter: Some(7),
        };
        let right = key.pack();
        let refused = |change: &dyn Fn(&mut PackedKey)| {
            let mut bytes = right;
            change(&mut bytes);
            matches!(Described::unpack(&bytes, 2), Err(RmaError::BadKey(_)))
        };
        assert!(refused(&|b| b[0] = 2));
        assert!(refused(&|b| b[1] |= 8));
        assert!(refused(&|b| b[2] = 1));
        assert!(refused(&|b| b[4] = 1));
        assert!(refused(&|b| b[63] = 1));
        assert!(refused(&|b| b[16..24].fill(0xff)));
        assert!(refused(&|b| b[24..32].fill(0xff)));
        assert!(refused(&|b| b[32..40].fill(0xff)));
        assert!(refused(&|b| b[52] = 1));
        assert!(Described::unpack(&right, 1).is_err());
        assert!(Described::unpack(&right[..63], 2).is_err());
        assert_eq!(Described::unpack(&right, 2), Ok(key));
    }
}
