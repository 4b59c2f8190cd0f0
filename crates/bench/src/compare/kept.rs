//! Stored turns of a comparison, so that an interrupted comparison continues.
//!
//! The file has one line of JSON for each record: the first identifies the comparison ([`ComparisonIdentity`]), each
//! further one is a turn with its samples. A line that was cut off when the comparison was killed is dropped, and the
//! turn repeated.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use fastpath_report::record::Run;
use fastpath_report::surroundings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rounds::{RunPlan, RunResult, RunTurn};
use crate::peers::ComparedMpi;

/// Name and version of the format, stored in every file.
const SCHEMA: &str = "fastpath.compare.kept 2";

/// Properties that must be equal for turns to belong to one comparison, by display name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonIdentity(BTreeMap<String, Value>);

impl ComparisonIdentity {
    /// Identity of a comparison; this MPI is the first of `mpis`.
    pub fn new<'a>(
        plans: &[RunPlan], mpis: impl Iterator<Item = &'a ComparedMpi>,
    ) -> ComparisonIdentity {
        let mpis: Vec<&ComparedMpi> = mpis.collect();
        let library = mpis.first().map_or(0, |ours| hash_library(&ours.mpicc));
        let mpis: Vec<String> = mpis.iter().map(|peer| format!("{peer:?}")).collect();
        let parts = [
            ("form", json!(SCHEMA)),
            ("commit of the tool", json!(surroundings::name_tool())),
            ("library", json!(library)),
            ("machine", json!(surroundings::describe_run().machine)),
            ("tests, sizes, ranks or timing", json!(plans)),
            ("MPIs", json!(mpis)),
        ];
        let parts = parts.map(|(name, value)| (name.to_owned(), value));
        ComparisonIdentity(parts.into_iter().collect())
    }

    /// Returns the first property that differs; None if all are equal.
    fn find_difference(&self, other: &ComparisonIdentity) -> Option<&str> {
        let mut parts = self.0.iter();
        let (what, _) = parts.find(|(name, value)| other.0.get(*name) != Some(value))?;
        Some(what)
    }
}

