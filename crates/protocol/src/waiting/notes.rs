//! What the threads of a rank that wait say on its status page.

use super::{Note, Place, Wait};
use crate::worker::Worker;
use fastpath_base::topology;
use fastpath_bootstrap::segment::{Awaited, NOTES, WaitNoteRef};

impl Worker {
    /// Says on the status page what the calling thread waits for, while there is a place for it.
    #[cold]
    pub(super) fn write_note(&mut self, wait: &mut Wait, note: &Note) {
        if wait.slept_ns == 0 {
            wait.slept_ns = wait.started_ns;
        }
        let free = self.wait.places.trailing_ones() as usize;
        if free >= NOTES {
            wait.place = Place::None;
            self.wait.unnoted += 1;
            self.job.own_page().set_unnoted(self.wait.unnoted);
            return;
        }
        wait.place = Place::At(free);
        self.wait.places |= 1 << free;
        let awaited = match wait.focus {
            Some(peer) => Awaited::of(&[peer]),
            None => note.awaited,
        };
        let multiple = self.wait.multiple;
        let note = WaitNoteRef {
            call: note.call,
            peer: note.peer,
            tag: note.tag,
            comm: &(self.name_comm)(note.comm),
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

    /// Says on the status page that the calling thread waits for nothing.
    pub(super) fn take_back_note(&mut self, wait: &mut Wait) {
        match std::mem::take(&mut wait.place) {
            Place::Unasked => {}
            Place::At(place) => {
                self.wait.places &= !(1 << place);
                self.job.clear_waiting(place);
            }
            Place::None => {
                self.wait.unnoted -= 1;
                self.job.own_page().set_unnoted(self.wait.unnoted);
            }
        }
    }
}
