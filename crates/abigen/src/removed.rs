//! Names that MPI-3.0 removed (MPI 3.0, section 16.1), as inline functions over their replacements.
//!
//! A program that uses such a name needs no symbol outside the ABI, and its compiler reports the replacement. Only the
//! use of a name without a plain replacement is an error.

use std::fmt::Write;

const HEAD: &str = r#"
/* Names that MPI-3.0 removed. A program may define functions and macros of these names itself:
 * in C an external inline function of GNU C gives way to a later definition, in C++ a template. */
#ifndef MPI_NO_REMOVED_NAMES

#if defined(__GNUC__) && !defined(MPI_NO_DEPRECATION_WARNINGS)
#define MPI_ABI_REMOVED(use) __attribute__((__deprecated__("removed in MPI-3.0: use " use)))
#else
#define MPI_ABI_REMOVED(use)
#endif

#if defined(__cplusplus)
#define MPI_ABI_REMOVED_FUNCTION(use) \
    template <int MPI_abi_removed = 0> MPI_ABI_REMOVED(use) inline
#elif defined(__GNUC__)
#define MPI_ABI_REMOVED_FUNCTION(use) MPI_ABI_REMOVED(use) \
    extern __inline__ __attribute__((__gnu_inline__, __always_inline__))
#else
#define MPI_ABI_REMOVED_FUNCTION(use) static inline
#endif

/* GCC before 6 takes no attributes of enumerators. */
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 6)
#define MPI_ABI_REMOVED_MEMBER(use) MPI_ABI_REMOVED(use)
#else
#define MPI_ABI_REMOVED_MEMBER(use)
#endif

/* No type has one of these: types are made by what replaced it. */
enum {
@COMBINERS@
};

typedef MPI_Comm_errhandler_function MPI_Handler_function
    MPI_ABI_REMOVED("MPI_Comm_errhandler_function");

/* Markers in a list of types have no plain replacement: a use is an error. */
#if defined(__has_attribute)
#if __has_attribute(unavailable)
#define MPI_ABI_REMOVED_MARKER(use) __attribute__((unavailable("removed in MPI-3.0: use " use)))
#endif
#endif
#ifndef MPI_ABI_REMOVED_MARKER
#define MPI_ABI_REMOVED_MARKER(use) MPI_ABI_REMOVED(use)
#endif
extern MPI_Datatype MPI_LB MPI_ABI_REMOVED_MARKER("MPI_Type_create_resized");
extern MPI_Datatype MPI_UB MPI_ABI_REMOVED_MARKER("MPI_Type_create_resized");

#ifdef __cplusplus
extern "C++" {
#endif
"#;

const TAIL: &str = r#"
#ifdef __cplusplus
}
#endif

#undef MPI_ABI_REMOVED
#undef MPI_ABI_REMOVED_FUNCTION
#undef MPI_ABI_REMOVED_MEMBER
#undef MPI_ABI_REMOVED_MARKER

#endif /* MPI_NO_REMOVED_NAMES */
"#;

struct RemovedFunction {
    name: &'static str,
    /// Parameters as in MPI-2.2, without `const`. A program's own definition of the function then has the same type.
    params: &'static str,
    replacement: &'static str,
    /// Body; `@` marks where the profiling interface inserts a `P`.
    body: &'static str,
}

