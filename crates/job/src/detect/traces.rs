#![allow(unsafe_code)]
//! Traces of a launcher with several ranks, for a process whose variables and ancestors show none. Either the process
//! changed the size itself, or its ancestors are in another process namespace.

use super::environment::find_engine_process;
use super::parents::{self, Environment, read_environment};
use super::{Claim, Launcher, SingletonReason};
use crate::inspect::jobs::find_memory;
use crate::socket::peer_process;
use fastpath_base::config::{Key, VARIABLES};
use fastpath_base::tell;
use std::fs;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::RawFd;

/// Returns evidence, for a process that seems to be alone, that a launcher has started several processes.
pub(crate) fn find_lost(alone: &SingletonReason) -> Option<String> {
    parents::find_lost(alone).or_else(|| find_others(alone))
}

/// Returns proof that a launcher has started other ranks, although this process's variables call it alone.
fn find_others(alone: &SingletonReason) -> Option<String> {
    match alone {
        SingletonReason::Unlaunched => find_inherited_memory(),
        SingletonReason::OfOne(claim) => {
            let env = |name: &str| std::env::var(name).ok();
            find_more_on_host(claim, env)
                .or_else(|| find_sibling(claim, env, children_of(find_engine_process()?)))
        }
        SingletonReason::Asked | SingletonReason::OfRank(_) => None,
    }
}

/// Warns of a possible launcher in another process namespace. The hint is an open socket of the kind that launchers
/// leave to their ranks, which is not proof.
pub(crate) fn warn_of_hint(alone: &SingletonReason) {
    if *alone != SingletonReason::Unlaunched {
        return;
    }
    if let Some(fd) = inherited().find(|&fd| fd > 2 && leads_outside(fd)) {
        tell!(
            "fastpath: this process is rank 0 of 1, because no variable of a launcher is set. But \
             descriptor {fd} is a socket to a process outside of this process namespace, such as a \
             launcher. If a launcher has started several processes, pass the launcher's variables \
             to these processes ({}=1 silences this warning)",
            VARIABLES[Key::Singleton as usize].name
        );
    }
}

/// Returns evidence if the launcher's variable for the number of ranks on this host is above 1, the size that it gives
/// to the job.
fn find_more_on_host(claim: &Claim, env: impl Fn(&str) -> Option<String>) -> Option<String> {
    // A launcher inside Hydra passes Hydra's variables on, so only Hydra's own process is a sign of Hydra.
    let is_hydra = claim.sign.contains("hydra_pmi_proxy");
    let name = match claim.launcher {
        Launcher::Hydra if is_hydra => "MPI_LOCALNRANKS",
        Launcher::Slurm => "SLURM_STEP_TASKS_PER_NODE",
        _ => return None,
    };
    let value = env(name)?;
    // Slurm writes `2(x3)` for two ranks on each of three nodes, and `2,1` for different numbers on two nodes.
    let count = value.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()?;
    let Claim { variable, value: size, .. } = claim;
    (count > 1).then(|| format!("{variable}={size}, but {name}={value}"))
}

/// Finds another process of the job, with another rank, that the launcher's process has started.
fn find_sibling(
    claim: &Claim, env: impl Fn(&str) -> Option<String>,
    mut children: impl Iterator<Item = (u32, Environment)>,
) -> Option<String> {
    let [mark, rank_name] = claim.names;
    let own = env(rank_name)?;
    // These two variables are equal in all ranks of a job, and so identify it. Other marks differ between ranks.
    let names_job = ["PMIX_NAMESPACE", "PMI_PORT"].contains(&mark);
    let is_of_job =
        |environment: &Environment| !names_job || environment.get(mark).cloned() == env(mark);
    let (pid, rank) = children.find_map(|(pid, environment)| {
        let rank = environment.get(rank_name)?;
        let is_other = *rank != own && rank.trim().parse::<u64>().is_ok();
        (is_other && is_of_job(&environment)).then(|| (pid, rank.clone()))
    })?;
    let Claim { variable, value, launcher, .. } = claim;
    Some(format!(
        "{variable}={value}, but {launcher} has started process {pid} with {rank_name}={rank}"
    ))
}

fn children_of(pid: u32) -> impl Iterator<Item = (u32, Environment)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
    });
    pids.filter_map(|pid| Some((pid, read_environment(pid)?)))
}

/// Returns evidence that Fastpath's `mpiexec` started this process as one of several ranks: an inherited descriptor of
/// the job's memory. The descriptor is no false sign in a child of a rank, because a rank that attaches sets it to
/// close on exec.
fn find_inherited_memory() -> Option<String> {
    inherited().find_map(|fd| {
        let ranks = find_memory(fd)?.present();
        let says = || {
            format!(
                "descriptor {fd} is the memory of a job with {ranks} ranks of Fastpath's mpiexec"
            )
        };
        (ranks > 1).then(says)
    })
}

