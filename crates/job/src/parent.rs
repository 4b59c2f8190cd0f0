//! The variable by which a process that spawns another job passes its port on.

/// Variable with the port, for `mpiexec` and its ranks.
pub const PARENT_VARIABLE: &str = "FASTPATH_INTERNAL_PARENT";
/// Prefix of the port for an `mpiexec` that is to spawn. An `mpiexec` called by a rank inherits a port without this
/// prefix.
const FOR_LAUNCHER: &str = "spawn ";

/// Returns the variable's value for an `mpiexec` that is to spawn.
pub fn tell_launcher(port: &str) -> String {
    format!("{FOR_LAUNCHER}{port}")
}

/// Returns the port that this process, a launcher, was given.
pub fn read_of_launcher() -> Option<String> {
    let told = std::env::var(PARENT_VARIABLE).ok()?;
    told.strip_prefix(FOR_LAUNCHER).map(str::to_owned)
}

/// Returns the variable's value for the ranks of a job.
pub fn tell(job_id: u64, port: &str) -> String {
    format!("{job_id:016x} {port}")
}

pub(crate) fn read(told: &str, job_id: u64) -> Option<&str> {
    // The value is of another job if a rank has started this process.
    let (job, port) = told.split_once(' ')?;
    (u64::from_str_radix(job, 16) == Ok(job_id)).then_some(port)
}

const BY_PMIX: &str = "pmix ";

/// Returns the variable's value for processes spawned by PMIx: namespace and rank of their parent, and its port.
pub(crate) fn tell_by_pmix((namespace, rank): (&str, u32), port: &str) -> String {
    format!("{BY_PMIX}{rank} {port} {namespace}")
}

/// Returns namespace and rank of the process that spawned this one, and its port.
pub(crate) fn read_of_pmix(told: &str) -> Option<((&str, u32), &str)> {
    let mut fields = told.strip_prefix(BY_PMIX)?.splitn(3, ' ');
    let (rank, port, namespace) = (fields.next()?, fields.next()?, fields.next()?);
    Some(((namespace, rank.parse().ok()?), port))
}

/// Returns whether the variable shows that PMIx spawned a process from another namespace than `namespace`.
pub(crate) fn is_told_by_pmix(told: &str, namespace: &str) -> bool {
    read_of_pmix(told).is_some_and(|((parent, _), _)| parent != namespace)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parent__is_of_the_job_that_was_told() {
        assert_eq!(read(&tell(7, "a port"), 7), Some("a port"));
        assert_eq!(read(&tell(7, "a port"), 8), None);
        assert_eq!(read(&tell_launcher("a port"), 7), None);
    }

    #[test]
    fn parent__is_told_with_its_namespace() {
        let told = &*tell_by_pmix(("prterun-a@1", 3), "fastpath:1:0:1:key:5:10.0.0.1");
        let read = Some((("prterun-a@1", 3), "fastpath:1:0:1:key:5:10.0.0.1"));
        assert_eq!(read_of_pmix(told), read);
        assert!(is_told_by_pmix(told, "prterun-a@2"));
        assert!(!is_told_by_pmix(told, "prterun-a@1"));
        for wrong in ["", "pmix ", "pmix 3 port", "pmix x port a@1", "0000 port", "spawn port"] {
            assert_eq!(read_of_pmix(wrong), None, "{wrong}");
        }
    }
}
