//! A C program that checks the header and the library against the table.

use crate::header::{is_enum_member, is_integer};
use crate::model::Table;
use std::fmt::Write;

const HEAD: &str = r#"#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#define IS(expression, text) _Static_assert(expression, text)
#define IS_OF_TYPE(name, type) \
    IS(_Generic((name), type: 1, default: 0), #name " is of another type")

IS(sizeof(MPI_Status) == 32, "size of MPI_Status");
IS(_Alignof(MPI_Status) == 4, "alignment of MPI_Status");
IS(offsetof(MPI_Status, MPI_SOURCE) == 0, "MPI_SOURCE");
IS(offsetof(MPI_Status, MPI_TAG) == 4, "MPI_TAG");
IS(offsetof(MPI_Status, MPI_ERROR) == 8, "MPI_ERROR");
IS(offsetof(MPI_Status, MPI_internal) == 12, "MPI_internal");
IS(sizeof(MPI_Aint) == sizeof(void *) && (MPI_Aint)-1 < 0, "MPI_Aint");
IS(sizeof(MPI_Count) == 8 && (MPI_Count)-1 < 0, "MPI_Count");
IS(sizeof(MPI_Offset) == 8 && (MPI_Offset)-1 < 0, "MPI_Offset");
"#;

/// Generates the program. It does not compile if an integer, a type or a size is wrong, and does not link if a function
/// is missing. It returns the number of handles and addresses with a wrong value.
#[must_use]
pub fn emit_program(table: &Table) -> String {
    let mut out = String::from(HEAD);
    for handle in &table.handles {
        _ = writeln!(out, "IS(sizeof({handle}) == sizeof(void *), \"size of {handle}\");");
    }
    for name in &table.enums {
        _ = writeln!(out, "IS(sizeof({name}) == sizeof(int), \"size of {name}\");");
    }
    for constant in &table.constants {
        let (name, value) = (&constant.name, constant.value);
        if is_integer(table, &constant.ctype) {
            _ = writeln!(out, "IS({name} == {value}, \"{name} is not {value}\");");
        }
        if !is_enum_member(table, constant) {
            let ctype = constant.ctype.c_prefix();
            _ = writeln!(out, "IS_OF_TYPE({name}, {});", ctype.trim());
        }
    }
    out.push_str(
        "\nstatic const struct { const char *name; intptr_t is, should_be; } values[] = {\n",
    );
    for constant in &table.constants {
        if !is_integer(table, &constant.ctype) {
            let (name, value) = (&constant.name, constant.value);
            _ = writeln!(out, "    {{\"{name}\", (intptr_t){name}, {value}}},");
        }
    }
    out.push_str("};\n\ntypedef void (*function)(void);\nstatic const function functions[] = {\n");
    for symbol in table.symbols() {
        _ = writeln!(out, "    (function){symbol},");
    }
    out.push_str(
        r#"};

int main(void)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i].is != values[i].should_be) {
            printf("%s is %ld\n", values[i].name, (long)values[i].is);
            wrong++;
        }
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        wrong += functions[i] == NULL;
    printf("%zu values, %zu functions, %d wrong\n", sizeof values / sizeof *values,
        sizeof functions / sizeof *functions, wrong);
    return wrong != 0;
}
"#,
    );
    out
}
