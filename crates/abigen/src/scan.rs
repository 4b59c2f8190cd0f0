//! Signatures of the bodies of the entry points, read from their source.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use syn::{
    Expr, Fields, FnArg, GenericArgument, GenericParam, Item, ItemFn, Lit, Pat, PathArguments,
    ReturnType, Type, Visibility,
};

/// Signature of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodySignature {
    /// File and line, for messages.
    pub place: String,
    /// Whether the first parameter is the process: the wrapper then enters MPI before the call.
    pub takes_process: bool,
    /// Parameter after the process, if it is one that is no argument in C.
    pub choice: Option<ChosenParam>,
    /// Parameters that are arguments in C, in order.
    pub params: Vec<BodyParam>,
    /// Result type.
    pub returns: Returns,
}

/// A parameter whose value is chosen by the words of a line or by the large-count form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenParam {
    /// `Form`: blocking, nonblocking or persistent.
    Form,
    /// `Width`: whether the large-count form is served.
    Width,
    /// `Access`: an access of a file.
    Access,
    /// `SplitKind`: the split file access that the call ends.
    SplitKind,
}

/// A parameter that takes an argument of C, or a struct of several arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyParam {
    /// The name.
    pub name: String,
    /// The type: the last name of its path, `_` for a type parameter.
    pub ctype: String,
    /// Fields of a struct of `arguments.rs`: names of the C arguments in it.
    pub fields: Vec<String>,
}

/// The result of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returns {
    /// The value that C gets.
    Code,
    /// `Result<()>`
    Done,
    /// `Result<T>`: the value goes where the last argument of C points to.
    Value,
}

/// File that defines structs of several C arguments.
const BUNDLES: &str = "arguments";

/// All bodies of a folder.
#[derive(Debug, Default)]
pub struct Bodies {
    /// Bodies, keyed by module and name, such as `comm::comm_dup`.
    pub by_path: BTreeMap<String, BodySignature>,
    /// Fields of the structs of `arguments.rs`, by the name of the struct.
    bundles: BTreeMap<String, Vec<String>>,
}

impl Bodies {
    /// Reads every `pub fn` in the `.rs` files of `folder`, `mod.rs` excepted.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, with its name.
    pub fn read_folder(folder: &Path) -> Result<Self, String> {
        let fail = |path: &Path, e: &dyn Display| format!("{}: {e}", path.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| fail(folder, &e))? {
            let path = entry.map_err(|e| fail(folder, &e))?.path();
            let is_source = path.extension().is_some_and(|e| e == "rs");
            let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if is_source && module != "mod" {
                files.push((module, path));
            }
        }
        // Structs are read before the bodies that take them.
        files.sort_by_key(|(module, _)| (module != BUNDLES, module.clone()));
        let mut bodies = Self::default();
        for (module, path) in files {
            let text = std::fs::read_to_string(&path).map_err(|e| fail(&path, &e))?;
            bodies.read_source(&module, &path.display().to_string(), &text)?;
        }
        Ok(bodies)
    }

