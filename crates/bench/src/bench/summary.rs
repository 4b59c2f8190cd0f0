//! `--summary`: the result of a ping-pong on one screen. Latency, its floor, a verdict, a chart.

use anyhow::Result;
use fastpath_report::document::wrap;
use fastpath_report::format::{format_number, size, time};
use fastpath_report::headline::{find_busy_share, find_floor, find_median};
use fastpath_report::output::chart::{COLUMNS, Charset, Curve, draw};
use fastpath_report::output::file::is_standard;
use fastpath_report::record::{Case, Quantity};
use fastpath_report::refuse_usage;

use super::options::BenchOptions;
use crate::options::CaseOptions;

/// Default message sizes, in bytes.
const SIZES: [u64; 9] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Default time for the samples of a case, in milliseconds.
const DURATION_MS: f64 = 100.0;

impl BenchOptions {
    /// Returns the options with the default sizes and duration of a summary.
    ///
    /// # Errors
    /// Options that a summary does not support, or tests without a ping-pong.
    pub fn with_summary_defaults(&self) -> Result<BenchOptions> {
        let tests = self.choose_tests()?;
        let other = tests.iter().find(|test| test.of != Quantity::HalfRoundTrip);
        if let Some(other) = other {
            refuse_usage!(
                "--summary exists only for ping-pongs, and {} is not a ping-pong; use the test \
                 latency",
                other.name
            );
        }
        let results = [&self.results.json, &self.results.html, &self.csv];
        let takes_output = results.into_iter().flatten().any(|path| is_standard(path));
        if takes_output {
            refuse_usage!(
                "--summary prints to standard output; name files for --json, --html and --csv"
            );
        }
        let mut options = self.clone();
        let case: &mut CaseOptions = &mut options.measure.case;
        if case.sizes.is_empty() {
            case.sizes = SIZES.to_vec();
        }
        if case.iterations.is_none() {
            case.duration.get_or_insert(DURATION_MS);
        }
        Ok(options)
    }
}

/// Lines of the summary, at most [`COLUMNS`] wide; empty if no ping-pong with payload was measured.
pub fn describe(cases: &[Case], charset: Charset) -> Vec<String> {
    let cases = choose_cases(cases);
    let Some(&smallest) = cases.first() else {
        return Vec::new();
    };
    let mut lines = describe_latency(smallest);
    let verdict = describe_busy(&cases).unwrap_or_else(|| describe_ratio(smallest));
    lines.extend(wrap(&verdict, COLUMNS, 0, 0).lines().map(str::to_owned));
    lines.push(String::new());
    let [latency, floor] = make_curves(&cases);
    let has_floor = !floor.points.is_empty();
    let what = if has_floor { "line: latency, dots: its floor" } else { "line: latency" };
    lines.push(format!("Latency by message size in bytes ({what})"));
    lines.extend(draw(&[latency, floor], charset));
    lines.iter().map(|line| charset.encode(line)).collect()
}

fn choose_cases(cases: &[Case]) -> Vec<&Case> {
    let is_pingpong =
        |c: &&Case| c.of == Quantity::HalfRoundTrip && c.bytes > 0 && find_median(c).is_some();
    let Some(first) = cases.iter().find(is_pingpong) else {
        return Vec::new();
    };
    let identity = |c: &Case| (c.test.clone(), c.variant.clone(), c.level, c.ranks);
    let is_same = |c: &&Case| is_pingpong(c) && identity(c) == identity(first);
    let mut chosen: Vec<&Case> = cases.iter().filter(is_same).collect();
    chosen.sort_by_key(|c| c.bytes);
    chosen
}

fn make_curves(cases: &[&Case]) -> [Curve; 2] {
    let points = |of: fn(&Case) -> Option<f64>| -> Vec<(u64, f64)> {
        cases.iter().filter_map(|c| Some((c.bytes, of(c)?))).collect()
    };
    [
        Curve { points: points(find_median), is_dotted: false },
        Curve { points: points(find_floor), is_dotted: true },
    ]
}

fn describe_latency(case: &Case) -> Vec<String> {
    let ns = find_median(case).unwrap_or_default();
    let latency = format!("{} for {}, median of half a round trip", time(ns), size(case.bytes));
    let of = case.floor_of.as_deref().unwrap_or("hardware");
    let mut lines = vec![format!("Message latency  {latency}")];
    lines.extend(find_floor(case).map(|ns| format!("Hardware floor   {}, {of}", time(ns))));
    lines
}

/// Sentence about other programs during the measurement, instead of the ratio to the floor; None on an idle machine.
pub fn describe_busy(cases: &[&Case]) -> Option<String> {
    let fastest = cases.first()?.samples.summarize()?.min;
    let mean = find_busy_share(cases)?;
    let has_floor = cases.iter().any(|case| find_floor(case).is_some());
    let ratio = if has_floor { ", and no ratio to the floor is printed" } else { "" };
    Some(format!(
        "The machine is busy: the sending rank had {mean:.0} % of a processor. The times are \
         therefore too long{ratio}. The fastest sample took {}. Run the test again on an idle \
         machine.",
        time(fastest)
    ))
}

