//! Parser of the table: lines of text to the model, or an error with file and line.

use crate::model::{CType, Callback, Constant, Function, Param, Table};
use std::collections::HashSet;
use std::fmt;

const FUNCTIONS: (&str, &str) = ("functions.txt", include_str!("../table/functions.txt"));
const EXTENSIONS: (&str, &str) = ("extensions.txt", include_str!("../table/extensions.txt"));
const CONSTANTS: (&str, &str) = ("constants.txt", include_str!("../table/constants.txt"));
const TYPES: (&str, &str) = ("types.txt", include_str!("../table/types.txt"));

/// Error in a line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// File within the table.
    pub file: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Cause.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

type Parsed<T> = Result<T, String>;

impl Table {
    /// Parses the table of this project.
    ///
    /// # Errors
    /// The first line that is invalid, or has an unknown type or a duplicate name.
    pub fn builtin() -> Result<Self, ParseError> {
        let mut table = Self::default();
        table.read_types(TYPES.0, TYPES.1)?;
        table.read_constants(CONSTANTS.0, CONSTANTS.1)?;
        table.read_functions(FUNCTIONS.0, FUNCTIONS.1, "MPI_")?;
        Ok(table)
    }

    /// Parses the extensions of this project: functions beyond the standard, with its types and constants.
    ///
    /// # Errors
    /// See [`Table::builtin`].
    pub fn extensions() -> Result<Self, ParseError> {
        let mut table = Self::builtin()?;
        table.functions.clear();
        table.read_functions(EXTENSIONS.0, EXTENSIONS.1, "MPIX_")?;
        Ok(table)
    }

    /// Parses the functions of the standard and, after them, the extensions of this project.
    ///
    /// # Errors
    /// See [`Table::builtin`].
    pub fn with_extensions() -> Result<Self, ParseError> {
        let mut table = Self::builtin()?;
        table.read_functions(EXTENSIONS.0, EXTENSIONS.1, "MPIX_")?;
        Ok(table)
    }

    fn read_types(&mut self, file: &str, text: &str) -> Result<(), ParseError> {
        for_each_line(file, text, |_, line| {
            let (word, rest) = split_word(line)?;
            match word {
                "integer" => {
                    let (name, stands_for) = split_word(rest)?;
                    self.integers.push((name.into(), stands_for.into()));
                }
                "handle" => self.handles.push(rest.into()),
                "enum" => self.enums.push(rest.into()),
                "alias" => {
                    let (name, of) = split_word(rest)?;
                    if !self.callbacks.iter().any(|c| c.name == of) {
                        return Err(format!("unknown callback type {of}"));
                    }
                    self.aliases.push((name.into(), of.into()));
                }
                "callback" => {
                    let (prototype, attributes) = split_attributes(rest);
                    let proto = Prototype::parse(prototype)?;
                    let mut deprecated = None;
                    for attribute in attributes {
                        match attribute.strip_prefix("deprecated ") {
                            Some(version) => deprecated = Some(version.to_string()),
                            None => return Err(format!("unknown attribute `{attribute}`")),
                        }
                    }
                    let (params, large) = proto.expand()?;
                    if large.is_some() {
                        return Err("a callback type cannot have two forms ({A|B})".into());
                    }
                    self.callbacks.push(Callback {
                        name: proto.name,
                        ret: proto.ret,
                        params,
                        varargs: proto.varargs,
                        deprecated,
                    });
                }
                _ => return Err(format!("unknown word `{word}`")),
            }
            Ok(())
        })
    }

    fn read_constants(&mut self, file: &str, text: &str) -> Result<(), ParseError> {
        let mut names = HashSet::new();
        for_each_line(file, text, |section, line| {
            let (declaration, value) = line.rsplit_once(' ').ok_or("expected C-TYPE NAME VALUE")?;
            let value = value.parse().map_err(|_| format!("`{value}` is not an integer"))?;
            let Param { name, ctype, suffix, .. } = parse_declaration(declaration)?;
            if !suffix.is_empty() {
                return Err("a constant cannot be an array".into());
            }
            self.kind(&ctype.base).ok_or_else(|| format!("unknown type {}", ctype.base))?;
            if !names.insert(name.clone()) {
                return Err(format!("{name} is declared twice"));
            }
            self.constants.push(Constant { name, section: section.into(), ctype, value });
            Ok(())
        })
    }

