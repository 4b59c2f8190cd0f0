//! Hints of files (MPI 5.0, section 14.2.8): those of the standard, and the `romio_` ones that programs set.
//!
//! A hint is kept where its value makes sense, and told again by `MPI_File_get_info`; others are ignored. `file_perm`
//! is acted on; accesses are chosen by what they cost, and the hints about them are not needed.

use crate::info::Info;

#[derive(Clone, Copy)]
enum Value {
    /// A number of 1 or more.
    Number,
    /// `true` or `false`.
    Flag,
    /// `enable`, `disable` or `automatic`.
    Switch,
    /// Permissions in octal.
    Mode,
    /// Any text.
    Text,
}

const KNOWN: [(&str, Value); 21] = [
    ("access_style", Value::Text),
    ("collective_buffering", Value::Flag),
    ("cb_block_size", Value::Number),
    ("cb_buffer_size", Value::Number),
    ("cb_nodes", Value::Number),
    ("chunked", Value::Text),
    ("chunked_item", Value::Text),
    ("chunked_size", Value::Text),
    ("file_perm", Value::Mode),
    ("filename", Value::Text),
    ("io_node_list", Value::Text),
    ("nb_proc", Value::Number),
    ("num_io_nodes", Value::Number),
    ("striping_factor", Value::Number),
    ("striping_unit", Value::Number),
    ("romio_cb_read", Value::Switch),
    ("romio_cb_write", Value::Switch),
    ("romio_ds_read", Value::Switch),
    ("romio_ds_write", Value::Switch),
    ("ind_rd_buffer_size", Value::Number),
    ("ind_wr_buffer_size", Value::Number),
];

/// Permissions of a file that is made, where no hint says otherwise.
const DEFAULT_MODE: u32 = 0o666;

/// The hints of a file that are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    pairs: Vec<(String, String)>,
}

impl Hints {
    /// Takes over those of the given hints that make sense.
    pub fn merge(&mut self, given: Vec<(String, String)>) {
        for (key, value) in given {
            let value = value.trim().to_owned();
            let known = KNOWN.iter().find(|(name, _)| *name == key);
            if key == "filename" || !known.is_some_and(|(_, kind)| makes_sense(*kind, &value)) {
                continue;
            }
            match self.pairs.iter_mut().find(|(k, _)| *k == key) {
                Some((_, old)) => *old = value,
                None => self.pairs.push((key, value)),
            }
        }
    }

    /// Permissions of a file that is made.
    pub fn mode(&self) -> u32 {
        let found = self.pairs.iter().find(|(key, _)| key == "file_perm");
        found
            .and_then(|(_, value)| u32::from_str_radix(value, 8).ok())
            .unwrap_or(DEFAULT_MODE)
    }

    /// What `MPI_File_get_info` returns for the file of that name.
    pub fn describe(&self, name: &str) -> Info {
        let mode = format!("{:o}", self.mode());
        let pairs = self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let own = pairs.filter(|(key, _)| *key != "file_perm");
        Info::from_pairs(
            [("filename", name), ("file_perm", &mode)]
                .into_iter()
                .chain(own),
        )
    }
}

fn makes_sense(kind: Value, value: &str) -> bool {
    match kind {
        Value::Number => value.parse::<u64>().is_ok_and(|number| number > 0),
        Value::Flag => matches!(value, "true" | "false"),
        Value::Switch => matches!(value, "enable" | "disable" | "automatic"),
        Value::Mode => u32::from_str_radix(value, 8).is_ok_and(|mode| mode <= 0o777),
        Value::Text => !value.is_empty(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(pairs: &[(&str, &str)]) -> Hints {
        let mut hints = Hints::default();
        hints.merge(pairs.iter().map(|&(k, v)| (k.into(), v.into())).collect());
        hints
    }

    #[test]
    fn hints__keep_what_makes_sense() {
        let hints = merged(&[
            ("cb_nodes", "4"),
            ("cb_nodes", "0"),
            ("romio_ds_write", "perhaps"),
            ("romio_cb_read", " disable "),
            ("file_perm", "640"),
            ("file_perm", "9"),
            ("other", "1"),
        ]);
        assert_eq!(hints.mode(), 0o640);
        let info = hints.describe("f");
        let get = |key: &str| info.get(key.as_bytes()).unwrap().map(|v| v.into_vec());
        assert_eq!(get("cb_nodes").unwrap(), b"4");
        assert_eq!(get("romio_cb_read").unwrap(), b"disable");
        assert_eq!(get("file_perm").unwrap(), b"640");
        assert_eq!(get("filename").unwrap(), b"f");
        assert_eq!((get("romio_ds_write"), get("other")), (None, None));
        assert_eq!(merged(&[]).mode(), 0o666);
    }

    proptest! {
        #[test]
        fn hints__of_any_text_are_taken_or_left(index in 0..KNOWN.len(), value in ".{0,30}") {
            let hints = merged(&[(KNOWN[index].0, &value)]);
            prop_assert!(hints.mode() <= 0o777);
            prop_assert!(hints.describe("name").key_count() >= 2);
        }
    }
}
