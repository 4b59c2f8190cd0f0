//! The stored form of a comparison of MPIs in one run: ratios with their intervals, the pairs they
//! were formed of, and the results of every MPI, merged over the rounds. Its schema is
//! `docs/schema/compare-1.json`.

use serde::{Deserialize, Serialize};

use super::interval::{Ratio, Verdict};
use super::{Statistic, interval, is_more_better, name_directions};
use crate::lists::unique;
use crate::output::json::{join_lines, to_json};
use crate::record::{Key, Report, read_versioned};
use crate::statistics::find_median;
use crate::statistics::is_same_line;

/// The name that every stored comparison carries.
pub const SCHEMA: &str = "fastpath.compare";

/// The version of the JSON form.
pub const VERSION: u32 = 1;

/// The schema of a stored comparison, as JSON Schema (draft 2020-12).
#[cfg(test)]
pub const SCHEMA_TEXT: &str = include_str!("../../../../docs/schema/compare-1.json");

/// MPIs compared in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`]; another one is refused.
    pub version: u32,
    /// What is compared of each run.
    pub statistic: Statistic,
    /// How often each pair was to run.
    pub rounds: u32,
    /// The ratios, by peer and case.
    pub rows: Vec<Row>,
    /// What was not compared.
    pub missing: Vec<NotCompared>,
    /// What each MPI did, ours first; all rounds together.
    pub reports: Vec<Report>,
}

/// Ours to one peer in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// The peer's name.
    pub peer: String,
    /// The case.
    #[serde(flatten)]
    pub key: Key,
    /// The statistic of our runs; the median over the rounds.
    pub ours: f64,
    /// The statistic of the peer's runs; the median over the rounds.
    pub theirs: f64,
    /// The geometric mean of the ratios ours/theirs over the rounds, with its 95 % interval.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// `faster`, `slower` or `cannot tell`; `less` and `more` where no time was measured.
    pub says: String,
    /// The statistic of both in each round: ours, theirs.
    pub pairs: Vec<(f64, f64)>,
    /// What was measured beside them.
    #[serde(flatten)]
    pub beside: Beside,
}

/// What was measured beside the runs of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Beside {
    /// The statistic of the floor beside the runs of each round: ours, theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<(f64, f64)>,
    /// What that floor is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_of: Option<String>,
    /// One way of a cache line beside the runs of each round, in nanoseconds: ours, theirs. What two
    /// processors share changes on a virtual machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<[f64; 2]>,
}

/// What was asked for and not compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotCompared {
    /// The MPI.
    pub mpi: String,
    /// The test or case; empty for all.
    pub what: String,
    /// Why.
    pub reason: String,
}

impl Row {
    /// A row of the pairs of one case; None without pairs, or where a value is zero.
    pub fn new(peer: &str, key: &Key, pairs: Vec<(f64, f64)>) -> Option<Row> {
        let ratio = interval::of_pairs(&pairs)?;
        let [below, above] = name_directions(key.of);
        let says = match ratio.judge() {
            Verdict::Below => below,
            Verdict::Above => above,
            Verdict::CannotTell => "cannot tell",
        };
        Some(Row {
            peer: peer.to_owned(),
            key: key.clone(),
            ours: find_median(pairs.iter().map(|p| p.0))?,
            theirs: find_median(pairs.iter().map(|p| p.1))?,
            ratio,
            says: says.to_owned(),
            pairs,
            beside: Beside::default(),
        })
    }

    /// The row with what was measured beside its runs; a floor counts if every run has one.
    pub fn with(self, beside: &Beside) -> Row {
        let mut beside = beside.clone();
        if beside.floors.len() != self.pairs.len() {
            (beside.floors, beside.floor_of) = (Vec::new(), None);
        }
        Row { beside, ..self }
    }

    /// The floor, the median over all runs, then ours and theirs as multiples of what was measured
    /// beside each run, the medians over the rounds.
    pub fn find_floor(&self) -> Option<[f64; 3]> {
        let floors = &self.beside.floors;
        let both = || self.pairs.iter().zip(floors);
        let ours = find_median(both().map(|(times, floors)| times.0 / floors.0));
        let theirs = find_median(both().map(|(times, floors)| times.1 / floors.1));
        let all = floors.iter().flat_map(|&(ours, theirs)| [ours, theirs]);
        Some([find_median(all)?, ours?, theirs?])
    }

    /// The time of a line beside our runs and beside theirs, each the median over the rounds.
    pub fn find_lines(&self) -> Option<[f64; 2]> {
        let of = |side: usize| find_median(self.beside.lines.iter().map(|pair| pair[side]));
        Some([of(0)?, of(1)?])
    }

