//! Groups: ordered sets of processes (MPI-5.0 section 7.3).

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::common::table::{HandleKind, HandleTable};
use std::collections::HashMap;
use std::rc::Rc;

/// Ordered set of processes, named by their rank in the world.
#[derive(Debug, Clone)]
pub struct Group {
    ranks: Vec<u32>,
    /// World rank of the calling process; `None` in the predefined empty group.
    me: Option<u32>,
    my_rank: Option<u32>,
    /// Session of the group; 0 for the world model.
    session: usize,
}

impl PartialEq for Group {
    /// Compares members and order.
    fn eq(&self, other: &Group) -> bool {
        self.ranks == other.ranks
    }
}

impl Eq for Group {}

impl HandleKind for Group {
    const NOUN: &'static str = "group";
    const NULL: (usize, &'static str) = (MPI_GROUP_NULL, "MPI_GROUP_NULL");
    const CLASS: i32 = MPI_ERR_GROUP;
}

impl Group {
    /// Makes a group of world ranks in order; `me` is the calling process's world rank.
    pub fn new(ranks: Vec<u32>, me: u32) -> Self {
        let my_rank = ranks.iter().position(|&r| r == me).map(|i| i as u32);
        Group { ranks, me: Some(me), my_rank, session: 0 }
    }

    /// Handle of the group's session; 0 for the world model.
    pub fn session(&self) -> usize {
        self.session
    }

    /// Returns a group with equal members that belongs to the session of handle `session`.
    #[must_use]
    pub fn of_session(self: Rc<Self>, session: usize) -> Rc<Group> {
        match self.session == session {
            true => self,
            false => Rc::new(Group { session, ..(*self).clone() }),
        }
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

    /// Rank as the standard returns it: `MPI_UNDEFINED` if the process is not a member.
    pub fn rank_or_undefined(&self) -> i32 {
        self.my_rank.map_or(MPI_UNDEFINED, |r| r as i32)
    }

    /// Returns `MPI_IDENT`, `MPI_SIMILAR` (equal members, other order) or `MPI_UNEQUAL`.
    pub fn compare(&self, other: &Group) -> i32 {
        if self.ranks == other.ranks {
            return MPI_IDENT;
        }
        let sorted = |group: &Group| {
            let mut ranks = group.ranks.clone();
            ranks.sort_unstable();
            ranks
        };
        if self.size() == other.size() && sorted(self) == sorted(other) {
            MPI_SIMILAR
        } else {
            MPI_UNEQUAL
        }
    }

    /// Maps the world rank of each member to its rank in the group.
    fn positions(&self) -> HashMap<u32, u32> {
        self.ranks.iter().zip(0..).map(|(&world, rank)| (world, rank)).collect()
    }

    /// Translates `ranks` of this group to ranks of `other`. The result is `MPI_UNDEFINED` for processes that are not
    /// in `other`. `MPI_PROC_NULL` stays `MPI_PROC_NULL`. Errors: `MPI_ERR_RANK` for a rank that is not in this group.
    pub fn translate(&self, ranks: &[i32], other: &Group) -> Result<Vec<i32>> {
        let positions = other.positions();
        let mut translated = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            translated.push(match rank {
                MPI_PROC_NULL => MPI_PROC_NULL,
                _ => {
                    let world = self.ranks[self.index(rank)?];
                    positions.get(&world).map_or(MPI_UNDEFINED, |&r| r as i32)
                }
            });
        }
        Ok(translated)
    }

    /// Returns the members of this group, then those that only `other` has.
    #[must_use]
    pub fn union(&self, other: &Group) -> Group {
        let here = self.positions();
        let added = other.ranks.iter().filter(|world| !here.contains_key(world));
        Group::derive(
            self.ranks.iter().chain(added).copied().collect(),
            self.me.or(other.me),
            match self.session {
                0 => other.session,
                session => session,
            },
        )
    }

    /// Returns the members that are also in `other`, in the order of this group.
    #[must_use]
    pub fn intersection(&self, other: &Group) -> Group {
        let there = other.positions();
        Group::derive(
            self.ranks.iter().copied().filter(|world| there.contains_key(world)).collect(),
            self.me,
            self.session,
        )
    }

