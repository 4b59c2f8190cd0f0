//! Runs: pieces of a file at even distances, as ranks exchange them. Coverage: the bytes that a set of runs covers.

use fastpath_base::heap::may_fail;
use std::ops::Range;

/// `count` pieces of `len` bytes, `stride` bytes apart, the first at byte `offset` of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridedRun {
    /// Offset of the first piece in the file.
    pub offset: i64,
    /// Bytes of a piece, above 0.
    pub len: u64,
    /// Distance between pieces, at least `len`. Any value if there is one piece.
    pub stride: i64,
    /// Number of pieces, above 0.
    pub count: u64,
}

/// Words of an encoded run.
pub const RUN_WORDS: usize = 4;

impl StridedRun {
    /// Returns the bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.len.saturating_mul(self.count)
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = i64> + use<> {
        let (offset, stride) = (self.offset, self.stride);
        (0..self.count as i64).map(move |i| offset.wrapping_add(stride.wrapping_mul(i)))
    }

    /// Returns the end of the last piece, or none if no file can reach it.
    pub fn end(&self) -> Option<i64> {
        let last = i64::try_from(self.count - 1).ok()?;
        self.stride.checked_mul(last)?.checked_add(self.offset)?.checked_add_unsigned(self.len)
    }

    /// Encodes the run for another process.
    pub fn to_words(self) -> [u64; RUN_WORDS] {
        [self.offset as u64, self.len, self.stride as u64, self.count]
    }

    /// Decodes a run of another process. Returns none unless its pieces ascend and lie within `window`.
    pub fn from_words(words: [u64; RUN_WORDS], window: &Range<i64>) -> Option<StridedRun> {
        let [offset, len, stride, count] = words;
        let run = StridedRun { offset: offset as i64, len, stride: stride as i64, count };
        let ascends = count == 1 || (run.stride > 0 && run.stride as u64 >= len);
        let fits = len > 0 && count > 0 && ascends && run.offset >= window.start;
        (fits && run.end()? <= window.end).then_some(run)
    }
}

/// Ascending runs built from pieces. Adjacent pieces are merged, and pieces at even distances form a run.
#[derive(Debug)]
pub(crate) struct RunList {
    pub(crate) runs: Vec<StridedRun>,
    pub(crate) bytes: u64,
    most: usize,
    is_full: bool,
}

impl RunList {
    pub(crate) fn new(most: usize) -> RunList {
        RunList { runs: Vec::new(), bytes: 0, most, is_full: false }
    }

    /// Returns whether the list has refused a run; it then takes no more.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn add(&mut self, mut run: StridedRun) {
        if run.count > 1 && i64::try_from(run.len) == Ok(run.stride) {
            run.len *= run.count;
            run.count = 1;
        }
        let taken = !self.is_full
            && (self.runs.last_mut().is_some_and(|last| join(last, &run)) || self.push(run));
        match taken {
            true => self.bytes += run.bytes(),
            false => self.is_full = true,
        }
    }

    fn push(&mut self, run: StridedRun) -> bool {
        let fits = self.runs.len() < self.most;
        if fits {
            self.runs.push(run);
        }
        fits
    }
}

/// Extends `last` by `next` if both together are one run.
fn join(last: &mut StridedRun, next: &StridedRun) -> bool {
    let one = next.count == 1;
    if one && last.count == 1 && last.offset.checked_add_unsigned(last.len) == Some(next.offset) {
        last.len += next.len;
        return true;
    }
    if last.len != next.len {
        return false;
    }
    let stride = match last.count {
        1 => next.offset - last.offset,
        _ => last.stride,
    };
    let follows =
        stride.checked_mul(last.count as i64).and_then(|all| all.checked_add(last.offset))
            == Some(next.offset);
    if !follows || stride < last.len as i64 || !(one || next.stride == stride) {
        return false;
    }
    last.stride = stride;
    last.count += next.count;
    true
}

/// Binary logarithm of the maximum number of bytes that one bit of [`Coverage`] stands for.
const MOST_SHIFT: u32 = 12;

