//! Hints of windows (MPI 5.0, section 12.2.1).

use super::window::{Flavor, Window};
use crate::objects::info::{Info, memory_kinds};

/// Hint key: the parts of a shared window need not be contiguous.
pub const NONCONTIG: &str = "alloc_shared_noncontig";
/// Hint key: the program locks no rank of the window.
pub const NO_LOCKS: &str = "no_locks";
const ORDERING: &str = "accumulate_ordering";
const OPS: &str = "accumulate_ops";
const GRANULARITY: &str = "mpi_accumulate_granularity";

/// Default keys and values. Accumulates are always ordered and atomic for every operation and size. So hints about
/// accumulates change only the values that `MPI_Win_get_info` returns.
const DEFAULTS: [(&str, &str); 7] = [
    (NO_LOCKS, "false"),
    (ORDERING, "rar,raw,war,waw"),
    (OPS, "same_op_no_op"),
    (GRANULARITY, "0"),
    ("same_size", "false"),
    ("same_disp_unit", "false"),
    (NONCONTIG, "false"),
];

fn is_understood(key: &str, value: &str) -> bool {
    match key {
        ORDERING => {
            let known = |part: &str| matches!(part, "none" | "rar" | "raw" | "war" | "waw");
            value.split(',').all(|part| known(part.trim()))
        }
        OPS => matches!(value, "same_op" | "same_op_no_op"),
        GRANULARITY => value.parse::<u64>().is_ok(),
        _ => matches!(value, "true" | "false"),
    }
}

/// Selects the hints that this library knows and whose values it understands.
pub fn select(given: Vec<(String, String)>) -> Vec<(String, String)> {
    let known = |(key, value): &(String, String)| {
        DEFAULTS.iter().any(|(name, _)| name == key) && is_understood(key, value)
    };
    given.into_iter().filter(known).collect()
}

/// Returns whether the hint `key` has the value `true`.
pub fn says(given: &[(String, String)], key: &str) -> bool {
    given.iter().any(|(name, value)| name == key && value == "true")
}

/// Applies hints that may change during the life of the window: all but the hint about the window's allocation.
pub fn change(window: &Window, given: Vec<(String, String)>) {
    let given = select(given).into_iter().filter(|(key, _)| key != NONCONTIG);
    crate::objects::comm::hints::merge(&mut window.hints.borrow_mut(), given.collect());
}

/// Returns the hints in use with their values, for `MPI_Win_get_info`.
pub fn describe(window: &Window) -> Info {
    let hints = window.hints.borrow();
    let value = |(key, default): (&'static str, &'static str)| {
        let found = hints.iter().find(|(name, _)| name == key);
        (key, found.map_or(default, |(_, value)| value.as_str()))
    };
    let shared = window.flavor == Flavor::Shared;
    let used = DEFAULTS.into_iter().filter(|&(key, _)| key != NONCONTIG || shared);
    Info::from_pairs(used.map(value).chain([("mpi_memory_alloc_kinds", memory_kinds())]))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn select__keeps_what_it_understands() {
        let given = [
            (NO_LOCKS, "true"),
            (ORDERING, "rar, waw"),
            (ORDERING, "first"),
            (OPS, "any"),
            (GRANULARITY, "8"),
            (GRANULARITY, "-8"),
            ("same_size", "yes"),
            ("other", "true"),
        ];
        let own = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        let kept = select(given.into_iter().map(own).collect());
        let expected = [(NO_LOCKS, "true"), (ORDERING, "rar, waw"), (GRANULARITY, "8")];
        assert_eq!(kept, expected.map(own));
        assert!(says(&kept, NO_LOCKS) && !says(&kept, NONCONTIG));
    }
}
