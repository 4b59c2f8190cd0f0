//! Tag matching as data: contexts, match keys, and the source and tag of a receive.

/// Identifier of a communicator's messages: 39 bits chosen at its creation, and one bit for collective traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context(u64);

const SOURCE_BITS: u32 = 24;
/// Largest number of ranks of a communicator.
pub const MAX_RANKS: u32 = 1 << SOURCE_BITS;

impl Context {
    /// The context of `MPI_COMM_WORLD`.
    pub const WORLD: Context = Context(0);
    /// The context of `MPI_COMM_SELF`.
    pub const SELF: Context = Context(2);

    /// The context in which processes without a common communicator agree on a new one (sessions).
    pub const SESSIONS: Context = Context(4);
    /// The context of messages between processes in `MPI_Finalize`.
    pub const LEAVING: Context = Context(6);

    /// Returns context number `counter` of world rank `leader`, its only creator. Counters below 4 are those of
    /// predefined contexts.
    pub fn from_leader(leader: u32, counter: u32) -> Self {
        Context(
            ((leader as u64 & 0xf_ffff) << 20 | (counter as u64 & 0x7_ffff) << 1) & ((1 << 40) - 1),
        )
    }

    /// Returns the arguments of [`Context::from_leader`] for this context.
    pub fn origin(self) -> (u32, u32) {
        ((self.0 >> 20) as u32, (self.0 >> 1) as u32 & 0x7_ffff)
    }

    /// Encodes the context for another process.
    pub fn to_wire(self) -> u64 {
        self.0
    }

    /// Decodes a context that [`Context::to_wire`] encoded.
    pub fn from_wire(wire: u64) -> Self {
        Context(wire & ((1 << 40) - 2))
    }

    /// Returns the communicator's context for collective traffic.
    #[must_use]
    pub fn collective(self) -> Self {
        Context(self.0 | 1)
    }

    /// Returns the context of a match key.
    pub fn of_key(key: u64) -> Self {
        Context(key >> SOURCE_BITS)
    }

    /// Returns the match key of a message from `source`, a rank of the communicator.
    #[inline]
    pub fn key(self, source: u32) -> u64 {
        self.0 << SOURCE_BITS | source as u64
    }
}

/// Returns the key of collective traffic for the source and communicator of `key`.
#[inline]
pub fn collective_key(key: u64) -> u64 {
    key | 1 << SOURCE_BITS
}

/// Returns the source rank in a match key.
#[inline]
pub fn key_source(key: u64) -> u32 {
    (key & (MAX_RANKS as u64 - 1)) as u32
}

/// Returns the match key without its source, for receives from any source.
#[inline]
pub fn key_context(key: u64) -> u64 {
    key & !(MAX_RANKS as u64 - 1)
}

/// Wildcard tag of a receive (`MPI_ANY_TAG`): matches every tag of 0 or more.
pub const ANY_TAG: i32 = -2;

/// Returns whether a tag satisfies a receive. A wildcard does not match the internal tags below 0.
#[inline]
pub fn tag_matches(wanted: i32, tag: i32) -> bool {
    wanted == tag || (wanted == ANY_TAG && tag >= 0)
}

/// Hashes a match key and a tag. The low bits of the result are well mixed.
#[inline]
pub fn mix(key: u64, tag: i32) -> usize {
    // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (tag as u32 as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed >> 40 ^ mixed >> 52) as usize
}

/// Source of a receive from any source.
pub const ANY_PEER: u32 = u32::MAX;

/// Source, tag and key of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchCriteria {
    /// World rank of the source, or [`ANY_PEER`].
    pub peer: u32,
    /// Tag, or [`ANY_TAG`].
    pub tag: i32,
    /// Match key. With [`ANY_PEER`] its source part is 0 and ignored.
    pub key: u64,
}

impl MatchCriteria {
    /// Returns whether a message satisfies the receive. The peer is not compared: the searched list determines it.
    #[inline]
    pub(crate) fn accepts(&self, key: u64, tag: i32) -> bool {
        let key = if self.peer == ANY_PEER { key_context(key) } else { key };
        self.key == key && tag_matches(self.tag, tag)
    }
}
