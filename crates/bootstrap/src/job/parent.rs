//! Where the process of another job waits that has spawned this one: its port.

use super::detect::{Alone, LaunchPlace};
use super::{Job, find_place};
use crate::engine::{Engine, EngineError};
use std::sync::PoisonError;

/// The variable that says so to `mpiexec`, and by it to its ranks.
pub const PARENT_VARIABLE: &str = "FASTPATH_INTERNAL_PARENT";
/// What a process that calls `mpiexec` writes before the port: ranks inherit the variable, and may call `mpiexec` too.
const FOR_LAUNCHER: &str = "spawn ";

/// The value for an `mpiexec` that is to spawn.
pub fn tell_launcher(port: &str) -> String {
    format!("{FOR_LAUNCHER}{port}")
}

/// The port that this process, a launcher, was given.
pub fn read_of_launcher() -> Option<String> {
    let told = std::env::var(PARENT_VARIABLE).ok()?;
    told.strip_prefix(FOR_LAUNCHER).map(str::to_owned)
}

/// The value for the ranks of a job.
pub fn tell(job_id: u64, port: &str) -> String {
    format!("{job_id:016x} {port}")
}

fn read(told: &str, job_id: u64) -> Option<&str> {
    // Of another job where a rank has started this process in its turn.
    let (job, port) = told.split_once(' ')?;
    (u64::from_str_radix(job, 16) == Ok(job_id)).then_some(port)
}

impl Job {
    /// Whether another job may have spawned this one, as all ranks of it find alike.
    pub fn is_spawned_by_other(&self) -> bool {
        match self.launcher {
            Some(_) => self.told_parent().is_some(),
            None => {
                let asked = self.ask_engine(|engine| engine.is_spawned());
                asked.unwrap_or(false)
            }
        }
    }

    fn told_parent(&self) -> Option<String> {
        let told = std::env::var(PARENT_VARIABLE).ok()?;
        read(&told, self.job_id).map(str::to_owned)
    }

    /// Where the process waits that has spawned the job; the first rank asks.
    ///
    /// # Errors
    /// For people: the engine does not say.
    pub fn find_foreign_parent(&self) -> Result<Option<String>, String> {
        if self.launcher.is_some() {
            return Ok(self.told_parent());
        }
        let asked = self.ask_engine(Engine::find_parent);
        asked.unwrap_or(Ok(None)).map_err(|error| error.to_string())
    }

    /// Whether an engine has started this job in place of `mpiexec`, and it needs that engine.
    pub fn has_engine(&self) -> bool {
        self.link.is_some()
    }

    /// Whether [`Job::ask_any_engine`] would ask one.
    pub fn may_ask_engine(&self) -> bool {
        let is_of_one = || match find_place() {
            LaunchPlace::Alone(Alone::OfOne(claim)) => claim.protocol.is_some(),
            _ => false,
        };
        self.has_engine() || self.launcher.is_none() && is_of_one()
    }

    /// Asks the engine that has started this job in place of `mpiexec`, also if it has started only one process, which
    /// needs it for nothing else. `None` without an engine.
    ///
    /// # Errors
    /// The engine cannot be talked to.
    pub fn ask_any_engine<T>(
        &self, ask: impl FnOnce(&mut Engine) -> Result<T, EngineError>,
    ) -> Option<Result<T, EngineError>> {
        if self.link.is_some() {
            return self.ask_engine(ask);
        }
        let mut late = self.late_engine.lock().unwrap_or_else(PoisonError::into_inner);
        if late.is_none() && self.launcher.is_none() {
            let LaunchPlace::Alone(Alone::OfOne(claim)) = find_place() else {
                return None;
            };
            match Engine::connect(claim.protocol?) {
                Ok(engine) => *late = Some(engine),
                Err(error) => return Some(Err(error)),
            }
        }
        late.as_mut().map(ask)
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parent__is_of_the_job_that_was_told() {
        assert_eq!(read(&tell(7, "a port"), 7), Some("a port"));
        assert_eq!(read(&tell(7, "a port"), 8), None);
        assert_eq!(read(&tell_launcher("a port"), 7), None);
        assert!(!Job::singleton().unwrap().is_spawned_by_other());
    }
}
