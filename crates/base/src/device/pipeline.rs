//! Long contiguous messages from and to device memory, moved in pieces.
//!
//! A message has up to [`PIECES`] pieces in host memory at a time. While a piece is sent, the driver copies the next
//! ones from the device. While a piece is received, the driver copies the previous ones to the device. The process
//! waits only for the events of these copies.
#![allow(unsafe_code)]

use super::block::HostBlock;
use super::cuda::{Direction, Driver};
use super::{DeviceError, DeviceMemory};
use crate::layout::ByteStream;
use std::fmt;
use std::sync::Mutex;

/// Shortest message, in bytes, that is moved in pieces.
pub const PIPELINE_MIN: u64 = 1 << 20;
/// Bytes of a piece.
const PIECE: u64 = 512 << 10;
/// Maximum number of pieces of a message in host memory: 4 MiB in all.
const PIECES: usize = 8;

/// Contiguous device memory of a message, as a stream whose bytes pass through pieces of host memory.
pub struct CopyPipeline {
    driver: &'static Driver,
    start: usize,
    bytes: u64,
    memory: DeviceMemory,
    pieces: Mutex<PipelinePieces>,
}

#[derive(Default)]
struct PipelinePieces {
    /// Piece `n` of the message is in slot `n` modulo [`PIECES`].
    slots: [Option<Piece>; PIECES],
    /// First error since the start of the message.
    error: Option<DeviceError>,
}

/// A part of the message in host memory: bytes `from..end`.
struct Piece {
    block: HostBlock,
    /// Event of the piece's last copy.
    event: usize,
    from: u64,
    end: u64,
    state: PieceState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceState {
    /// The block has the bytes, and nothing else needs them.
    Idle,
    /// Received bytes have not been copied to the device.
    Received,
    /// The driver copies the bytes.
    Moving,
}

impl CopyPipeline {
    /// Returns the pipeline of `bytes` bytes of `memory` from `start` on; `None` without a driver. It takes host memory
    /// when the first byte moves.
    pub fn new(start: *mut u8, bytes: u64, memory: DeviceMemory) -> Option<CopyPipeline> {
        let driver = Driver::loaded()?;
        let pieces = Mutex::default();
        Some(CopyPipeline { driver, start: start.expose_provenance(), bytes, memory, pieces })
    }

    /// Ends a message: copies the rest of the received bytes to the device, waits for all copies and returns the host
    /// memory. The next message may then begin. Errors: the first error of the message.
    pub fn finish(&self) -> Result<(), DeviceError> {
        self.end(|_| {})
    }

    /// Ends a message like [`CopyPipeline::finish`], but drops received bytes that the driver does not copy yet.
    pub fn discard(&self) {
        let _ = self.end(|piece| {
            if piece.state == PieceState::Received {
                piece.state = PieceState::Idle;
            }
        });
    }

    fn end(&self, prepare: impl Fn(&mut Piece)) -> Result<(), DeviceError> {
        let Ok(mut pieces) = self.pieces.lock() else { return Ok(()) };
        for slot in 0..PIECES {
            if let Some(mut piece) = pieces.slots[slot].take() {
                prepare(&mut piece);
                let ended = self.settle(&mut piece);
                self.driver.destroy_event(piece.event);
                pieces.keep_error(ended);
            }
        }
        pieces.error.take().map_or(Ok(()), Err)
    }

    /// Takes host memory for a piece.
    fn make_piece(&self) -> Result<Piece, DeviceError> {
        let block = HostBlock::take(PIECE, &self.memory)?;
        let create = |_| self.driver.create_event();
        let event = self.driver.with_live_stream(&self.memory, Direction::In, create)?;
        Ok(Piece { block, event, from: 0, end: 0, state: PieceState::Idle })
    }

    /// Begins to copy a piece.
    fn begin(&self, piece: &mut Piece, direction: Direction) -> Result<(), DeviceError> {
        let device = self.start + piece.from as usize;
        let host = piece.block.start().expose_provenance();
        let (to, from) = match direction {
            Direction::In => (host, device),
            Direction::Out => (device, host),
        };
        let bytes = (piece.end - piece.from) as usize;
        piece.state = PieceState::Idle;
        self.driver.with_live_stream(&self.memory, direction, |stream| {
            // SAFETY: both sides are valid until `settle` has waited for the event.
            unsafe { self.driver.copy(to, from, bytes, stream)? };
            self.driver.record_event(piece.event, stream).inspect_err(|_| {
                // Without an event, the copy must end here.
                let _ = self.driver.synchronize(stream);
            })
        })?;
        piece.state = PieceState::Moving;
        Ok(())
    }

