//! Conversions to and from Fortran handles, which the standard ABI does not define (MPI 5.0, section 19.3).
//!
//! The conversions are inline functions over `fromint` and `toint`, so they need no symbol outside the ABI.

use crate::model::{Function, Table};
use std::fmt::Write;

const HEAD: &str = "
#ifndef MPI_NO_F2C

#if defined(__GNUC__)
#define MPI_ABI_INLINE static __inline__
#else
#define MPI_ABI_INLINE static inline
#endif

/* Fortran: INTEGER of the default kind, and TYPE(MPI_Status) */
typedef int MPI_Fint;
typedef MPI_Status MPI_F08_status;

/* Variables of a Fortran binding. A library of the C interface alone does not define them. */
extern MPI_Fint *MPI_F_STATUS_IGNORE;
extern MPI_Fint *MPI_F_STATUSES_IGNORE;
extern MPI_F08_status *MPI_F08_STATUS_IGNORE;
extern MPI_F08_status *MPI_F08_STATUSES_IGNORE;
";

const STATUS: &str = "
MPI_ABI_INLINE int @MPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status)
{
    int i;

    if (!c_status || !f_status)
        return MPI_ERR_ARG;
    f_status[MPI_F_SOURCE] = c_status->MPI_SOURCE;
    f_status[MPI_F_TAG] = c_status->MPI_TAG;
    f_status[MPI_F_ERROR] = c_status->MPI_ERROR;
    for (i = 3; i < MPI_F_STATUS_SIZE; i++)
        f_status[i] = c_status->MPI_internal[i - 3];
    return MPI_SUCCESS;
}

MPI_ABI_INLINE int @MPI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status)
{
    int i;

    if (!f_status || !c_status)
        return MPI_ERR_ARG;
    c_status->MPI_SOURCE = f_status[MPI_F_SOURCE];
    c_status->MPI_TAG = f_status[MPI_F_TAG];
    c_status->MPI_ERROR = f_status[MPI_F_ERROR];
    for (i = 3; i < MPI_F_STATUS_SIZE; i++)
        c_status->MPI_internal[i - 3] = f_status[i];
    return MPI_SUCCESS;
}

MPI_ABI_INLINE int @MPI_Status_f082f(const MPI_F08_status *f08_status, MPI_Fint *f_status)
{
    return @MPI_Status_c2f(f08_status, f_status);
}

MPI_ABI_INLINE int @MPI_Status_f2f08(const MPI_Fint *f_status, MPI_F08_status *f08_status)
{
    return @MPI_Status_f2c(f_status, f08_status);
}

MPI_ABI_INLINE int @MPI_Status_c2f08(const MPI_Status *c_status, MPI_F08_status *f08_status)
{
    if (!c_status || !f08_status)
        return MPI_ERR_ARG;
    *f08_status = *c_status;
    return MPI_SUCCESS;
}

MPI_ABI_INLINE int @MPI_Status_f082c(const MPI_F08_status *f08_status, MPI_Status *c_status)
{
    return @MPI_Status_c2f08(f08_status, c_status);
}
";

const TAIL: &str = "
#undef MPI_ABI_INLINE

#endif /* MPI_NO_F2C */
";

pub(crate) fn emit_interop(table: &Table, out: &mut String) {
    out.push_str(HEAD);
    for prefix in ["", "P"] {
        _ = writeln!(out, "\n/* {prefix}MPI: Fortran handles and statuses */");
        for function in &table.functions {
            emit_conversion(function, prefix, out);
        }
        out.push_str(&STATUS.replace('@', prefix));
    }
    out.push_str(TAIL);
}

/// Generates `MPI_Comm_f2c` for `MPI_Comm_fromint`, `MPI_Comm_c2f` for `MPI_Comm_toint`; nothing for other functions.
fn emit_conversion(function: &Function, prefix: &str, out: &mut String) {
    let name = &function.name;
    let [param] = &function.params[..] else {
        return;
    };
    let handle = &param.name;
    if let Some(stem) = name.strip_suffix("_fromint") {
        let ret = function.ret.c_prefix();
        let head = format!("MPI_ABI_INLINE {ret}{prefix}{stem}_f2c(MPI_Fint {handle})");
        _ = writeln!(out, "{head} {{ return {prefix}{name}({handle}); }}");
    } else if let Some(stem) = name.strip_suffix("_toint") {
        let decl = param.c_decl();
        let head = format!("MPI_ABI_INLINE MPI_Fint {prefix}{stem}_c2f({decl})");
        _ = writeln!(out, "{head} {{ return {prefix}{name}({handle}); }}");
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn conversions__exist_for_each_handle_under_both_names() {
        let table = Table::builtin().unwrap();
        let mut text = String::new();
        emit_interop(&table, &mut text);
        // Fortran has no handles of the tool interface.
        for handle in table.handles.iter().filter(|h| !h.starts_with("MPI_T_")) {
            let stem = match handle.as_str() {
                "MPI_Datatype" => "MPI_Type",
                other => other,
            };
            for prefix in ["", "P"] {
                let from = format!("{handle} {prefix}{stem}_f2c(MPI_Fint ");
                assert_eq!(text.matches(&from).count(), 1, "{from}");
                let to = format!("MPI_Fint {prefix}{stem}_c2f({handle} ");
                assert_eq!(text.matches(&to).count(), 1, "{to}");
            }
        }
    }

    #[test]
    fn conversions__call_nothing_outside_the_abi() {
        let table = Table::builtin().unwrap();
        let mut text = String::new();
        emit_interop(&table, &mut text);
        let symbols = table.symbols();
        for call in text.split("return ").skip(1) {
            let called = call.split(['(', ';']).next().unwrap_or_default();
            let known = symbols.iter().any(|symbol| symbol == called)
                || called.contains("MPI_Status_")
                || ["MPI_SUCCESS", "MPI_ERR_ARG"].contains(&called);
            assert!(known, "{called}");
        }
    }
}
