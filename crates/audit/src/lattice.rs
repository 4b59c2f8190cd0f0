//! Finds the step of a clock in rounded printed numbers.
//!
//! If a clock moves in steps, values computed from it lie on a lattice. Each value is a whole number times the step, up
//! to the rounding of the last printed digit. The search is exact: every value allows the step certain intervals, one
//! for each whole number, and all values together allow their intersection. A fitting step is significant only if few
//! steps would fit by chance. The expected number of such steps is the count of distinguishable steps, times the chance
//! that all values fall this near to multiples of one step.

use super::table::Cell;

/// Largest examined ratio of the smallest value to the step.
const STEPS_MAX: f64 = 20_000.0;

/// Smallest ratio of a step to the width of the rounding. Nearly all values would fit a smaller step.
const WIDTHS_MIN: f64 = 3.0;

/// Largest number of distinct values: more add no information.
const VALUES_MAX: usize = 256;

/// Largest number of intervals; more mean that the numbers are too coarse.
const INTERVALS_MAX: usize = 200_000;

/// Rounding of the last printed digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    Nearest,
    /// Towards zero.
    Down,
    /// To the nearest or towards zero, after inexact arithmetic.
    Mixed,
}

impl Rounding {
    const ALL: [Rounding; 3] = [Rounding::Nearest, Rounding::Down, Rounding::Mixed];

    /// Largest distance of the true value below and above the printed value, in units of the last digit.
    fn reach(self) -> (f64, f64) {
        match self {
            Rounding::Nearest => (0.5, 0.5),
            Rounding::Down => (0.0, 1.0),
            Rounding::Mixed => (1.0, 1.0),
        }
    }
}

/// Clock step of which all values are whole multiples, up to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lattice {
    /// Lower end of the step's interval, in the unit of the values.
    pub low: f64,
    /// Upper end of the step's interval.
    pub high: f64,
    /// Rounding with which the values are multiples.
    pub rounding: Rounding,
    /// Number of distinct values that fit.
    pub values: usize,
    /// Expected number of such steps in numbers without a step.
    pub chance: f64,
}

impl Lattice {
    /// Middle of the interval.
    pub fn step(&self) -> f64 {
        (self.low + self.high) / 2.0
    }

    /// Returns the number of steps in a printed value; None if the value is no multiple of the step.
    pub fn multiple(&self, cell: Cell) -> Option<u64> {
        let (low, high) = allowed(cell, self.rounding);
        let nearest = (cell.value / self.step()).round();
        let fits = |k: f64| k >= 1.0 && low <= k * self.high && k * self.low <= high;
        let near = [nearest, nearest + 1.0].into_iter().find(|&k| fits(k));
        near.map(|k| k as u64)
    }
}

/// Interval of the value before it was printed. Slightly wider than exact, because decimal fractions are inexact in
/// binary.
fn allowed(cell: Cell, rounding: Rounding) -> (f64, f64) {
    let (below, above) = rounding.reach();
    let hair = cell.value.abs() * 1e-12;
    (cell.value - below * cell.quantum - hair, cell.value + above * cell.quantum + hair)
}

/// Finds the step that is least likely to fit by chance. Returns None unless the probability that any of all `searches`
/// fits by chance is below `chance_max`.
pub fn find_step(cells: &[Cell], searches: usize, chance_max: f64) -> Option<Lattice> {
    let values = distinct(cells);
    if values.len() < 3 {
        return None;
    }
    let tried = (searches.max(1) * Rounding::ALL.len()) as f64;
    let found = Rounding::ALL.iter().filter_map(|&r| search(&values, r));
    let found = found.map(|l| Lattice { chance: l.chance * tried, ..l });
    let likely = found.filter(|l| l.chance < chance_max);
    let best = likely.min_by(|a, b| a.chance.total_cmp(&b.chance))?;
    Some(widen(best, &values))
}

/// Widens the step's interval to all kinds of rounding. Truncated numbers that are taken for rounded ones fit a
/// slightly smaller step.
fn widen(found: Lattice, values: &[Cell]) -> Lattice {
    let (step, mut around) = (found.step(), vec![(found.low * 0.9, found.high * 1.1)]);
    for &cell in values {
        match narrow(&around, allowed(cell, Rounding::Mixed)) {
            Some(next) => around = next,
            None => return found,
        }
    }
    let whole = around.into_iter().find(|&(l, h)| l <= step && step <= h);
    let (low, high) = whole.unwrap_or((found.low, found.high));
    Lattice { low, high, ..found }
}

/// Values above zero without duplicates, ascending.
fn distinct(cells: &[Cell]) -> Vec<Cell> {
    let usable = |c: &&Cell| c.value > 0.0 && c.quantum > 0.0 && c.value > c.quantum;
    let mut values: Vec<Cell> = cells.iter().filter(usable).copied().collect();
    values.sort_by(|a, b| a.value.total_cmp(&b.value));
    values.dedup_by(|a, b| a.value == b.value);
    values.truncate(VALUES_MAX);
    values
}

