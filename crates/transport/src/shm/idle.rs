//! What an endpoint does while its owner waits for the peer: work that would otherwise stand in the way of the next
//! message.
//!
//! The lines of the data area that the next message goes to were last read by the peer, and a store to them must
//! first take them away from it. Who waits has the time to ask for them before: as many bytes as were sent since the
//! last wait, a few lines at each look. Who has sent a stream of messages does not: it would disturb their reader.
#![allow(unsafe_code)]

use super::ShmEndpoint;
use super::datapath::Tx;
use super::wire::DATA_MESSAGE_MAX;
use fastpath_base::hint::{LINE, prefetch_for_write};
use fastpath_base::sync::spin_loop;

/// Lines asked for at one look: no more than a processor has under way at once, so that the look is not held up.
const LINES: u32 = 8;
/// How long a consumer that has caught up with a burst looks away: some hundred cycles.
const PAUSES: u32 = 2;

/// What a ring's owner does so that later messages go faster. Switched off it is a limit that nothing reaches, so that
/// nobody has to ask whether it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Messages sent since the last wait above which they are a stream, in which no lines are asked for ahead.
    pub(super) stream: u32,
    /// Messages taken, while nothing was sent back, that make a burst, after which the consumer looks away for a
    /// moment.
    pub(super) burst: u32,
    /// Payloads of up to so many bytes in the data area are pushed towards a reader that waits; above, and in a stream
    /// of them, it costs more than it gives.
    pub(super) demoted_max: u32,
    /// Whether replies go where the last message was (`recycle`).
    pub(super) recycles: bool,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { stream: 16, burst: 8, demoted_max: 1024, recycles: true }
    }
}

impl Ahead {
    /// Without lines asked for while a rank waits.
    #[must_use]
    pub fn without_prefetch(self) -> Self {
        Ahead { stream: 0, ..self }
    }

    /// Without the pause after a burst.
    #[must_use]
    pub fn without_pause(self) -> Self {
        Ahead { burst: u32::MAX, ..self }
    }

    /// Without payloads pushed towards their reader.
    #[must_use]
    pub fn without_demotion(self) -> Self {
        Ahead { demoted_max: 0, ..self }
    }
}

impl Ahead {
    /// With each message in the data area of its own direction.
    #[must_use]
    pub fn without_recycling(self) -> Self {
        Ahead { recycles: false, ..self }
    }
}

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

impl ShmEndpoint {
    /// See [`crate::Lane::begin_wait`].
    pub(crate) fn begin_wait(&mut self) -> bool {
        // Much was taken: the producer is told before it needs the room.
        if self.rx.data_taken >= self.rx.owed_max / 2 {
            self.publish_head();
        }
        // SAFETY: made when the ring was connected, or null.
        let Some(queue) = (unsafe { self.tx.in_data.as_mut() }) else {
            return false;
        };
        let sent = self.tx.tail.wrapping_sub(queue.mark.0);
        if sent != 0 {
            queue.mark = (self.tx.tail, self.rx.head);
            if sent > queue.ahead.stream {
                // The lines of the last messages are still being read, and the next ones are far.
                (self.tx.recent, self.tx.warmed) = (0, 0);
            }
        } else if self.rx.head.wrapping_sub(queue.mark.1) >= queue.ahead.burst {
            // The producer is about to fill the slot that would be looked at, and each look takes its line away: it
            // does better ahead. Once, so that a trickle is not slowed down.
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
        self.tx.is_cold()
    }
}
