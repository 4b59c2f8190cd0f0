//! Stored form of a comparison of MPIs in one run. It has ratios with their intervals, the underlying pairs, and the
//! results of every MPI, merged over the rounds. The schema is `docs/schema/compare-1.json`.

use serde::{Deserialize, Serialize};

use super::{Statistic, is_more_better, name_directions};
use crate::lists::unique;
use crate::output::json::{join_lines, to_json};
use crate::record::interval::{self, Ratio, Verdict};
use crate::record::{CaseKey, Report, read_versioned};
use crate::statistics::find_median;
use crate::statistics::is_same_line;

/// Name of the format, in every stored comparison.
pub const SCHEMA: &str = "fastpath.compare";

/// Version of the JSON form.
pub const VERSION: u32 = 1;

/// Schema of a stored comparison, as JSON Schema (draft 2020-12).
#[cfg(test)]
pub const SCHEMA_TEXT: &str = include_str!("../../../../docs/schema/compare-1.json");

/// Comparison of MPIs in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Always [`VERSION`]; another version is rejected.
    pub version: u32,
    /// Statistic of each run that is compared.
    pub statistic: Statistic,
    /// Requested number of runs of each pair.
    pub rounds: u32,
    /// Ratios, by peer and case.
    pub rows: Vec<Row>,
    /// Cases that were not compared.
    pub missing: Vec<NotCompared>,
    /// Results of each MPI, this one first; all rounds together.
    pub reports: Vec<Report>,
}

/// Comparison with one peer in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the peer.
    pub peer: String,
    /// Key of the case.
    #[serde(flatten)]
    pub key: CaseKey,
    /// Statistic of this MPI's runs; the median over the rounds.
    pub ours: f64,
    /// Statistic of the peer's runs; the median over the rounds.
    pub theirs: f64,
    /// Geometric mean of the ratios ours/theirs over the rounds, with its 95 % interval.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// `faster`, `slower` or `cannot tell`; `less` and `more` if the quantity is not a time.
    pub says: String,
    /// Statistics of both MPIs in each round: ours, theirs.
    pub pairs: Vec<(f64, f64)>,
    /// Measurements beside the runs.
    #[serde(flatten)]
    pub beside: FloorComparison,
}

/// Measurements beside the runs of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FloorComparison {
    /// Statistics of the floor beside the runs of each round: ours, theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<(f64, f64)>,
    /// Name of the floor in `floors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_of: Option<String>,
    /// One-way time of a cache line beside the runs of each round, in nanoseconds: ours, theirs. On a virtual machine
    /// this time depends on which cache the two processors share, which may change between runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<[f64; 2]>,
}

/// A requested comparison without a result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotCompared {
    /// Name of the MPI.
    pub mpi: String,
    /// The test or case; empty for all.
    pub what: String,
    /// Reason.
    pub reason: String,
}

impl Row {
    /// Creates a row from the pairs of one case; None without pairs, or if a value is zero.
    pub fn new(peer: &str, key: &CaseKey, pairs: Vec<(f64, f64)>) -> Option<Row> {
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
            beside: FloorComparison::default(),
        })
    }

    /// Adds measurements beside the runs; a floor is kept only if every run has one.
    pub fn with(self, beside: &FloorComparison) -> Row {
        let mut beside = beside.clone();
        if beside.floors.len() != self.pairs.len() {
            (beside.floors, beside.floor_of) = (Vec::new(), None);
        }
        Row { beside, ..self }
    }

    /// Returns the floor's median over all runs, and each MPI's multiple of it, ours first, as median over the rounds.
    pub fn find_floor(&self) -> Option<[f64; 3]> {
        let floors = &self.beside.floors;
        let both = || self.pairs.iter().zip(floors);
        let ours = find_median(both().map(|(times, floors)| times.0 / floors.0));
        let theirs = find_median(both().map(|(times, floors)| times.1 / floors.1));
        let all = floors.iter().flat_map(|&(ours, theirs)| [ours, theirs]);
        Some([find_median(all)?, ours?, theirs?])
    }

    /// Returns the time of a cache line beside both MPIs' runs, ours first, each as the median over the rounds.
    pub fn find_lines(&self) -> Option<[f64; 2]> {
        let of = |side: usize| find_median(self.beside.lines.iter().map(|pair| pair[side]));
        Some([of(0)?, of(1)?])
    }

    /// Counts the rounds in which the time of a cache line differed between the two runs.
    pub fn count_uneven(&self) -> usize {
        let uneven = |&&[ours, theirs]: &&[f64; 2]| !is_same_line(ours, theirs);
        self.beside.lines.iter().filter(uneven).count()
    }

    /// Whether the peer is significantly better.
    pub fn is_behind(&self) -> bool {
        let behind = if is_more_better(self.key.of) { Verdict::Below } else { Verdict::Above };
        self.ratio.judge() == behind
    }
}

impl Comparison {
    /// JSON form, one row a line.
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

    /// Parses a stored comparison.
    ///
    /// # Errors
    /// See [`read_versioned`].
    pub fn from_json(text: &str) -> anyhow::Result<Comparison> {
        read_versioned(text, SCHEMA, VERSION)
    }

    /// Names of the peers, in the order of the rows.
    pub fn list_peers(&self) -> Vec<&str> {
        unique(self.rows.iter().map(|row| row.peer.as_str()))
    }

    /// Returns the version string of the MPI called `name`; empty if there is no such MPI.
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

    /// Makes a comparison of two sizes with two peers: better, worse, and undecided.
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
        assert!(why.contains("the result has the schema"), "{why}");
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
