#![allow(unsafe_code)]
//! Binding of a thread to one processor.

use std::io;

use fastpath_base::topology::{self, CpuSet};

/// Processors that this thread may use, in ascending order.
pub fn allowed_processors() -> Vec<usize> {
    topology::affinity().iter().collect()
}

/// Checks that the calling thread may use this processor.
///
/// # Errors
/// There is no such processor, or this thread may not use it.
pub fn check_processor(processor: usize) -> io::Result<()> {
    if topology::affinity().contains(processor) {
        return Ok(());
    }
    let why = format!("this process may not use processor {processor}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Binds the calling thread to one processor.
///
/// # Errors
/// There is no such processor, or this thread may not use it.
pub fn bind_thread(processor: usize) -> io::Result<()> {
    check_processor(processor)?;
    topology::set_affinity(&CpuSet::from_iter([processor]))
}

/// Returns the current processor of this thread; None if the kernel does not report it.
pub fn current_processor() -> Option<usize> {
    // SAFETY: sched_getcpu has no arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bind__moves_the_thread_and_narrows_what_it_may_use() {
        std::thread::spawn(|| {
            let last = *allowed_processors().last().unwrap();
            bind_thread(last).unwrap();
            assert_eq!(allowed_processors(), [last]);
            assert_eq!(current_processor(), Some(last));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bind__to_a_processor_that_is_not_there_is_an_error() {
        let e = bind_thread(1 << 20).unwrap_err();
        assert!(e.to_string().contains("1048576"), "{e}");
    }
}
