//! Rounds of a comparison. In each round, this MPI and a peer run one after the other. The order alternates, so that
//! drift of the machine favours neither of the two.

use fastpath_report::compare::Statistic;
use fastpath_report::compare::comparison::{FloorComparison, NotCompared, Row};
use fastpath_report::compare::stored::describe_key;
use fastpath_report::record::{Case, CaseKey, Clock, MissingTest, Report};
use serde::{Deserialize, Serialize};

use crate::program::{JobResult, Settings};

/// One run of the benchmark program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Number of ranks.
    pub ranks: u32,
    /// Tests, sizes, durations.
    pub settings: Settings,
}

/// Description of a plan for progress reports.
pub fn describe_plan(plan: &RunPlan) -> String {
    format!("{}, {} ranks", plan.settings.tests.join(","), plan.ranks)
}

/// Result of a run, in the stored form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// First line of `MPI_Get_library_version`; empty if the run failed earlier.
    pub library: String,
    /// Last known properties of the clock.
    pub clock: Clock,
    /// Measured cases.
    pub cases: Vec<Case>,
    /// Requested cases without a result.
    pub missing: Vec<MissingTest>,
    /// Reason for which the run failed.
    pub failure: Option<String>,
}

impl From<JobResult> for RunResult {
    fn from(outcome: JobResult) -> RunResult {
        let at = outcome.at;
        let failure = outcome.failure.map(|failure| {
            let text = failure.to_string();
            let (first, further) = text.split_once('\n').unwrap_or((&text, ""));
            match at {
                Some(at) => {
                    let text = format!("{first}, in {} at {} B\n{further}", at.test, at.bytes);
                    text.trim_end().to_owned()
                }
                None => text,
            }
        });
        RunResult {
            library: outcome.start.map(|s| s.library).unwrap_or_default(),
            clock: outcome.clock,
            cases: outcome.cases,
            missing: outcome.missing,
            failure,
        }
    }
}

/// A run of this MPI and a run of a peer, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct RunTurn<'a> {
    /// Round, from 0.
    pub round: u32,
    /// Number of the peer; this MPI is 0.
    pub peer: usize,
    /// Number of the plan.
    pub number: usize,
    /// Plan to run.
    pub plan: &'a RunPlan,
    /// Whether this MPI runs first.
    pub ours_first: bool,
}

impl RunTurn<'_> {
    /// Runs both MPIs in the order of the turn. `measure` runs the plan on the MPI with the given number, 0 for this
    /// MPI. The result of this MPI comes first.
    pub fn take(&self, mut measure: impl FnMut(usize, &RunPlan) -> RunResult) -> [RunResult; 2] {
        if self.ours_first {
            let ours = measure(0, self.plan);
            [ours, measure(self.peer, self.plan)]
        } else {
            let theirs = measure(self.peer, self.plan);
            [measure(0, self.plan), theirs]
        }
    }
}

/// One case of this MPI and a peer: both statistics of each round, and the floors and cache-line times of these runs.
#[derive(Debug)]
struct Pairs {
    peer: usize,
    key: CaseKey,
    values: Vec<(f64, f64)>,
    beside: FloorComparison,
}

/// Results of the rounds so far.
#[derive(Debug)]
pub struct Rounds {
    names: Vec<String>,
    statistic: Statistic,
    pairs: Vec<Pairs>,
    missing: Vec<NotCompared>,
    /// Results of each MPI, merged over the rounds.
    pub reports: Vec<Report>,
    /// Numbers of peer and plan of failed turns, which are not tried again.
    failed: Vec<(usize, usize)>,
}

impl Rounds {
    /// Creates empty results. The first report belongs to this MPI.
    pub fn new(reports: Vec<Report>, statistic: Statistic) -> Rounds {
        Rounds {
            names: reports.iter().map(|r| r.run.mpi.name.clone()).collect(),
            statistic,
            pairs: Vec::new(),
            missing: Vec::new(),
            reports,
            failed: Vec::new(),
        }
    }

