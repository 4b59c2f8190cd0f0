use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Lists the names in braces in a text.
fn list_places(text: &str) -> BTreeSet<&str> {
    let parts = text.split('{').skip(1);
    parts.map(|part| part.split('}').next().unwrap()).collect()
}

/// Splits the arguments of a macro call that begins here.
fn cut_arguments(text: &str) -> Vec<String> {
    let (mut depth, mut is_text, mut all) = (0, false, vec![String::new()]);
    for c in text.chars() {
        match c {
            '"' => is_text = !is_text,
            '(' | '[' | '{' if !is_text => depth += 1,
            ')' | ']' | '}' if !is_text && depth == 0 => break,
            ')' | ']' | '}' if !is_text => depth -= 1,
            ',' if !is_text && depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        all.last_mut().unwrap().push(c);
    }
    all.iter().map(|a| a.trim().to_owned()).collect()
}

fn read_sources(folder: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().unwrap() == "findings" {
            continue;
        } else if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Names and values of all uses of `said!` or `to_try!`; a computed name is left out.
fn list_uses(mark: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut sources = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read_sources(&folder, &mut sources);
    let mut uses = Vec::new();
    for text in &sources {
        for (at, _) in text.match_indices(mark) {
            let arguments = cut_arguments(&text[at + mark.len()..]);
            let Some((subject, name)) = arguments[0].split_once('"') else {
                continue;
            };
            let key = |a: &String| a.split([' ', '=']).next().unwrap().to_owned();
            let values = arguments[1..].iter().filter(|a| !a.is_empty()).map(key).collect();
            let name = format!("{}{}", subject.trim(), name.trim_end_matches('"'));
            uses.push((name, values));
        }
    }
    uses
}

#[test]
fn findings__get_the_values_that_their_texts_need() {
    let uses = list_uses("said!(");
    assert!(uses.len() > 60, "{}", uses.len());
    for (subject, name, saying) in SAYINGS
        .iter()
        .flat_map(|(subject, all)| all.iter().map(move |(name, s)| (subject, name, s)))
    {
        let mut places = list_places(&saying.text);
        places.extend(list_places(&saying.why));
        let of_it = uses.iter().filter(|(used, _)| *used == format!("{subject}{name}"));
        for (_, values) in of_it {
            let given: BTreeSet<&str> = values.iter().map(String::as_str).collect();
            assert_eq!(given, places, "{subject}.{name}");
        }
    }
    for (used, _) in uses.iter().filter(|(used, _)| !used.contains(['$', '`'])) {
        let exists = |(subject, all): (&String, &BTreeMap<String, FindingText>)| {
            used.strip_prefix(subject.as_str()).is_some_and(|name| all.contains_key(name))
        };
        assert!(SAYINGS.iter().any(exists), "{used} is in no text");
    }
}

#[test]
fn experiments__get_the_values_that_their_texts_need() {
    for (used, values) in list_uses("to_try!(") {
        let known = &EXPERIMENTS[&used];
        let mut places = list_places(&known.what);
        for outcome in &known.outcomes {
            places.extend(list_places(&outcome.seen));
            places.extend(list_places(&outcome.means));
        }
        let given: BTreeSet<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(given, places, "{used}");
    }
}

#[test]
fn fill__puts_values_in_their_places() {
    let values: Values = &[("a", &1), ("b", &"two")];
    assert_eq!(fill("{b} of {a}, {b}", values), "two of 1, two");
    assert_eq!(fill("none", values), "none");
}
