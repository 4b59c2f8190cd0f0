//! The tests: names, what they measure, how their times are to be read. One table, for the list
//! that people see, for the command line and for those who compare.

use crate::record::{Level, Of};

/// Who takes part in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Messages from rank to rank.
    Messages,
    /// One-sided communication.
    OneSided,
    /// Blocking collectives.
    Collectives,
    /// Many ranks: rings, pairs, what idle ranks cost.
    Scaling,
    /// Start and memory.
    Resources,
}

impl Group {
    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Messages => "messages",
            Group::OneSided => "one-sided",
            Group::Collectives => "collectives",
            Group::Scaling => "scaling",
            Group::Resources => "resources",
        }
    }

    /// All of them, in the order of the list.
    pub const ALL: [Group; 5] = [
        Group::Messages,
        Group::OneSided,
        Group::Collectives,
        Group::Scaling,
        Group::Resources,
    ];
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its name, here and in the program.
    pub name: &'static str,
    /// What it measures, in one line.
    pub text: &'static str,
    /// What it is about.
    pub group: Group,
    /// Who takes part.
    pub class: Class,
    /// What a time is of.
    pub of: Of,
    /// Ranks when none are asked for.
    pub ranks: u32,
    /// Levels at which it can run.
    pub levels: &'static [Level],
}

const MPI: &[Level] = &[Level::Mpi];
const ALL: &[Level] = &[Level::Verbs, Level::Transport, Level::Protocol, Level::Mpi];

const fn at_all_levels(test: Test) -> Test {
    Test {
        levels: ALL,
        ..test
    }
}

const fn pair(name: &'static str, of: Of, text: &'static str) -> Test {
    Test {
        name,
        text,
        group: Group::Messages,
        class: Class::Pair,
        of,
        ranks: 2,
        levels: MPI,
    }
}

const fn everyone(name: &'static str, group: Group, of: Of, text: &'static str) -> Test {
    Test {
        name,
        text,
        group,
        class: Class::Everyone,
        of,
        ranks: 2,
        levels: MPI,
    }
}

const fn collective(name: &'static str, text: &'static str) -> Test {
    everyone(name, Group::Collectives, Of::Call, text)
}

/// Every test.
pub const TESTS: &[Test] = &[
    at_all_levels(pair(
        "latency",
        Of::HalfRoundTrip,
        "half a round trip between the first and the last rank",
    )),
    at_all_levels(pair(
        "bandwidth",
        Of::Message,
        "large messages in windows, each window acknowledged",
    )),
    pair(
        "bibandwidth",
        Of::Message,
        "large messages in windows in both directions at once",
    ),
    at_all_levels(pair(
        "rate",
        Of::Message,
        "small messages in windows, each window acknowledged",
    )),
    everyone(
        "multirate",
        Group::Messages,
        Of::Message,
        "small messages in windows, lower half of the ranks to the upper half",
    ),
    everyone(
        "incast",
        Group::Messages,
        Of::Message,
        "messages in windows from all other ranks to rank 0 at once",
    ),
    everyone(
        "sendrecv",
        Group::Messages,
        Of::Call,
        "MPI_Sendrecv to the right and from the left, all ranks",
    ),
    everyone(
        "halo",
        Group::Messages,
        Of::Call,
        "a halo: rows of 64 doubles, strided in memory, to and from both neighbours at once, all ranks",
    ),
    pair(
        "unexpected",
        Of::Message,
        "messages that come before they are asked for",
    ),
    pair(
        "wildcard",
        Of::HalfRoundTrip,
        "half a round trip, received by MPI_ANY_SOURCE, MPI_ANY_TAG or both",
    ),
    Test {
        name: "first",
        text: "round trips right after MPI_Init: the first, the worst of the next 50, those after them",
        group: Group::Messages,
        class: Class::Alone,
        of: Of::RoundTrip,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "overlap",
        text: "share of a transfer during which both sides, or the receiver, could compute",
        group: Group::Messages,
        class: Class::Pair,
        of: Of::Overlap,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "put",
        text: "MPI_Put, flushed one by one and in windows",
        group: Group::OneSided,
        class: Class::Pair,
        of: Of::RoundTrip,
        ranks: 2,
        levels: ALL,
    },
    Test {
        name: "get",
        text: "MPI_Get, flushed one by one and in windows",
        group: Group::OneSided,
        class: Class::Pair,
        of: Of::RoundTrip,
        ranks: 2,
        levels: ALL,
    },
    Test {
        name: "atomics",
        text: "one 64-bit word: MPI_Fetch_and_op, MPI_Compare_and_swap, MPI_Accumulate, each flushed",
        group: Group::OneSided,
        class: Class::Pair,
        of: Of::RoundTrip,
        ranks: 2,
        levels: &[Level::Protocol, Level::Mpi],
    },
    Test {
        name: "flush",
        text: "MPI_Win_flush with nothing outstanding",
        group: Group::OneSided,
        class: Class::Pair,
        of: Of::Call,
        ranks: 2,
        levels: ALL,
    },
    collective("barrier", "MPI_Barrier"),
    collective("bcast", "MPI_Bcast, the root passing from rank to rank"),
    collective("gather", "MPI_Gather, the root passing from rank to rank"),
    collective("gatherv", "MPI_Gatherv, the root passing from rank to rank"),
    collective("scatter", "MPI_Scatter, the root passing from rank to rank"),
    collective(
        "scatterv",
        "MPI_Scatterv, the root passing from rank to rank",
    ),
    collective("allgather", "MPI_Allgather"),
    collective("allgatherv", "MPI_Allgatherv"),
    collective("alltoall", "MPI_Alltoall"),
    collective("alltoallv", "MPI_Alltoallv"),
    collective("alltoallw", "MPI_Alltoallw"),
    collective(
        "reduce",
        "MPI_Reduce, sum of doubles, the root passing from rank to rank",
    ),
    collective("allreduce", "MPI_Allreduce, sum of doubles"),
    collective("reduce_scatter", "MPI_Reduce_scatter, sum of doubles"),
    collective(
        "reduce_scatter_block",
        "MPI_Reduce_scatter_block, sum of doubles",
    ),
    collective(
        "scan",
        "MPI_Scan, sum of doubles, up and down the ranks in turn",
    ),
    collective(
        "exscan",
        "MPI_Exscan, sum of doubles, up and down the ranks in turn",
    ),
    Test {
        name: "pairs",
        text: "ping-pong of every pair, one at a time, as HPCC defines it: a sample is a pair's best",
        group: Group::Scaling,
        class: Class::Everyone,
        of: Of::HalfRoundTrip,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "ring-natural",
        text: "ring of all ranks in order, as HPCC defines it; after 1 and after 100 steps",
        group: Group::Scaling,
        class: Class::Everyone,
        of: Of::Hop,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "ring-random",
        text: "rings of all ranks in random orders, as HPCC defines it; after 1 and after 100 steps",
        group: Group::Scaling,
        class: Class::Everyone,
        of: Of::Hop,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "idle",
        text: "half a round trip of ranks 0 and N-1 while the others are in a barrier, asleep, yielding, spinning",
        group: Group::Scaling,
        class: Class::Pair,
        of: Of::HalfRoundTrip,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "matrix",
        text: "half a round trip of each pair of ranks, the others in a barrier",
        group: Group::Scaling,
        class: Class::Pair,
        of: Of::HalfRoundTrip,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "exit-skew",
        text: "from the first to the last rank that leaves a collective, each call after a barrier",
        group: Group::Scaling,
        class: Class::Everyone,
        of: Of::Skew,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "memory",
        text: "memory of each rank after talking to its neighbours, then to all; a sample is a rank",
        group: Group::Resources,
        class: Class::Alone,
        of: Of::Memory,
        ranks: 2,
        levels: MPI,
    },
    Test {
        name: "startup",
        text: "a job from its start to its end; its ranks call MPI_Init and MPI_Finalize",
        group: Group::Resources,
        class: Class::Job,
        of: Of::Process,
        ranks: 2,
        levels: MPI,
    },
];

