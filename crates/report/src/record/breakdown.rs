//! Results beside cases: where the instructions of an operation go, and what each optimisation
//! gives.

use serde::{Deserialize, Serialize};

use super::{Case, Level};
use crate::compare::interval::Ratio;

/// The instructions of one operation, counted by callgrind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Breakdown {
    /// The MPI that was counted, by the name that tables use.
    pub mpi: String,
    /// The operation (`MPI_Send`; `put, load-store`).
    pub operation: String,
    /// The level at which it was called; what lies above it took no part.
    #[serde(default)]
    pub level: Level,
    /// Payload in bytes.
    pub bytes: u64,
    /// Calls over which the counts are means.
    pub calls: u64,
    /// Instructions per call.
    pub total: f64,
    /// The same by level and function, most first; empty where only the total is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A function's share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Part {
    /// `abi`, `mpi`, `protocol`, `transport`, `base`, or `other`.
    pub level: String,
    /// The function, or the source file where the compiler left no name.
    pub function: String,
    /// Instructions per call in the function itself.
    pub instructions: f64,
}

/// What a step of an ablation changed in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Change"))]
pub struct StepChange {
    /// Test of the case; empty in results stored before there was more than one: `latency`.
    #[serde(default)]
    pub test: String,
    /// Bytes of the case.
    pub bytes: u64,
    /// Its median to that of the step before, of pairs in the same turn.
    pub ratio: Ratio,
}

/// A step of an ablation: everything that can be switched off is, but for what earlier steps and
/// this one switched on again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AblationStep {
    /// The optimisation that this step adds; empty in the first step, where all are off.
    pub added: String,
    /// `FASTPATH_DISABLE` as it was set.
    pub disabled: Vec<String>,
    /// What was timed, with the samples of all turns.
    pub cases: Vec<Case>,
    /// What the step changed; empty in the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<StepChange>,
    /// What was counted.
    pub instructions: Vec<Breakdown>,
}

impl AblationStep {
    /// What the step changed in a case.
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
