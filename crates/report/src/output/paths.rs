//! Transport and protocol by size, below the tables: as reported by the library, otherwise as observed.

use std::collections::BTreeMap;

use crate::lists::group;
use crate::record::{Case, Level};

type PathNames<'a> = (&'a str, &'a str);

/// Smallest and largest size that a protocol serves, in bytes. None: not reported; inner None: no upper limit.
type Sizes = Option<(u64, Option<u64>)>;

/// Describes the protocols of each test that reports them. Tests with equal protocols share a line.
pub fn describe(cases: &[Case]) -> String {
    let served = gather(cases).into_iter();
    let lines = group(served.map(|(name, served)| (describe_ways(&served), name)));
    let format = |(ways, names): &(String, Vec<String>)| format!("{}: {ways}\n", names.join(", "));
    lines.iter().map(format).collect()
}

/// Cases that report their protocol, by test and level, in the order of measurement.
fn gather(cases: &[Case]) -> Vec<(String, Vec<&Case>)> {
    let served = cases.iter().filter(|c| c.protocol.is_some());
    group(served.map(|case| {
        let name = match case.level {
            Level::Mpi => case.test.clone(),
            level => format!("{} ({})", case.test, level.name()),
        };
        (name, case)
    }))
}

fn describe_ways(cases: &[&Case]) -> String {
    let mut ways: Vec<(PathNames, Sizes)> = Vec::new();
    let mut seen: BTreeMap<PathNames, Vec<u64>> = BTreeMap::new();
    let mut cases = cases.to_vec();
    cases.sort_by_key(|c| c.bytes);
    for case in cases {
        let transport = case.transport.as_deref().unwrap_or("");
        let way = (transport, case.protocol.as_deref().unwrap_or(""));
        let sizes = seen.entry(way).or_default();
        if !sizes.contains(&case.bytes) {
            sizes.push(case.bytes);
        }
        if !ways.contains(&(way, case.protocol_sizes)) {
            ways.push((way, case.protocol_sizes));
        }
    }
    let mut text = Vec::new();
    let mut last = "";
    for ((transport, protocol), sizes) in ways {
        let place = match sizes {
            Some((from, Some(to))) => format!("{from} to {to} B"),
            Some((from, None)) => format!("from {from} B"),
            None => {
                let sizes = seen[&(transport, protocol)].iter().map(u64::to_string);
                format!("at {} B", sizes.collect::<Vec<_>>().join(", "))
            }
        };
        let by = match transport {
            "" => String::new(),
            same if same == last => String::new(),
            other => format!("{other}: "),
        };
        last = transport;
        text.push(format!("{by}{protocol} {place}"));
    }
    text.join("; ")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_case;

    fn make(test: &str, bytes: u64, protocol: &str, sizes: Sizes) -> Case {
        Case {
            test: test.into(),
            transport: Some("shm".into()),
            protocol: Some(protocol.into()),
            protocol_sizes: sizes,
            ..make_case(bytes, &[1.0])
        }
    }

    #[test]
    fn ways__are_told_once_with_the_sizes_that_they_serve() {
        let short = Some((0, Some(48)));
        let cases = [
            make("latency", 64, "eager", Some((49, None))),
            make("latency", 0, "short", short),
            make("latency", 8, "short", short),
            make("rate", 8, "short", short),
            make("rate", 64, "eager", Some((49, None))),
        ];
        let text = describe(&cases);
        let wanted = "latency, rate: shm: short 0 to 48 B; eager from 49 B\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn ways__without_limits_are_told_as_they_were_seen() {
        let put = |bytes| Case { level: Level::Protocol, ..make("put", bytes, "load-store", None) };
        let text = describe(&[put(8), put(4096), put(8)]);
        assert_eq!(text, "put (protocol): shm: load-store at 8, 4096 B\n");
        let silent = Case { protocol: None, ..put(8) };
        assert_eq!(describe(&[silent]), "");
    }
}
