//! What `FASTPATH_REPORT` says of a window: which way each rank was reached.
#![allow(unsafe_code)]

use super::window::Window;
use crate::error::Result;
use crate::process::Process;
use fastpath_base::config::Key;
use std::fmt::Write;

/// Prints how the ranks that were accessed have been reached, if the user wants to know: one line.
pub(super) fn print(p: &Process, window: &Window) -> Result {
    let config = p.running()?.config;
    let json = config.choice(Key::Report) == "json";
    if !json && !config.flag(Key::Report) {
        return Ok(());
    }
    let mut ways: Vec<(&'static str, &'static str, Vec<u32>)> = Vec::new();
    for rank in 0..window.size() {
        let Some((name, how)) = window.way(rank) else {
            continue;
        };
        match ways.iter_mut().find(|way| way.0 == name) {
            Some(way) => way.2.push(rank),
            None => ways.push((name, how, vec![rank])),
        }
    }
    let mut text = String::new();
    for (at, (name, how, ranks)) in ways.iter().enumerate() {
        let (comma, list) = (if at == 0 { "" } else { "," }, list(ranks));
        _ = match json {
            true => write!(text, r#"{comma}{{"way":"{name}","ranks":[{list}]}}"#),
            false => {
                let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
                write!(
                    text,
                    "{}{noun} {list} by {name} ({how})",
                    if at == 0 { "" } else { "; " }
                )
            }
        };
    }
    let (me, title) = (window.world(window.rank), window.title());
    match json {
        true => eprintln!(r#"{{"rank":{me},"window":{title:?},"ways":[{text}]}}"#),
        false if ways.is_empty() => {
            eprintln!("fastpath: rank {me}: window ({title}): no rank was accessed")
        }
        false => eprintln!("fastpath: rank {me}: window ({title}): {text}"),
    }
    Ok(())
}

fn list(ranks: &[u32]) -> String {
    let all: Vec<String> = ranks.iter().map(u32::to_string).collect();
    all.join(",")
}
