//! Free parts of an arena: a first-fit allocator of whole pages, by offset.

use std::collections::BTreeMap;

pub(super) const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    pub(super) fn new(bytes: u64) -> Extents {
        Extents { free: BTreeMap::from([(0, bytes)]) }
    }

    /// Takes `bytes`, a multiple of [`PAGE`], from the first part that is large enough. `None` if no part is.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let (&offset, &length) = self.free.iter().find(|&(_, &length)| length >= bytes)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    pub(super) fn put(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            (offset, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.free.remove(&(offset + bytes)) {
            bytes += length;
        }
        self.free.insert(offset, bytes);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__is_first_fit() {
        let mut extents = Extents::new(10 * PAGE);
        let taken: Vec<_> = (0..3).map(|_| extents.take(3 * PAGE).unwrap()).collect();
        assert_eq!(taken, [0, 3 * PAGE, 6 * PAGE]);
        assert_eq!(extents.take(2 * PAGE), None);
        extents.put(3 * PAGE, 3 * PAGE);
        assert_eq!(extents.take(2 * PAGE), Some(3 * PAGE));
        assert_eq!(extents.take(PAGE), Some(5 * PAGE));
    }

    #[test]
    fn put__joins_neighbours_in_every_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut extents = Extents::new(3 * PAGE);
            (0..3).for_each(|_| assert!(extents.take(PAGE).is_some()));
            order.iter().for_each(|&page| extents.put(page * PAGE, PAGE));
            assert_eq!(extents.free, BTreeMap::from([(0, 3 * PAGE)]), "{order:?}");
        }
    }

    #[test]
    fn extents__agree_with_a_map_of_pages() {
        const PAGES: usize = 64;
        let mut extents = Extents::new(PAGES as u64 * PAGE);
        let mut used = [false; PAGES];
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let pages = 1 + random(9);
            let naive = (0..=PAGES - pages as usize)
                .find(|&at| !used[at..at + pages as usize].contains(&true));
            if random(2) == 0 && !held.is_empty() {
                let (offset, bytes) = held.swap_remove(random(held.len() as u64) as usize);
                extents.put(offset, bytes);
                used[(offset / PAGE) as usize..((offset + bytes) / PAGE) as usize].fill(false);
                continue;
            }
            let taken = extents.take(pages * PAGE);
            assert_eq!(taken, naive.map(|at| at as u64 * PAGE));
            if let Some(offset) = taken {
                held.push((offset, pages * PAGE));
                used[(offset / PAGE) as usize..][..pages as usize].fill(true);
            }
        }
    }
}
