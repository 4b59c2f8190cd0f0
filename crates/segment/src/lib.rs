//! The node segment: one memory file without a name, shared by all ranks of a job on a node.
//!
//! ```text
//! 0              JobHeader                  4 KiB
//! 4 KiB          RankPage[N]                4 KiB each, backed for present ranks
//!                RankPage[4]                for ranks without a place, if the job has a table
//! bitmap_offset  incoming bitmaps[N]        one bit per sender, rows padded to a cache line
//! table_offset   Entry[J]                   16 bytes for each rank of a job that can have ranks without a place
//! cards_offset   Card[J]                    200 bytes, one for each node whose ranks share name and addresses, sparse
//! pair_offset    PairRegion[N * (N + 1)]    PAIR_BYTES each, both directions of a pair side by side, sparse
//! arena_offset   Arena[N]                   ARENA_BYTES each or less, sparse, mapped piece by piece
//! trace_offset   Area[N]                    AREA_BYTES each, sparse, mapped where a trace is recorded
//! ```
//!
//! N is the number of ranks that the node can have, including ranks that may be spawned. J is the same number for the
//! whole job. If the job has one node, a rank's number is its place. Otherwise the table has the place
//! ([`Segment::place`]), and ranks of other nodes have 16 bytes and no place. Every offset is a function of N, J and
//! the length of the file.
//!
//! The file is as long as its address range, but has memory only where [`Segment::ensure_backed`] was called. A
//! shortage is therefore an error of that call, and never a later signal. A memory file is sealed against shrinking and
//! growing. Without memory files, an unlinked file of a file system replaces it (`file`).

mod call;
mod card;
mod death;
mod error;
mod file;
mod header;
mod layout;
mod mapping;
mod memory;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod network_card;
mod page;
mod port;
mod ranks;
mod reuse;
mod table;
mod text;
mod unexpected;
mod wait_note;

pub use call::CallWord;
pub use card::Card;
pub use error::SegmentError;
pub use file::open_nameless;
pub use header::{
    AbortRecord, Agreement, FailureKind, FailureRecord, JobHeader, MAGIC, Notice, VERSION,
};
pub use layout::{
    ARENA_BYTES, CARD_BYTES, ENTRY_BYTES, MAX_JOB_RANKS, MAX_RANKS, PAGE_BYTES, PAIR_AHEAD_BYTES,
    PAIR_BYTES, SegmentLayout,
};
pub use mapping::Mapping;
pub use memory::Segment;
pub use network_card::NetworkCard;
pub use page::{
    FINAL_COUNTERS, NOTES, PORTS, RankPage, RankPhase, STATE_ABSENT, STATE_AWAKE, STATE_DEAD,
    STATE_FINALIZED, STATE_SLEEPING, Wakes, WindowLocks, has_left,
};
pub use port::{CallOutcome, PortRequest};
pub use ranks::{FIRST_FOREIGN_HOST, RemoteRank, SpareRanks};
pub use reuse::PlaceCounts;
pub use text::SharedText;
pub use unexpected::{SHOWN_MOST, UnexpectedMessage, UnexpectedSnapshot};
pub use wait_note::{AwaitedRanks, OF_WINDOW, WaitNote, WaitNoteRef};
