//! Thread levels of MPI, and their cost for calls.

use fastpath_base::wait;

use super::transports::Facility;

/// Lists the thread levels, and how the lock of `MPI_THREAD_MULTIPLE` works on this machine.
pub fn list_threads() -> Vec<Facility> {
    describe(wait::register_own_membarrier())
}

fn describe(fences: bool) -> Vec<Facility> {
    let lock = match fences {
        true => {
            "calls take a lock at MPI_THREAD_MULTIPLE, and with FASTPATH_PROGRESS=thread. The lock \
             is biased to the thread that took it last: that thread needs no atomic operation. \
             Another thread needs a membarrier"
        }
        false => {
            "the kernel or a sandbox refuses membarrier, so an ordinary lock is used at \
             MPI_THREAD_MULTIPLE, and with FASTPATH_PROGRESS=thread. The lock takes two atomic \
             operations per call"
        }
    };
    let levels = "a program gets the level that it requests; MPI_Init requests MPI_THREAD_SINGLE. \
        Below MPI_THREAD_MULTIPLE, thread safety adds no cost to calls. FASTPATH_REPORT=1 reports \
        the level and the contention of threads; FASTPATH_CHECK=1 reports calls that the level \
        forbids";
    vec![
        Facility::new("all thread levels", true, levels.to_owned()),
        Facility::new("biased lock", fences, lock.to_owned()),
    ]
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn lock__is_told_as_it_works_here() {
        for fences in [true, false] {
            let lock = &describe(fences)[1];
            assert_eq!(lock.available, fences);
            assert_eq!(lock.note.contains("ordinary lock"), !fences);
        }
    }
}
