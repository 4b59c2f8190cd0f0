//! Facts that this process can observe about its launcher.

use super::ancestors::is_ancestor;
use super::parents::{find_starter, has_rank_above};
use super::{LaunchPlace, SingletonReason, detect};
use crate::socket::peer_process;
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt;

/// Returns the position of this process ([`detect`]).
pub fn find_place() -> LaunchPlace {
    let peer = read_variable("PMI_FD").and_then(|text| find_peer(text.trim().parse().ok()?));
    let stale = is_task_of_slurm(
        read_variable("SLURM_TASK_PID").as_deref(),
        read_variable("PMIX_NAMESPACE").as_deref(),
    );
    let read = |name: &str| {
        let is_stale = stale && (name.starts_with("PMIX_") || name.starts_with("OMPI_"));
        read_variable(name).filter(|_| !is_stale)
    };
    match detect(&read, peer.as_deref()) {
        // An open `PMI_FD` was made for this process, because a rank does not pass its own descriptor on. The ancestors
        // therefore matter only without such a descriptor.
        LaunchPlace::Several(claim) if peer.is_none() && has_rank_above(&claim) => {
            LaunchPlace::Alone(SingletonReason::OfRank(claim))
        }
        place => place,
    }
}

/// Returns whether Slurm has started this process, while the variables of PMIx are those of an outer launcher.
fn is_task_of_slurm(task: Option<&str>, namespace: Option<&str>) -> bool {
    let is_task = task.and_then(|pid| pid.trim().parse().ok()) == Some(std::process::id());
    is_task && namespace.is_some_and(|name| !name.starts_with("slurm."))
}

/// Returns the value of a variable; `None` if it is not set or empty.
pub(super) fn read_variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the name of the process at the other end of a socket, if that process is an ancestor of this one, as a
/// launcher is. Empty if the kernel does not report the owner (TCP, another pid namespace). `None` if the descriptor is
/// no socket to an ancestor, because an intermediate launcher has closed it or reused the number.
fn find_peer(fd: RawFd) -> Option<String> {
    let kind = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
    if !kind.file_type().is_socket() {
        return None;
    }
    match peer_process(fd).and_then(|pid| u32::try_from(pid).ok()) {
        Some(pid) if pid > 0 => is_ancestor(pid, std::process::id()).then(|| name(pid)),
        _ => Some(String::new()),
    }
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns the engine's process that has started this one: the nearest ancestor without the variables of this process's
/// rank. A shell that the engine started for this process also has these variables, so it is passed over.
pub(crate) fn find_engine_process() -> Option<u32> {
    match find_place() {
        LaunchPlace::Several(claim) | LaunchPlace::Alone(SingletonReason::OfOne(claim)) => {
            find_starter(&claim)
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn peer__is_an_ancestor_or_none() {
        // Both ends of this pair are in this process, so the peer is not a launcher.
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(find_peer(socket.as_raw_fd()), None);
        let file = File::open("/dev/null").unwrap();
        assert_eq!(find_peer(file.as_raw_fd()), None);
        assert_eq!(find_peer(1 << 20), None);
        // The kernel does not report the owner of a TCP socket.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(find_peer(listener.as_raw_fd()), Some(String::new()));
    }

    #[test]
    fn task_of_slurm__is_no_rank_of_others() {
        let own = std::process::id().to_string();
        assert!(is_task_of_slurm(Some(&own), Some("prterun-a-1@1")));
        assert!(!is_task_of_slurm(Some(&own), Some("slurm.pmix.1.0")));
        assert!(!is_task_of_slurm(Some("1"), Some("prterun-a-1@1")));
        assert!(!is_task_of_slurm(Some(&own), None) && !is_task_of_slurm(None, Some("a")));
    }
}
