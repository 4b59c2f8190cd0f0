//! The tests: names, what they measure, how their times are to be read. One table (`data/tests.toml`), for the list
//! that people see, for the command line and for those who compare.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::data::{Text, leak, leak_all, table};
use crate::record::{Level, Of};

/// Who takes part in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Two ranks; the others rest.
    Pair,
    /// All ranks.
    Everyone,
    /// All ranks, in a job in which nothing else is done.
    Alone,
    /// Whole jobs, timed from outside.
    Job,
}

/// What a test is about: `fastpath bench GROUP` runs all of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Messages from rank to rank.
    Messages,
    /// One-sided communication.
    OneSided,
    /// Blocking collectives.
    Collectives,
    /// Files.
    Io,
    /// Many ranks: rings, pairs, what idle ranks cost.
    Scaling,
    /// Start and memory.
    Resources,
}

impl Group {
    /// All of them, in the order of the list, as the command line calls them.
    pub const ALL: [(Group, &str); 6] = [
        (Group::Messages, "messages"),
        (Group::OneSided, "one-sided"),
        (Group::Collectives, "collectives"),
        (Group::Io, "io"),
        (Group::Scaling, "scaling"),
        (Group::Resources, "resources"),
    ];
}

/// One test.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Test {
    /// Its name, here and in the program.
    #[serde(deserialize_with = "leak")]
    pub name: Text,
    /// What it measures, in one line.
    #[serde(deserialize_with = "leak")]
    pub text: Text,
    /// What it is about.
    pub group: Group,
    /// Who takes part.
    pub class: Class,
    /// What a time is of.
    pub of: Of,
    /// Levels at which it can run.
    #[serde(default = "only_mpi", deserialize_with = "leak_all")]
    pub levels: &'static [Level],
}

fn only_mpi() -> &'static [Level] {
    &[Level::Mpi]
}

#[derive(Deserialize)]
struct Catalogue {
    test: Vec<Test>,
    /// Other names for tests.
    alias: BTreeMap<String, String>,
}

table!(CATALOGUE: Catalogue = "tests.toml");

/// All tests, in the order in which they run.
pub fn list() -> &'static [Test] {
    &CATALOGUE.test
}

/// The test of this name, or of this other name.
pub fn find(name: &str) -> Option<&'static Test> {
    let name = CATALOGUE.alias.get(name).map_or(name, String::as_str);
    CATALOGUE.test.iter().find(|t| t.name == name)
}

/// The tests that a word of the command line names: a test, a group, or `all`.
pub fn select(word: &str) -> Vec<&'static Test> {
    if let Some(test) = find(word) {
        return vec![test];
    }
    let group = Group::ALL.iter().find(|(_, name)| *name == word);
    let wanted = |t: &&Test| word == "all" || group.is_some_and(|(group, _)| *group == t.group);
    CATALOGUE.test.iter().filter(wanted).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names__are_distinct_and_no_group_is_called_like_a_test() {
        let names: BTreeSet<_> = list().iter().map(|t| t.name).collect();
        assert_eq!(names.len(), list().len());
        assert!(Group::ALL.iter().all(|(_, g)| !names.contains(g)));
        assert!(!names.contains("all"));
    }

    #[test]
    fn select__takes_tests_aliases_groups_and_all() {
        assert_eq!(select("pingpong")[0].name, "latency");
        assert!(select("messages").iter().any(|t| t.name == "rate"));
        assert_eq!(select("all").len(), list().len());
        assert!(select("nonsense").is_empty());
    }

    #[test]
    fn aliases__mean_something() {
        for alias in CATALOGUE.alias.keys() {
            assert!(find(alias).is_some(), "{alias}");
        }
    }
}
