//! Errors of engines.

use std::io;

/// Error of the communication with an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A variable of the engine is missing or malformed.
    #[error("{}", describe_variable(.name, .value))]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// Value, shortened if it is long; empty if it is missing.
        value: String,
    },
    /// A connection or a system call failed.
    #[error("{step}: {cause}")]
    System {
        /// Failed step.
        step: &'static str,
        /// Error of the kernel.
        cause: io::Error,
    },
    /// The engine has closed the connection.
    #[error(
        "in the step {0}, the launcher closed the connection; most likely the launcher is ending \
         the job"
    )]
    Closed(&'static str),
    /// The engine sent another answer than expected, or a refusal.
    #[error("in the step {step}, the launcher answered {said:?}")]
    Answer {
        /// Failed step.
        step: &'static str,
        /// Text of the answer, shortened if it is long.
        said: String,
    },
    /// The engine's library cannot be used.
    #[error("{0}")]
    Library(String),
    /// The engine starts no more processes.
    #[error("this launcher cannot start further processes {0}")]
    Starts(&'static str),
    /// The engine's protocol cannot encode a word.
    #[error("PMI-1 cannot pass a word that is empty or has a line break or a backslash: {0}")]
    Unsayable(String),
    /// The engine lacks a feature.
    #[error("the launcher does not store {0}")]
    Lacks(&'static str),
    /// A value does not fit the engine's limits.
    #[error("the launcher does not accept {bytes} bytes ({step})")]
    TooLong {
        /// Failed step.
        step: &'static str,
        /// Length of the value.
        bytes: usize,
    },
}

fn describe_variable(name: &str, value: &str) -> String {
    match value {
        "" => format!("the launcher has not set {name}"),
        value => format!("the launcher has set {name}={value:?}, which is invalid"),
    }
}
