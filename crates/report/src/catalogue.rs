//! Catalogue of tests: names, descriptions, and the meaning of their times. One table (`data/tests.toml`) serves the
//! list for users, the command line and comparisons.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::data::{Text, leak, leak_all, table};
use crate::record::{Level, Quantity};

/// Participants of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Participants {
    /// Two ranks; the others are idle.
    Pair,
    /// All ranks.
    Everyone,
    /// All ranks, in a job that runs nothing else.
    Alone,
    /// Whole jobs, timed from outside.
    Job,
}

/// Subject of a test: `fastpath bench GROUP` runs all tests of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestGroup {
    /// Messages from rank to rank.
    Messages,
    /// One-sided communication.
    OneSided,
    /// Blocking collectives.
    Collectives,
    /// MPI-IO.
    Io,
    /// Many ranks: rings, pairs, the cost of idle ranks.
    Scaling,
    /// Startup and memory.
    Resources,
}

impl TestGroup {
    /// All groups in list order, with their names on the command line.
    pub const ALL: [(TestGroup, &str); 6] = [
        (TestGroup::Messages, "messages"),
        (TestGroup::OneSided, "one-sided"),
        (TestGroup::Collectives, "collectives"),
        (TestGroup::Io, "io"),
        (TestGroup::Scaling, "scaling"),
        (TestGroup::Resources, "resources"),
    ];
}

/// One test.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Test {
    /// Name, here and in the program.
    #[serde(deserialize_with = "leak")]
    pub name: Text,
    /// Description in one line.
    #[serde(deserialize_with = "leak")]
    pub text: Text,
    /// Group to which the test belongs.
    pub group: TestGroup,
    /// Participants.
    pub class: Participants,
    /// Quantity that one time of the test measures.
    pub of: Quantity,
    /// Levels at which the test can run.
    #[serde(default = "only_mpi", deserialize_with = "leak_all")]
    pub levels: &'static [Level],
}

fn only_mpi() -> &'static [Level] {
    &[Level::Mpi]
}

#[derive(Deserialize)]
struct Catalogue {
    test: Vec<Test>,
    alias: BTreeMap<String, String>,
}

table!(CATALOGUE: Catalogue = "tests.toml");

/// Lists all tests, in the order in which they run.
pub fn list() -> &'static [Test] {
    &CATALOGUE.test
}

/// Finds a test by its name or an alternative name.
pub fn find(name: &str) -> Option<&'static Test> {
    let name = CATALOGUE.alias.get(name).map_or(name, String::as_str);
    CATALOGUE.test.iter().find(|t| t.name == name)
}

/// Lists the alternative names of a test.
pub fn list_aliases(name: &str) -> impl Iterator<Item = &'static str> {
    let of_test = move |(_, test): &(&String, &String)| test.as_str() == name;
    CATALOGUE.alias.iter().filter(of_test).map(|(alias, _)| alias.as_str())
}

/// Returns the test, alternative name or group whose name is most similar to `word`; `None` if none is similar.
pub fn suggest(word: &str) -> Option<&'static str> {
    let tests = CATALOGUE.test.iter().map(|test| test.name);
    let aliases = CATALOGUE.alias.keys().map(String::as_str);
    let names = tests.chain(aliases).chain(TestGroup::ALL.map(|(_, name)| name));
    let compare = |name: &'static str| (strsim::damerau_levenshtein(name, word), name);
    let (distance, nearest) =
        names.filter(|name| word.len() <= 2 * name.len()).map(compare).min()?;
    (distance <= nearest.len() / 3).then_some(nearest)
}

/// Selects the tests that a word of the command line names: a test, a group, or `all`.
pub fn select(word: &str) -> Vec<&'static Test> {
    if let Some(test) = find(word) {
        return vec![test];
    }
    let group = TestGroup::ALL.iter().find(|(_, name)| *name == word);
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
        assert!(TestGroup::ALL.iter().all(|(_, g)| !names.contains(g)));
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
    fn suggest__finds_a_similar_name() {
        assert_eq!(suggest("pingpongs"), Some("pingpong"));
        assert_eq!(suggest("latncy"), Some("latency"));
        assert_eq!(suggest("mesages"), Some("messages"));
        for other in ["", "nonsense", &"x".repeat(1 << 20)] {
            assert_eq!(suggest(other), None);
        }
    }

    #[test]
    fn aliases__mean_something() {
        assert_eq!(list_aliases("latency").collect::<Vec<_>>(), ["ping-pong", "pingpong", "send"]);
        assert_eq!(list_aliases("rate").count(), 0);
        for alias in CATALOGUE.alias.keys() {
            assert!(find(alias).is_some(), "{alias}");
        }
    }
}