    fn read_functions(&mut self, file: &str, text: &str, prefix: &str) -> Result<(), ParseError> {
        let mut names = HashSet::new();
        for_each_line(file, text, |section, line| {
            for function in parse_function(section, line, prefix)? {
                self.check_function(&function)?;
                if !names.insert(function.name.clone()) {
                    return Err(format!("{} is declared twice", function.name));
                }
                self.functions.push(function);
            }
            Ok(())
        })
    }

    fn check_function(&self, function: &Function) -> Parsed<()> {
        let types = function.params.iter().map(|p| &p.ctype).chain([&function.ret]);
        for ctype in types {
            self.kind(&ctype.base).ok_or_else(|| format!("unknown type {}", ctype.base))?;
        }
        let mut named = function.scope.iter().chain(&function.inout);
        match named.find(|name| !function.params.iter().any(|p| p.name == **name)) {
            Some(name) => Err(format!("the function has no parameter {name}")),
            None => Ok(()),
        }
    }
}

/// Calls `read` with section and text of each line, except empty ones and comments.
fn for_each_line(
    file: &str, text: &str, mut read: impl FnMut(&str, &str) -> Parsed<()>,
) -> Result<(), ParseError> {
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
            continue;
        }
        read(section, line).map_err(|message| ParseError {
            file: file.into(),
            line: index + 1,
            message,
        })?;
    }
    Ok(())
}

fn split_word(line: &str) -> Parsed<(&str, &str)> {
    let (word, rest) = line.split_once(' ').ok_or_else(|| format!("`{line}` has only one word"))?;
    Ok((word, rest.trim()))
}

fn split_attributes(line: &str) -> (&str, impl Iterator<Item = &str>) {
    let mut parts = line.split(';').map(str::trim);
    (parts.next().unwrap_or_default(), parts)
}

fn parse_function(section: &str, line: &str, prefix: &str) -> Parsed<Vec<Function>> {
    let (prototype, attributes) = split_attributes(line);
    let proto = Prototype::parse(prototype)?;
    let (params, large) = proto.expand()?;
    let mut function = Function {
        name: proto.name,
        section: section.into(),
        ret: proto.ret,
        params,
        varargs: proto.varargs,
        large_of: None,
        anytime: false,
        deprecated: None,
        scope: None,
        inout: None,
        on_no_file: false,
    };
    if !function.name.starts_with(prefix) {
        return Err(format!(
            "{} does not start with {prefix}: functions.txt holds the functions of the standard \
             (MPI_), extensions.txt those beyond it (MPIX_)",
            function.name
        ));
    }
    for attribute in attributes {
        if attribute == "anytime" {
            function.anytime = true;
        } else if let Some(version) = attribute.strip_prefix("deprecated ") {
            function.deprecated = Some(version.into());
        } else if attribute == "scope MPI_FILE_NULL" {
            function.on_no_file = true;
        } else if let Some(name) = attribute.strip_prefix("scope *") {
            function.scope = Some(name.into());
        } else if let Some(name) = attribute.strip_prefix("inout *") {
            function.inout = Some(name.into());
        } else {
            return Err(format!("unknown attribute `{attribute}`"));
        }
    }
    let mut pair = vec![function];
    if let Some(params) = large {
        let small = pair[0].clone();
        pair.push(Function {
            name: format!("{}_c", small.name),
            large_of: Some(small.name.clone()),
            params,
            ..small
        });
    }
    Ok(pair)
}

/// A prototype `RET NAME(PARAMS)`, whose parameters are still text.
struct Prototype<'a> {
    name: String,
    ret: CType,
    params: Vec<&'a str>,
    varargs: bool,
}

impl<'a> Prototype<'a> {
    fn parse(text: &'a str) -> Parsed<Self> {
        let (head, rest) = text.split_once('(').ok_or("the function has no parameter list")?;
        let inside = rest.strip_suffix(')').ok_or("the parameter list is not closed")?;
        let Param { name, ctype, .. } = parse_declaration(head)?;
        let mut params: Vec<&str> = match inside {
            "void" => Vec::new(),
            _ => inside.split(',').map(str::trim).collect(),
        };
        let varargs = params.last() == Some(&"...");
        if varargs {
            params.pop();
        }
        Ok(Self { name, ret: ctype, params, varargs })
    }

