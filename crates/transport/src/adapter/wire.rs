//! What travels with both ways: the header of a message, and the numbers of an address.

use crate::contract::Header;

/// Bytes of a header on the wire.
pub(super) const HEADER: usize = 16;
const _: () = assert!(HEADER == size_of::<Header>());
/// Bytes of a message's payload at most.
pub(super) const LARGEST: usize = 32 * 1024;
/// Payload of an active message that every endpoint sends as short, inline or not, in bytes: what control messages
/// of the layer above need.
pub(super) const SHORT_LEAST: usize = 48;

/// A header as it travels.
#[inline]
pub(super) fn encode_header(header: Header) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&header.key.to_le_bytes());
    bytes[8..12].copy_from_slice(&header.imm.to_le_bytes());
    bytes[12..14].copy_from_slice(&header.aux.to_le_bytes());
    bytes[14] = header.id;
    bytes
}

/// What a peer wrote: any bytes are some header.
#[inline]
pub(super) fn decode_header(bytes: &[u8; HEADER]) -> Header {
    let [key @ .., i0, i1, i2, i3, a0, a1, id, _] = *bytes;
    Header {
        id,
        imm: u32::from_le_bytes([i0, i1, i2, i3]),
        key: u64::from_le_bytes(key),
        aux: u16::from_le_bytes([a0, a1]),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn header__survives_the_wire() {
        let header = Header { id: 250, imm: 0x0102_0304, key: u64::MAX - 5, aux: 0xfedc };
        assert_eq!(decode_header(&encode_header(header)), header);
    }
}
