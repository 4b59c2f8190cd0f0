//! Search for the loops, chunk and ring that make the bare pipeline fastest for one message size.

use std::cmp::Ordering;
use std::io;

use fastpath_base::clock;
use fastpath_base::copy::engine::Loop;
use fastpath_report::lists::unique;
use fastpath_report::statistics::{Summary, summarize};

use super::{CHUNK_MIN, Pipeline, PipelinePlan, PipelineTimes, RING_MAX};

/// A plan and its time: half a round trip in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct BestPlan {
    /// Parameters of the pipeline.
    pub plan: PipelinePlan,
    /// One-way time, over the batches with a cache-line time of about `line`.
    pub time: Summary,
    /// One-way time of a cache line: the median over all compared plans.
    pub line: f64,
    /// Number of batches that were excluded because of another cache-line time.
    pub elsewhere: usize,
}

/// Duration of the measurement of each plan.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of samples of each plan.
    pub samples: usize,
    /// Minimum duration of a batch; a sample is the mean over a batch.
    pub batch_ns: u64,
    /// Whether to combine every loop of one side with every loop of the other, each with every chunk and ring.
    pub all: bool,
    /// Clock value after which no further plan is measured: some plans then have fewer samples, or none.
    pub until_ns: u64,
}

impl Effort {
    /// Enough to distinguish loops that differ by some percent.
    pub const DEFAULT: Effort =
        Effort { samples: 12, batch_ns: 100_000, all: false, until_ns: u64::MAX };

    /// Number of times that [`search`] measures a plan.
    pub fn count_plans(self, bytes: usize) -> usize {
        let (loops, shapes) = (Loop::all_available().len(), list_shapes(bytes).len());
        let plans = match self.all {
            true => loops * loops * (shapes + 1),
            false => shapes + loops * loops + loops * shapes + loops,
        };
        plans * ROUNDS
    }
}

/// Number of rounds in which compared plans alternate: a virtual machine's shared cache can change within a second.
const ROUNDS: usize = 4;

/// Factor by which reported plans are measured longer: a plan may be the fastest of many by luck.
const FINAL_FACTOR: usize = 4;

const CHUNKS: [usize; 4] = [CHUNK_MIN, 2 << 10, 4 << 10, 16 << 10];
const RINGS: [usize; 3] = [16 << 10, 64 << 10, RING_MAX];

fn list_shapes(bytes: usize) -> Vec<(usize, usize)> {
    let useful = |chunk: &usize| *chunk <= bytes.next_power_of_two().max(CHUNK_MIN);
    let chunks = CHUNKS.into_iter().filter(useful);
    chunks
        .flat_map(|chunk| RINGS.map(|ring| (chunk, ring)))
        // The two sides must be able to copy at the same time.
        .filter(|(chunk, ring)| chunk < ring)
        .collect()
}

/// Effort of [`find_best`]: enough to find which plans are among the best.
const QUICK: Effort = Effort { samples: ROUNDS, batch_ns: 30_000, ..Effort::DEFAULT };

/// Number of best plans that are measured until the end. The next size tries them first.
const BEST: usize = 4;

/// Percentages of the time for one size at which the search of loop pairs and that of chunk and ring end.
const PARTS: [u64; 2] = [40, 70];

/// Finds the best plan for messages of each size, which is the floor of a large message between these processors.
/// `limit_ns` is for all sizes together. Small sizes come first, and their best plans are the first that the next size
/// tries: the time allows few measurements of large messages.
///
/// # Errors
/// This process may not use a processor; no memory.
pub fn find_best(
    processors: [usize; 2], sizes: &[usize], limit_ns: u64,
) -> io::Result<Vec<(Pipeline, BestPlan)>> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let end = clock::now_ns() + limit_ns;
    let (mut known, mut best) = (Vec::new(), Vec::new());
    for (at, &bytes) in sizes.iter().enumerate() {
        let mut pipeline = Pipeline::new(processors, bytes)?;
        let now = clock::now_ns();
        let share = end.saturating_sub(now) / (sizes.len() - at) as u64;
        known = search_within(&mut pipeline, &known, (now, share))?;
        if let Some(&found) = known.first() {
            best.push((pipeline, found));
        }
    }
    Ok(best)
}

