//! JSON form of a result: one case a line, so that two files can be compared by eye. The schema is
//! `docs/schema/bench-1.json`.

use serde::Serialize;

use crate::record::Report;

/// Schema of a stored result, as JSON Schema (draft 2020-12).
#[cfg(test)]
pub const SCHEMA_TEXT: &str = include_str!("../../../../docs/schema/bench-1.json");

/// Formats the whole result, with a newline at the end.
pub fn format_report(report: &Report) -> String {
    let head = format!(
        "{{\"schema\":{},\"version\":{},\"run\":{},\n",
        to_json(&report.schema),
        report.version,
        to_json(&report.run)
    );
    let mut text = head + "\"cases\":[" + &join_lines(&report.cases) + "]";
    if !report.missing.is_empty() {
        text += &format!(",\n\"missing\":[{}]", join_lines(&report.missing));
    }
    if !report.breakdowns.is_empty() {
        text += &format!(",\n\"breakdowns\":[{}]", join_lines(&report.breakdowns));
    }
    if !report.ablation.is_empty() {
        text += &format!(",\n\"ablation\":[{}]", join_lines(&report.ablation));
    }
    text + "}\n"
}

/// Formats the elements of an array, one a line.
pub fn join_lines<T: Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = items.iter().map(to_json).collect();
    format!("\n{}\n", lines.join(",\n"))
}

/// Formats a value of this crate's types, which cannot fail.
pub fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
}

#[cfg(test)]
#[allow(non_snake_case, missing_docs)]
mod tests {
    use super::*;
    use crate::record::{SCHEMA, VERSION};
    use crate::testing::samples::make_report;
    use crate::testing::schema::{check_schema_file, pin_constant, validate};
    use serde_json::Value;

    #[test]
    fn schema__is_that_of_the_types() {
        let mut schema = schemars::schema_for!(Report);
        schema.insert("title".into(), "A result of fastpath bench, version 1".into());
        pin_constant(&mut schema, "schema", SCHEMA.into());
        pin_constant(&mut schema, "version", VERSION.into());
        check_schema_file("bench-1.json", &schema);
    }

    #[test]
    fn text__is_read_back_as_it_was_and_fits_the_schema() {
        let report = make_report();
        let text = format_report(&report);
        assert_eq!(Report::from_json(&text).unwrap(), report);
        let value: Value = serde_json::from_str(&text).unwrap();
        validate(SCHEMA_TEXT, &value).unwrap();
    }

    #[test]
    fn text__that_does_not_fit_is_refused_by_the_schema() {
        let good: Value = serde_json::from_str(&format_report(&make_report())).unwrap();
        for (path, wrong) in [
            ("/version", Value::from(2)),
            ("/schema", Value::from("something.else")),
            ("/cases/0/bytes", Value::from(-8)),
            ("/cases/0/of", Value::from("something")),
            ("/cases/0/samples", Value::from(3)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = wrong;
            assert!(validate(SCHEMA_TEXT, &bad).is_err(), "{path}");
        }
    }

    #[test]
    fn text__without_cases_is_json() {
        let mut report = make_report();
        report.cases.clear();
        assert_eq!(Report::from_json(&format_report(&report)).unwrap(), report);
    }
}
