//! The constants of the C table that Fortran has.

use crate::model::{CTypeKind, Constant, Table};

/// A constant as Fortran sees it.
pub(super) struct FortranConstant<'a> {
    pub name: &'a str,
    pub section: &'a str,
    pub kind: ConstantKind<'a>,
    pub value: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstantKind<'a> {
    /// INTEGER
    Integer,
    /// INTEGER(KIND=MPI_OFFSET_KIND)
    Offset,
    /// Handle of this type; INTEGER in `mpif.h` and module `mpi`.
    Handle(&'a str),
}

/// Integers that only Fortran has: the size of a status and the positions of its public parts (MPI 5.0, section 20.4).
pub(super) const STATUS_CONSTANTS: [(&str, i64); 4] =
    [("MPI_STATUS_SIZE", 8), ("MPI_SOURCE", 1), ("MPI_TAG", 2), ("MPI_ERROR", 3)];

/// Returns the integers and handles of Fortran in table order. Constants of the tools interface, except its error
/// codes, and of the C form of a Fortran status are in C only.
pub(super) fn constants(table: &Table) -> Vec<FortranConstant<'_>> {
    table.constants.iter().filter_map(|constant| fortran_constant(table, constant)).collect()
}

fn fortran_constant<'a>(table: &Table, constant: &'a Constant) -> Option<FortranConstant<'a>> {
    if constant.ctype.stars > 0
        || constant.name.starts_with("MPI_T_") && !constant.name.starts_with("MPI_T_ERR_")
        || constant.name.starts_with("MPI_F_")
    {
        return None;
    }
    let base = constant.ctype.base.as_str();
    let kind = match table.kind(base)? {
        CTypeKind::Int => ConstantKind::Integer,
        CTypeKind::Long => ConstantKind::Offset,
        CTypeKind::Handle => ConstantKind::Handle(base),
        _ => return None,
    };
    // A length in C counts the terminating NUL (MPI 5.0, section 19.3.9).
    let terminator = i64::from(constant.section == "string sizes");
    Some(FortranConstant {
        name: &constant.name,
        section: &constant.section,
        kind,
        value: constant.value - terminator,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn constants__have_fortrans_lengths_and_no_tools() {
        let table = Table::builtin().unwrap();
        let all = constants(&table);
        let value = |name: &str| all.iter().find(|c| c.name == name).map(|c| c.value);
        assert_eq!(value("MPI_MAX_ERROR_STRING"), Some(511));
        assert_eq!(value("MPI_BSEND_OVERHEAD"), Some(512));
        assert_eq!(value("MPI_COMM_WORLD"), Some(257));
        assert_eq!(value("MPI_T_SCOPE_ALL"), None);
        assert_eq!(value("MPI_T_ERR_INVALID"), Some(1006));
        assert_eq!(value("MPI_F_SOURCE"), None);
        assert_eq!(value("MPI_BOTTOM"), None);
    }
}
