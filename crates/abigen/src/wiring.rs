//! The table `crates/abi/wiring.txt`: which body serves which function.

use crate::model::Table;
use crate::scan::{Bodies, BodySignature};
use std::collections::BTreeMap;

/// The lines of the table.
#[derive(Debug)]
pub struct Wiring {
    lines: BTreeMap<String, WiringLine>,
}

/// The line of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WiringLine {
    /// File, line number and function, for messages.
    pub place: String,
    /// Module and name of the body, `rma::put`.
    pub body: String,
    /// Module and name of the body that is called first, without entering MPI.
    pub quick: Option<String>,
    /// The words that choose an argument of the body.
    pub words: Vec<String>,
}

impl Wiring {
    /// Reads the table. Each function of the standard has one line.
    ///
    /// # Errors
    /// A line is missing, duplicated or incomplete, or names an unknown function.
    pub fn parse(file: &str, text: &str, table: &Table) -> Result<Self, String> {
        let mut lines: BTreeMap<String, WiringLine> = BTreeMap::new();
        for (index, text) in text.lines().enumerate() {
            let mut words = text.split_whitespace().map(str::to_owned);
            let Some(name) = words.next().filter(|word| !word.starts_with('#')) else {
                continue;
            };
            let place = format!("{file}:{}: {name}", index + 1);
            if table.function(&name).is_none() {
                return Err(format!(
                    "{place} is not declared in crates/abigen/table/functions.txt: correct the \
                     name, or declare the function there"
                ));
            }
            let body = words.next().filter(|body| body.contains("::")).ok_or_else(|| {
                format!(
                    "{place} names no body: write `{name} FILE::BODY`, the body in \
                     src/entry/FILE.rs"
                )
            })?;
            let mut words: Vec<String> = words.collect();
            let quick = match words.iter().position(|word| word == "quick") {
                None => None,
                Some(at) if at + 1 < words.len() => words.drain(at..at + 2).next_back(),
                Some(_) => {
                    return Err(format!("{place}: `quick` needs a body: `quick FILE::BODY`"));
                }
            };
            let line = WiringLine { place, body, quick, words };
            if let Some(first) = lines.get(&name) {
                return Err(format!(
                    "{} has two lines, see {}: delete one",
                    line.place, first.place
                ));
            }
            lines.insert(name, line);
        }
        match table.functions.iter().find(|f| !lines.contains_key(&f.name)) {
            None => Ok(Self { lines }),
            Some(missing) => Err(format!(
                "{file}: {name} has no line: add `{name} FILE::BODY`, with the body in \
                 src/entry/FILE.rs",
                name = missing.name
            )),
        }
    }

    /// Returns the line of a function.
    ///
    /// # Errors
    /// The function is not in the table with which the wiring was read.
    pub fn line(&self, function: &str) -> Result<&WiringLine, String> {
        self.lines.get(function).ok_or_else(|| format!("{function} has no line"))
    }

    /// Checks that each body has a line. If a body has none, another line probably names the wrong body.
    ///
    /// # Errors
    /// The first body without a line.
    pub fn check_unused(&self, bodies: &Bodies) -> Result<(), String> {
        let is_named = |path: &String| {
            self.lines.values().any(|line| line.body == *path || line.quick.as_ref() == Some(path))
        };
        match bodies.by_path.iter().find(|(path, _)| !is_named(path)) {
            None => Ok(()),
            Some((path, body)) => Err(format!(
                "{}: no line of wiring.txt names {path}: correct the line of its function, or \
                 make it pub(crate) if it is not a body",
                body.place
            )),
        }
    }
}

impl WiringLine {
    /// Finds the body at `path`.
    ///
    /// # Errors
    /// There is no body at this path.
    pub fn find<'a>(&self, path: &str, bodies: &'a Bodies) -> Result<&'a BodySignature, String> {
        bodies.by_path.get(path).ok_or_else(|| {
            let (module, name) = path.split_once("::").unwrap_or((path, path));
            format!(
                "{}: src/entry/{module}.rs has no `pub fn {name}`: correct the line, or write the \
                 body",
                self.place
            )
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Parses lines for a table with two functions.
    fn parse(text: &str) -> Result<Wiring, String> {
        let mut table = Table::builtin().unwrap();
        table.functions.retain(|f| f.name == "MPI_Put" || f.name == "MPI_Get");
        Wiring::parse("wiring.txt", text, &table)
    }

    #[test]
    fn line__names_bodies_and_words() {
        let text =
            "# one-sided\n\nMPI_Put  rma::put quick rma::put_quick\nMPI_Get rma::get blocking\n";
        let wiring = parse(text).unwrap();
        let put = wiring.line("MPI_Put").unwrap();
        assert_eq!((&*put.body, put.quick.as_deref()), ("rma::put", Some("rma::put_quick")));
        assert!(put.words.is_empty());
        let get = wiring.line("MPI_Get").unwrap();
        assert_eq!((&*get.place, &get.quick), ("wiring.txt:4: MPI_Get", &None));
        assert_eq!(get.words, ["blocking"]);
        assert!(wiring.line("MPI_Send").is_err());
    }

    #[test]
    fn mistakes__are_errors_with_function_cause_and_remedy() {
        for (text, message) in [
            ("MPI_Put a::b", "wiring.txt: MPI_Get has no line: add `MPI_Get FILE::BODY`, with"),
            (
                "MPI_Put a::b\nMPI_Put a::c",
                "wiring.txt:2: MPI_Put has two lines, see wiring.txt:1: MPI_Put: delete one",
            ),
            (
                "MPI_Pt a::b",
                "wiring.txt:1: MPI_Pt is not declared in crates/abigen/table/functions",
            ),
            ("MPI_Put", "wiring.txt:1: MPI_Put names no body: write `MPI_Put FILE::BODY`"),
            ("MPI_Put put", "wiring.txt:1: MPI_Put names no body: write `MPI_Put FILE::BODY`"),
            (
                "MPI_Put a::b quick",
                "wiring.txt:1: MPI_Put: `quick` needs a body: `quick FILE::BODY`",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