fn search(values: &[Cell], rounding: Rounding) -> Option<Lattice> {
    let first = allowed(*values.first()?, rounding);
    let (below, above) = rounding.reach();
    let widest = values.iter().map(|c| c.quantum).fold(0.0, f64::max) * (below + above);
    let least = (WIDTHS_MIN * widest).max(first.1 / STEPS_MAX);
    let mut intervals = vec![(least, first.1)];
    for cell in values {
        intervals = narrow(&intervals, allowed(*cell, rounding))?;
    }
    let rate = |&(low, high): &(f64, f64)| {
        let lattice = Lattice { low, high, rounding, values: values.len(), chance: 0.0 };
        let chance = chance_of(&lattice, values);
        Lattice { chance, ..lattice }
    };
    let rated = intervals.iter().map(rate);
    rated.min_by(|a, b| a.chance.total_cmp(&b.chance))
}

/// Returns the parts of the intervals whose steps have a whole multiple in `[low, high]`; None if the parts become too
/// many, or none is left.
fn narrow(intervals: &[(f64, f64)], (low, high): (f64, f64)) -> Option<Vec<(f64, f64)>> {
    let mut kept = Vec::new();
    for &(from, to) in intervals {
        let first = (low / to).ceil().max(1.0) as u64;
        let last = (high / from).floor() as u64;
        for k in first..=last {
            let k = k as f64;
            let part = (from.max(low / k), to.min(high / k));
            if part.0 <= part.1 {
                kept.push(part);
            }
            if kept.len() > INTERVALS_MAX {
                return None;
            }
        }
    }
    (!kept.is_empty()).then_some(kept)
}

/// Expected number of steps of at least this length that fit random values. If the largest value is k times the
/// shortest step, it allows k steps. Each other value fits with a probability: the share of the step that its rounding
/// covers, plus the uncertainty left by the largest value.
fn chance_of(lattice: &Lattice, values: &[Cell]) -> f64 {
    let step = lattice.step();
    let (below, above) = lattice.rounding.reach();
    let width = |c: &Cell| c.quantum * (below + above);
    // Values that differ by a power of two are one observation: a step that fits one fits the other.
    let multiples = values.iter().filter_map(|c| Some((lattice.multiple(*c)?, *c)));
    let mut parts: Vec<(u64, Cell)> =
        multiples.map(|(k, c)| (k >> k.trailing_zeros(), c)).collect();
    parts.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.value.total_cmp(&a.1.value)));
    parts.dedup_by_key(|p| p.0);
    parts.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let Some((_, largest)) = parts.pop() else {
        return f64::INFINITY;
    };
    let open = |c: &Cell| width(c) + width(&largest) * c.value / largest.value;
    let all: f64 = parts.iter().map(|(_, c)| (open(c) / step).min(1.0)).product();
    largest.value / step * all
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn cells(values: &[f64], quantum: f64) -> Vec<Cell> {
        let make = |&value| Cell { value, quantum };
        values.iter().map(make).collect()
    }

    struct TestRandom(u64);

    impl TestRandom {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn random_numbers__have_no_step() {
        let mut random = TestRandom(1);
        let mut found = 0;
        for round in 0..3000 {
            let count = 3 + round % 20;
            let digits = [1.0, 0.1, 0.01, 0.001][round % 4];
            let values: Vec<f64> = (0..count)
                .map(|_| 10f64.powf(random.next() * 3.5))
                .map(|v| (v / digits).round() * digits)
                .collect();
            found += usize::from(find_step(&cells(&values, digits), 1, 1e-3).is_some());
        }
        // One in a thousand is allowed; the bound is generous enough never to fail by luck.
        assert!(found <= 9, "{found} of 3000");
    }

    #[test]
    fn smooth_curves__have_no_step() {
        let mut random = TestRandom(7);
        let mut found = 0;
        for _ in 0..500 {
            let (start, slope) = (0.3 + 5.0 * random.next(), 0.5 * random.next() / 1024.0);
            let values: Vec<f64> = (0..23)
                .map(|shift| start + slope * f64::from(1 << shift))
                .map(|v| (v * 100.0).round() / 100.0)
                .collect();
            found += usize::from(find_step(&cells(&values, 0.01), 1, 1e-3).is_some());
        }
        assert!(found <= 3, "{found} of 500");
    }

    #[test]
    fn planted_step__is_found_whatever_the_rounding() {
        let mut random = TestRandom(3);
        for round in 0..200 {
            let step = 20.0 + 400.0 * random.next();
            let values: Vec<f64> = (0..14)
                .map(|_| (3.0 + random.next() * 90.0).floor() * step)
                .map(|v| if round % 2 == 0 { v.round() } else { v.floor() })
                .collect();
            let found = find_step(&cells(&values, 1.0), 1, 1e-3).expect("a step");
            assert!((found.low..=found.high).contains(&step), "{step}: {found:?}");
        }
    }

    #[test]
    fn doubling__is_not_taken_for_a_clock() {
        let values: Vec<f64> = (0..12).map(|shift| 107.3 * f64::from(1 << shift)).collect();
        assert_eq!(find_step(&cells(&values, 0.1), 1, 1e-3), None);
    }
}