    /// Returns the parameters, and those of the large-count form if one differs.
    fn expand(&self) -> Parsed<(Vec<Param>, Option<Vec<Param>>)> {
        let mut small = Vec::new();
        let mut large = Vec::new();
        let mut differs = false;
        for text in &self.params {
            let Some((before, rest)) = text.split_once('{') else {
                let param = parse_declaration(text)?;
                small.push(param.clone());
                large.push(param);
                continue;
            };
            let (types, after) = rest.split_once('}').ok_or("`{` without `}`")?;
            let (first, second) = types.split_once('|').ok_or("`{` without `|`")?;
            differs = true;
            for (form, ctype) in [(&mut small, first), (&mut large, second)] {
                let param = parse_declaration(&format!("{before}{ctype}{after}"))?;
                form.push(Param { poly: true, ..param });
            }
        }
        Ok((small, differs.then_some(large)))
    }
}

/// Parses a parameter, such as `const int counts[]`, `char ***argv` or `MPI_Comm comm`.
fn parse_declaration(text: &str) -> Parsed<Param> {
    let (constant, rest) = match text.strip_prefix("const ") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (base, declarator) = split_word(rest.trim())?;
    let name_and_suffix = declarator.trim_start_matches('*');
    let stars = declarator.len() - name_and_suffix.len();
    let (name, suffix) = match name_and_suffix.find('[') {
        Some(at) => name_and_suffix.split_at(at),
        None => (name_and_suffix, ""),
    };
    if !matches!(suffix, "" | "[]" | "[][3]") {
        return Err(format!("`{suffix}` after {name}"));
    }
    for word in [base, name] {
        if !is_identifier(word) {
            return Err(format!("`{word}` is not a name, in `{text}`"));
        }
    }
    Ok(Param {
        name: name.into(),
        ctype: CType { base: base.into(), constant, stars },
        suffix: suffix.into(),
        poly: false,
    })
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn builtin__has_the_standards_numbers() {
        let table = Table::builtin().unwrap();
        assert_eq!(table.functions.len(), 664);
        assert_eq!(table.symbols().len(), 1328);
        assert_eq!(table.constants.len(), 365);
        assert_eq!(table.handles.len(), 17);
    }

    #[test]
    fn pair__expands_to_both_forms() {
        let line = "int MPI_X(const {int|MPI_Aint} d[], {int|MPI_Count} n, int k) ; anytime";
        let both = parse_function("p2p", line, "MPI_").unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].params[0].c_decl(), "const int d[]");
        assert_eq!(both[1].params[0].c_decl(), "const MPI_Aint d[]");
        assert_eq!(both[1].params[1].c_decl(), "MPI_Count n");
        assert!(both[1].params[1].poly && !both[1].params[2].poly);
        assert_eq!(both[1].name, "MPI_X_c");
        assert_eq!(both[1].large_of.as_deref(), Some("MPI_X"));
        assert!(both[1].anytime);
    }

    #[test]
    fn declaration__keeps_stars_and_suffix() {
        for text in ["char ***argv", "int ranges[][3]", "const void *buf", "MPI_Comm comm"] {
            assert_eq!(parse_declaration(text).unwrap().c_decl(), text);
        }
    }

    #[test]
    fn error__names_file_and_line() {
        let mut table = Table::default();
        let error = table
            .read_functions("f.txt", "# c\n\nint MPI_X(int a)\nint MPI_Y(foo b)", "MPI_")
            .unwrap_err();
        assert_eq!(error.to_string(), "f.txt:4: unknown type foo");
    }

    #[test]
    fn malformed_lines__are_refused() {
        for line in [
            "int MPI_X",
            "int MPI_X(int a",
            "int MPI_X(int)",
            "int X(int a)",
            "int MPI_X(int a) ; anytme",
            "int MPI_X({int a)",
            "int MPI_X({int} a)",
            "int MPI_X(int a[4])",
            "int MPI_X(int a) ; scope *b",
            "int MPI_X(int a) ; inout *b",
        ] {
            let mut table = Table::default();
            assert!(table.read_functions("f", line, "MPI_").is_err(), "{line}");
        }
        let mut table = Table::default();
        assert!(table.read_constants("c", "int MPI_A 1\nint MPI_A 2").is_err());
        assert!(table.read_constants("c", "int MPI_B x").is_err());
        assert!(table.read_types("t", "struct MPI_B").is_err());
    }
}
