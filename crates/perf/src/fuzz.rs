//! What the toolbox reads of others: stored results, lines of its programs, pasted tables.
#![allow(non_snake_case)]

use crate::audit::audit;
use crate::output::json::format_report;
use crate::program::parse_event;
use crate::record::{Report, samples};

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

#[test]
fn fuzz__lines_of_programs_are_read_or_refused() {
    let corpus: &[&[u8]] = &[
        b"{\"event\":\"progress\",\"done\":1,\"total\":2}",
        b"{\"event\":\"start\",\"program\":1}",
        b"text",
    ];
    crate::mutate::run(corpus, |input| {
        let _ = parse_event(&String::from_utf8_lossy(input));
    });
}

#[test]
fn fuzz__pasted_tables_are_audited() {
    let corpus: &[&[u8]] = &[
        b"# OSU MPI Latency Test\n# Size Latency (us)\n0 0.25\n1 0.26\n2 0.26\n",
        b"#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n65536 257237 3216.14 3217.8 0.051458\n",
        b"np min avg max\n2 2.688 2.719 2.750\n40 4.062 6.753 10.187\n",
    ];
    crate::mutate::run(corpus, |input| {
        audit(&String::from_utf8_lossy(input));
    });
}
