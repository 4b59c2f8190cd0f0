//! What a call tells the other ranks about itself.
#![allow(unsafe_code)]

use super::name_call;
use crate::common::consts::MPI_PACKED;
use crate::objects::datatype::{Basic, Datatype, Digest};
use fastpath_base::tell::escape;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: u64 = size_of::<Record>() as u64;

/// What each record begins with: a message without it comes from a process that looks for no mistakes.
const MAGIC: u64 = u64::from_le_bytes(*b"FPCHECK1");

/// No data goes to this rank or comes from it: in [`Record::basic`].
const NO_DATA: u32 = u32::MAX;

/// A call and the signature of its data, as it travels. Any bytes are a valid record: what comes from another process
/// is not trusted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    magic: u64,
    digest: u64,
    elements: u64,
    /// The handle of the only basic type of the data; 0 where there are several or none.
    basic: u32,
    /// The root of a collective call; -1 without one.
    pub(crate) root: i32,
    /// The predefined operation of a collective call by its handle; 0 without one or with the program's own.
    pub(crate) op: u32,
    /// Not 0: the rank has refused its own arguments, and the call does not take place on it.
    refused: u32,
    call: [u8; 32],
    place: [u8; 56],
}

const _: () = assert!(size_of::<Record>() == 128);

impl Record {
    /// All bytes zero: no record.
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

    /// The record of the call under way, without data.
    pub(crate) fn of_call(call: &str, place: &str) -> Record {
        let mut record = Record { magic: MAGIC, basic: NO_DATA, root: -1, ..Record::NONE };
        put(&mut record.call, call);
        put(&mut record.place, place);
        record
    }

    /// The same with `count` elements of a datatype.
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

    /// As it travels.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: as many bytes as a record has, which has no padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Record>()) }
    }

    /// The record of a call that has refused its arguments.
    pub(crate) fn of_refused(call: &str, place: &str) -> Record {
        Record { refused: 1, ..Record::of_call(call, place) }
    }

    /// Whether the call does not take place on its rank.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused != 0
    }

    /// The record at the beginning of a message; None if it has none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
        let bytes = bytes.get(..size_of::<Record>())?;
        // SAFETY: as many bytes as a record has, of which any is valid.
        let record = unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() };
        record.is_valid().then_some(record)
    }

    /// Whether it was written by a process that looks for mistakes.
    pub(crate) fn is_valid(&self) -> bool {
        self.magic == MAGIC
    }

    /// The call and its place.
    pub(crate) fn title(&self) -> String {
        name_call(&self.call(), &get(&self.place))
    }

    /// The name of the call.
    pub(crate) fn call(&self) -> String {
        get(&self.call)
    }

    /// Whether its data has the same signature as another's, as far as both have any.
    pub(crate) fn has_same_data(&self, other: &Record) -> bool {
        let has_any = |record: &Record| record.basic != NO_DATA && !record.is_packed();
        !has_any(self)
            || !has_any(other)
            || (self.digest, self.elements) == (other.digest, other.elements)
    }

    /// Number of basic elements of its data.
    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// Whether the data may be received as what the digest is of. Packed data may be anything (MPI-5.0 section 3.3.1).
    pub(crate) fn agrees_with(&self, digest: Digest) -> bool {
        self.is_packed() || (self.digest, self.elements) == (digest.value, digest.elements)
    }

    /// Whether the data was packed by `MPI_Pack`.
    pub(crate) fn is_packed(&self) -> bool {
        self.basic as usize == MPI_PACKED
    }

    /// The data in words: `10 MPI_INT`.
    pub(crate) fn describe_data(&self) -> String {
        describe_data(self.elements, Basic::from_handle(self.basic as usize))
    }
}

/// `10 MPI_INT`, or how many elements of several types.
pub(crate) fn describe_data(elements: u64, basic: Option<Basic>) -> String {
    match basic {
        Some(basic) => format!("{} {}", elements / basic.elements(), basic.name),
        None if elements == 0 => "no data".to_string(),
        None => format!("{elements} elements of several types"),
    }
}

/// As much of a text as there is room for; of a place the end says most.
fn put(to: &mut [u8], text: &str) {
    let from = &text.as_bytes()[text.len().saturating_sub(to.len())..];
    to[..from.len()].copy_from_slice(from);
}

/// The text of a field, with nothing in it that a terminal would take for a command.
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
