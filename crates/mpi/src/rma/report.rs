//! `FASTPATH_REPORT` of a window: how each rank was reached, and the counters.
#![allow(unsafe_code)]

use super::counts::ALL;
use super::hot;
use super::window::{Flavor, Window};
use crate::common::error::Result;
use crate::process::Process;
use fastpath_base::config::Key;
use fastpath_base::copy::COPY_SMALL_MAX;
use fastpath_base::tell;
use fastpath_protocol::report::quote;
use fastpath_protocol::rma::AccessPath;
use std::fmt::Write;

/// Remark on ranks whose control words load and store do not reach. [`ALL_NEED_OWNER`] is the remark on ranks whose
/// memory only messages reach.
const NEEDS_OWNER: &str = "; the target performs locks, atomics and accumulates inside its MPI \
                           calls or, with FASTPATH_PROGRESS=thread, in its progress thread";
const ALL_NEED_OWNER: &str = "; this includes locks, atomics and accumulates";

/// Prints how the accessed ranks were reached, and the counters, if `FASTPATH_REPORT` is set.
pub(super) fn print(p: &Process, window: &Window) -> Result {
    let config = p.running()?.config;
    let json = config.choice(Key::Report) == "json";
    if !json && !config.flag(Key::Report) {
        return Ok(());
    }
    let mut ways: Vec<(&'static str, &'static str, bool, Vec<u32>)> = Vec::new();
    for rank in 0..window.size() {
        let Some((name, how)) = window.way(rank) else {
            continue;
        };
        let needs_owner = window.needs_owner(rank);
        let alike = |way: &&mut (_, _, bool, _)| (way.0, way.2) == (name, needs_owner);
        match ways.iter_mut().find(alike) {
            Some(way) => way.3.push(rank),
            None => ways.push((name, how, needs_owner, vec![rank])),
        }
    }
    let mut text = String::new();
    for (at, (name, how, needs_owner, ranks)) in ways.iter().enumerate() {
        let (comma, list) = (if at == 0 { "" } else { "," }, list(ranks));
        _ = match json {
            true => write!(
                text,
                r#"{comma}{{"way":"{name}","ranks":[{list}],"atomics_need_owner":{needs_owner}}}"#
            ),
            false => {
                let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
                let waits = match (needs_owner, *name == AccessPath::Messages.name()) {
                    (true, true) => ALL_NEED_OWNER,
                    (true, false) => NEEDS_OWNER,
                    (false, _) => "",
                };
                let before = if at == 0 { "" } else { "; " };
                write!(text, "{before}{noun} {list} by {name} ({how}{waits})")
            }
        };
    }
    let (me, title) = (window.world(window.rank), window.title());
    let quoted = quote(&title);
    match json {
        true => {
            let counts = counts_as_json(window);
            tell!(r#"{{"rank":{me},"window":{quoted},"ways":[{text}],{counts}}}"#);
        }
        false if ways.is_empty() => {
            tell!("fastpath: rank {me}: window ({title}): no rank was accessed")
        }
        false => tell!("fastpath: rank {me}: window ({title}): reached {text}"),
    }
    let counted = counts_in_words(window);
    if !json && !counted.is_empty() {
        tell!("fastpath: rank {me}: window ({title}): counted {counted}");
    }
    Ok(())
}

fn counts_in_words(window: &Window) -> String {
    let counted = ALL.into_iter().map(|(what, one, several)| (window.count(what), one, several));
    let counted = counted.filter(|&(number, ..)| number != 0);
    let name = |(number, one, several)| match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {several}"),
    };
    let counted: Vec<String> = counted.map(name).collect();
    match (counted.join(", "), uncounted(window)) {
        (all, 0) => all,
        (none, _) if none.is_empty() => none,
        (some, most) => {
            format!("{some} (not counted: puts and gets of up to {most} B by load and store)")
        }
    }
}

/// Returns the largest size, in bytes, of puts and gets that the immediate path performs uncounted; 0 if all are
/// counted.
fn uncounted(window: &Window) -> usize {
    // The immediate path never serves a dynamic window.
    let is_shown = window.flavor != Flavor::Dynamic;
    match is_shown && hot::serves_outside(window.handle.get()) {
        true => COPY_SMALL_MAX,
        false => 0,
    }
}

fn counts_as_json(window: &Window) -> String {
    let name = |several: &str| several.replace(' ', "_");
    let counted = ALL.into_iter();
    let counted =
        counted.map(|(what, _, several)| format!(r#""{}":{}"#, name(several), window.count(what)));
    let counted = counted.collect::<Vec<String>>().join(",");
    format!(r#""counts":{{{counted}}},"uncounted_to":{}"#, uncounted(window))
}

fn list(ranks: &[u32]) -> String {
    let all: Vec<String> = ranks.iter().map(u32::to_string).collect();
    all.join(",")
}
