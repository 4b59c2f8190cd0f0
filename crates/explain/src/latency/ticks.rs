//! Effect of a clock's tick on measured times and their differences.

use std::str::FromStr;

use fastpath_pcie::{Time, UnitError};

use super::super::Finding;
use super::super::findings::said;
use super::LatencyOptions;

/// Time between two steps of a clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick(pub Time);

impl FromStr for Tick {
    type Err = UnitError;

    /// Parses a time, or the name of a clock: `acpi` (3.579545 MHz), `us` (a microsecond), `tsc` (negligible).
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
                expected: "a tick must be above 0, or one of acpi, tsc, us".to_owned(),
            }),
        }
    }
}

/// Times of one size, by DMA and inline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InlineGain {
    /// Message size in bytes.
    pub size: u32,
    /// One-way time by DMA.
    pub before: Time,
    /// One-way time inline.
    pub after: Time,
}

impl FromStr for InlineGain {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<InlineGain, UnitError> {
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
        Ok(InlineGain {
            size: size.trim().parse().map_err(|_| refuse())?,
            before: before.parse()?,
            after: after.parse()?,
        })
    }
}

/// Lower and upper end, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval(pub f64, pub f64);

impl Interval {
    fn intersect(self, other: Interval) -> Interval {
        Interval(self.0.max(other.0), self.1.min(other.1))
    }

    fn say(self) -> String {
        // Adding zero removes the sign of a zero.
        let us = |ns: f64| (ns / 10.0).round() / 100.0 + 0.0;
        format!("{:.2} to {:.2} us", us(self.0), us(self.1))
    }

    fn negate(self) -> Interval {
        Interval(-self.1, -self.0)
    }
}

/// Number of whole ticks in a printed time, which may be truncated to whole nanoseconds or rounded to two digits.
pub fn count_ticks(printed: Time, tick: Time) -> f64 {
    (printed.ns() / tick.ns()).round()
}

/// Interval of the true time behind a printed mean of ticks: it may be a tick longer, if the division rounded down.
pub fn truth_of(printed: Time, tick: Time) -> Interval {
    let ticks = count_ticks(printed, tick);
    Interval(ticks * tick.ns(), (ticks + 1.0) * tick.ns())
}

pub fn gain_of(pair: &InlineGain, tick: Time) -> Interval {
    let (before, after) = (truth_of(pair.before, tick), truth_of(pair.after, tick));
    Interval(before.0 - after.1, before.1 - after.0)
}

/// Judges the measured times of `options` against `predicted`. `saved(size)` is the number of serial reads that inline
/// data saves for a message of `size` bytes.
pub(super) fn judge(
    options: &LatencyOptions, predicted: Time, saved: &dyn Fn(u32) -> u32,
    findings: &mut Vec<Finding>,
) {
    let Some(Tick(tick)) = options.tick else {
        if !options.pairs.is_empty() {
            findings.push(said!(latency "no-tick"));
        }
        return;
    };
    if let Some(measured) = options.measured {
        findings.push(judge_measured(measured, predicted, tick));
    }
    judge_pairs(options, saved, tick, findings);
    if let (Some(measured), Some(against)) = (options.measured, options.against) {
        let apart = (measured - against).ns().abs() / tick.ns();
        let name = if apart < 1.0 { "same-tick" } else { "difference" };
        findings.push(said!(latency name, measured, against, ticks = format!("{apart:.1}")));
    }
}

fn judge_measured(measured: Time, predicted: Time, tick: Time) -> Finding {
    let Interval(low, high) = truth_of(measured, tick);
    let (ticks, truth) = (count_ticks(measured, tick), Interval(low, high).say());
    let (ns, tick) = (predicted.ns(), format!("{tick:.3}"));
    let (left, side) = match ns {
        ns if ns < low => (Interval(low - ns, high - ns), "more"),
        ns if ns > high => (Interval(ns - high, ns - low), "less"),
        _ => return said!(latency "agrees", predicted, ticks, tick, truth),
    };
    said!(latency "left", left = left.say(), side, ticks, tick, truth)
}

fn judge_pairs(
    options: &LatencyOptions, saved: &dyn Fn(u32) -> u32, tick: Time, findings: &mut Vec<Finding>,
) {
    let mut both = Interval(0.0, f64::INFINITY);
    for pair in &options.pairs {
        let gain = gain_of(pair, tick);
        let reads = saved(pair.size);
        let mut each = String::new();
        if reads > 0 {
            let of_read = Interval(gain.0 / f64::from(reads), gain.1 / f64::from(reads));
            both = both.intersect(of_read);
            let what = if reads == 1 { "read" } else { "reads" };
            each = format!(" Inline data saves {reads} serial {what}: {} each.", of_read.say());
        }
        let gain = match gain {
            Interval(_, most) if most < 0.0 => format!("the loss is {}", gain.negate().say()),
            Interval(least, _) if least < -0.5 => {
                format!("the gain is {}, so the change may be a loss", gain.say())
            }
            _ => format!("the gain is {}", gain.say()),
        };
        findings.push(said!(latency "gain",
            size = pair.size,
            gain,
            before = count_ticks(pair.before, tick),
            truth_before = truth_of(pair.before, tick).say(),
            after = count_ticks(pair.after, tick),
            truth_after = truth_of(pair.after, tick).say(),
            tick = format!("{tick:.3}"),
            each
        ));
    }
    if both.1.is_finite() {
        findings.push(match both.0 <= both.1 {
            true => said!(latency "read-time", both = both.say()),
            false => said!(latency "no-read-time"),
        });
    }
}
