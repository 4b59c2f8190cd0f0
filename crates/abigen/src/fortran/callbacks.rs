//! Callbacks: their interfaces, and the predefined ones (MPI 5.0, appendix A.1.3).

use super::interface::IntegerKind;
use super::procedure::{Dummy, Method, Procedure, handle, integer};

/// Callbacks: name in module `mpi_f08`, and arguments with the words of [`argument`].
const CALLBACKS: [(&str, &str); 20] = [
    ("MPI_User_function", "invec:buffer inoutvec:buffer len:int datatype:MPI_Datatype"),
    ("MPI_User_function_c", "invec:buffer inoutvec:buffer len:count datatype:MPI_Datatype"),
    (
        "MPI_Comm_copy_attr_function",
        "oldcomm:MPI_Comm comm_keyval:int extra_state:address attribute_val_in:address \
         attribute_val_out:address flag:logical ierror:int",
    ),
    (
        "MPI_Comm_delete_attr_function",
        "comm:MPI_Comm comm_keyval:int attribute_val:address extra_state:address ierror:int",
    ),
    (
        "MPI_Type_copy_attr_function",
        "oldtype:MPI_Datatype type_keyval:int extra_state:address attribute_val_in:address \
         attribute_val_out:address flag:logical ierror:int",
    ),
    (
        "MPI_Type_delete_attr_function",
        "datatype:MPI_Datatype type_keyval:int attribute_val:address extra_state:address \
         ierror:int",
    ),
    (
        "MPI_Win_copy_attr_function",
        "oldwin:MPI_Win win_keyval:int extra_state:address attribute_val_in:address \
         attribute_val_out:address flag:logical ierror:int",
    ),
    (
        "MPI_Win_delete_attr_function",
        "win:MPI_Win win_keyval:int attribute_val:address extra_state:address ierror:int",
    ),
    ("MPI_Comm_errhandler_function", "comm:MPI_Comm error_code:int"),
    ("MPI_File_errhandler_function", "file:MPI_File error_code:int"),
    ("MPI_Session_errhandler_function", "session:MPI_Session error_code:int"),
    ("MPI_Win_errhandler_function", "win:MPI_Win error_code:int"),
    ("MPI_Grequest_query_function", "extra_state:address status:status ierror:int"),
    ("MPI_Grequest_free_function", "extra_state:address ierror:int"),
    ("MPI_Grequest_cancel_function", "extra_state:address complete:logical ierror:int"),
    (
        "MPI_Datarep_extent_function",
        "datatype:MPI_Datatype extent:address extra_state:address ierror:int",
    ),
    (
        "MPI_Datarep_conversion_function",
        "userbuf:buffer datatype:MPI_Datatype count:int filebuf:buffer position:offset \
         extra_state:address ierror:int",
    ),
    (
        "MPI_Datarep_conversion_function_c",
        "userbuf:buffer datatype:MPI_Datatype count:count filebuf:buffer position:offset \
         extra_state:address ierror:int",
    ),
    (
        "MPI_Copy_function",
        "oldcomm:MPI_Comm keyval:int extra_state:int attribute_val_in:int attribute_val_out:int \
         flag:logical ierr:int",
    ),
    ("MPI_Delete_function", "comm:MPI_Comm keyval:int attribute_val:int extra_state:int ierr:int"),
];

/// Predefined callbacks and their types.
pub(super) const PREDEFINED: [(&str, &str); 14] = [
    ("MPI_COMM_NULL_COPY_FN", "MPI_Comm_copy_attr_function"),
    ("MPI_COMM_DUP_FN", "MPI_Comm_copy_attr_function"),
    ("MPI_COMM_NULL_DELETE_FN", "MPI_Comm_delete_attr_function"),
    ("MPI_TYPE_NULL_COPY_FN", "MPI_Type_copy_attr_function"),
    ("MPI_TYPE_DUP_FN", "MPI_Type_copy_attr_function"),
    ("MPI_TYPE_NULL_DELETE_FN", "MPI_Type_delete_attr_function"),
    ("MPI_WIN_NULL_COPY_FN", "MPI_Win_copy_attr_function"),
    ("MPI_WIN_DUP_FN", "MPI_Win_copy_attr_function"),
    ("MPI_WIN_NULL_DELETE_FN", "MPI_Win_delete_attr_function"),
    ("MPI_CONVERSION_FN_NULL", "MPI_Datarep_conversion_function"),
    ("MPI_CONVERSION_FN_NULL_C", "MPI_Datarep_conversion_function_c"),
    ("MPI_NULL_COPY_FN", "MPI_Copy_function"),
    ("MPI_DUP_FN", "MPI_Copy_function"),
    ("MPI_NULL_DELETE_FN", "MPI_Delete_function"),
];

/// Interfaces of all callbacks of `mpi_f08`, with the names of the types.
pub(super) fn callback_interfaces() -> Vec<Procedure> {
    CALLBACKS.iter().map(|(name, arguments)| procedure(name, arguments, Method::F08)).collect()
}

/// Interfaces of the predefined callbacks of `method`. Both modules name the same symbols.
pub(super) fn predefined_callbacks(method: Method) -> Vec<Procedure> {
    let find = |name: &str| CALLBACKS.iter().find(|callback| callback.0 == name);
    PREDEFINED.iter().filter_map(|(name, of)| Some(procedure(name, find(of)?.1, method))).collect()
}

fn procedure(name: &str, arguments: &str, method: Method) -> Procedure {
    let dummies = arguments.split_whitespace().map(|text| {
        let (name, of) = text.split_once(':').unwrap_or((text, "int"));
        argument(name, of, method)
    });
    Procedure { dummies: dummies.collect(), ..Procedure::new(name) }
}

fn argument(name: &str, of: &str, method: Method) -> Dummy {
    let kind = match of {
        "int" => integer(IntegerKind::Default),
        "count" => integer(IntegerKind::Count),
        "offset" => integer(IntegerKind::Offset),
        "address" => integer(IntegerKind::Address),
        "logical" => "logical".into(),
        "buffer" if method == Method::F90 => return Dummy::unchecked(name),
        "buffer" => "type(C_PTR), value".into(),
        "status" if method == Method::F90 => {
            return Dummy { extent: Some("MPI_STATUS_SIZE".into()), ..Dummy::new(name, "integer") };
        }
        "status" => "type(MPI_Status)".into(),
        of => handle(of, method),
    };
    Dummy::new(name, &kind)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::Table;

    #[test]
    fn callbacks__are_those_of_the_c_table() {
        let table = Table::builtin().unwrap();
        let all = CALLBACKS.iter();
        let mut names: Vec<&str> = all.map(|(name, _)| *name).collect();
        names.sort_unstable();
        let mut expected: Vec<&str> = table.callbacks.iter().map(|c| c.name.as_str()).collect();
        expected.retain(|name| !name.starts_with("MPI_T_"));
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn predefined_callbacks__are_those_of_the_c_table() {
        let table = Table::builtin().unwrap();
        for (name, of) in PREDEFINED {
            let constant = table.constants.iter().find(|c| c.name == name).unwrap();
            assert_eq!(constant.ctype.base, of, "{name}");
        }
        let section = table.constants.iter().filter(|c| c.section == "predefined callbacks");
        assert_eq!(section.count(), PREDEFINED.len());
        assert_eq!(predefined_callbacks(Method::F90).len(), 14);
        assert_eq!(predefined_callbacks(Method::F08).len(), 14);
    }
}