    /// Reads the bodies of one module.
    ///
    /// # Errors
    /// Text that is not Rust, with its line.
    pub fn read_source(&mut self, module: &str, path: &str, text: &str) -> Result<(), String> {
        let file =
            syn::parse_file(text).map_err(|e| format!("{path}:{}: {e}", e.span().start().line))?;
        for item in &file.items {
            match item {
                Item::Struct(bundle) if module == BUNDLES => {
                    self.bundles.insert(bundle.ident.to_string(), list_fields(&bundle.fields));
                }
                Item::Fn(function) if matches!(function.vis, Visibility::Public(_)) => {
                    let name = &function.sig.ident;
                    let place = format!("{path}:{}", name.span().start().line);
                    let body = self.describe(function, place);
                    self.by_path.insert(format!("{module}::{name}"), body);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn describe(&self, function: &ItemFn, place: String) -> BodySignature {
        let generics: Vec<String> = function.sig.generics.params.iter().map(name_generic).collect();
        let mut params: Vec<BodyParam> = Vec::new();
        for input in &function.sig.inputs {
            let FnArg::Typed(arg) = input else { continue };
            let name = match &*arg.pat {
                Pat::Ident(pattern) => pattern.ident.to_string(),
                _ => String::new(),
            };
            let ctype = spell(&arg.ty, &generics);
            let fields = self.bundles.get(&ctype).cloned().unwrap_or_default();
            params.push(BodyParam { name, ctype, fields });
        }
        let takes_process = params.first().is_some_and(|p| p.ctype == "&Process");
        params.drain(..usize::from(takes_process));
        let choice = params.first().and_then(|p| match &*p.ctype {
            "Form" => Some(ChosenParam::Form),
            "Width" => Some(ChosenParam::Width),
            "Access" => Some(ChosenParam::Access),
            "SplitKind" => Some(ChosenParam::SplitKind),
            _ => None,
        });
        params.drain(..usize::from(choice.is_some()));
        let returns = match &function.sig.output {
            ReturnType::Type(_, ty) if spell(ty, &generics) == "Result" => match has_value(ty) {
                true => Returns::Value,
                false => Returns::Done,
            },
            _ => Returns::Code,
        };
        BodySignature { place, takes_process, choice, params, returns }
    }
}

fn list_fields(fields: &Fields) -> Vec<String> {
    let names = fields.iter().filter_map(|field| field.ident.as_ref());
    names.map(ToString::to_string).collect()
}

fn name_generic(param: &GenericParam) -> String {
    match param {
        GenericParam::Type(param) => param.ident.to_string(),
        _ => String::new(),
    }
}

/// Returns whether a `Result` has a value other than `()`.
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

/// Formats a type as in the generated code: paths by their last name, type parameters as `_`.
fn spell(ty: &Type, generics: &[String]) -> String {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
            match &*last {
                "i32" => "c_int".into(),
                _ if generics.contains(&last) => "_".into(),
                _ => last,
            }
        }
        Type::Reference(reference) => format!("&{}", spell(&reference.elem, generics)),
        Type::Ptr(pointer) => {
            let keyword = if pointer.mutability.is_some() { "mut" } else { "const" };
            format!("*{keyword} {}", spell(&pointer.elem, generics))
        }
        Type::Array(array) => match &array.len {
            Expr::Lit(len) => match &len.lit {
                Lit::Int(len) => format!("[{}; {len}]", spell(&array.elem, generics)),
                _ => String::new(),
            },
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn bodies__are_described_by_their_signatures() {
        let mut bodies = Bodies::default();
        let structs = "pub struct SendArguments<C> { pub buf: *const C, pub dest: c_int }";
        bodies.read_source("arguments", "arguments.rs", structs).unwrap();
        let text = "// pub fn recv() in a comment\n\
             pub unsafe fn send(m: SendArguments<u8>, n: *mut [i32; 3]) -> Result<()> { Ok(()) }\n\
             pub fn size<C: Count>(p: &Process, c: *const C) -> fastpath_mpi::Result<i64> { a }\n\
             pub fn gather(p: &Process, form: Form, root: c_int) -> Result<()> { Ok(()) }\n\
             pub fn wtime() -> f64 { 0.0 }\n\
             pub(crate) fn helper() {}\n";
        bodies.read_source("m", "m.rs", text).unwrap();
        let names: Vec<&str> = bodies.by_path.keys().map(String::as_str).collect();
        assert_eq!(names, ["m::gather", "m::send", "m::size", "m::wtime"]);
        let types = |path: &str| -> Vec<&str> {
            bodies.by_path[path].params.iter().map(|p| &*p.ctype).collect()
        };
        let send = &bodies.by_path["m::send"];
        assert_eq!((&*send.place, &send.returns), ("m.rs:2", &Returns::Done));
        assert_eq!(send.params[0].fields, ["buf", "dest"]);
        assert_eq!(types("m::send"), ["SendArguments", "*mut [c_int; 3]"]);
        let size = &bodies.by_path["m::size"];
        assert!(size.takes_process && size.returns == Returns::Value);
        assert_eq!(types("m::size"), ["*const _"]);
        assert_eq!(bodies.by_path["m::gather"].choice, Some(ChosenParam::Form));
        assert_eq!(types("m::gather"), ["c_int"]);
        assert_eq!(bodies.by_path["m::wtime"].returns, Returns::Code);
    }

    #[test]
    fn source__that_is_no_rust_is_an_error_with_its_line() {
        let error = Bodies::default().read_source("m", "m.rs", "\npub fn send(").unwrap_err();
        assert!(error.starts_with("m.rs:2: "), "{error}");
    }
}
