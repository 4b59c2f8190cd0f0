//! Lower and upper bounds of a type map (MPI 5.0, sections 5.1.6 and 5.1.7).

use super::LayoutError;
use super::LayoutError::Overflow;

type Range = (i64, i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Range of the data; `None` for an empty type.
    pub data: Option<Range>,
    /// Lower and upper bound; `None` for an empty type without bound markers. The upper bound of a part includes the
    /// part's padding, so a type never ends before its last part.
    pub outer: Option<Range>,
    /// Whether markers set `outer`. Markers override the bounds of parts without markers.
    pub marked: bool,
    /// Largest alignment of a basic type.
    pub align: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { data: None, outer: None, marked: false, align: 1 }
    }
}

impl Bounds {
    pub fn basic(size: u32, align: u32) -> Bounds {
        let data = (size > 0).then_some((0, size.into()));
        Bounds { data, outer: data, marked: false, align: align.max(1) }
    }

    /// Bounds of `count` copies, `stride` bytes apart.
    pub fn repeat(self, count: u64, stride: i64) -> Result<Bounds, LayoutError> {
        let Some(steps) = count.checked_sub(1) else {
            return Ok(Bounds::default());
        };
        if self.outer.is_none() {
            return Ok(self);
        }
        let last = i64::try_from(steps).ok().and_then(|s| s.checked_mul(stride)).ok_or(Overflow)?;
        Ok(self.union(self.shift(last)?))
    }

    pub fn shift(self, by: i64) -> Result<Bounds, LayoutError> {
        let moved = |range: Option<Range>| match range {
            None => Ok(None),
            Some((low, high)) => match (low.checked_add(by), high.checked_add(by)) {
                (Some(low), Some(high)) => Ok(Some((low, high))),
                _ => Err(Overflow),
            },
        };
        Ok(Bounds { data: moved(self.data)?, outer: moved(self.outer)?, ..self })
    }

    pub fn union(self, other: Bounds) -> Bounds {
        let join = |a: Option<Range>, b: Option<Range>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        let outer = match (self.marked, other.marked) {
            (true, false) => self.outer,
            (false, true) => other.outer,
            _ => join(self.outer, other.outer),
        };
        Bounds {
            data: join(self.data, other.data),
            outer,
            marked: self.marked || other.marked,
            align: self.align.max(other.align),
        }
    }

    pub fn with_marks(self, lb: i64, ub: i64) -> Bounds {
        Bounds { outer: Some((lb, ub)), marked: true, ..self }
    }

    /// Adds the padding of a whole type: without markers, the extent is rounded up to the alignment (epsilon of the
    /// standard). Elements of an array of the type are then aligned.
    pub fn pad(self) -> Result<Bounds, LayoutError> {
        let (Some((low, high)), false) = (self.outer, self.marked) else {
            return Ok(self);
        };
        let length = high.checked_sub(low).ok_or(Overflow)?;
        let align = i64::from(self.align);
        let padding = (align - length % align) % align;
        let high = high.checked_add(padding).ok_or(Overflow)?;
        Ok(Bounds { outer: Some((low, high)), ..self })
    }

    /// Returns lower bound and extent.
    pub fn resolve(self) -> Result<(i64, i64), LayoutError> {
        let (low, high) = self.outer.unwrap_or((0, 0));
        Ok((low, high.checked_sub(low).ok_or(Overflow)?))
    }
}
