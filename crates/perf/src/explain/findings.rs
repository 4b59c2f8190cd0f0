//! The sentences of an explanation: `data/findings.toml` and `data/experiments.toml`. The code decides which of them is
//! true and fills in the values.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;

use super::{Experiment, Finding, FindingKind, Outcome};
use crate::data::table;

#[derive(Deserialize)]
struct Saying {
    kind: FindingKind,
    /// The finding's name in JSON, where it is not that of the entry.
    id: Option<String>,
    text: String,
    #[serde(default)]
    why: String,
}

table!(SAYINGS: BTreeMap<String, BTreeMap<String, Saying>> = "findings.toml");
table!(EXPERIMENTS: BTreeMap<String, Experiment> = "experiments.toml");

/// Names and what stands for them in a text.
pub type Values<'a> = &'a [(&'a str, &'a dyn Display)];

/// A text with its values.
pub fn fill(text: &str, values: Values) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        debug_assert!(value.is_some(), "`{text}` needs {name}");
        filled += &value.map_or_else(String::new, |(_, value)| value.to_string());
        filled += rest;
    }
    filled
}

/// A finding by its subject and name.
///
/// # Panics
///
/// If the file has none of this name: it is part of the program.
pub fn finding(subject: &str, name: &str, values: Values) -> Finding {
    let saying = &SAYINGS[subject][name];
    Finding {
        kind: saying.kind,
        id: saying.id.clone().unwrap_or_else(|| name.to_owned()),
        text: fill(&saying.text, values),
        why: fill(&saying.why, values),
    }
}

/// Something to measure next, by its name.
///
/// # Panics
///
/// As [`finding`].
pub fn experiment(name: &str, values: Values) -> Experiment {
    let known = &EXPERIMENTS[name];
    let outcome = |o: &Outcome| Outcome {
        seen: fill(&o.seen, values),
        means: fill(&o.means, values),
    };
    Experiment {
        what: fill(&known.what, values),
        outcomes: known.outcomes.iter().map(outcome).collect(),
    }
}

impl Finding {
    /// The same as another kind of finding.
    pub fn of_kind(self, kind: FindingKind) -> Finding {
        Finding { kind, ..self }
    }

    /// The same with more behind it.
    pub fn because(self, why: String) -> Finding {
        Finding { why, ..self }
    }
}

/// `said!(device "payload", is, gain = percent(gain))`: a finding with values by their names.
macro_rules! said {
    ($subject:ident $name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {
        $crate::explain::findings::finding(
            stringify!($subject),
            $name,
            &[$((stringify!($key), &$crate::explain::findings::value!($key $(= $value)?) as &dyn std::fmt::Display)),*],
        )
    };
}
/// The same for an experiment.
macro_rules! to_try {
    ($name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {
        $crate::explain::findings::experiment(
            $name,
            &[$((stringify!($key), &$crate::explain::findings::value!($key $(= $value)?) as &dyn std::fmt::Display)),*],
        )
    };
}
/// A value of a text: an expression, or the variable of its name.
macro_rules! value {
    ($key:ident) => {
        $key
    };
    ($key:ident = $value:expr) => {
        $value
    };
}
pub(crate) use {said, to_try, value};

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
