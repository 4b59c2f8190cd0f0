//! Named datatypes of the MPI 5.0 ABI (Appendix A) with their sizes on 64-bit Linux (x86-64 and AArch64).

use fastpath_protocol::layout::{Layout, LayoutError, StructPart};

/// Content of a basic type, by which reductions are chosen (MPI 5.0, section 6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BasicKind {
    /// Signed integer, C or Fortran.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// IEEE binary floating point, except `long double`.
    Float,
    /// The C compiler's `long double`: 80 bits in 16 bytes on x86-64, IEEE binary128 on AArch64.
    LongDouble,
    /// Two floats of half the size.
    Complex,
    /// Two `long double`.
    LongComplex,
    /// C or C++ bool, or Fortran LOGICAL.
    Logical,
    /// A printable character, without arithmetic.
    Character,
    /// MPI_AINT, MPI_COUNT, MPI_OFFSET: integers of both languages.
    Address,
    /// MPI_BYTE.
    Byte,
    /// MPI_PACKED.
    Packed,
    /// A value followed by an index, for MINLOC and MAXLOC.
    Pair,
}

/// Row of the table of named datatypes.
#[derive(Debug)]
pub struct NamedDatatype {
    /// The ABI's handle value.
    pub handle: u16,
    /// Default name.
    pub name: &'static str,
    /// Data bytes; 0 if this library does not support the type.
    pub size: u32,
    /// Alignment in C.
    pub align: u32,
    /// Content of the type.
    pub kind: BasicKind,
    /// Handles of value and index of a pair; `None` for other types.
    pub pair: Option<(u16, u16)>,
}

/// Named datatype, a reference to its row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Basic(&'static NamedDatatype);

// Rows compare by handle, because each handle has one row.
impl PartialEq for NamedDatatype {
    fn eq(&self, other: &NamedDatatype) -> bool {
        self.handle == other.handle
    }
}
impl Eq for NamedDatatype {}
impl std::hash::Hash for NamedDatatype {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.handle.hash(state);
    }
}

impl std::fmt::Debug for Basic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

impl std::ops::Deref for Basic {
    type Target = NamedDatatype;
    fn deref(&self) -> &NamedDatatype {
        self.0
    }
}

impl Basic {
    /// Finds the row of a handle.
    pub fn from_handle(handle: usize) -> Option<Basic> {
        let handle = u16::try_from(handle).ok()?;
        TABLE
            .binary_search_by_key(&handle, |row| row.handle)
            .ok()
            .and_then(|i| TABLE.get(i))
            .map(Basic)
    }

    /// Returns all rows in the order of their handles.
    pub fn all() -> impl Iterator<Item = Basic> {
        TABLE.iter().map(Basic)
    }

    /// Returns whether data of this type can be moved. An unsupported type has size MPI_UNDEFINED.
    pub fn is_supported(self) -> bool {
        self.size > 0
    }

    /// Returns value and index of a pair.
    pub fn pair_parts(self) -> Option<(Basic, Basic)> {
        let (value, index) = self.pair?;
        Some((Basic::from_handle(value.into())?, Basic::from_handle(index.into())?))
    }

    /// Number of basic elements that MPI_Get_elements counts: 2 for a pair, which is a structure of two.
    pub fn elements(self) -> u64 {
        if self.pair.is_some() { 2 } else { 1 }
    }

    /// Returns the layout. A pair is laid out as the C structure of its parts.
    pub fn layout(self) -> Result<Layout, LayoutError> {
        let Some((value, index)) = self.pair_parts() else {
            return Ok(Layout::basic(self.size, self.align));
        };
        let (first, second) =
            (Layout::basic(value.size, value.align), Layout::basic(index.size, index.align));
        let at = i64::from(value.size.next_multiple_of(index.align));
        Layout::structure([
            StructPart { layout: &first, count: 1, displacement: 0 },
            StructPart { layout: &second, count: 1, displacement: at },
        ])
    }
}

