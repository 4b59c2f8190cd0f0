//! Memory that this process exposes.
#![allow(unsafe_code)]

use super::ask::ChangeFunction;
use super::key::PackedKey;
use super::numbered::NumberedList;
use fastpath_base::copy::copy;
use fastpath_base::layout::ByteStream;
use fastpath_base::maps::{self, MapsEntry};
use fastpath_transport::remote::Registration;
use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Id of exposed memory at its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub(crate) u64);

/// Exposed memory.
#[derive(Debug, Clone, Copy)]
pub struct ExposedMemory {
    /// Id to be passed to [`Worker::withdraw_memory`].
    pub id: RegionId,
    /// Key for peers.
    pub key: PackedKey,
}

pub(crate) struct Region {
    pub base: *mut u8,
    pub len: u64,
    /// Whether this process may write the memory; a window may be read-only. `None` until a peer first writes.
    pub is_writable: Cell<Option<bool>>,
    /// Functions that move the bytes, if the processor cannot touch them.
    pub stream: Option<Arc<dyn ByteStream>>,
    /// Registration with the adapter.
    pub _registration: Option<Registration>,
}

/// Bytes of a region.
pub(crate) struct RegionBytes {
    at: *mut u8,
    /// Stream of the region, and the offset of the bytes.
    stream: Option<(Arc<dyn ByteStream>, u64)>,
}

impl RegionBytes {
    /// Returns the address; `None` if the processor cannot touch the bytes.
    pub fn address(&self) -> Option<*mut u8> {
        self.stream.is_none().then_some(self.at)
    }

    /// Copies the first `len` bytes to `to`. Returns false if the bytes cannot be copied.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes. The region's owner keeps the memory mapped.
    pub unsafe fn read(&self, to: *mut u8, len: usize) -> bool {
        // SAFETY: the bytes are inside the region, and `to` is writable by contract.
        unsafe {
            match &self.stream {
                None => copy(to, self.at, len),
                Some((stream, from)) => return stream.read(*from, to, len),
            }
        }
        true
    }

    /// Copies `len` bytes from `from` to the first bytes. Returns false if the bytes cannot be copied.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes. The region's owner keeps the memory mapped.
    pub unsafe fn write(&self, from: *const u8, len: usize) -> bool {
        // SAFETY: the bytes are inside the region, and `from` is readable by contract.
        unsafe {
            match &self.stream {
                None => copy(self.at, from, len),
                Some((stream, at)) => return stream.write(*at, from, len),
            }
        }
        true
    }

    /// Performs a change of the first `len` bytes. Returns false if the change is unknown or the bytes cannot be
    /// copied.
    ///
    /// # Safety
    /// The contract of `make` holds for `data`, and for memory of `len` bytes. The region's owner keeps the memory
    /// mapped.
    pub unsafe fn change(
        &self, make: ChangeFunction, change: u64, data: *mut u8, len: usize,
    ) -> bool {
        // SAFETY: this function's contract. The copy has `len` bytes, aligned for every basic datatype.
        unsafe {
            let Some(_) = &self.stream else {
                return make(change, data, self.at, len);
            };
            let mut copied = vec![0_u128; len.div_ceil(size_of::<u128>())];
            let memory = copied.as_mut_ptr().cast::<u8>();
            self.read(memory, len) && make(change, data, memory, len) && self.write(memory, len)
        }
    }
}

