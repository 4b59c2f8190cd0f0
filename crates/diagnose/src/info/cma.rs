#![allow(unsafe_code)]
//! Tests whether one process may read another's memory (cross-memory attach).
//!
//! A child of this process reads from this process. The kernel treats this relation like that of two ranks, because the
//! target is no descendant of the reader. A restriction to descendants (Yama, scope 1) is therefore detected.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use fastpath_base::clock;
use fastpath_transport::shm::cma::explain_refusal;
use serde::{Deserialize, Serialize};

const BYTES: usize = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Reason for which the read failed; None if it worked.
    pub refused: Option<String>,
    /// Shortest time of a read of 4 KiB, in nanoseconds.
    pub read_4k_min_ns: Option<u64>,
}

fn pattern_byte(i: usize) -> u8 {
    (i.wrapping_mul(167) >> 3) as u8
}

pub fn try_read() -> Trial {
    let source: Vec<u8> = (0..BYTES).map(pattern_byte).collect();
    let refuse = |why: String| Trial { refused: Some(why), read_4k_min_ns: None };
    let own = match std::env::current_exe() {
        Ok(path) => path,
        Err(e) => return refuse(format!("not tried: {e}")),
    };
    let output = Command::new(own)
        .args(["info", "--probe-cma"])
        .arg(format!("{},{}", std::process::id(), source.as_ptr() as usize))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    // The reader has ended, so the memory is no longer needed.
    drop(std::hint::black_box(source));
    match output {
        Ok(o) => serde_json::from_slice(&o.stdout).unwrap_or_else(|_| {
            refuse(format!("not tried: the process that reads the memory ended with {}", o.status))
        }),
        Err(e) => refuse(format!("not tried: {e}")),
    }
}

/// Runs as the reader: reads from a process and address (as `pid,address`) and prints the result.
pub fn probe_as_reader(argument: &str) -> io::Result<()> {
    let (pid, address) = argument
        .split_once(',')
        .and_then(|(p, a)| Some((p.parse::<libc::pid_t>().ok()?, a.parse::<usize>().ok()?)))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let trial = read_from(pid, address);
    writeln!(io::stdout(), "{}", serde_json::to_string(&trial)?)
}

fn read_from(pid: libc::pid_t, address: usize) -> Trial {
    let mut target = [0u8; BYTES];
    let mut best = u64::MAX;
    for _ in 0..20 {
        let start = clock::now_ns();
        let read = read_once(pid, address, &mut target);
        best = best.min(clock::now_ns() - start);
        let refused = match read {
            Ok(n) if n == BYTES => None,
            Ok(n) => Some(format!("the kernel read {n} of {BYTES} bytes")),
            Err(e) => Some(explain_refusal(e.raw_os_error().unwrap_or(libc::EFAULT))),
        };
        if refused.is_some() {
            return Trial { refused, read_4k_min_ns: None };
        }
    }
    let wrong = target.iter().enumerate().any(|(i, &b)| b != pattern_byte(i));
    Trial {
        refused: wrong.then(|| "the kernel returned wrong bytes".to_owned()),
        read_4k_min_ns: Some(best),
    }
}

fn read_once(pid: libc::pid_t, address: usize, target: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: target.len() };
    // SAFETY: the local part is a valid buffer of that length. The remote one is an address of the other process, which
    // the kernel checks.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn read__of_own_memory_brings_the_pattern_or_a_reason() {
        let source: Vec<u8> = (0..BYTES).map(pattern_byte).collect();
        let own = std::process::id() as libc::pid_t;
        let trial = read_from(own, source.as_ptr() as usize);
        assert_eq!(trial.refused.is_none(), trial.read_4k_min_ns.is_some(), "{trial:?}");
        drop(source);
    }

    #[test]
    fn read__of_other_bytes_is_found_out() {
        let source = vec![0u8; BYTES];
        let own = std::process::id() as libc::pid_t;
        assert!(read_from(own, source.as_ptr() as usize).refused.is_some());
    }

    #[test]
    fn read__of_an_address_that_is_not_there_has_a_reason() {
        let own = std::process::id() as libc::pid_t;
        let trial = read_from(own, 16);
        assert!(trial.refused.unwrap().contains("process_vm_readv"));
    }

    #[test]
    fn argument__that_is_malformed_is_refused() {
        assert!(probe_as_reader("12").is_err());
        assert!(probe_as_reader("a,b").is_err());
    }
}
