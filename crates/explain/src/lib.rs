//! `fastpath explain`: where the bytes and the nanoseconds went, by calculation.
//!
//! Each subcommand makes an [`Explanation`]: its input, waterfalls from a starting figure to a prediction, the gap to
//! the measured figure, findings, experiments. All are shown in the same way.

mod advice;
pub mod bandwidth;
mod bus;
pub mod cliff;
pub mod command;
mod findings;
#[cfg(test)]
mod fuzz;
pub mod latency;
mod moves;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../tests/fuzz/mutate.rs"]
mod mutate;
pub mod page;
mod probe;
#[cfg(test)]
mod samples;
mod show;

use fastpath_pcie::LinkError;
use serde::{Deserialize, Serialize};

/// Name of the JSON form.
pub const SCHEMA: &str = "fastpath.explanation";
/// Version of the JSON form.
pub const VERSION: u32 = 1;
/// The schema of an explanation, as JSON Schema (draft 2020-12).
pub const SCHEMA_TEXT: &str = include_str!("../../../docs/schema/explanation-1.json");

/// How far a measured figure may lie from the predicted one and still agree with it: what clocks and
/// windows of the usual tools leave open.
pub const AGREES: f64 = 0.03;

/// How much more a figure in MiB is than the same in MB.
pub const MIB_OVER_MB: f64 = 1_048_576.0 / 1e6 - 1.0;

/// A share as people read it: `3 %`, `4.9 %`.
pub fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round() / 10.0;
    format!("{tenths} %")
}

/// An answer in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Always `fastpath.explanation`.
    pub schema: String,
    /// Version of the JSON form.
    pub version: u32,
    /// One line: what is explained.
    pub title: String,
    /// What the answer rests on.
    pub inputs: Vec<Input>,
    /// Figures built up or worn down step by step.
    pub waterfalls: Vec<Waterfall>,
    /// What follows, most important first.
    pub findings: Vec<Finding>,
    /// What to measure next, and what each outcome would say.
    pub experiments: Vec<Experiment>,
}

impl Explanation {
    /// One without content.
    pub fn new(title: impl Into<String>) -> Explanation {
        Explanation {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            title: title.into(),
            inputs: Vec::new(),
            waterfalls: Vec::new(),
            findings: Vec::new(),
            experiments: Vec::new(),
        }
    }

    /// Writes down a value that the explanation rests on, and where it comes from.
    pub fn input(&mut self, name: &str, value: impl ToString, source: impl ToString) {
        self.inputs.push(Input {
            name: name.to_owned(),
            value: value.to_string(),
            source: source.to_string(),
        });
    }

    /// Puts answers first and notes last; those of a kind stay in their order.
    pub fn sort_findings(&mut self) {
        use FindingKind::{Answer, Cause, Caution, Excluded, Note};
        let order = [Answer, Caution, Cause, Excluded, Note];
        self.findings.sort_by_key(|f| order.iter().position(|kind| *kind == f.kind));
    }
}

/// Refuses a value if it is wrong, and says what was expected.
fn refuse_if(
    is_wrong: bool, what: &'static str, found: impl ToString, expected: &'static str,
) -> Result<(), LinkError> {
    match is_wrong {
        true => Err(LinkError { what, found: found.to_string(), expected }),
        false => Ok(()),
    }
}

/// Something that was given, read or assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Input {
    /// What it is: `link`, `maximum payload`.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
    /// Where it comes from: `given`, `assumed`, `lspci: LnkSta`.
    pub source: String,
}

/// A figure in steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waterfall {
    /// What the figure is of.
    pub title: String,
    /// The unit of all its levels: `MiB/s`, `ns`.
    pub unit: String,
    /// The steps in order. The first is a [`StepKind::Start`].
    pub steps: Vec<WaterfallStep>,
}

/// What a step does to the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Sets the figure: a bar from nothing.
    Start,
    /// Adds to it (a negative change takes away): a bar from the level before to the level after.
    Change,
    /// The current figure: a bar from zero.
    Level,
    /// A figure from outside, to hold the level against: a bar from nothing.
    Measured,
    /// What is left between the last level and the measured figure.
    Left,
}

/// One step of a waterfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WaterfallStep {
    /// What it is, in a few words.
    pub name: String,
    /// What it does.
    pub kind: StepKind,
    /// By how much the figure changes; 0 for steps that set or state one.
    pub change: f64,
    /// The figure after the step (of [`StepKind::Measured`]: the measured one).
    pub level: f64,
    /// The arithmetic, with its bytes: `24 B around each 256 B`.
    pub how: String,
    /// Where the constants come from; empty where `how` is plain arithmetic.
    pub source: String,
}

impl WaterfallStep {
    /// Whether its bar goes from the level before to the level after; else it begins at nothing.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, StepKind::Change | StepKind::Left)
    }
}

impl Waterfall {
    /// Where the bar of a step begins and ends, as shares of the largest figure.
    pub fn ends(&self, step: &WaterfallStep) -> [f64; 2] {
        let all = self.steps.iter();
        let all = all.flat_map(|s| [s.level, s.level - s.change]);
        let most = all.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let from = match step.is_change() {
            true => step.level - step.change,
            false => 0.0,
        };
        [from, step.level].map(|level| match most > 0.0 && level.is_finite() {
            true => (level / most).clamp(0.0, 1.0),
            false => 0.0,
        })
    }
}

