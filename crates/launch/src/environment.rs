//! Environment of the ranks of a program.

use crate::args::{App, Inherit, JobSpec};
use fastpath_job::{JOB_VARIABLE, PARENT_VARIABLE, is_identity};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Selects the variables of `environment` that the command line passes on. Variables about the launcher itself are
/// dropped.
pub fn select_variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>, spec: &JobSpec, app: &App,
) -> BTreeMap<OsString, OsString> {
    let inherit = app.inherit.as_ref().unwrap_or(&spec.inherit);
    let listed = |names: &[OsString], name: &OsStr| names.iter().any(|n| is_meant(n, name));
    let passes = |name: &OsStr| {
        let own = || name.as_bytes().starts_with(b"FASTPATH_") || listed(&spec.exported, name);
        match inherit {
            Inherit::All => true,
            Inherit::Only(names) => listed(names, name) || own(),
            Inherit::Except(names) => !listed(names, name) || own(),
        }
    };
    environment
        .into_iter()
        .filter(|(name, _)| passes(name) && !name.to_str().is_some_and(is_about_ourselves))
        .collect()
}

fn is_about_ourselves(name: &str) -> bool {
    let own =
        [JOB_VARIABLE, PARENT_VARIABLE, "FASTPATH_RANK", "FASTPATH_SIZE", "FASTPATH_SINGLETON"];
    own.contains(&name) || is_identity(name)
}

/// Returns the names given with `-x` that match no variable.
pub fn find_missing<V: IntoIterator<Item = (OsString, OsString)>>(
    environment: impl FnOnce() -> V, spec: &JobSpec,
) -> Vec<&OsString> {
    let mut missing: Vec<&OsString> = spec.exported.iter().collect();
    if !missing.is_empty() {
        for (name, _) in environment() {
            missing.retain(|wanted| !is_meant(wanted, &name));
        }
    }
    missing
}

/// Whether `name` matches `wanted`, in which a final `*` stands for any text.
fn is_meant(wanted: &OsStr, name: &OsStr) -> bool {
    match wanted.as_bytes().strip_suffix(b"*") {
        Some(start) => name.as_bytes().starts_with(start),
        None => wanted == name,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn environment() -> Vec<(OsString, OsString)> {
        let names = ["A", "AB", "B", "PATH", "FASTPATH_WAIT"];
        names.map(|n| (n.into(), "1".into())).to_vec()
    }

    fn names(spec: &JobSpec, app: &App) -> Vec<String> {
        let selected = select_variables(environment(), spec, app);
        let names = selected.into_keys().map(|n| n.into_string().unwrap());
        names.filter(|n| n != "FASTPATH_WAIT").collect()
    }

    fn only(names: &[&str]) -> Inherit {
        Inherit::Only(names.iter().map(OsString::from).collect())
    }

    #[test]
    fn variables__as_the_job_and_the_program_want_them() {
        let mut spec = JobSpec::default();
        let mut app = App::default();
        assert_eq!(names(&spec, &app), ["A", "AB", "B", "PATH"]);
        spec.inherit = only(&["B", "NONE"]);
        assert_eq!(names(&spec, &app), ["B"]);
        spec.exported = vec!["A*".into()];
        assert_eq!(names(&spec, &app), ["A", "AB", "B"]);
        app.inherit = Some(Inherit::Except(vec!["B".into(), "AB".into()]));
        assert_eq!(names(&spec, &app), ["A", "AB", "PATH"]);
        app.inherit = Some(Inherit::All);
        assert_eq!(names(&spec, &app).len(), 4);
    }

    #[test]
    fn variables__of_fastpath_are_always_passed_on() {
        let spec = JobSpec { inherit: only(&[]), ..JobSpec::default() };
        let selected = select_variables(environment(), &spec, &App::default());
        assert_eq!(selected.into_keys().collect::<Vec<_>>(), ["FASTPATH_WAIT"]);
    }

    #[test]
    fn missing__are_names_that_nothing_has() {
        let spec = JobSpec {
            exported: ["A", "B*", "C", "C*"].map(OsString::from).to_vec(),
            ..JobSpec::default()
        };
        assert_eq!(find_missing(environment, &spec), ["C", "C*"]);
    }
}