    /// Copies received bytes of a piece to the device, and waits for the piece's copy.
    fn settle(&self, piece: &mut Piece) -> Result<(), DeviceError> {
        if piece.state == PieceState::Received {
            self.begin(piece, Direction::Out)?;
        }
        if piece.state == PieceState::Moving {
            piece.state = PieceState::Idle;
            let wait = |_| self.driver.wait_event(piece.event);
            self.driver.with_stream(&self.memory, Direction::In, wait)?;
        }
        Ok(())
    }

    /// Begins to load piece `number`, unless that has happened.
    fn load(&self, pieces: &mut PipelinePieces, number: u64) -> Result<(), DeviceError> {
        let from = number * PIECE;
        let end = self.bytes.min(from + PIECE);
        let slot = &mut pieces.slots[number as usize % PIECES];
        let piece = match slot {
            Some(piece) => piece,
            None => slot.insert(self.make_piece()?),
        };
        if (piece.from, piece.end) == (from, end) {
            return Ok(());
        }
        self.settle(piece)?;
        (piece.from, piece.end) = (from, end);
        self.begin(piece, Direction::In)
    }

    /// Returns the piece of byte `from` and the bytes from there to the end of the piece. Begins to load the following
    /// pieces.
    fn load_ahead(
        &self, pieces: &mut PipelinePieces, from: u64,
    ) -> Result<(*const u8, u64), DeviceError> {
        let first = from / PIECE;
        let pieces_of_message = self.bytes.div_ceil(PIECE);
        for number in first..pieces_of_message.min(first + PIECES as u64) {
            self.load(pieces, number)?;
        }
        match &mut pieces.slots[first as usize % PIECES] {
            Some(piece) => {
                self.settle(piece)?;
                let at = piece.block.start().wrapping_add((from - piece.from) as usize);
                Ok((at, piece.end - from))
            }
            None => Ok((std::ptr::null(), 0)),
        }
    }

    /// Safety: see [`ByteStream::write`]. Stores the bytes of one piece, and returns their number.
    unsafe fn receive(
        &self, pieces: &mut PipelinePieces, at: u64, data: *const u8, len: usize,
    ) -> Result<usize, DeviceError> {
        let number = at / PIECE;
        let limit = self.bytes.min((number + 1) * PIECE);
        let slot = &mut pieces.slots[number as usize % PIECES];
        let piece = match slot {
            Some(piece) => piece,
            None => slot.insert(self.make_piece()?),
        };
        if piece.state != PieceState::Received || piece.end != at {
            self.settle(piece)?;
            (piece.from, piece.end) = (at, at);
        }
        let now = len.min((limit - at) as usize);
        let to = piece.block.start().wrapping_add((at - piece.from) as usize);
        // SAFETY: `data` has `len` bytes, by this function's contract, and the block has a whole piece.
        unsafe { crate::copy::copy(to, data, now) };
        piece.end += now as u64;
        piece.state = PieceState::Received;
        if piece.end == limit {
            self.begin(piece, Direction::Out)?;
        }
        Ok(now)
    }
}

impl PipelinePieces {
    fn keep_error(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }
}

impl ByteStream for CopyPipeline {
    unsafe fn read(&self, mut from: u64, mut out: *mut u8, mut len: usize) -> bool {
        let Ok(mut pieces) = self.pieces.lock() else { return false };
        while len > 0 {
            let loaded = match pieces.error {
                None => self.load_ahead(&mut pieces, from),
                Some(error) => Err(error),
            };
            // SAFETY: `out` has `len` bytes by contract, and the piece has `now`.
            unsafe {
                let now = match loaded {
                    Ok((at, held)) => {
                        let now = len.min(held as usize);
                        crate::copy::copy(out, at, now);
                        now
                    }
                    // The send returns the error when the message has ended.
                    Err(error) => {
                        pieces.keep_error(Err(error));
                        out.write_bytes(0, len);
                        len
                    }
                };
                (from, out, len) = (from + now as u64, out.add(now), len - now);
            }
        }
        true
    }

    unsafe fn write(&self, mut at: u64, mut data: *const u8, mut len: usize) -> bool {
        let Ok(mut pieces) = self.pieces.lock() else { return false };
        // The receive returns the error when the message has ended.
        while len > 0 && pieces.error.is_none() {
            // SAFETY: this function's contract.
            match unsafe { self.receive(&mut pieces, at, data, len) } {
                Ok(now) => (at, data, len) = (at + now as u64, data.wrapping_add(now), len - now),
                Err(error) => pieces.keep_error(Err(error)),
            }
        }
        true
    }
}

impl Drop for CopyPipeline {
    fn drop(&mut self) {
        self.discard();
    }
}

impl fmt::Debug for CopyPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyPipeline of {} bytes at {:#x}", self.bytes, self.start)
    }
}
