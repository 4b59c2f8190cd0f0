//! Checks the table's values against the encoding rules of the standard (MPI 5.0, appendix A), which are deliberately
//! repeated here.
#![allow(non_snake_case)]

use fastpath_abigen::Table;
use std::collections::BTreeMap;

/// Type, first value, last value, null handle.
const RANGES: [(&str, i64, i64, &str); 11] = [
    ("MPI_Op", 0x020, 0x03f, "MPI_OP_NULL"),
    ("MPI_Comm", 0x100, 0x107, "MPI_COMM_NULL"),
    ("MPI_Group", 0x108, 0x10f, "MPI_GROUP_NULL"),
    ("MPI_Win", 0x110, 0x117, "MPI_WIN_NULL"),
    ("MPI_File", 0x118, 0x11f, "MPI_FILE_NULL"),
    ("MPI_Session", 0x120, 0x127, "MPI_SESSION_NULL"),
    ("MPI_Message", 0x128, 0x12f, "MPI_MESSAGE_NULL"),
    ("MPI_Info", 0x130, 0x137, "MPI_INFO_NULL"),
    ("MPI_Errhandler", 0x140, 0x147, "MPI_ERRHANDLER_NULL"),
    ("MPI_Request", 0x180, 0x187, "MPI_REQUEST_NULL"),
    ("MPI_Datatype", 0x200, 0x2ff, "MPI_DATATYPE_NULL"),
];

fn values(table: &Table, ctype: &str) -> BTreeMap<String, i64> {
    let of_type =
        |c: &&fastpath_abigen::model::Constant| c.ctype.base == ctype && c.ctype.stars == 0;
    table.constants.iter().filter(of_type).map(|c| (c.name.clone(), c.value)).collect()
}

#[test]
fn predefined_handles__lie_in_the_range_of_their_type() {
    let table = Table::builtin().unwrap();
    for (ctype, first, last, null) in RANGES {
        let values = values(&table, ctype);
        assert_eq!(values[null], first, "{null} is the first of its range");
        for (name, value) in &values {
            assert!((first..=last).contains(value), "{name} = {value:#x}");
        }
    }
}

#[test]
fn predefined_handles__have_one_name_but_for_synonyms() {
    const SYNONYMS: [&str; 3] = ["MPI_LONG_LONG_INT", "MPI_C_COMPLEX", "MPI_C_FLOAT_COMPLEX"];
    let table = Table::builtin().unwrap();
    for (ctype, ..) in RANGES {
        let mut seen = BTreeMap::new();
        for (name, value) in values(&table, ctype) {
            if let Some(other) = seen.insert(value, name.clone()) {
                let known = |n: &str| SYNONYMS.contains(&n);
                assert!(known(&name) || known(&other), "{name} and {other} are {value:#x}");
            }
        }
    }
}

#[test]
fn datatypes_of_fixed_size__carry_the_size_in_their_bits() {
    let table = Table::builtin().unwrap();
    let types = values(&table, "MPI_Datatype");
    let mut checked = 0;
    for (name, value) in &types {
        // The name of a sized type contains its size, in bits for C types and in bytes for Fortran types.
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let Ok(number) = digits.parse::<i64>() else {
            continue;
        };
        if name.starts_with("MPI_2") {
            continue;
        }
        let bytes = if name.ends_with("_T") { number / 8 } else { number };
        assert_eq!(value & 0x40, 0x40, "{name} is marked as of fixed size");
        assert_eq!(1 << ((value >> 3) & 7), bytes, "{name}");
        checked += 1;
    }
    assert!(checked >= 24, "{checked}");
    for (name, bytes) in [("MPI_CHAR", 1), ("MPI_BYTE", 1), ("MPI_SIGNED_CHAR", 1)] {
        assert_eq!(1 << ((types[name] >> 3) & 7), bytes, "{name}");
    }
}

#[test]
fn integer_constants__are_those_that_programs_rely_on() {
    let table = Table::builtin().unwrap();
    let ints = values(&table, "int");
    for (name, value) in [
        ("MPI_SUCCESS", 0),
        ("MPI_ANY_SOURCE", -1),
        ("MPI_ANY_TAG", -2),
        ("MPI_PROC_NULL", -3),
        ("MPI_ROOT", -4),
        ("MPI_UNDEFINED", -32766),
        ("MPI_THREAD_SINGLE", 0),
        ("MPI_THREAD_FUNNELED", 1024),
        ("MPI_THREAD_SERIALIZED", 2048),
        ("MPI_THREAD_MULTIPLE", 4096),
        ("MPI_ERR_LASTCODE", 0x3fff),
        ("MPI_BSEND_OVERHEAD", 512),
        ("MPI_MAX_ERROR_STRING", 512),
    ] {
        assert_eq!(ints[name], value, "{name}");
    }
    let reserved = ints.iter().find(|(_, value)| **value > 16384);
    assert_eq!(reserved, None, "values above 16384 belong to implementations");
}
