//! Finding the hand-written bodies of the entry points in Rust source.

use crate::model::Table;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use syn::{
    Fields, FnArg, GenericArgument, Item, ItemFn, PathArguments, ReturnType, Type, Visibility,
};

/// A hand-written body of an entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The module it is in, the stem of the file's name.
    pub module: String,
    /// Where it is, for messages: `file:line`.
    pub place: String,
    /// Its first parameter is the process: the wrapper enters before it calls.
    pub takes_process: bool,
    /// Its second parameter says in which form a collective call is made: it serves `MPI_X`, `MPI_Ix` and `MPI_X_init`.
    pub takes_form: bool,
    /// Its second parameter says which access of a file is made: it serves every call of its kind (`file_access`).
    pub takes_access: bool,
    /// Its second parameter says whether it serves the large-count form.
    pub takes_width: bool,
    /// It returns a `Result`; otherwise the value that C gets.
    pub returns_result: bool,
    /// The `Result` has a value, for the variable that the last argument of C points to.
    pub returns_value: bool,
    /// The structs among its parameters that are made of several arguments of C.
    pub bundles: Vec<Bundle>,
}

/// A struct of `arguments.rs`: its fields have the names of arguments of C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// Its fields; it stands where the first of them does among C's arguments.
    pub fields: Vec<String>,
}

/// The file, beside the bodies, that has the bundles.
const BUNDLES: &str = "arguments";

/// What was found: bodies by name, and the files that were read, sorted.
#[derive(Debug, Default)]
pub struct Bodies {
    /// Bodies by the name of the function, `comm_dup`.
    pub by_name: BTreeMap<String, Body>,
    /// Short ways, `comm_rank_quick`, by the name of the body that they stand before.
    pub quick: BTreeMap<String, Body>,
    /// The files, each a module.
    pub files: Vec<PathBuf>,
    /// What `arguments.rs` has.
    bundles: Vec<Bundle>,
}

/// Why the bodies cannot be wired.
#[derive(Debug)]
pub struct ScanError(pub String);

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScanError {}

impl Bodies {
    /// Reads every `.rs` file of `folder` except `mod.rs`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or parsed, a `pub fn` that is no MPI function, one that is there twice.
    pub fn read_folder(folder: &Path, table: &Table) -> Result<Self, ScanError> {
        let fail =
            |path: &Path, e: &dyn fmt::Display| ScanError(format!("{}: {e}", path.display()));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| fail(folder, &e))? {
            let path = entry.map_err(|e| fail(folder, &e))?.path();
            let is_source = path.extension().is_some_and(|e| e == "rs");
            if is_source && path.file_name().is_some_and(|n| n != "mod.rs") {
                files.push(path);
            }
        }
        // The bundles first.
        files.sort_by_key(|path| {
            (path.file_stem().is_none_or(|stem| stem != BUNDLES), path.clone())
        });
        let mut bodies = Self::default();
        for path in files {
            let text = std::fs::read_to_string(&path).map_err(|e| fail(&path, &e))?;
            let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            bodies.read_source(&module, &path.display().to_string(), &text, table)?;
            bodies.files.push(path);
        }
        Ok(bodies)
    }

    fn read_source(
        &mut self, module: &str, path: &str, text: &str, table: &Table,
    ) -> Result<(), ScanError> {
        let file = syn::parse_file(text)
            .map_err(|e| ScanError(format!("{path}:{}: {e}", e.span().start().line)))?;
        for item in &file.items {
            let function = match item {
                Item::Struct(bundle) if module == BUNDLES => {
                    let name = bundle.ident.to_string();
                    let fields = list_fields(&bundle.fields);
                    self.bundles.push(Bundle { name, fields });
                    continue;
                }
                Item::Fn(function) => function,
                _ => continue,
            };
            if !matches!(function.vis, Visibility::Public(_)) {
                continue;
            }
            let ident = function.sig.ident.to_string();
            let (name, bodies) = match ident.strip_suffix("_quick") {
                Some(name) => (name.to_string(), &mut self.quick),
                None => (ident, &mut self.by_name),
            };
            let place = format!("{path}:{}", function.sig.ident.span().start().line);
            if !table.functions.iter().any(|f| f.body_name() == name) {
                return Err(ScanError(format!(
                    "{place}: abigen/table/functions.txt has no function for `pub fn {name}`; \
                     what is no body is pub(crate)"
                )));
            }
            let body = describe(function, module, place, &self.bundles);
            if body.takes_process && !body.returns_result {
                return Err(ScanError(format!(
                    "{}: a body that takes the process returns Result<()>",
                    body.place
                )));
            }
            if let Some(other) = bodies.insert(name, body.clone()) {
                return Err(ScanError(format!("{}: is already in {}", body.place, other.place)));
            }
        }
        Ok(())
    }
}

