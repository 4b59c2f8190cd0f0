//! What `FASTPATH_REPORT` says of a window: which way each rank was reached, and what was counted.
#![allow(unsafe_code)]

use super::counts::ALL;
use super::hot;
use super::window::{Flavor, Window};
use crate::common::error::Result;
use crate::process::Process;
use fastpath_base::config::Key;
use fastpath_base::copy::COPY_SMALL_MAX;
use fastpath_base::tell;
use fastpath_protocol::rma::AccessPath;
use fastpath_protocol::selection::report::quote;
use std::fmt::Write;

/// The report's remarks: on a rank whose words this process does not reach by load and store, and on one whose memory
/// it does not reach so either.
const NEEDS_OWNER: &str = "; locks, atomics and accumulates wait until the owner makes progress, \
                           which it does with FASTPATH_PROGRESS=thread also while it computes";
const ALL_NEED_OWNER: &str = "; locks, atomics and accumulates are among them";

/// Prints how the ranks that were accessed have been reached, and what was counted, if the user wants to know.
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
        false => tell!("fastpath: rank {me}: window ({title}): {text}"),
    }
    let counted = counts_in_words(window);
    if !json && !counted.is_empty() {
        tell!("fastpath: rank {me}: window ({title}): counted {counted}");
    }
    Ok(())
}

/// What was counted, and whether the quickest are not.
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

/// Puts and gets of up to so many bytes are not counted where they go by load and store; 0 where all are.
fn uncounted(window: &Window) -> usize {
    // The immediate path is never shown a dynamic window's memory.
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
