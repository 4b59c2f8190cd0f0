//! A set of ranks as bits.

/// Number of ranks in one word.
const BITS: usize = 64;
/// Encoded size of a word and its index, in bytes.
const ENTRY: usize = 12;

/// A set of failed ranks. Ranks below 64 need no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedSet {
    first: u64,
    /// Words from rank 64. The last one is not 0, so that equal sets have equal words.
    rest: Vec<u64>,
}

impl FailedSet {
    /// Returns the empty set.
    pub const fn new() -> Self {
        FailedSet { first: 0, rest: Vec::new() }
    }

    fn word(&self, index: usize) -> u64 {
        match index {
            0 => self.first,
            _ => self.rest.get(index - 1).copied().unwrap_or(0),
        }
    }

    fn word_mut(&mut self, index: usize) -> &mut u64 {
        if index == 0 {
            return &mut self.first;
        }
        if self.rest.len() < index {
            self.rest.resize(index, 0);
        }
        &mut self.rest[index - 1]
    }

    fn words(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    fn trim(&mut self) {
        while self.rest.last() == Some(&0) {
            self.rest.pop();
        }
    }

    /// Returns whether the set contains `rank`.
    pub fn contains(&self, rank: usize) -> bool {
        self.word(rank / BITS) >> (rank % BITS) & 1 == 1
    }

    /// Adds `rank`. Returns whether it is new.
    pub fn insert(&mut self, rank: usize) -> bool {
        let word = self.word_mut(rank / BITS);
        let old = *word;
        *word |= 1 << (rank % BITS);
        *word != old
    }

    /// Removes `rank`.
    pub fn remove(&mut self, rank: usize) {
        if self.contains(rank) {
            *self.word_mut(rank / BITS) &= !(1 << (rank % BITS));
            self.trim();
        }
    }

    /// Adds the ranks below `end`. Returns whether one of them is new.
    pub fn insert_below(&mut self, end: usize) -> bool {
        let mut grown = false;
        for index in 0..end.div_ceil(BITS) {
            let count = (end - index * BITS).min(BITS);
            let mask = u64::MAX >> (BITS - count);
            if self.word(index) & mask != mask {
                *self.word_mut(index) |= mask;
                grown = true;
            }
        }
        grown
    }

    /// Adds the ranks of `other`. Returns whether one of them is new.
    pub fn union_with(&mut self, other: &FailedSet) -> bool {
        if other.is_subset(self) {
            return false;
        }
        for (index, word) in other.words().enumerate().filter(|(_, word)| *word != 0) {
            *self.word_mut(index) |= word;
        }
        true
    }

    /// Removes the ranks that are not in `other`.
    pub fn intersect_with(&mut self, other: &FailedSet) {
        self.first &= other.first;
        for (index, word) in self.rest.iter_mut().enumerate() {
            *word &= other.word(index + 1);
        }
        self.trim();
    }

    /// Returns whether each rank of the set is in `other`.
    pub fn is_subset(&self, other: &FailedSet) -> bool {
        self.words().enumerate().all(|(index, word)| word & !other.word(index) == 0)
    }

    /// Returns whether the set has no rank.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }

    /// Returns the number of ranks.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the lowest rank that the set lacks.
    pub fn lowest_absent(&self) -> usize {
        let full = self.words().take_while(|word| *word == u64::MAX).count();
        full * BITS + self.word(full).trailing_ones() as usize
    }

    /// Returns the ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(index, word)| {
            (0..BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * BITS + bit)
        })
    }

    /// Appends the encoded set: the number of words that are not 0, then the index and the word of each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let words = self.words().enumerate().filter(|(_, word)| *word != 0);
        out.extend_from_slice(&(words.clone().count() as u32).to_le_bytes());
        for (index, word) in words {
            out.extend_from_slice(&(index as u32).to_le_bytes());
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads an encoded set of ranks below `members` off the front of `bytes`. Returns `None` if `bytes` does not begin
    /// with one.
    pub fn decode(bytes: &mut &[u8], members: usize) -> Option<FailedSet> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (entries, rest) =
            rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(ENTRY)?)?;
        let mut set = FailedSet::new();
        let mut next = 0;
        for entry in entries.chunks_exact(ENTRY) {
            let (index, word) = entry.split_first_chunk()?;
            let (index, word) =
                (u32::from_le_bytes(*index) as usize, u64::from_le_bytes(word.try_into().ok()?));
            let highest = index.checked_mul(BITS)?.checked_add(word.checked_ilog2()? as usize)?;
            if index < next || highest >= members {
                return None;
            }
            *set.word_mut(index) = word;
            next = index + 1;
        }
        *bytes = rest;
        Some(set)
    }
}

