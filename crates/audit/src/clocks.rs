//! Identifies the clock behind a step, by the rates of current and old timers.

use serde::Deserialize;

use fastpath_report::data::table;

/// A clock of known rate.
#[derive(Deserialize)]
struct Clock {
    name: String,
    step_ns: f64,
    /// Largest number of operations by which the clock's step is divided in practice.
    most: u32,
}

#[derive(Deserialize)]
struct Clocks {
    clock: Vec<Clock>,
}

table!(CLOCKS: Clocks = "clocks.toml");

/// A clock whose step, divided by a whole number of operations, equals the found step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Explanation {
    pub clock: &'static str,
    /// Step of the clock in nanoseconds.
    pub clock_step_ns: f64,
    /// Number of operations by which the step is divided: 2 for half a round trip, 16 for eight round trips.
    pub operations: u32,
    /// Assumed unit of the numbers, if the text does not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supposes: Option<&'static str>,
}

/// Possible units of bare numbers, the likeliest first, in nanoseconds.
const SUPPOSED: [(&str, f64); 3] =
    [("nanoseconds", 1.0), ("microseconds", 1e3), ("milliseconds", 1e6)];

/// Finds the clocks behind a step of numbers without a unit, in the unit that explains it most simply.
pub fn explain_bare_step(low: f64, high: f64) -> Vec<Explanation> {
    let explained = SUPPOSED.map(|(name, ns)| {
        let mut found = explain_step(low * ns, high * ns);
        found.iter_mut().for_each(|clock| clock.supposes = Some(name));
        found
    });
    let simplest = |found: &Vec<Explanation>| found.first().map_or(u32::MAX, |e| e.operations);
    let best = explained.into_iter().min_by_key(simplest);
    best.unwrap_or_default()
}

/// Finds the clocks behind a step between `low` and `high` nanoseconds, simplest first.
pub fn explain_step(low: f64, high: f64) -> Vec<Explanation> {
    let mut found: Vec<Explanation> = Vec::new();
    for clock in &CLOCKS.clock {
        let operations = (clock.step_ns / high).ceil().max(1.0);
        let fits = operations <= f64::from(clock.most)
            && (low..=high).contains(&(clock.step_ns / operations));
        if fits {
            found.push(Explanation {
                clock: &clock.name,
                clock_step_ns: clock.step_ns,
                operations: operations as u32,
                supposes: None,
            });
        }
    }
    found.sort_by_key(|e| e.operations);
    found
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn first(low: f64, high: f64) -> (u32, String) {
        let found = explain_step(low, high);
        let first = found.first().map(|e| (e.operations, e.clock.to_owned()));
        first.unwrap_or_default()
    }

    #[test]
    fn steps__are_named() {
        assert!(first(279.31, 279.42).1.contains("ACPI"));
        let (operations, name) = first(139.66, 139.70);
        assert!(operations == 2 && name.contains("ACPI"));
        let (operations, name) = first(62.46, 62.53);
        assert!(operations == 16 && name.contains("microseconds"));
        assert_eq!(explain_step(73.0, 73.01), []);
    }

    #[test]
    fn steps__without_a_unit_are_named_in_the_one_that_explains_them() {
        let first = |low, high| {
            let found = explain_bare_step(low, high);
            let first = found.first().map(|e| (e.clock, e.supposes));
            first.unwrap_or_default()
        };
        let (clock, supposes) = first(0.27931, 0.27942);
        assert!(clock.contains("ACPI") && supposes == Some("microseconds"));
        // A sixteenth of a millisecond would match too, in microseconds.
        let (clock, supposes) = first(62.46, 62.53);
        assert!(clock.contains("microseconds") && supposes == Some("nanoseconds"));
        assert_eq!(first(0.0731, 0.07311), ("", None));
    }
}
