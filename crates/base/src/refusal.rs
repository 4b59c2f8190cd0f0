//! Texts for refusals of the kernel: the call, the amount, the limit and the remedy.
#![allow(unsafe_code)]

use std::fmt;
use std::io;

/// Describes a failed system call, with a remedy if a system-call filter is the likely cause.
pub fn describe_call(call: &str, cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => format!(
            "{call}: {cause}; if a container or sandbox (seccomp) refuses this system call, allow \
             it there \
             (docker, podman: --security-opt seccomp=unconfined)"
        ),
        _ => format!("{call}: {cause}"),
    }
}

/// Returns an error with the address space requested and the limits of this process.
pub fn describe_mapping(bytes: u64, cause: &io::Error) -> io::Error {
    let mut text = format!("cannot reserve {} of address space: {cause}", ByteSize(bytes));
    if cause.raw_os_error() == Some(libc::ENOMEM) {
        let limits = [
            (libc::RLIMIT_AS, "address space", "ulimit -v"),
            (libc::RLIMIT_DATA, "private memory", "ulimit -d"),
        ];
        for (resource, what, command) in limits {
            if let Some(limit) = read_limit(resource) {
                text += &format!(
                    "; the {what} of a process is limited to {} (`{command}`)",
                    ByteSize(limit)
                );
            }
        }
    }
    io::Error::new(cause.kind(), text)
}

/// Returns the soft limit (`getrlimit`); `None` if there is no limit or the call fails.
pub fn read_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is valid, and a failure leaves it unchanged.
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A number of bytes, displayed in B, KiB, MiB or GiB, rounded down. MiB and GiB are used for at least 10 of the unit.
#[derive(Clone, Copy, Debug)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 10 << 30 => write!(f, "{} GiB", n >> 30),
            n if n >= 10 << 20 => write!(f, "{} MiB", n >> 20),
            n if n >= 1 << 10 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} B"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn call__that_a_filter_refuses_comes_with_the_remedy() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let text = describe_call("memfd_create", &io::Error::from_raw_os_error(errno));
            assert!(text.starts_with("memfd_create: ") && text.contains("seccomp"));
        }
        let text = describe_call("pipe2", &io::Error::from_raw_os_error(libc::EMFILE));
        assert!(!text.contains("seccomp"), "{text}");
    }

    #[test]
    fn mapping__says_how_much_was_wanted() {
        let text =
            describe_mapping(3 << 20, &io::Error::from_raw_os_error(libc::ENOMEM)).to_string();
        assert!(text.starts_with("cannot reserve 3072 KiB of address space: "), "{text}");
    }

    #[test]
    fn limit__is_the_one_that_the_kernel_tells_of() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files"));
        let soft = line.unwrap().split_whitespace().nth(3).unwrap();
        let known =
            read_limit(libc::RLIMIT_NOFILE).map_or("unlimited".to_owned(), |n| n.to_string());
        assert_eq!(known, soft);
    }

    #[test]
    fn bytes__have_a_unit_that_fits() {
        let texts =
            [0, 1023, 1024, 10 << 20, (10 << 30) - 1, 10 << 30].map(|n| ByteSize(n).to_string());
        assert_eq!(texts, ["0 B", "1023 B", "1 KiB", "10 MiB", "10239 MiB", "10 GiB"]);
    }
}
