//! Wire format of the key of a memory region: the data for each access path, in 64 bytes.
//!
//! | bytes | little endian |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | access paths present: 1 arena, 2 process, 4 adapter |
//! | 2..4 | 0 |
//! | 4..8 | world rank of the owner |
//! | 8..16 | number of the region at its owner |
//! | 16..24 | size of the region in bytes |
//! | 24..32 | address at the owner |
//! | 32..40 | offset in the owner's arena |
//! | 40..48 | process id of the owner |
//! | 48..56 | key of the adapter |
//! | 56..64 | 0 |

use super::error::RmaError;

/// Size of a packed key in bytes.
pub const PACKED_BYTES: usize = 64;

const VERSION: u8 = 1;
const ARENA: u8 = 1;
const PROCESS: u8 = 2;
const ADAPTER: u8 = 4;

/// Key as sent to peers.
pub type PackedKey = [u8; PACKED_BYTES];

/// Size of a packed key in words.
pub const KEY_WORDS: usize = PACKED_BYTES / 8;

/// Returns a packed key as words, for messages of words.
pub fn words_of_key(key: &PackedKey) -> [u64; KEY_WORDS] {
    std::array::from_fn(|at| {
        let bytes = key.as_chunks().0.get(at).copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    })
}

/// Returns the key with these words. Missing words are zero.
pub fn key_of_words(words: &[u64]) -> PackedKey {
    let mut key = [0; PACKED_BYTES];
    for (to, word) in key.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// Unpacked key. Its numbers are not trusted; each use checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnpackedKey {
    pub owner: u32,
    pub region: u64,
    pub len: u64,
    pub address: u64,
    /// Offset in the owner's arena.
    pub arena: Option<u64>,
    /// Process id of the owner.
    pub process: Option<u64>,
    pub adapter: Option<u64>,
}

impl UnpackedKey {
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

    /// Unpacks the bytes of a key of `owner`.
    pub fn unpack(bytes: &[u8], owner: u32) -> Result<UnpackedKey, RmaError> {
        let bad = |why| Err(RmaError::BadKey(why));
        let Ok(bytes) = <&PackedKey>::try_from(bytes) else {
            return bad("the key has a wrong length");
        };
        if bytes[0] != VERSION {
            return bad("the key is from another version of Fastpath");
        }
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_le_bytes(word)
        };
        let ways = bytes[1];
        if ways & !(ARENA | PROCESS | ADAPTER) != 0 || bytes[2..4] != [0; 2] || word(7) != 0 {
            return bad("the key has flags that this version of Fastpath does not know");
        }
        if word(0) >> 32 != u64::from(owner) {
            return bad("the key belongs to another rank");
        }
        let way = |bit: u8, index| (ways & bit != 0).then(|| word(index));
        let key = UnpackedKey {
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
            return bad("the region exceeds the address space");
        }
        if key.adapter.is_some_and(|rkey| rkey > u64::from(u32::MAX)) {
            return bad("the adapter's key is too large");
        }
        Ok(key)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = UnpackedKey> {
        let way = || prop::option::of(0..u64::MAX >> 1);
        let adapter = prop::option::of(0..=u64::from(u32::MAX));
        (any::<u32>(), any::<u64>(), 0..u64::MAX >> 2, 0..u64::MAX >> 1, way(), way(), adapter)
            .prop_map(|(owner, region, len, address, arena, process, adapter)| UnpackedKey {
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
            prop_assert_eq!(UnpackedKey::unpack(&key.pack(), key.owner), Ok(key));
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
            if let Ok(key) = UnpackedKey::unpack(&bytes, 3) {
                prop_assert!(key.address.checked_add(key.len).is_some());
                prop_assert!(key.arena.unwrap_or(0).checked_add(key.len).is_some());
                prop_assert_eq!(key.pack()[..8].to_vec(), bytes[..8].to_vec());
            }
        }
    }

    #[test]
    fn key__that_is_changed_in_what_it_must_say_is_refused() {
        let key = UnpackedKey {
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
            matches!(UnpackedKey::unpack(&bytes, 2), Err(RmaError::BadKey(_)))
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
        assert!(UnpackedKey::unpack(&right, 1).is_err());
        assert!(UnpackedKey::unpack(&right[..63], 2).is_err());
        assert_eq!(UnpackedKey::unpack(&right, 2), Ok(key));
    }
}