/// Bytes of a window of the file that are covered by runs, one bit for each unit. A unit is the largest power of two,
/// at most 2^`MOST_SHIFT`, that divides the distance of every piece boundary from the start of the window.
#[derive(Debug)]
pub struct Coverage {
    start: i64,
    len: u64,
    /// Binary logarithm of the bytes of a unit.
    shift: u32,
    /// Empty before the first run.
    words: Vec<u64>,
}

impl Coverage {
    /// Returns a coverage of `window` without covered bytes.
    pub fn new(window: Range<i64>) -> Coverage {
        let len = window.end.saturating_sub(window.start).max(0) as u64;
        Coverage { start: window.start, len, shift: MOST_SHIFT, words: Vec::new() }
    }

    /// Returns whether memory suffices for the coverage of a window of `bytes` bytes.
    pub fn has_room(bytes: u64) -> bool {
        let words = bytes.div_ceil(64) as usize;
        may_fail(|| Vec::<u64>::new().try_reserve_exact(words)).is_ok()
    }

    /// Returns the start of the window.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// Returns the number of covered bytes.
    pub fn bytes(&self) -> u64 {
        let units: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        units << self.shift
    }

    /// Adds the bytes of `run`, which is in the window.
    pub fn add(&mut self, run: &StridedRun) {
        let at = run.offset.wrapping_sub(self.start) as u64;
        let stride = if run.count > 1 { run.stride as u64 } else { 0 };
        let shift = (at | run.len | stride).trailing_zeros().min(self.shift);
        if shift < self.shift || self.words.is_empty() {
            self.refine(shift);
        }
        let (mut at, len, stride) = (at >> self.shift, run.len >> self.shift, stride >> self.shift);
        for _ in 0..run.count {
            self.fill(at, len);
            at = at.wrapping_add(stride);
        }
    }

    fn refine(&mut self, shift: u32) {
        let units = self.len.div_ceil(1 << shift);
        let words = vec![0; units.div_ceil(64) as usize];
        let mut fine = Coverage { start: self.start, len: self.len, shift, words };
        self.for_each_stretch(|offset, bytes| {
            fine.fill((offset - fine.start) as u64 >> shift, bytes >> shift);
        });
        *self = fine;
    }

    fn fill(&mut self, at: u64, len: u64) {
        let (mut word, mut bit, mut rest) = ((at / 64) as usize, at % 64, len);
        while rest > 0 {
            let Some(place) = self.words.get_mut(word) else {
                return;
            };
            let now = rest.min(64 - bit);
            *place |= (u64::MAX >> (64 - now)) << bit;
            rest -= now;
            (word, bit) = (word + 1, 0);
        }
    }

