//! The table of docs/settings.md equals the table of variables.
#![allow(non_snake_case)]

use fastpath_base::config::{VARIABLES, ValueKind};

#[test]
fn settings__list_every_variable_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let settings = page.split("\n## Variables\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let listed = |word: &str| settings.contains(&format!("`{word}`"));
    for variable in VARIABLES {
        assert_eq!(
            listed(variable.name),
            !variable.internal,
            "the row of {} in docs/settings.md: add it, or take that of an internal one away",
            variable.name
        );
        if let ValueKind::Words(words) | ValueKind::Choice(words) = variable.kind {
            for word in words {
                assert!(listed(word), "the word `{word}` of {} in docs/settings.md", variable.name);
            }
        }
    }
    for name in settings.split('`').filter(|word| word.starts_with("FASTPATH_")) {
        assert!(
            VARIABLES.iter().any(|v| v.name == name),
            "docs/settings.md has {name}, the table has not"
        );
    }
}
