//! Cliffs in a sweep over sizes: sizes at which the time of a message jumps up or down more than the neighbouring sizes
//! explain.
//!
//! Time grows with size, so the ratio of two neighbours alone means little if their sizes are far apart. The line
//! through the points below a step and the line through those above are extended into the step. The step is a cliff if,
//! even at the most favourable size between the two, one line is more than 1.25 times above the other. For neighbours
//! that differ by a byte this is the ratio of their times. The question comes from "Understanding the Bandwidth Limit
//! of RAMCloud's InfUdDriver" (1728 and 1729 B).

use fastpath_base::tell::count;
use std::collections::BTreeMap;

use crate::format::{behind, format_number};
use crate::record::interval::find_quantile_interval;
use crate::record::{Case, CaseKey};
use crate::surroundings::{Cache, list_caches};

/// Largest factor between neighbours that is not a cliff.
pub const STEP_MAX: f64 = 1.25;

/// A size at which some property is known to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Largest size below the boundary, in bytes.
    pub at: u64,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Size of the message, in bytes.
    pub bytes: u64,
    /// Median time, in nanoseconds.
    pub ns: f64,
}

/// A step that its neighbours do not explain.
#[derive(Clone, Debug, PartialEq)]
pub struct Cliff {
    /// Largest measured size below the step.
    pub from: u64,
    /// Smallest measured size above the step.
    pub to: u64,
    /// Ratio of the larger size's time to the expected time; below 1: faster than expected.
    pub factor: f64,
    /// Known changes between the two sizes; empty if there are none.
    pub causes: Vec<String>,
    /// Whether some values within the 95 % intervals of the two medians make the step vanish.
    pub is_in_noise: bool,
}

/// Finds the cliffs of one sweep: index of the point before the step, and factor. The points must ascend by size.
pub fn find(points: &[Point]) -> Vec<(usize, f64)> {
    let mut cliffs: BTreeMap<usize, f64> = BTreeMap::new();
    loop {
        // The largest cliff first: a line across a cliff would hide another cliff or fake one.
        let next = (0..points.len().saturating_sub(1))
            .filter(|i| !cliffs.contains_key(i))
            .map(|i| (i, measure_step(points, i, &cliffs)))
            .filter(|(_, factor)| factor.ln().abs() > STEP_MAX.ln())
            .max_by(|a, b| a.1.ln().abs().total_cmp(&b.1.ln().abs()));
        match next {
            Some((i, factor)) => cliffs.insert(i, factor),
            None => return cliffs.into_iter().collect(),
        };
    }
}

/// Returns the factor by which the step after point `i` exceeds the growth that the lines through its neighbours
/// predict; 1 if the two lines meet within the step.
fn measure_step(points: &[Point], i: usize, cliffs: &BTreeMap<usize, f64>) -> f64 {
    let (a, b) = (points[i], points[i + 1]);
    let width = (b.bytes - a.bytes) as f64;
    if a.ns <= 0.0 || b.ns <= 0.0 {
        return 1.0;
    }
    // The nearest point before the next cliff that is far enough away to define a line.
    let is_far = |p: &Point, q: &Point| (q.bytes - p.bytes) as f64 >= width / 2.0;
    let below = (0..i)
        .rev()
        .take_while(|j| !cliffs.contains_key(j))
        .map(|j| points[j])
        .find(|p| is_far(p, &a));
    let above = (i + 1..points.len() - 1)
        .take_while(|j| !cliffs.contains_key(j))
        .map(|j| points[j + 1])
        .find(|p| is_far(&b, p));
    let slope = |p: Point, q: Point| ((q.ns - p.ns) / (q.bytes - p.bytes) as f64).max(0.0);
    let left = below.map(|p| slope(p, a));
    let right = above.map(|p| slope(b, p));
    // Without a line above, assume growth in proportion to size: a fixed cost plus a constant speed grows no faster.
    let proportional = a.ns / a.bytes.max(64) as f64;
    let (left, right) = match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (None, Some(right)) => (right, right),
        (Some(left), None) => (left.max(proportional), 0.0),
        (None, None) => (proportional, 0.0),
    };
    // Ratio of the line above the step to the line below it, at each end of the step.
    let at_a = (b.ns - right * width) / a.ns;
    let at_b = b.ns / (a.ns + left * width);
    if (at_a - 1.0) * (at_b - 1.0) <= 0.0 {
        return 1.0;
    }
    // At least one of the two ratios is positive. If the line above the step is negative at `a`, it is lower than the
    // other line there. A ratio above 1 at `b` would then mean that the lines meet.
    let charitable = |x: f64| if x > 0.0 { x.ln().abs() } else { f64::INFINITY };
    if charitable(at_a) < charitable(at_b) { at_a } else { at_b }
}

