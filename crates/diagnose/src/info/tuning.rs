//! Stored constants of `fastpath tune`: their age, their conditions, and whether they still hold on this machine.

use std::time::{SystemTime, UNIX_EPOCH};

use fastpath_base::config::Config;
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_base::tell::count;
use fastpath_machine::measure::floor::measure_least_line;
use fastpath_machine::measure::share::{UNDISTURBED, measure_share};
use fastpath_protocol::selection::tuning::{self, Conditions, Tuning};
use serde::Serialize;

/// Ratio of the present time of a cache line to the stored one, or its reciprocal, from which the stored constants no
/// longer hold. The time of a line on an idle machine varies less.
const CHANGED: f64 = 1.5;

/// The stored constants; empty fields if there are none.
#[derive(Debug, Default, Serialize)]
pub struct TuningFacts {
    /// File with the constants.
    file: Option<String>,
    measured_s: Option<u64>,
    age_s: Option<u64>,
    processors: Option<[usize; 2]>,
    load: Option<f64>,
    /// Share of the processors' time that the measurement got, 0 to 1.
    share: Option<f64>,
    /// Stored time of a cache line.
    line_ns: Option<f64>,
    /// Present time of a cache line, and the share of the processors' time during this measurement.
    line_now_ns: Option<f64>,
    share_now: Option<f64>,
    /// Whether the stored time of a line still holds; `None` if unknown.
    holds: Option<bool>,
    /// Constants that were not measured and have their defaults.
    not_measured: Vec<&'static str>,
}

impl TuningFacts {
    /// Reads the stored constants and measures a cache line on the same processors.
    pub fn find(config: &Config) -> TuningFacts {
        let Ok(Some((path, tuning))) = tuning::load(&TuningSource::of(config), Machine::current)
        else {
            return TuningFacts::default();
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let facts =
            TuningFacts { file: Some(path.display().to_string()), ..TuningFacts::of(&tuning, now) };
        let present = facts.processors.and_then(|processors| {
            let share = measure_share(processors).ok()?;
            Some((share, measure_least_line(processors).ok()?))
        });
        facts.judged(present)
    }

    fn of(tuning: &Tuning, now_s: u64) -> TuningFacts {
        let line_ns = Some(tuning.constants.line_ns);
        let Some(conditions) = &tuning.conditions else {
            return TuningFacts { line_ns, ..TuningFacts::default() };
        };
        let &Conditions { measured_s, processors, load, share } = conditions;
        TuningFacts {
            measured_s: Some(measured_s),
            age_s: Some(now_s.saturating_sub(measured_s)),
            processors: Some(processors),
            load: Some(load),
            share: Some(share),
            line_ns,
            not_measured: tuning.list_unmeasured(),
            ..TuningFacts::default()
        }
    }

    /// Adds share and line time of a present measurement, and the verdict. A disturbed measurement gives none.
    fn judged(mut self, present: Option<(f64, f64)>) -> TuningFacts {
        let (Some((share, line_now)), Some(line)) = (present, self.line_ns) else { return self };
        (self.share_now, self.line_now_ns) = (Some(share), Some(line_now));
        let ratio = line_now / line;
        let is_alike = ratio < CHANGED && ratio > 1.0 / CHANGED;
        self.holds = (share >= UNDISTURBED).then_some(is_alike);
        self
    }

    /// Name and value of each line of the text form.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let Some(file) = &self.file else {
            return vec![("file", "none: `fastpath tune` measures and stores them".to_owned())];
        };
        let mut lines = vec![("file", file.clone())];
        let (Some(age_s), Some([first, second]), Some(load), Some(share), Some(line)) =
            (self.age_s, self.processors, self.load, self.share, self.line_ns)
        else {
            let why = "unknown: an earlier version stored them; run `fastpath tune` again";
            lines.push(("measured", why.to_owned()));
            return lines;
        };
        let busy = match share < UNDISTURBED {
            true => format!(
                "; the machine was busy, and `tune` got {:.0} % of their time",
                share * 100.0
            ),
            false => String::new(),
        };
        lines.push((
            "measured",
            format!(
                "{} ago, on processors {first} and {second}, load {load:.2}{busy}",
                format_age(age_s)
            ),
        ));
        let verdict = match (self.holds, self.line_now_ns) {
            (Some(true), Some(now)) => {
                format!("yes: a cache line takes {now:.1} ns, and took {line:.1} ns")
            }
            (Some(false), Some(now)) => format!(
                "no: a cache line takes {now:.1} ns, and took {line:.1} ns; run `fastpath tune` \
                 again"
            ),
            (_, Some(_)) => {
                "unknown: other programs use these processors; run `fastpath info` again".to_owned()
            }
            (_, None) => "unknown: this process may not use these processors".to_owned(),
        };
        lines.push(("still valid", verdict));
        if !self.not_measured.is_empty() {
            lines.push(("not measured", format!("{} (defaults)", self.not_measured.join(", "))));
        }
        lines
    }
}

