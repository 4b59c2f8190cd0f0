//! Lower and upper bounds of a type map (MPI 5.0, section 5.1.6 and 5.1.7).

use super::LayoutError;
use super::LayoutError::Overflow;

/// What is known of a type map's bounds. Ranges are (first byte, byte behind the last), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Range of the data; none for an empty type.
    pub data: Option<(i64, i64)>,
    /// Range that the bound markers set; they outweigh the data.
    pub marks: Option<(i64, i64)>,
    /// Largest alignment of a basic type.
    pub align: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            data: None,
            marks: None,
            align: 1,
        }
    }
}

impl Bounds {
    pub fn basic(size: u32, align: u32) -> Bounds {
        Bounds {
            data: (size > 0).then_some((0, size.into())),
            marks: None,
            align: align.max(1),
        }
    }

    /// `count` copies, `stride` apart.
    pub fn repeat(self, count: u64, stride: i64) -> Result<Bounds, LayoutError> {
        let Some(steps) = count.checked_sub(1) else {
            return Ok(Bounds::default());
        };
        if self.data.is_none() && self.marks.is_none() {
            return Ok(self);
        }
        let last = i64::try_from(steps)
            .ok()
            .and_then(|s| s.checked_mul(stride))
            .ok_or(Overflow)?;
        Ok(self.union(self.shift(last)?))
    }

    pub fn shift(self, by: i64) -> Result<Bounds, LayoutError> {
        let moved = |range: Option<(i64, i64)>| match range {
            None => Ok(None),
            Some((low, high)) => match (low.checked_add(by), high.checked_add(by)) {
                (Some(low), Some(high)) => Ok(Some((low, high))),
                _ => Err(Overflow),
            },
        };
        Ok(Bounds {
            data: moved(self.data)?,
            marks: moved(self.marks)?,
            align: self.align,
        })
    }

    pub fn union(self, other: Bounds) -> Bounds {
        let join = |a: Option<(i64, i64)>, b: Option<(i64, i64)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Bounds {
            data: join(self.data, other.data),
            marks: join(self.marks, other.marks),
            align: self.align.max(other.align),
        }
    }

    pub fn with_marks(self, lb: i64, ub: i64) -> Bounds {
        Bounds {
            marks: Some((lb, ub)),
            ..self
        }
    }

    /// Lower bound and extent. Without markers the extent is rounded up to the alignment, as the standard's epsilon
    /// says, so that an array of the type keeps its elements aligned.
    pub fn resolve(self) -> Result<(i64, i64), LayoutError> {
        if let Some((lb, ub)) = self.marks {
            return Ok((lb, ub.checked_sub(lb).ok_or(Overflow)?));
        }
        let Some((low, high)) = self.data else {
            return Ok((0, 0));
        };
        let length = high.checked_sub(low).ok_or(Overflow)?;
        let align = i64::from(self.align);
        let rest = length % align;
        let extent = if rest == 0 {
            length
        } else {
            length.checked_add(align - rest).ok_or(Overflow)?
        };
        Ok((low, extent))
    }
}
