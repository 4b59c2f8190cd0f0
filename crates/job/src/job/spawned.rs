//! The other job that spawned this one, and the engine that knows it.

use super::Job;
use crate::detect::{LaunchPlace, SingletonReason, find_place};
use crate::engine::{Engine, EngineError};
use crate::parent::{self, PARENT_VARIABLE};
use std::sync::PoisonError;

impl Job {
    /// Returns whether another job may have spawned this one. All ranks get the same result.
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
        parent::read(&told, self.job_id).map(str::to_owned)
    }

    /// Returns the port of the process that spawned the job, if any. Called by the first rank.
    ///
    /// # Errors
    /// The engine does not report the port; a text for users.
    pub fn find_foreign_parent(&self) -> Result<Option<String>, String> {
        if self.launcher.is_some() {
            return Ok(self.told_parent());
        }
        let asked = self.ask_engine(Engine::find_parent);
        asked.unwrap_or(Ok(None)).map_err(|error| error.to_string())
    }

    /// Returns whether an engine has started this job instead of `mpiexec`, and this process has joined through it.
    pub fn has_engine(&self) -> bool {
        self.link.is_some()
    }

    /// Returns whether [`Job::ask_any_engine`] would call an engine.
    pub fn may_ask_engine(&self) -> bool {
        let is_of_one = || match find_place() {
            LaunchPlace::Alone(SingletonReason::OfOne(claim)) => claim.protocol.is_some(),
            _ => false,
        };
        self.has_engine() || self.launcher.is_none() && is_of_one()
    }

    /// Calls the engine that has started this job instead of `mpiexec`. If that engine has started only this process,
    /// the first call connects to it. Returns `None` if no engine has started the job.
    ///
    /// # Errors
    /// The engine cannot be reached.
    pub fn ask_any_engine<T>(
        &self, ask: impl FnOnce(&mut Engine) -> Result<T, EngineError>,
    ) -> Option<Result<T, EngineError>> {
        if self.link.is_some() {
            return self.ask_engine(ask);
        }
        let mut late = self.late_engine.lock().unwrap_or_else(PoisonError::into_inner);
        if late.is_none() && self.launcher.is_none() {
            let LaunchPlace::Alone(SingletonReason::OfOne(claim)) = find_place() else {
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
    fn singleton__is_spawned_by_no_other_job() {
        assert!(!Job::singleton().unwrap().is_spawned_by_other());
    }
}
