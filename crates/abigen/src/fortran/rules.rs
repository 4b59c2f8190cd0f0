//! Parser of `table/fortran.txt`.

use crate::model::Table;
use crate::parse::ParseError;

/// Start of the names of functions beyond the standard, which a table may lack.
const EXTENSION: &str = "MPIX_";

const FILE: &str = "fortran.txt";
const TEXT: &str = include_str!("../../table/fortran.txt");

/// Words about parameters; a word with `=` stands for all that start with it.
const PARAMETER_WORDS: [&str; 24] = [
    "logical",
    "integer",
    "index",
    "in",
    "out",
    "inout",
    "nointent",
    "async",
    "sync",
    "later",
    "location",
    "blocks",
    "base",
    "detached",
    "state",
    "attribute",
    "old",
    "booleans",
    "lead",
    "weights",
    "errcodes",
    "omit",
    "length=",
    "name=",
];
const FUNCTION_WORDS: [&str; 4] = ["none", "handwritten", "named", "single"];

/// All lines of the file.
pub struct Rules {
    lines: Vec<Line>,
}

struct Line {
    number: usize,
    function: String,
    /// `None` for words about the function.
    parameter: Option<String>,
    words: Vec<String>,
}

impl Rules {
    /// Parses the file of this project, and checks its names against `table`.
    ///
    /// # Errors
    /// The first line with an unknown word, or with a name that no function has.
    pub fn builtin(table: &Table) -> Result<Self, ParseError> {
        Self::parse(TEXT, table)
    }

    fn parse(text: &str, table: &Table) -> Result<Self, ParseError> {
        let has_extensions = table.functions.iter().any(|f| f.name.starts_with(EXTENSION));
        let mut lines = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = Line::parse(index + 1, text)
                .and_then(|line| match line.is_extension() && !has_extensions {
                    true => Ok(line),
                    false => line.check(table).map(|()| line),
                })
                .map_err(|message| ParseError { file: FILE.into(), line: index + 1, message })?;
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// Whether the table has `word` about `function`, the name of a small form.
    #[must_use]
    pub fn has(&self, function: &str, word: &str) -> bool {
        self.lines
            .iter()
            .filter(|line| line.parameter.is_none() && line.selects(function))
            .any(|line| line.words.iter().any(|w| w == word))
    }

    /// Words about a parameter: first those for every function, then those for `function`.
    #[must_use]
    pub fn words(&self, function: &str, parameter: &str) -> Vec<&str> {
        let lines = |general: bool| {
            self.lines.iter().filter(move |line| {
                (line.function == "*") == general
                    && line.parameter.as_deref() == Some(parameter)
                    && line.selects(function)
            })
        };
        lines(true).chain(lines(false)).flat_map(|l| l.words.iter().map(String::as_str)).collect()
    }

    /// Line of the first word about `function`, or 0.
    #[must_use]
    pub fn line_of(&self, function: &str) -> usize {
        self.lines.iter().find(|line| line.function == function).map_or(0, |line| line.number)
    }
}

impl Line {
    fn parse(number: usize, text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let function = words.next().unwrap_or_default().to_string();
        let rest: Vec<String> = words.map(str::to_string).collect();
        let is_known = |known: &[&str], word: &str| {
            known.iter().any(|k| word == *k || (k.ends_with('=') && word.starts_with(k)))
        };
        match &rest[..] {
            [] => Err(format!("{function} has no word")),
            all if all.iter().all(|w| is_known(&FUNCTION_WORDS, w)) => {
                Ok(Self { number, function, parameter: None, words: rest })
            }
            [parameter, words @ ..] if !words.is_empty() => {
                match words.iter().find(|w| !w.starts_with('[') && !is_known(&PARAMETER_WORDS, w)) {
                    Some(word) => Err(format!("unknown word `{word}`")),
                    None => Ok(Self {
                        number,
                        function,
                        parameter: Some(parameter.clone()),
                        words: words.to_vec(),
                    }),
                }
            }
            [word, ..] => Err(format!("unknown word `{word}`")),
        }
    }

    fn is_extension(&self) -> bool {
        self.function.starts_with(EXTENSION)
    }

    fn selects(&self, function: &str) -> bool {
        match self.function.split_once('*') {
            Some((start, end)) => {
                function.len() >= start.len() + end.len()
                    && function.starts_with(start)
                    && function.ends_with(end)
            }
            None => self.function == function,
        }
    }

    /// Checks that the line names a function and a parameter of it.
    fn check(&self, table: &Table) -> Result<(), String> {
        let mut selected = table.functions.iter().filter(|f| self.selects(&f.name)).peekable();
        if selected.peek().is_none() {
            return Err(format!("no function {}", self.function));
        }
        match &self.parameter {
            Some(name) if !selected.any(|f| f.params.iter().any(|p| p.name == *name)) => {
                Err(format!("{} has no parameter {name}", self.function))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines__are_refused() {
        let table = Table::builtin().unwrap();
        for line in [
            "MPI_Send",
            "MPI_Send buf",
            "MPI_Send buf logica",
            "MPI_Sent handwritten",
            "MPI_Send indx index",
        ] {
            assert!(Rules::parse(line, &table).is_err(), "{line}");
        }
    }

    #[test]
    fn words__of_every_function_come_first() {
        let table = Table::builtin().unwrap();
        let rules = Rules::builtin(&table).unwrap();
        assert_eq!(rules.words("MPI_Comm_get_attr", "attribute_val"), ["attribute", "out"]);
        assert!(rules.has("MPI_T_init_thread", "none") && !rules.has("MPI_Init_thread", "none"));
    }
}
