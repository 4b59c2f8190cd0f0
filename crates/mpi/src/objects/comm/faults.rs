//! Failures of a communicator's members, in a job that tolerates failures (`FASTPATH_FT`).

use std::cell::{Cell, Ref, RefCell};

/// Known failures of a communicator. All are empty in a job that ends with the first death.
#[derive(Default)]
pub(crate) struct CommFaults {
    /// World ranks of the members that have died, of both groups, in the order in which this process detected them.
    failed: RefCell<Vec<u32>>,
    /// Number of leading entries of `failed` that the program has acknowledged.
    acknowledged: Cell<usize>,
    /// Whether a member has revoked the communicator.
    pub revoked: Cell<bool>,
}

impl CommFaults {
    /// Returns the failed members, in the order of detection.
    pub fn failed(&self) -> Ref<'_, Vec<u32>> {
        self.failed.borrow()
    }

    /// Returns whether a member has died.
    pub fn has_failed(&self) -> bool {
        !self.failed.borrow().is_empty()
    }

    /// Returns whether collective calls can no longer succeed.
    pub fn is_broken(&self) -> bool {
        self.revoked.get() || self.has_failed()
    }

    /// Records a member's death, once.
    pub fn note(&self, world: u32) {
        let mut failed = self.failed.borrow_mut();
        if !failed.contains(&world) {
            failed.push(world);
        }
    }

    /// Acknowledges the first `count` failures, and never fewer than before. Returns the number of acknowledged ones.
    pub fn acknowledge(&self, count: usize) -> usize {
        let count = count.min(self.failed.borrow().len()).max(self.acknowledged.get());
        self.acknowledged.set(count);
        count
    }

    /// Returns the acknowledged failures.
    pub fn acknowledged(&self) -> Vec<u32> {
        self.failed.borrow()[..self.acknowledged.get()].to_vec()
    }

    /// Returns whether a member has died and the program has not acknowledged it.
    pub fn has_unacknowledged(&self) -> bool {
        self.failed.borrow().len() > self.acknowledged.get()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement__covers_the_first_failures_and_never_shrinks() {
        let faults = CommFaults::default();
        assert!(!faults.is_broken() && !faults.has_unacknowledged());
        [5, 3, 5].into_iter().for_each(|world| faults.note(world));
        assert_eq!(*faults.failed(), [5, 3]);
        assert_eq!((faults.acknowledge(0), faults.acknowledge(1)), (0, 1));
        assert_eq!(faults.acknowledged(), [5]);
        assert!(faults.has_unacknowledged());
        assert_eq!((faults.acknowledge(9), faults.acknowledge(1)), (2, 2));
        assert!(!faults.has_unacknowledged() && faults.is_broken());
    }
}
