//! Two ranks of a job in one process, each with its own mapping.
#![allow(unsafe_code)]

use super::wire::{PairRegion, RingControl, SLOTS};
use super::{Domain, Iface, ShmEndpoint};
use crate::conformance::{Rig, Start};
use fastpath_base::sync::Ordering;
use fastpath_job::Job;
use std::mem::offset_of;

thread_local! {
    /// Domains of the thread's job. A job lives as long as its process, so each thread makes only one.
    static DOMAINS: [&'static Domain; 2] = {
        let jobs: &'static [Job] = Job::in_process(2).expect("memory for two ranks").leak();
        [0, 1].map(|rank| &*Box::leak(Box::new(Domain::new(&jobs[rank]))))
    };
}

pub(crate) fn domains() -> [&'static Domain; 2] {
    DOMAINS.with(|domains| *domains)
}

pub(crate) struct ShmPair {
    pub tx: ShmEndpoint,
    pub rx: ShmEndpoint,
    pub domains: [&'static Domain; 2],
}

impl ShmPair {
    pub fn region(&self) -> *mut PairRegion {
        self.domains[1].pair(0, 1).cast_mut()
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: `new` has backed the whole region, and no thread writes meanwhile.
        unsafe {
            std::slice::from_raw_parts(self.region().cast::<u8>(), size_of::<PairRegion>()).to_vec()
        }
    }
}

impl Rig for ShmPair {
    type End = ShmEndpoint;

    fn new(start: Start) -> Self {
        let domains = domains();
        domains[0].back_pair(1, 0, size_of::<PairRegion>()).expect("memory for a pair");
        let mut pair = ShmPair {
            tx: ShmEndpoint::new(domains[0], 1),
            rx: ShmEndpoint::new(domains[1], 0),
            domains,
        };
        // SAFETY: the region was backed above, and the endpoints of the previous test are gone.
        unsafe { pair.region().cast::<u8>().write_bytes(0, size_of::<PairRegion>()) };
        domains[0].incoming_word(1, 0).store(0, Ordering::Relaxed);
        let mut iface = Iface::new(domains[1]);
        pair.tx.connect(Default::default()).expect("memory for a pair");
        let mut callers = Vec::new();
        iface.accept(|peer| callers.push(peer));
        assert_eq!(callers, [0]);
        pair.rx.accept();
        pair.start_at(start);
        pair
    }
    fn tx(&mut self) -> &mut ShmEndpoint {
        &mut self.tx
    }
    fn rx(&mut self) -> &mut ShmEndpoint {
        &mut self.rx
    }
    fn settle(&mut self) {}
    fn return_credits(&mut self) {
        self.rx.publish_head();
    }
    fn observe(&mut self) -> Vec<u8> {
        let mut seen = self.bytes();
        // Exclude `laps`: it counts how often the head that was read has wrapped, so a refused post may change it.
        let laps = offset_of!(PairRegion, control) + offset_of!(RingControl, laps);
        seen[laps..laps + size_of::<u32>()].fill(0);
        let page = self.domains[1].page(1);
        seen.extend(page.state.load(Ordering::Relaxed).to_le_bytes());
        seen.extend(page.incoming_generation.load(Ordering::Relaxed).to_le_bytes());
        seen.extend(self.domains[1].incoming_word(1, 0).load(Ordering::Relaxed).to_le_bytes());
        seen
    }
}

impl ShmPair {
    fn start_at(&mut self, start: Start) {
        let Start { messages, bytes } = start;
        // SAFETY: the region is backed, and only this test uses both ends.
        unsafe {
            let region = &*self.region();
            region.control.head.store(messages, Ordering::Relaxed);
            region.control.taken.store(messages, Ordering::Relaxed);
            // Slots hold the words of the last lap, 256 messages.
            for back in 1..=SLOTS.min(messages) {
                let position = messages.wrapping_sub(back);
                let slot = &region.slots[(position % SLOTS) as usize];
                slot.word0.store(super::wire::encode_word0(position, 0, 0, 0), Ordering::Relaxed);
            }
        }
        let (tx, rx) = (&mut self.tx.tx, &mut self.rx.rx);
        if messages != 0 {
            tx.grow_head();
            // SAFETY: `connect` allocated the queue, which has no other user now.
            unsafe { (*tx.in_data).said = messages };
            (tx.tail, tx.limit) = (messages, messages.wrapping_add(SLOTS));
        }
        (rx.head, rx.published) = (messages, messages);
        let bytes = bytes & !63;
        if bytes != 0 {
            tx.grow_data(1);
        }
        (tx.data_tail, tx.data_head) = (bytes, bytes);
    }
}
