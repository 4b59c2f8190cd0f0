//! Which protocol serves which size, and what the user's variables change in it.

pub mod thresholds;

pub use thresholds::Thresholds;

use crate::wire::{RTS_HEADER, SYNC_HEADER};
use crate::worker::{EAGER_LIMIT, EARLY_LIMIT, Worker};
use fastpath_base::config::{Config, Key};
use fastpath_transport::interfaces::Allowed;

/// Smallest piece that `FASTPATH_PIPELINE_CHUNK` can ask for, in bytes.
const PART_MIN: u64 = 256;
/// Largest one: a transport buffer holds it with the header of an announcement, in whole cache lines.
const PART_MAX: u64 = (EAGER_LIMIT - RTS_HEADER) as u64 / 64 * 64;
/// Largest message in one buffer, with the header of a synchronous one.
const WHOLE_MAX: u64 = (EAGER_LIMIT - SYNC_HEADER) as u64 / 64 * 64;

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

    /// `best` as far as the wishes allow.
    pub fn apply(&self, best: Thresholds) -> Thresholds {
        let mut t = best;
        if !self.pipeline {
            // Whole buffers, one after the other.
            t.eager = WHOLE_MAX;
            (t.part, t.fragment) = (PART_MAX, PART_MAX);
            t.pipelined = false;
        }
        if let Some(chunk) = self.chunk {
            let chunk = chunk.clamp(PART_MIN, PART_MAX);
            (t.part, t.fragment) = (chunk, chunk);
            t.eager = t.eager.min(chunk);
        }
        if let Some(most) = self.eager_max {
            t.eager = t.eager.min(most);
            t.first = most.min(EARLY_LIMIT);
            t.single_copy = t.single_copy.max(t.first + 1);
            t.direct = t.direct.max(t.first + 1);
        }
        if !self.cma {
            t.single_copy = u64::MAX;
        }
        if !self.direct {
            t.direct = u64::MAX;
        }
        t
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
        self.thresholds = Wishes::of(config).apply(Thresholds::default());
        Ok(())
    }
}
