//! Tag matching as data: context, source and tag of a message, and what a receive asks for.

/// What keeps the messages of one communicator apart from all others: 39 bits chosen at its
/// creation, and one bit that separates collective from point-to-point traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context(u64);

/// Bits of the source rank in a match key.
const SOURCE_BITS: u32 = 24;
/// Largest number of ranks of a communicator.
pub const MAX_RANKS: u32 = 1 << SOURCE_BITS;

impl Context {
    /// The context of `MPI_COMM_WORLD`.
    pub const WORLD: Context = Context(0);
    /// The context of `MPI_COMM_SELF`.
    pub const SELF: Context = Context(2);

    /// The context in which processes that share no communicator agree on one (sessions).
    pub const SESSIONS: Context = Context(4);
    /// The context in which processes that are in `MPI_Finalize` ask each other.
    pub const LEAVING: Context = Context(6);

    /// A context that only the process of world rank `leader` can make: the `counter`-th of its own.
    /// Counters of 4 and above are for communicators made at run time.
    pub fn from_leader(leader: u32, counter: u32) -> Self {
        Context(
            ((leader as u64 & 0xf_ffff) << 20 | (counter as u64 & 0x7_ffff) << 1) & ((1 << 40) - 1),
        )
    }

    /// The arguments of [`Context::from_leader`] that made it.
    pub fn origin(self) -> (u32, u32) {
        ((self.0 >> 20) as u32, (self.0 >> 1) as u32 & 0x7_ffff)
    }

    /// The context as a number that can be sent to another process.
    pub fn to_wire(self) -> u64 {
        self.0
    }

    /// A context that [`Context::to_wire`] wrote.
    pub fn from_wire(wire: u64) -> Self {
        Context(wire & ((1 << 40) - 2))
    }

    /// The same communicator's context for collective traffic.
    #[must_use]
    pub fn collective(self) -> Self {
        Context(self.0 | 1)
    }

    /// The match key of a message from `source`, a rank of the communicator.
    #[inline]
    pub fn key(self, source: u32) -> u64 {
        self.0 << SOURCE_BITS | source as u64
    }
}

/// The key of the same source's collective traffic.
#[inline]
pub fn collective_key(key: u64) -> u64 {
    key | 1 << SOURCE_BITS
}

/// The source rank inside a match key.
#[inline]
pub fn key_source(key: u64) -> u32 {
    (key & (MAX_RANKS as u64 - 1)) as u32
}

/// The match key without its source, to compare where any source will do.
#[inline]
pub fn key_context(key: u64) -> u64 {
    key & !(MAX_RANKS as u64 - 1)
}

/// The tag of `MPI_ANY_TAG` in a receive's terms: any tag of 0 or more.
pub const ANY_TAG: i32 = -2;

/// Whether a message's tag satisfies a receive. Tags below 0 are internal to collectives and never
/// matched by a wildcard.
#[inline]
pub fn tag_matches(wanted: i32, tag: i32) -> bool {
    wanted == tag || (wanted == ANY_TAG && tag >= 0)
}

/// A number that differs in its low bits, as a rule, for messages of another source, context or tag: a hash.
#[inline]
pub fn mix(key: u64, tag: i32) -> usize {
    // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (tag as u32 as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed >> 40 ^ mixed >> 52) as usize
}
