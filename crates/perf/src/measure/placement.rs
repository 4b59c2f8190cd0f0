#![allow(unsafe_code)]
//! Which processors a thread may use, and binding it to one.

use std::io;
use std::mem;

/// Processors this thread may run on, in ascending order.
///
/// # Errors
/// What the kernel says.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    // SAFETY: a `cpu_set_t` is plain bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a valid place of the size stated.
    let rc = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let limit = libc::CPU_SETSIZE as usize;
    // SAFETY: every index is below CPU_SETSIZE, the number of bits in the set.
    Ok((0..limit)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Binds the calling thread to one processor.
///
/// # Errors
/// No such processor, or not one this thread may use.
pub fn bind_thread(processor: usize) -> io::Result<()> {
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: a `cpu_set_t` is plain bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the index was checked against the number of bits in the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: `set` is a valid set of the size stated.
    let rc = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The processor this thread runs on now; None where the kernel does not say.
pub fn current_processor() -> Option<usize> {
    // SAFETY: takes no arguments and touches no memory of ours.
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
            let last = *allowed_processors().unwrap().last().unwrap();
            bind_thread(last).unwrap();
            assert_eq!(allowed_processors().unwrap(), [last]);
            assert_eq!(current_processor(), Some(last));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bind__to_a_processor_that_is_not_there_is_an_error() {
        assert!(bind_thread(1 << 20).is_err());
    }
}