const fn row(handle: u16, name: &'static str, size: u32, kind: BasicKind) -> NamedDatatype {
    let align = match kind {
        BasicKind::Complex | BasicKind::LongComplex => size / 2,
        _ => size,
    };
    NamedDatatype {
        handle,
        name,
        size,
        align: if align == 0 { 1 } else { align },
        kind,
        pair: None,
    }
}

const fn pair(handle: u16, name: &'static str, size: u32, value: u16, index: u16) -> NamedDatatype {
    NamedDatatype {
        handle,
        name,
        size,
        align: 1,
        kind: BasicKind::Pair,
        pair: Some((value, index)),
    }
}

use BasicKind::*;

/// Named datatypes, sorted by handle. Sizes of Fortran's default kinds are those of the usual compilers without options
/// that change them: INTEGER, REAL and LOGICAL of 4 bytes, DOUBLE PRECISION of 8. No usual compiler has REAL*2.
static TABLE: [NamedDatatype; 70] = [
    row(513, "MPI_AINT", 8, Address),
    row(514, "MPI_COUNT", 8, Address),
    row(515, "MPI_OFFSET", 8, Address),
    row(519, "MPI_PACKED", 1, Packed),
    row(520, "MPI_SHORT", 2, Signed),
    row(521, "MPI_INT", 4, Signed),
    row(522, "MPI_LONG", 8, Signed),
    row(523, "MPI_LONG_LONG_INT", 8, Signed),
    row(524, "MPI_UNSIGNED_SHORT", 2, Unsigned),
    row(525, "MPI_UNSIGNED", 4, Unsigned),
    row(526, "MPI_UNSIGNED_LONG", 8, Unsigned),
    row(527, "MPI_UNSIGNED_LONG_LONG", 8, Unsigned),
    row(528, "MPI_FLOAT", 4, Float),
    row(530, "MPI_C_COMPLEX", 8, Complex),
    row(531, "MPI_CXX_FLOAT_COMPLEX", 8, Complex),
    row(532, "MPI_DOUBLE", 8, Float),
    row(534, "MPI_C_DOUBLE_COMPLEX", 16, Complex),
    row(535, "MPI_CXX_DOUBLE_COMPLEX", 16, Complex),
    row(536, "MPI_LOGICAL", 4, Logical),
    row(537, "MPI_INTEGER", 4, Signed),
    row(538, "MPI_REAL", 4, Float),
    row(539, "MPI_COMPLEX", 8, Complex),
    row(540, "MPI_DOUBLE_PRECISION", 8, Float),
    row(541, "MPI_DOUBLE_COMPLEX", 16, Complex),
    row(542, "MPI_CHARACTER", 1, Character),
    row(544, "MPI_LONG_DOUBLE", 16, LongDouble),
    row(548, "MPI_C_LONG_DOUBLE_COMPLEX", 32, LongComplex),
    row(549, "MPI_CXX_LONG_DOUBLE_COMPLEX", 32, LongComplex),
    pair(552, "MPI_FLOAT_INT", 8, 528, 521),
    pair(553, "MPI_DOUBLE_INT", 12, 532, 521),
    pair(554, "MPI_LONG_INT", 12, 522, 521),
    pair(555, "MPI_2INT", 8, 521, 521),
    pair(556, "MPI_SHORT_INT", 6, 520, 521),
    pair(557, "MPI_LONG_DOUBLE_INT", 20, 544, 521),
    pair(560, "MPI_2REAL", 8, 538, 538),
    pair(561, "MPI_2DOUBLE_PRECISION", 16, 540, 540),
    pair(562, "MPI_2INTEGER", 8, 537, 537),
    row(568, "MPI_C_BOOL", 1, Logical),
    row(569, "MPI_CXX_BOOL", 1, Logical),
    row(572, "MPI_WCHAR", 4, Character),
    row(576, "MPI_INT8_T", 1, Signed),
    row(577, "MPI_UINT8_T", 1, Unsigned),
    row(579, "MPI_CHAR", 1, Character),
    row(580, "MPI_SIGNED_CHAR", 1, Signed),
    row(581, "MPI_UNSIGNED_CHAR", 1, Unsigned),
    row(583, "MPI_BYTE", 1, Byte),
    row(584, "MPI_INT16_T", 2, Signed),
    row(585, "MPI_UINT16_T", 2, Unsigned),
    row(592, "MPI_INT32_T", 4, Signed),
    row(593, "MPI_UINT32_T", 4, Unsigned),
    row(600, "MPI_INT64_T", 8, Signed),
    row(601, "MPI_UINT64_T", 8, Unsigned),
    row(704, "MPI_LOGICAL1", 1, Logical),
    row(705, "MPI_INTEGER1", 1, Signed),
    row(712, "MPI_LOGICAL2", 2, Logical),
    row(713, "MPI_INTEGER2", 2, Signed),
    row(714, "MPI_REAL2", 0, Float),
    row(720, "MPI_LOGICAL4", 4, Logical),
    row(721, "MPI_INTEGER4", 4, Signed),
    row(722, "MPI_REAL4", 4, Float),
    row(723, "MPI_COMPLEX4", 0, Complex),
    row(728, "MPI_LOGICAL8", 8, Logical),
    row(729, "MPI_INTEGER8", 8, Signed),
    row(730, "MPI_REAL8", 8, Float),
    row(731, "MPI_COMPLEX8", 8, Complex),
    row(736, "MPI_LOGICAL16", 16, Logical),
    row(737, "MPI_INTEGER16", 16, Signed),
    row(738, "MPI_REAL16", 16, Float),
    row(739, "MPI_COMPLEX16", 16, Complex),
    row(747, "MPI_COMPLEX32", 32, Complex),
];

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn table__is_sorted_and_found_by_handle() {
        assert!(TABLE.windows(2).all(|w| w[0].handle < w[1].handle));
        for row in Basic::all() {
            assert_eq!(Basic::from_handle(row.handle.into()).unwrap().name, row.name);
        }
        for other in [0, 512, 516, 529, 1 << 30, usize::MAX] {
            assert!(Basic::from_handle(other).is_none());
        }
    }

    #[test]
    fn size__agrees_with_handle_encoding() {
        // If bit 6 of the handle is set, bits 3 to 5 are the logarithm of the size.
        let mut seen = 0;
        for row in Basic::all().filter(|row| row.handle & 0x40 != 0 && row.is_supported()) {
            assert_eq!(row.size, 1 << (row.handle >> 3 & 7), "{}", row.name);
            seen += 1;
        }
        assert_eq!(seen, 28);
    }

    #[test]
    fn c_types__have_the_compilers_sizes() {
        use std::ffi::*;
        let sizes = [
            (520, size_of::<c_short>()),
            (521, size_of::<c_int>()),
            (522, size_of::<c_long>()),
            (523, size_of::<c_longlong>()),
            (513, size_of::<isize>()),
            (572, size_of::<libc::wchar_t>()),
            (544, size_of::<libc::max_align_t>() / 2),
        ];
        for (handle, size) in sizes {
            assert_eq!(Basic::from_handle(handle).unwrap().size as usize, size);
        }
    }

    #[test]
    fn pair__is_laid_out_as_the_c_structure() {
        #[repr(C)]
        struct ShortInt(i16, i32);
        #[repr(C)]
        struct DoubleInt(f64, i32);
        let at = |handle| Basic::from_handle(handle).unwrap();
        for (handle, extent, second) in [
            (556, size_of::<ShortInt>(), std::mem::offset_of!(ShortInt, 1)),
            (553, size_of::<DoubleInt>(), std::mem::offset_of!(DoubleInt, 1)),
            (554, 16, 8),
            (557, 32, 16),
            (552, 8, 4),
            (555, 8, 4),
        ] {
            let layout = at(handle).layout().unwrap();
            assert_eq!(layout.extent(), extent as i64, "{:?}", at(handle));
            assert_eq!(layout.size(), u64::from(at(handle).size));
            assert_eq!(layout.true_extent(), second as i64 + 4);
            assert_eq!(layout.is_contiguous(), layout.size() == extent as u64);
        }
    }
}
