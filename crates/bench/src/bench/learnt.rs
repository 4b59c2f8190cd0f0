//! What two ranks of this machine learn of the ways of long messages: `fastpath info --protocols --learn`.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use fastpath_report::record::Level;

use crate::bench::options::{CaseOptions, MpiOptions};
use crate::compare::peers::Peer;
use crate::levels::{LevelPlan, SharedBoard};
use crate::program::{Job, Learnt, Settings};

/// A size of each octave up to 4 MiB, each for [`SECONDS`].
const SIZES: std::ops::RangeInclusive<u32> = 12..=22;
const SECONDS: f64 = 0.3;

/// Passes messages back and forth between two ranks, and prints what they learn from them; as JSON a line each, as a
/// job prints it with `FASTPATH_REPORT=json`.
///
/// # Errors
/// The job fails or learns nothing, or the output cannot be written.
pub fn print(as_json: bool) -> Result<()> {
    let learnt = learn()?;
    let mut out = io::stdout().lock();
    if as_json {
        for one in &learnt {
            writeln!(out, "{}", serde_json::to_string(one)?)?;
        }
        return Ok(());
    }
    writeln!(out, "learnt from messages that two ranks sent back and forth")?;
    learnt.iter().try_for_each(|one| writeln!(out, "{}", describe(one)))?;
    Ok(())
}

fn learn() -> Result<Vec<Learnt>> {
    let case = CaseOptions {
        sizes: SIZES.map(|bits| 1 << bits).collect(),
        duration: Some(SECONDS),
        ..CaseOptions::default()
    };
    let settings = Settings { case, no_floor: true, ..Settings::default() };
    let settings = settings.with_tests(["latency"]);
    let board = SharedBoard::create().context("the ranks cannot be prepared")?;
    let plan = LevelPlan::new(Level::Protocol, &settings, &board);
    let job = Peer::ours(&MpiOptions::default())?.job(2, &settings).with_selection();
    let (own, arguments) = plan.rank()?;
    let outcome = own.run(&Job { arguments, ..job }, |_| ());
    outcome.failure.map_or(Ok(()), Err)?;
    ensure!(
        !outcome.learnt.is_empty(),
        "nothing was learnt: the two ranks share a processor (FASTPATH_REPORT=1 says in a job what \
         such ranks learn) or share no memory, or FASTPATH_DISABLE or FASTPATH_REPORT is set"
    );
    Ok(outcome.learnt)
}

fn describe(learnt: &Learnt) -> String {
    let Learnt { rank, from_rank, from_bytes, protocol, ps_per_byte, timed_messages } = learnt;
    let sizes = format!("from {from_bytes} B");
    let rate = format!("{:.1} GB/s", 1000.0 / f64::from((*ps_per_byte).max(1)));
    format!(
        "  {sizes:<20} {protocol:<26} {rate:<16} {timed_messages} timed messages, rank {from_rank} \
         to {rank}"
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn line__says_size_way_rate_and_messages() {
        let learnt = Learnt {
            rank: 1,
            from_rank: 0,
            from_bytes: 65536,
            protocol: "get".into(),
            ps_per_byte: 50,
            timed_messages: 77,
        };
        let text = describe(&learnt);
        for part in ["from 65536 B", " get ", "20.0 GB/s", "77 timed messages, rank 0 to 1"] {
            assert!(text.contains(part), "{part:?} in {text:?}");
        }
    }
}