    /// Runs the rounds. `run` returns the results of a turn, this MPI first, or the reason to stop before the turn.
    ///
    /// # Errors
    /// The reason that `run` returned.
    pub fn run<E>(
        &mut self, plans: &[RunPlan], rounds: u32,
        mut run: impl FnMut(&RunTurn<'_>) -> Result<[RunResult; 2], E>,
    ) -> Result<(), E> {
        for round in 0..rounds {
            for peer in 1..self.names.len() {
                for (number, plan) in plans.iter().enumerate() {
                    if self.failed.contains(&(peer, number)) {
                        continue;
                    }
                    let turn = RunTurn {
                        round,
                        peer,
                        number,
                        plan,
                        // Within a round the order also differs by peer and by plan.
                        ours_first: (round as usize + peer + number).is_multiple_of(2),
                    };
                    let [ours, theirs] = run(&turn)?;
                    self.take(&turn, ours, theirs);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, turn: &RunTurn<'_>, ours: RunResult, theirs: RunResult) {
        let (peer, number, plan) = (turn.peer, turn.number, turn.plan);
        for (mpi, outcome) in [(0, &ours), (peer, &theirs)] {
            self.note_failures(mpi, plan, outcome);
        }
        if ours.failure.is_some() || theirs.failure.is_some() {
            self.failed.push((peer, number));
        }
        for case in &ours.cases {
            let key = case.key();
            match theirs.cases.iter().rfind(|other| other.key() == key) {
                Some(other) => self.take_pair(peer, key, case, other),
                None if theirs.failure.is_none() => {
                    self.refuse(peer, &key, "the other MPI did not report this case");
                }
                None => {}
            }
        }
        for (mpi, outcome) in [(0, ours), (peer, theirs)] {
            self.merge(mpi, outcome);
        }
    }

    fn take_pair(&mut self, peer: usize, key: CaseKey, ours: &Case, theirs: &Case) {
        let batches = [ours, theirs].map(|c| c.timing.operations_per_sample);
        if self.statistic != Statistic::Mean && batches[0] != batches[1] {
            let reason = format!(
                "different statistic ({}): a sample is the mean of {} operations in this MPI, and \
                 of {} in the other MPI",
                self.statistic.name(),
                batches[0],
                batches[1]
            );
            return self.refuse(peer, &key, &reason);
        }
        let values = [ours, theirs].map(|c| self.statistic.take(&c.samples));
        let [Some(a), Some(b)] = values else {
            return self.refuse(peer, &key, "no samples");
        };
        let floors = [ours, theirs].map(|c| self.statistic.take(c.floor.as_ref()?));
        let mut all = self.pairs.iter();
        let known = all.position(|p| p.peer == peer && p.key == key);
        let at = known.unwrap_or(self.pairs.len());
        if known.is_none() {
            self.pairs.push(Pairs {
                peer,
                key,
                values: Vec::new(),
                beside: FloorComparison::default(),
            });
        }
        let pairs = &mut self.pairs[at];
        pairs.values.push((a, b));
        let beside = &mut pairs.beside;
        if let [Some(one), Some(two)] = floors {
            beside.floors.push((one, two));
        }
        beside.floor_of.clone_from(&ours.floor_of);
        if let (Some(one), Some(two)) = (ours.line(), theirs.line()) {
            beside.lines.push([one, two]);
        }
    }

    fn refuse(&mut self, peer: usize, key: &CaseKey, reason: &str) {
        let name = self.names[peer].clone();
        self.note(&name, describe_key(key), reason);
    }

    fn note_failures(&mut self, mpi: usize, plan: &RunPlan, outcome: &RunResult) {
        let name = self.names[mpi].clone();
        for missing in &outcome.missing {
            self.note(&name, missing.test.clone(), &missing.reason);
        }
        if let Some(failure) = &outcome.failure {
            self.note(&name, describe_plan(plan), failure);
        }
    }

    /// Records a test or case that was not compared, unless it is recorded already.
    pub fn note(&mut self, mpi: &str, what: String, reason: &str) {
        let noted = NotCompared { mpi: mpi.to_owned(), what, reason: reason.to_owned() };
        if !self.missing.contains(&noted) {
            self.missing.push(noted);
        }
    }

    fn merge(&mut self, mpi: usize, outcome: RunResult) {
        let report = &mut self.reports[mpi];
        if !outcome.library.is_empty() {
            report.run.mpi.version = outcome.library;
        }
        if !outcome.clock.source.is_empty() {
            report.run.clock = outcome.clock;
        }
        for case in outcome.cases {
            let key = case.key();
            let same = report.cases.iter_mut().find(|c| {
                c.key() == key
                    && c.timing.operations_per_sample == case.timing.operations_per_sample
            });
            match same {
                Some(earlier) => {
                    earlier.samples.merge(&case.samples);
                    if let (Some(a), Some(b)) = (&mut earlier.floor, &case.floor) {
                        a.merge(b);
                    }
                }
                None => report.cases.push(case),
            }
        }
        for missing in outcome.missing {
            if !report.missing.contains(&missing) {
                report.missing.push(missing);
            }
        }
    }

    /// Ratios so far, by peer.
    pub fn list_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for peer in 1..self.names.len() {
            let own = self.pairs.iter().filter(|p| p.peer == peer);
            rows.extend(own.filter_map(|p| {
                let row = Row::new(&self.names[peer], &p.key, p.values.clone())?;
                Some(row.with(&p.beside))
            }));
        }
        rows
    }

    /// Cases that were not compared so far.
    pub fn list_missing(&self) -> &[NotCompared] {
        &self.missing
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::program::{CaseProgress, RunError};
    use fastpath_report::record::Run;
    use fastpath_report::testing::samples::make_case;

    fn make_rounds(peers: usize) -> Rounds {
        let reports = (0..=peers).map(|i| {
            let mut run = Run::default();
            run.mpi.name = ["fastpath", "alpha", "beta"][i].into();
            Report::new(run)
        });
        Rounds::new(reports.collect(), Statistic::Median)
    }

    fn make_plans(ranks: &[u32]) -> Vec<RunPlan> {
        let settings = Settings { tests: vec!["latency".into()], ..Settings::default() };
        let plan = |&ranks: &u32| RunPlan { ranks, settings: settings.clone() };
        ranks.iter().map(plan).collect()
    }

    fn make_measured(ns: f64) -> RunResult {
        RunResult { cases: vec![make_case(8, &[ns, ns, ns])], ..RunResult::default() }
    }

    /// Runs all rounds. `measure` runs a plan on the MPI with the given number.
    fn run(
        rounds: &mut Rounds, plans: &[RunPlan], count: u32,
        mut measure: impl FnMut(usize, &RunPlan) -> RunResult,
    ) {
        let done: Result<(), ()> = rounds.run(plans, count, |turn| Ok(turn.take(&mut measure)));
        done.unwrap();
    }

    #[test]
    fn who_begins__changes_from_round_to_round() {
        let mut order = Vec::new();
        run(&mut make_rounds(1), &make_plans(&[2]), 4, |mpi, _| {
            order.push(mpi);
            make_measured(100.0)
        });
        assert_eq!(order, [1, 0, 0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn pairs__are_of_runs_that_followed_each_other() {
        // The machine gets slower with every run; the peer takes twice as long.
        let mut rounds = make_rounds(2);
        let mut time = 100.0;
        run(&mut rounds, &make_plans(&[2, 8]), 3, |mpi, _| {
            time *= 1.01;
            make_measured(if mpi == 0 { time } else { 2.0 * time })
        });
        let rows = rounds.list_rows();
        assert_eq!(rows.len(), 2, "two peers; both plans gave the same case");
        assert_eq!(rows[0].pairs.len(), 6);
        for row in rows {
            assert!((row.ratio.ratio - 0.5).abs() < 0.01, "{row:?}");
            assert_eq!(row.says, "faster");
        }
    }

    #[test]
    fn peer__that_fails_keeps_what_it_had_and_is_not_asked_again() {
        let mut rounds = make_rounds(2);
        let mut asked = 0;
        run(&mut rounds, &make_plans(&[2]), 4, |mpi, _| {
            asked += usize::from(mpi == 1);
            let mut outcome = make_measured(100.0);
            if mpi == 1 && asked == 2 {
                outcome = RunResult { failure: Some("it died".into()), ..RunResult::default() };
            }
            outcome
        });
        assert_eq!(asked, 2);
        let rows = rounds.list_rows();
        assert_eq!((rows[0].peer.as_str(), rows[0].pairs.len()), ("alpha", 1));
        assert_eq!((rows[1].peer.as_str(), rows[1].pairs.len()), ("beta", 4));
        let missing = &rounds.list_missing()[0];
        assert_eq!(missing.mpi, "alpha");
        assert!(missing.what.contains("latency"), "{missing:?}");
    }

    #[test]
    fn batches__that_differ_are_refused() {
        let mut rounds = make_rounds(1);
        run(&mut rounds, &make_plans(&[2]), 2, |mpi, _| {
            let mut outcome = make_measured(100.0);
            outcome.cases[0].timing.operations_per_sample = 16 << mpi;
            outcome
        });
        assert!(rounds.list_rows().is_empty());
        assert_eq!(rounds.list_missing().len(), 1, "said once");
        assert!(rounds.list_missing()[0].reason.contains("different statistic"));
    }

    #[test]
    fn case_or_test__that_a_peer_lacks_is_said() {
        let mut rounds = make_rounds(1);
        run(&mut rounds, &make_plans(&[2]), 2, |mpi, _| {
            let mut outcome = make_measured(100.0);
            if mpi == 1 {
                outcome.cases[0].bytes = 16;
                outcome.missing.push(MissingTest {
                    test: "put".into(),
                    level: Default::default(),
                    reason: "unsupported".into(),
                });
            }
            outcome
        });
        let missing = rounds.list_missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing.iter().any(|m| m.reason == "the other MPI did not report this case"));
    }

    #[test]
    fn reports__hold_the_samples_of_all_rounds() {
        let mut rounds = make_rounds(1);
        run(&mut rounds, &make_plans(&[2]), 3, |_, _| make_measured(100.0));
        assert_eq!(rounds.reports[0].cases[0].samples.count(), 9);
        assert_eq!(rounds.reports[1].cases[0].samples.count(), 9);
    }

    #[test]
    fn failure__names_the_case_in_which_it_happened() {
        let outcome = JobResult {
            failure: Some(RunError::Empty),
            at: Some(CaseProgress { test: "rate".into(), bytes: 64, ..CaseProgress::default() }),
            ..JobResult::default()
        };
        let failure = RunResult::from(outcome).failure.unwrap();
        assert!(failure.starts_with("the job ended without a result, in rate at 64 B"));
    }
}