const FUNCTIONS: [RemovedFunction; 10] = [
    RemovedFunction {
        name: "MPI_Address",
        params: "void *location, MPI_Aint *address",
        replacement: "MPI_Get_address",
        body: "return @MPI_Get_address(location, address);",
    },
    RemovedFunction {
        name: "MPI_Errhandler_create",
        params: "MPI_Comm_errhandler_function *function, MPI_Errhandler *errhandler",
        replacement: "MPI_Comm_create_errhandler",
        body: "return @MPI_Comm_create_errhandler(function, errhandler);",
    },
    RemovedFunction {
        name: "MPI_Errhandler_get",
        params: "MPI_Comm comm, MPI_Errhandler *errhandler",
        replacement: "MPI_Comm_get_errhandler",
        body: "return @MPI_Comm_get_errhandler(comm, errhandler);",
    },
    RemovedFunction {
        name: "MPI_Errhandler_set",
        params: "MPI_Comm comm, MPI_Errhandler errhandler",
        replacement: "MPI_Comm_set_errhandler",
        body: "return @MPI_Comm_set_errhandler(comm, errhandler);",
    },
    RemovedFunction {
        name: "MPI_Type_extent",
        params: "MPI_Datatype datatype, MPI_Aint *extent",
        replacement: "MPI_Type_get_extent",
        body: "MPI_Aint lb;\n\n    return @MPI_Type_get_extent(datatype, &lb, extent);",
    },
    RemovedFunction {
        name: "MPI_Type_hindexed",
        params: "int count, int blocklengths[], MPI_Aint displacements[],\n    \
                 MPI_Datatype oldtype, MPI_Datatype *newtype",
        replacement: "MPI_Type_create_hindexed",
        body: "return @MPI_Type_create_hindexed(count, blocklengths, displacements,\n        \
               oldtype, newtype);",
    },
    RemovedFunction {
        name: "MPI_Type_hvector",
        params: "int count, int blocklength, MPI_Aint stride,\n    \
                 MPI_Datatype oldtype, MPI_Datatype *newtype",
        replacement: "MPI_Type_create_hvector",
        body: "return @MPI_Type_create_hvector(count, blocklength, stride, oldtype, newtype);",
    },
    RemovedFunction {
        name: "MPI_Type_lb",
        params: "MPI_Datatype datatype, MPI_Aint *displacement",
        replacement: "MPI_Type_get_extent",
        body: "MPI_Aint extent;\n\n    \
               return @MPI_Type_get_extent(datatype, displacement, &extent);",
    },
    RemovedFunction {
        name: "MPI_Type_struct",
        params: "int count, int blocklengths[], MPI_Aint displacements[],\n    \
                 MPI_Datatype types[], MPI_Datatype *newtype",
        replacement: "MPI_Type_create_struct",
        body: "return @MPI_Type_create_struct(count, blocklengths, displacements,\n        \
               types, newtype);",
    },
    RemovedFunction {
        name: "MPI_Type_ub",
        params: "MPI_Datatype datatype, MPI_Aint *displacement",
        replacement: "MPI_Type_get_extent",
        body: "MPI_Aint lb = 0, extent = 0;\n    \
               int code = @MPI_Type_get_extent(datatype, &lb, &extent);\n\n    \
               *displacement = lb + extent;\n    \
               return code;",
    },
];

/// Combiners that replace the removed combiners of Fortran's constructors. The removed ones have values of their own,
/// so that a `switch` can contain both.
pub(crate) const COMBINERS: [&str; 3] =
    ["MPI_COMBINER_HINDEXED", "MPI_COMBINER_HVECTOR", "MPI_COMBINER_STRUCT"];

/// Generates the part of `mpi.h` with the removed names, as functions: a program can define macros of these names.
pub(crate) fn emit_removed(out: &mut String) {
    let members = COMBINERS.map(|new| {
        format!("    {new}_INTEGER\n        MPI_ABI_REMOVED_MEMBER(\"{new}\") = -{new}")
    });
    out.push_str(&HEAD.replace("@COMBINERS@", &members.join(",\n")));
    for prefix in ["", "P"] {
        for RemovedFunction { name, params, replacement, body } in FUNCTIONS {
            let body = body.replace('@', prefix);
            _ = write!(
                out,
                "\nMPI_ABI_REMOVED_FUNCTION(\"{prefix}{replacement}\")\n\
                 int {prefix}{name}({params})\n{{\n    {body}\n}}\n"
            );
        }
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
        for function in FUNCTIONS {
            assert!(table.function(function.name).is_none(), "{}", function.name);
            assert!(table.function(function.replacement).is_some(), "{}", function.replacement);
            assert!(function.body.contains(&format!("@{}(", function.replacement)));
        }
        let is_constant = |name: &str| table.constants.iter().any(|c| c.name == name);
        for combiner in COMBINERS {
            assert!(is_constant(combiner), "{combiner}");
            assert!(!is_constant(&format!("{combiner}_INTEGER")), "{combiner}");
        }
    }
}
