//! Output of `fastpath tune`: a table, or one JSON object.

use std::path::Path;

use fastpath_protocol::selection::constants::{FIELDS, Field};
use fastpath_protocol::selection::tuning::{Conditions, Tuning};
use fastpath_report::document::{Document, Table};
use serde::Serialize;

/// Result of a measurement.
#[derive(Debug, Serialize)]
pub struct TuneResult {
    /// Description of the disturbance, if other programs used the processors.
    busy: Option<String>,
    constants: Vec<ConstantLine>,
    conditions: Option<ConditionFacts>,
    notes: Vec<String>,
    /// File that got the values; `None` if nothing was stored.
    stored: Option<String>,
}

#[derive(Debug, Serialize)]
struct ConstantLine {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// Smallest and largest value of the rounds; `None` if the constant was not measured and has its default.
    interval: Option<[f64; 2]>,
    meaning: &'static str,
}

#[derive(Debug, Serialize)]
struct ConditionFacts {
    measured_s: u64,
    processors: [usize; 2],
    load: f64,
    share: f64,
}

impl TuneResult {
    /// Collects the result. `stored` is the file that got it.
    pub fn new(
        tuning: &Tuning, notes: Vec<String>, busy: Option<String>, stored: Option<&Path>,
    ) -> TuneResult {
        let line = |(field, interval): (&'static Field, &Option<[f64; 2]>)| {
            let Field { name, unit, meaning, get, .. } = field;
            ConstantLine { name, value: get(&tuning.constants), unit, interval: *interval, meaning }
        };
        let facts = |conditions: &Conditions| {
            let &Conditions { measured_s, processors, load, share } = conditions;
            ConditionFacts { measured_s, processors, load, share }
        };
        TuneResult {
            busy,
            constants: FIELDS.iter().zip(&tuning.intervals).map(line).collect(),
            conditions: tuning.conditions.as_ref().map(facts),
            notes,
            stored: stored.map(|path| path.display().to_string()),
        }
    }

    /// Describes the result for a reader: values, conditions, meanings.
    pub fn describe(&self) -> Document {
        let mut said = Document::default();
        if let Some(busy) = &self.busy {
            said.text(format!("{busy}; the values mean little"));
        }
        let mut table = Table::of("constant<16|value>9|unit<4|range of rounds<22");
        for ConstantLine { name, value, unit, interval, .. } in &self.constants {
            let range = match interval {
                Some([low, high]) => format!("{low:.3} to {high:.3}"),
                None => "not measured: default".to_owned(),
            };
            table.row([(*name).to_owned(), format!("{value:.3}"), (*unit).to_owned(), range]);
        }
        said.table(table);
        if let Some(ConditionFacts { processors: [first, second], load, share, .. }) =
            &self.conditions
        {
            let share = share * 100.0;
            let text = format!("{first} and {second}, {share:.0} % of their time, load {load:.2}");
            said.pair("processors", text);
        }
        said.pair("stored in", self.stored.as_deref().unwrap_or("(nothing is stored)"));
        self.notes.iter().for_each(|note| said.text(note));
        for ConstantLine { name, meaning, .. } in &self.constants {
            said.text(format!("{name}: {meaning}"));
        }
        said
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_protocol::selection::Constants;

    fn make_result(busy: Option<String>) -> TuneResult {
        let mut intervals = vec![None; FIELDS.len()];
        intervals[0] = Some([57.0, 58.5]);
        let conditions =
            Conditions { measured_s: 1_796_058_726, processors: [0, 1], load: 0.06, share: 0.998 };
        let constants = Constants { line_ns: 57.0, ..Constants::default() };
        let tuning = Tuning { constants, intervals, conditions: Some(conditions) };
        TuneResult::new(&tuning, Vec::new(), busy, None)
    }

    #[test]
    fn table__gives_the_interval_and_names_what_was_not_measured() {
        let text = make_result(None).describe().to_text_within(Some(80));
        let find = |name| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(find("line_ns").ends_with("57.000 ns   57.000 to 58.500"), "{text}");
        assert!(find("post_ns").ends_with("not measured: default"), "{text}");
        assert!(text.contains("0 and 1, 100 % of their time, load 0.06"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn busy_machine__is_the_first_line() {
        let text = make_result(Some("the machine is busy".to_owned())).describe().to_text();
        assert!(text.starts_with("the machine is busy; the values mean little\n"), "{text}");
        let json = serde_json::to_value(make_result(None)).unwrap();
        assert!(json["busy"].is_null() && json["constants"][1]["interval"].is_null());
        assert_eq!(json["constants"][0]["interval"][1], 58.5);
    }
}
