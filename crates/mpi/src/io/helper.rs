//! Helper thread that reads and writes for requests while the program computes (setting `file-thread`).
//!
//! The first large access starts the thread. It performs accesses in order, and wakes the rank as a peer would. It uses
//! only files and memory, no MPI state. A caller that locks a file, or changes its locking, first waits for the thread
//! by [`finish`].

use fastpath_base::thread::without_signals;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Name of the thread. The kernel stores at most 15 bytes.
const NAME: &str = "fastpath-files";
const STACK_BYTES: usize = 1 << 18;

type Job = Box<dyn FnOnce() + Send>;

struct HelperQueue {
    jobs: VecDeque<Job>,
    has_thread: bool,
    is_busy: bool,
}

static QUEUE: Mutex<HelperQueue> =
    Mutex::new(HelperQueue { jobs: VecDeque::new(), has_thread: false, is_busy: false });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, HelperQueue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(queue: MutexGuard<'static, HelperQueue>) -> MutexGuard<'static, HelperQueue> {
    CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner)
}

/// Submits a job to the thread. Returns the job if no thread can be started.
pub(super) fn submit<J: FnOnce() + Send + 'static>(job: J) -> Result<(), J> {
    let mut queue = queue();
    if !queue.has_thread {
        let builder = Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES);
        if without_signals(|| builder.spawn(serve)).is_err() {
            return Err(job);
        }
        queue.has_thread = true;
    }
    queue.jobs.push_back(Box::new(job));
    drop(queue);
    CHANGED.notify_all();
    Ok(())
}

/// Waits until all jobs are done. The wait ends, because no job waits for anything else in this process.
pub(crate) fn finish() {
    let mut queue = queue();
    while !queue.jobs.is_empty() || queue.is_busy {
        queue = wait(queue);
    }
}

fn serve() {
    let mut queue = queue();
    loop {
        let Some(job) = queue.jobs.pop_front() else {
            queue = wait(queue);
            continue;
        };
        queue.is_busy = true;
        drop(queue);
        job();
        queue = self::queue();
        queue.is_busy = false;
        CHANGED.notify_all();
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn helper__does_all_jobs_in_their_order() {
        let done = Arc::new(Mutex::new(vec![]));
        for job in 0..100 {
            let done = done.clone();
            assert!(submit(move || done.lock().unwrap().push(job)).is_ok());
        }
        finish();
        assert_eq!(*done.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}
