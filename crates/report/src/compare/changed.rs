//! JSON form of the changes between two stored results. The schema is `docs/schema/changes-1.json`.

use serde::Serialize;

use super::show::describe_verdict;
use super::stored::{Changes, RefusedCase, Rule};
use super::{Statistic, stored};
use crate::output::json::{join_lines, to_json};
use crate::record::CaseKey;
use crate::record::interval::Ratio;

/// Name of the JSON form.
pub const SCHEMA: &str = "fastpath.changes";

/// Version of the JSON form.
pub const VERSION: u32 = 1;

/// Comparison of two stored results, case by case.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// Statistic of each run that is compared.
    pub statistic: Statistic,
    /// A change counts if its interval excludes 1 and it is larger than this factor.
    pub threshold: f64,
    /// Cases of both results.
    pub changes: Vec<ChangeRow>,
    /// Cases that could not be compared.
    pub refused: Vec<RefusedCase>,
    /// Differences between the runs as a whole.
    pub notes: Vec<String>,
}

/// One case in both results.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeRow {
    /// Key of the case.
    #[serde(flatten)]
    pub key: CaseKey,
    /// The earlier statistic; the geometric mean of several runs.
    pub before: f64,
    /// The current statistic; the geometric mean of several runs.
    pub now: f64,
    /// Ratio now/before, with its 95 % interval.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// Verdict as text, as in the table.
    pub says: String,
    /// Whether the change is significant and for the worse.
    pub worse: bool,
    /// Number of runs of each side: before, now.
    pub runs: [usize; 2],
}

impl ChangeReport {
    /// Creates the report of changes that were found by a rule.
    pub fn new(changes: &Changes, rule: Rule) -> ChangeReport {
        let row = |change: &stored::CaseChange| ChangeRow {
            key: change.key.clone(),
            before: change.before,
            now: change.now,
            ratio: change.ratio,
            says: describe_verdict(change).to_owned(),
            worse: change.is_worse(),
            runs: change.runs,
        };
        ChangeReport {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            statistic: rule.statistic,
            threshold: rule.threshold,
            changes: changes.changes.iter().map(row).collect(),
            refused: changes.refused.clone(),
            notes: changes.notes.clone(),
        }
    }

    /// JSON form, one case a line.
    pub fn format_json(&self) -> String {
        format!(
            "{{\"schema\":{},\"version\":{},\"statistic\":{},\"threshold\":{},\n\
             \"changes\":[{}],\n\"refused\":[{}],\n\"notes\":[{}]}}\n",
            to_json(&self.schema),
            self.version,
            to_json(&self.statistic),
            self.threshold,
            join_lines(&self.changes),
            join_lines(&self.refused),
            join_lines(&self.notes),
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_report;
    use crate::testing::schema::{check_schema_file, pin_constant, validate};

    const SCHEMA_TEXT: &str = include_str!("../../../../docs/schema/changes-1.json");

    #[test]
    fn schema__is_that_of_the_types() {
        let mut schema = schemars::schema_for!(ChangeReport);
        let title = "A comparison of two stored results by fastpath compare, version 1";
        schema.insert("title".into(), title.into());
        pin_constant(&mut schema, "schema", SCHEMA.into());
        pin_constant(&mut schema, "version", VERSION.into());
        check_schema_file("changes-1.json", &schema);
    }

    #[test]
    fn text__fits_the_schema_and_has_what_is_compared_and_what_is_not() {
        let (before, mut now) = (make_report(), make_report());
        now.cases[0].bytes = 12_345_678;
        let rule = Rule { statistic: Statistic::Median, threshold: 1.05, common_only: false };
        let changes = stored::compare(&[before], &[now], rule);
        let text = ChangeReport::new(&changes, rule).format_json();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        validate(SCHEMA_TEXT, &value).unwrap();
        assert_eq!(value["changes"].as_array().unwrap().len(), changes.changes.len());
        assert_eq!(value["refused"].as_array().unwrap().len(), changes.refused.len());
        assert!(!changes.refused.is_empty());
    }
}
