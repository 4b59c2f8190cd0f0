//! Unordered accesses that `FASTPATH_CHECK=1` detects in windows (MPI 5.0, section 12.7). Accesses of this process to
//! the same bytes of a target conflict, except two gets or two accumulates. Two accesses are unordered until a flush or
//! the end of the epoch completes the first. Operations also conflict in the bytes of a local buffer if one of the
//! operations writes these bytes ([`Uses`]). Accesses of other ranks are not detected.

use std::collections::BTreeMap;

/// Maximum number of ranges recorded of one target. Further accesses are not checked.
const RANGES_MOST: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    Put,
    Get,
    Accumulate,
}

/// Range of bytes from the key of the map up to `end`, and the call that accessed them.
struct AccessedRange {
    end: i64,
    call: String,
}

/// Incomplete accesses to one target. Ranges of one kind do not overlap.
#[derive(Default)]
pub struct Accesses {
    puts: BTreeMap<i64, AccessedRange>,
    gets: BTreeMap<i64, AccessedRange>,
    accumulates: BTreeMap<i64, AccessedRange>,
}

fn overlapping(ranges: &BTreeMap<i64, AccessedRange>, from: i64, end: i64) -> Option<&str> {
    let (_, last) = ranges.range(..end).next_back()?;
    (last.end > from).then_some(last.call.as_str())
}

impl Accesses {
    /// Returns the call of a recorded access, if any, that conflicts with an access to the bytes `from..end`.
    pub fn find(&self, kind: AccessKind, from: i64, end: i64) -> Option<&str> {
        if from >= end {
            return None;
        }
        let find = |ranges| overlapping(ranges, from, end);
        match kind {
            AccessKind::Put => {
                find(&self.puts).or_else(|| find(&self.gets)).or_else(|| find(&self.accumulates))
            }
            AccessKind::Get => find(&self.puts).or_else(|| find(&self.accumulates)),
            AccessKind::Accumulate => find(&self.puts).or_else(|| find(&self.gets)),
        }
    }

    pub fn add(&mut self, kind: AccessKind, from: i64, end: i64, call: &str) {
        let ranges = match kind {
            AccessKind::Put => &mut self.puts,
            AccessKind::Get => &mut self.gets,
            AccessKind::Accumulate => &mut self.accumulates,
        };
        insert(ranges, from, end, call);
    }
}

/// Adds a range, merged with the ranges that the new range overlaps.
fn insert(ranges: &mut BTreeMap<i64, AccessedRange>, from: i64, end: i64, call: &str) {
    if from >= end || ranges.len() >= RANGES_MOST {
        return;
    }
    let (mut from, mut end) = (from, end);
    while let Some((&start, last)) = ranges.range(..end).next_back() {
        if last.end <= from {
            break;
        }
        (from, end) = (from.min(start), end.max(last.end));
        ranges.remove(&start);
    }
    let call = call.to_string();
    ranges.insert(from, AccessedRange { end, call });
}

/// Local buffers used by incomplete operations, by address. Ranges of one kind do not overlap. Reads do not conflict
/// with each other (MPI 5.0, section 12.3).
#[derive(Default)]
pub struct Uses {
    reads: BTreeMap<i64, AccessedRange>,
    writes: BTreeMap<i64, AccessedRange>,
}

impl Uses {
    /// Returns the call of a recorded use that conflicts with a use of `from..end`, and whether the recorded use
    /// writes.
    pub fn find(&self, writes: bool, from: i64, end: i64) -> Option<(&str, bool)> {
        if from >= end {
            return None;
        }
        let written = overlapping(&self.writes, from, end).map(|call| (call, true));
        let read = || overlapping(&self.reads, from, end).map(|call| (call, false));
        if writes { written.or_else(read) } else { written }
    }

    pub fn add(&mut self, writes: bool, from: i64, end: i64, call: &str) {
        let ranges = if writes { &mut self.writes } else { &mut self.reads };
        insert(ranges, from, end, call);
    }

    pub fn add_all(&mut self, other: &Uses) {
        for (writes, ranges) in [(false, &other.reads), (true, &other.writes)] {
            for (&from, range) in ranges {
                self.add(writes, from, range.end, &range.call);
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::AccessKind::{Accumulate, Get, Put};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn find__tells_of_what_nothing_orders() {
        let mut accesses = Accesses::default();
        accesses.add(Put, 10, 20, "put");
        accesses.add(Get, 30, 40, "get");
        accesses.add(Accumulate, 50, 60, "accumulate");
        assert_eq!(accesses.find(Put, 19, 25), Some("put"));
        assert_eq!(accesses.find(Put, 20, 30), None);
        assert_eq!(accesses.find(Get, 0, 11), Some("put"));
        assert_eq!(accesses.find(Get, 25, 45), None);
        assert_eq!(accesses.find(Put, 39, 40), Some("get"));
        assert_eq!(accesses.find(Accumulate, 55, 56), None);
        assert_eq!(accesses.find(Accumulate, 35, 56), Some("get"));
        assert_eq!(accesses.find(Get, 0, 100), Some("put"));
        assert_eq!(accesses.find(Get, 45, 100), Some("accumulate"));
        assert_eq!(accesses.find(Put, 15, 15), None);
    }

    #[test]
    fn uses__conflict_where_one_of_them_writes() {
        let mut uses = Uses::default();
        uses.add(false, 10, 20, "put");
        uses.add(true, 30, 40, "get");
        assert_eq!(uses.find(false, 10, 20), None);
        assert_eq!(uses.find(true, 19, 25), Some(("put", false)));
        assert_eq!(uses.find(true, 20, 30), None);
        assert_eq!(uses.find(false, 0, 31), Some(("get", true)));
        assert_eq!(uses.find(true, 39, 50), Some(("get", true)));
        assert_eq!(uses.find(true, 0, 50), Some(("get", true)));
        assert_eq!(uses.find(true, 15, 15), None);
        let mut all = Uses::default();
        all.add_all(&uses);
        assert_eq!(all.find(true, 19, 25), Some(("put", false)));
        assert_eq!(all.find(false, 35, 36), Some(("get", true)));
    }

    proptest! {
        #[test]
        fn find__agrees_with_a_list(steps in prop::collection::vec((0..3_usize, 0..60_i64, 0..20_i64), 0..60)) {
            let mut accesses = Accesses::default();
            let mut list: Vec<(AccessKind, i64, i64)> = Vec::new();
            for (kind, from, len) in steps {
                let kind = [Put, Get, Accumulate][kind];
                let both = |other: AccessKind| !matches!((kind, other), (Get, Get) | (Accumulate, Accumulate));
                let conflict = list.iter().any(|&(other, start, end)| both(other) && start < from + len && from < end);
                prop_assert_eq!(accesses.find(kind, from, from + len).is_some(), conflict && len > 0);
                accesses.add(kind, from, from + len, "call");
                if len > 0 {
                    list.push((kind, from, from + len));
                }
            }
        }
    }
}
