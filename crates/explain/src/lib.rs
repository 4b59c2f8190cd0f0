//! `fastpath explain`: calculated breakdown of bandwidth and latency.
//!
//! Each subcommand creates an [`Explanation`]: inputs, waterfalls from a starting figure to a prediction, the gap to
//! the measured figure, findings, experiments. All have the same output formats.

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
mod options;
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
/// Schema of an explanation, as JSON Schema (draft 2020-12).
pub const SCHEMA_TEXT: &str = include_str!("../../../docs/schema/explanation-1.json");

/// Largest relative difference at which a measured and a predicted figure agree. It covers the errors that the clocks
/// and time windows of common tools cause.
pub const AGREES: f64 = 0.03;

/// Relative difference between a MiB and a MB.
pub const MIB_OVER_MB: f64 = 1_048_576.0 / 1e6 - 1.0;

/// Formats a share: `3 %`, `4.9 %`.
pub fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round() / 10.0;
    format!("{tenths} %")
}

/// Explanation in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Always `fastpath.explanation`.
    pub schema: String,
    /// Version of the JSON form.
    pub version: u32,
    /// Subject, in one line.
    pub title: String,
    /// Facts behind the explanation.
    pub inputs: Vec<Input>,
    /// Figures built up or reduced step by step.
    pub waterfalls: Vec<Waterfall>,
    /// Conclusions, the most important first.
    pub findings: Vec<Finding>,
    /// Measurements to make next, and the meaning of each outcome.
    pub experiments: Vec<Experiment>,
}

impl Explanation {
    /// Creates an explanation without content.
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

    /// Records a fact and its source.
    pub fn input(&mut self, name: &str, value: impl ToString, source: impl ToString) {
        self.inputs.push(Input {
            name: name.to_owned(),
            value: value.to_string(),
            source: source.to_string(),
        });
    }

    /// Puts answers first and notes last; findings of a kind keep their order.
    pub fn sort_findings(&mut self) {
        use FindingKind::{Answer, Cause, Caution, Excluded, Note};
        let order = [Answer, Caution, Cause, Excluded, Note];
        self.findings.sort_by_key(|f| order.iter().position(|kind| *kind == f.kind));
    }
}

/// Returns an error with the expected values if `is_wrong`.
fn refuse_if(
    is_wrong: bool, what: &'static str, found: impl ToString, expected: &'static str,
) -> Result<(), LinkError> {
    match is_wrong {
        true => Err(LinkError { what, found: found.to_string(), expected }),
        false => Ok(()),
    }
}

/// A value that was given, read or assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Input {
    /// Name: `link`, `maximum payload`.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// Source: `given`, `assumed`, `lspci: LnkSta`.
    pub source: String,
}

/// A figure in steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waterfall {
    /// Meaning of the figure.
    pub title: String,
    /// Unit of all levels: `MiB/s`, `ns`.
    pub unit: String,
    /// Steps in order. The first is a [`StepKind::Start`].
    pub steps: Vec<WaterfallStep>,
}

/// Effect of a step on the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Sets the figure: a bar from zero.
    Start,
    /// Adds to the figure (a negative change subtracts): a bar from the level before to the level after.
    Change,
    /// The current figure: a bar from zero.
    Level,
    /// An external figure, to compare with the level: a bar from zero.
    Measured,
    /// Difference between the last level and the measured figure.
    Left,
}

/// One step of a waterfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WaterfallStep {
    /// Name, in a few words.
    pub name: String,
    /// Effect.
    pub kind: StepKind,
    /// Change of the figure; 0 for steps that set or state a figure.
    pub change: f64,
    /// Figure after the step (of [`StepKind::Measured`]: the measured one).
    pub level: f64,
    /// Arithmetic, with its bytes: `24 B around each 256 B`.
    pub how: String,
    /// Source of the constants; empty if `how` is plain arithmetic.
    pub source: String,
}

impl WaterfallStep {
    /// Whether the bar goes from the level before to the level after; otherwise it begins at zero.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, StepKind::Change | StepKind::Left)
    }
}

impl Waterfall {
    /// Both ends of a step's bar, as shares of the largest figure.
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

/// Certainty and purpose of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FindingKind {
    /// Answer to the question.
    Answer,
    /// A possible cause; causes are in the order of likelihood.
    Cause,
    /// An excluded cause, with the reason.
    Excluded,
    /// A fact that seems to matter, with its meaning.
    Note,
    /// A figure that should not be trusted as it is.
    Caution,
}

/// A conclusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Kind.
    pub kind: FindingKind,
    /// Stable identifier for scripts: `unit-error`.
    pub id: String,
    /// One sentence.
    pub text: String,
    /// Reason, with the figures; may be empty.
    pub why: String,
}

/// A measurement that would distinguish causes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Experiment {
    /// Instruction.
    pub what: String,
    /// Possible outcomes.
    pub outcomes: Vec<PossibleResult>,
}

/// One outcome of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PossibleResult {
    /// Observation.
    pub seen: String,
    /// Meaning of the observation.
    pub means: String,
}

impl Waterfall {
    /// Starts with a figure.
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

    /// Changes the figure to `level`.
    pub fn to(self, name: &str, level: f64, how: impl Into<String>, source: &str) -> Self {
        let change = level - self.level();
        self.push(StepKind::Change, name, [change, level], how, source)
    }

    /// Changes the figure by `change`.
    pub fn by(self, name: &str, change: f64, how: impl Into<String>, source: &str) -> Self {
        let level = self.level() + change;
        self.push(StepKind::Change, name, [change, level], how, source)
    }

    /// Adds a step with the current level, called `predicted`.
    pub fn state(self) -> Self {
        let level = self.level();
        self.push(StepKind::Level, "predicted", [0.0, level], "", "")
    }

    /// Ends with a measured figure, if there is one, and its difference from the level.
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
