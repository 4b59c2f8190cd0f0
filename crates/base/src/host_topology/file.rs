//! Parser of `FASTPATH_TOPOLOGY` files.
//!
//! ```text
//! # two sockets of two L3 caches
//! processors:8
//! socket:0 numa:0 l3:0 cpus:0-1
//! socket:0 numa:0 l3:1 cpus:2-3
//! socket:1 numa:1 l3:2 cpus:4,6
//! socket:1 numa:1 l3:3 cpus:5,7
//! ```
//!
//! Each line describes some processors; fields that are left out are 0. Numbers of one kind are unique in the host. A
//! line with `core:N` has the hardware threads of one core; otherwise each processor is a core. A file with
//! `processors:N` describes another machine than this host, with processors 0 to N-1.

use super::domains::{HostTopology, ProcessorDomains, TopologySource};
use crate::stored;
use crate::topology::{CpuSet, MAX_PROCESSORS};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Error of a `FASTPATH_TOPOLOGY` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyFileError {
    /// Path of the file; `None` for a text.
    pub path: Option<PathBuf>,
    /// Number of the malformed line, from 1; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// Description of the error.
    pub reason: String,
}

impl std::fmt::Display for TopologyFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "FASTPATH_TOPOLOGY={}: ", path.display())?;
        }
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TopologyFileError {}

pub(super) fn read(path: PathBuf) -> Result<HostTopology, TopologyFileError> {
    let text = stored::read_long_file(&path);
    let parsed = text
        .map_err(|e| TopologyFileError { path: None, line: None, reason: e.to_string() })
        .and_then(|text| parse(&text));
    parsed.map_err(|e| TopologyFileError { path: Some(path), ..e })
}

pub(super) fn parse(text: &str) -> Result<HostTopology, TopologyFileError> {
    let mut processors = BTreeMap::new();
    let mut owners = Owners::default();
    let mut count = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fail = |reason| TopologyFileError { path: None, line: Some(number), reason };
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(value) = line.strip_prefix("processors:") {
            let value = value.trim().parse().ok().filter(|n| (1..=MAX_PROCESSORS).contains(n));
            let value = value.ok_or_else(|| {
                fail(format!("processors: needs a number from 1 to {MAX_PROCESSORS}"))
            })?;
            if count.replace(value).is_some() {
                return Err(fail("processors: was given before".to_owned()));
            }
        } else if !line.is_empty() {
            let group = Group::parse(line).map_err(fail)?;
            for (cpu, domains) in group.processors() {
                if processors.insert(cpu, domains).is_some() {
                    return Err(fail(format!("processor {cpu} is in an earlier line")));
                }
                owners.check(cpu, domains).map_err(fail)?;
            }
        }
    }
    let whole = |reason| TopologyFileError { path: None, line: None, reason };
    if processors.is_empty() {
        return Err(whole("no line has cpus:".to_owned()));
    }
    let source = match count {
        None => TopologySource::File,
        Some(count) => {
            if let Some(missing) = (0..count).find(|cpu| !processors.contains_key(cpu)) {
                return Err(whole(format!("processor {missing} of {count} is in no line")));
            }
            if let Some((&last, _)) = processors.range(count..).next() {
                return Err(whole(format!(
                    "processor {last} is not below the number of processors, {count}"
                )));
            }
            TopologySource::Machine(count)
        }
    };
    number_cores(&mut processors);
    Ok(HostTopology { processors, source })
}

/// Numbers the cores from 0, in the order of their processors.
fn number_cores(processors: &mut BTreeMap<usize, ProcessorDomains>) {
    let mut numbers = BTreeMap::new();
    for domains in processors.values_mut() {
        let next = numbers.len() as u32;
        domains[0] = *numbers.entry(domains[0]).or_insert(next);
    }
}

/// Processors of a line.
struct Group {
    socket: u32,
    numa: u32,
    l3: u32,
    core: Option<u32>,
    cpus: CpuSet,
}