impl FromIterator<usize> for FailedSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        let mut set = FailedSet::new();
        for rank in ranks {
            set.insert(rank);
        }
        set
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn failed_set__is_as_a_set_of_numbers() {
        let mut random = Random::new(1);
        for round in 0..200 {
            let limit = [64, 65, 200, 1000][round % 4];
            let mut draw = || {
                let count = random.below(2 * limit);
                (0..count).map(|_| random.below(limit) as usize).collect::<BTreeSet<_>>()
            };
            let (a, b) = (draw(), draw());
            let (set, other): (FailedSet, FailedSet) =
                (a.iter().copied().collect(), b.iter().copied().collect());
            assert_eq!(set.iter().collect::<BTreeSet<_>>(), a);
            assert_eq!((set.len(), set.is_empty()), (a.len(), a.is_empty()));
            assert_eq!(set.is_subset(&other), a.is_subset(&b));
            assert_eq!(set.lowest_absent(), (0..).find(|m| !a.contains(m)).unwrap());
            let mut union = set.clone();
            assert_eq!(union.union_with(&other), !b.is_subset(&a));
            assert_eq!(union, a.union(&b).copied().collect());
            let mut common = set.clone();
            common.intersect_with(&other);
            assert_eq!(common, a.intersection(&b).copied().collect());
            let mut without = set.clone();
            for m in &b {
                without.remove(*m);
            }
            assert_eq!(without, a.difference(&b).copied().collect());
            let end = random.below(limit + 1) as usize;
            let mut filled = set.clone();
            assert_eq!(filled.insert_below(end), !(0..end).all(|m| a.contains(&m)));
            assert_eq!(filled, a.iter().copied().chain(0..end).collect());
        }
    }

    #[test]
    fn failed_set__of_100_000_ranks__is_encoded_by_its_words() {
        let set: FailedSet = [3, 64, 99_999].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 64, 99_999]);
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        assert_eq!(bytes.len(), 4 + 3 * ENTRY);
        assert_eq!(FailedSet::decode(&mut &bytes[..], 100_000), Some(set));
        assert_eq!(FailedSet::decode(&mut &bytes[..], 99_999), None);
    }

    #[test]
    fn decode__of_a_malformed_set__is_refused() {
        let encoded = |entries: &[(u32, u64)]| {
            let mut bytes = (entries.len() as u32).to_le_bytes().to_vec();
            for (index, word) in entries {
                bytes.extend(index.to_le_bytes());
                bytes.extend(word.to_le_bytes());
            }
            FailedSet::decode(&mut &bytes[..], 200)
        };
        assert_eq!(encoded(&[(0, 1), (2, 1)]), Some([0, 128].into_iter().collect()));
        assert_eq!(encoded(&[(2, 1), (0, 1)]), None, "not ascending");
        assert_eq!(encoded(&[(1, 1), (1, 2)]), None, "twice");
        assert_eq!(encoded(&[(1, 0)]), None, "a word of 0");
        assert_eq!(encoded(&[(3, 1 << 8)]), None, "rank 200");
        assert_eq!(encoded(&[(u32::MAX, 1)]), None, "a far rank");
        assert_eq!(FailedSet::decode(&mut &[255, 255, 255, 255, 0][..], 200), None, "no entries");
    }
}
