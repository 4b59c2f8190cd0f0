//! A set of members that is small without failures: the children of one member of a tree.

use std::collections::BTreeSet;

/// Number of members that need no allocation.
const FEW: usize = 4;

/// A set of members, in ascending order. Up to [`FEW`] members need no allocation.
#[derive(Debug, Default)]
pub(super) struct MemberSet {
    /// The first `count` entries are the members, in ascending order, unless `many` has them.
    few: [usize; FEW],
    count: usize,
    /// The members, once there were more than [`FEW`].
    many: BTreeSet<usize>,
}

impl MemberSet {
    fn few(&self) -> &[usize] {
        &self.few[..self.count]
    }

    /// Returns whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.many.is_empty()
    }

    /// Returns whether the set contains `member`.
    pub fn contains(&self, member: usize) -> bool {
        self.few().contains(&member) || self.many.contains(&member)
    }

    /// Adds `member`.
    pub fn insert(&mut self, member: usize) {
        if !self.many.is_empty() {
            self.many.insert(member);
            return;
        }
        let Err(at) = self.few().binary_search(&member) else { return };
        if self.count == FEW {
            self.many.extend(self.few);
            self.many.insert(member);
            self.count = 0;
            return;
        }
        self.few.copy_within(at..self.count, at + 1);
        self.few[at] = member;
        self.count += 1;
    }

    /// Removes `member`.
    pub fn remove(&mut self, member: usize) {
        if let Ok(at) = self.few().binary_search(&member) {
            self.few.copy_within(at + 1..self.count, at);
            self.count -= 1;
        }
        self.many.remove(&member);
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.count = 0;
        self.many.clear();
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.few().iter().chain(&self.many).copied()
    }
}

impl Extend<usize> for MemberSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, members: I) {
        members.into_iter().for_each(|member| self.insert(member));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::random::Random;

    #[test]
    fn member_set__is_as_a_set_of_numbers() {
        let mut random = Random::new(5);
        for _ in 0..200 {
            let (mut set, mut model) = (MemberSet::default(), BTreeSet::new());
            for _ in 0..40 {
                let member = random.below(9) as usize;
                match random.below(20) {
                    0 => {
                        set.clear();
                        model.clear();
                    }
                    1..10 => {
                        set.remove(member);
                        model.remove(&member);
                    }
                    _ => {
                        set.insert(member);
                        model.insert(member);
                    }
                }
                assert!(set.iter().eq(model.iter().copied()), "{set:?} {model:?}");
                assert_eq!(set.is_empty(), model.is_empty());
                assert!((0..9).all(|member| set.contains(member) == model.contains(&member)));
            }
        }
    }
}
