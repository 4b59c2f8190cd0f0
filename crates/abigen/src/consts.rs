//! Constants for Rust.

use crate::model::{CTypeKind, Constant, Table};
use std::fmt::Write;

/// Generates a Rust module with every constant, and tables of names. Integers are `i32` (or as wide as their C type).
/// Handles and all other values of a pointer type are `usize`.
#[must_use]
pub fn emit_constants(table: &Table) -> String {
    let mut out = String::new();
    for constant in &table.constants {
        _ = writeln!(
            out,
            "/// `{}`, of type `{}`.",
            constant.name,
            constant.ctype.c_prefix().trim()
        );
        let (name, ty, value) = (&constant.name, rust_type(table, constant), constant.value);
        _ = writeln!(out, "pub const {name}: {ty} = {value};");
    }
    let classes = table.constants.iter().filter(|c| c.section == "error classes");
    let classes: Vec<&Constant> = classes.filter(|c| c.name != "MPI_ERR_LASTCODE").collect();
    emit_names(
        &mut out,
        "ERROR_CLASSES",
        "i32",
        "The error classes: value and name, in ascending order.",
        &classes,
    );
    for handle in &table.handles {
        let values: Vec<&Constant> = table
            .constants
            .iter()
            .filter(|c| c.ctype.base == *handle && c.ctype.stars == 0)
            .collect();
        if values.is_empty() || handle.starts_with("MPI_T_") {
            continue;
        }
        let list = format!("{}S", handle.trim_start_matches("MPI_").to_uppercase());
        let doc = format!(
            "The predefined handles of type `{handle}`: value and name; of several names for one \
             value the first is the usual one."
        );
        emit_names(&mut out, &list, "usize", &doc, &values);
    }
    out
}

fn emit_names(out: &mut String, list: &str, ty: &str, doc: &str, constants: &[&Constant]) {
    _ = writeln!(out, "/// {doc}");
    _ = writeln!(out, "pub const {list}: &[({ty}, &str)] = &[");
    for constant in constants {
        _ = writeln!(out, "    ({}, \"{}\"),", constant.value, constant.name);
    }
    out.push_str("];\n");
}

fn rust_type(table: &Table, constant: &Constant) -> &'static str {
    if constant.ctype.stars > 0 {
        return "usize";
    }
    match table.kind(&constant.ctype.base) {
        Some(CTypeKind::Aint) => "isize",
        Some(CTypeKind::Long) => "i64",
        Some(CTypeKind::Handle | CTypeKind::Callback) => "usize",
        _ => "i32",
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn constants__have_the_types_of_the_contract() {
        let text = emit_constants(&Table::builtin().unwrap());
        for line in [
            "pub const MPI_COMM_WORLD: usize = 257;",
            "pub const MPI_ANY_SOURCE: i32 = -1;",
            "pub const MPI_STATUS_IGNORE: usize = 0;",
            "pub const MPI_COMM_DUP_FN: usize = 1;",
            "pub const MPI_DISPLACEMENT_CURRENT: i64 = -1;",
            "pub const MPI_T_SOURCE_ORDERED: i32 = 1;",
            "    (257, \"MPI_COMM_WORLD\"),",
            "    (55, \"MPI_ERR_UNSUPPORTED_OPERATION\"),",
            "pub const DATATYPES: &[(usize, &str)] = &[",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
    }

    #[test]
    fn error_classes__ascend() {
        let table = Table::builtin().unwrap();
        let values: Vec<i64> = table
            .constants
            .iter()
            .filter(|c| c.section == "error classes")
            .map(|c| c.value)
            .collect();
        assert!(values.is_sorted_by(|a, b| a < b));
    }
}
