#![allow(unsafe_code)]
//! Tests that take resources which others need: each runs in its own process.

use std::fs::File;
use std::process::Command;

const INNER: &str = "FASTPATH_TEST_INNER";

/// Returns true if this process runs only that test, which may then take all descriptors. Otherwise runs the test in
/// such a process, and returns false.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args([test, "--nocapture"]).env(INNER, "1");
    let outcome = inner.output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// Opens all descriptors that this process may still open.
pub(crate) fn take_descriptors() -> Vec<File> {
    // SAFETY: both calls get a pointer to `limit`, which outlives them.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max.min(64);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}
