//! Work that an endpoint does during a wait for its peer. After the wait, the work would delay the next message.
//!
//! The next message goes to cache lines that the peer read last. A store must first take them from the peer's cache. A
//! waiting sender therefore prefetches these lines: as many bytes as it sent since the last wait, a few lines at each
//! poll. After a stream of messages the sender does not prefetch, because prefetches would disturb the reader.
#![allow(unsafe_code)]

use super::datapath::Tx;
use super::endpoint::ShmEndpoint;
use super::wire::DATA_MESSAGE_MAX;
use fastpath_base::hint::{LINE, prefetch_for_write};
use fastpath_base::sync::spin_loop;

/// Number of cache lines prefetched at each poll. A processor can have this many prefetches outstanding, so the poll is
/// not delayed.
const LINES: u32 = 8;
/// Number of pauses of a consumer that has caught up with a burst; together they take some hundred cycles.
const PAUSES: u32 = 2;

impl Tx {
    /// Whether [`Tx::warm`] has lines to prefetch.
    #[inline]
    pub fn is_cold(&self) -> bool {
        self.warmed < self.recent
    }

    /// Prefetches the next lines for the next message, if they are known to be free.
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
            // SAFETY: something was sent, so the ring is connected; the offset is in the data area.
            let at = unsafe { (*self.pair).data.get().cast::<u8>().add(offset as usize) };
            prefetch_for_write(at);
            self.warmed += LINE as u32;
        }
    }
}

impl ShmEndpoint {
    pub(crate) fn begin_wait(&mut self) -> bool {
        // If many bytes were taken, return them before the producer needs their room.
        if self.rx.data_taken >= self.rx.owed_max / 2 {
            self.publish_head();
        }
        // SAFETY: `in_data` is null, or allocated by `connect` and used only by this process.
        let Some(queue) = (unsafe { self.tx.in_data.as_mut() }) else {
            return false;
        };
        let sent = self.tx.tail.wrapping_sub(queue.mark.0);
        if sent != 0 {
            queue.mark = (self.tx.tail, self.rx.head);
            if sent > queue.tuning.stream {
                // Do not prefetch after a stream: the peer still reads the last messages, far from the next lines.
                (self.tx.recent, self.tx.warmed) = (0, 0);
            }
        } else if self.rx.head.wrapping_sub(queue.mark.1) >= queue.tuning.burst {
            // The producer is about to fill the next slot, and each poll takes that slot's line away from the
            // producer's cache. Pause only once, so that a slow sequence of messages is not delayed.
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
        self.tx.is_cold()
    }
}
