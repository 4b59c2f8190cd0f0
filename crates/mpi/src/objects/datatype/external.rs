#![allow(unsafe_code)]
//! The portable form "external32" (MPI 5.0, section 14.5.2): big-endian, with fixed sizes and no gaps.

use super::packing::open_packed;
use super::predefined::{Basic, BasicKind};
use super::{Datatype, Result, TypeError};

/// Number of bytes converted at a time: a multiple of the largest basic type's size, and small enough for the stack.
const CHUNK: usize = 4096;

/// Conversion of one number between memory and the portable form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// Reverses the byte order.
    Turn,
    /// Changes the size of a signed integer.
    Signed,
    /// Changes the size of an unsigned integer or wide character.
    Unsigned,
    /// Converts the 80-bit float of x86 to binary128.
    Extended,
}

/// A number within a basic type, with its size in memory and in the portable form.
#[derive(Debug, Clone, Copy)]
struct Number {
    native: usize,
    portable: usize,
    change: Conversion,
}

impl Number {
    fn of(basic: Basic) -> Number {
        let size = basic.size as usize;
        let same = |native| Number { native, portable: native, change: Conversion::Turn };
        match (basic.kind, basic.name) {
            (_, "MPI_LONG") => Number { native: size, portable: 4, change: Conversion::Signed },
            (_, "MPI_UNSIGNED_LONG") => {
                Number { native: size, portable: 4, change: Conversion::Unsigned }
            }
            (_, "MPI_WCHAR") => Number { native: size, portable: 2, change: Conversion::Unsigned },
            (BasicKind::LongDouble | BasicKind::LongComplex, _) => Number {
                native: 16,
                portable: 16,
                change: if cfg!(target_arch = "x86_64") {
                    Conversion::Extended
                } else {
                    Conversion::Turn
                },
            },
            (BasicKind::Complex, _) => same(size / 2),
            _ => same(size),
        }
    }

    /// Fails if the value does not fit the portable form.
    fn export(self, from: &[u8], to: &mut [u8]) -> Result<()> {
        match self.change {
            Conversion::Turn => turn(from, to),
            Conversion::Signed => {
                let value = sign_extend(from);
                let cut = value as i32;
                if i64::from(cut) != value {
                    return Err(TypeError::NotPortable(value.to_string(), self.portable));
                }
                to.copy_from_slice(&cut.to_be_bytes());
            }
            Conversion::Unsigned => {
                let value = widen(from).to_be_bytes();
                let (high, low) = value.split_at(8 - self.portable);
                if high.iter().any(|byte| *byte != 0) {
                    return Err(TypeError::NotPortable(widen(from).to_string(), self.portable));
                }
                to.copy_from_slice(low);
            }
            Conversion::Extended => turn(&binary128_from_extended(from), to),
        }
        Ok(())
    }

    fn import(self, from: &[u8], to: &mut [u8]) {
        match self.change {
            Conversion::Turn => turn(from, to),
            Conversion::Signed | Conversion::Unsigned => {
                let negative = self.change == Conversion::Signed
                    && from.first().is_some_and(|byte| *byte & 0x80 != 0);
                to.fill(if negative { 0xFF } else { 0 });
                let length = from.len();
                turn(from, &mut to[..length]);
            }
            Conversion::Extended => {
                let mut wide = [0; 16];
                turn(from, &mut wide);
                to.copy_from_slice(&extended_from_binary128(wide));
            }
        }
    }
}

/// Converts between this machine's order (little-endian on all supported machines) and big-endian.
fn turn(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}

