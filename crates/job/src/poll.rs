#![allow(unsafe_code)]
//! Waits by poll(2), for descriptors and for time.

use std::os::fd::RawFd;
use std::time::Duration;

pub(crate) fn pause() {
    // SAFETY: a poll of 0 descriptors does not use the null pointer.
    unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
}

pub(crate) fn wait_a_second() {
    // SAFETY: a poll of 0 descriptors does not use the null pointer.
    unsafe { libc::poll(std::ptr::null_mut(), 0, 1000) };
}

pub(crate) fn poll_for(entries: &mut [libc::pollfd], limit: Option<Duration>) {
    // Round up: a part of a millisecond would mean no wait.
    let limit = limit.map_or(-1, |limit| limit.as_millis().saturating_add(1).min(1 << 30) as i32);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: the array has `count` entries.
    if unsafe { libc::poll(entries.as_mut_ptr(), count, limit) } < 0 {
        // Interrupted, so the entries are not valid.
        entries.iter_mut().for_each(|entry| entry.revents = 0);
    }
}

pub(crate) fn poll_entry(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}
