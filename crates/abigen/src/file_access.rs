//! Calls that read and write files: what their names say, and which body serves them.
//!
//! A body with `Access` as its second parameter serves every call of its kind: `file_read` those that block,
//! `file_iread` those with a request, `file_read_all_begin` the first half of a split collective one. A body with
//! `Which` there serves the second half.

use crate::model::Function;

/// The name of the body that serves a call like this, by the name that its own body would have.
pub fn body_name(own: &str) -> Option<&'static str> {
    let call = own.strip_prefix("file_")?;
    let (blocks, call) = match call.strip_prefix('i') {
        Some(call) => (false, call),
        None => (true, call),
    };
    if !call.starts_with("read") && !call.starts_with("write") {
        return None;
    }
    Some(match call {
        _ if !blocks => "file_iread",
        _ if call.ends_with("_begin") => "file_read_all_begin",
        _ if call.ends_with("_end") => "file_read_all_end",
        _ => "file_read",
    })
}

/// The argument that says which access a function makes; `count` is what the body gets for its count.
pub fn argument(function: &Function, count: &str) -> String {
    let name = &*function.name;
    let writes = name.contains("write");
    if name.ends_with("_end") {
        let kind = match name {
            _ if name.contains("_at_all") => "AtAll",
            _ if name.contains("_ordered") => "Ordered",
            _ => "All",
        };
        return format!("entry::Which::{}{kind}", if writes { "Write" } else { "Read" });
    }
    let place = match name {
        _ if name.contains("_at") => "At(r#offset)",
        _ if name.contains("_shared") => "Shared",
        _ if name.contains("_ordered") => "Ordered",
        _ => "Individual",
    };
    let collective = name.contains("_all") || name.contains("_ordered");
    format!(
        "entry::Access {{ writes: {writes}, place: entry::FilePlace::{place}, \
         collective: {collective}, buf: r#buf as *mut u8, count: {count}, datatype: r#datatype }}"
    )
}

/// Whether a parameter is part of that argument.
pub fn is_part(name: &str) -> bool {
    ["offset", "buf", "count", "datatype"].contains(&name)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::model::Table;

    #[test]
    fn calls__are_served_by_the_body_of_their_kind() {
        for (own, body) in [
            ("file_read", Some("file_read")),
            ("file_write_at_all", Some("file_read")),
            ("file_iwrite_shared", Some("file_iread")),
            ("file_write_ordered_begin", Some("file_read_all_begin")),
            ("file_write_at_all_end", Some("file_read_all_end")),
            ("file_seek", None),
            ("send", None),
        ] {
            assert_eq!(body_name(own), body, "{own}");
        }
    }

    #[test]
    fn arguments__follow_from_the_name_of_every_call() {
        let table = Table::builtin().unwrap();
        let of = |name: &str| argument(table.function(name).unwrap(), "n");
        let says = |name: &str, parts: &[&str]| {
            parts.iter().all(|part| of(name).contains(part)) && of(name).contains("count: n,")
        };
        let (individual, shared) = ("FilePlace::Individual", "FilePlace::Shared");
        assert!(says("MPI_File_read", &["writes: false", individual, "collective: false"]));
        assert!(says("MPI_File_iwrite_all_c", &["writes: true", individual, "collective: true"]));
        assert!(says("MPI_File_write_shared", &["writes: true", shared, "collective: false"]));
        assert!(says("MPI_File_read_at", &["FilePlace::At(r#offset)", "collective: false"]));
        assert!(says("MPI_File_iread_at_all", &["FilePlace::At(r#offset)", "collective: true"]));
        assert!(says("MPI_File_read_ordered_begin", &["FilePlace::Ordered", "collective: true"]));
        assert_eq!(of("MPI_File_write_at_all_end"), "entry::Which::WriteAtAll");
        assert_eq!(of("MPI_File_read_all_end"), "entry::Which::ReadAll");
        assert_eq!(of("MPI_File_write_ordered_end"), "entry::Which::WriteOrdered");
    }
}
