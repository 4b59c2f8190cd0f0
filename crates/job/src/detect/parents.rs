//! Evidence about the start of this process, found in its ancestors.
//!
//! A rank under an engine passes its variables on to processes that it starts, and these are not ranks. A script
//! between a launcher and its process may set, change and remove variables.

use super::ancestors::parent_of;
use super::{Claim, LaunchPlace, Launcher, SingletonReason, detect};
use crate::inspect::jobs::find_segments;
use fastpath_base::sync::Ordering;
use fastpath_base::tell::count;
use fastpath_segment::{RankPage, Segment};
use std::collections::BTreeMap;
use std::fs;

const PARENTS_MOST: usize = 100;

pub(super) type Environment = BTreeMap<String, String>;

/// Variables that identify a process to a launcher: names and values of those that are set.
struct RankVariables(Vec<(&'static str, String)>);

impl RankVariables {
    /// Returns the variables in the environment of a process.
    fn of(claim: &Claim, env: impl Fn(&str) -> Option<String>) -> RankVariables {
        let names = claim.names.into_iter();
        RankVariables(names.filter_map(|name| Some((name, env(name)?))).collect())
    }

    fn own(claim: &Claim) -> RankVariables {
        RankVariables::of(claim, |name| {
            Some(std::env::var_os(name)?.to_string_lossy().into_owned())
        })
    }

    /// Returns whether a process has these variables with equal values. It may have other variables, set by a script.
    fn are_those_of(&self, environment: &Environment) -> bool {
        let has = |(name, value): &(&str, String)| environment.get(*name) == Some(value);
        !self.0.is_empty() && self.0.iter().all(has)
    }
}

/// Returns whether an ancestor is a rank with this identity, and every process in between has the identity too. A
/// process with another identity was started by an inner launcher.
pub(super) fn has_rank_above(claim: &Claim) -> bool {
    has_rank_at(&RankVariables::own(claim), parents_of(own_number(), parent_of).map(Parent::look))
}

/// Returns the nearest ancestor without the variables that this launcher gave to this process. See [`find_above`].
pub(super) fn find_starter(claim: &Claim) -> Option<u32> {
    let own = RankVariables::own(claim);
    if own.0.is_empty() {
        return None;
    }
    find_above(parents_of(own_number(), parent_of).map(Parent::look), &own)
}

/// Returns the nearest ancestor that lacks these variables or is a launcher's process. The second condition is needed
/// because a launcher started by another one inherits the variables of the outer one.
fn find_above(mut parents: impl Iterator<Item = Parent>, own: &RankVariables) -> Option<u32> {
    parents.find(|parent| !parent.stands_at(own)).map(|parent| parent.pid)
}

struct Parent {
    pid: u32,
    name: String,
    /// Environment of the process; `None` if it cannot be read.
    environment: Option<Environment>,
    is_rank: bool,
    /// Number of ranks that the process has started, if it is our `mpiexec`.
    has_started: Option<usize>,
    /// Kind of the process's children, if it belongs to a launcher.
    starts: Option<Starts>,
}

/// Kind of the processes that a launcher's process starts.
#[derive(Clone, Copy)]
enum Starts {
    /// Ranks.
    Ranks(Launcher),
    /// The script or the shell of an allocation.
    Script,
}

impl Starts {
    fn find(name: &str, words: &str) -> Option<Starts> {
        let of_no_rank = [".batch]", ".interactive]", ".extern]"];
        Some(match name.trim_end() {
            "hydra_pmi_proxy" => Starts::Ranks(Launcher::Hydra),
            "slurmstepd" if of_no_rank.iter().any(|end| words.contains(end)) => Starts::Script,
            "slurmstepd" => Starts::Ranks(Launcher::Slurm),
            "flux-broker" => Starts::Script,
            "flux-shell" => Starts::Ranks(Launcher::Flux),
            "prterun" | "prte" | "prted" => Starts::Ranks(Launcher::Prrte),
            _ => return None,
        })
    }
}

impl Parent {
    fn look(pid: u32) -> Parent {
        let jobs = find_segments(pid);
        let mut own = jobs.iter().filter(|job| launcher_of(job) == pid);
        let read = |what| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let name = read("comm");
        Parent {
            pid,
            starts: Starts::find(&name, &read("cmdline")),
            name,
            environment: read_environment(pid),
            is_rank: jobs.iter().any(|job| is_rank_of(job, pid)),
            has_started: own.next().map(Segment::present),
        }
    }

    /// Returns whether the process has these variables and does not belong to a launcher.
    fn stands_at(&self, place: &RankVariables) -> bool {
        // If the environment cannot be read, the process belongs to another user, and so is no rank of this job.
        let has_same = |environment| place.are_those_of(environment);
        self.starts.is_none() && self.environment.as_ref().is_some_and(has_same)
    }

    fn describe(&self) -> String {
        format!("the parent process {} ({})", self.pid, self.name.trim_end())
    }
}

/// Returns evidence, for a process that seems to be alone, that a launcher started several processes and an
/// intermediate program removed or changed the variables.
pub(super) fn find_lost(alone: &SingletonReason) -> Option<String> {
    let parents = parents_of(own_number(), parent_of).map(Parent::look);
    match alone {
        SingletonReason::Unlaunched => find_removed(parents),
        SingletonReason::OfOne(claim) => find_changed(&RankVariables::own(claim), parents),
        SingletonReason::Asked | SingletonReason::OfRank(_) => None,
    }
}

/// Finds removed variables. The nearest ancestor that shows a launcher decides. If that ancestor is a rank, there is no
/// evidence, because a rank may start processes that are not ranks.
fn find_removed(mut parents: impl Iterator<Item = Parent>) -> Option<String> {
    while let Some(parent) = parents.next() {
        if parent.is_rank || parent.has_started == Some(1) {
            return None;
        }
        if let Some(ranks) = parent.has_started {
            let ranks = count(ranks as u64, "rank");
            return Some(format!("{} is Fastpath's mpiexec with {ranks}", parent.describe()));
        }
        match parent.starts {
            Some(Starts::Ranks(launcher)) => {
                return Some(format!("{} is a process of {launcher}", parent.describe()));
            }
            Some(Starts::Script) => return None,
            None => {}
        }
        let environment = parent.environment.as_ref()?;
        match detect_in(environment) {
            LaunchPlace::Several(claim) => {
                let place = RankVariables::of(&claim, |name| environment.get(name).cloned());
                let is_rank = has_rank_at(&place, parents);
                return (!is_rank).then(|| describe_claim(&parent, &claim));
            }
            LaunchPlace::Alone(SingletonReason::Unlaunched) | LaunchPlace::Own => {}
            LaunchPlace::Alone(_) => return None,
        }
    }
    None
}

/// Finds changed variables. The evidence is an ancestor with an equal identity whose variables name several processes.
fn find_changed(own: &RankVariables, mut parents: impl Iterator<Item = Parent>) -> Option<String> {
    while let Some(parent) = parents.next() {
        if parent.is_rank || !parent.stands_at(own) {
            return None;
        }
        let environment = parent.environment.as_ref()?;
        if let LaunchPlace::Several(claim) = detect_in(environment) {
            let is_rank = has_rank_at(own, parents);
            return (!is_rank).then(|| describe_claim(&parent, &claim));
        }
    }
    None
}

/// Returns whether one of the nearest ancestors is a rank. The search ends at the first ancestor that lacks the
/// variables `place` or is a launcher's process.
fn has_rank_at(place: &RankVariables, parents: impl Iterator<Item = Parent>) -> bool {
    parents.take_while(|parent| parent.stands_at(place)).any(|parent| parent.is_rank)
}

fn describe_claim(parent: &Parent, claim: &Claim) -> String {
    let Claim { variable, value, .. } = claim;
    format!("{} has {variable}={value}, which shows that it is {claim}", parent.describe())
}

fn detect_in(environment: &Environment) -> LaunchPlace {
    detect(&|name| environment.get(name).filter(|value| !value.is_empty()).cloned(), None)
}

/// Number of this process in the namespace of `/proc`, which may be an outer one.
fn own_number() -> u32 {
    let shown = fs::read_link("/proc/self").ok();
    let number = shown.and_then(|path| path.to_str()?.parse().ok());
    number.unwrap_or_else(std::process::id)
}

fn parents_of(pid: u32, parent_of: impl Fn(u32) -> Option<u32>) -> impl Iterator<Item = u32> {
    // Leave out process 1: it is a launcher only in a container, where its end ends all other processes.
    let above = move |&pid: &u32| parent_of(pid).filter(|&parent| parent > 1);
    std::iter::successors(above(&pid), above).take(PARENTS_MOST)
}

/// Returns whether a process owns a rank of a job.
fn is_rank_of(job: &Segment, pid: u32) -> bool {
    let owns = |page: &RankPage| page.owner_pid.load(Ordering::Relaxed) == pid;
    let mut pages = job.node_ranks().filter_map(|rank| job.page(rank));
    pages.any(owns)
}

fn launcher_of(job: &Segment) -> u32 {
    job.header().launcher.load(Ordering::Relaxed)
}

pub(super) fn read_environment(pid: u32) -> Option<Environment> {
    fs::read(format!("/proc/{pid}/environ")).ok().map(|text| parse_environment(&text))
}

fn parse_environment(text: &[u8]) -> Environment {
    let entries = text.split(|&byte| byte == 0);
    let pairs = entries.filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        let read = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        Some((read(&entry[..at]), read(&entry[at + 1..])))
    });
    pairs.collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn place(text: &[(&'static str, &str)]) -> RankVariables {
        RankVariables(text.iter().map(|&(name, value)| (name, value.to_owned())).collect())
    }

    fn parent(name: &str, environment: &str) -> Parent {
        Parent {
            pid: 9,
            name: format!("{name}\n"),
            environment: Some(parse_environment(environment.replace(' ', "\0").as_bytes())),
            is_rank: false,
            has_started: None,
            starts: Starts::find(name, ""),
        }
    }

    #[test]
    fn place__are_those_of_a_shell_that_has_set_more() {
        let own = place(&[("PMI_FD", "a=b"), ("PMI_RANK", "1")]);
        let is_same = |text: &str| own.are_those_of(&parse_environment(text.as_bytes()));
        assert!(is_same("PATH=/bin\0PMI_RANK=1\0x\0PMI_FD=a=b\0PMI_X=1\0"));
        assert!(!is_same("PMI_RANK=0\0PMI_FD=a=b\0"));
        assert!(!is_same("PMI_RANK=1\0") && !is_same(""));
        assert!(!place(&[]).are_those_of(&parse_environment(b"PMI_RANK=1\0")));
    }

    #[test]
    fn removed__is_what_the_nearest_parent_that_knows_says() {
        let two = "PMI_FD=9 PMI_RANK=0 PMI_SIZE=2";
        let found = |parents: Vec<Parent>| find_removed(parents.into_iter());
        let shell = || parent("sh", "PATH=/bin");
        let said = found(vec![shell(), parent("sh", two)]).unwrap();
        assert!(said.contains("the parent process 9 (sh) has PMI_SIZE=2"), "{said}");
        let said = found(vec![shell(), parent("hydra_pmi_proxy", "")]).unwrap();
        assert!(said.contains("is a process of Hydra"), "{said}");
        // The environment of a process of root cannot be read.
        let step = Parent { environment: None, ..parent("slurmstepd", "") };
        assert!(found(vec![step]).is_some_and(|said| said.contains("is a process of srun")));
        let mpiexec = |ranks| Parent { has_started: Some(ranks), ..parent("mpiexec", "") };
        assert!(found(vec![shell(), mpiexec(2)]).is_some_and(|said| said.contains("2 ranks")));
        // The ancestors in the remaining cases are no evidence of several processes.
        assert_eq!(found(vec![mpiexec(1), parent("sh", two)]), None);
        let script =
            Parent { starts: Starts::find("slurmstepd\n", "slurmstepd: [7.batch]"), ..shell() };
        assert_eq!(found(vec![shell(), script, parent("sh", two)]), None);
        assert_eq!(found(vec![shell(), parent("flux-broker", "FLUX_JOB_SIZE=2")]), None);
        let rank = || Parent { is_rank: true, ..parent("python3", two) };
        assert_eq!(found(vec![shell(), rank(), parent("sh", two)]), None);
        assert_eq!(found(vec![parent("sh", two), rank(), shell()]), None);
        assert_eq!(found(vec![parent("sh", "PMI_FD=9 PMI_SIZE=1"), parent("sh", two)]), None);
        assert_eq!(found(vec![shell(), shell()]), None);
    }

    #[test]
    fn changed__is_what_a_parent_with_the_same_place_was_told() {
        let own = place(&[("PMI_FD", "9"), ("PMI_RANK", "0")]);
        let found = |text: &str| find_changed(&own, [parent("sh", text)].into_iter());
        let two = "PMI_FD=9 PMI_RANK=0 PMI_SIZE=2";
        assert!(found(two).is_some());
        let rank = Parent { is_rank: true, ..parent("python3", two) };
        assert_eq!(find_changed(&own, [parent("sh", two), rank].into_iter()), None);
        assert_eq!(found("PMI_FD=9 PMI_RANK=0 PMI_SIZE=1"), None);
        // A launcher's process inside another launcher has that launcher's variables, which may equal its own.
        let inner = parent("hydra_pmi_proxy", two);
        assert_eq!(find_changed(&own, [inner, parent("sh", two)].into_iter()), None);
        // Variables of an outer launcher are no evidence.
        assert_eq!(found("PMI_FD=7 PMI_RANK=0 PMI_SIZE=2"), None);
        assert_eq!(found("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0"), None);
    }

    #[test]
    fn engine__is_the_first_parent_with_other_variables_or_a_launcher_s() {
        let own = place(&[("PMI_FD", "9"), ("PMI_RANK", "0")]);
        let above = |names: &[(&str, &str)]| {
            let parents = names.iter().zip(11..);
            let parents = parents.map(|(&(name, text), pid)| Parent { pid, ..parent(name, text) });
            find_above(parents.collect::<Vec<_>>().into_iter(), &own)
        };
        let same = "PMI_FD=9 PMI_RANK=0";
        assert_eq!(above(&[("sh", same), ("sh", same), ("mpiexec", "PATH=/bin")]), Some(13));
        assert_eq!(above(&[("sh", same), ("hydra_pmi_proxy", same), ("sh", "")]), Some(12));
        assert_eq!(above(&[("sh", same)]), None);
        assert_eq!(above(&[]), None);
    }

    #[test]
    fn parents__end_below_the_first_process() {
        let above = |pid: u32| Some(pid - 1);
        assert_eq!(parents_of(5, above).collect::<Vec<_>>(), [4, 3, 2]);
        assert_eq!(parents_of(500, above).count(), PARENTS_MOST);
        assert_eq!(parents_of(9, |_| None).count(), 0);
    }

    #[test]
    fn rank__is_who_has_a_page_in_a_job() {
        let own = std::process::id();
        let job = Segment::create(2, 1).unwrap();
        assert!(!is_rank_of(&job, own));
        job.page(1).unwrap().owner_pid.store(own, Ordering::Relaxed);
        assert!(is_rank_of(&job, own) && !is_rank_of(&job, own + 1));
        job.header().launcher.store(9, Ordering::Relaxed);
        assert_eq!(launcher_of(&job), 9);
    }
}
