//! `FASTPATH_REPORT` of a file when it is closed: counters and aggregators.

use super::File;
use crate::objects::comm::Comm;
use crate::process::Process;
use fastpath_base::config::Key;
use fastpath_base::tell;
use fastpath_io::{Counter, Descriptor};
use fastpath_protocol::report::quote;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Counters of a report: JSON name, description, counter of calls or ranges, and counter of their bytes.
const TOLD: [(&str, &str, Counter, Counter); 5] = [
    ("read", "calls that read", Counter::Reads, Counter::ReadBytes),
    ("written", "calls that wrote", Counter::Writes, Counter::WrittenBytes),
    ("stored", "mappings that stored", Counter::Mappings, Counter::StoredBytes),
    ("sieved", "data-sieving ranges with gaps of", Counter::Sieved, Counter::SievedBytes),
    (
        "exchanged",
        "accesses through aggregators that moved",
        Counter::Exchanges,
        Counter::ExchangedBytes,
    ),
];

static TOLD_HINTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// If `FASTPATH_REPORT` is set, prints the hints of a file that have no effect. Only rank 0 prints, each hint once.
pub(super) fn tell_ignored(p: &Process, comm: &Comm, name: &str, mut ignored: Vec<String>) {
    let Some(engine) = p.engine().filter(|_| comm.rank == 0 && !ignored.is_empty()) else {
        return;
    };
    let json = engine.config.choice(Key::Report) == "json";
    if !json && !engine.config.flag(Key::Report) {
        return;
    }
    let mut told = TOLD_HINTS.lock().unwrap_or_else(PoisonError::into_inner);
    ignored.retain(|hint| told.insert(hint.clone()));
    drop(told);
    let me = engine.job.rank();
    match json {
        _ if ignored.is_empty() => {}
        true => {
            let hints: Vec<String> = ignored.iter().map(|hint| quote(hint)).collect();
            let (hints, quoted) = (hints.join(","), quote(name));
            tell!(r#"{{"rank":{me},"ignored_hints":[{hints}],"of_file":{quoted}}}"#);
        }
        false => {
            let hints = ignored.join(", ");
            tell!("fastpath: rank {me}: file {name:?} has hints without effect: {hints}");
        }
    }
}

/// If `FASTPATH_REPORT` is set, prints one line about a file that is being closed.
pub(super) fn print(p: &Process, file: &File, descriptor: &Descriptor) {
    let Some(engine) = p.engine() else { return };
    let json = engine.config.choice(Key::Report) == "json";
    if !json && !engine.config.flag(Key::Report) {
        return;
    }
    let (counters, me) = (descriptor.counters(), engine.job.rank());
    let aggregators: Vec<u32> = file.aggregated.borrow().clone();
    let ranks: Vec<String> = aggregators.iter().map(u32::to_string).collect();
    let (name, ranks) = (&file.name, ranks.join(","));
    let mut text = String::new();
    for (word, meaning, number, bytes) in TOLD {
        let (number, bytes) = (counters.get(number), counters.get(bytes));
        _ = match json {
            true => write!(text, r#","{word}":{{"number":{number},"bytes":{bytes}}}"#),
            false if number == 0 => Ok(()),
            false => {
                let comma = if text.is_empty() { "" } else { ", " };
                write!(text, "{comma}{number} {meaning} {bytes} bytes in all")
            }
        };
    }
    if json {
        let quoted = quote(name);
        tell!(r#"{{"rank":{me},"file":{quoted},"aggregators":[{ranks}]{text}}}"#);
        return;
    }
    if text.is_empty() {
        text.push_str("nothing was read or written");
    }
    if !aggregators.is_empty() {
        _ = write!(text, "; aggregators: {ranks}");
    }
    tell!("fastpath: rank {me}: file {name:?}: {text}");
}
