//! Split of transfers into packets, and the packets' sizes on the link.

use crate::link::{AddressWidth, Framing, Link};

#[derive(Debug, Clone, Copy)]
pub(super) struct Packets {
    payload: u64,
    request: u64,
    completion: u64,
    frame: u64,
    request_header: u64,
}

impl Packets {
    pub fn new(link: &Link) -> Packets {
        let generation = link.generation().number();
        // Up to generation 2: start, sequence number, checksum, end. From generation 3: a token with the sequence
        // number, and a checksum.
        let frame = match (link.framing(), generation) {
            (Framing::Eight, _) => 8,
            (Framing::Ucx, 3..) => 4 + 2 + 4,
            (_, 1 | 2) => 1 + 2 + 4 + 1,
            (_, 3..=5) => 4 + 4,
            (Framing::Ucx, _) => 8,
            (Framing::Specified, _) => 0,
        };
        let words = match link.address() {
            AddressWidth::Bits32 => 3,
            AddressWidth::Bits64 => 4,
        };
        Packets {
            payload: u64::from(link.max_payload()),
            request: u64::from(link.max_read_request()),
            completion: u64::from(link.completion()),
            frame: frame + if link.has_ecrc() { 4 } else { 0 },
            request_header: 4 * words,
        }
    }

    /// Size on the link of a write of `data` bytes, or of a read request if `data` is 0.
    pub fn request_bytes(&self, data: u64) -> u64 {
        self.frame + self.request_header + data
    }

    pub fn completion_bytes(&self, data: u64) -> u64 {
        self.frame + 3 * 4 + data
    }

    /// Writes of `bytes` bytes from an aligned address on.
    pub fn writes(&self, bytes: u64) -> Pieces {
        Pieces::new(bytes, self.payload)
    }

    /// Requests of a read of `bytes` bytes.
    pub fn requests(&self, bytes: u64) -> Pieces {
        Pieces::new(bytes, self.request)
    }

    pub fn completions(&self, bytes: u64) -> Pieces {
        Pieces::new(bytes, self.completion)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pieces {
    left: u64,
    most: u64,
}

impl Pieces {
    pub fn new(bytes: u64, most: u64) -> Pieces {
        Pieces { left: bytes, most }
    }
}

impl Iterator for Pieces {
    /// Size of a piece, and whether it is the last.
    type Item = (u64, bool);

    fn next(&mut self) -> Option<(u64, bool)> {
        if self.left == 0 {
            return None;
        }
        let piece = self.left.min(self.most);
        self.left -= piece;
        Some((piece, self.left == 0))
    }
}