/// Finds the cliffs of all sweeps among the cases, with their causes.
pub fn find_in_cases(cases: &[Case], boundaries: &[Boundary]) -> Vec<(CaseKey, Cliff)> {
    let mut sweeps: BTreeMap<CaseKey, Vec<&Case>> = BTreeMap::new();
    for case in cases.iter().filter(|c| c.unit == "ns") {
        let key = CaseKey { bytes: 0, ..case.key() };
        sweeps.entry(key).or_default().push(case);
    }
    let mut found = Vec::new();
    for (key, mut sweep) in sweeps {
        sweep.retain(|c| c.samples.count() > 0);
        sweep.sort_by_key(|c| c.bytes);
        sweep.dedup_by_key(|c| c.bytes);
        let points: Vec<Point> = sweep
            .iter()
            .map(|c| Point { bytes: c.bytes, ns: c.samples.quantile(0.5).unwrap_or(0.0) })
            .collect();
        for (i, factor) in find(&points) {
            let cliff = Cliff {
                from: points[i].bytes,
                to: points[i + 1].bytes,
                factor,
                causes: explain(sweep[i], sweep[i + 1], boundaries),
                is_in_noise: is_in_noise(sweep[i], sweep[i + 1], factor),
            };
            found.push((key.clone(), cliff));
        }
    }
    found
}

/// Whether the step may be noise: each median is replaced by the end of its confidence interval that makes the step
/// smaller, and the rest is at most `STEP_MAX`. Also true if an interval is unknown.
fn is_in_noise(near: &Case, far: &Case, factor: f64) -> bool {
    let ends = |case: &Case| {
        let [low, high] = find_quantile_interval(&case.samples, 0.5)?;
        let median = case.samples.quantile(0.5)?;
        Some([low / median, high / median])
    };
    let (Some(near), Some(far)) = (ends(near), ends(far)) else {
        return true;
    };
    let least = match factor > 1.0 {
        true => factor * far[0] / near[1],
        false => near[0] / (factor * far[1]),
    };
    least <= STEP_MAX
}

fn explain(near: &Case, far: &Case, boundaries: &[Boundary]) -> Vec<String> {
    let mut causes = Vec::new();
    let (from, to) = (near.bytes, far.bytes);
    for (what, a, b) in [
        ("transport", &near.transport, &far.transport),
        ("protocol", &near.protocol, &far.protocol),
    ] {
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            let place = match what {
                "protocol" => describe_threshold(near, far),
                _ => String::new(),
            };
            causes.push(format!("the {what} changes from {a} to {b}{place}"));
        }
    }
    for boundary in boundaries.iter().filter(|b| (from..to).contains(&b.at)) {
        causes.push(format!("{} ({} B)", boundary.what, boundary.at));
    }
    if from == 0 {
        causes.push("a message of 0 B has no payload to carry".to_owned());
    }
    for (period, what) in PERIODS {
        if from == 0 {
            break;
        }
        // A step across several multiples of a period is no sign that the period is its cause.
        let count = to.div_ceil(period) - from.div_ceil(period);
        if count == 1 {
            let at = from.div_ceil(period) * period;
            causes.push(format!("{what} ends at {at} B"));
        }
    }
    causes
}

/// Describes the size at which the protocol changes, as far as the library reports it.
fn describe_threshold(near: &Case, far: &Case) -> String {
    let (Some((_, Some(end))), Some((begin, _))) = (near.protocol_sizes, far.protocol_sizes) else {
        return String::new();
    };
    match end + 1 == begin {
        true => format!(" above {end} B"),
        false => {
            format!(
                " (the first protocol up to {end} B, the second from {begin} B, other protocols \
                 in between)"
            )
        }
    }
}

/// Periods in bytes, each with a description: messages may become slower at a multiple of such a period.
const PERIODS: [(u64, &str); 3] =
    [(64, "a 64 B cache line"), (256, "a bus packet of 256 B"), (4096, "a 4 KiB page")];