/// Returns descriptors that stay open across exec.
fn inherited() -> impl Iterator<Item = RawFd> {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    // SAFETY: plain fcntl, which fails on a closed descriptor.
    numbers.filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == 0)
}

/// Returns whether a descriptor is one end of a pair of local sockets made by a process outside this process namespace.
fn leads_outside(fd: RawFd) -> bool {
    let mut name = MaybeUninit::<libc::sockaddr_un>::zeroed();
    let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, and refuses a descriptor that is not a socket.
    let rc = unsafe { libc::getpeername(fd, name.as_mut_ptr().cast(), &mut bytes) };
    // SAFETY: all zeros, or what the kernel has written, is a valid address.
    let family = i32::from(unsafe { name.assume_init() }.sun_family);
    // The two ends of a socket pair have no names.
    let is_pair =
        rc == 0 && family == libc::AF_UNIX && bytes as usize <= size_of::<libc::sa_family_t>();
    is_pair && peer_process(fd) == Some(0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::{LaunchPlace, detect};
    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn lookup<'a>(pairs: Pairs<'a>) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    /// Makes the claim of variables that describe a job of one rank.
    fn claim(pairs: Pairs<'_>, peer: Option<&str>) -> Claim {
        match detect(&lookup(pairs), peer) {
            LaunchPlace::Alone(SingletonReason::OfOne(claim)) => claim,
            other => panic!("{other:?}"),
        }
    }

    fn child(pid: u32, pairs: Pairs<'_>) -> (u32, Environment) {
        (pid, pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn ranks_on_host__above_the_size__contradict_it() {
        let hydra = |count, peer| {
            let pairs = [
                ("PMI_FD", "9"),
                ("PMI_RANK", "0"),
                ("PMI_SIZE", "1"),
                ("MPI_LOCALRANKID", "0"),
                ("MPI_LOCALNRANKS", count),
            ];
            find_more_on_host(&claim(&pairs, Some(peer)), lookup(&pairs))
        };
        assert_eq!(hydra("2", "hydra_pmi_proxy").unwrap(), "PMI_SIZE=1, but MPI_LOCALNRANKS=2");
        assert_eq!(hydra("1", "hydra_pmi_proxy"), None);
        // A process inside a rank of Hydra has Hydra's variables without Hydra as its peer.
        assert_eq!(hydra("2", "mpiexec.gforker"), None);
        let slurm = |count| {
            let pairs = [
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_STEP_NUM_TASKS", "1"),
                ("SLURM_STEP_TASKS_PER_NODE", count),
            ];
            find_more_on_host(&claim(&pairs, None), lookup(&pairs))
        };
        assert!(slurm("2(x3)").is_some() && slurm("4,2").is_some());
        assert!(slurm("1").is_none() && slurm("1(x2)").is_none());
    }

    #[test]
    fn sibling__with_another_rank__contradicts_the_size() {
        let own = [("PMI_FD", "9"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
        let found = |children: Vec<(u32, Environment)>| {
            find_sibling(&claim(&own, Some("python3")), lookup(&own), children.into_iter())
        };
        let said = found(vec![child(5, &own), child(6, &[("PMI_RANK", "1")])]).unwrap();
        assert!(said.contains("process 6 with PMI_RANK=1"), "{said}");
        assert_eq!(found(vec![child(5, &own), child(6, &[("PATH", "/bin")])]), None);
        // The launcher's process may have children of several jobs, and only a rank of the same job is evidence.
        let own = [("PMIX_NAMESPACE", "slurm.pmix.1.0"), ("PMIX_RANK", "0"), ("SLURM_NTASKS", "1")];
        let claim = claim(&own, None);
        let find =
            |pairs: Pairs<'_>| find_sibling(&claim, lookup(&own), [child(7, pairs)].into_iter());
        assert!(find(&[("PMIX_NAMESPACE", "slurm.pmix.1.0"), ("PMIX_RANK", "1")]).is_some());
        assert!(find(&[("PMIX_NAMESPACE", "slurm.pmix.1.1"), ("PMIX_RANK", "1")]).is_none());
    }

    #[test]
    fn pair_of_sockets__made_here__leads_nowhere_outside() {
        use std::os::fd::AsRawFd;
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_process(one.as_raw_fd()), Some(std::process::id() as libc::pid_t));
        assert!(!leads_outside(one.as_raw_fd()));
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert!(peer_process(file.as_raw_fd()).is_none() && !leads_outside(file.as_raw_fd()));
    }
}