/// Sentence about the ratio of a latency to its floor.
pub fn describe_ratio(case: &Case) -> String {
    let Some((latency, floor)) = find_median(case).zip(find_floor(case)) else {
        return "No hardware floor was measured for comparison.".to_owned();
    };
    let ratio = latency / floor;
    let verdict = match ratio {
        ..1.1 => "At the limit of the hardware",
        ..1.5 => "Close to the limit of the hardware",
        ..3.0 => "Within three times the limit of the hardware",
        _ => "Far above the limit of the hardware",
    };
    let ratio = format_number((ratio * 100.0).round() / 100.0);
    let ratio = ratio.trim_end_matches('0').trim_end_matches('.');
    let more = match latency - floor {
        ns if ns > 0.0 => format!(", {} more than the floor", time(ns)),
        _ => String::new(),
    };
    format!("{verdict}: {ratio} times the floor{more}.")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::parse_options;
    use fastpath_report::testing::samples::make_case;

    /// A ping-pong whose rank had `percent` of a processor.
    fn make(bytes: u64, ns: f64, percent: f64) -> Case {
        Case { processor_percent: Some(percent), ..make_case(bytes, &[ns * 0.8, ns, ns * 9.0]) }
    }

    #[test]
    fn verdict__follows_the_ratio_to_the_floor() {
        for (ns, wanted) in [
            (50.0, "At the limit of the hardware: 0.86 times the floor."),
            (60.0, "At the limit of the hardware: 1.03 times the floor, 2 ns more"),
            (72.5, "Close to the limit of the hardware: 1.25 times the floor, 14.5 ns more"),
            (116.0, "Within three times the limit of the hardware: 2 times the floor, 58 ns more"),
            (580.0, "Far above the limit of the hardware: 10 times the floor, 522 ns more"),
        ] {
            let text = describe_ratio(&make(8, ns, 100.0));
            assert!(text.starts_with(wanted), "{text}");
        }
        let without = Case { floor: None, ..make(8, 60.0, 100.0) };
        assert!(describe_ratio(&without).starts_with("No hardware floor"));
    }

    #[test]
    fn busy_machine__gives_its_fastest_sample_and_no_ratio() {
        let busy = [make(8, 100.0, 40.0), make(64, 120.0, 60.0), make(1 << 20, 9e4, 99.0)];
        let text = describe_busy(&busy.iter().collect::<Vec<_>>()).unwrap();
        assert!(text.contains("had 50 % of a processor"), "{text}");
        assert!(text.contains("fastest sample took 80 ns"), "{text}");
        let lines = describe(&busy, Charset::Ascii).join(" ");
        assert!(lines.contains("busy") && lines.contains("100 ns for 8 B"), "{lines}");
        assert!(!lines.contains("times the floor"), "{lines}");
        assert!(text.contains("no ratio to the floor"), "{text}");
        let bare = Case { floor: None, ..make(8, 100.0, 40.0) };
        let text = describe_busy(&[&bare]).unwrap();
        assert!(!text.contains("ratio"), "{text}");
    }

    #[test]
    fn idle_machine__is_not_called_busy() {
        // A rank sleeps during a large transfer; another library does not report its processor share.
        let idle = [make(8, 100.0, 99.0), make(64, 120.0, 97.0), make(1 << 20, 9e4, 30.0)];
        assert_eq!(describe_busy(&idle.iter().collect::<Vec<_>>()), None);
        let silent = [make_case(8, &[100.0])];
        assert_eq!(describe_busy(&silent.iter().collect::<Vec<_>>()), None);
        assert_eq!(describe_busy(&[]), None);
    }

    #[test]
    fn summary__fits_a_screen_in_both_charsets() {
        let cases: Vec<Case> = [0].iter().chain(&SIZES).map(|&b| make(b, 1e5, 30.0)).collect();
        for charset in [Charset::Unicode, Charset::Ascii] {
            let lines = describe(&cases, charset);
            assert!((16..=22).contains(&lines.len()), "{lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:#?}");
            assert!(charset == Charset::Unicode || lines.concat().is_ascii(), "{lines:#?}");
        }
        assert!(describe(&[make(0, 50.0, 99.0)], Charset::Ascii).is_empty());
    }

    #[test]
    fn options__get_short_measurements_unless_others_are_given() {
        let choose = |words: &[&str]| {
            let options: BenchOptions = parse_options(words).unwrap();
            options.with_summary_defaults()
        };
        let case = choose(&["pingpong"]).unwrap().measure.case;
        assert_eq!((case.sizes.as_slice(), case.duration), (&SIZES[..], Some(DURATION_MS)));
        let case = choose(&["pingpong", "--sizes=16", "--iterations=5"]).unwrap().measure.case;
        assert_eq!((case.sizes.as_slice(), case.duration), (&[16][..], None));
        for wrong in [&["rate"][..], &["pingpong", "--json=-"], &["pingpong", "--csv=-"]] {
            let why = choose(wrong).unwrap_err().to_string();
            assert!(why.contains("--summary"), "{why}");
        }
    }
}