/// Returns whether the process may write all mapped parts of a range. True if `/proc` is not available.
fn may_write(range: &Range<usize>) -> bool {
    let mut may = true;
    let visited = maps::visit(|mapping| {
        may &= !forbids(&mapping, range);
        match may && mapping.range.end < range.end {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    visited.is_err() || may
}

fn forbids(mapping: &MapsEntry, range: &Range<usize>) -> bool {
    !mapping.is_writable && mapping.range.start < range.end && range.start < mapping.range.end
}

impl NumberedList<Region> {
    /// Returns `len` bytes at `offset` of a region. `None` if they are not all inside one region.
    pub fn locate(&self, id: u64, offset: u64, len: u64) -> Option<RegionBytes> {
        self.find(id)?.bytes(offset, len)
    }

    /// Returns bytes to be written. `None` also if this process may not write them.
    pub fn locate_to_write(&self, id: u64, offset: u64, len: u64) -> Option<RegionBytes> {
        self.find_to_write(id)?.bytes(offset, len)
    }

    /// Returns a region that this process may write.
    pub fn find_to_write(&self, id: u64) -> Option<&Region> {
        self.find(id).filter(|region| region.may_be_written())
    }
}

impl Region {
    /// Returns `len` bytes at `offset`; `None` if they are not all inside.
    pub fn bytes(&self, offset: u64, len: u64) -> Option<RegionBytes> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then(|| RegionBytes {
            at: self.base.wrapping_add(offset as usize),
            stream: self.stream.clone().map(|stream| (stream, offset)),
        })
    }

    fn may_be_written(&self) -> bool {
        let is_writable = self.is_writable.get().unwrap_or_else(|| {
            let start = self.base.addr();
            may_write(&(start..start.saturating_add(self.len as usize)))
        });
        self.is_writable.set(Some(is_writable));
        is_writable
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn region(len: u64) -> Region {
        Region {
            base: std::ptr::without_provenance_mut(4096),
            len,
            is_writable: Cell::new(None),
            stream: None,
            _registration: None,
        }
    }

    #[test]
    fn memory__that_is_only_read_is_not_written() {
        let (data, text) = ([1_u8; 100], "of the program's constants");
        let of = |at: *const u8, len: usize| at.addr()..at.addr() + len;
        assert!(may_write(&of(data.as_ptr(), 100)));
        assert!(!may_write(&of(text.as_ptr(), text.len())));
        let mut mapping = MapsEntry {
            range: 0x7f00_0000_1000..0x7f00_0000_3000,
            is_writable: false,
            is_own: false,
        };
        for (range, forbidden) in
            [(0x1fff..0x2001, true), (0..0x1000, false), (0x3000..0x4000, false)]
        {
            let range = 0x7f00_0000_0000 + range.start..0x7f00_0000_0000 + range.end;
            mapping.is_writable = false;
            assert_eq!(forbids(&mapping, &range), forbidden, "{range:?}");
            mapping.is_writable = true;
            assert!(!forbids(&mapping, &range));
        }
    }

    #[test]
    fn locate__finds_what_is_inside_of_a_region_that_is_there() {
        let mut regions = NumberedList::default();
        let [first, second] = [100, 0].map(|len| regions.insert(region(len)));
        let at = |regions: &NumberedList<Region>, id, offset, len| {
            regions.locate(id, offset, len).map(|p| p.at.addr())
        };
        assert_eq!(at(&regions, first, 40, 60), Some(4136));
        assert_eq!(at(&regions, first, 100, 0), Some(4196));
        for (offset, len) in
            [(40, 61), (101, 0), (u64::MAX, 1), (0, u64::MAX), (u64::MAX, u64::MAX)]
        {
            assert_eq!(at(&regions, first, offset, len), None, "{offset} {len}");
        }
        assert_eq!((at(&regions, second, 0, 0), at(&regions, second, 0, 1)), (Some(4096), None));
        assert!(regions.remove_if(first, |_| true).is_some());
        assert_eq!(at(&regions, first, 0, 1), None);
    }

    #[derive(Debug)]
    struct StoredBytes(std::sync::Mutex<[u8; 32]>);

    impl ByteStream for StoredBytes {
        unsafe fn read(&self, from: u64, out: *mut u8, len: usize) -> bool {
            let bytes = self.0.lock().unwrap();
            // SAFETY: `out` has `len` bytes by contract; the slice checks the range.
            unsafe { out.copy_from(bytes[from as usize..][..len].as_ptr(), len) };
            true
        }

        unsafe fn write(&self, at: u64, data: *const u8, len: usize) -> bool {
            // A driver that cannot write some bytes.
            if at >= 24 {
                return false;
            }
            let mut bytes = self.0.lock().unwrap();
            // SAFETY: `data` has `len` bytes by contract; the slice checks the range.
            unsafe { bytes[at as usize..][..len].as_mut_ptr().copy_from(data, len) };
            true
        }
    }

    /// Adds the first byte of the data to each byte of the memory.
    unsafe fn add(change: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool {
        for at in 0..len {
            // SAFETY: `data` has a byte and `memory` has `len` bytes.
            unsafe { *memory.add(at) += *data };
        }
        change == 1
    }

    #[test]
    fn region_of_a_stream__moves_and_changes_bytes_without_an_address() {
        let stream = Arc::new(StoredBytes(std::sync::Mutex::new([5; 32])));
        let whole = Region { stream: Some(stream.clone()), ..region(32) };
        assert!(whole.bytes(30, 3).is_none());
        let (bytes, last) = (whole.bytes(8, 4).unwrap(), whole.bytes(24, 4).unwrap());
        assert_eq!(bytes.address(), None);
        let (mut data, mut read) = ([1, 2, 3, 4], [0; 4]);
        // SAFETY: the arrays have four bytes.
        unsafe {
            assert!(bytes.write(data.as_ptr(), 4) && bytes.read(read.as_mut_ptr(), 4));
            assert_eq!(read, data);
            assert!(bytes.change(add, 1, data.as_mut_ptr(), 4));
            assert!(!bytes.change(add, 2, data.as_mut_ptr(), 4), "an unknown change");
            assert!(!last.write(data.as_ptr(), 4) && !last.change(add, 1, data.as_mut_ptr(), 4));
        }
        assert_eq!(stream.0.lock().unwrap()[7..13], [5, 2, 3, 4, 5, 5]);
    }
}
