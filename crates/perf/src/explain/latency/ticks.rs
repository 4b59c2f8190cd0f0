//! What a clock's tick leaves of measured times, and of their differences.

use std::str::FromStr;

use fastpath_pcie::{Time, UnitError};

use super::super::{Explanation, FindingKind};
use super::{LatencyOptions, add};

/// The step of a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick(pub Time);

impl FromStr for Tick {
    type Err = UnitError;

    /// A time, or the name of a clock: `acpi` (3.579545 MHz), `us` (a microsecond), `tsc` (nothing to speak of).
    fn from_str(text: &str) -> Result<Tick, UnitError> {
        let ns = match text.trim() {
            "acpi" => 1e9 / 3_579_545.0,
            "us" => 1e3,
            "tsc" => 0.5,
            other => other.parse::<Time>()?.ns(),
        };
        match ns > 0.0 {
            true => Ok(Tick(Time::from_ns(ns))),
            false => Err(UnitError {
                found: text.trim().to_owned(),
                expected: "a tick is longer than nothing, or one of acpi, tsc, us".to_owned(),
            }),
        }
    }
}

/// One size, by DMA and inline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Bytes.
    pub size: u32,
    /// One way by DMA.
    pub before: Time,
    /// One way inline.
    pub after: Time,
}

impl FromStr for Pair {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Pair, UnitError> {
        let refuse = || UnitError {
            found: text.to_owned(),
            expected: "a pair is SIZE:BEFORE:AFTER, such as 32:2.234us:1.117us".to_owned(),
        };
        let mut parts = text.split(':');
        let (Some(size), Some(before), Some(after), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        Ok(Pair {
            size: size.trim().parse().map_err(|_| refuse())?,
            before: before.parse()?,
            after: after.parse()?,
        })
    }
}

/// From and to, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval(pub f64, pub f64);

impl Interval {
    fn intersect(self, other: Interval) -> Interval {
        Interval(self.0.max(other.0), self.1.min(other.1))
    }

    fn say(self) -> String {
        // Adding zero takes the sign from a zero.
        let us = |ns: f64| (ns / 10.0).round() / 100.0 + 0.0;
        format!("{:.2} to {:.2} us", us(self.0), us(self.1))
    }

    fn negate(self) -> Interval {
        Interval(-self.1, -self.0)
    }
}

/// Whole ticks in a printed time, which may have been cut to whole nanoseconds or rounded to two digits.
pub fn count_ticks(printed: Time, tick: Time) -> f64 {
    (printed.ns() / tick.ns()).round()
}

/// Where the truth lies behind a printed mean of ticks: division may have rounded down.
pub fn truth_of(printed: Time, tick: Time) -> Interval {
    let ticks = count_ticks(printed, tick);
    Interval(ticks * tick.ns(), (ticks + 1.0) * tick.ns())
}

/// What the gain can be.
pub fn gain_of(pair: &Pair, tick: Time) -> Interval {
    let (before, after) = (truth_of(pair.before, tick), truth_of(pair.after, tick));
    Interval(before.0 - after.1, before.1 - after.0)
}

/// Judges the measured times of `options` against `predicted`; `saved` says how many serial reads inline
/// data of a size saves.
pub(super) fn judge(
    options: &LatencyOptions,
    predicted: Time,
    saved: &dyn Fn(u32) -> u32,
    made: &mut Explanation,
) {
    let Some(Tick(tick)) = options.tick else {
        if !options.pairs.is_empty() {
            let text = "Without the clock's tick (--tick) differences of these times say less than they seem to.".to_owned();
            add(made, FindingKind::Caution, "no-tick", text, String::new());
        }
        return;
    };
    if let Some(measured) = options.measured {
        judge_measured(measured, predicted, tick, made);
    }
    judge_pairs(options, saved, tick, made);
    if let (Some(measured), Some(against)) = (options.measured, options.against) {
        let difference = (measured - against).ns().abs();
        let ticks = difference / tick.ns();
        let text = match ticks < 1.0 {
            true => format!(
                "{measured} and {against} differ by {ticks:.1} of a tick: which is less cannot be told."
            ),
            false => format!("{measured} and {against} differ by {ticks:.1} ticks."),
        };
        let why = "One tick more or less comes with the clock alone, half a tick where the tool halves a round trip.".to_owned();
        let kind = if ticks < 1.0 {
            FindingKind::Caution
        } else {
            FindingKind::Note
        };
        add(made, kind, "difference", text, why);
    }
}

fn judge_measured(measured: Time, predicted: Time, tick: Time, made: &mut Explanation) {
    let truth = truth_of(measured, tick);
    let why = format!(
        "{} ticks of {tick:.3} are {}.",
        count_ticks(measured, tick),
        truth.say()
    );
    let ns = predicted.ns();
    if (truth.0..=truth.1).contains(&ns) {
        let text = format!(
            "The predicted {predicted} lie within the clock's tick: nothing is left to explain."
        );
        return add(made, FindingKind::Answer, "agrees", text, why);
    }
    let (least, most, side) = match ns < truth.0 {
        true => (truth.0 - ns, truth.1 - ns, "more"),
        false => (ns - truth.1, ns - truth.0, "less"),
    };
    let text = format!(
        "Measured are {} {side} than predicted.",
        Interval(least, most).say()
    );
    add(made, FindingKind::Answer, "left", text, why);
}

fn judge_pairs(
    options: &LatencyOptions,
    saved: &dyn Fn(u32) -> u32,
    tick: Time,
    made: &mut Explanation,
) {
    let mut joint = Interval(0.0, f64::INFINITY);
    for pair in &options.pairs {
        let gain = gain_of(pair, tick);
        let (before, after) = (truth_of(pair.before, tick), truth_of(pair.after, tick));
        let reads = saved(pair.size);
        let mut why = format!(
            "{} ticks before ({}), {} after ({}), of {tick:.3} each.",
            count_ticks(pair.before, tick),
            before.say(),
            count_ticks(pair.after, tick),
            after.say()
        );
        if reads > 0 {
            let each = Interval(gain.0 / f64::from(reads), gain.1 / f64::from(reads));
            joint = joint.intersect(each);
            why.push_str(&format!(
                " {reads} serial {} fewer: {} each.",
                if reads == 1 { "read" } else { "reads" },
                each.say()
            ));
        }
        let text = match gain {
            Interval(_, most) if most < 0.0 => format!("the loss is {}", gain.negate().say()),
            Interval(least, _) if least < -0.5 => {
                format!("the gain is {}: it may be a loss", gain.say())
            }
            _ => format!("the gain is {}", gain.say()),
        };
        let text = format!("{} B: {text}.", pair.size);
        add(made, FindingKind::Answer, "gain", text, why);
    }
    if joint.1.is_finite() && joint.0 <= joint.1 {
        let text = format!(
            "All pairs agree with a read of memory that takes {}.",
            joint.say()
        );
        let why = "UCX counts 0.35 us for the fetch of a descriptor, pcie-bench measured about 0.55 us for 64 B.".to_owned();
        add(made, FindingKind::Answer, "read-time", text, why);
    } else if joint.1.is_finite() {
        let text = "No time of a read explains all pairs: the reads saved are others than assumed."
            .to_owned();
        add(made, FindingKind::Caution, "read-time", text, String::new());
    }
}
