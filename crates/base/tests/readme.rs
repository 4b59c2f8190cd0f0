//! The table of settings in README.md against the table of variables.
#![allow(non_snake_case)]

use fastpath_base::config::{Kind, VARIABLES};

#[test]
fn readme__lists_every_variable_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let settings = readme
        .split("\n## Settings\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let listed = |word: &str| settings.contains(&format!("`{word}`"));
    for variable in VARIABLES {
        assert_eq!(
            listed(variable.name),
            !variable.internal,
            "{} in README.md",
            variable.name
        );
        if let Kind::Words(words) | Kind::Choice(words) = variable.kind {
            for word in words {
                assert!(
                    listed(word),
                    "the word `{word}` of {} in README.md",
                    variable.name
                );
            }
        }
    }
    for name in settings
        .split('`')
        .filter(|word| word.starts_with("FASTPATH_"))
    {
        assert!(
            VARIABLES.iter().any(|v| v.name == name),
            "README.md has {name}, the table has not"
        );
    }
}