fn widen(from: &[u8]) -> u64 {
    from.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn sign_extend(from: &[u8]) -> i64 {
    let unused = 64 - 8 * from.len() as u32;
    (widen(from) as i64) << unused >> unused
}

/// Converts to binary128, which has an equal exponent but omits the leading bit of the significand.
fn binary128_from_extended(from: &[u8]) -> [u8; 16] {
    let significand = widen(&from[..8]);
    let head = widen(&from[8..10]);
    let fraction = u128::from(significand & (u64::MAX >> 1)) << 49;
    // A "pseudo-denormal" has exponent 0 and the leading bit set. The value is that of exponent 1.
    let head = if head & 0x7FFF == 0 && significand >> 63 == 1 { head | 1 } else { head };
    (u128::from(head) << 112 | fraction).to_le_bytes()
}

/// Converts from binary128. Rounds to nearest, ties to even.
fn extended_from_binary128(wide: [u8; 16]) -> [u8; 16] {
    let value = u128::from_le_bytes(wide);
    let mut head = (value >> 112) as u64;
    let fraction = value & ((1 << 112) - 1);
    let mut short = (fraction >> 49) as u64;
    let rest = fraction & ((1 << 49) - 1);
    let half = 1 << 48;
    let special = head & 0x7FFF == 0x7FFF;
    if special {
        // Infinity, or a NaN that must stay a NaN.
        short |= u64::from(fraction != 0) << 62;
    } else if rest > half || rest == half && short & 1 == 1 {
        short += 1;
        if short >> 63 == 1 {
            short = 0;
            head += 1;
        }
    }
    let leading = u64::from(head & 0x7FFF != 0) << 63;
    (u128::from(head) << 64 | u128::from(leading | short)).to_le_bytes()
}

/// Returns the numbers of a basic type in order: two for complex types and pairs, otherwise one.
fn numbers(basic: Basic) -> impl Iterator<Item = Number> {
    let (first, second) = match (basic.kind, basic.pair_parts()) {
        (_, Some((value, index))) => (Number::of(value), Some(Number::of(index))),
        (BasicKind::Complex | BasicKind::LongComplex, None) => {
            (Number::of(basic), Some(Number::of(basic)))
        }
        _ => (Number::of(basic), None),
    };
    std::iter::once(first).chain(second)
}

fn portable_size(basic: Basic) -> u64 {
    numbers(basic).map(|n| n.portable as u64).sum()
}

/// Returns the number of bytes of a chunk's portable form, which is no longer than the chunk.
fn portable_bytes(basic: Basic, length: usize) -> usize {
    length / basic.size as usize * portable_size(basic) as usize
}

impl Datatype {
    /// MPI_Pack_external_size: bytes of `count` elements in the portable form.
    pub fn external_size(&self, count: i64) -> Result<i64> {
        self.packed_bytes(count)?;
        let one = self.signature.measure(&portable_size).ok_or(TypeError::Overflow)?;
        let total = one.checked_mul(count as u64).ok_or(TypeError::Overflow)?;
        i64::try_from(total).map_err(|_| TypeError::Overflow)
    }

    /// Checks the arguments. Returns the packed buffer from `position` on, and the bytes of the portable form. Safety:
    /// `packed` is null or has `size` bytes.
    unsafe fn open_external(
        &self, buffer: *const u8, count: i64, packed: *const u8, size: i64, position: i64,
    ) -> Result<(*mut u8, usize)> {
        self.check_packing(buffer, count)?;
        let bytes = self.external_size(count)?;
        // SAFETY: `packed` is null or has `size` bytes, as the caller promises.
        let (start, room) = unsafe { open_packed(packed, size, position) }?;
        if bytes as u64 > room as u64 {
            return Err(TypeError::Truncated(bytes as u64, room as u64));
        }
        Ok((start, bytes as usize))
    }

    /// MPI_Pack_external with "external32"; returns the new position. Errors: wrong arguments, and an integer that does
    /// not fit the portable form.
    ///
    /// # Safety
    /// See [`Datatype::pack`].
    pub unsafe fn pack_external(
        &self, input: *const u8, count: i64, output: *mut u8, size: i64, position: i64,
    ) -> Result<i64> {
        // SAFETY: `output` is null or has `size` bytes, as the caller promises.
        let (start, bytes) = unsafe { self.open_external(input, count, output, size, position) }?;
        let mut out: &mut [u8] = match bytes {
            0 => &mut [],
            // SAFETY: `open_external` found `bytes` bytes at `start`, and the caller promises that they are writable.
            _ => unsafe { std::slice::from_raw_parts_mut(start, bytes) },
        };
        // SAFETY: the elements at `input` are readable and apart from `output`, as the caller promises.
        unsafe {
            self.export::<TypeError>(input, count as u64, &mut |chunk| {
                let (place, behind) = std::mem::take(&mut out).split_at_mut(chunk.len());
                place.copy_from_slice(chunk);
                out = behind;
                Ok(())
            })?;
        }
        Ok(position + bytes as i64)
    }

    /// Passes the portable form of `count` elements to `put`, in order and in small pieces. Errors: an integer that
    /// does not fit the portable form; errors of `put`. Safety: the elements at `input` must be readable.
    pub(crate) unsafe fn export<E: From<TypeError>>(
        &self, input: *const u8, count: u64,
        put: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (mut buffer, mut portable) = ([0u8; CHUNK], [0u8; CHUNK]);
        self.for_each_chunk(count, &mut |basic, from, length| {
            let native = &mut buffer[..length];
            // SAFETY: the elements are readable and apart from the buffer by the contract of this function.
            unsafe { self.layout.pack(input, count, from, native) };
            let mut native = &*native;
            let (chunk, _) = portable.split_at_mut(portable_bytes(basic, length));
            let mut out = &mut *chunk;
            while !native.is_empty() {
                for number in numbers(basic) {
                    let (value, rest) = native.split_at(number.native);
                    let (place, behind) = out.split_at_mut(number.portable);
                    number.export(value, place)?;
                    (native, out) = (rest, behind);
                }
            }
            put(chunk)
        })
    }

    /// MPI_Unpack_external with "external32"; returns the new position.
    ///
    /// # Safety
    /// See [`Datatype::unpack`].
    pub unsafe fn unpack_external(
        &self, input: *const u8, size: i64, position: i64, output: *mut u8, count: i64,
    ) -> Result<i64> {
        // SAFETY: `input` is null or has `size` bytes, as the caller promises.
        let (start, bytes) = unsafe { self.open_external(output, count, input, size, position) }?;
        let mut data: &[u8] = match bytes {
            0 => &[],
            // SAFETY: `open_external` found `bytes` bytes at `start`, and the caller promises that they are readable.
            _ => unsafe { std::slice::from_raw_parts(start, bytes) },
        };
        // SAFETY: the elements at `output` are writable and apart from `input`, as the caller promises.
        unsafe {
            self.import::<TypeError>(output, count as u64, &mut |chunk| {
                let (next, behind) = data.split_at(chunk.len());
                chunk.copy_from_slice(next);
                data = behind;
                Ok(next.len())
            })?;
        }
        Ok(position + bytes as i64)
    }

    /// Makes elements from their portable form, which `take` supplies in order and in small pieces. `take` returns the
    /// number of bytes supplied. If `take` supplies fewer bytes than requested, the data ends there; an incomplete
    /// number is ignored. Errors: those of `take`. Safety: the elements at `output` must be writable.
    pub(crate) unsafe fn import<E>(
        &self, output: *mut u8, count: u64,
        take: &mut dyn FnMut(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<(), E> {
        let (mut buffer, mut portable) = ([0u8; CHUNK], [0u8; CHUNK]);
        let mut is_over = false;
        self.for_each_chunk(count, &mut |basic, from, length| {
            if is_over {
                return Ok(());
            }
            let chunk = &mut portable[..portable_bytes(basic, length)];
            let given = take(chunk)?;
            is_over = given < chunk.len();
            let length = given / portable_size(basic) as usize * basic.size as usize;
            let native = &mut buffer[..length];
            let (mut data, mut left) = (&*chunk, &mut *native);
            while !left.is_empty() {
                for number in numbers(basic) {
                    let (value, rest) = data.split_at(number.portable);
                    let (place, behind) = left.split_at_mut(number.native);
                    number.import(value, place);
                    (data, left) = (rest, behind);
                }
            }
            // SAFETY: the elements are writable and apart from the buffer by the contract of this function.
            unsafe { self.layout.unpack(output, count, from, native) };
            Ok(())
        })
    }

    /// Calls `visit` for pieces of the packed form that hold one basic type. The arguments are the type, the start and
    /// the bytes of the piece, at most `CHUNK`.
    fn for_each_chunk<E>(
        &self, count: u64, visit: &mut dyn FnMut(Basic, u64, usize) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (mut from, mut outcome) = (0u64, Ok(()));
        let mut run = |basic: Basic, n: u64| {
            let size = u64::from(basic.size);
            let (mut left, most) = (n, CHUNK as u64 / size);
            while left > 0 && outcome.is_ok() {
                let now = left.min(most);
                outcome = visit(basic, from, (now * size) as usize);
                from += now * size;
                left -= now;
            }
        };
        match self.signature.uniform() {
            Some(basic) => run(basic, self.layout.size() / u64::from(basic.size) * count),
            None if self.layout.size() == 0 => {}
            None => (0..count).for_each(|_| self.signature.for_each_run(&mut run)),
        }
        outcome
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn number(handle: usize) -> Number {
        Number::of(Basic::from_handle(handle).unwrap())
    }

    #[test]
    fn long__takes_four_bytes_or_is_refused() {
        let mut out = [0; 4];
        number(522).export(&(-2i64).to_le_bytes(), &mut out).unwrap();
        assert_eq!(out, [0xFF, 0xFF, 0xFF, 0xFE]);
        let mut back = [0; 8];
        number(522).import(&out, &mut back);
        assert_eq!(i64::from_le_bytes(back), -2);
        assert!(number(522).export(&(1i64 << 31).to_le_bytes(), &mut out).is_err());
        number(526).export(&0xFFFF_FFFEu64.to_le_bytes(), &mut out).unwrap();
        number(526).import(&out, &mut back);
        assert_eq!(u64::from_le_bytes(back), 0xFFFF_FFFE);
        assert!(number(526).export(&(1u64 << 32).to_le_bytes(), &mut out).is_err());
        let mut wide = [0; 2];
        number(572).export(&0x20ACu32.to_le_bytes(), &mut wide).unwrap();
        assert_eq!(wide, [0x20, 0xAC]);
    }

    fn extended(head: u16, significand: u64) -> [u8; 16] {
        (u128::from(head) << 64 | u128::from(significand)).to_le_bytes()
    }

    #[test]
    fn extended__becomes_binary128_and_back() {
        let one = binary128_from_extended(&extended(0x3FFF, 1 << 63));
        assert_eq!(u128::from_le_bytes(one), 0x3FFF << 112);
        let three_halves = binary128_from_extended(&extended(0xBFFF, 3 << 62));
        assert_eq!(u128::from_le_bytes(three_halves), 0xBFFF << 112 | 1 << 111);
        for value in [
            extended(0x3FFF, 1 << 63),
            extended(0xC123, 0xFEDC_BA98_7654_3210),
            extended(0, 0),
            extended(0x8000, 0),
            extended(0, 12345),
            extended(0x7FFF, 1 << 63),
            extended(0x7FFF, 3 << 62),
            extended(0x7FFE, u64::MAX),
        ] {
            assert_eq!(extended_from_binary128(binary128_from_extended(&value)), value);
        }
    }

    #[test]
    fn binary128__is_rounded_to_nearest_even() {
        let wide = |head: u128, fraction: u128| (head << 112 | fraction).to_le_bytes();
        let half = 1u128 << 48;
        let rounded = |fraction| extended_from_binary128(wide(0x3FFF, fraction));
        assert_eq!(rounded(half), extended(0x3FFF, 1 << 63));
        assert_eq!(rounded(half + 1), extended(0x3FFF, (1 << 63) + 1));
        assert_eq!(rounded((1 << 49) + half), extended(0x3FFF, (1 << 63) + 2));
        assert_eq!(rounded((1 << 112) - 1), extended(0x4000, 1 << 63));
        let nan = extended_from_binary128(wide(0x7FFF, 1));
        assert_eq!(nan, extended(0x7FFF, 3 << 62));
    }
}
