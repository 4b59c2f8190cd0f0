//! What an endpoint does while its owner waits for the peer: work that would otherwise stand in the way of the next
//! message.
//!
//! The lines of the data area that the next message goes to were last read by the peer, and a store to them must
//! first take them away from it. Who waits has the time to ask for them before: as many bytes as were sent since the
//! last wait, a few lines at each look.
#![allow(unsafe_code)]

use super::datapath::{Rx, Tx};
use super::wire::DATA_MESSAGE_MAX;
use fastpath_base::hint::{LINE, prefetch_for_write};

/// Lines asked for at one look: no more than a processor has under way at once, so that the look is not held up.
const LINES: u32 = 8;
/// Bytes taken from the data area that are worth telling the producer of.
const WORTH_TELLING: u32 = 8 * 1024;

impl Tx {
    /// Whether [`Tx::warm`] has something to do.
    #[inline]
    pub fn is_cold(&self) -> bool {
        self.warmed < self.recent
    }

    /// Asks for the next lines that the next message will be written to, as far as they are known to be free.
    pub fn warm(&mut self) {
        let recent = self.recent.min(DATA_MESSAGE_MAX as u32);
        let used = self.data_tail.wrapping_sub(self.data_head);
        if self.warmed == 0 && self.data_size.saturating_sub(used) < 2 * recent {
            self.refresh_credits();
        }
        let used = self.data_tail.wrapping_sub(self.data_head);
        let end = recent.min(self.data_size.saturating_sub(used));
        for _ in 0..LINES {
            if self.warmed >= end {
                self.recent = self.warmed;
                return;
            }
            let offset = self.data_tail.wrapping_add(self.warmed) & self.data_size.wrapping_sub(1);
            // SAFETY: something was sent, so the ring is connected; the offset lies in the data area.
            let at = unsafe { (*self.pair).data.get().cast::<u8>().add(offset as usize) };
            prefetch_for_write(at);
            self.warmed += LINE as u32;
        }
    }
}

impl Rx {
    /// Tells the producer what was taken from the data area, if that is much: it does so before it needs the room.
    #[inline]
    pub fn tell_taken(&mut self) {
        if self.data_taken >= WORTH_TELLING {
            self.publish_head();
        }
    }
}
