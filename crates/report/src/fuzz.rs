//! Fuzz test of the parser of stored results.
#![allow(non_snake_case)]

use crate::output::json::format_report;
use crate::record::Report;
use crate::testing::samples;

#[test]
fn fuzz__stored_results_are_read_or_refused() {
    let text = format_report(&samples::make_report());
    crate::mutate::run(&[text.as_bytes(), b"{\"schema\":1}"], |input| {
        let text = String::from_utf8_lossy(input);
        match Report::from_json(&text) {
            Ok(report) => drop(format_report(&report)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
