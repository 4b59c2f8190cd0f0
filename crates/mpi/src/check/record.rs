//! Record of a call: the data that ranks exchange to compare their calls.
#![allow(unsafe_code)]

use super::name_call;
use crate::common::consts::MPI_PACKED;
use crate::objects::datatype::{Basic, Datatype, Digest};
use fastpath_base::tell::escape;

pub(crate) const RECORD_BYTES: u64 = size_of::<Record>() as u64;

/// First word of each record. A message without it comes from a process with `FASTPATH_CHECK` off.
const MAGIC: u64 = u64::from_le_bytes(*b"FPCHECK1");

/// Value of [`Record::basic`] if the rank has no data to send or receive.
const NO_DATA: u32 = u32::MAX;

/// Wire format of a call and the signature of its data. Any bytes are valid, since other processes are not trusted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    magic: u64,
    digest: u64,
    elements: u64,
    /// Handle of the data's basic type; 0 if there are several or none.
    basic: u32,
    /// Root of a collective call; -1 without one.
    pub(crate) root: i32,
    /// Handle of a collective call's predefined operation; 0 for a user's operation, or without one.
    pub(crate) op: u32,
    /// Not 0 if the rank refuses its own arguments and does not take part in the call.
    refused: u32,
    call: [u8; 32],
    place: [u8; 56],
}

const _: () = assert!(size_of::<Record>() == 128);

impl Record {
    pub(crate) const NONE: Record = Record {
        magic: 0,
        digest: 0,
        elements: 0,
        basic: 0,
        root: 0,
        op: 0,
        refused: 0,
        call: [0; 32],
        place: [0; 56],
    };

    pub(crate) fn of_call(call: &str, place: &str) -> Record {
        let mut record = Record { magic: MAGIC, basic: NO_DATA, root: -1, ..Record::NONE };
        put(&mut record.call, call);
        put(&mut record.place, place);
        record
    }

    #[must_use]
    pub(crate) fn with_data(self, datatype: &Datatype, count: u64) -> Record {
        let signature = datatype.signature();
        let digest = signature.digest(count);
        Record {
            digest: digest.value,
            elements: digest.elements,
            basic: signature.uniform().map_or(0, |basic| basic.handle.into()),
            ..self
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the slice has the size of a record, which has no padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Record>()) }
    }

    pub(crate) fn of_refused(call: &str, place: &str) -> Record {
        Record { refused: 1, ..Record::of_call(call, place) }
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused != 0
    }

    /// Parses the record at the beginning of a message; `None` without one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
        let bytes = bytes.get(..size_of::<Record>())?;
        // SAFETY: `bytes` has the size of a record, and any bytes are a valid record.
        let record = unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() };
        record.is_valid().then_some(record)
    }

    /// Returns whether the record comes from a process with checks.
    pub(crate) fn is_valid(&self) -> bool {
        self.magic == MAGIC
    }

    pub(crate) fn title(&self) -> String {
        name_call(&self.call(), &get(&self.place))
    }

    pub(crate) fn call(&self) -> String {
        get(&self.call)
    }

    /// Returns whether both signatures are equal, or one side has no data or packed data.
    pub(crate) fn has_same_data(&self, other: &Record) -> bool {
        let has_any = |record: &Record| record.basic != NO_DATA && !record.is_packed();
        !has_any(self)
            || !has_any(other)
            || (self.digest, self.elements) == (other.digest, other.elements)
    }

    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// Returns whether a datatype with `digest` may receive the data. Packed data matches any (MPI-5.0 section 3.3.1).
    pub(crate) fn agrees_with(&self, digest: Digest) -> bool {
        self.is_packed() || (self.digest, self.elements) == (digest.value, digest.elements)
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.basic as usize == MPI_PACKED
    }

    pub(crate) fn describe_data(&self) -> String {
        describe_data(self.elements, Basic::from_handle(self.basic as usize))
    }
}

/// Describes data as in `10 MPI_INT`, or by the number of elements if there are several types.
pub(crate) fn describe_data(elements: u64, basic: Option<Basic>) -> String {
    match basic {
        Some(basic) => format!("{} {}", elements / basic.elements(), basic.name),
        None if elements == 0 => "no data".to_string(),
        None => format!("{elements} elements of several types"),
    }
}

/// Stores the last bytes of `text` that fit, because the end of a call site is the most specific part.
fn put(to: &mut [u8], text: &str) {
    let from = &text.as_bytes()[text.len().saturating_sub(to.len())..];
    to[..from.len()].copy_from_slice(from);
}

/// Returns the text of a field, with control characters escaped.
fn get(from: &[u8]) -> String {
    let end = from.iter().position(|&b| b == 0).unwrap_or(from.len());
    let text = String::from_utf8_lossy(&from[..end]);
    escape(&text).into_owned()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__takes_no_other_bytes_for_a_record() {
        assert!(Record::parse(&[0; 128]).is_none());
        assert!(Record::parse(b"FPCHECK1").is_none());
        let mut bytes = [0xff; 128];
        bytes[..8].copy_from_slice(b"FPCHECK1");
        let record = Record::parse(&bytes).expect("its first bytes are right");
        assert!(record.has_same_data(&Record::NONE));
        bytes[40..44].copy_from_slice(b"\x1b[2J");
        let record = Record::parse(&bytes).expect("its first bytes are right");
        assert!(!record.title().contains('\x1b'));
    }

    #[test]
    fn put__keeps_the_end_of_a_long_text() {
        let mut field = [0; 8];
        put(&mut field, "a_long_name+0x12f");
        assert_eq!(get(&field), "me+0x12f");
    }
}
