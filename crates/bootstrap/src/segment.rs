//! The node segment: one memory file without a name that all ranks of a job share.
//!
//! ```text
//! 0              JobHeader                  4 KiB
//! 4 KiB          RankPage[N]                4 KiB each, backed as far as ranks are there
//!                RankPage[4]                which stand for ranks without a place, where the job can have any
//! bitmap_offset  incoming bitmaps[W][N]     one bit per sender, rows padded to a cache line, for each worker of a rank
//! table_offset   Entry[J]                   16 bytes for each rank of the job, where it has several nodes
//! cards_offset   Card[J]                    200 bytes, one for each node whose ranks share name and addresses, sparse
//! pair_offset    PairRegion[N * (N + 1)]    PAIR_BYTES each, both directions of a pair side by side, sparse
//! further_offset PairRegion[W - 1][N * (N + 1)]  the same for further workers; where it fits, mapped by who has them
//! arena_offset   Arena[N]                   ARENA_BYTES each or less, sparse, mapped piece by piece
//! trace_offset   Area[N]                    AREA_BYTES each, sparse, mapped where a trace is recorded
//! ```
//!
//! N is the number of ranks that the node can have: those that it begins with, and room for those that may be spawned;
//! J is the same of the whole job. Where the job has one node a rank's number is its place here; else the table has it
//! ([`Segment::place`]), and ranks of other nodes have 16 bytes and no place. Every offset is a function of N, J and
//! the length of the file. The file is as long as its address range, but has memory only where somebody asked for it
//! ([`Segment::ensure_backed`]): a shortage is an error at that place and never a signal later. A memory file is sealed
//! against shrinking and growing; where there are none (`file`) an unlinked file of a file system stands in.

mod call;
mod card;
mod death;
mod error;
mod file;
mod header;
mod layout;
mod mapping;
mod memory;
mod page;
mod ranks;
mod reuse;
mod table;
mod text;
mod unexpected;
mod wait_note;

pub use call::Call;
pub use card::Card;
pub use error::SegmentError;
pub use file::open_nameless;
pub use header::{
    AbortRecord, Agreement, FailureKind, FailureRecord, JobHeader, MAGIC, Notice, VERSION,
};
pub use layout::{
    ARENA_BYTES, CARD_BYTES, ENTRY_BYTES, FURTHER, Layout, MAX_JOB_RANKS, MAX_RANKS, PAGE_BYTES,
    PAIR_AHEAD_BYTES, PAIR_BYTES,
};
pub use mapping::Mapping;
pub use memory::Segment;
pub use page::{
    NOTES, PORTS, Phase, RankPage, STATE_ABSENT, STATE_AWAKE, STATE_COVERED, STATE_DEAD,
    STATE_FINALIZED, STATE_SLEEPING, Wakes, WindowLocks, has_left,
};
pub use ranks::{Elsewhere, FIRST_FOREIGN_HOST, Spare};
pub use reuse::PlaceCounts;
pub use text::SharedText;
pub use unexpected::{SHOWN_MOST, Unexpected, UnexpectedMessage};
pub use wait_note::{Awaited, WaitNote, WaitNoteRef};
