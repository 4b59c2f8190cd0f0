//! Transfer costs that two ranks of this machine learn: `fastpath info --protocols --learn`.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use fastpath_report::record::Level;

use crate::levels::{LevelPlan, SharedBoard};
use crate::options::{CaseOptions, MpiOptions};
use crate::peers::ComparedMpi;
use crate::program::{LearnedCosts, ProgramJob, Settings};

/// Message sizes, as exponents of two: 4 KiB to 4 MiB. Each is measured for [`SECONDS`].
const SIZES: std::ops::RangeInclusive<u32> = 12..=22;
const SECONDS: f64 = 0.3;

/// Passes messages between two ranks, and prints the costs that they learn. JSON has one object a line, as printed by a
/// job with `FASTPATH_REPORT=json`.
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
    writeln!(out, "costs learned from messages between two ranks")?;
    learnt.iter().try_for_each(|one| writeln!(out, "{}", describe(one)))?;
    Ok(())
}

fn learn() -> Result<Vec<LearnedCosts>> {
    let case = CaseOptions {
        sizes: SIZES.map(|bits| 1 << bits).collect(),
        duration: Some(SECONDS),
        ..CaseOptions::default()
    };
    let settings = Settings { case, no_floor: true, ..Settings::default() };
    let settings = settings.with_tests(["latency"]);
    let board = SharedBoard::create().context("cannot create the file that the two ranks share")?;
    let plan = LevelPlan::new(Level::Protocol, &settings, &board);
    let job = ComparedMpi::ours(&MpiOptions::default())?.job(2, &settings).with_selection();
    let (own, arguments) = plan.rank()?;
    let outcome = own.run(&ProgramJob { arguments, ..job }, |_| ());
    outcome.failure.map_or(Ok(()), Err)?;
    ensure!(
        !outcome.learnt.is_empty(),
        "the ranks learned no costs. Either the ranks share a processor, or they have no shared \
         memory, or FASTPATH_DISABLE or FASTPATH_REPORT is set. For ranks that share a processor, \
         run a job with FASTPATH_REPORT=1"
    );
    Ok(outcome.learnt)
}

fn describe(learnt: &LearnedCosts) -> String {
    let LearnedCosts { rank, from_rank, from_bytes, protocol, ps_per_byte, timed_messages } =
        learnt;
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
        let learnt = LearnedCosts {
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