    /// Visits the covered ranges in ascending order, as offset and bytes.
    pub fn for_each_stretch(&self, mut visit: impl FnMut(i64, u64)) {
        let mut open = None;
        let mut name = |from: u64, to: u64| {
            visit(self.start + (from << self.shift) as i64, (to - from) << self.shift);
        };
        for (index, &word) in self.words.iter().enumerate() {
            let first = index as u64 * 64;
            let full = match word {
                0 => Some(false),
                u64::MAX => Some(true),
                _ => None,
            };
            if full == Some(open.is_some()) {
                continue;
            }
            let (mut bit, mut is_open) = (0, open.is_some());
            while bit < 64 {
                let rest = word >> bit;
                let same = match is_open {
                    true => rest.trailing_ones(),
                    false if rest == 0 => 64,
                    false => rest.trailing_zeros(),
                };
                bit += same;
                if bit >= 64 {
                    break;
                }
                let at = first + u64::from(bit);
                match open.take() {
                    Some(start) => name(start, at),
                    None => open = Some(at),
                }
                is_open = !is_open;
            }
        }
        if let Some(start) = open {
            name(start, self.words.len() as u64 * 64);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(runs: &[StridedRun]) -> Vec<i64> {
        let pieces = |run: &StridedRun| {
            let run = *run;
            (0..run.count as i64).flat_map(move |i| {
                let at = run.offset + i * run.stride;
                at..at + run.len as i64
            })
        };
        runs.iter().flat_map(pieces).collect()
    }

    #[test]
    fn run_list__joins_neighbours_and_even_distances() {
        let mut list = RunList::new(2);
        let one = |offset, len| StridedRun { offset, len, stride: 0, count: 1 };
        for i in 0..100 {
            list.add(one(i * 32, 8));
        }
        list.add(one(4000, 5));
        list.add(one(4005, 3));
        assert_eq!(list.runs[0], StridedRun { offset: 0, len: 8, stride: 32, count: 100 });
        assert_eq!(list.runs[1], one(4000, 8));
        list.add(one(5001, 9));
        assert!(list.is_full() && list.bytes == 808);
    }

    #[test]
    fn run__of_another_process_is_within_the_window_or_none() {
        let run = StridedRun { offset: 10, len: 4, stride: 8, count: 3 };
        assert_eq!(StridedRun::from_words(run.to_words(), &(10..30)), Some(run));
        assert_eq!(StridedRun::from_words(run.to_words(), &(10..29)), None);
        assert_eq!(StridedRun::from_words(run.to_words(), &(11..90)), None);
        for wrong in [
            [10, 0, 8, 3],
            [10, 4, 3, 3],
            [10, 4, 8, 0],
            [10, 4, u64::MAX, 3],
            [10, u64::MAX, 8, 1],
            [10, 4, i64::MAX as u64, u64::MAX],
        ] {
            assert_eq!(StridedRun::from_words(wrong, &(0..i64::MAX)), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn run__of_any_words_is_understood_or_refused(
            words in prop::array::uniform4(prop_oneof![any::<u64>(), 0u64..200]), end in 0i64..300,
        ) {
            if let Some(run) = StridedRun::from_words(words, &(0..end)) {
                prop_assert!(run.offset >= 0 && run.end().unwrap() <= end);
                prop_assert!(run.bytes() <= end as u64);
                prop_assert_eq!(StridedRun::from_words(run.to_words(), &(0..end)), Some(run));
            }
        }

        #[test]
        fn run_list__has_the_bytes_that_were_added(
            pieces in prop::collection::vec((0i64..3, 1u64..4, 0i64..3, 1u64..5), 0..30), most in 1usize..40,
        ) {
            let (mut list, mut all, mut at) = (RunList::new(most), vec![], 0);
            for (gap, len, more, count) in pieces {
                let run = StridedRun { offset: at + gap, len, stride: len as i64 + more, count };
                at = run.end().unwrap();
                list.add(run);
                all.extend(bytes_of(&[run]));
            }
            let listed = bytes_of(&list.runs);
            prop_assert!(list.runs.len() <= most);
            prop_assert_eq!(list.bytes as usize, listed.len());
            prop_assert_eq!(&listed[..], &all[..listed.len()]);
            prop_assert!(list.is_full() || listed.len() == all.len());
        }

        #[test]
        fn coverage__agrees_with_a_map_of_bytes(
            start in 0i64..100, unit in prop::sample::select(vec![1u64, 8, 24]),
            runs in prop::collection::vec((0i64..300, 1u64..150, 0i64..90, 1u64..6, any::<bool>()), 0..12),
        ) {
            // Runs of whole units, some of them shifted by one byte.
            let size = 2000 * unit;
            let window = start..start + size as i64;
            let mut coverage = Coverage::new(window.clone());
            let mut map = vec![false; size as usize];
            let mut has_odd = false;
            for (at, len, more, count, is_odd) in runs {
                let (at, len, more) = (at * unit as i64, len * unit, more * unit as i64);
                let is_odd = is_odd && len % 5 == 0;
                has_odd |= is_odd;
                let offset = start + at + i64::from(is_odd);
                let run = StridedRun { offset, len, stride: len as i64 + more, count };
                coverage.add(&run);
                bytes_of(&[run]).iter().for_each(|at| map[(at - start) as usize] = true);
            }
            prop_assert_eq!(coverage.bytes() as usize, map.iter().filter(|is_set| **is_set).count());
            let bits = coverage.words.len() as u64 * 64;
            let grain = 1 << unit.trailing_zeros().min(MOST_SHIFT);
            prop_assert!(has_odd || bits <= size.div_ceil(grain).next_multiple_of(64));
            let (mut found, mut last) = (vec![false; size as usize], -1);
            coverage.for_each_stretch(|at, len| {
                assert!(at > last, "stretches are apart");
                last = at + len as i64;
                (at..last).for_each(|at| found[(at - start) as usize] = true);
            });
            prop_assert!(found == map);
        }
    }
}
