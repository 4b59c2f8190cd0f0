//! Hints of files (MPI 5.0, section 14.2.8): those of the standard, and the `romio_` ones that programs set.
//!
//! A hint with a valid value is kept, and returned by `MPI_File_get_info`; others are ignored. Those about permissions,
//! collective buffering, data sieving and stripes are acted on, and returned with the value in use. Hints in the file
//! that `ROMIO_HINTS` names hold for every file that is opened, unless the program gives the same hint.

use crate::objects::info::Info;
use fastpath_base::stored::read_file;
use fastpath_io::{Striping, Switch};
use std::path::Path;

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

const KNOWN: [(&str, Value); 27] = [
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
    ("romio_cb_alltoall", Value::Switch),
    ("romio_cb_ds_threshold", Value::Text),
    ("romio_cb_fr_alignment", Value::Number),
    ("romio_cb_fr_types", Value::Text),
    ("romio_cb_pfr", Value::Switch),
    ("romio_no_indep_rw", Value::Flag),
    ("romio_ds_read", Value::Switch),
    ("romio_ds_write", Value::Switch),
    ("ind_rd_buffer_size", Value::Number),
    ("ind_wr_buffer_size", Value::Number),
];

/// Permissions of a file that is made, where no hint says otherwise.
const DEFAULT_MODE: u32 = 0o666;

/// Bytes of an aggregator's buffer, where no hint says otherwise.
pub(super) const DEFAULT_BUFFER: u64 = 4 << 20;
/// The least and the most of them.
const BUFFERS: std::ops::RangeInclusive<u64> = 4096..=1 << 31;

/// Bytes that domains of aggregators begin at multiples of, where no stripe is known: a page.
const DEFAULT_ALIGN: u64 = 4096;
/// The most of them.
const MOST_ALIGN: u64 = 1 << 40;

/// The hints of a file that are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    pairs: Vec<(String, String)>,
}

impl Hints {
    /// Takes over those of the given hints that make sense; returns the others, as `key=value`.
    pub fn merge(&mut self, given: Vec<(String, String)>) -> Vec<String> {
        let mut ignored = Vec::new();
        for (key, value) in given {
            let value = value.trim().to_owned();
            let known = KNOWN.iter().find(|(name, _)| *name == key);
            // `MPI_File_get_info` returns the name; it comes back with what a program hands on from there.
            if key == "filename" {
                continue;
            }
            if !known.is_some_and(|(_, kind)| makes_sense(*kind, &value)) {
                ignored.push(format!("{key}={value}"));
                continue;
            }
            match self.pairs.iter_mut().find(|(k, _)| *k == key) {
                Some((_, old)) => *old = value,
                None => self.pairs.push((key, value)),
            }
        }
        ignored
    }

    /// Takes over the hints of the file that `ROMIO_HINTS` names, if it is set; returns what is ignored of it.
    pub fn merge_defaults(&mut self) -> Vec<String> {
        let Some(path) = std::env::var_os("ROMIO_HINTS").filter(|path| !path.is_empty()) else {
            return Vec::new();
        };
        let named = format!("ROMIO_HINTS={}", path.display());
        match read_file(Path::new(&path)) {
            Ok(text) => {
                let (pairs, mut ignored) = parse_defaults(&text);
                ignored.extend(self.merge(pairs));
                ignored.into_iter().map(|hint| format!("{hint} ({named})")).collect()
            }
            Err(e) => vec![format!("{named}: {e}")],
        }
    }

    /// Permissions of a file that is made.
    pub fn mode(&self) -> u32 {
        self.text("file_perm")
            .and_then(|value| u32::from_str_radix(value, 8).ok())
            .unwrap_or(DEFAULT_MODE)
    }

