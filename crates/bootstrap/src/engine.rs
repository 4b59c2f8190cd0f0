//! What starts the processes of a job where it is not our own launcher: an engine, spoken to by PMI-1 or PMIx.
//!
//! An engine tells a process which rank it is and lets the ranks exchange a few values before they can reach each
//! other: [`Engine::put`], [`Engine::fence`], [`Engine::get`]. It ends the job on demand ([`Aborter::abort`]). Which
//! engines speak what, and where they differ, is in docs/decisions/0040-engines-and-nodes.md.

#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod fake;
pub mod output;
mod pmi1;
mod pmix;

pub use pmi1::Pmi1;
pub use pmix::Pmix;
pub(crate) use pmix::is_told_of_parent;

use crate::control::Program;
use crate::job::detect::Protocol;
use std::io;
use std::sync::OnceLock;

/// Why an engine cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A variable of the engine is missing, or cannot be understood.
    #[error("{}", describe_variable(.name, .value))]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value, cut where it is long; empty where it is missing.
        value: String,
    },
    /// A connection or a system call failed.
    #[error("{step}: {cause}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The engine has closed the connection.
    #[error("{0}: the launcher has closed its connection; most likely it is ending the job")]
    Closed(&'static str),
    /// The engine answers something else than was asked for, or refuses it.
    #[error("{step}: the launcher answers {said:?}")]
    Answer {
        /// What was tried.
        step: &'static str,
        /// What it said, cut where it is long.
        said: String,
    },
    /// The engine's library cannot be used.
    #[error("{0}")]
    Library(String),
    /// The engine starts no further processes.
    #[error("this launcher starts no further processes {0}")]
    Starts(&'static str),
    /// The engine's protocol cannot carry a word.
    #[error("PMI-1 carries no empty word, and none with a line's end or a backslash: {0}")]
    Unsayable(String),
    /// The engine has no such thing.
    #[error("the launcher does not keep {0}")]
    Lacks(&'static str),
    /// A value does not fit the engine's limits.
    #[error("{step}: {bytes} bytes are too many for the launcher")]
    TooLong {
        /// What was tried.
        step: &'static str,
        /// How long it is.
        bytes: usize,
    },
}

fn describe_variable(name: &str, value: &str) -> String {
    match value {
        "" => format!("{name} is not set, which the launcher should do"),
        value => format!("{name}={value:?}, set by the launcher, cannot be understood"),
    }
}

/// What a job that spawns another one by PMI-1 leaves for its first rank.
const PARENT_KEY: &str = "parent";
/// The variable by which an engine with PMI-1 says that the job was spawned.
pub(crate) const SPAWNED: &str = "PMI_SPAWNED";

/// What an engine says about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// This process's rank, below `size`.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// What the engine calls the job: the same in all its ranks, and no other job's on this host.
    pub job: String,
    /// Number of this rank's program in the command line, if known.
    pub appnum: Option<usize>,
    /// Most ranks that the job can have, if known.
    pub universe: Option<usize>,
}

/// A connection to an engine.
#[derive(Debug)]
pub enum Engine {
    /// By PMI-1: Hydra, Slurm (`--mpi=pmi2`), Flux, gforker.
    Pmi1(Pmi1),
    /// By PMIx: PRRTE, Slurm (`--mpi=pmix`).
    Pmix(Box<Pmix>),
}

impl Engine {
    /// Connects to the engine that started this process.
    ///
    /// # Errors
    /// Its variables or its library are not there, or it does not answer.
    pub fn connect(protocol: Protocol) -> Result<Engine, EngineError> {
        let engine = match protocol {
            Protocol::Pmi1 => Pmi1::connect().map(Engine::Pmi1),
            Protocol::Pmix => Pmix::connect().map(|pmix| Engine::Pmix(Box::new(pmix))),
        }?;
        if let Ok(aborter) = engine.aborter() {
            let _ = ABORTER.set(aborter);
        }
        Ok(engine)
    }

    /// What it says about this process.
    pub fn about(&self) -> &About {
        match self {
            Engine::Pmi1(pmi) => pmi.about(),
            Engine::Pmix(pmix) => pmix.about(),
        }
    }

    /// Leaves a value for other ranks, who see it after the next fence. A key, of at most 16 letters, digits and
    /// hyphens, is put once by a rank; ranks do not share keys.
    ///
    /// # Errors
    /// The engine refuses, or cannot be reached.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.put(key, value),
            Engine::Pmix(pmix) => pmix.put(key, value),
        }
    }

    /// Waits until all ranks of the job have come to this fence.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub fn fence(&mut self) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.fence(),
            Engine::Pmix(pmix) => pmix.fence(),
        }
    }

    /// What a rank has put before a fence; None where it has put nothing under that key.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub fn get(&mut self, rank: usize, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.get(rank, key),
            Engine::Pmix(pmix) => pmix.get(rank, key),
        }
    }

    /// Publishes the name of a service; false where it is taken.
    ///
    /// # Errors
    /// The engine keeps no names, or cannot be reached.
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<bool, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.publish(service, port),
            Engine::Pmix(pmix) => pmix.publish(service, port),
        }
    }

    /// The port of a service; None if it is not published.
    ///
    /// # Errors
    /// As [`Engine::publish`].
    pub fn look_up(&mut self, service: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.look_up(service),
            Engine::Pmix(pmix) => pmix.look_up(service),
        }
    }

    /// Takes the name of a service back; false where the engine has none such.
    ///
    /// # Errors
    /// As [`Engine::publish`].
    pub fn unpublish(&mut self, service: &[u8]) -> Result<bool, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.unpublish(service),
            Engine::Pmix(pmix) => pmix.unpublish(service),
        }
    }

    /// Starts processes as a job of their own, and passes them this port, where [`Engine::find_parent`] finds it. Each
    /// program is started as often as its first count says. Returns the engine's name of that job, which PMI-1 does not
    /// give.
    ///
    /// # Errors
    /// The engine starts none, or cannot be reached.
    pub fn spawn(
        &mut self, programs: &[Program], port: &str,
    ) -> Result<Option<String>, EngineError> {
        match self {
            Engine::Pmi1(pmi) => {
                let spawned = pmi.spawn(programs, PARENT_KEY, port.as_bytes());
                spawned.map(|()| None)
            }
            Engine::Pmix(pmix) => pmix.spawn(programs, port).map(Some),
        }
    }

    /// Whether the engine runs a job that [`Engine::spawn`] has named; also where it does not say.
    pub fn runs(&self, job: &str) -> bool {
        match self {
            Engine::Pmi1(_) => true,
            Engine::Pmix(pmix) => pmix.runs(job),
        }
    }

    /// The process sets that the engine knows in this job, by name, with the ranks of each.
    pub fn process_sets(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Engine::Pmi1(_) => Vec::new(),
            Engine::Pmix(pmix) => pmix.process_sets(),
        }
    }

    /// Whether another job may have spawned this one: the environment says so, and so do all ranks of it.
    pub fn is_spawned(&self) -> bool {
        match self {
            Engine::Pmi1(_) => std::env::var(SPAWNED).is_ok_and(|said| said == "1"),
            Engine::Pmix(pmix) => pmix.is_spawned(),
        }
    }

    /// The port of the process that has spawned this job. None if it was not spawned, or by a program of another MPI.
    ///
    /// # Errors
    /// As [`Engine::put`], and that is no text.
    pub fn find_parent(&mut self) -> Result<Option<String>, EngineError> {
        let found = match self {
            Engine::Pmi1(pmi) => pmi.get(0, PARENT_KEY)?,
            Engine::Pmix(pmix) => return pmix.find_parent(),
        };
        let malformed =
            |_| EngineError::Answer { step: "get", said: "no text as the parent's port".into() };
        found.map(String::from_utf8).transpose().map_err(malformed)
    }

    /// What ends the job, for any thread: also while another one waits in a fence.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn aborter(&self) -> Result<Aborter, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.aborter().map(Aborter::Pmi1),
            Engine::Pmix(pmix) => Ok(Aborter::Pmix(pmix.aborter())),
        }
    }

    /// Threads that the engine's library has started in this process.
    pub fn threads(&self) -> usize {
        match self {
            Engine::Pmi1(_) => 0,
            Engine::Pmix(pmix) => pmix.threads(),
        }
    }

    /// Says that this process needs the engine no more: its end is no failure from here on.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub fn finalize(&mut self) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.finalize(),
            Engine::Pmix(pmix) => pmix.finalize(),
        }
    }
}

/// What ends the job of this process, once it has connected to an engine.
static ABORTER: OnceLock<Aborter> = OnceLock::new();

/// Asks the engine that started this process, where there is one, to end the job with an exit code of 1 to 255. For a
/// process that ends itself as a failure, also before it has joined its job: the others would wait for it. False where
/// it has not connected to one.
pub fn abort_job(code: i32) -> bool {
    let aborter = ABORTER.get();
    if let Some(aborter) = aborter {
        aborter.abort(code);
    }
    aborter.is_some()
}

/// Ends the job.
#[derive(Debug)]
pub enum Aborter {
    /// By PMI-1.
    Pmi1(pmi1::Aborter),
    /// By PMIx.
    Pmix(pmix::Aborter),
}

impl Aborter {
    /// Asks the engine to end all processes of the job, with an exit code of 1 to 255. It does so a moment later. Some
    /// (Slurm by PMI-1) end with a code of their own. What this process has written is taken by its reader before, or
    /// a message of the end could be lost.
    pub fn abort(&self, code: i32) {
        output::await_taken();
        match self {
            Aborter::Pmi1(pmi) => pmi.abort(code),
            Aborter::Pmix(pmix) => pmix.abort(code),
        }
    }
}
