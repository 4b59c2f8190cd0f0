//! Hints of files (MPI 5.0, section 14.2.8): those of the standard, and the `romio_` hints that programs use.
//!
//! A hint with a valid value is stored, and `MPI_File_get_info` returns it. Other hints are ignored. Hints about
//! permissions, collective buffering, data sieving and stripes take effect, and are returned with the value in use.
//! Hints in the file named by `ROMIO_HINTS` apply to every file, unless the program gives them.

use crate::objects::info::Info;
use fastpath_base::stored::read_file;
use fastpath_io::{Striping, Switch};
use std::path::Path;

#[derive(Clone, Copy)]
enum HintValue {
    /// A number of 1 or more.
    Number,
    /// `true` or `false`.
    Flag,
    /// `enable`, `disable` or `automatic`.
    Switch,
    /// Permissions in octal.
    Mode,
    Text,
}

const KNOWN: [(&str, HintValue); 27] = [
    ("access_style", HintValue::Text),
    ("collective_buffering", HintValue::Flag),
    ("cb_block_size", HintValue::Number),
    ("cb_buffer_size", HintValue::Number),
    ("cb_nodes", HintValue::Number),
    ("chunked", HintValue::Text),
    ("chunked_item", HintValue::Text),
    ("chunked_size", HintValue::Text),
    ("file_perm", HintValue::Mode),
    ("filename", HintValue::Text),
    ("io_node_list", HintValue::Text),
    ("nb_proc", HintValue::Number),
    ("num_io_nodes", HintValue::Number),
    ("striping_factor", HintValue::Number),
    ("striping_unit", HintValue::Number),
    ("romio_cb_read", HintValue::Switch),
    ("romio_cb_write", HintValue::Switch),
    ("romio_cb_alltoall", HintValue::Switch),
    ("romio_cb_ds_threshold", HintValue::Text),
    ("romio_cb_fr_alignment", HintValue::Number),
    ("romio_cb_fr_types", HintValue::Text),
    ("romio_cb_pfr", HintValue::Switch),
    ("romio_no_indep_rw", HintValue::Flag),
    ("romio_ds_read", HintValue::Switch),
    ("romio_ds_write", HintValue::Switch),
    ("ind_rd_buffer_size", HintValue::Number),
    ("ind_wr_buffer_size", HintValue::Number),
];

const DEFAULT_MODE: u32 = 0o666;

pub(super) const DEFAULT_BUFFER: u64 = 4 << 20;
/// Permitted sizes of an aggregator's buffer, in bytes.
const BUFFERS: std::ops::RangeInclusive<u64> = 4096..=1 << 31;

/// Alignment of aggregator domains in bytes if the stripe size is unknown: one page.
const DEFAULT_ALIGN: u64 = 4096;
const MOST_ALIGN: u64 = 1 << 40;

/// Hints of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    pairs: Vec<(String, String)>,
}

impl Hints {
    /// Merges the valid hints. Returns the ignored hints as `key=value`.
    pub fn merge(&mut self, given: Vec<(String, String)>) -> Vec<String> {
        let mut ignored = Vec::new();
        for (key, value) in given {
            let value = value.trim().to_owned();
            let known = KNOWN.iter().find(|(name, _)| *name == key);
            // Programs may pass back the file name that `MPI_File_get_info` returned.
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

    /// Merges the hints of the file that `ROMIO_HINTS` names, if set. Returns the ignored hints.
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

    /// Returns the permissions for a file that is created.
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

    /// Returns the value of the hint that controls two-phase access, for writes or for reads.
    pub fn exchange(&self, writes: bool) -> Switch {
        let own = match writes {
            true => "romio_cb_write",
            false => "romio_cb_read",
        };
        self.switch(own).or_else(|| self.switch("collective_buffering")).unwrap_or_default()
    }

    /// Returns the value of the hint that controls data sieving for writes.
    pub fn sieve(&self) -> Switch {
        self.switch("romio_ds_write").unwrap_or_default()
    }

    /// Returns this rank's word for [`Hints::agree_on_sieve`]: 1 if data sieving for writes is enabled.
    pub fn sieve_word(&self) -> u64 {
        (self.sieve() == Switch::Enabled).into()
    }

    /// Disables data sieving for writes unless all ranks enable it: with sieving, all writers must lock.
    pub fn agree_on_sieve(&mut self, mut words: impl Iterator<Item = u64>) {
        if self.sieve() == Switch::Enabled && words.any(|word| word == 0) {
            self.merge(vec![("romio_ds_write".to_owned(), "automatic".to_owned())]);
        }
    }

    /// Returns whether reads may also read the small gaps between their pieces.
    pub fn reads_between(&self) -> bool {
        self.switch("romio_ds_read") != Some(Switch::Disabled)
    }

    /// Returns the size of an aggregator's buffer, in bytes.
    pub fn buffer(&self) -> u64 {
        self.number("cb_buffer_size")
            .unwrap_or(DEFAULT_BUFFER)
            .clamp(*BUFFERS.start(), *BUFFERS.end())
    }

    /// Returns the number of aggregators, if a hint sets it.
    pub fn aggregators(&self) -> Option<u64> {
        self.number("cb_nodes")
    }

    /// Returns the requested stripes of a file that is created.
    pub fn striping(&self) -> Striping {
        Striping {
            unit: self.number("striping_unit").unwrap_or(0),
            factor: self.number("striping_factor").unwrap_or(0),
        }
    }

    /// Stores the actual stripes of the file.
    pub fn set_striping(&mut self, has: Striping) {
        let pair = |name: &str, number: u64| (name.to_owned(), number.to_string());
        self.merge(vec![pair("striping_unit", has.unit), pair("striping_factor", has.factor)]);
    }

    /// Returns the alignment of aggregator domains, in bytes.
    pub fn align(&self) -> u64 {
        let stripe = self.number("striping_unit");
        stripe.unwrap_or(DEFAULT_ALIGN).min(MOST_ALIGN)
    }

    /// Returns the hints for `MPI_File_get_info` of file `name`. `aggregators` is the default number of aggregators.
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

/// Parses a hint file with a key and a value on each line. Also returns the malformed lines; empty lines and comments
/// are not malformed.
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

fn makes_sense(kind: HintValue, value: &str) -> bool {
    match kind {
        HintValue::Number => value.parse::<u64>().is_ok_and(|number| number > 0),
        HintValue::Flag => matches!(value, "true" | "false"),
        HintValue::Switch => matches!(value, "enable" | "disable" | "automatic"),
        HintValue::Mode => u32::from_str_radix(value, 8).is_ok_and(|mode| mode <= 0o777),
        HintValue::Text => !value.is_empty(),
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
        // The file's own name takes precedence over the hint.
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