/// How sure a finding is, and what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FindingKind {
    /// What was asked.
    Answer,
    /// A possible cause; they stand in the order of their likelihood.
    Cause,
    /// Ruled out, and why.
    Excluded,
    /// Something that looks as if it mattered, and what it means.
    Note,
    /// What the reader should not believe without more.
    Caution,
}

/// Something that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// What sort.
    pub kind: FindingKind,
    /// A word that stays the same from version to version, for scripts: `unit-error`.
    pub id: String,
    /// A sentence.
    pub text: String,
    /// Why, with the figures; may be empty.
    pub why: String,
}

/// A measurement that would tell causes apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Experiment {
    /// What to do.
    pub what: String,
    /// What each outcome would mean.
    pub outcomes: Vec<PossibleResult>,
}

/// One outcome of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PossibleResult {
    /// What would be seen.
    pub seen: String,
    /// What it would mean.
    pub means: String,
}

/// Made step by step.
impl Waterfall {
    /// Begins with a figure.
    pub fn start(
        title: impl Into<String>, unit: &str, name: &str, level: f64, how: impl Into<String>,
        source: &str,
    ) -> Self {
        let waterfall = Waterfall { title: title.into(), unit: unit.to_owned(), steps: Vec::new() };
        waterfall.push(StepKind::Start, name, [0.0, level], how, source)
    }

    /// The current figure.
    pub fn level(&self) -> f64 {
        let own = |s: &&WaterfallStep| !matches!(s.kind, StepKind::Measured | StepKind::Left);
        self.steps.iter().rfind(own).map_or(0.0, |s| s.level)
    }

    /// Changes the figure to a level.
    pub fn to(self, name: &str, level: f64, how: impl Into<String>, source: &str) -> Self {
        let change = level - self.level();
        self.push(StepKind::Change, name, [change, level], how, source)
    }

    /// Changes the figure by an amount.
    pub fn by(self, name: &str, change: f64, how: impl Into<String>, source: &str) -> Self {
        let level = self.level() + change;
        self.push(StepKind::Change, name, [change, level], how, source)
    }

    /// Adds a step with the current level, called `predicted`.
    pub fn state(self) -> Self {
        let level = self.level();
        self.push(StepKind::Level, "predicted", [0.0, level], "", "")
    }

    /// Ends with a figure from outside, if there is one, and what is left between it and the level.
    pub fn finish(self, measured: Option<f64>) -> Waterfall {
        let Some(measured) = measured else {
            return self;
        };
        let (left, how) = ([measured - self.level(), measured], "measured - predicted");
        self.push(StepKind::Measured, "measured", [0.0, measured], "", "measured").push(
            StepKind::Left,
            "left",
            left,
            how,
            "",
        )
    }

    fn push(
        mut self, kind: StepKind, name: &str, [change, level]: [f64; 2], how: impl Into<String>,
        source: &str,
    ) -> Self {
        self.steps.push(WaterfallStep {
            name: name.to_owned(),
            kind,
            change,
            level,
            how: how.into(),
            source: source.to_owned(),
        });
        self
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::schema::{check_schema_file, pin_constant, validate};

    #[test]
    fn schema__is_that_of_the_types() {
        let mut schema = schemars::schema_for!(Explanation);
        let title = "An answer of fastpath explain, version 1";
        schema.insert("title".into(), title.into());
        pin_constant(&mut schema, "schema", SCHEMA.into());
        pin_constant(&mut schema, "version", VERSION.into());
        check_schema_file("explanation-1.json", &schema);
    }

    #[test]
    fn explanation__fits_the_schema_and_nonsense_does_not() {
        let good = serde_json::to_value(samples::make_explanation()).unwrap();
        validate(SCHEMA_TEXT, &good).unwrap();
        for (path, wrong) in [
            ("/version", serde_json::json!(2)),
            ("/schema", serde_json::json!("fastpath.bench")),
            ("/findings/0/kind", serde_json::json!("guess")),
            ("/waterfalls/0/steps/0/level", serde_json::json!("many")),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = wrong;
            assert!(validate(SCHEMA_TEXT, &bad).is_err(), "{path}");
        }
    }

    #[test]
    fn waterfall__changes_add_up_to_its_levels() {
        let made = Waterfall::start("t", "MiB/s", "raw", 3814.7, "", "")
            .to("headers", 3487.7, "24 B around each 256 B", "specification")
            .by("skips", -9.0, "", "")
            .state()
            .finish(Some(3552.0));
        let mut level = made.steps[0].level;
        for step in &made.steps[1..4] {
            level += step.change;
            assert!((step.level - level).abs() < 1e-9, "{step:?}");
        }
        assert!((made.steps[5].change - (3552.0 - level)).abs() < 1e-9);
    }

    #[test]
    fn explanation__comes_back_from_json() {
        let mut made = Explanation::new("why");
        made.findings.push(Finding {
            kind: FindingKind::Answer,
            id: "unit-error".to_owned(),
            text: "MB and MiB were mixed".to_owned(),
            why: String::new(),
        });
        let text = serde_json::to_string(&made).unwrap();
        assert!(text.contains("\"kind\":\"answer\""));
        assert_eq!(serde_json::from_str::<Explanation>(&text).unwrap(), made);
    }
}
