//! What threads of a program may do, and what its calls pay for them.

use fastpath_base::wait;
use fastpath_bootstrap::segment::FURTHER;

use super::transports::Facility;

/// The levels, and how the lock of the highest works on this machine.
pub fn list_threads() -> Vec<Facility> {
    describe(wait::register_own_membarrier())
}

fn describe(fences: bool) -> Vec<Facility> {
    let lock = match fences {
        true => {
            "at MPI_THREAD_MULTIPLE, and with FASTPATH_PROGRESS=thread, the thread that makes the \
             calls pays plain instructions; another one that comes takes the lock from it by a \
             membarrier"
        }
        false => {
            "the kernel or a sandbox refuses membarrier: at MPI_THREAD_MULTIPLE, and with \
             FASTPATH_PROGRESS=thread, an ordinary lock, two atomic operations for each call"
        }
    };
    let levels = "a program gets the level that it asks for, MPI_THREAD_SINGLE by MPI_Init \
        (FASTPATH_REPORT=1 says which, and what threads have cost each other); below \
        MPI_THREAD_MULTIPLE no call pays for threads, and FASTPATH_CHECK=1 reports calls that a \
        level forbids";
    let workers = format!(
        "up to {} in a rank, for messages of threads on different communicators, and of different \
         tags or peers on one whose members all promise mpi_assert_no_any_tag or \
         mpi_assert_no_any_source, with FASTPATH_WORKERS=several, or auto where there are two \
         processors for each rank (FASTPATH_REPORT=1 says how many were made)",
        FURTHER + 1
    );
    vec![
        Facility::new("all thread levels", true, levels.to_owned()),
        Facility::new("biased lock", fences, lock.to_owned()),
        Facility::new("workers", true, workers),
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
