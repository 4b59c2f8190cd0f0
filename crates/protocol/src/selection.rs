//! Which protocol serves which size: by what each of them costs on this machine, as far as the user's
//! variables allow.

pub mod candidates;
pub mod constants;
pub mod decide;
pub mod envelope;
pub mod thresholds;

pub use constants::Constants;
pub use thresholds::Thresholds;

use crate::worker::Worker;
use fastpath_base::config::{Config, Key};
use fastpath_transport::interfaces::Allowed;

/// What the user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// `FASTPATH_EAGER_MAX`
    pub eager_max: Option<u64>,
    /// `FASTPATH_PIPELINE_CHUNK`
    pub chunk: Option<u64>,
    /// Neither switched off by `FASTPATH_DISABLE` nor left out of `FASTPATH_TRANSPORTS`.
    pub cma: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub direct: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub pipeline: bool,
}

/// Whether `FASTPATH_TRANSPORTS` lists a transport.
pub fn is_listed(config: &Config, name: &str) -> bool {
    let listed = config.list(Key::Transports);
    listed.is_empty() || listed.iter().any(|word| word == "all" || word == name)
}

impl Wishes {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Wishes {
        Wishes {
            eager_max: config.number(Key::EagerMax),
            chunk: config.number(Key::PipelineChunk),
            cma: !config.is_disabled("cma") && is_listed(config, "cma"),
            direct: !config.is_disabled("direct"),
            pipeline: !config.is_disabled("pipeline"),
        }
    }
}

/// Which transports a job of `ranks` ranks may use.
///
/// # Errors
/// `FASTPATH_TRANSPORTS` leaves ranks that cannot reach each other; the text says what to add.
pub fn choose_transports(config: &Config, ranks: u32) -> Result<Allowed, String> {
    let (loopback, shm) = (is_listed(config, "loopback"), is_listed(config, "shm"));
    let listed = || config.list(Key::Transports).join(",");
    if ranks > 1 && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves {ranks} ranks of one node no way to each other: add shm",
            listed()
        ));
    }
    if !loopback && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves a rank no way to itself: add loopback",
            listed()
        ));
    }
    Ok(Allowed {
        loopback,
        cma: Wishes::of(config).cma,
    })
}

impl Worker {
    /// Takes over what the user has set; to be called before the first message.
    ///
    /// # Errors
    /// As [`choose_transports`].
    pub fn configure(&mut self, config: &Config) -> Result<(), String> {
        self.interfaces.allowed = choose_transports(config, self.size())?;
        self.thresholds = decide::decide(&Constants::default(), &Wishes::of(config), true);
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
