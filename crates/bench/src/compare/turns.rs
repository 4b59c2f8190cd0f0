//! Executes the turns of a comparison: stores each if a file is named, reports progress, and stops between two turns
//! when the time is over.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use fastpath_base::tell;
use fastpath_report::output::{LEFT, make_bar};
use indicatif::ProgressBar;

use super::kept::StoredTurns;
use super::rounds::{Rounds, RunPlan, RunResult, RunTurn, describe_plan};

/// Reason for which the turns are incomplete.
#[derive(Debug)]
pub enum Stop {
    /// The time limit of this start has passed.
    Time {
        /// Turns that were measured.
        done: usize,
        /// Turns of the whole comparison.
        total: usize,
    },
    /// A result cannot be stored.
    Kept(anyhow::Error),
}

/// Interval of progress lines if no bar can be drawn.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Parameters of the turns.
pub struct Turns<'a> {
    /// Plans to run.
    pub plans: &'a [RunPlan],
    /// Number of rounds.
    pub rounds: u32,
    /// Number of peers.
    pub peers: usize,
    /// File that stores the turns.
    pub kept: Option<StoredTurns>,
    /// Time limit of this start; None: no limit.
    pub limit: Option<Duration>,
    /// Whether progress is reported.
    pub shows_progress: bool,
}

struct TurnProgress {
    bar: ProgressBar,
    started: Instant,
    said: Instant,
    in_lines: bool,
    done: usize,
    made: usize,
    total: usize,
}

impl Turns<'_> {
    /// Executes the turns that are not stored. `measure` runs a plan on the MPI of a number; `name` returns its name.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn make(
        &mut self, rounds: &mut Rounds, name: impl Fn(usize) -> String,
        mut measure: impl FnMut(usize, &RunPlan) -> RunResult,
    ) -> Result<(), Stop> {
        let total = self.peers * self.plans.len() * self.rounds as usize;
        let mut progress = TurnProgress::new(total, self.shows_progress);
        if let Some(kept) = &self.kept {
            progress.say_start(kept);
        }
        let (limit, plans) = (self.limit, self.plans);
        let kept = &mut self.kept;
        let done = rounds.run(plans, self.rounds, |turn| {
            if let Some(pair) = kept.as_ref().and_then(|kept| kept.find(turn)) {
                progress.step(false);
                return Ok(pair);
            }
            // Execute at least one turn, so that every start makes progress.
            let up = |limit| progress.made > 0 && progress.started.elapsed() >= limit;
            if limit.is_some_and(up) {
                let done = progress.done;
                return Err(Stop::Time { done, total });
            }
            let pair = turn.take(|mpi, plan| {
                progress.show(&name(mpi), turn);
                let measured = measure(mpi, plan);
                if let Some(failure) = &measured.failure {
                    let what = format!("{}, {}", name(mpi), describe_plan(plan));
                    progress.bar.suspend(|| tell!("fastpath: {what}: {failure}"));
                }
                measured
            });
            if let Some(kept) = kept {
                kept.add(turn, &pair).map_err(Stop::Kept)?;
            }
            progress.step(true);
            Ok(pair)
        });
        progress.bar.finish_and_clear();
        done
    }
}

impl TurnProgress {
    fn new(total: usize, wanted: bool) -> TurnProgress {
        let now = Instant::now();
        TurnProgress {
            bar: make_bar(total as u64, wanted, LEFT),
            started: now,
            said: now,
            in_lines: wanted && !io::stderr().is_terminal(),
            done: 0,
            made: 0,
            total,
        }
    }

    fn say_start(&self, kept: &StoredTurns) {
        if let Some(dropped) = &kept.dropped {
            tell!("fastpath: {dropped}");
        }
        if !kept.turns.is_empty() {
            let (there, total) = (kept.turns.len(), self.total);
            tell!("fastpath: continuing; {there} of {total} turns are already stored");
        }
    }

    fn show(&self, name: &str, turn: &RunTurn<'_>) {
        let round = turn.round + 1;
        let plan = describe_plan(turn.plan);
        self.bar.set_message(format!("round {round}, {name}, {plan}"));
    }

    fn step(&mut self, made: bool) {
        self.done += 1;
        self.made += usize::from(made);
        self.bar.inc(1);
        if !made {
            // Stored turns take no time, and would distort the estimate.
            self.bar.reset_eta();
            return;
        }
        if self.in_lines && self.said.elapsed() >= SAY_EVERY {
            self.said = Instant::now();
            let spent = self.started.elapsed().as_secs_f64() / 60.0;
            let left = spent / self.made as f64 * (self.total - self.done) as f64;
            tell!(
                "fastpath: {} of {} turns, {spent:.0} min spent, about {left:.0} min left",
                self.done,
                self.total
            );
        }
    }
}
