//! Hints of communicators (MPI-5.0 section 7.4.4).

use crate::objects::info::{Info, memory_kinds};

/// Assertions of the program about its use of a communicator, false by default.
const ASSERTIONS: [&str; 4] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
];

/// Key of the type of hardware that the members of a communicator share. Only `MPI_Comm_split_type` sets it.
pub const RESOURCE_TYPE: &str = "mpi_hw_resource_type";

/// Selects the hints that this library supports and whose value is valid.
pub fn select(hints: Vec<(String, String)>) -> Vec<(String, String)> {
    let known = |(key, value): &(String, String)| {
        ASSERTIONS.contains(&key.as_str()) && matches!(value.as_str(), "true" | "false")
    };
    hints.into_iter().filter(known).collect()
}

/// Merges `new` into `old`: replaces values and adds missing hints.
pub fn merge(old: &mut Vec<(String, String)>, new: Vec<(String, String)>) {
    for (key, value) in new {
        match old.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => *v = value,
            None => old.push((key, value)),
        }
    }
}

/// Returns the value of a hint that is in use: the given value, or the default if the hint is not given.
pub fn value<'a>(hints: &'a [(String, String)], key: &str) -> &'a str {
    let found = hints.iter().find(|(k, _)| k == key);
    found.map_or("false", |(_, value)| value)
}

/// Returns all hints in use with their values, for `MPI_Comm_get_info`.
pub fn describe(hints: &[(String, String)]) -> Info {
    let assertions = ASSERTIONS.iter().map(|&key| (key, value(hints, key)));
    let resource = hints.iter().find(|(key, _)| key == RESOURCE_TYPE);
    let resource = resource.map(|(_, value)| (RESOURCE_TYPE, value.as_str()));
    let pairs = assertions.chain([("mpi_memory_alloc_kinds", memory_kinds())]);
    Info::from_pairs(pairs.chain(resource))
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(super) mod tests {
    use super::*;

    pub(in crate::objects::comm) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect()
    }

    #[test]
    fn select__keeps_what_it_understands() {
        let given = pairs(&[
            ("mpi_assert_no_any_tag", "true"),
            ("mpi_assert_no_any_source", "yes"),
            ("other", "true"),
        ]);
        assert_eq!(select(given), pairs(&[("mpi_assert_no_any_tag", "true")]));
    }

    #[test]
    fn describe__has_defaults_and_changes() {
        let mut hints = pairs(&[("mpi_assert_no_any_tag", "true")]);
        merge(
            &mut hints,
            pairs(&[("mpi_assert_no_any_tag", "false"), ("mpi_assert_exact_length", "true")]),
        );
        let info = describe(&hints);
        assert_eq!(info.key_count(), 5);
        let get = |key: &str| info.get(key.as_bytes()).unwrap().unwrap().into_vec();
        assert_eq!(get("mpi_assert_no_any_tag"), b"false");
        assert_eq!(get("mpi_assert_exact_length"), b"true");
        assert_eq!(get("mpi_assert_allow_overtaking"), b"false");
    }
}
