//! The tree of an agreement, as one member sees it.

use super::failed_set::FailedSet;

/// Binary tree over all members: the parent of member `m` is `(m - 1) / 2`. The children of a failed member belong to
/// its nearest living ancestor, or to the root if it has none. The root is the lowest living member.
#[derive(Debug, Clone)]
pub(super) struct MemberTree {
    members: usize,
    me: usize,
    failed: FailedSet,
}

impl MemberTree {
    pub(super) fn new(members: usize, me: usize) -> Self {
        MemberTree { members, me, failed: FailedSet::new() }
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Failed members that are known.
    pub(super) fn failed(&self) -> &FailedSet {
        &self.failed
    }

    /// Adds failed members. Returns whether one is new.
    pub(super) fn add_failed(&mut self, failed: &FailedSet) -> bool {
        let grown = self.failed.union_with(failed);
        // Reports of this member's own failure are false: it runs.
        self.failed.remove(self.me);
        grown
    }

    /// Adds the members below `end`. Returns whether one is new.
    pub(super) fn add_failed_below(&mut self, end: usize) -> bool {
        self.failed.insert_below(end.min(self.me))
    }

    /// Returns the lowest living member.
    pub(super) fn root(&self) -> usize {
        self.failed.lowest_absent()
    }

    pub(super) fn is_root(&self) -> bool {
        self.root() == self.me
    }

    /// Returns the nearest living ancestor, or the root. The root has no parent.
    pub(super) fn parent(&self) -> Option<usize> {
        let mut member = self.me;
        while member > 0 {
            member = (member - 1) / 2;
            if !self.failed.contains(member) {
                return Some(member);
            }
        }
        Some(self.root()).filter(|root| *root != self.me)
    }

    /// Visits the living children of this member and the failed members above them. If `visit` returns true for a
    /// failed member, the subtree of that member is left out.
    pub(super) fn visit(&self, mut visit: impl FnMut(usize) -> bool) {
        match self.is_root() {
            true => self.visit_member(0, &mut visit),
            false => self.visit_children(self.me, &mut visit),
        }
    }

    fn visit_children(&self, member: usize, visit: &mut impl FnMut(usize) -> bool) {
        for child in 2 * member + 1..self.members.min(2 * member + 3) {
            self.visit_member(child, visit);
        }
    }

    /// Visits `member`, or its children if it is this member. Continues below a failed member.
    fn visit_member(&self, member: usize, visit: &mut impl FnMut(usize) -> bool) {
        if member == self.me || !visit(member) && self.failed.contains(member) {
            self.visit_children(member, visit);
        }
    }

    /// Returns whether this member is the parent of `member` as long as both live.
    pub(super) fn is_own_child(&self, member: usize) -> bool {
        member > 0 && (member - 1) / 2 == self.me
    }

    /// Returns the living children.
    #[cfg(test)]
    pub(super) fn children(&self) -> Vec<usize> {
        let mut children = Vec::new();
        self.visit(|member| {
            if !self.failed.contains(member) {
                children.push(member);
            }
            false
        });
        children
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::random::Random;

    fn tree(members: usize, me: usize, failed: &FailedSet) -> MemberTree {
        let mut tree = MemberTree::new(members, me);
        tree.add_failed(failed);
        tree
    }

    #[test]
    fn tree__connects_all_living_members() {
        let mut random = Random::new(3);
        for round in 0..300 {
            let members = 1 + random.below(80) as usize;
            let share = (round % 10) as f64 / 9.0;
            let failed: FailedSet = (0..members).filter(|_| random.chance(share)).collect();
            let living: Vec<_> = (0..members).filter(|m| !failed.contains(*m)).collect();
            let mut found = 0;
            for &me in &living {
                let tree = tree(members, me, &failed);
                assert_eq!(tree.root(), living[0]);
                assert_eq!(tree.parent().is_none(), me == living[0]);
                for child in tree.children() {
                    let parent = super::tests::tree(members, child, &failed).parent();
                    assert_eq!(parent, Some(me), "of {child} without {failed:?}");
                    found += 1;
                }
            }
            assert_eq!(found, living.len().saturating_sub(1), "without {failed:?}");
        }
    }

    #[test]
    fn own_failure__is_ignored() {
        let mut tree = tree(8, 3, &(0..8).collect());
        assert!(tree.is_root());
        tree.add_failed_below(6);
        assert!(tree.is_root());
    }
}
