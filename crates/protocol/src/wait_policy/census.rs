//! Count of the sleeping threads of a process.

use crate::request::RequestId;
use fastpath_job::Job;
use fastpath_segment::AwaitedRanks;

/// Sleeping threads of a process.
#[derive(Debug, Default)]
pub struct Census {
    sleepers: u32,
    napping: u32,
    /// Bit mask of the places on the status page that hold notes of sleeping threads.
    pub(crate) places: u32,
    pub(crate) unnoted: u32,
}

impl Census {
    /// Returns the number of sleeping threads, or 0 if one of them has a timeout.
    pub(crate) fn asleep(&self) -> u32 {
        match self.napping {
            0 => self.sleepers,
            _ => 0,
        }
    }

    pub(crate) fn begin_sleep(&mut self, job: &Job) {
        self.sleepers += 1;
        if self.sleepers == 1 {
            job.segment().uncount_awake(job.own_page());
        }
    }

    pub(crate) fn rest(&mut self, job: &Job, naps: bool) {
        self.napping += u32::from(naps);
        job.own_page().set_asleep(self.asleep());
    }

    pub(crate) fn end_sleep(&mut self, job: &Job, naps: bool) {
        self.sleepers -= 1;
        self.napping -= u32::from(naps);
        job.own_page().set_asleep(self.asleep());
        if self.sleepers == 0 {
            job.segment().count_awake(job.own_page());
        }
    }
}

/// Events that end the wait of a sleeping thread.
#[derive(Debug, Clone)]
pub struct WakeEvents {
    /// Request; 0 if any event may end the wait.
    pub request: RequestId,
    /// Peers whose departure ends the wait.
    pub peers: AwaitedRanks,
}