/// Lists the boundaries of this machine that are known without the library: its caches.
pub fn list_cache_boundaries() -> Vec<Boundary> {
    let caches = list_caches(0).into_iter().filter(|c| c.kind != "instruction");
    let boundary = |cache: Cache| {
        let at = fastpath_base::config::parse_size(&cache.size).ok()?;
        let what = format!("one buffer fills the L{} cache", cache.level);
        Some(Boundary { at, what })
    };
    caches.filter_map(boundary).collect()
}

pub fn describe(cases: &[Case], boundaries: &[Boundary]) -> String {
    let mut text = String::new();
    for (key, cliff) in find_in_cases(cases, boundaries) {
        if text.is_empty() {
            text = format!(
                "\nsteps between neighbouring sizes, where medians change by more than a factor \
                 of {STEP_MAX} beyond the trend of the sizes around them:\n"
            );
        }
        let variant = behind(" ", &key.variant);
        let causes = if cliff.causes.is_empty() {
            format!(
                "no known cause; measure sizes in between with --sizes {}",
                list_between(cliff.from, cliff.to)
            )
        } else {
            cliff.causes.join("; ")
        };
        let noise = match cliff.is_in_noise {
            true => " (within the noise of the samples)",
            false => "",
        };
        text += &format!(
            "{}{variant}, {}, {} to {} B: x{}{noise}: {causes}\n",
            key.test,
            count(key.ranks, "rank"),
            cliff.from,
            cliff.to,
            format_number(cliff.factor),
        );
    }
    text
}

