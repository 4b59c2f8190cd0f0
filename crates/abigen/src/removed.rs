//! Names that MPI-3.0 removed. A use of one is a compiler error that names the replacement.

use std::fmt::Write;

const HEAD: &str = r#"
#ifndef MPI_NO_REMOVED_NAMES

#if defined(__has_attribute)
#if __has_attribute(unavailable)
/* Functions are declared as pointers: tools that read prototypes here shall not find them. */
#define MPI_ABI_REMOVED(name, use, params) \
    extern int (*name) params __attribute__((unavailable("removed in MPI-3.0: use " use)))
#define MPI_ABI_REMOVED_NAME(use) __attribute__((unavailable("removed in MPI-3.0: use " use)))
#endif
#endif
#if defined(__GNUC__) && !defined(MPI_ABI_REMOVED)
/* GCC before 12: a call is an error, any other use a warning. */
#define MPI_ABI_REMOVED(name, use, params) \
    int name params __attribute__((error("removed in MPI-3.0: use " use)))
#define MPI_ABI_REMOVED_NAME(use) __attribute__((deprecated("removed in MPI-3.0: use " use)))
#endif

#ifdef MPI_ABI_REMOVED
"#;

const TAIL: &str = "
#undef MPI_ABI_REMOVED
#undef MPI_ABI_REMOVED_NAME
#endif

#endif /* MPI_NO_REMOVED_NAMES */
";

/// Name, parameters and replacement of each function (MPI 3.0, section 16.1).
const FUNCTIONS: [(&str, &str, &str); 10] = [
    ("MPI_Address", "void *location, MPI_Aint *address", "MPI_Get_address"),
    (
        "MPI_Errhandler_create",
        "MPI_Comm_errhandler_function *function, MPI_Errhandler *errhandler",
        "MPI_Comm_create_errhandler",
    ),
    ("MPI_Errhandler_get", "MPI_Comm comm, MPI_Errhandler *errhandler", "MPI_Comm_get_errhandler"),
    ("MPI_Errhandler_set", "MPI_Comm comm, MPI_Errhandler errhandler", "MPI_Comm_set_errhandler"),
    ("MPI_Type_extent", "MPI_Datatype datatype, MPI_Aint *extent", "MPI_Type_get_extent"),
    (
        "MPI_Type_hindexed",
        "int count, int blocklengths[], MPI_Aint displacements[], \
         MPI_Datatype oldtype,\n     MPI_Datatype *newtype",
        "MPI_Type_create_hindexed",
    ),
    (
        "MPI_Type_hvector",
        "int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype,\n     \
         MPI_Datatype *newtype",
        "MPI_Type_create_hvector",
    ),
    ("MPI_Type_lb", "MPI_Datatype datatype, MPI_Aint *displacement", "MPI_Type_get_extent"),
    (
        "MPI_Type_struct",
        "int count, int blocklengths[], MPI_Aint displacements[], \
         MPI_Datatype types[],\n     MPI_Datatype *newtype",
        "MPI_Type_create_struct",
    ),
    ("MPI_Type_ub", "MPI_Datatype datatype, MPI_Aint *displacement", "MPI_Type_get_extent"),
];

/// Declaration and replacement of each type and constant.
const NAMES: [(&str, &str); 6] = [
    (
        "typedef void MPI_Handler_function(MPI_Comm *comm, int *error_code, ...)",
        "MPI_Comm_errhandler_function",
    ),
    ("extern MPI_Datatype MPI_LB", "MPI_Type_create_resized"),
    ("extern MPI_Datatype MPI_UB", "MPI_Type_create_resized"),
    ("extern int MPI_COMBINER_HINDEXED_INTEGER", "MPI_COMBINER_HINDEXED"),
    ("extern int MPI_COMBINER_HVECTOR_INTEGER", "MPI_COMBINER_HVECTOR"),
    ("extern int MPI_COMBINER_STRUCT_INTEGER", "MPI_COMBINER_STRUCT"),
];

/// The part of `mpi.h` that declares them. They are not macros: a program can define macros of these names.
pub(crate) fn emit_removed(out: &mut String) {
    out.push_str(HEAD);
    for (name, params, instead) in FUNCTIONS {
        _ = writeln!(out, "MPI_ABI_REMOVED({name}, \"{instead}\",\n    ({params}));");
    }
    for (declaration, instead) in NAMES {
        _ = writeln!(out, "{declaration}\n    MPI_ABI_REMOVED_NAME(\"{instead}\");");
    }
    out.push_str(TAIL);
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::model::Table;

    #[test]
    fn removed_names__are_not_in_the_table_and_their_replacements_are() {
        let table = Table::builtin().unwrap();
        let is_known = |name: &str| {
            table.function(name).is_some()
                || table.constants.iter().any(|c| c.name == name)
                || table.callbacks.iter().any(|c| c.name == name)
        };
        for (name, _, instead) in FUNCTIONS {
            assert!(!is_known(name), "{name}");
            assert!(is_known(instead), "{instead}");
        }
        for (declaration, instead) in NAMES {
            assert!(is_known(instead), "{declaration}: {instead}");
        }
    }
}