    fn text(&self, key: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    fn switch(&self, key: &str) -> Option<Switch> {
        match self.text(key)? {
            "enable" | "true" => Some(Switch::Enabled),
            "disable" | "false" => Some(Switch::Disabled),
            _ => Some(Switch::Automatic),
        }
    }

    /// Whether ranks of a collective access exchange their bytes.
    pub fn exchange(&self, writes: bool) -> Switch {
        let own = match writes {
            true => "romio_cb_write",
            false => "romio_cb_read",
        };
        self.switch(own).or_else(|| self.switch("collective_buffering")).unwrap_or_default()
    }

    /// Whether writes with gaps may read what lies between and write it back.
    pub fn sieve(&self) -> Switch {
        self.switch("romio_ds_write").unwrap_or_default()
    }

    /// What this rank sends the others for [`Hints::sieve`].
    pub fn sieve_word(&self) -> u64 {
        (self.sieve() == Switch::Enabled).into()
    }

    /// Takes back that writes read and write back unless all ranks have said so: all writers are to lock then.
    pub fn agree_on_sieve(&mut self, mut words: impl Iterator<Item = u64>) {
        if self.sieve() == Switch::Enabled && words.any(|word| word == 0) {
            self.merge(vec![("romio_ds_write".to_owned(), "automatic".to_owned())]);
        }
    }

    /// Whether reads with small gaps may read what lies between.
    pub fn reads_between(&self) -> bool {
        self.switch("romio_ds_read") != Some(Switch::Disabled)
    }

    /// Bytes of an aggregator's buffer.
    pub fn buffer(&self) -> u64 {
        self.number("cb_buffer_size")
            .unwrap_or(DEFAULT_BUFFER)
            .clamp(*BUFFERS.start(), *BUFFERS.end())
    }

    /// Ranks that read and write for others, where a hint says how many.
    pub fn aggregators(&self) -> Option<u64> {
        self.number("cb_nodes")
    }

    /// Stripes that a new file is to have, where its file system has any.
    pub fn striping(&self) -> Striping {
        Striping {
            unit: self.number("striping_unit").unwrap_or(0),
            factor: self.number("striping_factor").unwrap_or(0),
        }
    }

    /// Takes over the stripes that the file has, whatever was asked for.
    pub fn set_striping(&mut self, has: Striping) {
        let pair = |name: &str, number: u64| (name.to_owned(), number.to_string());
        self.merge(vec![pair("striping_unit", has.unit), pair("striping_factor", has.factor)]);
    }

    /// What domains of aggregators begin at multiples of, in bytes.
    pub fn align(&self) -> u64 {
        let stripe = self.number("striping_unit");
        stripe.unwrap_or(DEFAULT_ALIGN).min(MOST_ALIGN)
    }

    /// What `MPI_File_get_info` returns for the file of that name, which has `aggregators` aggregators by default.
    pub fn describe(&self, name: &[u8], aggregators: u64) -> Info {
        let told = |switch| match switch {
            Switch::Enabled => "enable",
            Switch::Disabled => "disable",
            Switch::Automatic => "automatic",
        };
        let used = [
            ("file_perm", format!("{:o}", self.mode())),
            ("cb_buffer_size", self.buffer().to_string()),
            ("cb_nodes", self.aggregators().unwrap_or(aggregators).to_string()),
            ("romio_cb_read", told(self.exchange(false)).to_owned()),
            ("romio_cb_write", told(self.exchange(true)).to_owned()),
            ("romio_ds_read", told(self.switch("romio_ds_read").unwrap_or_default()).to_owned()),
            ("romio_ds_write", told(self.sieve()).to_owned()),
        ];
        let pairs = self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let others = pairs.filter(|(key, _)| used.iter().all(|(k, _)| k != key));
        let used = used.iter().map(|(k, v)| (*k, v.as_str()));
        let texts = used.chain(others).map(|(key, value)| (key, value.as_bytes()));
        Info::from_pairs(std::iter::once(("filename", name)).chain(texts))
    }
}

/// The hints of a file with a key and a value on each line, and the lines that are neither that, empty nor a comment.
fn parse_defaults(text: &str) -> (Vec<(String, String)>, Vec<String>) {
    let (mut pairs, mut odd) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            _ if line.starts_with('#') => {}
            [key, value] => pairs.push((key.to_owned(), value.to_owned())),
            _ => odd.push(format!("the line {line:?}")),
        }
    }
    (pairs, odd)
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
        let info = hints.describe(b"f", 2);
        let get = |key: &str| info.get(key.as_bytes()).unwrap().map(|v| v.into_vec());
        assert_eq!(get("cb_nodes").unwrap(), b"4");
        assert_eq!(get("romio_cb_read").unwrap(), b"disable");
        assert_eq!(get("file_perm").unwrap(), b"640");
        assert_eq!(get("filename").unwrap(), b"f");
        assert_eq!(get("romio_ds_write").unwrap(), b"automatic");
        assert_eq!(get("cb_buffer_size").unwrap(), b"4194304");
        assert_eq!(get("other"), None);
        let none = merged(&[]).describe(b"f", 2);
        assert_eq!(none.get(b"cb_nodes").unwrap().unwrap().into_vec(), b"2");
        assert_eq!(merged(&[]).mode(), 0o666);
    }

    #[test]
    fn hints__that_make_no_sense_are_returned() {
        let mut hints = Hints::default();
        let pairs = [("cb_nodes", "x"), ("cb_nodes", "2"), ("odd", "1"), ("filename", "f")];
        let ignored = hints.merge(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(ignored, ["cb_nodes=x", "odd=1"]);
        assert_eq!(hints.aggregators(), Some(2));
    }

    #[test]
    fn defaults__are_lines_of_key_and_value() {
        let (pairs, odd) =
            parse_defaults("# a\n\ncb_nodes 2\n\tromio_ds_read\tdisable \nx\na b c\n");
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(pairs, [pair("cb_nodes", "2"), pair("romio_ds_read", "disable")]);
        assert_eq!(odd, ["the line \"x\"", "the line \"a b c\""]);
    }

    #[test]
    fn hints__of_the_standard_are_all_known() {
        // MPI 5.0, section 14.2.8.
        let reserved = [
            ("access_style", "read_once,sequential"),
            ("collective_buffering", "true"),
            ("cb_block_size", "4096"),
            ("cb_buffer_size", "8192"),
            ("cb_nodes", "3"),
            ("chunked", "10,20"),
            ("chunked_item", "8"),
            ("chunked_size", "5,5"),
            ("file_perm", "600"),
            ("io_node_list", "first,second"),
            ("nb_proc", "4"),
            ("num_io_nodes", "2"),
            ("striping_factor", "5"),
            ("striping_unit", "65536"),
        ];
        let info = merged(&reserved).describe(b"the name", 1);
        let get = |key: &str| info.get(key.as_bytes()).unwrap().map(|v| v.into_vec());
        for (key, value) in reserved {
            assert_eq!(get(key).as_deref(), Some(value.as_bytes()), "{key}");
        }
        // That of the file, whatever was given.
        assert_eq!(merged(&[("filename", "other")]).text("filename"), None);
        assert_eq!(get("filename").unwrap(), b"the name");
        for key in ["cb_block_size", "nb_proc", "num_io_nodes"] {
            assert_eq!(merged(&[(key, "0")]).text(key), None);
        }
    }

    #[test]
    fn hints__sieve_writes_where_all_ranks_say_so() {
        for (value, words, used) in [
            ("enable", [1, 1], Switch::Enabled),
            ("enable", [1, 0], Switch::Automatic),
            ("disable", [0, 1], Switch::Disabled),
            ("automatic", [1, 0], Switch::Automatic),
        ] {
            let mut hints = merged(&[("romio_ds_write", value)]);
            assert_eq!(hints.sieve_word() == 1, value == "enable");
            hints.agree_on_sieve(words.into_iter());
            assert_eq!(hints.sieve(), used);
        }
    }

    #[test]
    fn hints__say_how_ranks_access_together() {
        let hints = merged(&[("collective_buffering", "false"), ("romio_cb_read", "enable")]);
        assert_eq!(hints.exchange(true), Switch::Disabled);
        assert_eq!(hints.exchange(false), Switch::Enabled);
        assert_eq!(merged(&[]).exchange(true), Switch::Automatic);
        assert_eq!(merged(&[("cb_buffer_size", "1")]).buffer(), 4096);
        assert_eq!(merged(&[("striping_unit", "65536")]).align(), 65536);
        let mut striped = merged(&[("striping_factor", "3"), ("striping_unit", "5")]);
        assert_eq!(striped.striping(), Striping { unit: 5, factor: 3 });
        let has = Striping { unit: 1 << 20, factor: 2 };
        striped.set_striping(has);
        assert_eq!((striped.striping(), striped.align()), (has, 1 << 20));
        assert_eq!(merged(&[]).striping(), Striping::default());
        assert!(merged(&[]).reads_between());
        assert!(!merged(&[("romio_ds_read", "disable")]).reads_between());
    }

    proptest! {
        #[test]
        fn hints__of_any_text_are_taken_or_left(index in 0..KNOWN.len(), value in ".{0,30}") {
            let hints = merged(&[(KNOWN[index].0, &value)]);
            prop_assert!(hints.mode() <= 0o777);
            prop_assert!(BUFFERS.contains(&hints.buffer()) && hints.align() >= 1);
            prop_assert!(hints.describe(b"name", 1).key_count() >= 2);
        }
    }
}