/// Lists both ends of a step and the sizes that divide it into four, separated by commas.
fn list_between(from: u64, to: u64) -> String {
    let mut sizes: Vec<u64> = (0..=4).map(|q| from + (to - from) * q / 4).collect();
    sizes.dedup();
    let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
    words.join(",")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_case;

    fn make_points(points: &[(u64, f64)]) -> Vec<Point> {
        points.iter().map(|&(bytes, ns)| Point { bytes, ns }).collect()
    }

    fn find_sizes(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
        let points = make_points(points);
        find(&points)
            .into_iter()
            .map(|(i, factor)| (points[i].bytes, (factor * 100.0).round() / 100.0))
            .collect()
    }

    #[test]
    fn growth__with_a_fixed_cost_and_a_speed_has_no_cliff() {
        for overhead in [1.0, 100.0, 5000.0] {
            let points: Vec<(u64, f64)> = [0, 8, 64, 256, 1024, 4096, 16384, 1 << 20]
                .map(|b| (b, overhead + b as f64 * 0.1))
                .to_vec();
            assert_eq!(find_sizes(&points), []);
        }
    }

    #[test]
    fn slope__that_changes_without_a_jump_is_no_cliff() {
        let cost = |b: u64| 100.0 + 0.02 * b as f64 + 0.2 * b.saturating_sub(4096) as f64;
        let points: Vec<(u64, f64)> = (6..20).map(|s| (1 << s, cost(1 << s))).collect();
        assert_eq!(find_sizes(&points), []);
    }

    #[test]
    fn jump__between_protocols_is_found_with_its_factor() {
        let cost = |b: u64| 100.0 + 0.1 * b as f64 + if b > 1024 { 2000.0 } else { 0.0 };
        let points: Vec<(u64, f64)> = (4..18).map(|s| (1 << s, cost(1 << s))).collect();
        let found = find_sizes(&points);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, 1024);
        assert!(found[0].1 > 2.0, "{found:?}");
    }

    #[test]
    fn neighbours__of_one_byte_are_held_against_their_bare_ratio() {
        // The cliff of 1728 and 1729 B: with one byte more, the message takes half the time.
        let points = [(1024, 700.0), (1728, 1100.0), (1729, 546.0), (2048, 640.0), (4096, 1250.0)];
        assert_eq!(find_sizes(&points), [(1728, 0.5)]);
        let steady = [(1024, 700.0), (1728, 1100.0), (1729, 1110.0), (2048, 1290.0)];
        assert_eq!(find_sizes(&steady), []);
    }

    #[test]
    fn way__that_begins_too_late_shows_as_a_step_down() {
        // Measured: another protocol from 32 KiB on, which would have been faster at 16 KiB already.
        let points =
            [(4096, 924.0), (8192, 1594.0), (16384, 2688.0), (32768, 3061.0), (65536, 4980.0)];
        assert_eq!(find_sizes(&points), [(16384, 0.78)]);
    }

    #[test]
    fn sweeps__too_short_or_without_times_have_none() {
        assert_eq!(find_sizes(&[]), []);
        assert_eq!(find_sizes(&[(8, 100.0)]), []);
        assert_eq!(find_sizes(&[(8, 0.0), (16, 100.0)]), []);
    }

    #[test]
    fn causes__name_protocol_boundary_and_alignment() {
        let near = make_case(4096, &[500.0]);
        let far = Case { protocol: Some("rendezvous".into()), ..make_case(4097, &[1500.0]) };
        let boundaries = [
            Boundary { at: 4096, what: "the largest eager message".into() },
            Boundary { at: 100, what: "elsewhere".into() },
        ];
        let found = find_in_cases(&[far, near], &boundaries);
        assert_eq!(found.len(), 1);
        let cliff = &found[0].1;
        assert_eq!((cliff.from, cliff.to), (4096, 4097));
        assert!((cliff.factor - 3.0).abs() < 0.01, "{}", cliff.factor);
        let text = cliff.causes.join("; ");
        for part in [
            "from eager short to rendezvous",
            "the largest eager message (4096 B)",
            "a 64 B cache line ends at 4096 B",
            "a 4 KiB page ends at 4096 B",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("elsewhere"), "{text}");
    }

    #[test]
    fn protocol_change__is_named_with_the_threshold_that_the_library_says() {
        let case = |bytes, protocol: &str, sizes| Case {
            protocol: Some(protocol.into()),
            protocol_sizes: Some(sizes),
            ..make_case(bytes, &[1.0])
        };
        let near = case(16384, "eager multi-fragment", (8129, Some(24000)));
        for (far, words) in [
            ((24001, None), "to rendezvous above 24000 B"),
            ((30001, None), "first protocol up to 24000 B, the second from 30001 B"),
        ] {
            let far = case(32768, "rendezvous", far);
            let causes = explain(&near, &far, &[]);
            assert!(causes[0].contains(words), "{causes:?}");
        }
    }

    #[test]
    fn step__over_many_lines_is_not_put_down_to_one() {
        let causes = explain(&make_case(1024, &[1.0]), &make_case(4096, &[9.0]), &[]);
        assert_eq!(causes, Vec::<String>::new());
        let causes = explain(&make_case(8, &[1.0]), &make_case(64, &[9.0]), &[]);
        assert_eq!(causes, Vec::<String>::new(), "64 B still fit one line");
    }

    #[test]
    fn description__without_a_known_cause_says_how_to_look_closer() {
        let cases = [make_case(1024, &[100.0]), make_case(4096, &[1000.0])];
        let text = describe(&cases, &[]);
        assert!(text.contains("--sizes 1024,1792,2560,3328,4096"), "{text}");
        assert_eq!(describe(&cases[..1], &[]), "");
    }

    #[test]
    fn first_byte__is_no_end_of_a_line_or_a_page() {
        let causes = explain(&make_case(0, &[1.0]), &make_case(8, &[9.0]), &[]);
        assert_eq!(causes, ["a message of 0 B has no payload to carry"]);
    }

    #[test]
    fn step__within_the_noise_of_its_samples_says_so() {
        let spread = |middle: f64, width: f64| -> Vec<f64> {
            let at = |i: i32| middle + width * (f64::from(i) / 50.0 - 1.0);
            (0..=100).map(at).collect()
        };
        let steady = [make_case(4096, &spread(500.0, 5.0)), make_case(4097, &spread(700.0, 5.0))];
        assert!(!describe(&steady, &[]).contains("noise"));
        for noisy in [spread(700.0, 650.0), vec![700.0]] {
            let cases = [make_case(4096, &spread(500.0, 5.0)), make_case(4097, &noisy)];
            let text = describe(&cases, &[]);
            assert!(text.contains("x1.400 (within the noise"), "{text}");
        }
    }

    #[test]
    fn tests__and_ranks_are_sweeps_of_their_own() {
        let eight = Case { ranks: 8, ..make_case(16, &[9000.0]) };
        assert!(find_in_cases(&[make_case(8, &[100.0]), eight], &[]).is_empty());
    }
}