/// Returns the best few plans, the fastest first, within `share` nanoseconds from `begin` on.
fn search_within(
    pipeline: &mut Pipeline, known: &[BestPlan], (begin, share): (u64, u64),
) -> io::Result<Vec<BestPlan>> {
    let until = |percent| Effort { until_ns: begin + share * percent / 100, ..QUICK };
    let shapes = list_shapes(pipeline.bytes);
    let shape = known.first().map(|f| (f.plan.chunk, f.plan.ring));
    let shape = shape.unwrap_or(shapes[shapes.len() / 2]);
    let own = known.iter().map(|f| [f.plan.into_ring, f.plan.out_of_ring]);
    let mut pairs: Vec<[Loop; 2]> = own.collect();
    pairs.push([Loop::usual(); 2]);
    pairs.extend(pair_all(&Loop::all_available()));
    let mut plans: Vec<PipelinePlan> = known.iter().map(|f| f.plan).collect();
    plans.extend(pairs.iter().map(|&[one, two]| make_plan(one, two, shape)));
    let mut found = measure_best(pipeline, plans, until(PARTS[0]))?;
    let pairs: Vec<PipelinePlan> = found.iter().map(|f| f.plan).collect();
    let others = shapes.iter().flat_map(|&shape| {
        let pairs = pairs.iter();
        pairs.map(move |p| make_plan(p.into_ring, p.out_of_ring, shape))
    });
    found.extend(measure_best(pipeline, others.collect(), until(PARTS[1]))?);
    found.sort_by(compare);
    let plans = found.iter().map(|f| f.plan).collect();
    measure_best(pipeline, plans, until(100))
}

/// Measures each plan once, and then the best few in the remaining time. Returns them with the fastest first.
fn measure_best(
    pipeline: &mut Pipeline, plans: Vec<PipelinePlan>, effort: Effort,
) -> io::Result<Vec<BestPlan>> {
    let mut found = measure_plans(pipeline, unique(plans), effort, &mut || ())?;
    found.sort_by(compare);
    found.truncate(BEST);
    Ok(found)
}

/// Compares two plans by their median times.
pub fn compare(one: &BestPlan, two: &BestPlan) -> Ordering {
    one.time.median.total_cmp(&two.time.median)
}

/// Finds, for each loop of the sender, the best loop of the receiver with the best chunk and ring, unsorted. With `all`
/// it does so for each pair of loops. Chunk and ring are chosen by one pair of loops. Then all pairs are measured with
/// the chosen chunk and ring. Finally, chunk and ring are chosen once more. `tick` is called after each measurement.
///
/// # Errors
/// See [`Pipeline::sample`].
pub fn search(
    pipeline: &mut Pipeline, effort: Effort, tick: &mut impl FnMut(),
) -> io::Result<Vec<BestPlan>> {
    let (loops, shapes) = (Loop::all_available(), list_shapes(pipeline.bytes));
    let shapes_of = |pair: &[Loop; 2]| {
        let [into_ring, out_of_ring] = *pair;
        let shapes = shapes.iter();
        shapes.map(move |&shape| make_plan(into_ring, out_of_ring, shape))
    };
    let pairs = match effort.all {
        true => pair_all(&loops),
        false => {
            let usual = [Loop::usual(); 2];
            let found = measure_plans(pipeline, shapes_of(&usual).collect(), effort, tick)?;
            let shape = keep_best(found, |_| ()).into_iter().next();
            let shape = shape.map_or(shapes[0], |f| (f.plan.chunk, f.plan.ring));
            let plans = pair_all(&loops);
            let plans = plans.iter().map(|&[one, two]| make_plan(one, two, shape));
            let found = measure_plans(pipeline, plans.collect(), effort, tick)?;
            let best = keep_best(found, |plan| plan.into_ring);
            best.iter().map(|f| [f.plan.into_ring, f.plan.out_of_ring]).collect()
        }
    };
    let plans = pairs.iter().flat_map(shapes_of).collect();
    let found = measure_plans(pipeline, plans, effort, tick)?;
    let best = keep_best(found, |plan| (plan.into_ring, plan.out_of_ring));
    let longer = Effort { samples: effort.samples * FINAL_FACTOR, ..effort };
    measure_plans(pipeline, best.iter().map(|f| f.plan).collect(), longer, tick)
}

fn pair_all(loops: &[Loop]) -> Vec<[Loop; 2]> {
    let pairs = loops.iter().map(|&one| loops.iter().map(move |&two| [one, two]));
    pairs.flatten().collect()
}

/// Keeps the best plan for each key, in the order in which the keys appear.
fn keep_best<K: PartialEq>(found: Vec<BestPlan>, key: impl Fn(PipelinePlan) -> K) -> Vec<BestPlan> {
    let mut best: Vec<BestPlan> = Vec::new();
    for one in found {
        match best.iter_mut().find(|b| key(b.plan) == key(one.plan)) {
            Some(held) if compare(&one, held).is_lt() => *held = one,
            Some(_) => (),
            None => best.push(one),
        }
    }
    best
}

fn make_plan(into_ring: Loop, out_of_ring: Loop, (chunk, ring): (usize, usize)) -> PipelinePlan {
    PipelinePlan { into_ring, out_of_ring, chunk, ring }
}

