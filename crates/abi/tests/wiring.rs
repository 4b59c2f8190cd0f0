//! `wiring.txt`, compared with the function names of the standard.
#![allow(non_snake_case)]

mod common;

use fastpath_abigen::wiring::{Wiring, WiringLine};

fn read_wiring() -> Wiring {
    let mut table = common::table();
    table.functions.extend(common::extensions().functions);
    Wiring::parse("wiring.txt", include_str!("../wiring.txt"), &table).unwrap()
}

/// Returns the words of a file access, derived from its name.
fn expected_words(name: &str) -> Vec<&'static str> {
    let place = match name {
        _ if name.contains("_at") => "at",
        _ if name.contains("_shared") => "shared",
        _ if name.contains("_ordered") => "ordered",
        _ => "individual",
    };
    let collective = name.contains("_all") || name.contains("_ordered");
    let mut words = vec![if name.contains("write") { "write" } else { "read" }, place];
    words.extend((collective && !name.ends_with("_end")).then_some("collective"));
    words
}

#[test]
fn file_accesses__are_those_of_the_names() {
    let wiring = read_wiring();
    let mut accesses = 0;
    for function in &common::table().functions {
        let line = wiring.line(&function.name).unwrap();
        if line.body.starts_with("file_access::") {
            accesses += 1;
            assert_eq!(line.words, expected_words(&function.name), "{}", line.place);
        }
    }
    assert_eq!(accesses, 62);
}

#[test]
fn large_count_forms__are_wired_as_the_other_form() {
    let wiring = read_wiring();
    let parts = |line: &WiringLine| (line.body.clone(), line.quick.clone(), line.words.clone());
    for function in &common::table().functions {
        let Some(small) = &function.large_of else { continue };
        let line = wiring.line(&function.name).unwrap();
        let (small, large) = (parts(wiring.line(small).unwrap()), parts(line));
        // The name of a separate large-count body has the suffix `_c`.
        assert!(small == large || large.0 == small.0.clone() + "_c", "{}", line.place);
    }
}