impl Group {
    fn parse(line: &str) -> Result<Group, String> {
        let mut numbers: [Option<u32>; 4] = [None; 4];
        let mut cpus: Option<CpuSet> = None;
        for field in line.split_whitespace() {
            let Some((name, value)) = field.split_once(':') else {
                return Err(format!("`{field}` is not a field such as l3:0 or cpus:0-7"));
            };
            let is_repeated = match ["socket", "numa", "l3", "core"].iter().position(|&n| n == name)
            {
                Some(at) => {
                    let number =
                        value.parse().ok().filter(|&n: &u32| (n as usize) < MAX_PROCESSORS);
                    let number = number.ok_or_else(|| {
                        format!("`{field}` needs a number from 0 to {}", MAX_PROCESSORS - 1)
                    })?;
                    numbers[at].replace(number).is_some()
                }
                None if name == "cpus" => {
                    let set = CpuSet::parse(value).filter(|set| !set.is_empty());
                    let set =
                        set.ok_or_else(|| format!("`{field}` is not a list such as 0-3,8"))?;
                    cpus.replace(set).is_some()
                }
                None => {
                    return Err(format!(
                        "`{name}` is none of processors, socket, numa, l3, core and cpus"
                    ));
                }
            };
            if is_repeated {
                return Err(format!("{name}: stands twice"));
            }
        }
        let [socket, numa, l3] = [0, 1, 2].map(|at| numbers[at].unwrap_or(0));
        let cpus = cpus.ok_or("the line has no cpus:")?;
        Ok(Group { socket, numa, l3, core: numbers[3], cpus })
    }

    fn processors(&self) -> impl Iterator<Item = (usize, ProcessorDomains)> + '_ {
        // A processor without `core:` gets a number above those that `core:` can have.
        let core = |cpu: usize| self.core.unwrap_or((MAX_PROCESSORS + cpu) as u32);
        let domains = move |cpu| (cpu, [core(cpu), self.l3, self.numa, self.socket]);
        self.cpus.iter().map(domains)
    }
}

/// Socket of each L3 cache, and L3 cache of each core, in the lines parsed so far.
#[derive(Default)]
struct Owners {
    sockets: BTreeMap<u32, u32>,
    caches: BTreeMap<u32, u32>,
}

