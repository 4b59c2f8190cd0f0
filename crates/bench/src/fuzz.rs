//! Fuzz test of the parser of benchmark output.
#![allow(non_snake_case)]

use crate::program::parse_event;

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