    /// Returns the members that are not in `other`, in the order of this group.
    #[must_use]
    pub fn difference(&self, other: &Group) -> Group {
        let there = other.positions();
        Group::derive(
            self.ranks.iter().copied().filter(|world| !there.contains_key(world)).collect(),
            self.me,
            self.session,
        )
    }

    /// Returns the members with the given ranks, in that order. Errors: `MPI_ERR_RANK` for an unknown or repeated rank.
    pub fn include(&self, ranks: &[i32]) -> Result<Group> {
        let mut taken = vec![false; self.ranks.len()];
        let mut members = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            members.push(self.ranks[self.take(rank, &mut taken)?]);
        }
        Ok(Group::derive(members, self.me, self.session))
    }

    /// Returns the members without the given ranks, in this group's order. Errors: `MPI_ERR_RANK` as in
    /// [`Group::include`].
    pub fn exclude(&self, ranks: &[i32]) -> Result<Group> {
        let mut taken = vec![false; self.ranks.len()];
        for &rank in ranks {
            self.take(rank, &mut taken)?;
        }
        let left = self.ranks.iter().zip(&taken).filter(|(_, taken)| !**taken);
        Ok(Group::derive(left.map(|(&world, _)| world).collect(), self.me, self.session))
    }

    /// Expands triplets of first, last and stride to ranks, in order (MPI-5.0 section 7.3.2). Errors: `MPI_ERR_ARG` for
    /// a stride of 0, `MPI_ERR_RANK` for a rank that is not in the group.
    pub fn expand_ranges(&self, ranges: &[[i32; 3]]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for &[first, last, stride] in ranges {
            if stride == 0 {
                return Err(Error::new(
                    MPI_ERR_ARG,
                    format!(
                        "the range ({first}, {last}, 0) has a stride of 0: pass a stride that is \
                         not 0"
                    ),
                ));
            }
            // In an empty range, only the stride is checked.
            let (first, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
            let mut rank = first;
            while (stride > 0 && rank <= last) || (stride < 0 && rank >= last) {
                let value = i32::try_from(rank).unwrap_or(-1);
                self.index(value)?;
                ranks.push(value);
                rank += stride;
            }
        }
        Ok(ranks)
    }

    fn derive(ranks: Vec<u32>, me: Option<u32>, session: usize) -> Group {
        let my_rank = me.and_then(|me| ranks.iter().position(|&r| r == me)).map(|i| i as u32);
        Group { ranks, me, my_rank, session }
    }

    fn index(&self, rank: i32) -> Result<usize> {
        usize::try_from(rank).ok().filter(|&index| index < self.ranks.len()).ok_or_else(|| {
            let last = i64::from(self.size()) - 1;
            let have = if last < 0 {
                "the group is empty".into()
            } else {
                format!("the group has ranks 0 to {last}")
            };
            let text = format!("rank {rank} is not in the group: {have}");
            Error::new(MPI_ERR_RANK, text).with_advice(Some("pass ranks of the group"))
        })
    }

    fn take(&self, rank: i32, taken: &mut [bool]) -> Result<usize> {
        let index = self.index(rank)?;
        if std::mem::replace(&mut taken[index], true) {
            let text = format!("rank {rank} is given twice");
            return Err(Error::new(MPI_ERR_RANK, text).with_advice(Some("give each rank once")));
        }
        Ok(index)
    }
}

/// Registers `MPI_GROUP_EMPTY`.
pub fn register_predefined(groups: &HandleTable<Group>) {
    groups.insert_predefined(MPI_GROUP_EMPTY, Group::derive(Vec::new(), None, 0));
}

/// Stores a group for the program; an empty one is `MPI_GROUP_EMPTY`. Errors: `MPI_ERR_OTHER` if no handle is free.
pub fn publish_group(groups: &HandleTable<Group>, group: Rc<Group>) -> Result<usize> {
    if group.size() == 0 {
        return Ok(MPI_GROUP_EMPTY);
    }
    groups.publish(group)
}

/// `MPI_Group_free`. Errors: `MPI_ERR_GROUP` for a handle that is not a group.
pub fn free_group(groups: &HandleTable<Group>, handle: usize) -> Result {
    groups.find(handle)?;
    // The handle `MPI_GROUP_EMPTY` is never freed, because every call that returns an empty group returns it.
    if handle != MPI_GROUP_EMPTY {
        groups.remove(handle);
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn group(ranks: &[u32]) -> Group {
        Group::new(ranks.to_vec(), 2)
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
        result.unwrap_err().code()
    }

    #[test]
    fn rank__is_the_callers_or_undefined() {
        assert_eq!(group(&[3, 2, 1]).rank_or_undefined(), 1);
        assert_eq!(group(&[3, 1]).rank_or_undefined(), MPI_UNDEFINED);
    }

    #[test]
    fn compare__sees_order_and_members() {
        let a = group(&[0, 1, 2]);
        assert_eq!(a.compare(&group(&[0, 1, 2])), MPI_IDENT);
        assert_eq!(a.compare(&group(&[2, 1, 0])), MPI_SIMILAR);
        assert_eq!(a.compare(&group(&[0, 1, 3])), MPI_UNEQUAL);
        assert_eq!(a.compare(&group(&[0, 1])), MPI_UNEQUAL);
        assert_eq!(group(&[]).compare(&group(&[])), MPI_IDENT);
    }

    #[test]
    fn sets__keep_the_order_of_the_first() {
        let (a, b) = (group(&[5, 1, 4]), group(&[4, 7, 5, 6]));
        assert_eq!(a.union(&b).world_ranks(), [5, 1, 4, 7, 6]);
        assert_eq!(a.intersection(&b).world_ranks(), [5, 4]);
        assert_eq!(a.difference(&b).world_ranks(), [1]);
        let empty = Group::derive(Vec::new(), None, 0);
        assert_eq!(empty.union(&group(&[1, 2])).rank(), Some(1));
        assert_eq!(b.difference(&a).world_ranks(), [7, 6]);
    }

    #[test]
    fn translate__keeps_proc_null_and_marks_strangers() {
        let (a, b) = (group(&[5, 1, 4]), group(&[4, 5]));
        let ranks = a.translate(&[2, MPI_PROC_NULL, 1, 0, 0], &b).unwrap();
        assert_eq!(ranks, [0, MPI_PROC_NULL, MPI_UNDEFINED, 1, 1]);
        assert_eq!(code(a.translate(&[3], &b)), MPI_ERR_RANK);
        assert_eq!(code(a.translate(&[-1], &b)), MPI_ERR_RANK);
    }

    #[test]
    fn include_and_exclude__check_their_ranks() {
        let a = group(&[10, 11, 12, 13]);
        assert_eq!(a.include(&[3, 0]).unwrap().world_ranks(), [13, 10]);
        assert_eq!(a.exclude(&[3, 0]).unwrap().world_ranks(), [11, 12]);
        assert_eq!(a.include(&[]).unwrap().size(), 0);
        for bad in [&[4][..], &[-1], &[1, 1]] {
            assert_eq!(code(a.include(bad)), MPI_ERR_RANK);
            assert_eq!(code(a.exclude(bad)), MPI_ERR_RANK);
        }
    }

    #[test]
    fn ranges__expand_as_in_the_standard() {
        let ranks: Vec<u32> = (0..30).collect();
        let a = group(&ranks);
        let expanded = a.expand_ranges(&[[1, 7, 3], [20, 16, -2], [5, 5, 9], [9, 8, 1]]).unwrap();
        assert_eq!(expanded, [1, 4, 7, 20, 18, 16, 5]);
        assert_eq!(code(a.expand_ranges(&[[0, 1, 0]])), MPI_ERR_ARG);
        assert_eq!(code(a.expand_ranges(&[[28, 31, 1]])), MPI_ERR_RANK);
        assert_eq!(code(a.expand_ranges(&[[i32::MAX, i32::MIN, i32::MIN]])), MPI_ERR_RANK);
    }

    #[test]
    fn handles__of_empty_groups_are_the_predefined_one() {
        let groups = HandleTable::new();
        register_predefined(&groups);
        let empty = publish_group(&groups, Rc::new(group(&[]))).unwrap();
        assert_eq!(empty, MPI_GROUP_EMPTY);
        free_group(&groups, empty).unwrap();
        assert_eq!(groups.find(empty).unwrap().size(), 0);
        let handle = publish_group(&groups, Rc::new(group(&[1]))).unwrap();
        free_group(&groups, handle).unwrap();
        assert_eq!(code(free_group(&groups, handle)), MPI_ERR_GROUP);
        assert_eq!(code(free_group(&groups, MPI_GROUP_NULL)), MPI_ERR_GROUP);
    }
}
