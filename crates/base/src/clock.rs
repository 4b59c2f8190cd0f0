#![allow(unsafe_code)]
//! Time from the kernel's monotonic clock.

/// Returns nanoseconds of `CLOCK_MONOTONIC`, which all processes of the node share and which never goes back. A read
/// costs some 20 ns if the kernel maps the clock into the process.
#[inline]
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the kernel to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    to_ns(&ts)
}

/// Returns the kernel's resolution of the monotonic clock, in nanoseconds; at least 1.
pub fn resolution_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the kernel to write.
    let rc = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut ts) };
    if rc != 0 {
        return 1;
    }
    to_ns(&ts).max(1)
}

#[inline]
fn to_ns(ts: &libc::timespec) -> u64 {
    (ts.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(ts.tv_nsec as u64)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn now__never_goes_back() {
        let mut last = now_ns();
        for _ in 0..10_000 {
            let t = now_ns();
            assert!(t >= last);
            last = t;
        }
    }

    #[test]
    fn now__is_the_monotonic_clock() {
        let (a, std_a) = (now_ns(), std::time::Instant::now());
        while std_a.elapsed().as_micros() < 2000 {}
        let elapsed = now_ns() - a;
        assert!(elapsed >= 2_000_000, "{elapsed} ns");
    }

    #[test]
    fn resolution__is_stated() {
        assert!(resolution_ns() >= 1);
    }
}