/// Names that people know, and the test they mean.
const ALIASES: &[(&str, &str)] = &[
    ("pingpong", "latency"),
    ("ping-pong", "latency"),
    ("send", "latency"),
    ("bw", "bandwidth"),
    ("bibw", "bibandwidth"),
    ("ring", "ring-natural"),
];

/// The test of that name, or the one that an alias means.
pub fn find(name: &str) -> Option<&'static Test> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, meant)| meant);
    TESTS.iter().find(|t| t.name == name)
}

/// The tests that a word of the command line means: a test, a group, or `all`.
pub fn select(word: &str) -> Vec<&'static Test> {
    match find(word) {
        Some(test) => vec![test],
        None => TESTS
            .iter()
            .filter(|t| word == "all" || t.group.name() == word)
            .collect(),
    }
}

/// How a time is called in a table.
pub fn describe_of(of: Of) -> &'static str {
    match of {
        Of::HalfRoundTrip => "half a round trip",
        Of::RoundTrip => "a round trip",
        Of::Message => "one message",
        Of::Call => "one call",
        Of::Hop => "one message of a ring's step",
        Of::Skew => "first to last rank that leaves",
        Of::Process => "start to end",
        Of::Floor => "the hardware's operation",
        Of::Memory => "memory",
        Of::Instructions => "instructions",
        Of::Overlap => {
            "share of the transfer free to compute, what noise moved outside of 0 to 100 % taken as those"
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Name, text and `of` of each test in the program's tables, which give them in this order.
    fn read_program() -> Vec<(String, String, String)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("program");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            // What the tables abbreviate.
            let text = text.replace("OF_ALL", ".of = \"call\"");
            for part in text.split("{.name = \"").skip(1) {
                let end = part.find("},\n").unwrap();
                let field = |name: &str| {
                    let at = part[..end].find(name).unwrap() + name.len();
                    part[at..].split('"').next().unwrap().to_owned()
                };
                let name = part.split('"').next().unwrap().to_owned();
                found.push((name, field(".text = \""), field(".of = \"")));
            }
        }
        found
    }

    #[test]
    fn names__are_distinct_and_no_group_is_called_like_a_test() {
        let names: BTreeSet<_> = TESTS.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TESTS.len());
        assert!(Group::ALL.iter().all(|g| !names.contains(g.name())));
        assert!(!names.contains("all"));
    }

    #[test]
    fn tests_of_the_program__are_the_tests_of_the_table() {
        let program = read_program();
        assert!(program.len() > 5);
        let known: BTreeSet<_> = program.iter().map(|p| p.0.as_str()).collect();
        for test in TESTS {
            assert!(known.contains(test.name), "{} is not in C", test.name);
        }
        for (name, text, of) in &program {
            let test = find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
            assert_eq!(test.text, text, "{name}");
            let said = serde_json::to_string(&test.of).unwrap();
            assert_eq!(said.trim_matches('"'), of, "{name}");
        }
    }

    #[test]
    fn select__takes_tests_aliases_groups_and_all() {
        assert_eq!(select("pingpong")[0].name, "latency");
        assert!(select("messages").iter().any(|t| t.name == "rate"));
        assert_eq!(select("all").len(), TESTS.len());
        assert!(select("nonsense").is_empty());
    }

    #[test]
    fn aliases__mean_something() {
        for (alias, _) in ALIASES {
            assert!(find(alias).is_some(), "{alias}");
        }
    }
}
