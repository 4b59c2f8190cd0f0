//! Notes of a rank's waiting threads on its status page.

use super::{ASK_NS, Note, NotePlace, Wait};
use crate::tag::collective_key;
use crate::worker::Worker;
use fastpath_base::tell::FixedString;
use fastpath_base::topology;
use fastpath_segment::{AwaitedRanks, NOTES, SHOWN_MOST, UnexpectedMessage, WaitNoteRef};
use std::fmt::Write;

const UNEXPECTED_MOST: usize = 16;

impl Worker {
    /// Checks, if it is time, whether the peers that could end a wait are alive. A peer that left before it exchanged a
    /// message with this rank caused no event.
    #[cold]
    pub(super) fn ask_after_peers(&mut self, wait: &mut Wait, note: &Note, now: u64) {
        if !self.interfaces.has_outside() {
            wait.ask_ns = u64::MAX;
            return;
        }
        if wait.ask_ns == 0 {
            wait.ask_ns = wait.since_ns + ASK_NS;
            return;
        }
        let focus = wait.focus.as_slice();
        let awaited = if focus.is_empty() { note.awaited.named() } else { focus };
        let asked = awaited.iter().filter_map(|&peer| self.interfaces.ask_after(peer));
        let again = asked.min().map(|nap| now + nap.as_nanos() as u64);
        wait.ask_ns = again.unwrap_or(u64::MAX);
    }

    #[cold]
    pub(super) fn write_note(&mut self, wait: &mut Wait, note: &Note) {
        if wait.slept_ns == 0 {
            wait.slept_ns = wait.started_ns;
        }
        let census = &mut self.wait.census;
        let free = census.places.trailing_ones() as usize;
        if free >= NOTES {
            wait.place = NotePlace::None;
            census.unnoted += 1;
            self.job.own_page().set_unnoted(census.unnoted);
            return;
        }
        census.places |= 1 << free;
        wait.place = NotePlace::At(free);
        let mut awaited = match wait.focus {
            Some(peer) => AwaitedRanks::of(&[peer]),
            None => note.awaited,
        };
        if self.hooks.on_progress.is_some() {
            // A message from another rank may advance operations of the layer above, on which other ranks may depend.
            awaited = awaited.or((self.hooks.moved_by)(self));
        }
        let multiple = self.wait.multiple;
        let title = (self.hooks.name_wait)(note.comm, wait.focus);
        let mut call = FixedString::<72>::default();
        let _ = match title.began {
            "" => call.write_str(note.call),
            began => write!(call, "{} for {began}", note.call),
        };
        self.note_unexpected(title.added);
        let note = WaitNoteRef {
            call: call.as_str(),
            peer: title.peer.unwrap_or(note.peer),
            tag: note.tag,
            comm: title.comm.as_str(),
            bytes: note.bytes,
            since_ns: wait.since_ns,
            awaited,
            multiple,
            thread: match multiple {
                true => topology::thread_number(),
                false => 0,
            },
        };
        self.job.note_waiting(free, note);
    }

    /// Writes the program's unexpected messages to the status page. `added`: bytes that the library adds to each.
    fn note_unexpected(&self, added: u64) {
        let (all, _) = self.matcher.store.usage();
        let mut first = [UnexpectedMessage { source: 0, tag: 0, bytes: 0 }; SHOWN_MOST];
        let mut count = 0;
        for entry in self.matcher.store.all().take(UNEXPECTED_MOST) {
            let is_internal = entry.tag < 0 || entry.key == collective_key(entry.key);
            if is_internal {
                continue;
            }
            if let Some(place) = first.get_mut(count) {
                let bytes = entry.total().saturating_sub(added);
                *place = UnexpectedMessage { source: entry.peer, tag: entry.tag, bytes };
            }
            count += 1;
        }
        let is_partial = all > UNEXPECTED_MOST as u64;
        let first = &first[..count.min(SHOWN_MOST)];
        self.job.own_page().note_unexpected(count as u64, is_partial, first);
    }

    pub(super) fn take_back_note(&mut self, wait: &mut Wait) {
        match std::mem::take(&mut wait.place) {
            NotePlace::Unset => {}
            NotePlace::At(place) => {
                self.job.clear_waiting(place);
                self.wait.census.places &= !(1 << place);
            }
            NotePlace::None => {
                let census = &mut self.wait.census;
                census.unnoted -= 1;
                self.job.own_page().set_unnoted(census.unnoted);
            }
        }
    }
}
