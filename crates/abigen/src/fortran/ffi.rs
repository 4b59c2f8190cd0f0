//! Declarations of the C functions that `libmpifort_abi` calls.

use super::interface::{Interface, interfaces};
use crate::model::{CTypeKind, Function, Param, Table};
use std::fmt::Write;

/// Generates the declarations, `MPI_X` and `PMPI_X`, and a type `MPI_X_fn` for each function whose entry point is
/// written by hand. A handle is a `usize`, a status and a callback are `c_void`.
///
/// # Errors
/// An invalid line of `table/fortran.txt`.
pub fn emit_ffi(table: &Table) -> Result<String, String> {
    let all = interfaces(table).map_err(|e| e.to_string())?;
    let mut out = String::new();
    emit_functions(table, &all, &mut out);
    Ok(out)
}

/// Formats parameters: `a: c_int, b: usize`.
pub fn declare(params: &[(String, String)]) -> String {
    let all: Vec<String> = params.iter().map(|(name, ctype)| format!("{name}: {ctype}")).collect();
    all.join(", ")
}

fn emit_functions(table: &Table, all: &[Interface], out: &mut String) {
    out.push_str("unsafe extern \"C\" {\n");
    let has_form =
        |f: &&Function| f.section == "handle" || all.iter().any(|i| i.function.name == f.name);
    for function in table.functions.iter().filter(has_form) {
        for prefix in ["", "P"] {
            // Conversions of handles are no calls of a program.
            if prefix.is_empty() && function.section == "handle" {
                continue;
            }
            let dots = if function.varargs { ", ..." } else { "" };
            _ = writeln!(
                out,
                "    pub fn {prefix}{}({}{dots}) -> {};",
                function.name,
                declare(&c_params(table, function)),
                c_return(table, function)
            );
        }
    }
    out.push_str("}\n");
    for Interface { function, .. } in all.iter().filter(|i| i.is_handwritten) {
        let types: Vec<String> =
            c_params(table, function).into_iter().map(|(_, ctype)| ctype).collect();
        _ = writeln!(
            out,
            "pub type {}_fn = unsafe extern \"C\" fn({}) -> {};",
            function.name,
            types.join(", "),
            c_return(table, function)
        );
    }
}

/// Parameters of a C function: names and Rust types.
pub fn c_params(table: &Table, function: &Function) -> Vec<(String, String)> {
    function.params.iter().map(|p| (format!("r#{}", p.name), c_type(table, p))).collect()
}

fn c_base(table: &Table, base: &str) -> &'static str {
    match table.kind(base) {
        Some(CTypeKind::Int) => "c_int",
        Some(CTypeKind::Aint | CTypeKind::Long) => "i64",
        Some(CTypeKind::Handle) => "usize",
        Some(CTypeKind::Char) => "u8",
        Some(CTypeKind::Double) => "f64",
        _ => "c_void",
    }
}

/// Rust type of a C parameter.
pub fn c_type(table: &Table, param: &Param) -> String {
    let base = c_base(table, &param.ctype.base);
    let stars = param.ctype.stars + usize::from(!param.suffix.is_empty());
    let is_callback = table.kind(&param.ctype.base) == Some(CTypeKind::Callback);
    if is_callback {
        return "*const c_void".into();
    }
    format!("{}{base}", "*mut ".repeat(stars))
}

/// Rust type of a C function's result.
pub fn c_return(table: &Table, function: &Function) -> &'static str {
    c_base(table, &function.ret.base)
}
