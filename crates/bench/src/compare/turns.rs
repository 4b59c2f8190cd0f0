//! The turns of a comparison as they are made: kept one by one where a file is named, with progress shown,
//! and stopped between two where the time for them is up.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use fastpath_base::tell;
use fastpath_report::output::{LEFT, make_bar};
use indicatif::ProgressBar;

use super::kept::Kept;
use super::rounds::{Measured, Plan, Rounds, Turn};

/// Why the turns are not complete.
#[derive(Debug)]
pub enum Stop {
    /// The time for this start is up.
    Time {
        /// Turns that are there.
        done: usize,
        /// Turns of the whole comparison.
        total: usize,
    },
    /// What was measured cannot be kept.
    Kept(anyhow::Error),
}

/// How often progress is said where no bar can be drawn.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// What the turns are made with.
pub struct Turns<'a> {
    /// What is run.
    pub plans: &'a [Plan],
    /// How often each.
    pub rounds: u32,
    /// Numbers of peers.
    pub peers: usize,
    /// The file that keeps them.
    pub kept: Option<Kept>,
    /// How long they may be made.
    pub limit: Option<Duration>,
    /// Whether progress is shown.
    pub shows_progress: bool,
}

/// What is said of the progress.
struct Progress {
    bar: ProgressBar,
    started: Instant,
    said: Instant,
    in_lines: bool,
    done: usize,
    made: usize,
    total: usize,
}

impl Turns<'_> {
    /// Makes all that are not there; `measure` runs a plan on the MPI of a number, `name` calls it.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn make(
        &mut self, rounds: &mut Rounds, name: impl Fn(usize) -> String,
        mut measure: impl FnMut(usize, &Plan) -> Measured,
    ) -> Result<(), Stop> {
        let total = self.peers * self.plans.len() * self.rounds as usize;
        let mut progress = Progress::new(total, self.shows_progress);
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
            // One at least, so that every start comes further.
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

/// What a plan is, for those who watch.
pub fn describe_plan(plan: &Plan) -> String {
    format!("{}, {} ranks", plan.settings.tests.join(","), plan.ranks)
}

impl Progress {
    fn new(total: usize, wanted: bool) -> Progress {
        let now = Instant::now();
        Progress {
            bar: make_bar(total as u64, wanted, LEFT),
            started: now,
            said: now,
            in_lines: wanted && !io::stderr().is_terminal(),
            done: 0,
            made: 0,
            total,
        }
    }

    fn say_start(&self, kept: &Kept) {
        if let Some(dropped) = &kept.dropped {
            tell!("fastpath: {dropped}");
        }
        if !kept.turns.is_empty() {
            let (there, total) = (kept.turns.len(), self.total);
            tell!("fastpath: {there} of {total} turns are there from before; continuing");
        }
    }

    fn show(&self, name: &str, turn: &Turn<'_>) {
        let round = turn.round + 1;
        let plan = describe_plan(turn.plan);
        self.bar.set_message(format!("round {round}, {name}, {plan}"));
    }

    fn step(&mut self, made: bool) {
        self.done += 1;
        self.made += usize::from(made);
        self.bar.inc(1);
        if !made {
            // They cost no time, and would spoil the estimate.
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