    /// Rounds in which a line took another time beside ours than beside theirs.
    pub fn count_uneven(&self) -> usize {
        let uneven = |&&[ours, theirs]: &&[f64; 2]| !is_same_line(ours, theirs);
        self.beside.lines.iter().filter(uneven).count()
    }

    /// Whether the peer is ahead.
    pub fn is_behind(&self) -> bool {
        let behind = if is_more_better(self.key.of) { Verdict::Below } else { Verdict::Above };
        self.ratio.judge() == behind
    }
}

impl Comparison {
    /// The JSON form, a row a line.
    pub fn format_json(&self) -> String {
        let list = |name: &str, lines: String| format!(",\n\"{name}\":[{lines}]");
        format!(
            "{{\"schema\":{},\"version\":{},\"statistic\":{},\"rounds\":{}{}{}{}}}\n",
            to_json(&self.schema),
            self.version,
            to_json(&self.statistic),
            self.rounds,
            list("rows", join_lines(&self.rows)),
            list("missing", join_lines(&self.missing)),
            list("reports", join_lines(&self.reports)),
        )
    }

    /// Reads a stored comparison.
    ///
    /// # Errors
    /// See [`read_versioned`].
    pub fn from_json(text: &str) -> anyhow::Result<Comparison> {
        read_versioned(text, SCHEMA, VERSION)
    }

    /// The peers' names, in the order of the rows.
    pub fn list_peers(&self) -> Vec<&str> {
        unique(self.rows.iter().map(|row| row.peer.as_str()))
    }

    /// What an MPI says that it is.
    pub fn find_version(&self, name: &str) -> &str {
        let report = self.reports.iter().find(|r| r.run.mpi.name == name);
        report.map_or("", |r| r.run.mpi.version.as_str())
    }
}

#[cfg(test)]
#[allow(non_snake_case, missing_docs)]
pub mod tests {
    use super::*;
    use crate::testing::samples::{make_case, make_report};
    use crate::testing::schema::{check_schema_file, pin_constant, validate};

    /// Two sizes against two peers: ahead, behind, and one that cannot be told.
    pub fn make_comparison() -> Comparison {
        let keys = [make_case(8, &[1.0]).key(), make_case(4096, &[1.0]).key()];
        let rows = [
            ("alpha", &keys[0], vec![(50.0, 100.0), (51.0, 100.0)]),
            ("alpha", &keys[1], vec![(1000.0, 500.0), (1010.0, 500.0)]),
            ("beta", &keys[0], vec![(50.0, 80.0), (80.0, 50.0)]),
            ("beta", &keys[1], vec![(1000.0, 2000.0), (1000.0, 2001.0)]),
        ];
        let mut ours = make_report();
        ours.run.mpi.name = "fastpath".into();
        let mut alpha = make_report();
        alpha.run.mpi.name = "alpha".into();
        alpha.run.mpi.version = "Alpha MPI 1.2".into();
        Comparison {
            schema: SCHEMA.into(),
            version: VERSION,
            statistic: Statistic::Median,
            rounds: 2,
            rows: rows
                .into_iter()
                .map(|(peer, key, pairs)| Row::new(peer, key, pairs).unwrap())
                .collect(),
            missing: vec![NotCompared {
                mpi: "gamma".into(),
                what: String::new(),
                reason: "cannot run mpicc".into(),
            }],
            reports: vec![ours, alpha],
        }
    }

    #[test]
    fn schema__is_that_of_the_types() {
        let mut schema = schemars::schema_for!(Comparison);
        let title = "A result of fastpath compare, version 1";
        schema.insert("title".into(), title.into());
        pin_constant(&mut schema, "schema", SCHEMA.into());
        pin_constant(&mut schema, "version", VERSION.into());
        check_schema_file("compare-1.json", &schema);
    }

    #[test]
    fn text__is_read_back_and_fits_the_schema() {
        let comparison = make_comparison();
        let text = comparison.format_json();
        assert_eq!(Comparison::from_json(&text).unwrap(), comparison);
        let value = serde_json::from_str(&text).unwrap();
        validate(SCHEMA_TEXT, &value).unwrap();
        assert!(Comparison::from_json("{}").is_err());
        let other = text.replacen(SCHEMA, "fastpath.bench", 1);
        let why = Comparison::from_json(&other).unwrap_err().to_string();
        assert!(why.contains("a result of"), "{why}");
    }

    #[test]
    fn rows__say_faster_slower_and_cannot_tell() {
        let comparison = make_comparison();
        let says: Vec<&str> = comparison.rows.iter().map(|r| r.says.as_str()).collect();
        assert_eq!(says, ["faster", "slower", "cannot tell", "faster"]);
        let behind: Vec<bool> = comparison.rows.iter().map(Row::is_behind).collect();
        assert_eq!(behind, [false, true, false, false]);
        assert_eq!(comparison.rows[0].ours, 50.5);
    }
}