impl Owners {
    fn check(&mut self, cpu: usize, [core, l3, _, socket]: ProcessorDomains) -> Result<(), String> {
        let first = *self.sockets.entry(l3).or_insert(socket);
        if first != socket {
            return Err(format!(
                "l3:{l3} is in socket:{first} and socket:{socket}; numbers of L3 caches are \
                 unique in the host"
            ));
        }
        let first = *self.caches.entry(core).or_insert(l3);
        if first != l3 {
            return Err(format!("the core of processor {cpu} is in l3:{first} and l3:{l3}"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: &str = "# two sockets\nprocessors:6\nsocket:0 cpus:0-3 # one L3\n\n\
        core:7 l3:1 numa:2 socket:1 cpus:4,5\n";

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn lines__describe_processors() {
        let machine = parse(MACHINE).unwrap();
        assert_eq!(machine.source, TopologySource::Machine(6));
        let found: Vec<_> = machine.processors().collect();
        assert_eq!(found[..2], [(0, [0, 0, 0, 0]), (1, [1, 0, 0, 0])]);
        assert_eq!(found[4..], [(4, [4, 1, 2, 1]), (5, [4, 1, 2, 1])], "threads of one core");
        assert_eq!(parse("cpus:7").unwrap().source, TopologySource::File);
    }

    #[test]
    fn malformed_lines__are_named() {
        let cases = [
            (
                "cpus:0\nsocket=1 cpus:1",
                "line 2: `socket=1` is not a field such as l3:0 or cpus:0-7",
            ),
            (
                "board:0 cpus:0",
                "line 1: `board` is none of processors, socket, numa, l3, core and cpus",
            ),
            ("\n# x\nl3:-1 cpus:0", "line 3: `l3:-1` needs a number from 0 to 65535"),
            ("numa:65536 cpus:0", "line 1: `numa:65536` needs a number from 0 to 65535"),
            ("cpus:3-1", "line 1: `cpus:3-1` is not a list such as 0-3,8"),
            ("cpus:", "line 1: `cpus:` is not a list such as 0-3,8"),
            ("socket:0", "line 1: the line has no cpus:"),
            ("socket:0 socket:1 cpus:0", "line 1: socket: stands twice"),
            ("cpus:0 cpus:1", "line 1: cpus: stands twice"),
            ("cpus:0-3\nl3:1 cpus:3", "line 2: processor 3 is in an earlier line"),
            ("processors:0\ncpus:0", "line 1: processors: needs a number from 1 to 65536"),
            ("processors:1\ncpus:0\nprocessors:1", "line 3: processors: was given before"),
            (
                "cpus:0\nsocket:1 cpus:1",
                "line 2: l3:0 is in socket:0 and socket:1; numbers of L3 caches are unique in the host",
            ),
            (
                "core:1 cpus:0\ncore:1 l3:1 cpus:1",
                "line 2: the core of processor 1 is in l3:0 and l3:1",
            ),
            ("", "no line has cpus:"),
            ("processors:2\ncpus:0", "processor 1 of 2 is in no line"),
            ("processors:1\ncpus:0-1", "processor 1 is not below the number of processors, 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn file__that_cannot_be_read__is_named() {
        let e = read("/proc/none/topology".into()).unwrap_err().to_string();
        assert!(e.starts_with("FASTPATH_TOPOLOGY=/proc/none/topology: "), "{e}");
    }

    #[test]
    fn file__of_too_many_bytes__is_refused_with_the_limit() {
        let path = std::env::temp_dir().join(format!("fastpath-topology-{}", std::process::id()));
        std::fs::write(&path, " ".repeat((4 << 20) + 1)).unwrap();
        let e = read(path.clone()).unwrap_err();
        std::fs::remove_file(path).unwrap();
        assert_eq!(e.reason, "the file has more than 4194304 bytes");
    }

    proptest! {
        #[test]
        fn machine__is_read_as_it_was_written(
            sockets in 1usize..4, caches in 1usize..5, cores in 1usize..9, by_processor in any::<bool>(),
        ) {
            let count = sockets * caches * cores;
            let mut text = format!("processors:{count}\n");
            for l3 in 0..sockets * caches {
                let (socket, first) = (l3 / caches, l3 * cores);
                let mut line = |cpus: String| {
                    text += &format!("numa:{socket} l3:{l3} socket:{socket} cpus:{cpus}\n");
                };
                match by_processor {
                    true => (first..first + cores).for_each(|cpu| line(cpu.to_string())),
                    false => line(format!("{first}-{}", first + cores - 1)),
                }
            }
            let found: Vec<_> = parse(&text).unwrap().processors().collect();
            let expected = (0..count).map(|cpu| {
                let (l3, socket) = (cpu / cores, cpu / cores / caches);
                (cpu, [cpu, l3, socket, socket].map(|n| n as u32))
            });
            prop_assert!(found.into_iter().eq(expected));
        }
    }

    #[test]
    fn fuzz__files_are_read_or_refused_with_a_reason() {
        let corpus: &[&[u8]] = &[
            MACHINE.as_bytes(),
            b"socket:1 numa:1 l3:3 core:5 cpus:6-7\n",
            b"processors:2\ncpus:0\ncpus:1\n",
        ];
        crate::mutate::run(corpus, |input| match parse(&String::from_utf8_lossy(input)) {
            Ok(topology) => {
                let mut known = topology.processors();
                assert!(known.all(|(_, [core, ..])| (core as usize) < topology.processors.len()));
                let _ = topology.place_rank(3, &CpuSet::from_iter([0, 1]), true);
            }
            Err(e) => assert!(!e.reason.is_empty()),
        });
    }
}
