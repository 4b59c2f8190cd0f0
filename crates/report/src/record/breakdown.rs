//! Results beside cases: instructions by function, and effects of optimisations.

use serde::{Deserialize, Serialize};

use super::interval::Ratio;
use super::{Case, Level};

/// Instructions of one operation, counted by callgrind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Breakdown {
    /// Name of the counted MPI in tables.
    pub mpi: String,
    /// The operation (`MPI_Send`; `put, load-store`).
    pub operation: String,
    /// Level at which the operation was called; higher levels are not included.
    #[serde(default)]
    pub level: Level,
    /// Payload in bytes.
    pub bytes: u64,
    /// Number of calls over which the counts are means.
    pub calls: u64,
    /// Instructions per call.
    pub total: f64,
    /// Instructions per call by level and function, in descending order; empty if only the total is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<FunctionShare>,
}

/// Share of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FunctionShare {
    /// `abi`, `mpi`, `protocol`, `transport`, `base`, or `other`.
    pub level: String,
    /// Function, or the source file if the compiler left no name.
    pub function: String,
    /// Instructions per call in the function itself.
    pub instructions: f64,
}

/// Effect of an ablation step in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Change"))]
pub struct StepChange {
    /// Test of the case. Empty in old results, which had only `latency`.
    #[serde(default)]
    pub test: String,
    /// Size of the case, in bytes.
    pub bytes: u64,
    /// Ratio of the case's median to its median in the preceding step, from pairs in one turn.
    pub ratio: Ratio,
}

/// A step of an ablation: all optimisations are off, except those enabled by earlier steps and this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AblationStep {
    /// Optimisation that this step adds; empty in the first step, with all off.
    pub added: String,
    /// `FASTPATH_DISABLE` as it was set.
    pub disabled: Vec<String>,
    /// Timed cases, with the samples of all turns.
    pub cases: Vec<Case>,
    /// Effects of the step; empty in the first step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<StepChange>,
    /// Counted instructions.
    pub instructions: Vec<Breakdown>,
}

impl AblationStep {
    /// Finds the effect of the step on a case.
    pub fn find_change(&self, case: &Case) -> Option<&StepChange> {
        let is_of = |c: &&StepChange| {
            let test = match c.test.as_str() {
                "" => "latency",
                test => test,
            };
            (test, c.bytes) == (case.test.as_str(), case.bytes)
        };
        self.changes.iter().find(is_of)
    }
}