/// Hash of the library that is installed beside a compiler wrapper; 0 if there is none.
pub(super) fn hash_library(mpicc: &Path) -> u64 {
    let Some(prefix) = mpicc.parent().and_then(Path::parent) else {
        return 0;
    };
    let Ok(contents) = std::fs::read(prefix.join("lib/libmpi_abi.so.1")) else {
        return 0;
    };
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

/// Key of a turn: round, peer, number of the plan.
type TurnKey = (u32, usize, usize);

fn place_of(turn: &RunTurn<'_>) -> TurnKey {
    (turn.round, turn.peer, turn.number)
}

/// File of stored turns, with its contents when it was opened.
#[derive(Debug)]
pub struct StoredTurns {
    path: PathBuf,
    file: File,
    /// Results of this MPI and of the peer.
    pub turns: HashMap<TurnKey, [RunResult; 2]>,
    /// Start of the first turn, in seconds since 1970.
    pub started_unix_s: u64,
    /// Reason for which results of an earlier comparison were dropped; None if none were.
    pub dropped: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredHead {
    started_unix_s: u64,
    identity: ComparisonIdentity,
}

impl StoredTurns {
    /// Opens the file. Turns of an equal comparison are kept, other turns are dropped.
    ///
    /// # Errors
    /// The file cannot be read or written, or has other content.
    pub fn open(path: &Path, identity: &ComparisonIdentity, run: &Run) -> Result<StoredTurns> {
        let failed = || path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).with_context(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(failed)?;
        let mut kept = StoredTurns {
            path: path.to_owned(),
            file,
            turns: HashMap::new(),
            started_unix_s: run.started_unix_s,
            dropped: None,
        };
        let valid = kept.take_over(&text, identity)?;
        kept.set_length(valid as u64).with_context(failed)?;
        if valid == 0 {
            let head =
                StoredHead { started_unix_s: run.started_unix_s, identity: identity.clone() };
            kept.append(&head).with_context(failed)?;
        }
        Ok(kept)
    }

    /// Parses the stored turns. Returns the number of valid bytes of the text.
    fn take_over(&mut self, text: &str, identity: &ComparisonIdentity) -> Result<usize> {
        let mut lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let Some(first) = lines.next() else {
            // The file is empty, or the writer was killed within the first line.
            let mine = text.is_empty() || text.starts_with("{\"started_unix_s\":");
            return match mine {
                true => Ok(0),
                false => Err(self.refuse()),
            };
        };
        let head: StoredHead = serde_json::from_str(first).map_err(|_| self.refuse())?;
        if let Some(what) = identity.find_difference(&head.identity) {
            self.dropped = Some(format!(
                "{}: the file contains another comparison ({what} changed), which is overwritten",
                self.path.display()
            ));
            return Ok(0);
        }
        self.started_unix_s = head.started_unix_s;
        let mut valid = first.len();
        for text in lines {
            let Ok((place, pair)) = serde_json::from_str(text) else {
                break;
            };
            self.turns.insert(place, pair);
            valid += text.len();
        }
        Ok(valid)
    }

    fn refuse(&self) -> Error {
        let path = self.path.display();
        anyhow!("{path} was not written by --keep; pass another file")
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length)).map(|_| ())
    }

    fn append(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }

    /// Returns the result of a turn, if it is stored.
    pub fn find(&self, turn: &RunTurn<'_>) -> Option<[RunResult; 2]> {
        self.turns.get(&place_of(turn)).cloned()
    }

    /// Stores a turn.
    ///
    /// # Errors
    /// It cannot be written, for instance because the disk is full.
    pub fn add(&mut self, turn: &RunTurn<'_>, pair: &[RunResult; 2]) -> Result<()> {
        let path = self.path.display().to_string();
        self.append(&(place_of(turn), pair)).context(path)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::program::Settings;
    use fastpath_report::testing::samples::make_case;

    struct ScratchFile(PathBuf);

    impl Drop for ScratchFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn make_file(name: &str) -> ScratchFile {
        let file = format!("fastpath-kept-{}-{name}", std::process::id());
        ScratchFile(std::env::temp_dir().join(file))
    }

    fn make_plan(ranks: u32) -> RunPlan {
        RunPlan { ranks, settings: Settings::default() }
    }

    fn make_identity(ranks: u32) -> ComparisonIdentity {
        let ours = ComparedMpi::new("ours", Path::new("/opt/x/bin/mpicc"), None);
        ComparisonIdentity::new(&[make_plan(ranks)], [&ours].into_iter())
    }

    fn make_turn(plan: &RunPlan, round: u32) -> RunTurn<'_> {
        RunTurn { round, peer: 1, number: 0, plan, ours_first: true }
    }

    fn open(file: &ScratchFile, ranks: u32) -> StoredTurns {
        StoredTurns::open(&file.0, &make_identity(ranks), &Run::default()).unwrap()
    }

    fn make_pair(ns: f64) -> [RunResult; 2] {
        let of = |ns| RunResult { cases: vec![make_case(8, &[ns])], ..RunResult::default() };
        [of(ns), of(2.0 * ns)]
    }

    #[test]
    fn turns__are_found_again_and_one_that_was_cut_off_is_not() {
        let file = make_file("cut");
        let plan = make_plan(2);
        let mut kept = open(&file, 2);
        assert!(kept.turns.is_empty() && kept.dropped.is_none());
        for round in 0..2 {
            let pair = make_pair(100.0 + f64::from(round));
            kept.add(&make_turn(&plan, round), &pair).unwrap();
        }
        drop(kept);
        let length = std::fs::metadata(&file.0).unwrap().len();
        let cut = OpenOptions::new().write(true).open(&file.0).unwrap();
        cut.set_len(length - 10).unwrap();
        let mut kept = open(&file, 2);
        assert_eq!(kept.find(&make_turn(&plan, 0)), Some(make_pair(100.0)));
        assert_eq!(kept.find(&make_turn(&plan, 1)), None);
        kept.add(&make_turn(&plan, 1), &make_pair(300.0)).unwrap();
        drop(kept);
        let kept = open(&file, 2);
        assert_eq!(kept.find(&make_turn(&plan, 1)), Some(make_pair(300.0)));
        assert_eq!(kept.turns.len(), 2);
    }

    #[test]
    fn other_comparison__is_given_up_and_named() {
        let file = make_file("other");
        let plan = make_plan(2);
        open(&file, 2).add(&make_turn(&plan, 0), &make_pair(1.0)).unwrap();
        let kept = open(&file, 4);
        assert!(kept.turns.is_empty());
        assert!(kept.dropped.as_ref().unwrap().contains("ranks"), "{kept:?}");
        drop(kept);
        assert!(open(&file, 2).turns.is_empty(), "it was begun anew");
    }

    #[test]
    fn file__of_something_else_is_left_as_it_is() {
        let file = make_file("else");
        for text in ["precious", "precious\nlines\n"] {
            std::fs::write(&file.0, text).unwrap();
            let refused = StoredTurns::open(&file.0, &make_identity(2), &Run::default());
            assert!(refused.unwrap_err().to_string().contains("was not written by --keep"));
            assert_eq!(std::fs::read_to_string(&file.0).unwrap(), text);
        }
    }
}
