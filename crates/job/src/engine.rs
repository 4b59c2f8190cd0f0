//! The engine that starts the processes of a job instead of our launcher, reached by PMI-1 or PMIx.
//!
//! An engine assigns ranks, and lets them exchange a few values before they have connections: [`Engine::put`],
//! [`Engine::fence`], [`Engine::get`]. It ends the job on demand ([`Aborter::abort`]).
//! docs/decisions/0040-engines-and-nodes.md lists engines, protocols and differences.

mod about;
mod error;
#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod fake;
pub mod output;
mod pmi1;
mod pmix;

pub use about::ProcessInfo;
pub use error::EngineError;
pub use pmi1::Pmi1;
pub use pmix::Pmix;

use crate::control::Program;
use crate::detect::{Protocol, SPAWNED};
use std::sync::OnceLock;

/// Key under which a job that spawns another job by PMI-1 stores a value for the first rank of the spawned job.
const PARENT_KEY: &str = "parent";
/// A connection to an engine.
#[derive(Debug)]
pub enum Engine {
    /// PMI-1: Hydra, Slurm (`--mpi=pmi2`), Flux, gforker.
    Pmi1(Pmi1),
    /// PMIx: PRRTE, Slurm (`--mpi=pmix`).
    Pmix(Box<Pmix>),
}

impl Engine {
    /// Connects to the engine that started this process.
    ///
    /// # Errors
    /// The engine's variables or library are missing, or it does not respond.
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

    /// Returns the engine's data on this process.
    pub fn about(&self) -> &ProcessInfo {
        match self {
            Engine::Pmi1(pmi) => pmi.about(),
            Engine::Pmix(pmix) => pmix.about(),
        }
    }

    /// Publishes a value for other ranks, which see it after the next fence. A key has at most 16 letters, digits and
    /// hyphens. A rank puts a key once, and ranks do not share keys.
    ///
    /// # Errors
    /// The engine refuses, or cannot be reached.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.put(key, value),
            Engine::Pmix(pmix) => pmix.put(key, value),
        }
    }

    /// Waits until all ranks of the job have reached this fence.
    pub fn fence(&mut self) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.fence(),
            Engine::Pmix(pmix) => pmix.fence(),
        }
    }

    /// Returns the value that a rank put before a fence; `None` if the rank put no value under that key.
    pub fn get(&mut self, rank: usize, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.get(rank, key),
            Engine::Pmix(pmix) => pmix.get(rank, key),
        }
    }

    /// Publishes the name of a service. Returns false if the name is taken.
    ///
    /// # Errors
    /// The engine keeps no names, or cannot be reached.
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<bool, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.publish(service, port),
            Engine::Pmix(pmix) => pmix.publish(service, port),
        }
    }

    /// Returns the port of a service; `None` if it is not published.
    pub fn look_up(&mut self, service: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.look_up(service),
            Engine::Pmix(pmix) => pmix.look_up(service),
        }
    }

    /// Unpublishes the name of a service. Returns false if the engine does not have the name.
    pub fn unpublish(&mut self, service: &[u8]) -> Result<bool, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.unpublish(service),
            Engine::Pmix(pmix) => pmix.unpublish(service),
        }
    }

    /// Starts processes as a separate job, and passes `port` to them, where [`Engine::find_parent`] returns it. The
    /// first count of a program is its number of processes. Returns the engine's name of the new job, which is unknown
    /// with PMI-1.
    ///
    /// # Errors
    /// The engine starts no processes, or cannot be reached.
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

    /// Returns whether the engine runs a job named by [`Engine::spawn`]; true if the engine does not report jobs.
    pub fn runs(&self, job: &str) -> bool {
        match self {
            Engine::Pmi1(_) => true,
            Engine::Pmix(pmix) => pmix.runs(job),
        }
    }

    /// Returns the process sets that the engine knows in this job: names and ranks.
    pub fn process_sets(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Engine::Pmi1(_) => Vec::new(),
            Engine::Pmix(pmix) => pmix.process_sets(),
        }
    }

    /// Returns whether the environment allows that another job spawned this one. All ranks get the same result.
    pub fn is_spawned(&self) -> bool {
        match self {
            Engine::Pmi1(_) => std::env::var(SPAWNED).is_ok_and(|said| said == "1"),
            Engine::Pmix(pmix) => pmix.is_spawned(),
        }
    }

    /// Returns the port of the process that spawned this job; `None` if no process of this MPI library spawned it.
    ///
    /// # Errors
    /// The errors of [`Engine::put`], and a port that is not a text.
    pub fn find_parent(&mut self) -> Result<Option<String>, EngineError> {
        let found = match self {
            Engine::Pmi1(pmi) => pmi.get(0, PARENT_KEY)?,
            Engine::Pmix(pmix) => return pmix.find_parent(),
        };
        let malformed = |_| EngineError::Answer {
            step: "get",
            said: "a parent's port that is not UTF-8 text".into(),
        };
        found.map(String::from_utf8).transpose().map_err(malformed)
    }

    /// Returns a handle that ends the job from any thread, also while another thread waits in a fence.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn aborter(&self) -> Result<Aborter, EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.aborter().map(Aborter::Pmi1),
            Engine::Pmix(pmix) => Ok(Aborter::Pmix(pmix.aborter())),
        }
    }

    /// Returns the number of threads that the engine's library has started in this process.
    pub fn threads(&self) -> usize {
        match self {
            Engine::Pmi1(_) => 0,
            Engine::Pmix(pmix) => pmix.threads(),
        }
    }

    /// Reports to the engine that this process no longer needs it, so that the end of the process is no failure.
    pub fn finalize(&mut self) -> Result<(), EngineError> {
        match self {
            Engine::Pmi1(pmi) => pmi.finalize(),
            Engine::Pmix(pmix) => pmix.finalize(),
        }
    }
}

/// Handle that ends this process's job. Empty until this process has connected to an engine.
static ABORTER: OnceLock<Aborter> = OnceLock::new();

/// Requests the engine of this process to end the job with an exit code of 1 to 255. A process that ends itself as a
/// failure calls this function, even before it has joined its job; otherwise the other ranks would wait for it. Returns
/// false if this process has not connected to an engine.
pub fn abort_job(code: i32) -> bool {
    let aborter = ABORTER.get();
    if let Some(aborter) = aborter {
        aborter.abort(code);
    }
    aborter.is_some()
}

/// Handle that ends the job.
#[derive(Debug)]
pub enum Aborter {
    /// By PMI-1.
    Pmi1(pmi1::Aborter),
    /// By PMIx.
    Pmix(pmix::Aborter),
}

impl Aborter {
    /// Requests the engine to end all processes of the job with an exit code of 1 to 255. The processes end a moment
    /// later. Some engines (Slurm by PMI-1) use their own exit code. The call first waits until readers have taken this
    /// process's output, because a last message could be lost otherwise.
    pub fn abort(&self, code: i32) {
        output::await_taken();
        match self {
            Aborter::Pmi1(pmi) => pmi.abort(code),
            Aborter::Pmix(pmix) => pmix.abort(code),
        }
    }
}