/// Formats an age in its largest unit.
fn format_age(seconds: u64) -> String {
    match seconds {
        0..60 => count(seconds, "second"),
        60..3600 => count(seconds / 60, "minute"),
        3600..86400 => count(seconds / 3600, "hour"),
        _ => count(seconds / 86400, "day"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_protocol::selection::Constants;
    use fastpath_protocol::selection::constants::FIELDS;

    fn make_facts(share: f64) -> TuningFacts {
        let mut intervals = vec![None; FIELDS.len()];
        intervals[0] = Some([57.0, 58.0]);
        let conditions =
            Conditions { measured_s: 1_000_000, processors: [0, 1], load: 0.06, share };
        let constants = Constants { line_ns: 57.0, ..Constants::default() };
        let tuning = Tuning { constants, intervals, conditions: Some(conditions) };
        let now_s = 1_000_000 + 3 * 86400 + 5;
        TuningFacts { file: Some("/f".to_owned()), ..TuningFacts::of(&tuning, now_s) }
    }

    fn text(facts: &TuningFacts) -> String {
        facts.lines().into_iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    #[test]
    fn lines__give_age_and_conditions_and_what_was_not_measured() {
        let said = text(&make_facts(0.99).judged(Some((1.0, 60.0))));
        assert!(
            said.contains("measured: 3 days ago, on processors 0 and 1, load 0.06\n"),
            "{said}"
        );
        assert!(said.contains("still valid: yes: a cache line takes 60.0 ns"), "{said}");
        assert!(said.contains("not measured: post_ns, step_ns"), "{said}");
        let said = text(&make_facts(0.5));
        assert!(said.contains("the machine was busy, and `tune` got 50 %"), "{said}");
        assert!(said.contains("may not use these processors"), "{said}");
    }

    #[test]
    fn verdict__is_unknown_on_a_busy_machine_and_no_after_a_change() {
        let judged = |share, line| make_facts(1.0).judged(Some((share, line)));
        assert_eq!(judged(0.95, 40.0).holds, Some(true));
        for line in [30.0, 90.0] {
            assert_eq!(judged(0.95, line).holds, Some(false));
            assert_eq!(judged(0.5, line).holds, None);
        }
        assert!(text(&judged(0.95, 120.0)).contains("no: a cache line takes 120.0 ns"));
        assert!(text(&judged(0.5, 57.0)).contains("unknown: other programs"));
    }

    #[test]
    fn lines__without_a_file_or_conditions_name_the_command() {
        assert!(text(&TuningFacts::default()).contains("none: `fastpath tune`"));
        let first = TuningFacts { file: Some("/f".to_owned()), ..TuningFacts::default() };
        assert!(text(&first).contains("an earlier version stored them"));
    }

    #[test]
    fn age__has_one_unit() {
        let ages = [1, 59, 60, 7199, 86_400, 200_000].map(format_age);
        assert_eq!(ages, ["1 second", "59 seconds", "1 minute", "1 hour", "1 day", "2 days"]);
    }
}
