//! Groups: ordered sets of processes (MPI-5.0 section 7.3).

use crate::consts::MPI_UNDEFINED;

/// An ordered set of processes, named by their rank in the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    ranks: Vec<u32>,
    my_rank: Option<u32>,
}

impl Group {
    /// A group of world ranks in order; `me` is the calling process's world rank.
    pub fn new(ranks: Vec<u32>, me: u32) -> Self {
        let my_rank = ranks.iter().position(|&r| r == me).map(|i| i as u32);
        Group { ranks, my_rank }
    }

    /// World ranks in group order.
    pub fn world_ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The calling process's rank in the group, if it is a member.
    pub fn rank(&self) -> Option<u32> {
        self.my_rank
    }

    /// As the standard returns it: `MPI_UNDEFINED` where the process is no member.
    pub fn rank_or_undefined(&self) -> i32 {
        self.my_rank.map_or(MPI_UNDEFINED, |r| r as i32)
    }
}