/// Measures the plans in turn, and compares measurements in one state of the machine: the state with the most
/// measurements.
fn measure_plans(
    pipeline: &mut Pipeline, plans: Vec<PipelinePlan>, effort: Effort, tick: &mut impl FnMut(),
) -> io::Result<Vec<BestPlan>> {
    let mut taken = vec![Vec::new(); plans.len()];
    'rounds: for round in 0..ROUNDS {
        for (at, (&plan, taken)) in plans.iter().zip(&mut taken).enumerate() {
            if (round, at) != (0, 0) && clock::now_ns() >= effort.until_ns {
                break 'rounds;
            }
            let samples = effort.samples.div_ceil(ROUNDS);
            taken.push(pipeline.sample(plan, samples, effort.batch_ns)?);
            tick();
        }
    }
    let lines: Vec<f64> = taken.iter().flatten().flat_map(|t| t.lines).collect();
    let line = summarize(&lines).map_or(0.0, |l| l.median);
    let found = plans.into_iter().zip(&taken);
    Ok(found.filter_map(|(plan, taken)| summarize_at(plan, taken, line)).collect())
}

/// Summarizes a plan's times with a cache-line time of about `line`; if there are none, all its times.
fn summarize_at(plan: PipelinePlan, taken: &[PipelineTimes], line: f64) -> Option<BestPlan> {
    let there = taken.iter().filter(|t| t.is_at(line));
    let mut times: Vec<f64> = there.flat_map(|t| &t.times).copied().collect();
    let all = taken.iter().flat_map(|t| &t.times);
    let elsewhere = all.clone().count() - times.len();
    if times.is_empty() {
        times = all.copied().collect();
    }
    let time = summarize(&times)?;
    Some(BestPlan { plan, time, line, elsewhere })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measure::placement::allowed_processors;

    const SHORT: Effort = Effort { samples: 2, batch_ns: 1, all: false, until_ns: u64::MAX };

    #[test]
    fn search__gives_a_plan_for_each_loop_or_pair_and_counts_what_it_measures() {
        let [first, .., last] = allowed_processors()[..] else {
            return;
        };
        // Messages this short have one chunk size and so few shapes that every pair of loops can be measured with each.
        const BYTES: usize = 700;
        let pair = [first, last];
        let loops = Loop::all_available().len();
        for (all, expected) in [(false, loops), (true, loops * loops)] {
            let effort = Effort { all, ..SHORT };
            let mut pipeline = Pipeline::new(pair, BYTES).unwrap();
            let mut ticks = 0;
            let found = search(&mut pipeline, effort, &mut || ticks += 1).unwrap();
            assert_eq!(found.len(), expected);
            assert_eq!(ticks, effort.count_plans(BYTES));
        }
    }

    #[test]
    fn best__of_each_size_is_found_within_the_time() {
        let [first, .., last] = allowed_processors()[..] else {
            return;
        };
        let best = find_best([first, last], &[5000, 1500, 5000], 1).unwrap();
        let sizes: Vec<usize> = best.iter().map(|(p, _)| p.bytes()).collect();
        assert_eq!(sizes, [1500, 5000]);
        assert!(best.iter().all(|(_, f)| f.time.median > 0.0));
    }

    #[test]
    fn times__count_where_the_line_took_as_long_before_and_after() {
        let plan = make_plan(Loop::usual(), Loop::usual(), (1024, 16 << 10));
        let taken = |time, lines| PipelineTimes { times: vec![time; 2], lines };
        let all =
            [taken(100.0, [60.0, 65.0]), taken(400.0, [250.0, 260.0]), taken(200.0, [60.0, 250.0])];
        let found = summarize_at(plan, &all, 62.0).unwrap();
        assert_eq!((found.time.p99, found.time.samples), (100.0, 2));
        assert_eq!(found.elsewhere, 4);
        let found = summarize_at(plan, &all, 25.0).unwrap();
        assert_eq!((found.time.samples, found.elsewhere), (6, 6));
        assert!(summarize_at(plan, &[], 25.0).is_none());
    }

    #[test]
    fn shapes__have_no_chunk_that_is_larger_than_the_message_needs() {
        let largest = |bytes| list_shapes(bytes).into_iter().map(|s| s.0).max();
        assert_eq!(largest(100), Some(1024));
        assert_eq!(largest(1500), Some(2048));
        assert_eq!(largest(1 << 20), Some(16 << 10));
        let whole = |(chunk, ring): (usize, usize)| ring % chunk == 0 && ring <= RING_MAX;
        assert!(list_shapes(1 << 20).into_iter().all(whole));
    }
}