fn list_fields(fields: &Fields) -> Vec<String> {
    let names = fields.iter().filter_map(|field| field.ident.as_ref());
    names.map(ToString::to_string).collect()
}

fn describe(function: &ItemFn, module: &str, place: String, bundles: &[Bundle]) -> Body {
    let types: Vec<String> = function.sig.inputs.iter().map(name_type).collect();
    let is_process = |name: &String| name == "&Process";
    let second = types.get(1).map_or("", String::as_str);
    let of_name = |name: &String| bundles.iter().find(|b| b.name == *name).cloned();
    let (returns_result, returns_value) = match &function.sig.output {
        ReturnType::Type(_, ty) => (last_name(ty) == "Result", has_value(ty)),
        ReturnType::Default => (false, false),
    };
    Body {
        module: module.into(),
        place,
        takes_process: types.first().is_some_and(is_process),
        takes_form: second == "Form",
        takes_access: second == "Access" || second == "Which",
        takes_width: second == "Width",
        returns_result,
        returns_value,
        bundles: types.iter().filter_map(of_name).collect(),
    }
}

/// Whether a `Result` is one of something else than `()`.
fn has_value(ty: &Type) -> bool {
    let Type::Path(path) = ty else {
        return false;
    };
    match path.path.segments.last().map(|s| &s.arguments) {
        Some(PathArguments::AngleBracketed(of)) => match of.args.first() {
            Some(GenericArgument::Type(Type::Tuple(tuple))) => !tuple.elems.is_empty(),
            of => of.is_some(),
        },
        _ => false,
    }
}

fn name_type(input: &FnArg) -> String {
    match input {
        FnArg::Typed(arg) => match &*arg.ty {
            Type::Reference(reference) => format!("&{}", last_name(&reference.elem)),
            other => last_name(other),
        },
        FnArg::Receiver(_) => String::new(),
    }
}

fn last_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Result<Bodies, ScanError> {
        let mut bodies = Bodies::default();
        bodies.read_source("p2p", "p2p.rs", text, &Table::builtin().unwrap())?;
        Ok(bodies)
    }

    #[test]
    fn bodies__are_found_by_name_and_shape() {
        let bodies = scan(
            "// pub fn recv() in a comment\n\
             pub unsafe fn send(buf: *const c_void, n: i64) -> Result<()> { Ok(()) }\n\
             pub fn comm_dup(p: &Process, c: usize) -> fastpath_mpi::Result<()> { Ok(()) }\n\
             pub fn wtime() -> f64 { 0.0 }\n\
             pub fn comm_size(p: &Process, c: usize) -> Result<c_int> { Ok(1) }\n\
             pub fn gather(p: &Process, form: Form) -> Result<()> { Ok(()) }\n\
             pub fn comm_dup_quick(c: usize) -> bool { false }\n\
             pub(crate) fn helper() {}\n",
        )
        .unwrap();
        let shape = |name: &str| {
            let body = &bodies.by_name[name];
            (body.takes_process, body.returns_result)
        };
        assert_eq!(bodies.by_name.len(), 5);
        assert!(bodies.by_name["comm_size"].returns_value);
        assert!(!bodies.by_name["comm_dup"].returns_value);
        let with_form = bodies.by_name.iter().filter(|(_, body)| body.takes_form);
        assert_eq!(with_form.map(|(name, _)| name).collect::<Vec<_>>(), ["gather"]);
        assert_eq!(bodies.quick.keys().collect::<Vec<_>>(), ["comm_dup"]);
        assert_eq!(shape("send"), (false, true));
        assert_eq!(shape("comm_dup"), (true, true));
        assert_eq!(shape("wtime"), (false, false));
    }

    #[test]
    fn mistakes__are_errors_with_their_place() {
        for (text, message) in [
            ("pub fn sned() {}", "p2p.rs:1: abigen/table/functions.txt has no function"),
            ("pub fn sned_quick() {}", "p2p.rs:1: abigen/table/functions.txt has no function"),
            ("\npub fn send() -> R {}\npub fn send() -> R {}", "p2p.rs:3: is already in p2p.rs:2"),
            ("pub fn send(", "p2p.rs:1: "),
            ("pub fn send(p: &Process) -> i32 { 0 }", "p2p.rs:1: a body that takes the process"),
        ] {
            let error = scan(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
