//! Sentences of explanations, from `data/findings.toml` and `data/experiments.toml`. The code selects the sentences
//! that apply, and fills in the values.

use std::collections::BTreeMap;

use fastpath_report::data::{Values, fill, table};
use serde::Deserialize;

use super::{Experiment, Finding, FindingKind, PossibleResult};

#[derive(Deserialize)]
struct FindingText {
    kind: FindingKind,
    /// Id of the finding in JSON, if it is not the entry's name.
    id: Option<String>,
    text: String,
    #[serde(default)]
    why: String,
}

table!(SAYINGS: BTreeMap<String, BTreeMap<String, FindingText>> = "findings.toml");
table!(EXPERIMENTS: BTreeMap<String, Experiment> = "experiments.toml");

/// Returns the finding of a subject and name, with values filled in. Panics if the file has no such entry: the file is
/// part of the program.
pub fn finding(subject: &str, name: &str, values: Values) -> Finding {
    let saying = &SAYINGS[subject][name];
    Finding {
        kind: saying.kind,
        id: saying.id.clone().unwrap_or_else(|| name.to_owned()),
        text: fill(&saying.text, values),
        why: fill(&saying.why, values),
    }
}

/// Returns the experiment called `name`, with values filled in. Panics if the file has no such entry.
pub fn experiment(name: &str, values: Values) -> Experiment {
    let known = &EXPERIMENTS[name];
    let outcome = |o: &PossibleResult| PossibleResult {
        seen: fill(&o.seen, values),
        means: fill(&o.means, values),
    };
    Experiment {
        what: fill(&known.what, values),
        outcomes: known.outcomes.iter().map(outcome).collect(),
    }
}

impl Finding {
    /// Replaces the kind.
    pub fn of_kind(self, kind: FindingKind) -> Finding {
        Finding { kind, ..self }
    }

    /// Replaces the reason.
    pub fn because(self, why: String) -> Finding {
        Finding { why, ..self }
    }
}

/// `said!(device "payload", is, gain = percent(gain))`: a finding with values by their names.
macro_rules! said {
    ($subject:ident $name:expr $(, $($values:tt)*)?) => {
        $crate::findings::finding(
            stringify!($subject),
            $name,
            fastpath_report::data::values!($($($values)*)?),
        )
    };
}
/// `to_try!("name", values)`: an experiment with values by their names.
macro_rules! to_try {
    ($name:expr $(, $($values:tt)*)?) => {
        $crate::findings::experiment(
            $name,
            fastpath_report::data::values!($($($values)*)?),
        )
    };
}
pub(crate) use {said, to_try};

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
