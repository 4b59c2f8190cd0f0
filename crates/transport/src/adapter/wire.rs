//! Wire format common to both transports: message header and address numbers.

use crate::contract::Header;

pub(super) const HEADER: usize = 16;
const _: () = assert!(HEADER == size_of::<Header>());
pub(super) const LARGEST: usize = 32 * 1024;
/// Lower bound of the limit for short messages, in bytes, inline or not. The upper layer's control messages fit this
/// size.
pub(super) const SHORT_LEAST: usize = 48;

#[inline]
pub(super) fn encode_header(header: Header) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&header.key.to_le_bytes());
    bytes[8..12].copy_from_slice(&header.imm.to_le_bytes());
    bytes[12..14].copy_from_slice(&header.aux.to_le_bytes());
    bytes[14] = header.id;
    bytes
}

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
